/** How a tool's call reads in one line. */
import type { Message, Part, ToolPart } from '../lib/fold';

export type Kind = 'shell' | 'read' | 'edit' | 'search' | 'web' | 'tasks' | 'question' | 'other';

const KINDS: Record<string, Kind> = {
  shell: 'shell',
  read: 'read',
  ls: 'search',
  glob: 'search',
  grep: 'search',
  write: 'edit',
  edit: 'edit',
  apply_patch: 'edit',
  webfetch: 'web',
  web_search: 'web',
  todowrite: 'tasks',
  question: 'question',
};

export const kindOf = (tool: string): Kind => KINDS[tool] ?? 'other';

const VERBS: Record<string, [doing: string, done: string]> = {
  shell: ['Running', 'Ran'],
  read: ['Reading', 'Read'],
  ls: ['Listing', 'Listed'],
  glob: ['Finding', 'Found'],
  grep: ['Searching', 'Searched'],
  write: ['Writing', 'Wrote'],
  edit: ['Editing', 'Edited'],
  apply_patch: ['Patching', 'Patched'],
  webfetch: ['Fetching', 'Fetched'],
  todowrite: ['Planning', 'Planned'],
  question: ['Asking', 'Asked'],
  skill: ['Loading', 'Loaded'],
};

export const verbOf = (call: ToolPart): string => {
  if (call.status === 'asked') return 'Needs permission';
  const verb = VERBS[call.tool];
  const over = call.status === 'completed' || call.status === 'error';
  return verb ? verb[over ? 1 : 0] : call.tool;
};

const string = (value: unknown) => (typeof value === 'string' ? value : '');

/** The thing that the call is about. */
export function subjectOf(call: ToolPart): string {
  const { input } = call;
  switch (call.tool) {
    case 'shell':
      return string(input.command);
    case 'read':
    case 'write':
    case 'edit':
    case 'ls':
      return string(input.path) || string(input.filePath);
    case 'glob':
    case 'grep':
      return string(input.pattern);
    case 'webfetch':
      return string(input.url);
    case 'skill':
      return string(input.name);
    case 'todowrite':
      return Array.isArray(input.todos) ? `${input.todos.length} tasks` : '';
    case 'apply_patch': {
      const files = (call.structured as { files?: unknown } | undefined)?.files;
      return Array.isArray(files) ? files.map((file) => String(file).slice(2)).join(', ') : '';
    }
    case 'question': {
      const first = (input.questions as { header?: string; question?: string }[] | undefined)?.[0];
      return first?.header ?? first?.question ?? '';
    }
    default:
      return call.title ?? '';
  }
}

/** The code with which a command ended. */
export function exitOf(call: ToolPart): number | undefined {
  const code = (call.structured as { exit_code?: unknown } | undefined)?.exit_code;
  return typeof code === 'number' ? code : undefined;
}

/** The changes that a call made to files. */
export function patchOf(call: ToolPart): string | undefined {
  const diff = (call.structured as { diff?: unknown } | undefined)?.diff;
  if (typeof diff === 'string' && diff !== '') return diff;
  if (call.tool === 'write' && typeof call.input.content === 'string') {
    const lines = call.input.content.replace(/\n$/, '').split('\n');
    return `@@ -0,0 +1,${lines.length} @@\n${lines.map((line) => `+${line}`).join('\n')}`;
  }
  return undefined;
}

/** Returns the address of a complete output, whose path the model is told. */
export const outputOf = (session: string, path: string) =>
  `/platform/session/${session}/output/${encodeURIComponent(path.split('/').at(-1)!)}`;

/** Returns whether a call went wrong: it failed, or its command ended with a code that says so. */
export const hasFailed = (call: ToolPart) => call.status === 'error' || (exitOf(call) ?? 0) !== 0;

/** Returns whether a call only looked at something, and nobody has to look at it. */
export const isQuiet = (part: Part): boolean =>
  part.kind === 'tool' && ['read', 'search'].includes(kindOf(part.tool)) && part.status === 'completed' && !part.answer;

/** Parts of a message as they stand on the page: one, or several calls that fold into one line. */
export type Piece = { kind: 'one'; part: Part } | { kind: 'calls'; id: string; calls: ToolPart[] };

/** Folds reads and searches that follow each other. One alone stands for itself, and empty texts between them do not part them. */
export function piecesOf(parts: Part[]): Piece[] {
  const pieces: Piece[] = [];
  let calls: ToolPart[] = [];
  const close = () => {
    if (calls.length === 1) pieces.push({ kind: 'one', part: calls[0]! });
    else if (calls.length > 1) pieces.push({ kind: 'calls', id: `${calls[0]!.id}-and-more`, calls });
    calls = [];
  };
  for (const part of parts) {
    if (part.kind === 'tool' && isQuiet(part)) calls.push(part);
    else if (part.kind === 'tool' || part.text.trim() !== '') {
      close();
      pieces.push({ kind: 'one', part });
    }
  }
  close();
  return pieces;
}

/** Says what folded calls did: `Read 3 files, searched 2 times`. */
export function summaryOf(calls: ToolPart[]): string {
  const isRead = (call: ToolPart) => kindOf(call.tool) === 'read';
  // Parts of one file are one file.
  const reads = new Set(calls.filter(isRead).map((call) => subjectOf(call) || call.id)).size;
  const searches = calls.filter((call) => !isRead(call)).length;
  const words = [
    reads > 0 && `read ${reads} ${reads === 1 ? 'file' : 'files'}`,
    searches > 0 && `searched ${searches === 1 ? 'once' : `${searches} times`}`,
  ];
  const text = words.filter(Boolean).join(', ');
  return text[0]!.toUpperCase() + text.slice(1);
}

/** A row of the conversation: a message, with the ones that folded into it. */
export interface TranscriptRow {
  id: string;
  message: Message;
  /** The messages whose calls stand in this row. */
  of: Message[];
}

const looksOnly = (message: Message) =>
  message.role === 'assistant' &&
  message.finish === 'tool-calls' &&
  !message.error &&
  message.parts.some(isQuiet) &&
  message.parts.every((part) => isQuiet(part) || (part.kind !== 'tool' && part.text.trim() === ''));

/**
 * Returns the rows of a conversation. A model that looks at one file in each step makes a message of each: those that only look fold into one row.
 * What did not change is the same object as in `before`.
 */
export function rowsOf(messages: Message[], before: TranscriptRow[] = []): TranscriptRow[] {
  const known = new Map(before.map((row) => [row.id, row]));
  const groups: Message[][] = [];
  for (const message of messages) {
    const last = groups.at(-1);
    if (last && looksOnly(message) && looksOnly(last.at(-1)!)) last.push(message);
    else groups.push([message]);
  }
  return groups.map((of) => {
    const first = of[0]!;
    const same = known.get(first.id);
    if (same && same.of.length === of.length && same.of.every((message, at) => message === of[at])) return same;
    const message = of.length === 1 ? first : { ...first, parts: of.flatMap((message) => message.parts) };
    return { id: first.id, message, of };
  });
}
