/** How a tool's call reads in one line. */
import type { ToolPart } from '../lib/fold';

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
  if (call.status === 'asked') return 'Wants leave';
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
