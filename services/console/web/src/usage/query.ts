/** Questions about usage, and what is made of their answers. */
import { get, text } from '../lib/api';

export type Sums = Record<string, number>;

export interface Row {
  start: number;
  keys: Record<string, string>;
  people?: number;
  sums: Sums;
}

export interface Answer {
  from: number;
  to: number;
  step: Step;
  by: string[];
  as_of?: number;
  rows: Row[];
  previous?: { from: number; to: number; rows: Row[] };
  names: Record<string, string>;
}

export type Step = 'day' | 'week' | 'month' | 'all';

/** The time and the filters of a page. */
export interface Scope {
  days: number;
  project: string;
  provider: string;
}

export interface Question {
  of?: 'work' | 'tools' | 'ends';
  by?: string[];
  step?: Step;
}

const DAY = 86_400_000;

export const RANGES = [
  { value: '7', label: 'Last 7 days' },
  { value: '30', label: 'Last 30 days' },
  { value: '90', label: 'Last 90 days' },
  { value: '364', label: 'Last 12 months' },
];

/** The steps that suit so many days. */
export const stepOf = (days: number): Step => (days > 180 ? 'month' : days > 60 ? 'week' : 'day');

/** Each kind of sums is kept by some parts only. */
const FILTERS: Record<string, (keyof Scope)[]> = {
  work: ['project', 'provider'],
  tools: [],
  ends: ['provider'],
};

/** The filters of a page that a question cannot obey. */
export const ignored = (scope: Scope, question: Question) =>
  (['project', 'provider'] as const).filter(
    (filter) => scope[filter] !== '' && !FILTERS[question.of ?? 'work']!.includes(filter),
  );

/** The path of a question, as anybody may ask it. */
export function pathOf(scope: Scope, question: Question, format?: 'csv', now = Date.now()): string {
  const to = Math.floor(now / DAY) * DAY + DAY;
  const query = new URLSearchParams();
  if (question.of && question.of !== 'work') query.set('of', question.of);
  query.set('from', isoDay(to - scope.days * DAY));
  query.set('to', isoDay(to));
  query.set('step', question.step ?? stepOf(scope.days));
  if (question.by?.length) query.set('by', question.by.join(','));
  for (const filter of FILTERS[question.of ?? 'work']!) if (scope[filter]) query.set(filter, String(scope[filter]));
  query.set('compare', 'previous');
  if (format) query.set('format', format);
  return `/platform/usage?${query.toString().replaceAll('%2C', ',')}`;
}

const isoDay = (time: number) => new Date(time).toISOString().slice(0, 10);

/** Charts of one page often ask the same. */
const known = new Map<string, { at: number; answer: Promise<Answer> }>();

export function ask(path: string): Promise<Answer> {
  const held = known.get(path);
  if (held && Date.now() - held.at < 30_000) return held.answer;
  const answer = get<Answer>(path);
  known.set(path, { at: Date.now(), answer });
  answer.catch(() => known.delete(path));
  if (known.size > 100) known.delete(known.keys().next().value!);
  return answer;
}

export const csv = (path: string) => text(path);

/** The beginnings of all steps of a time, in UTC, whether something happened or not. */
export function starts(from: number, to: number, step: Step): number[] {
  const all: number[] = [];
  if (step === 'all') return [from];
  let at = from;
  if (step === 'week') at -= (Math.floor(at / DAY) + 3) % 7 * DAY;
  if (step === 'month') at = Date.UTC(new Date(at).getUTCFullYear(), new Date(at).getUTCMonth());
  while (at < to && all.length < 1_000) {
    all.push(at);
    const date = new Date(at);
    at = step === 'month' ? Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1) : at + (step === 'week' ? 7 : 1) * DAY;
  }
  return all;
}

export interface Series {
  name: string;
  values: number[];
  total: number;
}

const MOST_SERIES = 5;

/** One series for each part, the largest first; what is beyond five is one together. */
export function series(answer: Answer, part: string | undefined, of: (row: Row) => number): Series[] {
  const steps = starts(answer.from, answer.to, answer.step);
  const place = new Map(steps.map((start, index) => [start, index]));
  const all = new Map<string, Series>();
  for (const row of answer.rows) {
    const id = part ? (row.keys[part] ?? '') : '';
    const one = all.get(id) ?? { name: called(answer, id), values: steps.map(() => 0), total: 0 };
    // A step that began before the time is its first.
    const index = place.get(row.start) ?? 0;
    one.values[index]! += of(row);
    one.total += of(row);
    all.set(id, one);
  }
  const ranked = [...all.values()].filter(({ total }) => total > 0).sort((a, b) => b.total - a.total);
  if (ranked.length <= MOST_SERIES + 1) return ranked;
  const rest = ranked.slice(MOST_SERIES);
  const other: Series = { name: `${rest.length} others`, values: steps.map(() => 0), total: 0 };
  for (const one of rest) {
    one.values.forEach((value, index) => (other.values[index]! += value));
    other.total += one.total;
  }
  return [...ranked.slice(0, MOST_SERIES), other];
}

export const called = (answer: Answer, id: string) => answer.names[id] ?? (id === '' ? 'Unknown' : id);

export const total = (rows: Row[], of: (row: Row) => number) => rows.reduce((sum, row) => sum + of(row), 0);

/** The change from one time to the next in percent; none from nothing. */
export const change = (before: number, now: number) => (before === 0 ? undefined : (now / before - 1) * 100);

export const sum = (name: string) => (row: Row) => row.sums[name] ?? 0;
export const dollars = (row: Row) => (row.sums.cost_nanos ?? 0) / 1e9;
