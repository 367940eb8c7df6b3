// The methods with a handler that both clients of the SDK have, in the order of a day's work.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './recorder.mjs';

const text = (words) => [{ type: 'text', text: words }];
const texts = ({ parts }) => parts.filter((part) => part.type === 'text').map((part) => part.text).join('');

// Returns the session's id and its first prompt's, for the calls that only the newer client has.
export async function both(sdk, name) {
  const { directory } = sdk;
  const local = await sdk.events('event.subscribe');
  const global = await sdk.events('global.event');
  await local((event) => event.type === 'server.connected');
  await global((event) => event.payload?.type === 'server.connected');

  const config = await sdk.call('config.get', {}, (found) => assert.match(found.model, /^[^/]+\/.+$/));
  const [providerID, modelID] = config.model.split('/');
  const model = { providerID, modelID };

  const { id } = await sdk.call('session.create', { body: { title: `made with ${name}` } }, (session) => {
    assert.match(session.id, /^ses_/);
    assert.equal(session.title, `made with ${name}`);
    assert.equal(session.directory, directory);
  });
  const path = { sessionID: id };
  const prompt = (words) => ({ path, body: { parts: text(words), agent: 'build', model } });
  const made = `${name}.txt`;

  const answer = await sdk.call('session.prompt', prompt(`create ${made} containing hello then say 3 words`), (message) => {
    assert.equal(message.info.role, 'assistant');
    assert.equal(message.info.sessionID, id);
    assert.equal(message.info.agent ?? message.info.mode, 'build');
    assert.deepEqual([message.info.providerID, message.info.modelID], [providerID, modelID]);
    assert.ok(message.info.tokens.input > 0 && message.info.tokens.output > 0 && message.info.time.completed);
    assert.match(texts(message), /w0 w1 w2/);
  });
  assert.equal(readFileSync(join(directory, made), 'utf8').trim(), 'hello');
  const first = answer.info.parentID;
  // The directory is no repository.
  await sdk.call('vcs.get', {}, (vcs) => assert.deepEqual(vcs, {}));
  const isDone = (event) => event.type === 'session.idle' && event.properties.sessionID === id;
  await local(isDone);
  const wrapped = await global((event) => event.payload && isDone(event.payload));
  assert.equal(wrapped.directory, directory);
  const isWrite = ({ type, properties }) => type === 'message.part.updated' && properties.part.state?.status === 'completed';
  assert.equal((await local(isWrite)).properties.part.tool, 'write');

  await sdk.call('session.messages', { path }, (messages) => {
    assert.deepEqual(messages.map(({ info }) => info.role), ['user', 'assistant', 'assistant']);
    assert.equal(messages[0].info.id, first);
    const tool = messages.flatMap(({ parts }) => parts).find((part) => part.type === 'tool');
    assert.deepEqual([tool.tool, tool.state.status], ['write', 'completed']);
  });
  await sdk.call('session.messages', { path, query: { limit: 1 } }, (messages) => {
    assert.deepEqual(messages.map(({ info }) => info.id), [answer.info.id], 'the newest');
  });
  await sdk.call('session.message', { path: { ...path, messageID: first } }, (message) => {
    assert.equal(message.info.role, 'user');
    assert.match(texts(message), /^create/);
  });
  const added = ([file]) => {
    assert.deepEqual([file.file, file.status, file.additions, file.deletions], [made, 'added', 1, 0]);
    assert.match(file.patch, /\+hello/);
  };
  await sdk.call('session.diff', { path }, added);
  await sdk.call('session.diff', { path, query: { messageID: first } }, added);
  await sdk.call('session.get', { path }, (session) => {
    assert.deepEqual([session.id, session.summary?.files, session.summary?.additions], [id, 1, 1]);
  });
  await sdk.call('session.list', {}, (sessions) => assert.ok(sessions.some((session) => session.id === id)));
  await sdk.call('session.update', { path, body: { title: `renamed with ${name}` } }, (session) => {
    assert.equal(session.title, `renamed with ${name}`);
  });

  await sdk.call('session.revert', { path, body: { messageID: first } }, (session) => {
    assert.equal(session.revert.messageID, first);
    assert.ok(!existsSync(join(directory, made)), 'the file is still there');
  });
  await sdk.call('session.unrevert', { path }, (session) => {
    assert.equal(session.revert, undefined);
    assert.equal(readFileSync(join(directory, made), 'utf8').trim(), 'hello');
  });
  const fork = await sdk.call('session.fork', { path, body: {} }, (session) => assert.notEqual(session.id, id));
  await sdk.call('session.messages', { path: { sessionID: fork.id } }, (messages) => assert.equal(messages.length, 3));
  const child = await sdk.call('session.create', { body: { parentID: id } }, (session) => {
    assert.equal(session.parentID, id);
  });
  await sdk.call('session.children', { path }, (sessions) => {
    assert.deepEqual(sessions.map((session) => session.id), [child.id]);
  });
  await sdk.call('session.todo', { path }, (todos) => assert.deepEqual(todos, []));
  await sdk.call('session.delete', { path: { sessionID: child.id } }, (gone) => assert.equal(gone, true));
  await sdk.call('find.files', { query: { query: made, dirs: 'true' } }, (found) => assert.deepEqual(found, [made]));
  assert.match(await sdk.refused('file.list', { query: { path: 'src' } }), /ask the agent to read them/);
  await sdk.refused('session.get', { path: { sessionID: child.id } }, 404);

  // A command that waits for a file, so that the session is busy for as long as we look.
  const busy = async (is) => await until(`a session that is ${is ? 'busy' : 'idle'}`, async () => {
    const status = await sdk.call('session.status', {}, (sessions) => assert.equal(typeof sessions, 'object'));
    return Boolean(status?.[id]) === is && (!is || status[id].type === 'busy');
  });
  const go = `${name}.go`;
  const nothing = (_, response) => assert.equal(response.status, 204);
  await sdk.call('session.promptAsync', prompt(`run \`while [ ! -e ${go} ]; do sleep 0.05; done; echo gone\``), nothing);
  await busy(true);
  writeFileSync(join(directory, go), '');
  await busy(false);
  // The model begins to answer this and does not go on, so a stream on a busy machine sees it too.
  await sdk.call('session.promptAsync', prompt('begin and hold'), nothing);
  // What the stream has kept of the answer before is passed over.
  const begun = await local(({ type, properties }) =>
    type === 'message.part.delta' && properties.sessionID === id && properties.delta.startsWith('w0'));
  assert.equal(begun.properties.field, 'text');
  await sdk.call('session.abort', { path }, (stopped) => assert.equal(stopped, true));
  await busy(false);
  await sdk.call('session.promptAsync', prompt('run `sleep 600`'), nothing);
  await local(({ type, properties }) => type === 'message.part.updated' && properties.part.state?.status === 'running' &&
    properties.part.state.input?.command === 'sleep 600');
  await sdk.call('session.abort', { path }, (stopped) => assert.equal(stopped, true));
  await busy(false);
  await sdk.call('session.messages', { path }, (messages) => {
    assert.equal(messages.at(-1).info.error?.name, 'MessageAbortedError');
  });
  await sdk.call('session.summarize', { path, body: model }, (done) => assert.equal(done, true));
  await sdk.call('session.messages', { path }, (messages) => {
    assert.ok(messages.some(({ info }) => info.summary === true), 'no summary');
  });

  const listed = (providers) => {
    const its = providers.find((provider) => provider.id === providerID);
    assert.ok(its.models[modelID].name.length > 0);
  };
  await sdk.call('config.providers', {}, (found) => {
    listed(found.providers);
    assert.equal(found.default[providerID], modelID);
  });
  await sdk.call('provider.list', {}, ({ all, connected }) => {
    listed(all);
    assert.ok(connected.includes(providerID) && all.some((provider) => provider.id === 'openai'));
  });
  await sdk.call('app.agents', {}, (agents) => {
    const shown = agents.filter((agent) => !agent.hidden).map((agent) => agent.name);
    assert.deepEqual(shown.sort(), ['build', 'explore', 'general', 'plan']);
  });
  const [command] = await sdk.call('command.list', {}, (commands) => assert.ok(commands.length > 0, 'no command'));
  await sdk.call('session.command', { path, body: { command: command.name, arguments: 'now' } }, (message) => {
    assert.equal(message.info.role, 'assistant');
  });
  const init = { messageID: `msg_init_${name}`, ...model };
  await sdk.call('session.init', { path, body: init }, (done) => assert.equal(done, true));
  await sdk.call('path.get', {}, (found) => assert.equal(found.directory, directory));
  await sdk.call('project.current', {}, (project) => assert.equal(project.worktree, directory));
  await sdk.call('project.list', {}, (projects) => {
    assert.ok(projects.some((project) => project.worktree === directory));
  });
  const key = { type: 'api', key: 'sk-0123456789-0123456789-0123' };
  await sdk.call('auth.set', { path: { providerID: 'openai' }, body: { auth: key } }, (set) => assert.equal(set, true));
  await sdk.call('provider.list', {}, ({ connected }) => assert.ok(connected.includes('openai'), 'not connected'));
  return { id, first, model };
}
