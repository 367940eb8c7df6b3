/**
 * The state of a session as its page shows it, and how each frame of the log changes it. Pure: no clock, no I/O, no framework.
 *
 * A page begins with a snapshot (session, messages, inbox, asks) and then reads the log after the snapshot's number. The parts of a snapshot
 * are read one after the other, so the log repeats some of what they say already. So every step gives the same result when it is taken twice.
 */
import type {
  About,
  AskView,
  Delta,
  InboxView,
  LogEvent,
  MessageView,
  ModelChoice,
  SessionView,
  Tokens,
} from './types';

export interface Answer {
  type: string;
  message?: string;
  patterns?: string[];
  answers?: string[][];
}

export interface TextPart {
  kind: 'text' | 'reasoning';
  id: string;
  text: string;
  /** The length of `text` in bytes of UTF-8. */
  bytes: number;
  /** Whether the text is whole. */
  done: boolean;
}

export interface ToolPart {
  kind: 'tool';
  id: string;
  call: string;
  tool: string;
  /** `asked`: it waits for a person. */
  status: 'pending' | 'asked' | 'running' | 'completed' | 'error';
  input: Record<string, unknown>;
  output?: string;
  title?: string;
  structured?: unknown;
  outcome?: string;
  truncated?: boolean;
  path?: string;
  start?: number;
  end?: number;
  answer?: Answer;
}

export type Part = TextPart | ToolPart;

export interface Message {
  id: string;
  role: 'user' | 'assistant' | 'notice' | 'checkpoint';
  parts: Part[];
  created: number;
  completed?: number;
  agent?: string;
  model?: ModelChoice;
  /** A notice's kind, or a checkpoint's reason. */
  kind?: string;
  finish?: string;
  error?: { code: string; message: string };
  tokens?: Tokens;
  cost?: number;
  turn?: string;
}

export interface Ask {
  id: string;
  call: string;
  message: string;
  about: About;
  asked: number;
  expires: number;
}

export interface Waiting {
  id: string;
  kind: string;
  delivery: 'steer' | 'queue';
  text: string;
}

export interface Fold {
  /** The newest number of the log that is in here. */
  seq: number;
  title: string;
  agent: string;
  model?: ModelChoice;
  busy: boolean;
  /** Somebody has asked to stop, and it has not stopped yet. */
  stopping: boolean;
  outcome?: string;
  error?: { code: string; message: string };
  messages: Message[];
  waiting: Waiting[];
  asks: Ask[];
  retry?: { at: number; message: string };
  compacting: boolean;
  archived: boolean;
  /** A Revert that can be undone begins with this message. */
  reverted?: string;
}

export type Frame = { kind: 'event'; event: LogEvent } | { kind: 'delta'; delta: Delta };

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const bytesOf = (text: string) => encoder.encode(text).length;

/** Returns the state that a snapshot describes. The log goes on after `session.seq`. */
export function begin(
  session: SessionView,
  messages: MessageView[],
  inbox: InboxView[],
  asks: AskView[],
): Fold {
  const waiting = inbox.map(waitingOf);
  const waits = new Set(waiting.map((input) => input.id));
  const model = session.model;
  const open = asks.map(askOf);
  const asked = new Set(open.map((ask) => ask.call));
  return {
    seq: session.seq ?? 0,
    title: session.title,
    agent: session.agent,
    model: model
      ? { providerID: model.providerID, modelID: model.id, variant: model.variant }
      : undefined,
    busy: session.busy ?? false,
    stopping: false,
    outcome: session.outcome ?? undefined,
    messages: messages
      .filter((message) => !waits.has(message.info.id))
      .map((message) => messageOf(message, asked)),
    waiting,
    asks: open,
    compacting: false,
    archived: session.time.archived != null,
    reverted: session.revert?.messageID,
  };
}

const waitingOf = (input: InboxView): Waiting => ({
  id: input.id,
  kind: input.kind,
  delivery: input.delivery,
  text: input.description ?? (input.texts ?? []).join('\n'),
});

const askOf = (ask: AskView): Ask => ({
  id: ask.id,
  call: ask.callID,
  message: ask.messageID,
  about:
    ask.type === 'permission'
      ? { type: 'permission', action: ask.action, resources: ask.resources, save: ask.save }
      : { type: 'question', questions: ask.questions },
  asked: ask.time.asked,
  expires: ask.time.expires,
});

/** Returns a message of a snapshot, or of an older page. */
export function messageOf(view: MessageView, asked: ReadonlySet<string> = new Set()): Message {
  const info = view.info;
  const done = info.role !== 'assistant' || info.time.completed != null || info.finish != null;
  const parts: Part[] = [];
  for (const part of view.parts) {
    if (part.type === 'text' || part.type === 'reasoning') {
      const text = part.text ?? '';
      parts.push({ kind: part.type, id: part.id, text, bytes: bytesOf(text), done });
    } else if (part.type === 'tool' && part.state) {
      const state = part.state;
      const waits = state.status !== 'completed' && state.status !== 'error';
      parts.push({
        kind: 'tool',
        id: part.id,
        call: part.callID ?? part.id,
        tool: part.tool ?? 'tool',
        status: waits && asked.has(part.callID ?? '') ? 'asked' : state.status,
        input: state.raw === undefined ? state.input : argumentsOf(state.raw),
        output: state.output ?? state.error,
        title: state.title,
        structured: state.metadata?.structured,
        outcome: state.metadata?.outcome ?? (state.status === 'completed' ? 'completed' : undefined),
        truncated: state.metadata?.truncated,
        path: state.metadata?.outputPath,
        start: state.time?.start,
        end: state.time?.end,
      });
    }
  }
  const model =
    info.model ??
    (info.modelID
      ? { providerID: info.providerID ?? '', modelID: info.modelID, variant: info.variant }
      : undefined);
  return {
    id: info.id,
    role: info.role,
    parts,
    created: info.time.created,
    completed: info.time.completed ?? undefined,
    agent: info.agent,
    model,
    kind: info.kind ?? info.reason,
    finish: info.finish ?? undefined,
    error: errorOf(info.error),
    tokens: info.tokens,
    cost: info.cost,
  };
}

/** Reads an error of a message, which has the shape of stock clients. */
function errorOf(error: unknown): Message['error'] {
  if (error === null || typeof error !== 'object') return undefined;
  const { name, code, message, data } = error as Record<string, any>;
  return { code: data?.code ?? code ?? name ?? 'error', message: data?.message ?? message ?? '' };
}

function argumentsOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}

/** Returns the state after a frame. What did not change is the same object as before. */
export function fold(state: Fold, frame: Frame): Fold {
  if (frame.kind === 'delta') return hear(state, frame.delta);
  if (frame.event.seq <= state.seq) return state;
  return { ...apply(state, frame.event), seq: frame.event.seq };
}

function apply(state: Fold, event: LogEvent): Fold {
  const { data, time } = event;
  switch (event.type) {
    case 'prompt.admitted': {
      if (state.messages.some((message) => message.id === data.message)) return state;
      const text = data.synthetic ?? textOf(data.parts);
      const input: Waiting = { id: data.message, kind: 'prompt', delivery: data.delivery, text };
      return { ...withInput(state, input), busy: state.busy || data.wake };
    }
    case 'control.admitted': {
      const kind: string = data.control.type;
      const input: Waiting = { id: data.message, kind, delivery: data.delivery, text: '' };
      return { ...withInput(state, input), busy: state.busy || data.wake };
    }
    case 'delivery.changed':
      return {
        ...state,
        busy: state.busy || data.wake,
        waiting: state.waiting.map((input) =>
          input.id === data.message ? { ...input, delivery: data.delivery } : input,
        ),
      };
    case 'input.cancelled':
      return without(state, data.message);
    case 'control.delivered':
      return withoutInput(state, data.message);
    case 'wake.requested':
      return { ...state, busy: true };
    case 'prompt.promoted': {
      const next = withoutInput(state, data.message);
      const known = next.messages.some((message) => message.id === data.message);
      const message: Message = {
        id: data.message,
        role: 'user',
        parts: textParts(data.parts),
        created: data.admitted,
        completed: time,
        agent: data.agent,
        model: modelOf(data.model),
      };
      return {
        ...next,
        busy: true,
        reverted: undefined,
        agent: data.agent,
        model: modelOf(data.model),
        messages: known ? next.messages : [...next.messages, message],
      };
    }
    case 'notice.recorded':
      return added(state, {
        id: data.message,
        role: 'notice',
        kind: data.kind,
        parts: [whole(data.message, data.text)],
        created: time,
        completed: time,
      });
    case 'turn.started': {
      const next: Fold = { ...state, busy: true, error: undefined, outcome: undefined, retry: undefined };
      const message: Message = {
        id: data.message,
        role: 'assistant',
        parts: [],
        created: time,
        agent: data.agent,
        model: modelOf(data.model),
        turn: data.turn,
      };
      const known = next.messages.find((known) => known.id === data.message);
      if (!known) return { ...next, messages: [...next.messages, message] };
      return changed(next, data.message, (known) => ({ ...known, turn: data.turn }));
    }
    case 'retry.scheduled':
      return { ...state, retry: { at: data.at, message: data.error.message } };
    case 'attempt.started':
      // The log has the next attempt in the same moment as the retry, long before its request goes out. Only a
      // later one says that the wait is over.
      return state.retry && time >= state.retry.at ? withoutRetry(state) : state;
    case 'text.checkpointed':
      return ofTurn(withoutRetry(state), data.turn, (message) =>
        message.completed === undefined
          ? heard(message, data.part, 'text', data.offset, data.text)
          : message,
      );
    case 'tool.called':
      return changed(withoutRetry(state), data.message, (message) => called(message, data, time));
    case 'tool.started':
      return ofCall(state, data.call, (call) =>
        call.status === 'pending' || call.status === 'asked'
          ? { ...call, status: 'running', start: time }
          : call,
      );
    case 'tool.asked': {
      const next = ofCall(state, data.call, (call) =>
        call.outcome === undefined ? { ...call, status: 'asked' } : call,
      );
      const message = next.messages.find((message) =>
        message.parts.some((part) => part.kind === 'tool' && part.call === data.call),
      );
      const ask: Ask = {
        id: data.ask,
        call: data.call,
        message: message?.id ?? '',
        about: data.about,
        asked: time,
        expires: data.expires,
      };
      return { ...next, asks: [...next.asks.filter((known) => known.id !== ask.id), ask] };
    }
    case 'tool.answered': {
      const asks = state.asks.filter((ask) => ask.id !== data.ask);
      const next = { ...state, asks };
      return ofCall(next, data.call, (call) => ({
        ...call,
        answer: data.answer,
        status:
          call.status === 'asked' && !asks.some((ask) => ask.call === data.call)
            ? 'pending'
            : call.status,
      }));
    }
    case 'tool.settled': {
      const asks = state.asks.filter((ask) => ask.call !== data.call);
      return ofCall({ ...state, asks }, data.call, (call) => ({
        ...call,
        status: data.outcome === 'completed' ? 'completed' : 'error',
        outcome: data.outcome,
        output: data.output,
        title: data.title,
        structured: parsed(data.structured) ?? call.structured,
        truncated: data.truncated ?? false,
        path: data.managed_path,
        start: data.started,
        end: data.ended,
      }));
    }
    case 'turn.replied':
      return changed(withoutRetry(state), data.message, (message) => replied(message, data));
    case 'turn.settled': {
      if (data.outcome === 'lost' || data.outcome === 'overflowed')
        return without({ ...state, retry: undefined }, data.message);
      const next = changed(state, data.message, (message) => ({
        ...message,
        completed: message.completed ?? time,
        error: data.error ?? message.error,
        parts: message.parts.map((part) =>
          part.kind === 'tool' || part.done ? part : { ...part, done: true },
        ),
        tokens: tokensOf(data.usage),
        cost: message.cost ?? (data.usage.cost ?? 0) / 1e9,
      }));
      return { ...next, retry: undefined };
    }
    case 'compaction.started':
      return { ...state, compacting: true, busy: true };
    case 'compaction.ended': {
      const next = { ...state, compacting: false };
      if (data.outcome !== 'completed') return next;
      return added(next, {
        id: data.message,
        role: 'checkpoint',
        parts: [whole(data.message, data.checkpoint ?? '')],
        created: time,
        completed: time,
      });
    }
    case 'interrupt.requested':
      return { ...state, stopping: state.busy };
    case 'drain.ended':
      return {
        ...state,
        busy: false,
        stopping: false,
        compacting: false,
        retry: undefined,
        outcome: data.outcome,
        error: data.error ?? undefined,
      };
    case 'session.renamed':
      return { ...state, title: data.title };
    case 'session.archived':
      return { ...state, archived: data.archived != null };
    case 'revert.staged':
      return { ...state, reverted: data.message };
    case 'revert.cleared':
      return { ...state, reverted: undefined };
    case 'revert.committed': {
      const from = state.messages.findIndex((message) => message.id === data.message);
      const messages = from < 0 ? state.messages : state.messages.slice(0, from);
      return { ...state, messages, reverted: undefined };
    }
    default:
      return state;
  }
}

function hear(state: Fold, delta: Delta): Fold {
  if (delta.kind !== 'text' && delta.kind !== 'reasoning') return state;
  const kind = delta.kind;
  return changed(withoutRetry(state), delta.message, (message) =>
    message.completed === undefined
      ? heard(message, delta.part, kind, delta.offset, delta.text)
      : message,
  );
}

/** Adds text that begins at a byte of its part. Text that is there already is not added again; text after a gap is left out. */
function heard(
  message: Message,
  id: string,
  kind: 'text' | 'reasoning',
  offset: number,
  text: string,
): Message {
  const at = message.parts.findIndex((part) => part.id === id);
  const part = message.parts[at];
  if (!part) {
    if (offset > 0) return message;
    const begun: TextPart = { kind, id, text, bytes: bytesOf(text), done: false };
    return { ...message, parts: [...message.parts, begun] };
  }
  if (part.kind === 'tool' || part.done || offset > part.bytes) return message;
  const known = part.bytes - offset;
  const all = encoder.encode(text);
  if (all.length <= known) return message;
  const fresh = known === 0 ? text : decoder.decode(all.subarray(known));
  const longer = { ...part, text: part.text + fresh, bytes: offset + all.length };
  return { ...message, parts: message.parts.with(at, longer) };
}

function called(message: Message, data: Record<string, any>, time: number): Message {
  const intent = data.intent;
  const known = message.parts.some((part) => part.kind === 'tool' && part.call === intent.call);
  if (known) return message;
  const part: ToolPart = {
    kind: 'tool',
    id: intent.part,
    call: intent.call,
    tool: intent.tool,
    status: data.state === 'started' ? 'running' : data.state === 'asked' ? 'asked' : 'pending',
    input: argumentsOf(intent.arguments),
    start: time,
  };
  return { ...message, parts: [...message.parts, part] };
}

/** Gives a message its reply, which has every part at its place. A call that the reply does not name goes last. */
function replied(message: Message, data: Record<string, any>): Message {
  const parts: Part[] = [];
  const taken = new Set<string>();
  for (const part of data.parts as Record<string, any>[]) {
    if (part.type === 'text' || part.type === 'reasoning') {
      const { id, text } = part;
      parts.push({ kind: part.type, id, text, bytes: bytesOf(text), done: true });
      taken.add(id);
    } else if (part.type === 'tool-call') {
      const call = message.parts.find((known) => known.kind === 'tool' && known.call === part.call);
      if (call) {
        parts.push(call);
        taken.add(call.id);
      }
    } else if (part.type === 'hosted-call') {
      const result = data.parts.find(
        (other: Record<string, any>) =>
          other.type === 'hosted-result' && other.call === part.call,
      );
      parts.push({
        kind: 'tool',
        id: part.id,
        call: callOfPart(part.id),
        tool: part.name,
        status: result ? (result.is_error ? 'error' : 'completed') : 'running',
        input: argumentsOf(part.input),
        output: result?.output,
        outcome: result ? (result.is_error ? 'failed' : 'completed') : undefined,
        start: message.created,
        end: message.created,
      });
      taken.add(part.id);
    }
  }
  const rest = message.parts.filter((part) => part.kind === 'tool' && !taken.has(part.id));
  return { ...message, parts: [...parts, ...rest], finish: data.finish };
}

/** What a provider ran itself has a call named after its part. */
const callOfPart = (part: string) => `call${part.slice(part.indexOf('_'))}`;

/** The counts of an event overlap: input includes cached tokens, output includes reasoning. Those of a view do not. */
function tokensOf(usage: Record<string, number>): Tokens {
  const [read, write, reasoning] = [usage.cache_read ?? 0, usage.cache_write ?? 0, usage.reasoning ?? 0];
  return {
    input: Math.max(0, (usage.input ?? 0) - read - write),
    output: Math.max(0, (usage.output ?? 0) - reasoning),
    reasoning,
    cache: { read, write },
  };
}

const modelOf = (model?: Record<string, any>): ModelChoice | undefined =>
  model && { providerID: model.provider, modelID: model.model, variant: model.variant };

const textOf = (parts: { text?: string }[]) => parts.map((part) => part.text ?? '').join('\n');

const textParts = (parts: { id?: string; text?: string }[]): TextPart[] =>
  parts.map((part, at) => ({ ...whole(part.id ?? String(at), part.text ?? ''), id: part.id ?? String(at) }));

const whole = (id: string, text: string): TextPart => ({
  kind: 'text',
  id: id.replace(/^msg_/, 'prt_'),
  text,
  bytes: bytesOf(text),
  done: true,
});

function parsed(text: string | null | undefined): unknown {
  if (text == null) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

const added = (state: Fold, message: Message): Fold =>
  state.messages.some((known) => known.id === message.id)
    ? state
    : { ...state, messages: [...state.messages, message] };

function withInput(state: Fold, input: Waiting): Fold {
  if (state.waiting.some((known) => known.id === input.id)) return state;
  return { ...state, waiting: [...state.waiting, input] };
}

const withoutInput = (state: Fold, id: string): Fold =>
  state.waiting.some((input) => input.id === id)
    ? { ...state, waiting: state.waiting.filter((input) => input.id !== id) }
    : state;

/** Once something comes, the wait for the next try is over. */
const withoutRetry = (state: Fold): Fold => (state.retry ? { ...state, retry: undefined } : state);

const without = (state: Fold, id: string): Fold => ({
  ...withoutInput(state, id),
  messages: state.messages.filter((message) => message.id !== id),
});

function changed(state: Fold, id: string, change: (message: Message) => Message): Fold {
  const at = state.messages.findLastIndex((message) => message.id === id);
  const message = state.messages[at];
  if (!message) return state;
  const next = change(message);
  return next === message ? state : { ...state, messages: state.messages.with(at, next) };
}

/** Changes the message of a turn. A snapshot does not tell the turn, but only the newest answer can be open. */
function ofTurn(state: Fold, turn: string, change: (message: Message) => Message): Fold {
  const message =
    state.messages.findLast((message) => message.turn === turn) ??
    state.messages.findLast((message) => message.role === 'assistant');
  return message ? changed(state, message.id, change) : state;
}

function ofCall(state: Fold, call: string, change: (call: ToolPart) => ToolPart): Fold {
  const message = state.messages.findLast((message) =>
    message.parts.some((part) => part.kind === 'tool' && part.call === call),
  );
  if (!message) return state;
  return changed(state, message.id, (message) => ({
    ...message,
    parts: message.parts.map((part) =>
      part.kind === 'tool' && part.call === call ? change(part) : part,
    ),
  }));
}

/** Returns the newest list of tasks that the model has written. */
export function todosOf(messages: Message[]): { content: string; status: string }[] {
  for (const message of messages.toReversed()) {
    for (const part of message.parts.toReversed()) {
      if (part.kind === 'tool' && part.tool === 'todowrite' && part.status === 'completed') {
        const list = Array.isArray(part.structured) ? part.structured : part.input.todos;
        return Array.isArray(list) ? list : [];
      }
    }
  }
  return [];
}
