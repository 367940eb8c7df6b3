/** Asks a worker to colour code. */
import url from './highlight.worker?worker&url';
import type { Line } from './flatten';

export type { Line } from './flatten';

/** Longer code stays plain. */
const LONGEST = 60_000;
const waiting = new Map<number, (lines: Line[] | undefined) => void>();
let next = 0;
let worker: Worker | undefined;

/** The one address that may become a program here. */
function address(): string | URL {
  const policies = (window as any).trustedTypes;
  if (!policies) return url;
  const own = policies.createPolicy('oc-worker', {
    createScriptURL(given: string) {
      if (given !== url) throw new TypeError('only the worker of this page is started');
      return given;
    },
  });
  return own.createScriptURL(url);
}

function start(): Worker {
  const made = new Worker(address() as string, { type: 'module' });
  made.onmessage = ({ data }) => {
    waiting.get(data.id)?.(data.lines);
    waiting.delete(data.id);
  };
  return made;
}

/** Returns coloured lines; none for a language that is not known. */
export function highlight(text: string, language: string): Promise<Line[] | undefined> {
  if (language === '' || text.length > LONGEST) return Promise.resolve(undefined);
  worker ??= start();
  const id = next++;
  return new Promise((done) => {
    waiting.set(id, done);
    worker!.postMessage({ id, text, language: language.toLowerCase() });
  });
}

const ENDINGS: Record<string, string> = {
  rs: 'rust', py: 'python', js: 'javascript', mjs: 'javascript', cjs: 'javascript', jsx: 'javascript',
  ts: 'typescript', tsx: 'typescript', sh: 'bash', bash: 'bash', zsh: 'bash', yml: 'yaml', yaml: 'yaml',
  toml: 'toml', json: 'json', md: 'markdown', html: 'xml', xml: 'xml', svelte: 'xml', vue: 'xml', css: 'css',
  go: 'go', java: 'java', kt: 'kotlin', rb: 'ruby', php: 'php', c: 'c', h: 'c', cc: 'cpp', cpp: 'cpp',
  hpp: 'cpp', cs: 'csharp', swift: 'swift', sql: 'sql', ini: 'ini', cfg: 'ini', dockerfile: 'dockerfile',
};

/** Returns the language of a file by its name. */
export const languageOf = (path: string) =>
  ENDINGS[(path.split('/').at(-1) ?? '').split('.').at(-1)!.toLowerCase()] ?? '';
