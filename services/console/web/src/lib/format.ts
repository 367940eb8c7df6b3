/** Numbers and times for people. */

import type { Tokens } from './types';

const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'narrow' });
const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];

/** `3 min. ago`, `yesterday`, or a date once it is more than a week away. */
export function ago(time: number, now: number): string {
  const past = time - now;
  if (Math.abs(past) < 60_000) return past > 0 ? 'in a moment' : 'just now';
  if (Math.abs(past) > 7 * 86_400_000) return day(time, now);
  const [unit, size] = STEPS.find(([, size]) => Math.abs(past) >= size)!;
  return relative.format(Math.round(past / size), unit);
}

export function day(time: number, now: number): string {
  const same = new Date(time).getFullYear() === new Date(now).getFullYear();
  const parts: Intl.DateTimeFormatOptions = { month: 'short', day: 'numeric' };
  return new Intl.DateTimeFormat('en', same ? parts : { ...parts, year: 'numeric' }).format(time);
}

export const full = (time: number) =>
  new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'short' }).format(time);

/** `840 ms`, `4.2 s`, `3 min 5 s`. */
export function took(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
}

/** `950`, `12.4k`, `1.2M`. */
export function count(value: number): string {
  if (value < 1_000) return String(value);
  if (value < 1_000_000) return `${trimmed(value / 1_000)}k`;
  return `${trimmed(value / 1_000_000)}M`;
}

const trimmed = (value: number) => value.toFixed(value < 100 ? 1 : 0).replace(/\.0$/, '');

const grouped = new Intl.NumberFormat('en');
const money = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const natural = new Intl.Collator('en', { numeric: true });

/** `40,000`: a number in full. */
export const whole = (value: number) => grouped.format(value);

/** `1 model`, `2 models`. */
export const counted = (value: number, one: string, more = `${one}s`) => `${whole(value)} ${value === 1 ? one : more}`;

/** Orders names as people count: 1, 2, 10. */
export const byName = (a: string, b: string) => natural.compare(a, b);

export function usd(value: number): string {
  if (value === 0) return '$0';
  return value < 0.01 ? '< $0.01' : `$${money.format(value)}`;
}

export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(0)} KiB`;
  return `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}

/** A session's title. Until the model gives one, its clients call it `New session - ` and the time. */
export function titled(title: string | undefined): string {
  if (!title) return 'Untitled';
  return /^New session - \d{4}-\d\d-\d\dT/.test(title) ? 'New session' : title;
}

/** The last parts of a path. */
export function place(directory: string): string {
  const repository = /^\/([a-z0-9.-]+\.[a-z]+)\/(.+)$/.exec(directory);
  if (repository) return repository[2]!;
  const parts = directory.split('/').filter(Boolean);
  return parts.length <= 2 ? directory : `…/${parts.slice(-2).join('/')}`;
}

/** A path of the service's machine, as somebody types it. Throws a sentence when it is none. */
export function localDirectory(typed: string): string {
  const path = typed.trim().replace(/^file:\/\//, '');
  if (path === '') throw new Error('Write the path of a folder, such as /home/me/code/shop.');
  if (!path.startsWith('/')) throw new Error('Write the whole path, from / on: the service does not know your home or your current folder.');
  if (path.split('/').includes('..')) throw new Error('Write the path without `..`.');
  return path.length > 1 ? path.replace(/\/+$/, '') : path;
}

/** The directory that stands for a repository: `/HOST/PATH[@REF]`. Throws a sentence when the address is none. */
export function repositoryDirectory(address: string, ref: string): string {
  const text = address.trim();
  let url: URL;
  try {
    url = new URL(/^[a-z][a-z0-9+.-]*:/i.test(text) ? text : `https://${text}`);
  } catch {
    throw new Error('This is not an address. One looks like https://github.com/OWNER/NAME.');
  }
  if (url.protocol !== 'https:')
    throw new Error('The address begins with https://. Other protocols are not served.');
  if (url.username || url.password)
    throw new Error('Leave the name and the password out: only public repositories are served so far.');
  const path = url.pathname.replace(/\/+$/, '').replace(/\.git$/, '');
  if (path === '')
    throw new Error('The address lacks the repository: https://github.com/OWNER/NAME.');
  const wanted = ref.trim();
  return `/${url.host}${path}${wanted === '' ? '' : `@${wanted}`}`;
}

/** All tokens that a model read, from a cache or not: the number that `session show` has. */
export const tokensIn = ({ input, cache }: Tokens) => input + cache.read + cache.write;

/** All tokens that a model wrote, its reasoning too. */
export const tokensOut = ({ output, reasoning }: Tokens) => output + reasoning;
