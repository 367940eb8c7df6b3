//! Renders a conversation as one text, for a summary's request that could not show it otherwise.
//!
//! Explaining an old request renders the same text again, so its form must not change.

use std::borrow::Cow;
use std::fmt::Write as _;

use domain::SummaryCut;
use llm_protocol::{Message, Part, Role, ToolContent};

use crate::{Conversation, View};

/// Renders the conversation as `view` shows it, up to but without the message at `to`, cut as `cut` says. It includes
/// the prompts that stay word for word, because the rest makes no sense without them.
///
/// The text is never longer than `cut` allows, except for one mark.
#[must_use]
pub fn transcript(conversation: &Conversation, view: &View, to: usize, cut: &SummaryCut) -> String {
    let mut text = String::new();
    if let Some(checkpoint) = view.checkpoint() {
        text.push_str(checkpoint);
        text.push('\n');
    }
    for (index, message) in view.since(conversation, 0) {
        if index < to && message.role != Role::System {
            write_message(&mut text, message, cut);
        }
    }
    let most = bytes(cut.transcript_bytes);
    let text = without_middle(&text, most, &cut.mark);
    format!("<conversation>\n{text}</conversation>")
}

fn write_message(text: &mut String, message: &Message, cut: &SummaryCut) {
    let most = bytes(cut.result_bytes);
    let speaker = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant | Role::Tool => "assistant",
    };
    for part in &message.content {
        let written = match part {
            Part::Text(said) => {
                let said = without_middle(&said.text, bytes(cut.text_bytes), &cut.mark);
                writeln!(text, "[{speaker}]\n{said}")
            }
            // Reasoning is only for the model, and useless once its answer is there.
            Part::Reasoning(_) => Ok(()),
            Part::Media(media) => writeln!(text, "[{speaker}]\n({})", media.mime),
            Part::ToolCall(call) => {
                let arguments = without_middle(&call.arguments, most, &cut.mark);
                writeln!(text, "[call of {}]\n{arguments}", call.name)
            }
            Part::ToolResult(result) => {
                let said: Vec<&str> = result.content.iter().map(shown).collect();
                let said = said.join("\n");
                let said = without_middle(&said, most, &cut.mark);
                let how = if result.is_error { "error" } else { "result" };
                writeln!(text, "[{how} of {}]\n{said}", result.name)
            }
        };
        written.expect("a string takes all that is written to it");
    }
}

fn bytes(most: u64) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn shown(content: &ToolContent) -> &str {
    match content {
        ToolContent::Text { text } => text,
        ToolContent::Media { mime, .. } => mime,
    }
}

/// Returns the text if it has at most `most` bytes; otherwise two thirds of that from its beginning, the mark, and
/// one third from its end.
fn without_middle<'t>(text: &'t str, most: usize, mark: &str) -> Cow<'t, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let head = text.floor_char_boundary(most - most / 3);
    let tail = text.ceil_char_boundary(text.len() - most / 3);
    Cow::Owned(format!("{}\n{mark}\n{}", &text[..head], &text[tail..]))
}

#[cfg(test)]
mod tests {
    use domain::Seq;
    use llm_protocol::{ToolCall, ToolResult};

    use super::*;

    fn cut(result_bytes: u64, transcript_bytes: u64) -> SummaryCut {
        SummaryCut { result_bytes, text_bytes: 1_000, transcript_bytes, mark: "(…)".into() }
    }

    fn conversation() -> Conversation {
        let mut conversation = Conversation::default();
        conversation.push(Seq(1), Message::user("do it"));
        let call = ToolCall::new("call_1", "read", "{\"path\":\"a\"}");
        conversation.push(Seq(2), Message::assistant(vec![Part::ToolCall(call)]));
        let result =
            ToolResult::text("call_1", "read", format!("{}é{}", "a".repeat(5), "z".repeat(90)));
        conversation.push(Seq(2), Message::tool(vec![result]));
        conversation.push(Seq(3), Message::system("the date is another one"));
        conversation.push(Seq(4), Message::assistant(vec![Part::text("done")]));
        conversation
    }

    #[test]
    fn a_transcript_has_each_part_and_cuts_long_results() {
        let (conversation, view) = (conversation(), View::default());
        let text = transcript(&conversation, &view, 5, &cut(15, 10_000));
        assert_eq!(
            text,
            "<conversation>\n[user]\ndo it\n[call of read]\n{\"path\":\"a\"}\n[result of read]\n\
             aaaaaézzz\n(…)\nzzzzz\n[assistant]\ndone\n</conversation>"
        );
        let first = transcript(&conversation, &view, 1, &cut(15, 10_000));
        assert_eq!(first, "<conversation>\n[user]\ndo it\n</conversation>");
    }

    #[test]
    fn a_transcript_is_never_longer_than_its_cut() {
        let (conversation, view) = (conversation(), View::default());
        for most in 0..200 {
            let text = transcript(&conversation, &view, 5, &cut(1_000, most));
            let around = "<conversation>\n\n(…)\n</conversation>".len();
            assert!(text.len() as u64 <= most + around as u64, "{most}: {text}");
        }
    }
}
