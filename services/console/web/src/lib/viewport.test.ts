import { expect, it } from 'vitest';
import { heightBeside } from './viewport';

it('a keyboard over the page makes it smaller, and nothing else does', () => {
  expect(heightBeside({ page: 844, seen: 508, scale: 1 })).toBe(508);
  expect(heightBeside({ page: 844, seen: 507.6, scale: 1.001 })).toBe(508);
  expect(heightBeside({ page: 844, seen: 844, scale: 1 })).toBeUndefined();
  expect(heightBeside({ page: 844, seen: 788, scale: 1 }), 'a bar of the browser').toBeUndefined();
  expect(heightBeside({ page: 844, seen: 422, scale: 2 }), 'somebody zooms').toBeUndefined();
});
