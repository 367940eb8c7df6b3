/** Requests to the service. Each has a limit, and each error has a sentence for people. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly reason?: string,
  ) {
    super(message);
  }
}

/** The service cannot be reached: the network or the service is away. */
export class Unreachable extends Error {
  constructor() {
    super('The service cannot be reached. The console tries again by itself.');
  }
}

const LIMIT_MS = 30_000;
const RETRIES = 4;

let key: string | undefined;
let onSignedOut = () => {};
let onStale = () => {};

/** Sets the key that requests carry. It stays in the memory of this page. */
export const useKey = (text: string | undefined) => void (key = text);

/** The code of a refusal that a fresh sign-in mends. A dialog says so, whatever was asked. */
const STALE = 'SIGN_IN_AGAIN';

/** Sets what happens when the service wants a fresh sign-in. */
export const whenStale = (then: () => void) => void (onStale = then);

/** Sets what happens when the service does not know us any more. */
export const whenSignedOut = (then: () => void) => void (onSignedOut = then);

export const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

export function headers(): Record<string, string> {
  return key === undefined ? {} : { authorization: `Bearer ${key}` };
}

/** Turns an answer that is no success into an error. */
export async function failure(response: Response): Promise<ApiError> {
  const fallback = `The service answered ${response.status}.`;
  const body: any = await response.json().catch(() => undefined);
  const { code, message, reason } = body?.error ?? {};
  if (response.status === 401) onSignedOut();
  if (code === STALE) onStale();
  const said = typeof message === 'string' ? sentence(message) : fallback;
  return new ApiError(response.status, code ?? 'UNKNOWN', said, reason);
}

/** Writes a message of the service as a sentence. */
export const sentence = (text: string) =>
  text === '' ? text : text[0]!.toUpperCase() + text.slice(1) + (/[.!?…]\)?$/.test(text) ? '' : '.');

interface Options {
  body?: unknown;
  signal?: AbortSignal;
  limit?: number;
  /** Whether an answer of 401 is the caller's to handle. */
  open?: boolean;
}

async function once(method: string, path: string, options: Options): Promise<Response> {
  const limit = AbortSignal.timeout(options.limit ?? LIMIT_MS);
  const signal = options.signal ? AbortSignal.any([limit, options.signal]) : limit;
  const sent: Record<string, string> = { accept: 'application/json', ...headers() };
  if (options.body !== undefined || method === 'POST') sent['content-type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: sent,
      body: options.body === undefined ? (method === 'POST' ? '{}' : null) : JSON.stringify(options.body),
      signal,
      redirect: 'error',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Unreachable();
  }
  if (response.ok) return response;
  if (options.open && response.status === 401) {
    const body: any = await response.json().catch(() => undefined);
    const said = sentence(body?.error?.message ?? 'that was not accepted');
    throw new ApiError(401, body?.error?.code ?? 'UNAUTHENTICATED', said);
  }
  throw await failure(response);
}

async function parsed<T>(response: Response): Promise<T> {
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** Asks once. */
export async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  return parsed<T>(await once(method, path, options));
}

/** Asks again while the service is away. Only for requests that may be sent twice: reads, and those with an id of ours. */
export async function steadily<T>(method: string, path: string, options: Options = {}): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return parsed<T>(await once(method, path, options));
    } catch (error) {
      const again = error instanceof Unreachable || (error instanceof ApiError && error.status === 503);
      if (!again || tries >= RETRIES) throw error;
      await pause(400 * 2 ** tries * (0.75 + Math.random() / 2));
    }
  }
}

export const get = <T>(path: string, signal?: AbortSignal) => steadily<T>('GET', path, { signal });
export const post = <T>(path: string, body?: unknown) => request<T>('POST', path, { body });

/** Reads one page of a list, with the cursor of the next. */
export async function page<T>(path: string): Promise<{ items: T; next?: string }> {
  const response = await once('GET', path, {});
  return { items: await parsed<T>(response), next: response.headers.get('x-next-cursor') ?? undefined };
}

/** Reads a text, such as a patch; none when there is nothing. */
export async function text(path: string): Promise<string | undefined> {
  const response = await once('GET', path, { limit: 600_000 });
  return response.status === 204 ? undefined : response.text();
}

/** Returns a new id. The hyphen tells it from ids with a time, which must not be ahead of the service's clock. */
export function newId(prefix: 'msg' | 'ses'): string {
  const letters = '0123456789abcdefghijklmnopqrstuvwxyz';
  const random = crypto.getRandomValues(new Uint8Array(22));
  return `${prefix}_c-${Array.from(random, (byte) => letters[byte % 36]).join('')}`;
}

/** Returns the sentence of any error; nothing for one that a dialog tells of. */
export function said(error: unknown): string {
  if (error instanceof ApiError && error.code === STALE) return '';
  return error instanceof Error ? error.message : 'Something failed that should not.';
}
