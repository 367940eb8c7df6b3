/** Numbers and times for people. */

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

export function usd(value: number): string {
  if (value === 0) return '$0';
  return value < 0.01 ? '< $0.01' : `$${value.toFixed(2)}`;
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

/** The directory that stands for a repository: `/HOST/PATH[@REF]`. Throws a sentence when the address is none. */
export function repositoryDirectory(address: string, ref: string): string {
  const text = address.trim();
  let url: URL;
  try {
    url = new URL(/^[a-z][a-z0-9+.-]*:/i.test(text) ? text : `https://${text}`);
  } catch {
    throw new Error('This is no address. One looks like https://github.com/OWNER/NAME.');
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
