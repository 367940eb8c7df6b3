import { expect, it } from 'vitest';
import { sends, type Key } from './keys';

const enter = (more: Partial<Key> = {}): Key => ({
  key: 'Enter',
  keyCode: 13,
  isComposing: false,
  shiftKey: false,
  altKey: false,
  ctrlKey: false,
  metaKey: false,
  ...more,
});
const desk = { touch: false };
const phone = { touch: true };

it('Enter sends with a keyboard, and makes a line on touch', () => {
  expect(sends(enter(), desk)).toBe('as chosen');
  expect(sends(enter({ altKey: true }), desk)).toBe('queue');
  expect(sends(enter({ shiftKey: true }), desk)).toBeUndefined();
  expect(sends(enter(), phone)).toBeUndefined();
  expect(sends(enter({ altKey: true }), phone)).toBeUndefined();
  for (const on of [desk, phone]) {
    expect(sends(enter({ ctrlKey: true }), on)).toBe('as chosen');
    expect(sends(enter({ metaKey: true }), on)).toBe('as chosen');
    expect(sends(enter({ key: 'a' }), on)).toBeUndefined();
  }
});

it('Enter that ends a composition sends nothing', () => {
  // Safari ends the composition first, so that only the code tells.
  for (const key of [{ isComposing: true }, { keyCode: 229 }, { isComposing: true, keyCode: 229 }, { keyCode: 229, ctrlKey: true }]) {
    expect(sends(enter(key), desk), JSON.stringify(key)).toBeUndefined();
  }
});
