//! Makes foreign text (of models, tools, files, people) safe to show: a terminal obeys control characters.

/// Returns `text` without control characters except line feeds and tabs, so that it cannot move the cursor, set a
/// title or hide earlier output.
#[must_use]
pub fn block(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_hostile(*c)).collect()
}

/// Returns `text` as one line of at most `max` characters.
#[must_use]
pub fn line(text: &str, max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = String::new();
    let mut length = 0;
    for word in words.filter(|word| !word.is_empty()) {
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        for c in word.chars().filter(|c| !is_hostile(*c)) {
            if length >= max {
                line.truncate(line.char_indices().nth_back(2).map_or(0, |(at, _)| at));
                return line + "...";
            }
            line.push(c);
            length += 1;
        }
    }
    line
}

/// Returns whether a character is a control character, or reorders its neighbours.
fn is_hostile(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_do_not_reach_a_terminal() {
        assert_eq!(block("a\u{1b}[31m\tb\r\n\u{9b}2Jc\u{202e}"), "a[31m\tb\n2Jc");
        assert_eq!(line(" a\r\n\u{1b}[2J  b\u{7}c ", 80), "a [2J b c");
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        assert_eq!(line("abcdefgh", 8), "abcdefgh");
        assert_eq!(line("abcdefghi", 8), "abcde...");
        assert_eq!(line("äbc défghi", 8), "äbc d...");
    }
}
