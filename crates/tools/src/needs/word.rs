//! Takes one word of a shell script apart: its literal text, and the scripts of its substitutions.
//!
//! The parser library divides a script into words, and this looks at each of them again: a word in which the two disagree
//! about where it ends is not understood. The library's own parser of words is not used, because it takes exponential time for
//! nested substitutions and ends one at a parenthesis in a comment.

mod command;

use domain::{UNKNOWN_CHAR, UNKNOWN_TEXT};

pub(super) use command::is_usual_tag;

/// The most substitutions within each other in one word.
const MAX_DEPTH: usize = 16;

/// A word that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The word as it was written.
    pub(super) raw: String,
    /// Its text without quotes; `None` if that is known only when it runs. Patterns of file names stay as they are.
    pub(super) text: Option<String>,
    /// Nothing in it is expanded: it is `text` and only that.
    pub(super) is_exact: bool,
    /// The scripts of its substitutions.
    pub(super) scripts: Vec<String>,
    /// Its text with [`UNKNOWN_TEXT`] and [`UNKNOWN_CHAR`] in the places that are known only when it runs.
    pub(super) template: String,
    /// What it is made of, in order.
    pub(super) pieces: Vec<Piece>,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// This text.
    Text(String),
    /// The value of the variable of this name.
    Variable(String),
    /// A number.
    Number,
    /// Something that is known only when it runs.
    Unknown,
}

impl Word {
    /// Understands a word. `None` if it is none, or too unusual to be sure.
    pub(super) fn new(raw: &str) -> Option<Self> {
        let mut scan = Scan::of(raw);
        scan.plain()?;
        let Scan { text, is_known, is_exact, scripts, template, pieces, .. } = scan;
        let text = is_known.then_some(text);
        let is_exact = is_exact && text.is_some();
        Some(Self { raw: raw.to_owned(), is_exact, text, scripts, template, pieces })
    }

    /// Returns a word of which nothing is known before it runs.
    pub(super) fn unknown(raw: &str) -> Self {
        Self {
            raw: raw.to_owned(),
            text: None,
            is_exact: false,
            scripts: Vec::new(),
            template: UNKNOWN_TEXT.to_string(),
            pieces: vec![Piece::Unknown],
        }
    }

    /// Returns how the word may look when it runs: as it is shown, if that is known.
    pub(super) fn guise(&self) -> String {
        if self.is_exact && !self.is_filled_in() { self.shown() } else { self.template.clone() }
    }

    /// Returns whether another command puts a text of its own in its place, or in a part of it.
    pub(super) fn is_filled_in(&self) -> bool {
        self.is_exact && self.template.contains(UNKNOWN_TEXT)
    }

    /// Returns the text that nothing changes before it is used.
    pub(super) fn exact(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.is_exact)
    }

    /// Returns how the word is shown and compared: without needless quotes.
    pub(super) fn shown(&self) -> String {
        let is_plain = |c: char| {
            c.is_alphanumeric()
                || matches!(c, '_' | '-' | '.' | '/' | ':' | '=' | '@' | ',' | '+' | '%' | '^')
        };
        if !self.raw.contains(['\'', '"', '\\']) {
            return self.raw.clone();
        }
        match self.exact() {
            Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
            Some(text) if !self.raw.contains('\'') => {
                let mut quoted = String::from("\"");
                for c in text.chars() {
                    if matches!(c, '"' | '\\' | '$' | '`') {
                        quoted.push('\\');
                    }
                    quoted.push(c);
                }
                quoted + "\""
            }
            Some(text) if !text.contains('\'') => format!("'{text}'"),
            Some(_) | None => self.raw.clone(),
        }
    }
}

/// Returns the scripts of the substitutions in a heredoc's body whose delimiter is not quoted.
pub(super) fn scripts_of_body(body: &str) -> Option<Vec<String>> {
    // The shell joins such lines before it looks for the delimiter, and the parser does not.
    if body.contains("\\\n") {
        return None;
    }
    let mut scan = Scan::of(body);
    while let Some(c) = scan.peek(0) {
        match c {
            '\\' => scan.at += 2,
            '$' => scan.dollar(true)?,
            '`' => scan.backticks(true)?,
            _ => scan.at += 1,
        }
    }
    Some(scan.scripts)
}

/// Returns what a substitution is: `$name`, `${name}`, a number such as `$?` and `$((1+1))`, or something else.
fn piece_of(raw: &[char]) -> Piece {
    let raw: String = raw.iter().collect();
    let Some(rest) = raw.strip_prefix('$') else { return Piece::Unknown };
    if rest.starts_with("((") || rest.starts_with("{#") {
        return Piece::Number;
    }
    let name = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(rest);
    if matches!(name, "?" | "#" | "$" | "!") {
        return Piece::Number;
    }
    let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name && !name.is_empty() { Piece::Variable(name.to_owned()) } else { Piece::Unknown }
}

struct Scan {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    /// Within a substitution, whose script is taken apart later.
    is_inside: bool,
    text: String,
    is_known: bool,
    is_exact: bool,
    scripts: Vec<String>,
    template: String,
    pieces: Vec<Piece>,
    /// The template ends with a text that is not known, and what follows belongs to it.
    is_closed: bool,
}

impl Scan {
    fn of(text: &str) -> Self {
        Self {
            chars: text.chars().collect(),
            at: 0,
            depth: 0,
            is_inside: false,
            text: String::new(),
            is_known: true,
            is_exact: true,
            scripts: Vec::new(),
            template: String::new(),
            pieces: Vec::new(),
            is_closed: false,
        }
    }

    /// Adds a letter of the text.
    fn push(&mut self, c: char) {
        self.text.push(c);
        self.push_piece(c);
        let is_marker = matches!(c, UNKNOWN_TEXT | UNKNOWN_CHAR);
        self.mark(if is_marker { '\u{FFFD}' } else { c });
    }

    fn push_piece(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push(c),
            Some(Piece::Variable(_) | Piece::Number | Piece::Unknown) | None => {
                self.pieces.push(Piece::Text(c.to_string()));
            }
        }
    }

    /// Adds a letter of the template.
    fn mark(&mut self, c: char) {
        if !self.is_closed {
            self.template.push(c);
        }
    }

    /// Adds the text of a file name's pattern that begins with `c`. Names rarely begin with a dash.
    fn pattern(&mut self, c: char) {
        let is_first = self.template.is_empty();
        self.text.push(c);
        self.push_piece(c);
        self.is_exact = false;
        if is_first || c == '?' {
            self.mark(UNKNOWN_CHAR);
        }
        if c != '?' {
            self.mark(UNKNOWN_TEXT);
        }
        self.is_closed |= c == '[';
    }

    /// Reads a substitution, of whose text the template knows nothing.
    fn substitution(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (kept, was_known) = (self.template.len(), self.is_known);
        let (first, pieces) = (self.at, self.pieces.clone());
        self.is_known = true;
        read(self)?;
        if !self.is_known {
            self.pieces = pieces;
            self.pieces.push(piece_of(&self.chars[first..self.at]));
        }
        if !self.is_known && !self.is_closed {
            self.template.truncate(kept);
            self.template.push(UNKNOWN_TEXT);
        }
        self.is_known &= was_known;
        Some(())
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    fn plain(&mut self) -> Option<()> {
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => {
                    self.at += 1;
                    let escaped = self.next()?;
                    self.push(escaped);
                }
                '\'' => self.single()?,
                '"' => self.double()?,
                '$' => self.substitution(|scan| scan.dollar(false))?,
                '`' => self.substitution(|scan| scan.backticks(false))?,
                '*' | '?' | '[' => {
                    self.pattern(c);
                    self.at += 1;
                }
                ';' | '|' | '&' | '(' | ')' | '<' | '>' => return None,
                c if c.is_whitespace() => return None,
                c => {
                    // `{a,b}` and `{1..9}` are several words, and `{}` is one.
                    let is_several =
                        c == '{' && self.chars[self.at..].iter().any(|c| matches!(c, ',' | '.'));
                    self.is_exact &= !is_several && c != '~';
                    if is_several {
                        self.mark(UNKNOWN_TEXT);
                        self.is_closed = true;
                    }
                    self.push(c);
                    self.at += 1;
                }
            }
        }
        Some(())
    }

    fn single(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.next()? {
                '\'' => return Some(()),
                c => self.push(c),
            }
        }
    }

    fn ansi(&mut self) -> Option<()> {
        self.at += 2;
        self.is_known = false;
        loop {
            match self.next()? {
                '\'' => return Some(()),
                '\\' => self.at += 1,
                _ => {}
            }
        }
    }

    fn double(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek(0)? {
                '"' => {
                    self.at += 1;
                    return Some(());
                }
                '\\' => {
                    self.at += 1;
                    let escaped = self.next()?;
                    if !matches!(escaped, '$' | '`' | '"' | '\\') {
                        self.push('\\');
                    }
                    self.push(escaped);
                }
                '$' => self.substitution(|scan| scan.dollar(true))?,
                '`' => self.substitution(|scan| scan.backticks(true))?,
                c => {
                    self.push(c);
                    self.at += 1;
                }
            }
        }
    }

    fn dollar(&mut self, is_quoted: bool) -> Option<()> {
        match self.peek(1) {
            Some('(') => {
                self.is_known = false;
                let start = self.at;
                self.at += 2;
                if self.peek(0) == Some('(') {
                    let known = self.scripts.len();
                    self.at += 1;
                    if self.within(Self::arithmetic)? {
                        return Some(());
                    }
                    self.scripts.truncate(known);
                    self.at = start + 2;
                }
                let first = self.at;
                let was_inside = std::mem::replace(&mut self.is_inside, true);
                self.within(Self::command)?;
                self.is_inside = was_inside;
                if !was_inside {
                    self.scripts.push(self.chars[first..self.at - 1].iter().collect());
                }
            }
            Some('{') => {
                self.is_known = false;
                self.at += 2;
                self.within(|scan| scan.braces(is_quoted))?;
            }
            Some('[') => return None,
            Some('\'') if !is_quoted => self.ansi()?,
            Some('"') if !is_quoted => self.at += 1,
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?-$!".contains(c) => {
                self.is_known = false;
                self.at += 2;
                let is_name = c.is_ascii_alphabetic() || c == '_';
                while is_name && self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                {
                    self.at += 1;
                }
            }
            Some(_) | None => {
                self.push('$');
                self.at += 1;
            }
        }
        Some(())
    }

    /// Goes one level deeper, if that is still allowed.
    fn within<T>(&mut self, go: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let done = (self.depth <= MAX_DEPTH).then(|| go(self)).flatten();
        self.depth -= 1;
        done
    }

    fn backticks(&mut self, is_quoted: bool) -> Option<()> {
        self.at += 1;
        self.is_known = false;
        let mut script = String::new();
        loop {
            match self.next()? {
                '`' => break,
                '\\' => {
                    let escaped = self.next()?;
                    let is_plain =
                        matches!(escaped, '`' | '\\' | '$') || (is_quoted && escaped == '"');
                    if !is_plain {
                        script.push('\\');
                    }
                    script.push(escaped);
                }
                c => script.push(c),
            }
        }
        if !self.is_inside {
            self.scripts.push(script);
        }
        Some(())
    }

    /// Reads `${…}` to its end. A single quote in it means different things in different places.
    fn braces(&mut self, is_quoted: bool) -> Option<()> {
        if self.peek(0).is_none_or(|c| c.is_whitespace() || c == '|') {
            return None; // a substitution of bash 5.3
        }
        loop {
            match self.peek(0)? {
                '}' => {
                    self.at += 1;
                    return Some(());
                }
                '\\' => self.at += 2,
                '\'' => return None,
                // The value is expanded like a prompt, with the substitutions in it.
                '@' if self.peek(1) == Some('P') => return None,
                '"' => self.double()?,
                '$' => self.dollar(is_quoted)?,
                '`' => self.backticks(is_quoted)?,
                _ => self.at += 1,
            }
        }
    }

    /// Reads `$((…))` to its end. `false` if it is a command in parentheses instead.
    fn arithmetic(&mut self) -> Option<bool> {
        let mut open = 0_usize;
        loop {
            match self.peek(0)? {
                '(' => {
                    open += 1;
                    self.at += 1;
                }
                ')' if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                ')' if self.peek(1) == Some(')') => {
                    self.at += 2;
                    return Some(true);
                }
                ')' => return Some(false),
                '\'' | '"' => return None,
                '\\' => self.at += 2,
                '$' => self.dollar(true)?,
                '`' => self.backticks(true)?,
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(raw: &str) -> Option<Vec<String>> {
        Word::new(raw).map(|word| word.scripts)
    }

    #[test]
    fn quotes_are_taken_off() {
        for (raw, text) in
            [("r\\m", "rm"), ("'r'\"m\"", "rm"), ("a\"\\$b\\n\"", "a$b\\n"), ("$", "$")]
        {
            assert_eq!(Word::new(raw).unwrap().exact(), Some(text), "{raw}");
        }
        for raw in ["$x", "${x}", "$(a)", "`a`", "$'\\x72m'", "$((1))"] {
            assert_eq!(Word::new(raw).unwrap().text, None, "{raw}");
        }
        for raw in ["*.rs", "{rm,x}", "~/x", "[a]"] {
            let word = Word::new(raw).unwrap();
            assert_eq!((word.text.as_deref(), word.exact()), (Some(raw), None), "{raw}");
        }
    }

    #[test]
    fn what_is_known_only_later_is_marked() {
        for (raw, template) in [
            ("a${x:-\"b\"}c", "a⟨⟩c"),
            ("\"a $x b\"", "a ⟨⟩ b"),
            ("$(a)`b`", "⟨⟩⟨⟩"),
            ("$'a'", "⟨⟩"),
            ("*.rs", "?⟨⟩.rs"),
            ("pu?h", "pu?h"),
            ("p[u]sh", "p⟨⟩"),
            ("{a,b}c", "⟨⟩"),
            ("'$x'", "$x"),
        ] {
            let word = Word::new(raw).unwrap();
            let shown = word.template.replace(UNKNOWN_TEXT, "⟨⟩").replace(UNKNOWN_CHAR, "?");
            assert_eq!(shown, template, "{raw}");
        }
    }

    #[test]
    fn every_substitution_is_found() {
        for (raw, expected) in [
            ("$(rm x)", &["rm x"][..]),
            ("a`rm \\`b\\``c", &["rm `b`"]),
            ("\"$(a \"b)\")\"", &["a \"b)\""]),
            ("${x:-$(rm)}", &["rm"]),
            ("\"${x:-`rm`}\"", &["rm"]),
            ("$((1+$(rm)))", &["rm"]),
            ("$((rm x); (y))", &["(rm x); (y)"]),
            ("$(echo # )\nrm)", &["echo # )\nrm"]),
            ("$(cat <<'E'\n)'\nE\nrm)", &["cat <<'E'\n)'\nE\nrm"]),
            ("$(a $(b))$(c)", &["a $(b)", "c"]),
            ("'$(rm)'", &[]),
            ("\\$x", &[]),
        ] {
            assert_eq!(scripts(raw).as_deref(), Some(&owned(expected)[..]), "{raw}");
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_word_that_is_not_sure_is_not_understood() {
        for raw in [
            "a b",
            "a;b",
            "'a",
            "\"a",
            "$(a",
            "`a",
            "${a",
            "${ rm x; }",
            "${x:-'$(rm)'}",
            "${x@P}",
            "$[1+1]",
            "$(case x in a) rm;; esac)",
            "$(cat <<E\nx\\\nE\nrm '\nE\n)",
            "$(cat <<$x\na\n$x\n)",
            "$(cat <<E $(a\nb)\nE\n)",
        ] {
            assert_eq!(scripts(raw), None, "{raw}");
        }
        assert_eq!(scripts(&("$(".repeat(50) + &")".repeat(50))), None);
        assert_eq!(scripts(&("${x:-".repeat(50) + &"}".repeat(50))), None);
    }

    #[test]
    fn words_are_shown_without_needless_quotes() {
        for (raw, shown) in [
            ("'push'", "push"),
            ("\"a b\"", "\"a b\""),
            ("a\\ b", "\"a b\""),
            ("'a b'", "'a b'"),
            ("*.rs", "*.rs"),
            ("\"$x\"", "\"$x\""),
            ("''", "''"),
        ] {
            assert_eq!(Word::new(raw).unwrap().shown(), shown, "{raw}");
        }
    }
}
