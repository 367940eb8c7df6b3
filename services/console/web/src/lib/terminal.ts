/** Output of a terminal as lines of spans. Only colours and weights are read; every other control sequence goes. */
import Anser from 'anser';

export interface Span {
  text: string;
  /** Classes for the 16 colours and the weights. */
  class: string;
  /** Any other colour, as `r, g, b`. */
  color?: string;
}

const CONTROL = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b\[[0-9;?]*[A-Za-ln-z]|[\u0000-\u0008\u000b\u000c\u000e-\u001a]/g;

/** Returns the lines of an output. A line that was written over shows what was written last. */
export function linesOf(text: string): string[] {
  const lines = text.replace(CONTROL, '').replace(/\r+\n/g, '\n').split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines.map((line) => line.slice(line.lastIndexOf('\r') + 1));
}

/** Returns the spans of a line. */
export function spansOf(line: string): Span[] {
  if (!line.includes('\u001b')) return [{ text: line, class: '' }];
  const spans = Anser.ansiToJson(line, { use_classes: true, remove_empty: true });
  return spans.map((span) => {
    const classes = [span.fg, span.bg && `${span.bg}-bg`, ...span.decorations.map((name) => `ansi-${name}`)];
    const named = classes.filter((name): name is string => !!name && !name.includes('truecolor'));
    return {
      text: span.content,
      class: named.join(' '),
      color: span.fg_truecolor ?? undefined,
    };
  });
}
