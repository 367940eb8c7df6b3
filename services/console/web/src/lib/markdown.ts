/** Text of a model as tokens. Only the end of a growing text is read again. */
import { Lexer, Tokenizer, type Links, type Token, type Tokens } from 'marked';

export interface Block {
  /** The place of the block in the text. It names the block for as long as the text only grows. */
  at: number;
  token: Token;
}

export interface Lexed {
  text: string;
  blocks: Block[];
  /** The definitions of links that the blocks were read with. */
  definitions: string;
}

const EMPTY: Lexed = { text: '', blocks: [], definitions: '{}' };

/** How many of the last blocks are read again. What comes next may still be a part of them. */
const OPEN_BLOCKS = 2;

/** Chinese, Japanese and Korean characters with their punctuation. No blank stands between them and a mark. */
const CJK = String.raw`[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}\uff01-\uffee]`;
const SIGN = String.raw`(?![*~]|${CJK})[\p{P}\p{S}]`;
const LETTER = String.raw`(?:[^\s\p{P}\p{S}]|~|${CJK})`;

/** Rules that replace those of the lexer. The groups have the numbers that it expects. */
const RULES = {
  /** A single `~` says "about". Only two of them strike out. */
  delLDelim: /^~~(?:((?!~)[\p{P}\p{S}])|[^\s~])/u,
  /** CJK punctuation is like a letter inside of stars, and every CJK character is like punctuation outside of them. */
  emStrongLDelim: new RegExp(String.raw`^(?:\*+(?:(${SIGN})|([^\s*]))?)|^_+(?:((?![_~])[\p{P}\p{S}])|([^\s_]))?`, 'u'),
  emStrongRDelimAst: new RegExp(
    [
      String.raw`^[^_*]*?__[^_*]*?\*[^_*]*?(?=__)|[^*]+(?=[^*])`,
      String.raw`${SIGN}(\*+)(?=\s|$)`,
      String.raw`(?!${CJK}\*+${SIGN})${LETTER}(\*+)(?!\*)(?=\s|${SIGN}|$)`,
      String.raw`(?:\s|${SIGN}(?!\*+${CJK}))(\*+)(?=${LETTER})`,
      String.raw`\s(\*+)(?!\*)(?=${SIGN})`,
      String.raw`(?:${SIGN}|${CJK})(\*+)(?!\*)(?=${SIGN}|${CJK})`,
      String.raw`${LETTER}(\*+)(?=${LETTER})`,
    ].join('|'),
    'gu',
  ),
  /** A bare address ends before CJK punctuation, which a browser would even take for a dot of the host. */
  url: new RegExp(
    Lexer.rules.inline.gfm.url.source.replace(
      String.raw`[^\s<]*`,
      String.raw`[^\s<“”…\u3001-\u3003\u3008-\u3020\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]*`,
    ),
  ),
};

const BESIDE = new RegExp(CJK, 'u');

/** The tokenizer of the lexer, for which stars behind a CJK character may begin something. */
class Reader extends Tokenizer {
  override emStrong(src: string, maskedSrc: string, prevChar = '') {
    const isBeside = src.startsWith('*') && BESIDE.test(prevChar);
    return super.emStrong(src, maskedSrc, isBeside ? ' ' : prevChar);
  }
}

function createLexer(): Lexer {
  const tokenizer = new Reader();
  const lexer = new Lexer({ gfm: true, breaks: false, tokenizer });
  tokenizer.rules = { ...tokenizer.rules, inline: { ...tokenizer.rules.inline, ...RULES } };
  return lexer;
}

/** Adds the definitions of links that stand in these tokens. The first of a name counts. */
function addDefinitions(tokens: Token[], links: Links) {
  for (const token of tokens as Tokens.Generic[]) {
    if (token.type === 'def') links[token.tag] ??= { href: token.href, title: token.title };
    addDefinitions(token.items ?? token.tokens ?? [], links);
  }
}

/** Reads a text. `before` is what was read of its beginning. */
export function lex(source: string, before: Lexed = EMPTY): Lexed {
  // The lexer counts the end of a line as one character.
  const text = source.replace(/\r\n?/g, '\n');
  if (text === before.text) return before;
  const grown = before.text !== '' && text.startsWith(before.text);
  const kept = grown ? before.blocks.slice(0, -OPEN_BLOCKS) : [];
  const last = kept.at(-1);
  let at = last ? last.at + last.token.raw.length : 0;
  const blocks = [...kept];
  const lexer = createLexer();
  if (before.definitions !== '{}') addDefinitions(kept.map(({ token }) => token), lexer.tokens.links);
  for (const token of lexer.lex(text.slice(at))) {
    blocks.push({ at, token });
    at += token.raw.length;
  }
  const definitions = JSON.stringify(lexer.tokens.links);
  // A new definition may make a link of a text in a block that was kept.
  if (last && definitions !== before.definitions) return lex(text);
  return { text, blocks, definitions };
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
