import { expect, test } from 'vitest';
import { change, ignored, pathOf, series, starts, stepOf, sum, type Answer } from './query';

const NOW = Date.UTC(2026, 10, 21, 15);
const scope = { days: 30, project: '', provider: '' };

test('a question becomes the path that anybody may ask', () => {
  expect(pathOf(scope, { by: ['person', 'model'] }, undefined, NOW)).toBe(
    '/platform/usage?from=2026-10-23&to=2026-11-22&step=day&by=person,model&compare=previous',
  );
  const narrow = { ...scope, days: 364, provider: 'openai', project: 'prj_1' };
  expect(pathOf(narrow, { of: 'ends', by: ['outcome'] }, 'csv', NOW)).toBe(
    '/platform/usage?of=ends&from=2025-11-23&to=2026-11-22&step=month&by=outcome&provider=openai&compare=previous&format=csv',
  );
  expect(ignored(narrow, { of: 'ends' })).toEqual(['project']);
  expect(ignored(narrow, {})).toEqual([]);
  expect([7, 90, 364].map(stepOf)).toEqual(['day', 'week', 'month']);
});

test('steps are those of the service, with those in which nothing happened', () => {
  const day = 86_400_000;
  const from = Date.UTC(2026, 10, 19);
  expect(starts(from, from + 3 * day, 'day')).toEqual([from, from + day, from + 2 * day]);
  // 2026-11-16 is a Monday.
  expect(starts(from, from + 7 * day, 'week')).toEqual([Date.UTC(2026, 10, 16), Date.UTC(2026, 10, 23)]);
  expect(starts(from, Date.UTC(2027, 0, 2), 'month')).toEqual([10, 11, 12].map((month) => Date.UTC(2026, month)));
});

test('what is beyond five series is one together', () => {
  const from = Date.UTC(2026, 10, 19);
  const rows = [1, 2, 3, 4, 5, 6, 7].map((turns) => ({ start: from, keys: { model: `m${turns}` }, sums: { turns } }));
  const answer: Answer = { from, to: from + 86_400_000, step: 'day', by: ['model'], rows, names: { m7: 'Seven' } };
  const all = series(answer, 'model', sum('turns'));
  expect(all.map(({ name, total }) => [name, total])).toEqual([
    ['Seven', 7],
    ['m6', 6],
    ['m5', 5],
    ['m4', 4],
    ['m3', 3],
    ['2 others', 3],
  ]);
  expect(series({ ...answer, by: [] }, undefined, sum('turns'))[0]!.total).toBe(28);
});

test('a change from nothing has no percent', () => {
  expect([change(0, 5), change(4, 5), change(4, 0)]).toEqual([undefined, 25, -100]);
});
