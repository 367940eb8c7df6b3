//! Our texts that a model sees. Each is committed in its event before it is sent, so changing a text here changes no
//! earlier request.

use domain::LeftFile;
use history::Unsaved;

/// The request for the summary of a Compaction, after the conversation.
pub(crate) const SUMMARY: &str = "\
<summary-request>
The conversation above is about to be replaced by a summary. Write that summary now, as Markdown with exactly these headings:
## Objective
## Requirements
## Decisions
## Work State
### Completed
### Active
### Blocked
## Next Move
## Relevant Files
## Additional Context
Keep names, paths, commands and error texts verbatim. Answer with the summary alone; tools are not available for this.
</summary-request>";

/// The request for a summary when an earlier summary is at the beginning.
pub(crate) const SUMMARY_UPDATE: &str = "\
<summary-request>
The conversation above is about to be replaced by a summary. Write that summary now, as Markdown with exactly these headings:
## Objective
## Requirements
## Decisions
## Work State
### Completed
### Active
### Blocked
## Next Move
## Relevant Files
## Additional Context
Keep names, paths, commands and error texts verbatim. Answer with the summary alone; tools are not available for this.
A checkpoint of earlier work stands at the beginning of the conversation: carry over what still holds, drop what does not.
</summary-request>";

/// The instructions for a model that summarises a transcript.
pub(crate) const SUMMARY_SYSTEM: &str = "You summarise the work of a coding agent, so that another one can go on with it \
from the summary alone.";

/// The mark for omitted parts of a transcript.
pub(crate) const LEFT_OUT: &str = "[... left out here ...]";

/// The mark at the end of a summary that was too long.
pub(crate) const SUMMARY_TOO_LONG: &str = "[... the rest of the summary was too long ...]";

/// The notice when a summary replaced the model's work in progress.
pub(crate) const GO_ON: &str = "<notice>Your work so far on the request above was replaced by the summary in the \
checkpoint. Go on from there: do what is left of the request, and do not repeat what is done.</notice>";

/// The notice when the model's work in progress left the view without a summary.
pub(crate) const GO_ON_WITHOUT: &str = "<notice>Your work so far on the request above was left out, because it could not \
be summarised. Look at the files to see what is done, and then do what is left of the request.</notice>";

/// The beginning of the text about exchanges that left the view without a summary.
const LEFT_OUT_EXCHANGES: &str = "<left-out>";

/// The heading that identifies a summary.
pub(crate) const SUMMARY_HEADING: &str = "## Objective";

/// The single reminder that an answer was no summary.
pub(crate) const REMINDER: &str = "\
<summary-request>
That was not the summary. Answer again with the headings asked for, beginning with \"## Objective\".
</summary-request>";

/// The text for an empty answer, which providers would refuse.
pub(crate) const NO_TEXT: &str = "(no text)";

/// The result of a call in the last allowed turn.
pub(crate) const LAST_STEP: &str =
    "Tools are not available any more: this was the last step that is allowed without new input.";

/// The instructions for a model that names conversations.
pub(crate) const TITLE_SYSTEM: &str = "You name conversations. Answer with one line of at most 60 characters \
that says what the request is about, in the request's language, without quotation marks.";

/// The beginning of each of our notices.
pub(crate) const NOTICE: &str = "<notice>";

/// Returns the checkpoint after `exchanges` have left the view without a summary. `before`: the checkpoint of what was
/// summarised earlier; empty without one.
pub(crate) fn left_out(before: &str, exchanges: u32) -> String {
    let (what, they) = if exchanges == 1 {
        ("exchange of this conversation was left out here: it".to_owned(), "it")
    } else {
        ("exchanges of this conversation were left out here: they".to_owned(), "they")
    };
    let text = format!(
        "{LEFT_OUT_EXCHANGES}\n{exchanges} {what} could not be summarised. The files are as they were left. Ask the user if \
         you need to know what {they} said.\n</left-out>"
    );
    if before.is_empty() { text } else { format!("{before}\n{text}") }
}

/// Returns a checkpoint without the text about exchanges that left the view.
pub(crate) fn without_left_out(checkpoint: &str) -> &str {
    let at = checkpoint.rfind(LEFT_OUT_EXCHANGES).unwrap_or(checkpoint.len());
    checkpoint[..at].trim_end()
}

/// Returns the notice about calls whose effects on files are lost, and about lost files that were in no Workspace
/// Snapshot.
pub(crate) fn files_lost(lost: &[Unsaved], files: &[LeftFile]) -> String {
    /// The most files that are named.
    const FILES: usize = 20;
    let calls = if lost.is_empty() { String::new() } else { calls_lost(lost) };
    let mut named: Vec<&str> = files.iter().take(FILES).map(|file| file.path.as_str()).collect();
    let more = files.len().checked_sub(FILES).filter(|more| *more > 0);
    let more = more.map(|more| format!("and {more} more"));
    named.extend(more.as_deref());
    let files = match named.as_slice() {
        [] => String::new(),
        named => format!(
            " These files are in no snapshot of the workspace, because they are too large or no ordinary files, and are \
             gone: {}.",
            named.join("; ")
        ),
    };
    format!(
        "{NOTICE}The workspace moved to another machine.{calls}{files} Check the files before you rely on them.</notice>"
    )
}

fn calls_lost(lost: &[Unsaved]) -> String {
    /// The most calls that are named, and the most characters of each title.
    const CALLS: usize = 20;
    const TITLE: usize = 100;
    let named = lost.iter().take(CALLS).map(|call| {
        let title: String =
            call.title.lines().next().unwrap_or_default().chars().take(TITLE).collect();
        format!("{}: {title}", call.tool)
    });
    let mut named: Vec<String> = named.collect();
    if let Some(more) = lost.len().checked_sub(CALLS).filter(|more| *more > 0) {
        named.push(format!("and {more} more"));
    }
    format!(
        " It has the files as they were before these calls, whose effects on files are gone: {}.",
        named.join("; ")
    )
}

/// Returns the request for a title of a conversation that begins with `text`.
pub(crate) fn title(text: &str) -> String {
    /// The most characters of the first prompt in the request.
    const BOUND: usize = 2_000;
    let start: String = text.chars().take(BOUND).collect();
    format!("<title-request>\n{}\n</title-request>", start.trim())
}

#[cfg(test)]
mod tests {
    use domain::{CallId, IdMint, Stamp, TurnId};
    use history::checkpoint_text;

    use super::*;

    #[test]
    fn the_update_asks_for_the_same_and_names_the_checkpoint() {
        let (same, _) = SUMMARY.rsplit_once("</summary-request>").expect("it is closed");
        assert!(SUMMARY_UPDATE.starts_with(same));
        assert!(SUMMARY.lines().any(|line| line == SUMMARY_HEADING));
        assert!(REMINDER.contains(SUMMARY_HEADING));
    }

    #[test]
    fn many_lost_calls_are_counted_and_long_titles_cut() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let mut call = |title: &str| Unsaved {
            call: CallId::mint(&mut mint),
            turn: TurnId::mint(&mut mint),
            tool: "shell".into(),
            title: title.into(),
        };
        let two = files_lost(&[call("make\nall"), call(&"é".repeat(300))], &[]);
        assert!(two.contains(&format!("gone: shell: make; shell: {}. Check", "é".repeat(100))));
        let many: Vec<_> = (0..23).map(|_| call("ls")).collect();
        assert!(files_lost(&many, &[]).contains("shell: ls; and 3 more. Check"));
        assert!(!files_lost(&many[..20], &[]).contains("more."));
        let file = |n: usize| LeftFile { path: format!("f{n}"), why: domain::LeftReason::TooLarge };
        let files: Vec<_> = (0..22).map(file).collect();
        let both = files_lost(&many[..1], &files);
        assert!(both.contains("gone: shell: ls. These files are in no snapshot"), "{both}");
        assert!(
            both.contains("gone: f0; f1; ") && both.contains("f19; and 2 more. Check"),
            "{both}"
        );
    }

    #[test]
    fn exchanges_are_left_out_behind_what_was_summarised() {
        let alone = left_out("", 1);
        assert!(alone.contains("\n1 exchange of") && without_left_out(&alone).is_empty());
        let summary = checkpoint_text("## Objective\nx");
        let behind = left_out(&summary, 12);
        assert!(behind.starts_with(&summary) && behind.contains("\n12 exchanges of"), "{behind}");
        assert_eq!(without_left_out(&behind), summary);
        assert_eq!(without_left_out(&summary), summary);
    }

    #[test]
    fn a_title_is_made_of_the_beginning_of_a_long_prompt() {
        assert_eq!(title(" a b "), "<title-request>\na b\n</title-request>");
        assert_eq!(title(&"é".repeat(5_000)).chars().filter(|c| *c == 'é').count(), 2_000);
    }
}
