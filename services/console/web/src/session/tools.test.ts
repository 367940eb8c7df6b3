import { describe, expect, it } from 'vitest';
import type { Message, Part, ToolPart } from '../lib/fold';
import { hasFailed, piecesOf, rowsOf, summaryOf } from './tools';

let next = 0;
const call = (tool: string, more: Partial<ToolPart> = {}): ToolPart => {
  const id = `prt_${next++}`;
  return { kind: 'tool', id, call: id, tool, status: 'completed', input: {}, ...more };
};
const text = (words: string): Part => ({ kind: 'text', id: `prt_${next++}`, text: words, bytes: words.length, done: true });
const message = (parts: Part[], more: Partial<Message> = {}): Message => ({
  id: `msg_${next++}`,
  role: 'assistant',
  parts,
  created: 0,
  finish: 'tool-calls',
  ...more,
});
const kinds = (parts: Part[]) =>
  piecesOf(parts).map((piece) => (piece.kind === 'calls' ? piece.calls.length : piece.part.kind === 'tool' ? piece.part.tool : 'text'));

describe('reads and searches', () => {
  it('that follow each other fold into one line', () => {
    expect(kinds([call('read'), call('grep'), call('glob'), call('ls')])).toEqual([4]);
    expect(kinds([call('read'), text(' \n'), call('read')])).toEqual([2]);
    expect(kinds([call('read')])).toEqual(['read']);
    expect(kinds([call('read'), call('read'), text('So.'), call('edit'), call('read')])).toEqual([2, 'text', 'edit', 'read']);
  });

  it('that somebody has to look at stand for themselves', () => {
    const loud = [{ status: 'running' }, { status: 'asked' }, { status: 'error' }, { answer: { type: 'once' } }] as Partial<ToolPart>[];
    for (const more of loud) expect(kinds([call('read'), call('read', more), call('read')]), JSON.stringify(more)).toEqual(['read', 'read', 'read']);
  });

  it('say how many they are', () => {
    expect(summaryOf([call('read'), call('read'), call('grep')])).toBe('Read 2 files, searched once');
    expect(summaryOf([call('glob'), call('grep')])).toBe('Searched 2 times');
    const half = () => call('read', { input: { path: 'a.rs' } });
    expect(summaryOf([half(), half()])).toBe('Read 1 file');
  });

  it('of several steps stand in one row', () => {
    const steps = [message([call('read')]), message([call('grep'), text('')]), message([call('read')])];
    const answer = message([text('Done.')], { finish: 'stop' });
    const rows = rowsOf([message([text('look')], { role: 'user' }), ...steps, answer]);
    expect(rows.map((row) => row.message.parts.length)).toEqual([1, 4, 1]);
    expect(rows[1]!.id).toBe(steps[0]!.id);
    expect(rows[2]!.message).toBe(answer);
  });

  it('keep their row while it does not change', () => {
    const steps = [message([call('read')]), message([call('read')])];
    const before = rowsOf(steps);
    const longer = rowsOf([...steps, message([text('Well')], { finish: undefined })], before);
    expect(longer[0]).toBe(before[0]);
    expect(rowsOf([steps[0]!, message([call('read')])], before)[0]).not.toBe(before[0]);
  });

  it('stay apart from edits, words and faults', () => {
    const others = [
      message([call('edit')]),
      message([text('Hm.'), call('read')]),
      message([call('read')], { error: { code: 'x', message: '' } }),
      message([call('read', { status: 'running' })], { finish: undefined }),
      message([call('read')], { role: 'user' }),
    ];
    for (const other of others) expect(rowsOf([message([call('read')]), other]).length).toBe(2);
  });
});

it('a command that ended with a code has failed', () => {
  expect(hasFailed(call('shell', { structured: { exit_code: 1 } }))).toBe(true);
  expect(hasFailed(call('shell', { structured: { exit_code: 0 } }))).toBe(false);
  expect(hasFailed(call('shell', { status: 'error' }))).toBe(true);
  expect(hasFailed(call('shell'))).toBe(false);
});
