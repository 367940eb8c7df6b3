import { beforeEach, expect, it, vi } from 'vitest';
import { takeBack, Trial } from './trial.svelte';

/** A service as far as a trial needs it: credentials, settings, models, and one model that answers or not. */
function serve({ answers = true, before = [] as { id: string; label: string; active: boolean; created?: number; updated?: number }[] } = {}) {
  const state = {
    credentials: before.map((one) => ({ ...one, provider: 'acme', owner: '' })),
    providers: [] as Record<string, any>[],
    asked: [] as string[],
    /** What stood there while the model was asked. */
    during: '',
  };
  const write = () => state.credentials.map((one) => `${one.label}${one.active ? '*' : ''}`).join(' ');
  vi.stubGlobal('fetch', async (path: string, { method, body }: { method: string; body: string | null }) => {
    const sent = body ? JSON.parse(body) : {};
    state.asked.push(`${method} ${path}`);
    if (path === '/platform/credential' && method === 'GET') return Response.json(state.credentials);
    if (path === '/platform/credential') {
      for (const one of state.credentials) one.active = false;
      state.credentials.push({ id: 'crd_new', label: sent.label, active: true, provider: sent.provider, owner: '' });
      return Response.json({ id: 'crd_new' });
    }
    const id = path.split('/').at(-1)!;
    if (path.startsWith('/platform/credential/')) {
      if (method === 'DELETE') state.credentials = state.credentials.filter((one) => one.id !== id);
      else Object.assign(state.credentials.find((one) => one.id === id)!, sent);
      return Response.json({});
    }
    if (path === '/platform/provider') return Response.json(state.providers);
    if (path.startsWith('/platform/provider/')) {
      state.providers = state.providers.filter((one) => one.provider !== id);
      if (method === 'PUT') state.providers.push({ provider: id, hasClientSecret: false, updated: 1, ...sent });
      return Response.json({});
    }
    if (path.startsWith('/platform/model')) return Response.json({ models: [{ id: 'acme/one', name: 'One', toolCall: true, status: 'available' }] });
    if (path.endsWith('/wait')) {
      state.during = write();
      return Response.json({ busy: false, outcome: answers ? 'completed' : 'failed' });
    }
    if (path.endsWith('/log')) return Response.json([{ type: 'drain.ended', data: { error: { message: 'the key is wrong' } } }]);
    return Response.json(path.endsWith('/message') && method === 'GET' ? [] : { id: 'prj_1' });
  });
  return { state, write };
}

function trial(key: string): Trial {
  const made = new Trial(() => 'acme');
  made.key = key;
  return made;
}

beforeEach(() => vi.unstubAllGlobals());

it('a key that is refused is not kept, and the one before works on', async () => {
  for (const before of [[], [{ id: 'crd_1', label: 'default', active: true }], [{ id: 'crd_2', label: 'team', active: true }]]) {
    const { state, write } = serve({ answers: false, before });
    const at = trial('sk-wrong');
    await at.tryKey();
    expect(state.during).toContain('on trial*');
    expect(write()).toBe(before.map((one) => `${one.label}*`).join(' '));
    expect([at.tried?.ok, at.tried?.text, at.busy]).toEqual([false, 'the key is wrong', undefined]);
  }
});

it('a key that works is kept in the place of the one before', async () => {
  const { write } = serve({ before: [{ id: 'crd_1', label: 'default', active: true }] });
  const at = trial('sk-right');
  await at.tryKey();
  expect([at.tried?.ok, at.key, write()]).toEqual([true, '', 'default*']);
});

it('while one provider is tried, another one is free', async () => {
  serve();
  const [one, other] = [trial('sk-1'), trial('')];
  const trying = one.tryKey();
  expect([one.busy, other.busy]).toEqual(['try', undefined]);
  await trying;
  await other.tryKey();
  expect([one.wrong, other.wrong]).toEqual([undefined, 'Paste your API key of this provider.']);
});

it('a server of ones own is set up when it answers', async () => {
  for (const answers of [true, false]) {
    const { state } = serve({ answers });
    const at = new Trial(() => 'ollama');
    [at.address, at.wanted] = ['http://127.0.0.1:11434/v1', 'qwen3'];
    await at.tryServer();
    const settings = answers ? [{ api: 'http://127.0.0.1:11434/v1', models: { qwen3: {} } }] : [];
    expect(state.providers.map((one) => one.overrides)).toEqual(settings);
    expect(at.model).toBe('ollama/qwen3');
  }
});

it('a server that has settings keeps them', async () => {
  const { state } = serve({ answers: false });
  const had = { provider: 'ollama', hasClientSecret: false, updated: 1, env: { A: 'b' }, overrides: { api: 'http://old/v1', models: { old: {} } } };
  state.providers = [had];
  const at = new Trial(() => 'ollama');
  [at.address, at.wanted] = ['http://new/v1', 'qwen3'];
  await at.tryServer();
  expect(state.providers[0]).toMatchObject({ env: { A: 'b' }, overrides: had.overrides });
});

it('a provider with secret headers is left alone', async () => {
  const { state } = serve();
  state.providers = [{ provider: 'ollama', overrides: { api: 'http://old/v1', headers: { 'x-key': '…' } } }];
  const at = new Trial(() => 'ollama');
  [at.address, at.wanted] = ['http://new/v1', 'qwen3'];
  await at.tryServer();
  expect(at.wrong).toContain('headers of its own');
  expect(state.providers[0]!.overrides.api).toBe('http://old/v1');
});

it('a trial that a reload interrupts is taken back, and so is its server', async () => {
  const kept = new Map<string, string>();
  vi.stubGlobal('sessionStorage', {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, text: string) => void kept.set(name, text),
  });
  const before = [
    { id: 'crd_1', label: 'default', active: false, created: 1, updated: 7 },
    { id: 'crd_2', label: 'older', active: false, created: 1, updated: 3 },
    { id: 'crd_3', label: 'on trial', active: true, created: 7, updated: 7 },
  ];
  const { state, write } = serve({ before });
  state.providers = [{ provider: 'acme', env: { A: 'b' }, overrides: { api: 'http://new/v1' }, trial: { before: { api: 'http://old/v1' } } }];
  await takeBack();
  expect(write()).toContain('on trial*');
  kept.set('oc-trial', JSON.stringify({ acme: 'ses_1' }));
  await takeBack();
  expect([write(), kept.get('oc-trial')]).toEqual(['default* older', '{}']);
  expect(state.asked).toContain('DELETE /platform/session/ses_1');
  expect(state.providers[0]).toMatchObject({ env: { A: 'b' }, overrides: { api: 'http://old/v1' } });
  expect(state.providers[0]!.trial).toBeUndefined();
});
