//! Shows names of files to a model, one on each line.

use std::borrow::Cow;

/// Returns a name with its control characters escaped, so that it stays on its line and draws nothing.
pub(crate) fn escape_name(name: &str) -> Cow<'_, str> {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    if !name.contains(is_odd) {
        return Cow::Borrowed(name);
    }
    let escape = |c: char| match c {
        '\u{FFFD}' => c.to_string(),
        c if is_odd(c) => c.escape_default().to_string(),
        c => c.to_string(),
    };
    Cow::Owned(name.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line() {
        for (name, shown) in [
            ("a b", "a b"),
            ("grün.rs", "grün.rs"),
            ("a\nb", "a\\nb"),
            ("a\r\tb", "a\\r\\tb"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202E}b", "a\\u{202e}b"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(escape_name(name), shown);
        }
    }
}
