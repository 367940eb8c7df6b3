// The methods with a handler that only the newer client of the SDK has.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './recorder.mjs';

export async function newer(sdk, { id, model }) {
  const { directory } = sdk;
  const path = { sessionID: id };
  await sdk.call('auth.remove', { path: { providerID: 'openai' } }, (gone) => assert.equal(gone, true));
  await sdk.call('provider.list', {}, ({ connected }) => assert.ok(!connected.includes('openai'), 'still connected'));
  await sdk.call('global.health', {}, (health) => assert.equal(health.healthy, true));
  await sdk.call('experimental.session.list', { query: { search: 'renamed' } }, (sessions) => {
    assert.ok(sessions.length > 0 && sessions.every((session) => session.project.worktree === directory));
  });
  const { id: project } = await sdk.call('project.current', {}, () => {});
  await sdk.call('project.directories', { path: { projectID: project } }, (found) => {
    assert.ok(found.some((one) => one.directory === directory), JSON.stringify(found));
  });
  // Changes of a directory are those of its newest session.
  const newest = await sdk.call('session.create', { body: {} }, () => {});
  const write = { parts: [{ type: 'text', text: 'create newest.txt containing hello' }] };
  await sdk.call('session.prompt', { path: { sessionID: newest.id }, body: write }, () => {});
  const changed = (files) => assert.deepEqual(files.map(({ file, status }) => [file, status]), [['newest.txt', 'added']]);
  await sdk.call('vcs.diff', { query: { mode: 'git' } }, changed);
  await sdk.call('vcs.status', {}, changed);

  // A session with all that a client may choose, and lists by what was chosen.
  const chosen = { title: 'chosen', agent: 'plan', model: { providerID: model.providerID, id: model.modelID } };
  const other = await sdk.call('session.create', { body: chosen }, (session) => {
    assert.deepEqual({ title: session.title, agent: session.agent, model: session.model }, chosen);
  });
  const found = async (query, count) => await sdk.call('session.list', { query }, (sessions) => {
    assert.equal(sessions.filter((session) => session.id === other.id).length, count, JSON.stringify(query));
  });
  await found({ search: 'chosen' }, 1);
  await found({ search: 'nobody' }, 0);
  await found({ roots: true, limit: 1 }, 1);
  await found({ start: other.time.updated }, 1);
  await found({ start: other.time.updated + 1 }, 0);
  await sdk.call('session.prompt', { path: { sessionID: other.id }, body: { noReply: true, parts: [{ type: 'text', text: 'for later' }] } }, (message) => {
    assert.equal(message.info.role, 'user');
  });

  // A rule of a session holds.
  const permission = [{ permission: 'bash', pattern: '*', action: 'deny' }];
  const ruled = await sdk.call('session.create', { body: { permission } }, () => {});
  const forbidden = { parts: [{ type: 'text', text: 'run `echo ran > forbidden.txt`' }] };
  await sdk.call('session.prompt', { path: { sessionID: ruled.id }, body: forbidden }, () => {});
  assert.ok(!existsSync(join(directory, 'forbidden.txt')), 'the command ran');

  // A rule that asks: each call waits until somebody answers, in one shape or the other.
  const ask = [{ permission: 'bash', pattern: '*', action: 'ask' }];
  const asking = await sdk.call('session.create', { body: { permission: ask } }, () => {});
  const its = { sessionID: asking.id };
  const asked = async (text, answer) => {
    const body = { parts: [{ type: 'text', text }] };
    await sdk.call('session.promptAsync', { path: its, body }, (_, response) => assert.equal(response.status, 204));
    const request = await until(`a request about ${text}`, async () => {
      const found = await sdk.call('permission.list', {}, (requests) => assert.ok(Array.isArray(requests)));
      return found.find(({ sessionID }) => sessionID === asking.id);
    });
    assert.equal(request.permission, 'bash');
    await answer({ ...its, requestID: request.id, permissionID: request.id }, request);
    await until('its end', async () => {
      const busy = await sdk.call('session.status', {}, () => {});
      return !busy[asking.id];
    });
  };
  const yes = (answer) => assert.equal(answer, true);
  const empty = (_, response) => assert.equal(response.status, 204);
  await asked('run `touch once.txt`', (path) => sdk.call('permission.reply', { path, body: { reply: 'once' } }, yes));
  await asked('run `touch never.txt`', (path) => sdk.call('permission.respond', { path, body: { response: 'reject' } }, yes));
  await asked('run `touch always.txt`', async (path, { id: wanted }) => {
    const has = ({ data }) => assert.deepEqual(data.map((one) => one.id), [wanted]);
    await sdk.call('v2.session.permission.list', { path }, has);
    await sdk.call('v2.session.permission.get', { path }, ({ data }) => assert.equal(data.action, 'bash'));
    await sdk.call('v2.session.permission.reply', { path, body: { reply: 'always' } }, empty);
  });
  assert.ok(existsSync(join(directory, 'once.txt')) && existsSync(join(directory, 'always.txt')), 'they had leave');
  assert.ok(!existsSync(join(directory, 'never.txt')), 'it ran without leave');
  const { data: [saved] } = await sdk.call('v2.permission.saved.list', {}, ({ data }) => assert.equal(data.length, 1));
  await sdk.call('v2.permission.saved.remove', { path: { id: saved.id } }, empty);
  await sdk.call('question.list', {}, (questions) => assert.deepEqual(questions, []));
  await sdk.call('v2.session.question.list', { path: its }, ({ data }) => assert.deepEqual(data, []));
  const gone = { path: { ...its, requestID: 'que_none' }, body: { answers: [['a']] } };
  const second = { path: gone.path, body: { questionV2Reply: gone.body } };
  await sdk.refused('v2.session.question.reply', second, 404);
  for (const name of ['question.reply', 'question.reject', 'v2.session.question.reject']) {
    await sdk.refused(name, gone, 404);
  }

  // Nothing that a client chooses is passed over.
  const refused = async (name, asked, sentence) => assert.match(await sdk.refused(name, asked), sentence);
  const kept = await sdk.call('session.create', { body: { metadata: { ticket: 1 } } }, (session) => {
    assert.deepEqual(session.metadata, { ticket: 1 });
  });
  await sdk.call('session.update', { path: { sessionID: kept.id }, body: { time: { archived: 1 } } }, (session) => {
    assert.equal(session.time.archived, 1);
  });
  const file = { type: 'file', mime: 'image/png', filename: 'a.png', url: 'data:image/png;base64,aGVsbG8=' };
  await refused('session.prompt', { path, body: { parts: [file] } }, /`a.png` \(image\/png\) is no text/);
  const parts = [{ type: 'text', text: 'hello' }];
  await refused('session.prompt', { path, body: { parts, tools: { bash: false } } }, /cannot switch `tools` off/);
  await refused('session.prompt', { path, body: { parts, system: 'Be brief.' } }, /no `system` text/);
  await refused('session.prompt', { path, body: { parts, format: { type: 'json_schema', schema: {} } } }, /an answer is text/);
  await refused('session.prompt', { path, body: { parts, agent: 'nobody' } }, /`build`/);

  const elsewhere = join(directory, 'elsewhere');
  mkdirSync(elsewhere, { recursive: true });
  const move = { sessionID: other.id, destination: { directory: elsewhere } };
  await sdk.call('experimental.controlPlane.moveSession', { body: move }, (_, response) => assert.equal(response.status, 204));
  await sdk.call('session.get', { path: { sessionID: other.id } }, (session) => assert.equal(session.directory, elsewhere));

  // The second API.
  const located = (look) => (answer) => {
    assert.equal(answer.location.directory, directory);
    look(answer.data);
  };
  await sdk.call('v2.location.get', {}, (location) => assert.equal(location.directory, directory));
  await sdk.call('v2.agent.list', {}, located((agents) => assert.ok(agents.some((agent) => agent.id === 'explore'))));
  await sdk.call('v2.model.list', {}, located((models) => assert.ok(models.some((one) => one.id === model.modelID))));
  await sdk.call('v2.provider.list', {}, located((providers) => assert.ok(providers.some((one) => one.id === model.providerID))));
  await sdk.call('v2.provider.get', { path: { providerID: model.providerID } }, located((one) => assert.equal(one.id, model.providerID)));
  await sdk.refused('v2.provider.get', { path: { providerID: 'nobody' } }, 404);
  for (const empty of ['integration.list', 'skill.list', 'pty.list', 'question.request.list', 'permission.request.list', 'reference.list']) {
    await sdk.call(`v2.${empty}`, {}, located((data) => assert.deepEqual(data, [])));
  }
  await sdk.call('app.skills', {}, (skills) => assert.deepEqual(skills, []));
  await sdk.call('v2.fs.find', { query: { query: 'newest', limit: '5' } }, located((found) => {
    assert.deepEqual(found, [{ path: 'newest.txt', type: 'file' }]);
  }));
  // A stream that is not offered says so, and does not keep its caller.
  for (const [name, asked] of [['v2.event.subscribe', {}], ['v2.session.events', { path }]]) {
    const [[cause], ...more] = await sdk.ended(name, asked);
    assert.match(cause.defect, /GET \/event/);
    assert.equal(more.length, 0);
  }
  await sdk.call('v2.command.list', {}, located((commands) => assert.ok(commands.length > 0)));
  const page = await sdk.call('v2.session.list', { query: { limit: 1, order: 'desc' } }, ({ data }) => assert.equal(data.length, 1));
  await sdk.call('v2.session.list', { query: { limit: 100, cursor: page.cursor.next } }, ({ data }) => {
    assert.ok(data.length > 0 && data.every((session) => session.id !== page.data[0].id), 'the first page again');
  });
  await sdk.call('v2.session.list', { query: { search: 'renamed' } }, ({ data }) => {
    assert.ok(data.some((session) => session.id === id));
  });
  await sdk.call('v2.session.get', { path }, ({ data }) => assert.equal(data.id, id));
  await sdk.call('v2.session.interrupt', { path }, (_, response) => assert.equal(response.status, 204));
}
