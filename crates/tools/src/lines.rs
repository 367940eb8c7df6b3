//! Pages of a text, in bounded memory even for very long lines.

use std::io::{self, BufRead};

/// The most characters shown of a line.
const MAX_CHARS: usize = 2_000;

/// A range of lines, with bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// The first line, from 1.
    pub(crate) offset: usize,
    pub(crate) max_lines: usize,
    /// The most bytes of the returned text.
    pub(crate) max_bytes: usize,
}

/// Numbered lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Lines of the form `12: text`, with line ends.
    pub(crate) text: String,
    pub(crate) count: usize,
    /// More lines follow the last one shown.
    pub(crate) more: bool,
    /// The number of lines seen, shown or not; all lines if no more follow.
    pub(crate) seen: usize,
}

impl Page {
    /// Numbers the page's lines. Calls `stop` from time to time; if it returns `true`, fails with an error of
    /// kind `Interrupted`.
    pub(crate) fn of(self, mut reader: impl BufRead, stop: impl Fn() -> bool) -> io::Result<Shown> {
        let mut shown = Shown { text: String::new(), count: 0, more: false, seen: 0 };
        while let Some(line) = next_line(&mut reader)? {
            if shown.seen.is_multiple_of(1_024) && stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if shown.seen + 1 < self.offset {
                shown.seen += 1;
                continue;
            }
            let numbered = format!("{}: {}\n", shown.seen + 1, line.into_text());
            let full = shown.text.len() + numbered.len() > self.max_bytes;
            if shown.count >= self.max_lines || (full && shown.count > 0) {
                shown.more = true;
                break;
            }
            let fits = numbered.floor_char_boundary(self.max_bytes);
            shown.text.push_str(&numbered[..fits]);
            shown.seen += 1;
            shown.count += 1;
        }
        Ok(shown)
    }
}

/// The beginning of a line: enough bytes for all shown characters.
struct Line {
    start: Vec<u8>,
    cut: bool,
}

impl Line {
    fn into_text(mut self) -> String {
        if !self.cut && self.start.last() == Some(&b'\r') {
            self.start.pop();
        }
        let text = String::from_utf8_lossy(&self.start);
        match text.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}… (line cut at {MAX_CHARS} characters)", &text[..end]),
            None => text.into_owned(),
        }
    }
}

/// Returns the next line without its end; `None` after the last. Holds no more of it than is shown.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    const ENOUGH: usize = (MAX_CHARS + 1) * 4;
    let mut line = Line { start: Vec::new(), cut: false };
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
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = ENOUGH - line.start.len();
        line.start.extend(&part[..part.len().min(room)]);
        line.cut |= part.len() > room;
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
        Page { offset, max_lines, max_bytes }.of(text.as_bytes(), || false).unwrap()
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
        assert_eq!(first, format!("1: {}… (line cut at 2000 characters)", "é".repeat(2_000)));
        assert_eq!(second, "2: next\n");
    }

    #[test]
    fn a_reader_can_be_stopped() {
        let stopped = Page { offset: 1, max_lines: 1, max_bytes: 9 }.of(&b"a"[..], || true);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
