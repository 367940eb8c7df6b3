//! Requests of a service outside the conversation: for a summary or a title. Pure.

use crate::answer::{Draft, prose};

const SUMMARY: &str = "<summary-request>";
const TITLE: &str = "<title-request>";
const TITLE_END: &str = "</title-request>";

/// The number of the prompt's words in a title.
const TITLE_WORDS: usize = 6;

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// A summary of the conversation before it.
    Summary,
    /// A title for the quoted text.
    Title,
}

/// Returns the kind if the last user message is such a request.
pub(crate) fn recognise(last_user: &str) -> Option<Aside> {
    let text = last_user.trim_start();
    let of = |tag: &str, aside| text.starts_with(tag).then_some(aside);
    of(SUMMARY, Aside::Summary).or_else(|| of(TITLE, Aside::Title))
}

impl Aside {
    /// Returns whether a script names the request's tag. A script for the quoted prompt is not meant for this
    /// request.
    pub(crate) fn is_named_by(self, needle: &str) -> bool {
        needle.contains(match self {
            Self::Summary => SUMMARY,
            Self::Title => TITLE,
        })
    }
}

/// Returns a summary with every heading. Its objective is the last prompt.
pub(crate) fn summary(asked: Option<&str>) -> Draft {
    let asked = asked.unwrap_or("As the checkpoint says.");
    let text = format!(
        "## Objective\n{asked}\n\n## Requirements\n- None stated.\n\n## Decisions\n- None.\n\n## Work State\n\
         ### Completed\n- What was asked before.\n\n### Active\n- None.\n\n### Blocked\n- None.\n\n## Next Move\n\
         - Wait for the next request.\n\n## Relevant Files\n- None.\n\n## Additional Context\n\
         Written by the simulated model, which does not read."
    );
    Draft { text: prose(&text), ..Draft::default() }
}

/// Returns the first words of the quoted text.
pub(crate) fn title(request: &str) -> Draft {
    let quoted = request.trim_start().strip_prefix(TITLE).unwrap_or(request);
    let quoted = quoted.split(TITLE_END).next().unwrap_or_default();
    let words: Vec<&str> = quoted.split_whitespace().take(TITLE_WORDS).collect();
    Draft { text: prose(&words.join(" ")), ..Draft::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_has_the_first_six_words() {
        let draft = title("<title-request>\nread the  file and say what it does\n</title-request>");
        assert_eq!(draft.text.concat(), "read the file and say what");
        assert_eq!(title("<title-request>\nhi\n</title-request>").text.concat(), "hi");
    }

    #[test]
    fn a_request_is_known_by_how_it_begins() {
        assert_eq!(recognise("\n<summary-request>\nx"), Some(Aside::Summary));
        assert_eq!(recognise("<title-request>\nx"), Some(Aside::Title));
        assert_eq!(recognise("what is a <title-request>?"), None);
        assert!(Aside::Title.is_named_by("<title-request>\nsay"));
        assert!(!Aside::Title.is_named_by("say") && !Aside::Title.is_named_by(""));
    }
}
