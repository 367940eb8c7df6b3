/** Text of a model as tokens. Only the end of a growing text is read again. */
import { Lexer, type Token, type Tokens } from 'marked';

export interface Block {
  /** The place of the block in the text. It names the block for as long as the text only grows. */
  at: number;
  token: Token;
}

export interface Lexed {
  text: string;
  blocks: Block[];
}

const EMPTY: Lexed = { text: '', blocks: [] };

/** How many of the last blocks are read again. What comes next may still be a part of them. */
const OPEN_BLOCKS = 2;

/** Reads a text. `before` is what was read of its beginning. */
export function lex(text: string, before: Lexed = EMPTY): Lexed {
  if (text === before.text) return before;
  const grown = before.text !== '' && text.startsWith(before.text);
  const kept = grown ? before.blocks.slice(0, -OPEN_BLOCKS) : [];
  const last = kept.at(-1);
  let at = last ? last.at + last.token.raw.length : 0;
  const blocks = [...kept];
  for (const token of new Lexer({ gfm: true, breaks: false }).lex(text.slice(at))) {
    blocks.push({ at, token });
    at += token.raw.length;
  }
  return { text, blocks };
}

/** Returns a link that a page may open, or none. */
export function safeLink(href: string): URL | undefined {
  try {
    const url = new URL(href);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url : undefined;
  } catch {
    return undefined;
  }
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };

/** The lexer escapes some text for HTML. We make no HTML, so we take that back. */
export const unescaped = (text: string) =>
  text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => ENTITIES[name]!);

/** Makes characters visible that would change how the text around them reads. */
export const visible = (text: string) =>
  text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16)}`);

export type { Token, Tokens };
