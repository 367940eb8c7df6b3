import { describe, expect, it } from 'vitest';
import { flattened } from './flatten';
import { read } from './follow';
import { ago, byName, count, counted, localDirectory, place, repositoryDirectory, titled, took, usd, whole } from './format';
import { lex, safeLink, unescaped, visible, type Token, type Tokens } from './markdown';
import { countsOf, rowsOf } from './patch';
import { isPage, parse, returnPath } from './address';
import { linesOf, spansOf } from './terminal';

describe('markdown', () => {
  const text = '# Title\n\nSome *words* and `code`.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd with <b>html</b>.\n';

  it('that grows letter by letter reads as the whole does', () => {
    let grown = lex('');
    for (let end = 1; end <= text.length; end++) grown = lex(text.slice(0, end), grown);
    expect(grown.blocks).toEqual(lex(text).blocks);
  });

  // Finding: report 30-d21 (comarkdown/comark#413).
  it('that grows knows the definitions of its links', () => {
    const texts = [
      'See [docs][1].\n\nMore words.\n\nEnd.\n\n[1]: https://e.com/x\n',
      '[docs]: https://e.com/x\n\nOne.\n\nTwo.\n\nRead [docs].',
      '> [1]: https://e.com/x\n\nOne.\n\nTwo.\n\n[1]: https://e.com/y\n\nThree.\n\nFour [1].',
      'One.\r\n\r\nTwo.\r\n\r\nThree.\r\n\r\nFour.\r\n\r\nFive.\r\n',
    ];
    for (const text of texts) {
      let grown = lex('');
      for (let end = 1; end <= text.length; end++) grown = lex(text.slice(0, end), grown);
      expect(grown.blocks, text).toEqual(lex(text).blocks);
    }
    expect(JSON.stringify(lex(texts[0]!).blocks[0])).toContain('https://e.com/x');
  });

  it('keeps a block behind a definition too', () => {
    const before = lex('[1]: https://e.com/x\n\none [1]\n\ntwo\n\nthree\n\nfour');
    const after = lex(`${before.text} and [1]`, before);
    expect(after.blocks[1]).toBe(before.blocks[1]);
  });

  it('keeps the blocks that cannot change', () => {
    const before = lex('one\n\ntwo\n\nthree\n\nfour');
    const after = lex('one\n\ntwo\n\nthree\n\nfour and more', before);
    expect(after.blocks[0]).toBe(before.blocks[0]);
  });

  it('opens no link that runs something', () => {
    for (const href of ['javascript:alert(1)', 'data:text/html,x', '/platform/logout', 'vbscript:x', '']) {
      expect(safeLink(href), href).toBeUndefined();
    }
    expect(safeLink('https://example.com/a')?.host).toBe('example.com');
  });

  it('takes back what the lexer escapes, and shows hidden signs', () => {
    expect(unescaped('a &lt;b&gt; &amp;amp; &quot;')).toBe('a <b> &amp; "');
    expect(visible('a\u202eb')).toBe('a\\u202eb');
  });
});

/** Tells how a line reads: texts as they are, all else with its kind. */
function readLine(line: string): string {
  const tell = (tokens: Token[]): string => (tokens as Tokens.Generic[]).map((token) => {
    const inside = token.tokens ? tell(token.tokens) : token.text;
    if (token.type === 'text') return inside;
    return `{${token.type === 'link' ? token.href : token.type}:${inside}}`;
  }).join('');
  return lex(line).blocks.map(({ token }) => tell((token as Tokens.Generic).tokens ?? [])).join('');
}

describe('a line of markdown', () => {
  // Finding: report 30-d18 (anomalyco/opencode#26138).
  it('is struck out by two tildes only', () => {
    for (const line of ['takes ~3~5 minutes', '5~7U x 100~200', '（0.3~8mm）和（0.3~4.5mm）', '~$120B (~$55B to N)']) {
      expect(readLine(line)).toBe(line);
    }
    expect(readLine('~~gone~~ and ~~3 ~ 5~~')).toBe('{del:gone} and {del:3 ~ 5}');
  });

  // Finding: report 30-d19 (markedjs/marked#3838).
  it('is bold beside Chinese and Japanese punctuation', () => {
    expect(readLine('**注意：**请先备份')).toBe('{strong:注意：}请先备份');
    expect(readLine('これは**「重要」**です')).toBe('これは{strong:「重要」}です');
    expect(readLine('**Markdown（マークダウン）**は')).toBe('{strong:Markdown（マークダウン）}は');
    expect(readLine('他说**“重要”**的话，**API:**请')).toBe('他说{strong:“重要”}的话，{strong:API:}请');
    expect(readLine('使用**`code`**是*（斜）*的')).toBe('使用{strong:{codespan:code}}是{em:（斜）}的');
    for (const line of ['** 不是**吗', 'a**"b"**c', '2 ** 3，4 ** 5']) expect(readLine(line)).toBe(line);
  });

  // Finding: report 30-d20 (openchamber/openchamber#3039).
  it('has addresses that end before Chinese punctuation', () => {
    expect(readLine('见 https://example.com/a。然后')).toBe('见 {https://example.com/a:https://example.com/a}。然后');
    expect(readLine('（https://example.com/a）。')).toBe('（{https://example.com/a:https://example.com/a}）。');
    expect(readLine('https://example.com。然后')).toBe('{https://example.com:https://example.com}。然后');
    expect(readLine('https://example.com/docs（说明）了解')).toBe('{https://example.com/docs:https://example.com/docs}（说明）了解');
    expect(readLine('www.example.com，好')).toBe('{http://www.example.com:www.example.com}，好');
    expect(readLine('https://e.com/wiki/佐々木 x')).toBe('{https://e.com/wiki/佐々木:https://e.com/wiki/佐々木} x');
  });
});

describe('output of a terminal', () => {
  it('has colours and no other control sequence', () => {
    const lines = linesOf('\u001b[2J\u001b[31mred\u001b[0m\u001b]0;title\u0007 plain\n10%\r50%\r100%\n');
    expect(lines).toEqual(['\u001b[31mred\u001b[0m plain', '100%']);
    expect(spansOf(lines[0]!)).toEqual([
      { text: 'red', class: 'ansi-red', color: undefined },
      { text: ' plain', class: '', color: undefined },
    ]);
  });

  it('of Windows has lines too', () => {
    expect(linesOf('a\r\nb\r\n')).toEqual(['a', 'b']);
  });
});

describe('a patch', () => {
  it('has rows with their numbers', () => {
    const rows = rowsOf('--- a/x\n+++ b/x\n@@ -3,2 +3,3 @@\n a\n-b\n+c\n+d\n');
    expect(rows.map(({ kind, old, now }) => [kind, old, now])).toEqual([
      ['hunk', undefined, undefined],
      ['same', 3, 3],
      ['del', 4, undefined],
      ['add', undefined, 4],
      ['add', undefined, 5],
    ]);
    expect(countsOf(rows)).toEqual({ additions: 2, deletions: 1 });
  });

  it('of several files names each', () => {
    const rows = rowsOf('A a.rs\n@@ -0,0 +1 @@\n+a\nM b.rs\n@@ -1 +1 @@\n-b\n+c\n');
    expect(rows.filter(({ kind }) => kind === 'file').map(({ text }) => text)).toEqual(['a.rs', 'b.rs']);
  });

  it('that is broken is shown line by line', () => {
    expect(rowsOf('@@ -1,9 +1,9 @@\n+a\n').map(({ kind }) => kind)).toContain('add');
    expect(rowsOf('just words\n')).toEqual([{ kind: 'same', text: 'just words' }]);
  });
});

it('coloured code becomes lines', () => {
  const root = {
    type: 'root',
    children: [
      { type: 'element', properties: { className: ['hljs-keyword'] }, children: [{ type: 'text', value: 'fn' }] },
      { type: 'text', value: ' a\nb' },
    ],
  };
  expect(flattened(root)).toEqual([[['hljs-keyword', 'fn'], ['', ' a']], [['', 'b']]]);
});

describe('a stream', () => {
  it('has events, deltas and words that end it', () => {
    expect(read('turn.started', '{"seq":1}')).toEqual({ kind: 'event', event: { seq: 1 } });
    expect(read('delta', '{"offset":1}')).toEqual({ kind: 'delta', delta: { offset: 1 } });
    expect([read('reconnect', ''), read('resync', ''), read('gone', '')]).toEqual(['again', 'again', 'gone']);
  });
});

describe('words for people', () => {
  it('tell times, sizes and money', () => {
    const now = Date.UTC(2026, 5, 10);
    expect(ago(now - 5_000, now)).toBe('just now');
    expect(ago(now - 3 * 3_600_000, now)).toMatch(/3\s?h/);
    expect(ago(now - 20 * 86_400_000, now)).toContain('May');
    expect([took(950), took(4_250), took(185_000)]).toEqual(['950 ms', '4.3 s', '3 min 5 s']);
    expect([count(950), count(12_400), count(1_200_000)]).toEqual(['950', '12.4k', '1.2M']);
    expect([usd(0), usd(0.001), usd(1.5)]).toEqual(['$0', '< $0.01', '$1.50']);
  });

  it('have separators, plurals and the order of people', () => {
    expect([whole(40_000), whole(999), usd(12_345.6)]).toEqual(['40,000', '999', '$12,345.60']);
    expect([counted(1, 'model'), counted(2, 'model'), counted(1_200, 'model'), counted(0, 'file')]).toEqual([
      '1 model', '2 models', '1,200 models', '0 files',
    ]);
    expect(['f10', 'f2', 'f1', 'f11'].toSorted(byName)).toEqual(['f1', 'f2', 'f10', 'f11']);
    expect(['a/10.txt', 'a/9.txt', 'a/1.txt'].toSorted(byName)).toEqual(['a/1.txt', 'a/9.txt', 'a/10.txt']);
  });

  it('name a place by its last parts', () => {
    expect(place('/home/me/code/garden')).toBe('…/code/garden');
    expect(place('/github.com/owner/name@main')).toBe('owner/name@main');
    expect(place('/workspace/x')).toBe('/workspace/x');
  });
});

describe('the address of a repository', () => {
  it('becomes a directory', () => {
    expect(repositoryDirectory('https://github.com/o/n.git', ' main ')).toBe('/github.com/o/n@main');
    expect(repositoryDirectory('github.com/o/n/', '')).toBe('/github.com/o/n');
  });

  it('that cannot be fetched says why', () => {
    expect(() => repositoryDirectory('git://github.com/o/n', '')).toThrow('https://');
    expect(() => repositoryDirectory('https://me:x@github.com/o/n', '')).toThrow('password');
    expect(() => repositoryDirectory('https://github.com/', '')).toThrow('lacks');
  });
  it('may have one step', () => {
    expect(repositoryDirectory('https://h.org/till.git', '')).toBe('/h.org/till');
  });
});

describe('a folder of the machine', () => {
  it('is a whole path', () => {
    expect(localDirectory(' /home/me/code/shop/ ')).toBe('/home/me/code/shop');
    expect(localDirectory('file:///srv/a b')).toBe('/srv/a b');
    expect(localDirectory('/')).toBe('/');
  });

  it('that is none says why', () => {
    for (const path of ['', '  ', 'shop', '~/shop', './shop', '../shop', '/home/../etc', 'C:\\shop']) {
      expect(() => localDirectory(path), path).toThrow('Write the');
    }
  });
});

describe('a title', () => {
  it('is no time of day', () => {
    expect(titled('New session - 2026-11-26T22:16:14.503Z')).toBe('New session');
    expect(titled('New session - the plan')).toBe('New session - the plan');
    expect(titled('')).toBe('Untitled');
  });
});

describe('an address of the console', () => {
  it('names a page', () => {
    expect(parse('/o/org_1/session/ses_1', '?a=b')).toMatchObject({ page: 'session', org: 'org_1', id: 'ses_1' });
    expect(parse('/', '')).toMatchObject({ page: 'home', org: '' });
  });

  it('to come back to is always one of ours', () => {
    const back = (path: string) => returnPath(new URLSearchParams({ return: path }));
    expect(back('/o/org_1/needs')).toBe('/o/org_1/needs');
    for (const path of ['//evil.example', 'https://evil.example', '/o//evil', '/o/\\evil', '/login', '/platform/logout']) {
      expect(back(path), path).toBeUndefined();
    }
  });

  // Finding security-3, low: an address of a provider was opened whatever it was.
  it('to leave for is a web page', () => {
    expect(isPage('https://id.example.com/end')).toBe(true);
    for (const url of ['javascript:alert(1)', ' javascript:alert(1)', 'data:text/html,x', '//evil.example', '']) {
      expect(isPage(url), url).toBe(false);
    }
  });
});
