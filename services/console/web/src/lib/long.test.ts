import { expect, it } from 'vitest';
import { beginningOf, numbered, tailOf } from './long';

it('a long text is folded, by its lines or by its length', () => {
  expect(beginningOf('a\nb')).toBeUndefined();
  expect(beginningOf('word '.repeat(100))).toBeUndefined();
  for (const long of ['line\n'.repeat(9_000), 'x'.repeat(500_000), 'word '.repeat(100_000)]) {
    const beginning = beginningOf(long)!;
    expect(beginning.length).toBeLessThan(2_000);
    expect(beginning.split('\n').length).toBeLessThan(20);
    expect(long.startsWith(beginning)).toBe(true);
  }
});

it('the tail of an output is its last lines with something in them', () => {
  expect(tailOf(['a', 'b', 'c', '', '  '], 2)).toEqual(['b', 'c']);
  expect(tailOf(['a'], 4)).toEqual(['a']);
  expect(tailOf(['', ''], 4)).toEqual([]);
});

it('a file that was read is copied without its numbers', () => {
  const file = numbered('1: fn main() {\n2:     run(1: 2);\n3: \n4: }\n\n(end: 4 lines in all)');
  expect(file?.text).toBe('fn main() {\n    run(1: 2);\n\n}');
  expect(file?.numbers).toBe('1\n2\n3\n4');
  expect(file?.remark).toBe('end: 4 lines in all');
  expect(numbered('  9: a\n 10: b\n')?.text).toBe('a\nb');
});

it('what is no file with numbers stays as it is', () => {
  for (const output of ['a.rs\nb.rs\n', '', 'no such file', '1: a\nand then words', '(end: 0 lines in all)']) {
    expect(numbered(output), output).toBeUndefined();
  }
});
