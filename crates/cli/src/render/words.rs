//! Words with styles, laid out in lines of so many columns. Pure.

use crate::wrap::columns;

/// A text of words with styles.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Words {
    atoms: Vec<Atom>,
    /// The text without styles.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Atom {
    /// Its letters with the codes of their styles, and its columns.
    Word(String, usize),
    Space,
    Break,
}

/// A line that is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its letters with the codes of their styles.
    pub(super) text: String,
    pub(super) columns: usize,
}

impl Words {
    /// Adds a text in a style: the numbers of a terminal's codes, or nothing.
    pub(super) fn add(&mut self, text: &str, style: &str) {
        self.text.push_str(text);
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end_matches(char::is_whitespace);
            if !word.is_empty() {
                self.add_to_word(word, style);
            }
            if word.len() < piece.len() {
                self.atoms.push(Atom::Space);
            }
        }
    }

    fn add_to_word(&mut self, letters: &str, style: &str) {
        let shown = if style.is_empty() {
            letters.to_owned()
        } else {
            format!("\x1b[{style}m{letters}\x1b[0m")
        };
        let wide = columns(letters);
        match self.atoms.last_mut() {
            Some(Atom::Word(text, columns)) => {
                text.push_str(&shown);
                *columns += wide;
            }
            _ => self.atoms.push(Atom::Word(shown, wide)),
        }
    }

    pub(super) fn space(&mut self) {
        self.atoms.push(Atom::Space);
        self.text.push(' ');
    }

    pub(super) fn break_line(&mut self) {
        self.atoms.push(Atom::Break);
        self.text.push('\n');
    }

    /// Adds other words behind these.
    pub(super) fn append(&mut self, other: Self) {
        self.atoms.extend(other.atoms);
        self.text.push_str(&other.text);
    }

    /// Returns the bytes of the text without styles.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text without styles, from a number of bytes on.
    pub(super) fn text_from(&self, start: usize) -> String {
        self.text.get(start..).unwrap_or_default().to_owned()
    }

    /// Returns the columns of the widest word.
    pub(super) fn widest(&self) -> usize {
        let wide = self.atoms.iter().map(|atom| match atom {
            Atom::Word(_, columns) => *columns,
            Atom::Space | Atom::Break => 0,
        });
        wide.max().unwrap_or(0)
    }
}

/// Lays words out in lines of at most `width` columns. A word that is wider stays whole.
pub(super) fn lay_out(words: &Words, width: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut line = Line { text: String::new(), columns: 0 };
    let mut is_apart = false;
    for atom in &words.atoms {
        match atom {
            Atom::Space => is_apart = true,
            Atom::Break => {
                lines.push(std::mem::replace(&mut line, Line { text: String::new(), columns: 0 }));
                is_apart = false;
            }
            Atom::Word(text, wide) => {
                let gap = usize::from(is_apart && line.columns > 0);
                if line.columns > 0 && line.columns + gap + wide > width {
                    let whole = Line { text: text.clone(), columns: *wide };
                    lines.push(std::mem::replace(&mut line, whole));
                } else {
                    line.text.extend(std::iter::repeat_n(' ', gap));
                    line.text.push_str(text);
                    line.columns += gap + wide;
                }
                is_apart = false;
            }
        }
    }
    if line.columns > 0 {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_broken_and_styles_have_no_width() {
        let mut words = Words::default();
        words.add("one ", "");
        words.add("two", "1");
        words.add(", three", "");
        words.break_line();
        words.add("abcdefghijkl", "");
        let lines: Vec<_> = lay_out(&words, 8).into_iter().map(|line| line.text).collect();
        assert_eq!(lines, ["one \x1b[1mtwo\x1b[0m,", "three", "abcdefghijkl"]);
        assert_eq!((words.widest(), words.text_from(4).as_str()), (12, "two, three\nabcdefghijkl"));
    }
}
