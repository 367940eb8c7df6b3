//! Compares a pattern with a text of which parts are not known.

use domain::{UNKNOWN_CHAR, UNKNOWN_TEXT};
use unicode_normalization::UnicodeNormalization as _;

/// The longest text that is compared letter by letter, in characters.
const MAX_CHARS: usize = 4_096;

/// Returns whether a text may match a pattern, if the right text stands in its unknown places.
pub(super) fn may_match(pattern: &str, text: &str) -> bool {
    if !text.contains([UNKNOWN_TEXT, UNKNOWN_CHAR]) {
        return false; // it has been compared
    }
    let text: Vec<char> = text.nfc().collect();
    if text.len() > MAX_CHARS {
        return true;
    }
    let may = |pattern: &str| may_match_chars(&pattern.nfc().collect::<Vec<_>>(), &text);
    // `git *` means `git` too.
    pattern.strip_suffix(" *").is_some_and(may) || may(pattern)
}

fn may_match_chars(pattern: &[char], text: &[char]) -> bool {
    // Whether the pattern from here on may match the text from `at` on, for the pattern's end first.
    let mut rest: Vec<bool> = vec![false; text.len() + 1];
    for at in (0..=text.len()).rev() {
        rest[at] = at == text.len() || (text[at] == UNKNOWN_TEXT && rest[at + 1]);
    }
    for wanted in pattern.iter().rev() {
        let mut here = vec![false; text.len() + 1];
        here[text.len()] = *wanted == '*' && rest[text.len()];
        for at in (0..text.len()).rev() {
            let is_one = match text[at] {
                UNKNOWN_CHAR => *wanted != '-',
                found => found == *wanted || *wanted == '?',
            };
            here[at] = match (*wanted, text[at]) {
                ('*', _) => rest[at] || here[at + 1],
                // It is empty, or it takes one more letter of the pattern.
                (_, UNKNOWN_TEXT) => here[at + 1] || rest[at],
                (_, _) => is_one && rest[at + 1],
            };
        }
        rest = here;
    }
    rest[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_be_anything() {
        for (pattern, text, expected) in [
            ("git push*", "git ⟨⟩", true),
            ("git push*", "git p⟨⟩h", true),
            ("git push*", "git p⟨⟩x⟨⟩", true),
            ("git push*", "git log ⟨⟩", false),
            ("git push*", "⟨⟩ push", true),
            ("git push", "git ⟨⟩ origin", false),
            ("git *", "⟨⟩", true),
            ("rm -rf *", "rm ⟨1⟩⟨⟩.o", false),
            ("rm -rf *", "rm ⟨⟩", true),
            ("rm ?x", "rm ⟨1⟩x", true),
            ("a*b*c", "a⟨⟩", true),
            ("a*b*c", "⟨⟩d", false),
            ("", "⟨⟩", true),
            ("git push", "git push", false),
        ] {
            let text = text
                .replace("⟨⟩", &UNKNOWN_TEXT.to_string())
                .replace("⟨1⟩", &UNKNOWN_CHAR.to_string());
            assert_eq!(may_match(pattern, &text), expected, "{pattern} {text}");
        }
    }
}
