//! Pages of a text, in bounded memory even for very long lines.

use std::borrow::Cow;
use std::io::{self, BufRead};

/// The most characters shown of a line.
const MAX_CHARS: usize = 2_000;

/// A range of lines, with bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// The first line, from 1.
    pub(crate) offset: usize,
    /// The first character of each line, from 1.
    pub(crate) column: usize,
    pub(crate) max_lines: usize,
    /// The most bytes of the returned text.
    pub(crate) max_bytes: usize,
}

/// Numbered lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Lines of the form `12: text`, with line ends.
    pub(crate) text: String,
    pub(crate) count: usize,
    /// More lines follow the last one shown.
    pub(crate) more: bool,
    /// The number of lines seen, shown or not; all lines if no more follow.
    pub(crate) seen: usize,
    /// Something in them is not UTF-8.
    pub(crate) is_mended: bool,
}

impl Page {
    /// Numbers the page's lines. Calls `stop` from time to time; if it returns `true`, fails with an error of
    /// kind `Interrupted`.
    pub(crate) fn of(self, mut reader: impl BufRead, stop: impl Fn() -> bool) -> io::Result<Shown> {
        let mut shown = Shown::default();
        let skip = self.column.saturating_sub(1);
        while let Some(line) = next_line(&mut reader, skip)? {
            if shown.seen.is_multiple_of(1_024) && stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if shown.seen + 1 < self.offset {
                shown.seen += 1;
                continue;
            }
            let number = shown.seen + 1;
            let (text, is_mended) = line.into_text(number, skip);
            let numbered = format!("{number}: {text}\n");
            let full = shown.text.len() + numbered.len() > self.max_bytes;
            if shown.count >= self.max_lines || (full && shown.count > 0) {
                shown.more = true;
                break;
            }
            let fits = numbered.floor_char_boundary(self.max_bytes);
            shown.text.push_str(&numbered[..fits]);
            shown.is_mended |= is_mended;
            shown.seen += 1;
            shown.count += 1;
        }
        Ok(shown)
    }
}

/// A piece of a line: enough bytes for all shown characters.
struct Line {
    piece: Vec<u8>,
    /// Its bytes after the piece were left out.
    cut: bool,
    /// The characters of the whole line.
    chars: usize,
}

impl Line {
    /// Returns the text of line `number` behind `skip` characters, and whether something in it is not UTF-8.
    fn into_text(mut self, number: usize, skip: usize) -> (String, bool) {
        if !self.cut && self.piece.last() == Some(&b'\r') {
            self.piece.pop();
            self.chars = self.chars.saturating_sub(1);
        }
        let text = String::from_utf8_lossy(&self.piece);
        let is_mended = matches!(text, Cow::Owned(_));
        let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else {
            return (text.into_owned(), is_mended);
        };
        let (left, next) = (self.chars.saturating_sub(skip + MAX_CHARS), skip + MAX_CHARS + 1);
        let rest = format!(
            "… ({left} more characters; go on with offset={number}, limit=1 and column={next})"
        );
        (format!("{}{rest}", &text[..end]), is_mended)
    }
}

/// Returns the next line without its end, behind `skip` characters of it; `None` after the last. Holds no more of it than is shown.
fn next_line(reader: &mut impl BufRead, skip: usize) -> io::Result<Option<Line>> {
    const ENOUGH: usize = (MAX_CHARS + 1) * 4;
    let mut line = Line { piece: Vec::new(), cut: false, chars: 0 };
    let mut any = false;
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let starts_char = |byte: &u8| *byte & 0xC0 != 0x80;
        let shown = if line.chars >= skip && (skip == 0 || !line.piece.is_empty()) {
            part
        } else {
            // The first byte of the first character that is shown.
            let missing = skip - line.chars;
            let starts = part.iter().enumerate().filter(|(_, byte)| starts_char(byte));
            starts.map(|(at, _)| at).nth(missing).map_or(&[][..], |at| &part[at..])
        };
        line.chars += part.iter().filter(|byte| starts_char(byte)).count();
        let room = ENOUGH - line.piece.len();
        line.piece.extend(&shown[..shown.len().min(room)]);
        line.cut |= shown.len() > room;
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str, offset: usize, max_lines: usize, max_bytes: usize) -> Shown {
        Page { offset, column: 1, max_lines, max_bytes }.of(text.as_bytes(), || false).unwrap()
    }

    #[test]
    fn pages_follow_each_other() {
        let shown = page("a\r\nb\n\nd", 1, 2, 100);
        assert_eq!((shown.text.as_str(), shown.more, shown.count), ("1: a\n2: b\n", true, 2));
        let shown = page("a\nb\n\nd", 3, 2, 100);
        assert_eq!((shown.text.as_str(), shown.more, shown.seen), ("3: \n4: d\n", false, 4));
        assert_eq!(page("a\nb\n", 9, 2, 100).seen, 2);
    }

    #[test]
    fn bytes_bound_a_page_and_long_lines_are_cut() {
        let shown = page("aaaa\nbbbb\ncccc\n", 1, 99, 15);
        assert_eq!((shown.text.as_str(), shown.more), ("1: aaaa\n", true));
        let long = "é".repeat(1_000_000) + "\nnext";
        let shown = page(&long, 1, 99, 50_000);
        let (first, second) = shown.text.split_once('\n').unwrap();
        let rest = "(998000 more characters; go on with offset=1, limit=1 and column=2001)";
        assert_eq!(first, format!("1: {}… {rest}", "é".repeat(2_000)));
        assert_eq!(second, "2: next\n");
    }

    #[test]
    fn every_part_of_a_long_line_can_be_reached() {
        let line: String = (0..9_000).map(|n| ['a', 'é', '🦀'][n % 3]).collect();
        for capacity in [1, 2, 7, 64 * 1024] {
            let (mut all, mut column) = (String::new(), 1);
            loop {
                let page = Page { offset: 2, column, max_lines: 1, max_bytes: 50_000 };
                let text = format!("first\n{line}\r\nlast");
                let reader = io::BufReader::with_capacity(capacity, text.as_bytes());
                let shown = page.of(reader, || false).unwrap();
                let shown = shown.text.strip_prefix("2: ").unwrap().trim_end_matches('\n');
                let Some((part, rest)) = shown.split_once('…') else {
                    all.push_str(shown);
                    break;
                };
                all.push_str(part);
                column += 2_000;
                assert!(rest.contains(&format!("column={column}")), "{rest}");
                assert!(
                    rest.contains(&format!("({} more", 9_001 - column)) || capacity > 0,
                    "{rest}"
                );
            }
            assert_eq!(all, line);
        }
        let beyond = Page { offset: 1, column: 9, max_lines: 1, max_bytes: 99 };
        assert_eq!(beyond.of(&b"short"[..], || false).unwrap().text, "1: \n");
    }

    #[test]
    fn a_reader_can_be_stopped() {
        let stopped =
            Page { offset: 1, column: 1, max_lines: 1, max_bytes: 9 }.of(&b"a"[..], || true);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
