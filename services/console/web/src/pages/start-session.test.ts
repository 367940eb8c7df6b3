import { beforeEach, expect, it, vi } from 'vitest';
import { startSession } from './start-session';

let asked: string[] = [];
/** Answers as the service does; prompts as `refusal` says. */
function serve(refusal?: { status: number; code: string } | 'no answer') {
  vi.stubGlobal('fetch', async (path: string, { method }: { method: string }) => {
    asked.push(`${method} ${path.replace(/ses_[^/]+/, 'SES')}`);
    const isPrompt = path.endsWith('/message');
    if (isPrompt && refusal === 'no answer') throw new TypeError('failed to fetch');
    if (isPrompt && refusal && refusal !== 'no answer') return Response.json({ error: { code: refusal.code, message: 'no' } }, { status: refusal.status });
    return Response.json({ id: 'prj_1' });
  });
}

beforeEach(() => {
  asked = [];
});

it('a prompt that is too long makes no session', async () => {
  serve();
  for (const prompt of ['x'.repeat(1_100_000), 'ü'.repeat(600_000), '"'.repeat(600_000)]) {
    await expect(startSession({ prompt, choice: {} })).rejects.toThrow('1 MiB');
  }
  expect(asked).toEqual([]);
});

it('a prompt that is refused leaves no session behind', async () => {
  for (const status of [400, 403, 413, 429]) {
    asked = [];
    serve({ status, code: 'NO' });
    await expect(startSession({ prompt: 'do it', choice: {} })).rejects.toThrow('No.');
    expect(asked.at(-1), String(status)).toBe('DELETE /platform/session/SES');
  }
});

it('a prompt without an answer may have been taken, and keeps its session', async () => {
  vi.useFakeTimers();
  serve('no answer');
  const refused = expect(startSession({ prompt: 'do it', choice: {} })).rejects.toThrow('cannot be reached');
  await vi.runAllTimersAsync();
  await refused;
  vi.useRealTimers();
  expect(asked.some((one) => one.startsWith('DELETE'))).toBe(false);
});
