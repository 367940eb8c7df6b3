//! Whether two lines are the same but for what models get wrong: white space at their ends, indentation, typographic signs.

/// Returns the sign that is typed instead of a typographic one.
pub(crate) fn typed(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{201B}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{201F}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{00A0}' | '\u{2002}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        c => c,
    }
}

/// Returns whether two lines are the same but for white space at their ends and typographic signs.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left.trim_end().chars().map(typed).eq(right.trim_end().chars().map(typed))
}

/// Returns whether two lines are also the same if their indentation does not count.
pub(crate) fn same_indented(left: &str, right: &str) -> bool {
    same(left.trim_start(), right.trim_start())
}

/// Returns the white space at a line's beginning.
pub(crate) fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}
