//! Finds the end of `$(…)`: a parenthesis that is in no quote, no comment and no heredoc.

use super::Scan;

struct Heredoc {
    tag: String,
    strips_tabs: bool,
    is_quoted: bool,
}

impl Scan {
    /// Reads `$(…)` to its end.
    pub(super) fn command(&mut self) -> Option<()> {
        let mut open = 0_usize;
        let mut starts_word = true;
        let mut heredocs: Vec<Heredoc> = Vec::new();
        loop {
            let before = self.at;
            let c = self.peek(0)?;
            match c {
                ')' if open == 0 => {
                    self.at += 1;
                    return heredocs.is_empty().then_some(());
                }
                '\\' if self.peek(1) == Some('\n') => {
                    self.at += 2;
                    continue;
                }
                '\\' => self.at += 2,
                '\'' => self.single()?,
                '"' => self.double()?,
                '$' => self.dollar(false)?,
                '`' => self.backticks(false)?,
                '#' if starts_word => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                    continue;
                }
                '<' if self.peek(1) == Some('<') && self.peek(2) == Some('<') => self.at += 3,
                '<' if self.peek(1) == Some('<') => {
                    self.at += 2;
                    heredocs.push(self.heredoc()?);
                }
                '\n' => {
                    self.at += 1;
                    for heredoc in heredocs.drain(..) {
                        self.skip_body(&heredoc)?;
                    }
                    starts_word = true;
                    continue;
                }
                // Its patterns end with parentheses that nothing opened.
                'c' if starts_word && self.chars[self.at..].starts_with(&['c', 'a', 's', 'e']) => {
                    return None;
                }
                c => {
                    self.at += 1;
                    match c {
                        '(' => open += 1,
                        ')' => open -= 1,
                        _ => {}
                    }
                }
            }
            let spans_lines = self.chars[before..self.at.min(self.chars.len())].contains(&'\n');
            if spans_lines && !heredocs.is_empty() {
                return None;
            }
            starts_word = matches!(c, ' ' | '\t' | ';' | '&' | '|' | '(' | ')' | '<' | '>');
        }
    }

    fn heredoc(&mut self) -> Option<Heredoc> {
        let strips_tabs = self.peek(0) == Some('-');
        self.at += usize::from(strips_tabs);
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.at += 1;
        }
        let quote = self.peek(0).filter(|c| matches!(c, '\'' | '"' | '\\'));
        self.at += usize::from(quote.is_some());
        let mut tag = String::new();
        while let Some(c) = self.peek(0).filter(|c| is_of_tag(*c)) {
            tag.push(c);
            self.at += 1;
        }
        if let Some(quote) = quote.filter(|quote| *quote != '\\') {
            (self.next()? == quote).then_some(())?;
        }
        let ends = self.peek(0).is_some_and(|c| c.is_whitespace() || ";&|()<>".contains(c));
        let is_quoted = quote.is_some();
        (ends && !tag.is_empty()).then_some(Heredoc { tag, strips_tabs, is_quoted })
    }

    fn skip_body(&mut self, heredoc: &Heredoc) -> Option<()> {
        loop {
            let rest = &self.chars[self.at..];
            let end = rest.iter().position(|c| *c == '\n')?;
            let line: String = rest[..end].iter().collect();
            self.at += end + 1;
            let line = if heredoc.strips_tabs { line.trim_start_matches('\t') } else { &line };
            if line == heredoc.tag {
                return Some(());
            }
            if !heredoc.is_quoted && line.ends_with('\\') {
                return None;
            }
        }
    }
}

/// Returns whether a heredoc's delimiter may hold this sign.
fn is_of_tag(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '!')
}

/// Returns whether a heredoc's delimiter is one whose end every shell sees at the same place.
pub(in crate::needs) fn is_usual_tag(raw: &str) -> bool {
    let bare = match raw.chars().next() {
        Some(quote @ ('\'' | '"')) => raw[1..].strip_suffix(quote),
        Some('\\') => Some(&raw[1..]),
        Some(_) | None => Some(raw),
    };
    bare.is_some_and(|tag| !tag.is_empty() && tag.chars().all(is_of_tag))
}
