//! The front matter of a Markdown file.

/// Splits a text into its front matter, between two lines of `---`, and the rest. A text without one is all rest; `None`
/// if the front matter does not end.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches('\u{FEFF}');
    let Some((first, rest)) = text.split_once('\n') else { return Some(("", text)) };
    if first.trim_end() != "---" {
        return Some(("", text));
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_matter_is_between_two_lines_of_dashes() {
        assert_eq!(split("---\r\na: 1\r\n---\r\nText"), Some(("a: 1\r\n", "Text")));
        assert_eq!(split("---\n---"), Some(("", "")));
        assert_eq!(split("Only text\n---\n"), Some(("", "Only text\n---\n")));
        assert_eq!(split("Text"), Some(("", "Text")));
        assert_eq!(split("---\na: 1\n"), None);
    }
}
