/** Follows a session's log for as long as the page is open: it connects again after each cut, and goes on after the last number. */
import { createParser } from 'eventsource-parser';
import { failure, headers, pause } from './api';
import type { Frame } from './fold';
import { whenBack } from './sight';

/** How long a stream may be silent. The service sends a comment every 15 s. */
const SILENCE_MS = 32_000;
const LONGEST_PAUSE_MS = 8_000;
/** A browser opens six connections to a service. A tab that nobody has looked at for so long gives its one back. */
const UNSEEN_MS = 60_000;
/** A page that nobody could see for so long may have slept, and its stream with it: it is not believed. */
const SLEPT_MS = 2_000;

export type Link = 'live' | 'away' | 'gone' | 'denied';

export interface Follower {
  after(): number;
  frame(frame: Frame): void;
  link(link: Link): void;
}

/** Reads one message of a stream. Returns a frame, or a word that ends the stream. */
export function read(event: string | undefined, data: string): Frame | 'again' | 'gone' | undefined {
  if (event === 'reconnect' || event === 'resync') return 'again';
  if (event === 'gone') return 'gone';
  if (data === '') return undefined;
  const value = JSON.parse(data);
  return event === 'delta' ? { kind: 'delta', delta: value } : { kind: 'event', event: value };
}

export async function follow(session: string, follower: Follower, signal: AbortSignal): Promise<void> {
  let misses = 0;
  while (!signal.aborted) {
    const end = await stream(session, follower, signal, () => (misses = 0));
    if (signal.aborted) return;
    if (end === 'gone' || end === 'denied') return follower.link(end);
    if (end === 'again') continue;
    if (end === 'back') {
      misses = 0;
      continue;
    }
    if (end === 'unseen') {
      await seen(signal);
      continue;
    }
    // The first miss is nothing to speak of: a gateway was replaced.
    if (++misses > 1) follower.link('away');
    const longest = Math.min(LONGEST_PAUSE_MS, 250 * 2 ** misses);
    await restOrReturn(longest * (0.5 + Math.random() / 2), signal);
  }
}

/** Waits until somebody looks at the page again. */
function seen(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const look = () => {
      if (!document.hidden) done();
    };
    document.addEventListener('visibilitychange', look, { signal });
    signal.addEventListener('abort', () => done(), { once: true });
    look();
  });
}

/** Waits for a while, and no longer than until somebody comes back to the page or the network does. */
async function restOrReturn(ms: number, signal: AbortSignal) {
  const over = new AbortController();
  const back = new Promise<void>((done) => whenBack(() => done(), AbortSignal.any([signal, over.signal])));
  await Promise.race([pause(ms), back]);
  over.abort();
}

async function stream(
  session: string,
  follower: Follower,
  signal: AbortSignal,
  began: () => void,
): Promise<'again' | 'back' | 'gone' | 'denied' | 'unseen' | 'cut'> {
  const cut = new AbortController();
  const stop = () => cut.abort();
  signal.addEventListener('abort', stop, { once: true });
  let why: 'unseen' | 'back' | 'cut' = 'cut';
  let leave: ReturnType<typeof setTimeout> | undefined;
  const watch = () => {
    clearTimeout(leave);
    if (!document.hidden) return;
    leave = setTimeout(() => {
      why = 'unseen';
      stop();
    }, UNSEEN_MS);
  };
  document.addEventListener('visibilitychange', watch, { signal: cut.signal });
  const returned = (hiddenMs: number) => {
    if (hiddenMs < SLEPT_MS) return;
    why = 'back';
    stop();
  };
  whenBack(returned, cut.signal);
  watch();
  let silence = setTimeout(stop, SILENCE_MS);
  let end: 'again' | 'gone' | undefined;
  try {
    const path = `/platform/session/${session}/log?follow=true&after=${follower.after()}`;
    const accept = { accept: 'text/event-stream', ...headers() };
    const response = await fetch(path, { headers: accept, signal: cut.signal, cache: 'no-store' });
    if (response.status === 404 || response.status === 410) return 'gone';
    if (response.status === 401 || response.status === 403) {
      await failure(response);
      return 'denied';
    }
    if (!response.ok || !response.body) return 'cut';
    began();
    follower.link('live');
    const parser = createParser({
      onEvent({ event, data }) {
        if (end) return;
        const frame = read(event, data);
        if (frame === 'again' || frame === 'gone') end = frame;
        else if (frame) follower.frame(frame);
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    while (!end) {
      const { done, value } = await reader.read();
      if (done) return why;
      clearTimeout(silence);
      silence = setTimeout(stop, SILENCE_MS);
      parser.feed(value);
    }
    return end;
  } catch {
    return why;
  } finally {
    clearTimeout(silence);
    clearTimeout(leave);
    signal.removeEventListener('abort', stop);
    cut.abort();
  }
}
