import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { follow, type Link } from './follow';

/** A page that can be hidden, and a service whose streams say nothing. */
class Page extends EventTarget {
  hidden = false;
  show(hidden: boolean) {
    this.hidden = hidden;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

let page: Page;
let network: EventTarget;
let streams: string[];
let away: boolean;
let ended: AbortController;
let links: Link[];

beforeEach(() => {
  vi.useFakeTimers();
  [page, network, streams, away, links] = [new Page(), new EventTarget(), [], false, []];
  ended = new AbortController();
  vi.stubGlobal('document', page);
  vi.stubGlobal('navigator', { onLine: true });
  vi.stubGlobal('addEventListener', network.addEventListener.bind(network));
  vi.stubGlobal('fetch', (path: string, { signal }: { signal: AbortSignal }) => {
    streams.push(path);
    if (away) return Promise.reject(new TypeError('failed to fetch'));
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => signal.addEventListener('abort', () => stream.error(signal.reason)),
    });
    return Promise.resolve(new Response(body));
  });
  void follow('ses_1', { after: () => 7, frame: () => {}, link: (link) => links.push(link) }, ended.signal);
});

afterEach(() => {
  ended.abort();
  vi.useRealTimers();
});

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

it('a page that comes back follows its stream again at once', async () => {
  await later(10);
  expect(streams).toEqual(['/platform/session/ses_1/log?follow=true&after=7']);
  page.show(true);
  await later(5_000);
  page.show(false);
  await later(10);
  expect(streams.length).toBe(2);
});

it('a page out of the browsers memory, or with a new network, does too', async () => {
  await later(10);
  network.dispatchEvent(Object.assign(new Event('pageshow'), { persisted: true }));
  await later(10);
  expect(streams.length).toBe(2);
  network.dispatchEvent(new Event('online'));
  await later(10);
  expect(streams.length).toBe(3);
  network.dispatchEvent(Object.assign(new Event('pageshow'), { persisted: false }));
  await later(10);
  expect(streams.length).toBe(3);
});

it('a glance elsewhere keeps the stream', async () => {
  await later(10);
  page.show(true);
  await later(500);
  page.show(false);
  await later(10);
  expect(streams.length).toBe(1);
});

it('a page that comes back does not wait for the next try', async () => {
  away = true;
  page.show(true);
  network.dispatchEvent(new Event('online'));
  await later(9_000);
  const before = streams.length;
  away = false;
  page.show(false);
  await later(10);
  expect(streams.length).toBe(before + 1);
  expect(links.at(-1)).toBe('live');
});
