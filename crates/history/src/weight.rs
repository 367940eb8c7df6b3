//! Estimates the memory of a fold, which lets a cache weigh its entries.

use domain::{PromptAdmitted, PromptPart};
use llm_protocol::{Media, Message, Part, RawJson, TextPart, ToolContent};

use crate::revert::Savepoint;
use crate::{History, PendingInput};

/// The allocator's overhead of a text, and the unused capacity of a vector.
const SPARE: usize = 32;
/// The memory beside a message: a savepoint with its ids, and files captured with it.
const BESIDE: usize = size_of::<Savepoint>() + 3 * (30 + SPARE);

fn text(text: &str) -> usize {
    text.len() + SPARE
}

fn raw(json: Option<&RawJson>) -> usize {
    json.map_or(0, |json| text(json.get()))
}

fn content(content: &ToolContent) -> usize {
    size_of::<ToolContent>()
        + match content {
            ToolContent::Text { text: shown } => text(shown),
            ToolContent::Media { mime, data } => text(mime) + text(data),
        }
}

fn part(part: &Part) -> usize {
    size_of::<Part>()
        + match part {
            Part::Text(TextPart { text: said, provider_metadata })
            | Part::Reasoning(TextPart { text: said, provider_metadata }) => {
                text(said) + raw(provider_metadata.as_ref())
            }
            Part::Media(Media { mime, data, provider_metadata }) => {
                text(mime) + text(data) + raw(provider_metadata.as_ref())
            }
            Part::ToolCall(call) => {
                let texts = text(&call.id) + text(&call.name) + text(&call.arguments);
                texts + raw(call.provider_metadata.as_ref())
            }
            Part::ToolResult(result) => {
                let given: usize = result.content.iter().map(content).sum();
                let texts = text(&result.id) + text(&result.name);
                given + texts + raw(result.provider_metadata.as_ref())
            }
        }
}

/// Returns the memory of a prompt in the inbox.
fn pending(input: &PendingInput) -> usize {
    let parts = input.prompt.parts.iter();
    let texts: usize = parts.map(|PromptPart::Text { text: said, .. }| text(said) + SPARE).sum();
    size_of::<PendingInput>() + size_of::<PromptAdmitted>() + texts
}

/// Returns the memory of a message in a conversation.
pub(crate) fn message(message: &Message) -> usize {
    size_of::<Message>() + BESIDE + message.content.iter().map(part).sum::<usize>()
}

impl History {
    /// Returns about how many bytes of memory the fold takes. Takes the same time for a long one, but for its inbox.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let epoch = self.epoch().map_or(0, |epoch| text(&epoch.baseline) + text(&epoch.snapshot));
        let inbox: usize = self.pending().iter().map(pending).sum();
        let checkpoint = self.view().checkpoint().map_or(0, text);
        size_of::<Self>() + self.conversation().bytes() + epoch + checkpoint + inbox
    }
}

#[cfg(test)]
mod tests {
    use domain::{Delivery, IdMint, MessageId, PartId, Seq, Stamp};
    use llm_protocol::ToolResult;

    use super::*;
    use crate::Conversation;

    // Finding core-3 C2: a cache of folds took an inbox of any size for nothing.
    #[test]
    fn what_waits_in_the_inbox_weighs_what_is_in_it() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let mut history = History::new();
        let empty = history.bytes();
        let text = "x".repeat(100_000);
        let prompt = PromptAdmitted {
            by: None,
            message: MessageId::mint(&mut mint),
            delivery: Delivery::Steer,
            parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text }],
            agent: None,
            model: None,
            wake: false,
            digest: String::new(),
            synthetic: None,
        };
        history.apply(Seq(1), 1, &prompt.into());
        assert!((100_000..102_000).contains(&(history.bytes() - empty)), "{}", history.bytes());
    }

    #[test]
    fn what_is_pushed_weighs_what_is_in_it_and_nothing_once_it_is_taken_back() {
        let mut conversation = Conversation::default();
        conversation.push(Seq(1), Message::user("hi"));
        let short = conversation.bytes();
        assert!(short > 0);
        let result = ToolResult::text("call", "read", "x".repeat(100_000));
        conversation.push(Seq(2), Message::tool(vec![result]));
        let long = conversation.bytes();
        assert!((100_000..101_500).contains(&(long - short)), "{}", long - short);
        conversation.truncate(1);
        assert_eq!(conversation.bytes(), short);
        conversation.truncate(0);
        assert_eq!(conversation.bytes(), 0);
    }
}
