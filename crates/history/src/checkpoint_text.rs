//! The text of a Conversation Checkpoint: what the model is shown, and the summary in it, which people read.

const BEGIN: &str = "<conversation-checkpoint>\nEarlier parts of this conversation were replaced by this summary of them.\n<summary>\n";
const END: &str = "\n</summary>\n</conversation-checkpoint>";

/// Returns the text that replaces the summarised part for the model.
#[must_use]
pub fn checkpoint_text(summary: &str) -> String {
    format!("{BEGIN}{}{END}", summary.trim())
}

/// Returns a checkpoint as people read it: the summary, and below it what else is said, without the tags that are for the
/// model. A text in another form stays as it is.
#[must_use]
pub fn summary_text(checkpoint: &str) -> String {
    let Some((summary, rest)) = checkpoint.strip_prefix(BEGIN).and_then(|it| it.split_once(END))
    else {
        return untagged(checkpoint).unwrap_or_else(|| checkpoint.to_owned());
    };
    match untagged(rest.trim_start()) {
        Some(rest) => format!("{summary}\n\n{rest}"),
        None => format!("{summary}{rest}"),
    }
}

/// Returns the inside of a text that is one tag: `<left-out>`, for exchanges without a summary.
fn untagged(text: &str) -> Option<String> {
    let (tag, rest) = text.strip_prefix('<')?.split_once(">\n")?;
    rest.strip_suffix(&format!("\n</{tag}>")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check heldout-3: a released client showed the checkpoint with its tags.
    #[test]
    fn people_read_the_summary_without_tags() {
        let checkpoint = checkpoint_text(" ## Objective\nBuild <it>\n");
        assert!(checkpoint.starts_with("<conversation-checkpoint>\nEarlier parts"));
        assert_eq!(summary_text(&checkpoint), "## Objective\nBuild <it>");
        let left = "<left-out>\n2 exchanges were left out here.\n</left-out>";
        let both = format!("{checkpoint}\n{left}");
        let read = "## Objective\nBuild <it>\n\n2 exchanges were left out here.";
        assert_eq!(summary_text(&both), read);
        assert_eq!(summary_text(left), "2 exchanges were left out here.");
        for other in ["", "a summary", "<b>\nfat", "<conversation-checkpoint>\nof an older build"] {
            assert_eq!(summary_text(other), other);
        }
    }
}
