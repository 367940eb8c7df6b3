/** Patches as rows. */
import { parsePatch } from 'diff';

export interface Row {
  kind: 'add' | 'del' | 'same' | 'hunk' | 'file' | 'more';
  text: string;
  old?: number;
  now?: number;
}

/** Returns the rows of a patch. A text that is no patch keeps its lines, told apart by their first sign. */
export function rowsOf(patch: string): Row[] {
  const rows: Row[] = [];
  for (const section of sections(patch)) {
    if (section.name) rows.push({ kind: 'file', text: section.name });
    rows.push(...(parsed(section.text) ?? plain(section.text)));
  }
  return rows;
}

export function countsOf(rows: Row[]): { additions: number; deletions: number } {
  return {
    additions: rows.filter((row) => row.kind === 'add').length,
    deletions: rows.filter((row) => row.kind === 'del').length,
  };
}

/** The patch of several files has a line with a sign and a name above each: `M src/x.rs`. */
function sections(patch: string): { name?: string; text: string }[] {
  if (/^(diff|---|@@|Index:)/.test(patch)) return [{ text: patch }];
  const parts = patch.split(/^([AMDR] [^\n]+)\n/m);
  const all: { name?: string; text: string }[] = parts[0]?.trim() ? [{ text: parts[0] }] : [];
  for (let at = 1; at < parts.length; at += 2) {
    all.push({ name: parts[at]!.slice(2), text: parts[at + 1] ?? '' });
  }
  return all;
}

function parsed(text: string): Row[] | undefined {
  try {
    const rows: Row[] = [];
    for (const file of parsePatch(text)) {
      for (const hunk of file.hunks) {
        rows.push({ kind: 'hunk', text: `Line ${hunk.newStart}` });
        let [old, now] = [hunk.oldStart, hunk.newStart];
        for (const line of hunk.lines) {
          const rest = line.slice(1);
          if (line.startsWith('+')) rows.push({ kind: 'add', text: rest, now: now++ });
          else if (line.startsWith('-')) rows.push({ kind: 'del', text: rest, old: old++ });
          else if (line.startsWith('\\')) rows.push({ kind: 'more', text: rest.trim() });
          else rows.push({ kind: 'same', text: rest, old: old++, now: now++ });
        }
      }
    }
    return rows.length > 0 ? rows : undefined;
  } catch {
    return undefined;
  }
}

function plain(text: string): Row[] {
  const kind = (line: string): Row['kind'] =>
    line.startsWith('+') ? 'add' : line.startsWith('-') ? 'del' : 'same';
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines.map((line) => ({ kind: kind(line), text: line.replace(/^[ +-]/, '') }));
}
