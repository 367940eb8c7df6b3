/** Texts that are too long to stand in full. */

const LINES = 24;
const SIGNS = 2_400;

/** Returns the beginning of a text that is too long to stand in full; nothing for one that is not. */
export function beginningOf(text: string): string | undefined {
  const lines = text.split('\n', LINES + 1);
  if (lines.length <= LINES && text.length <= SIGNS) return undefined;
  return lines.slice(0, LINES / 2).join('\n').slice(0, SIGNS / 2);
}

/** Returns the last lines of an output that have something in them. */
export function tailOf(lines: string[], most: number): string[] {
  const end = lines.findLastIndex((line) => line.trim() !== '') + 1;
  return lines.slice(Math.max(0, end - most), end);
}

/** A file as the tool `read` gives it: each line with its number, and a remark at the end. */
export interface Numbered {
  text: string;
  /** The numbers of the lines, one for each. */
  numbers: string;
  /** What the tool says below the file. */
  remark: string;
}

/** Takes the numbers off the lines of a file, so that a copy has the file alone. A text of another form is no such file. */
export function numbered(output: string): Numbered | undefined {
  const lines = output.replace(/\n$/, '').split('\n');
  const read = lines.map((line) => /^ *(\d+): ?(.*)$/s.exec(line));
  const end = read.findIndex((found) => !found);
  const count = end < 0 ? lines.length : end;
  const remark = lines.slice(count).join('\n').trim();
  // Only a remark in brackets may follow. Anything else is a text that only looks like a file.
  if (count === 0 || (remark !== '' && !/^\(.*\)$/s.test(remark))) return undefined;
  const file = read.slice(0, count) as RegExpExecArray[];
  return {
    text: file.map(([, , text]) => text).join('\n'),
    numbers: file.map(([, number]) => number).join('\n'),
    remark: remark.slice(1, -1),
  };
}
