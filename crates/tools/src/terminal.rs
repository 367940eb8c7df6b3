//! The text that a terminal would show at the end: without escape codes, and with what was written over written over.
//!
//! Lines are as long as they are, and stay: nothing scrolls away. A cursor that goes up reaches at most [`MAX_UP`] lines.

/// The most lines that a cursor goes up at once.
const MAX_UP: usize = 1_000;
/// The longest line in which a cursor can be set, in characters.
const MAX_COLUMNS: usize = 10_000;

/// Returns the text as a terminal would show it.
#[must_use]
pub fn as_terminal_shows(text: String) -> String {
    at_the_end(&text).unwrap_or(text)
}

/// Returns the text at the end, if it is another one. Line ends of Windows alone change nothing.
pub(crate) fn at_the_end(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_odd = |at: usize| match bytes[at] {
        0x1B | 0x08 => true,
        b'\r' => bytes.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    let may_change = (0..bytes.len()).any(is_odd) || text.contains('\u{9B}');
    if !may_change {
        return None;
    }
    let mut screen = Screen { lines: vec![Vec::new()], row: 0, column: 0 };
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1B}' => screen.escape(&mut chars),
            '\u{9B}' => screen.control(&mut chars),
            '\r' => screen.column = 0,
            '\n' => screen.down(1),
            '\u{8}' => screen.column = screen.column.saturating_sub(1),
            '\u{7}' => {}
            c => screen.put(c),
        }
    }
    let ended = screen.text();
    (ended != text).then_some(ended)
}

struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn put(&mut self, c: char) {
        let column = self.column;
        let line = self.line();
        if column < line.len() {
            line[column] = c;
        } else {
            line.resize(column, ' ');
            line.push(c);
        }
        self.column += 1;
    }

    fn line(&mut self) -> &mut Vec<char> {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        &mut self.lines[self.row]
    }

    fn down(&mut self, count: usize) {
        self.row += count.min(MAX_UP);
        self.column = 0;
        let _is_there = self.line();
    }

    /// Takes in what follows an escape.
    fn escape(&mut self, chars: &mut std::str::Chars<'_>) {
        match chars.next() {
            Some('[') => self.control(chars),
            // A title, a link, and their like, to a bell or `ESC \`.
            Some(']' | 'P' | 'X' | '^' | '_') => {
                let mut before = ' ';
                for c in chars.by_ref() {
                    if c == '\u{7}' || c == '\u{9C}' || (before == '\u{1B}' && c == '\\') {
                        break;
                    }
                    // It never ended: what follows is text.
                    if c == '\n' {
                        self.down(1);
                        break;
                    }
                    before = c;
                }
            }
            Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
                let _name_of_a_character_set = chars.next();
            }
            Some('M') => self.row = self.row.saturating_sub(1),
            Some('E') => self.down(1),
            Some(_) | None => {}
        }
    }

    /// Takes in a control sequence: numbers, and a letter that says what to do.
    fn control(&mut self, chars: &mut std::str::Chars<'_>) {
        let mut numbers = String::new();
        let command = loop {
            match chars.next() {
                None => return,
                Some(c @ '\u{40}'..='\u{7E}') => break c,
                Some(c @ '\u{20}'..='\u{3F}') => numbers.push(c),
                Some('\n') => return self.down(1),
                Some(_) => return,
            }
        };
        let first = numbers.split(';').next().unwrap_or_default().parse::<usize>().ok();
        let count = first.unwrap_or(1).clamp(1, MAX_UP);
        match command {
            'A' => self.row = self.row.saturating_sub(count),
            'F' => {
                self.row = self.row.saturating_sub(count);
                self.column = 0;
            }
            'B' => {
                let column = self.column;
                self.down(count);
                self.column = column;
            }
            'E' => self.down(count),
            'C' => self.column = (self.column + count).min(MAX_COLUMNS.max(self.column)),
            'D' => self.column = self.column.saturating_sub(count),
            'G' | '`' => self.column = (first.unwrap_or(1).max(1) - 1).min(MAX_COLUMNS),
            'K' => self.erase_line(first.unwrap_or(0)),
            'J' => self.erase_below(first.unwrap_or(0)),
            'P' => {
                let column = self.column;
                let line = self.line();
                let end = (column + count).min(line.len());
                line.drain(column.min(end)..end);
            }
            _ => {}
        }
    }

    fn erase_line(&mut self, what: usize) {
        let column = self.column;
        let line = self.line();
        match what {
            0 => line.truncate(column),
            1 => line.iter_mut().take(column + 1).for_each(|c| *c = ' '),
            _ => line.clear(),
        }
    }

    /// Erases what is below the cursor. What is above stays: a terminal has it in its scrollback, and here it is the record of what
    /// was done.
    fn erase_below(&mut self, what: usize) {
        if what == 0 {
            self.erase_line(0);
            self.lines.truncate(self.row + 1);
        }
    }

    fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.iter().collect::<String>());
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> String {
        at_the_end(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn a_text_without_codes_is_itself() {
        for text in ["", "a\n", "a\r\nb\r\n", "tab\tgrün 🦀", "a\n\n"] {
            assert_eq!(at_the_end(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_end_is_what_a_terminal_shows() {
        for (text, expected) in [
            ("\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;31mERROR\u{1b}[m x\n", "12:00 ERROR x\n"),
            ("\u{1b}[38;2;1;2;3mgrün\u{1b}[39m", "grün"),
            ("\u{9b}31mred\u{9b}0m", "red"),
            ("10%\r50%\r100%\ndone\n", "100%\ndone\n"),
            ("loading...\rok\n", "okading...\n"),
            ("loading...\r\u{1b}[Kok\n", "ok\n"),
            ("loading...\u{1b}[2K\rok\n", "ok\n"),
            ("a\r\nb\r\u{1b}[Kc\r\n", "a\nc\n"),
            ("|\u{8}/\u{8}-\u{8}done", "done"),
            ("one\ntwo\n\u{1b}[2A\u{1b}[2Kuno\n\u{1b}[Kdos\n", "uno\ndos\n"),
            ("one\ntwo\n\u{1b}[2F\u{1b}[Jthree\n", "three\n"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bplain\u{1b}[?25l", "plain"),
            ("ab\u{1b}[1Gc", "cb"),
            ("a\u{1b}[3Cb", "a   b"),
            ("\u{1b}[2J\u{1b}[Hfresh", "fresh"),
            ("cut \u{1b}[3", "cut "),
            ("\u{1b}]0;no end\nnext", "\nnext"),
        ] {
            assert_eq!(end(text), expected, "{text:?}");
        }
    }

    #[test]
    fn hostile_codes_take_no_memory() {
        for text in [
            "\u{1b}[999999999Cx",
            "\u{1b}[999999999Bx",
            "\u{1b}[99999999999999999999Gx",
            "\u{1b}[999999999;999999999Hx",
        ] {
            assert!(end(text).len() < 20_000, "{text:?}");
        }
        let many = "\u{1b}[1000B".repeat(1_000);
        assert!(end(&many).len() <= 1_000_000);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_the_end_is_stable(text in "(\u{1b}\\[?[0-9;]{0,3}[A-Za-z]|\r|\n|\u{8}|[a-cé]{1,3}|\u{1b}|\\]){0,20}") {
            let once = end(&text);
            assert_eq!(at_the_end(&once), None);
        }
    }
}
