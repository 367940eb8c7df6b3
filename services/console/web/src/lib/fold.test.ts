import { describe, expect, it } from 'vitest';
import { begin, fold, todosOf, type Fold, type Frame } from './fold';
import { tokensIn, tokensOut } from './format';
import type { LogEvent, MessageView, SessionView } from './types';
import recorded from './recorded.json';

const log = recorded.log as unknown as LogEvent[];
const shown = recorded.messages as unknown as MessageView[];

const session = (seq: number): SessionView => ({ ...(recorded.session as unknown as SessionView), seq, busy: false, outcome: null });
const event = (event: LogEvent): Frame => ({ kind: 'event', event });
const delta = (offset: number, text: string, part = 'prt_1'): Frame => ({
  kind: 'delta',
  delta: { message: 'msg_2', part, kind: 'text', offset, text },
});
const empty = () => begin(session(0), [], [], []);

/** What somebody reads on the page. */
const read = (state: Fold) =>
  state.messages.map((message) => ({
    id: message.id,
    role: message.role,
    finish: message.finish,
    parts: message.parts.map((part) =>
      part.kind === 'tool'
        ? [part.tool, part.status, part.input, part.output, part.title, part.structured]
        : [part.kind, part.text],
    ),
  }));

function turn(...more: [string, object][]): Fold {
  const events: [string, object][] = [
    ['prompt.admitted', { message: 'msg_1', delivery: 'steer', parts: [{ type: 'text', id: 'prt_0', text: 'hi' }], wake: true }],
    ['prompt.promoted', { message: 'msg_1', parts: [{ type: 'text', id: 'prt_0', text: 'hi' }], agent: 'build', model: { provider: 'p', model: 'm' }, admitted: 1 }],
    ['turn.started', { turn: 'trn_1', message: 'msg_2', parent: 'msg_1', agent: 'build', model: { provider: 'p', model: 'm' } }],
    ...more,
  ];
  return events.reduce(
    (state, [type, data], at) => fold(state, event({ seq: at + 1, id: `evt_${at}`, time: at, type, data })),
    empty(),
  );
}

const textOf = (state: Fold) => {
  const part = state.messages.at(-1)?.parts[0];
  return part && part.kind !== 'tool' ? part.text : undefined;
};

describe('a recorded log', () => {
  it('gives what the service shows', () => {
    const folded = log.reduce((state, one) => fold(state, event(one)), empty());
    const theirs = begin(session(log.at(-1)!.seq), shown, [], []);
    expect(read(folded)).toEqual(read(theirs));
    expect(folded.busy).toBe(false);
    expect(folded.waiting).toEqual([]);
  });

  // Check heldout-3: tokens of a cache were counted twice while a page was open, and not at all in the session's list.
  it('has the same tokens and costs as the service', () => {
    const folded = log.reduce((state, one) => fold(state, event(one)), empty());
    const theirs = begin(session(log.at(-1)!.seq), shown, [], []);
    const used = (state: Fold) =>
      state.messages.map(({ id, tokens, cost }) => [id, tokens && tokensIn(tokens), tokens && tokensOut(tokens), cost]);
    expect(used(folded)).toEqual(used(theirs));
    const usage = { input: 100, output: 20, reasoning: 5, cache_read: 60, cache_write: 30, cost: 1_500_000_000 };
    const settled = turn(['turn.settled', { turn: 'trn_1', message: 'msg_2', outcome: 'completed', usage }]).messages.at(-1)!;
    expect(settled.tokens).toEqual({ input: 10, output: 15, reasoning: 5, cache: { read: 60, write: 30 } });
    expect([tokensIn(settled.tokens!), tokensOut(settled.tokens!), settled.cost]).toEqual([100, 20, 1.5]);
  });

  it('gives the same from a snapshot that is newer than its number', () => {
    const theirs = begin(session(log.at(-1)!.seq), shown, [], []);
    for (let after = 0; after <= log.length; after++) {
      const late = begin(session(after), shown, [], []);
      const end = log.reduce((state, one) => fold(state, event(one)), late);
      expect(read(end)).toEqual(read(theirs));
    }
  });

  it('gives the same when events come twice', () => {
    const once = log.reduce((state, one) => fold(state, event(one)), empty());
    const twice = [...log, ...log].reduce((state, one) => fold(state, event(one)), empty());
    expect(twice).toEqual(once);
  });
});

describe('live text', () => {
  it('grows by what is new of it', () => {
    let state = fold(turn(), delta(0, 'grün'));
    expect(textOf(state)).toBe('grün');
    state = fold(state, delta(5, ' is'));
    state = fold(state, delta(2, 'ün is it'));
    expect(textOf(state)).toBe('grün is it');
    expect(fold(state, delta(0, 'grün'))).toBe(state);
  });

  it('waits for the whole text after a gap', () => {
    const gap = fold(fold(turn(), delta(0, 'a')), delta(9, 'z'));
    expect(textOf(gap)).toBe('a');
    const replied = { turn: 'trn_1', message: 'msg_2', parts: [{ type: 'text', id: 'prt_1', text: 'a whole' }], finish: 'stop' };
    const whole = fold(gap, event({ seq: 4, id: 'evt_4', time: 4, type: 'turn.replied', data: replied }));
    expect(textOf(whole)).toBe('a whole');
    expect(textOf(fold(whole, delta(7, ' more')))).toBe('a whole');
  });

  it('goes on from a checkpoint', () => {
    const checkpoint = { turn: 'trn_1', part: 'prt_1', offset: 0, text: 'kept' };
    const state = turn(['text.checkpointed', checkpoint], ['text.checkpointed', { ...checkpoint, offset: 4, text: ' text' }]);
    expect(textOf(state)).toBe('kept text');
    expect(textOf(fold(state, delta(9, '!')))).toBe('kept text!');
  });

  it('leaves every other message as it was', () => {
    const before = turn();
    const after = fold(before, delta(0, 'x'));
    expect(after.messages[0]).toBe(before.messages[0]);
    expect(after.messages[1]).not.toBe(before.messages[1]);
  });
});

describe('a turn', () => {
  it('that is lost takes its message along', () => {
    const usage = { input: 0, output: 0, cost: 0 };
    const lost = turn(['turn.settled', { turn: 'trn_1', message: 'msg_2', outcome: 'lost', usage }]);
    expect(lost.messages.map((message) => message.id)).toEqual(['msg_1']);
  });

  const retry: [string, object] = ['retry.scheduled', { turn: 'trn_1', ordinal: 2, at: 99, error: { code: 'x', message: 'busy' } }];
  // As the service writes it: the next attempt in the same moment, and its request after the wait.
  const attempt: [string, object] = ['attempt.started', { turn: 'trn_1', ordinal: 2 }];

  it('shows a retry while it waits for it', () => {
    expect(turn(retry).retry).toEqual({ at: 99, message: 'busy' });
    expect(turn(retry, attempt).retry).toEqual({ at: 99, message: 'busy' });
    const later = event({ seq: 9, id: 'evt_9', time: 99, type: 'attempt.started', data: {} });
    expect(fold(turn(retry), later).retry).toBeUndefined();
  });

  it('shows no retry once the next attempt brings something', () => {
    const part = { turn: 'trn_1', part: 'prt_1', offset: 0, text: 'kept' };
    const intent = { call: 'call_1', part: 'prt_9', tool: 'shell', arguments: '{}' };
    const usage = { input: 0, output: 0, cost: 0 };
    const comes: [string, object][] = [
      ['text.checkpointed', part],
      ['tool.called', { turn: 'trn_1', message: 'msg_2', intent, state: 'started' }],
      ['turn.replied', { turn: 'trn_1', message: 'msg_2', parts: [], finish: 'stop' }],
      ['turn.settled', { turn: 'trn_1', message: 'msg_2', outcome: 'completed', usage }],
      ['turn.started', { turn: 'trn_2', message: 'msg_3', parent: 'msg_1', agent: 'build', model: { provider: 'p', model: 'm' } }],
      ['drain.ended', { outcome: 'failed', error: { code: 'x', message: 'busy' } }],
    ];
    for (const one of comes) expect(turn(retry, attempt, one).retry, one[0]).toBeUndefined();
    expect(fold(turn(retry, attempt), delta(0, 'grün')).retry).toBeUndefined();
  });

  it('that failed says why', () => {
    const error = { code: 'provider.authentication', message: 'no key' };
    const failed = turn(['drain.ended', { outcome: 'failed', error }]);
    expect([failed.busy, failed.outcome, failed.error]).toEqual([false, 'failed', error]);
  });
});

describe('a call', () => {
  const called: [string, object] = [
    'tool.called',
    { turn: 'trn_1', message: 'msg_2', intent: { call: 'call_1', part: 'prt_9', tool: 'shell', arguments: '{"command":"ls"}' }, state: 'intended' },
  ];
  const about = { type: 'permission', action: 'shell', resources: ['ls'], save: ['ls *'] };
  const asked: [string, object] = ['tool.asked', { turn: 'trn_1', call: 'call_1', ask: 'per_1', about, expires: 9 }];
  const call = (state: Fold) => state.messages.at(-1)!.parts[0]!;

  it('waits for an answer, and runs after it', () => {
    const waits = turn(called, asked);
    expect(waits.asks).toMatchObject([{ id: 'per_1', call: 'call_1', message: 'msg_2', about }]);
    expect(call(waits)).toMatchObject({ status: 'asked' });
    const answer = { type: 'once' };
    const goes = turn(called, asked, ['tool.answered', { call: 'call_1', ask: 'per_1', answer }], ['tool.started', { turn: 'trn_1', call: 'call_1', body: 1 }]);
    expect(goes.asks).toEqual([]);
    expect(call(goes)).toMatchObject({ status: 'running', answer });
  });

  it('that ends otherwise has no ask any more', () => {
    const settled = { turn: 'trn_1', call: 'call_1', outcome: 'cancelled', output: 'stopped', title: 'Ran ls', started: 1, ended: 2 };
    const over = turn(called, asked, ['tool.settled', settled]);
    expect(over.asks).toEqual([]);
    expect(call(over)).toMatchObject({ status: 'error', outcome: 'cancelled', output: 'stopped' });
  });

  it('tells the newest list of tasks', () => {
    const intent = { call: 'call_1', part: 'prt_9', tool: 'todowrite', arguments: '{"todos":[]}' };
    const structured = '[{"content":"one","status":"completed"}]';
    const state = turn(
      ['tool.called', { turn: 'trn_1', message: 'msg_2', intent, state: 'started' }],
      ['tool.settled', { turn: 'trn_1', call: 'call_1', outcome: 'completed', output: '', title: '', structured, started: 1, ended: 2 }],
    );
    expect(todosOf(state.messages)).toEqual([{ content: 'one', status: 'completed' }]);
  });
});

describe('the inbox', () => {
  const queued = { message: 'msg_9', delivery: 'queue', parts: [{ type: 'text', text: 'later' }], wake: false };

  it('keeps what waits until it is taken up or out', () => {
    const waits = turn(['prompt.admitted', queued]);
    expect(waits.waiting).toEqual([{ id: 'msg_9', kind: 'prompt', delivery: 'queue', text: 'later' }]);
    expect(turn(['prompt.admitted', queued], ['delivery.changed', { message: 'msg_9', delivery: 'steer', wake: true }]).waiting[0]?.delivery).toBe('steer');
    expect(turn(['prompt.admitted', queued], ['input.cancelled', { message: 'msg_9' }]).waiting).toEqual([]);
  });

  it('stops when somebody interrupts, and says so', () => {
    const stopping = turn(['interrupt.requested', { target: { type: 'drain' } }]);
    expect([stopping.busy, stopping.stopping]).toEqual([true, true]);
    const over = turn(['interrupt.requested', {}], ['drain.ended', { outcome: 'interrupted' }]);
    expect([over.busy, over.stopping, over.outcome]).toEqual([false, false, 'interrupted']);
  });
});

it('a revert that is final takes the messages after it away', () => {
  const gone = turn(['revert.staged', { message: 'msg_2' }], ['revert.committed', { message: 'msg_2', from: 3 }]);
  expect(gone.messages.map((message) => message.id)).toEqual(['msg_1']);
  expect(gone.reverted).toBeUndefined();
});
