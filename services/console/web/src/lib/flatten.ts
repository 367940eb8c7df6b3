/** A piece of text with the class of its colour. */
export type Piece = [name: string, text: string];
export type Line = Piece[];

interface Node {
  type: string;
  value?: string;
  children?: Node[];
  properties?: { className?: unknown };
}

/** Turns a tree of coloured code into lines of pieces. The innermost class counts. */
export function flattened(root: Node): Line[] {
  const lines: Line[] = [[]];
  const visit = (node: Node, name: string) => {
    if (node.type === 'text') {
      (node.value ?? '').split('\n').forEach((text, at) => {
        if (at > 0) lines.push([]);
        if (text !== '') lines.at(-1)!.push([name, text]);
      });
      return;
    }
    const own = node.properties?.className;
    const inner = Array.isArray(own) ? String(own[0]) : name;
    for (const child of node.children ?? []) visit(child, inner);
  };
  visit(root, '');
  return lines;
}
