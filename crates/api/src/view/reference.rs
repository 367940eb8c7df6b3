//! The text of ours by which a prompt refers to a file of the workspace.

const BEGIN: &str = "The prompt refers to ";

/// The lines of a file that a person has selected, from 1, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SelectedLines {
    pub(crate) first: u32,
    /// `None`: to the end of the file.
    pub(crate) last: Option<u32>,
}

/// Returns the text that sends the model to a file. [`is_file_reference`] must recognise every wording, those of older
/// versions too: they are in stored prompts.
pub(crate) fn refer_to_file(path: &str, lines: Option<SelectedLines>) -> String {
    match lines {
        None => format!("{BEGIN}{path}: read it before you answer."),
        Some(SelectedLines { first, last: None }) => {
            format!("{BEGIN}{path} from line {first} on: read that before you answer.")
        }
        Some(SelectedLines { first, last: Some(last) }) if first == last => {
            format!("{BEGIN}line {first} of {path}: read it before you answer.")
        }
        Some(SelectedLines { first, last: Some(last) }) => {
            format!("{BEGIN}lines {first} to {last} of {path}: read them before you answer.")
        }
    }
}

/// Returns whether a whole text is one of [`refer_to_file`]. Events do not tell our parts of a prompt from those that
/// people wrote, so the wording does.
pub(crate) fn is_file_reference(text: &str) -> bool {
    let Some(told) = text.strip_prefix(BEGIN) else { return false };
    if told.contains(char::is_control) {
        return false;
    }
    if let Some(whole) = told.strip_suffix(": read it before you answer.") {
        let line = whole.strip_prefix("line ").and_then(|rest| rest.split_once(" of "));
        return is_path(whole) || line.is_some_and(|(line, path)| is_line(line) && is_path(path));
    }
    if let Some(end) = told.strip_suffix(" on: read that before you answer.") {
        let parts = end.rsplit_once(" from line ");
        return parts.is_some_and(|(path, line)| is_path(path) && is_line(line));
    }
    let lines = told.strip_suffix(": read them before you answer.");
    let lines = lines.and_then(|lines| lines.strip_prefix("lines ")?.split_once(" of "));
    lines.is_some_and(|(lines, path)| {
        let ends = lines.split_once(" to ");
        is_path(path) && ends.is_some_and(|(first, last)| is_line(first) && is_line(last))
    })
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
}

fn is_line(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|line| line > 0 && line.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_to_a_file_is_recognised() {
        for path in ["/w/README.md", "/w/my file.rs", "/w/a from line 2 on", "/w/lines 1 of 2: a"] {
            for lines in [None, Some((3, None)), Some((3, Some(3))), Some((3, Some(5)))] {
                let lines = lines.map(|(first, last)| SelectedLines { first, last });
                let text = refer_to_file(path, lines);
                assert!(is_file_reference(&text), "{text}");
                assert!(!is_file_reference(&format!("{text} ")), "{text}");
                assert!(!is_file_reference(&format!("So: {text}")), "{text}");
                assert!(!is_file_reference(&format!("{text}\n{text}")), "{text}");
            }
        }
    }

    #[test]
    fn what_people_wrote_is_no_reference_of_ours() {
        for text in [
            "",
            "The prompt refers to the README: read it before you answer.",
            "The prompt refers to line x of /w/a: read it before you answer.",
            "The prompt refers to line 0 of /w/a: read it before you answer.",
            "The prompt refers to lines 3 of /w/a: read them before you answer.",
            "The prompt refers to /w/a: read them before you answer.",
            "The prompt refers to /w/a on: read that before you answer.",
            "The prompt refers to /w/a.",
        ] {
            assert!(!is_file_reference(text), "{text}");
        }
    }
}
