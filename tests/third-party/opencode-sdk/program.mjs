// Calls every method of both clients of the released SDK. Arguments: the service's URL, a key, a directory that it may
// work in, and the table of operations. It prints the methods and the calls as JSON; faults are beside the calls.
import { readFileSync } from 'node:fs';
import { createOpencodeClient as first } from '@opencode-ai/sdk';
import { createOpencodeClient as second } from '@opencode-ai/sdk/v2';
import { both } from './both.mjs';
import { newer } from './newer.mjs';
import { Recorder } from './recorder.mjs';

const [url, key, directory, table] = process.argv.slice(2);
const lines = readFileSync(table, 'utf8').split('\n').filter((line) => line && !line.startsWith('#'));
const rows = lines.map((line) => {
  const [verb, path, operation, state, answer] = line.split('\t');
  const pattern = new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+').replace('*', '.*')}$`);
  return { verb, path, operation, state, answer, pattern };
});
// `/session/status` is no session: the row with the fewest parameters comes first.
rows.sort((one, other) => one.path.split('{').length - other.path.split('{').length);

const about = { url, directory, rows };
const v1 = new Recorder({
  ...about,
  create: first,
  headers: { authorization: `Bearer ${key}` },
  shape: (_, { path = {}, query, body }, options) => {
    const id = path.sessionID ?? path.providerID;
    return [{ path: { id, ...path }, query, body: body?.auth ?? body, ...options }];
  },
});
const v2 = new Recorder({
  ...about,
  create: second,
  headers: { authorization: `Basic ${Buffer.from(`opencode:${key}`).toString('base64')}` },
  // A method without parameters takes options alone.
  shape: (method, { path, query, body }, options) =>
    method.length < 2 ? [options] : [{ ...path, ...query, ...body }, options],
});

const signIn = { path: { providerID: 'openai' }, body: { type: 'oauth', refresh: 'r', access: 'a', expires: 1 } };
const told = {};
for (const [name, sdk] of [['v1', v1], ['v2', v2]]) {
  try {
    const session = await both(sdk, name);
    if (sdk === v2) await newer(sdk, session);
    else {
      const answer = { path: { sessionID: session.id, permissionID: 'per_none' }, body: { response: 'once' } };
      await sdk.refused('postSessionIdPermissionsPermissionId', answer, 404);
      await sdk.refused('mcp.auth.set', signIn); // the older client has one group for both kinds of `auth`
    }
    const path = {
      sessionID: session.id, messageID: session.first, partID: 'prt_1', requestID: 'req_1', permissionID: 'per_1',
      projectID: 'global', providerID: 'openai', integrationID: 'openai', attemptID: 'con_1', credentialID: 'crd_1',
      ptyID: 'pty_1', name: 'nobody', id: session.id,
    };
    const called = new Set(sdk.calls.map(({ method }) => method));
    for (const method of sdk.methods()) if (!called.has(method)) await sdk.plain(method, { path });
  } catch (error) {
    sdk.calls.push({ method: 'the program', fault: error.stack });
  }
  sdk.close();
  told[name] = { methods: sdk.methods(), calls: sdk.calls };
}
console.log(JSON.stringify(told));
