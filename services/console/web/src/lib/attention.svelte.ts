/** The calls of all sessions that wait for somebody, read every 5 s while the page is in sight. */
import { get, Unreachable } from './api';
import { whenBack } from './sight';
import type { AskView } from './types';

const EVERY_MS = 5_000;
let asks = $state.raw<AskView[]>([]);
let read = $state(false);
let away = $state(false);

export const attention = {
  get asks() {
    return asks;
  },
  get read() {
    return read;
  },
  /** Whether the service could not be reached at the last look. */
  get away() {
    return away;
  },
};

export async function look() {
  try {
    asks = await get<AskView[]>('/platform/ask');
    read = true;
    away = false;
  } catch (error) {
    away = error instanceof Unreachable;
  }
}

/** Does something now, every 5 s, and when the page is seen again. Returns how to stop. */
export function repeatedly(act: () => unknown): () => void {
  void act();
  const timer = setInterval(() => {
    if (!document.hidden) void act();
  }, EVERY_MS);
  const ended = new AbortController();
  whenBack(() => void act(), ended.signal);
  return () => {
    clearInterval(timer);
    ended.abort();
  };
}
