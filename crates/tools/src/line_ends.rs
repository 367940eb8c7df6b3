//! Which end a new line of a text gets: that of the lines where it is put.

/// Returns whether lines that are put at a place of a text end with CR LF: as the first line end from there on does, else as the
/// last one before it.
pub(crate) fn is_windows_at(text: &str, place: usize) -> bool {
    find_style(text, place).1
}

/// Returns the same, behind the last place for which it is so.
pub(crate) fn find_style(text: &str, place: usize) -> (usize, bool) {
    let next = text[place..].find('\n').map(|at| place + at);
    let end = next.or_else(|| text[..place].rfind('\n'));
    let is_windows = end.is_some_and(|at| text[..at].ends_with('\r'));
    (next.unwrap_or(text.len()) + 1, is_windows)
}

/// Returns the end of a line that is put before `lines[at]`: that of the line that it follows, else of the one behind it.
pub(crate) fn find_line_end(lines: &[&str], at: usize) -> &'static str {
    let has_end = |line: &&&str| line.ends_with('\n');
    let beside = lines[..at].iter().rev().find(has_end);
    let beside = beside.or_else(|| lines[at..].iter().find(has_end));
    if beside.is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_line_ends_as_those_beside_it() {
        let mixed = "a\nb\r\nc\nd";
        let expected = [(0, false), (1, false), (2, true), (4, true), (5, false), (7, false)];
        for (place, is_windows) in expected {
            assert_eq!(is_windows_at(mixed, place), is_windows, "{place}");
        }
        assert!(!is_windows_at("a", 0) && is_windows_at("a\r\nb", 3));
        let lines: Vec<&str> = mixed.split_inclusive('\n').collect();
        let ends: Vec<&str> = (0..=4).map(|at| find_line_end(&lines, at)).collect();
        assert_eq!(ends, ["\n", "\n", "\r\n", "\n", "\n"]);
        assert_eq!(find_line_end(&["a\r\n", "b"], 0), "\r\n");
    }
}
