//! Lines that fit a terminal: prose goes on in the next line, anything else is cut with an ellipsis. Pure.

use unicode_width::UnicodeWidthChar as _;

/// The columns after which no label is looked for.
const LABEL: usize = 16;

/// Breaks each line of a text at spaces, so that none is wider than a terminal of `width` columns. The rest of a line is indented like its
/// beginning, or like what follows its label. Never breaks what people paste: a word, code between backticks, or a
/// command of this program after a colon or on a line of its own.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if columns(line) <= width {
            out.push_str(line);
        } else {
            wrap_line(line, width, &mut out);
        }
        out.push_str(end);
    }
    out
}

fn wrap_line(line: &str, width: usize, out: &mut String) {
    let (start, rest) = line.split_at(indent(line));
    let below = format!("\n{}", " ".repeat(columns(start)));
    out.push_str(start);
    let (mut at, mut is_first) = (columns(start), true);
    for piece in pieces(rest, !start.is_empty()) {
        let wide = columns(piece);
        if is_first {
            at += wide;
        } else if at + 1 + wide <= width {
            out.push(' ');
            at += 1 + wide;
        } else {
            out.push_str(&below);
            at = columns(start) + wide;
        }
        out.push_str(piece);
        is_first = false;
    }
}

/// Returns the length of a line's spaces, or of its label and the spaces after it, in bytes.
fn indent(line: &str) -> usize {
    let spaces = line.len() - line.trim_start().len();
    if spaces > 0 {
        return spaces;
    }
    let label = line.find("  ").filter(|at| *at <= LABEL);
    label.map_or(0, |at| line.len() - line[at..].trim_start().len())
}

/// Returns the pieces of a line that are not broken. An indented line may be a command.
fn pieces(line: &str, is_indented: bool) -> Vec<&str> {
    let mut pieces: Vec<&str> = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let may_be = pieces.last().map_or(is_indented, |last| last.ends_with(':'));
        let end = if may_be && is_command(rest) { rest.len() } else { end_of_piece(rest) };
        pieces.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    pieces
}

/// Returns whether a text begins with the name of this program or a path to it, after variables that are set for it.
fn is_command(text: &str) -> bool {
    let word = text.split(' ').find(|word| !word.contains('=')).unwrap_or_default();
    word.rsplit('/').next() == Some("opencode-cloud")
}

/// Returns where the first word ends; code between backticks counts as one.
fn end_of_piece(text: &str) -> usize {
    let mut is_code = false;
    for (at, c) in text.char_indices() {
        match c {
            '`' => is_code = !is_code && text[at + 1..].contains('`'),
            ' ' if !is_code => return at,
            _ => {}
        }
    }
    text.len()
}

/// Cuts a line that is wider than a terminal of `width` columns, and marks the cut.
pub(crate) fn shortened(line: &str, width: Option<usize>) -> String {
    let Some(width) = width.filter(|width| columns(line) > *width) else { return line.to_owned() };
    let (mut short, mut left, mut is_escape) = (String::new(), width.saturating_sub(1), false);
    for c in line.chars() {
        let is_shown = !is_escape && c != ESCAPE;
        let wide = if is_shown { c.width().unwrap_or(0) } else { 0 };
        if wide > left {
            break;
        }
        left -= wide;
        is_escape = if is_escape { !c.is_ascii_alphabetic() } else { c == ESCAPE };
        short.push(c);
    }
    short.push('…');
    if line.contains(ESCAPE) {
        short.push_str("\x1b[0m");
    }
    short
}

const ESCAPE: char = '\u{1b}';

/// Counts the columns that a line takes in a terminal: none for our colours, two for a wide letter.
pub(crate) fn columns(line: &str) -> usize {
    let (mut count, mut is_escape) = (0, false);
    for c in line.chars() {
        if is_escape {
            is_escape = !c.is_ascii_alphabetic();
        } else if c == ESCAPE {
            is_escape = true;
        } else {
            count += c.width().unwrap_or(0);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_goes_on_below_its_beginning() {
        assert_eq!(wrapped("one two three\nfour\n", Some(8)), "one two\nthree\nfour\n");
        assert_eq!(wrapped("  one two three", Some(8)), "  one\n  two\n  three");
        assert_eq!(
            wrapped("name   one two three", Some(12)),
            "name   one\n       two\n       three"
        );
        assert_eq!(wrapped("short  line", Some(11)), "short  line", "a line that fits stays");
    }

    #[test]
    fn what_is_pasted_is_never_broken() {
        let url = "https://example.com/a-long-address";
        assert_eq!(wrapped(&format!("open {url} now"), Some(12)), format!("open\n{url}\nnow"));
        assert_eq!(
            wrapped("it is `one two three`, no more", Some(12)),
            "it is\n`one two three`,\nno more"
        );
        let hint = "continue: /bin/opencode-cloud run --session ses_1 \"…\"";
        assert_eq!(wrapped(hint, Some(20)), hint.replacen(": ", ":\n", 1));
        let hint = "  KEY=k opencode-cloud run \"list the files\"\n";
        assert_eq!(wrapped(hint, Some(20)), hint);
        assert_eq!(wrapped("one ` two three", Some(8)), "one `\ntwo\nthree", "a backtick alone");
    }

    #[test]
    fn colours_have_no_width() {
        let red = "\x1b[1;31merror:\x1b[0m it";
        assert_eq!((columns(red), wrapped(red, Some(9))), (9, red.to_owned()));
        assert_eq!(shortened(red, Some(9)), red);
        assert_eq!(shortened(red, Some(8)), "\x1b[1;31merror:\x1b[0m …\x1b[0m");
        assert_eq!(shortened("abcdef", Some(4)), "abc…");
        assert_eq!(shortened("abcdef", Some(0)), "…");
        assert_eq!((columns("日本"), shortened("日本語", Some(4)).as_str()), (4, "日…"));
    }
}
