use super::*;

/// Returns a text as it is shown, without the codes of styles.
fn shown(text: &str, width: usize) -> String {
    let mut markdown = Markdown::new(width);
    let shown = markdown.add(text) + &markdown.finish();
    plain(&shown)
}

fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            let _end = rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain
}

const ANSWER: &str = "# Title

Some **bold** and `code` with a [link](https://h.org/a), that is long enough to be laid out anew.

1. first
2. second
   - nested with words that go on below
   - [x] done

```rust
fn main() {

}
```
> quoted
> twice
---
| name | what |
| --- | --- |
| a | the first one of them |
";

#[test]
fn marks_become_looks_and_lines_fit() {
    let expected = "Title

Some bold and code with a link
(https://h.org/a), that is long enough
to be laid out anew.

1. first
2. second
   • nested with words that go on below
   • ✓ done

  fn main() {

  }

│ quoted twice

────────────────────────────────────────

name  what
────  ─────────────────────
a     the first one of them
";
    assert_eq!(shown(ANSWER, 40), expected);
    let styled = Markdown::new(40).add("a **b** `c`\n\nd\n");
    assert_eq!(styled, "a \x1b[1mb\x1b[0m \x1b[36mc\x1b[0m\n");
}

// However the pieces come, the lines are the same; blocks are shown as soon as they are whole, code line by line.
#[test]
fn pieces_of_any_size_show_the_same() {
    let whole = shown(ANSWER, 30);
    for size in [1, 2, 7, 50] {
        let mut markdown = Markdown::new(30);
        let mut out = String::new();
        let letters: Vec<char> = ANSWER.chars().collect();
        for piece in letters.chunks(size) {
            out += &markdown.add(&piece.iter().collect::<String>());
        }
        out += &markdown.finish();
        assert_eq!(plain(&out), whole, "pieces of {size}");
        assert!(!markdown.is_waiting());
    }
    let mut markdown = Markdown::new(30);
    assert_eq!(markdown.add("one\ntwo"), "");
    assert_eq!((markdown.is_waiting(), markdown.newest()), (true, "two"));
    assert_eq!(markdown.add("\n\nthree"), "", "what follows may belong to it");
    assert_eq!(markdown.add("\n"), "one two\n");
    assert_eq!(plain(&markdown.add("```\na\nb")), "\nthree\n\n  a\n");
}

// Marks of a model's text must not become commands for the terminal, nor may entities.
#[test]
fn no_text_steers_the_terminal() {
    let hostile = "a\u{1b}[2Jb &#27;[2Jc `&#27;d\u{1b}[2J` [e](http://x/\u{1b}[2J&#27;)\n\n```\n\u{1b}[2Jf\n```\n\n<b\u{1b}[2J>\n\n| &#27;[2J |\n| - |\n| \u{9b}2J |\n";
    let mut markdown = Markdown::new(60);
    let shown = markdown.add(hostile) + &markdown.finish();
    let codes = shown.split('\u{1b}').skip(1).filter_map(|rest| rest.split_once('m'));
    for (code, _) in codes {
        let is_look = |code: &str| {
            code.strip_prefix('[')
                .is_some_and(|numbers| numbers.chars().all(|c| c.is_ascii_digit() || c == ';'))
        };
        assert!(is_look(code), "{code:?} in {shown:?}");
    }
    assert!(!shown.contains('\u{9b}') && shown.contains("[2Jc"), "{shown:?}");
}

#[test]
fn tables_are_never_broken_within_words() {
    let table = "| Before | Share of everything |\n| --- | --- |\n| 100.0/0 | words that are many and go on below |\n";
    for width in [16, 20, 30, 60, 100] {
        let text = shown(table, width);
        for word in ["Before", "100.0/0", "everything", "below"] {
            assert!(
                text.split_whitespace().any(|shown| shown.trim_end_matches(':') == word),
                "{word} at {width}: {text}"
            );
        }
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
    }
}

#[test]
fn a_text_without_marks_and_an_open_block_stay_whole() {
    assert_eq!(shown("hello you", 40), "hello you\n");
    assert_eq!(shown("", 40), "");
    assert_eq!(shown("```\nopen", 40), "  open\n");
    assert_eq!(shown("- a\n\n  ```\n  x\n\n  y\n  ```\n- b", 40), "• a\n    x\n\n    y\n• b\n");
    assert_eq!(shown("<b>x</b> &amp; 3 < 4", 40), "<b>x</b> & 3 < 4\n");
    assert_eq!(
        shown("https://h.org/a_b_c and <https://h.org>", 60),
        "https://h.org/a_b_c and https://h.org\n"
    );
}
