//! The order of an assistant's message for providers that want each call answered by the next message.
//!
//! Some providers' models go on talking after they call one of our tools. If the conversation then switches
//! to a provider that refuses such a message, its parts have to be reordered. An encoder writes the parts
//! that it gets, in their order; the caller that keeps the conversation reorders them first. Text that
//! followed a call moves in front of it, so that the calls that we answer come last. Only messages that would
//! be refused change, so every body that a provider already accepted keeps its bytes.

use serde::de::IgnoredAny;

use crate::dialect::Dialect;
use crate::message::{Message, Part, Role, ToolCall, ToolResult};
use crate::protocol::Protocol;
use crate::state::StateOwner;

/// The kind of block that a part becomes, as far as the order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenAs<'a> {
    Nothing,
    /// Text, reasoning, or a provider's own block.
    Said,
    /// A call that a later message answers.
    Call,
    /// A call with this id that another provider ran. Its answer is in this message and is written after it.
    Hosted(&'a str),
    /// The answer to the call with this id.
    Answer(&'a str),
}

impl Protocol {
    /// Returns the parts of a message in an order that `model` accepts; `None` if their order is fine, and
    /// for messages that are not an assistant's.
    ///
    /// - Anthropic and Bedrock accept only other calls after a call in the same message.
    ///   <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use#handling-tool-use-and-tool-result-content-blocks>
    /// - Gemini refuses a turn of calls if the next content answers only some of them.
    /// - In OpenAI's protocols each call and each answer is an item of its own, or calls stand beside the
    ///   text: any order will do.
    #[must_use]
    pub fn in_order(self, model: &str, dialect: &Dialect, message: &Message) -> Option<Vec<Part>> {
        let is_last = match self {
            Self::AnthropicMessages | Self::BedrockConverse => true,
            Self::Gemini => false,
            Self::OpenAiChat | Self::OpenAiResponses => return None,
        };
        let calls = message.content.iter().any(|part| matches!(part, Part::ToolCall(_)));
        if message.role != Role::Assistant || !calls {
            return None;
        }
        let owner = self.owner(model, dialect);
        let parts = answerable(message, is_last, |part| written_as(part, &owner))?;
        Some(parts.into_iter().cloned().collect())
    }
}

fn written_as<'a>(part: &'a Part, owner: &StateOwner) -> WrittenAs<'a> {
    match part {
        Part::Text(part) if part.text.trim().is_empty() => WrittenAs::Nothing,
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => WrittenAs::Said,
        Part::ToolCall(ToolCall { provider_metadata, provider_executed: true, .. })
        | Part::ToolResult(ToolResult { provider_metadata, .. })
            if owner.read::<IgnoredAny>(provider_metadata.as_ref()).is_some() =>
        {
            WrittenAs::Said
        }
        Part::ToolCall(call) if call.provider_executed => WrittenAs::Hosted(&call.id),
        Part::ToolCall(_) => WrittenAs::Call,
        Part::ToolResult(result) => WrittenAs::Answer(&result.id),
    }
}

/// Returns the parts of an assistant's message in an accepted order, or `None` if they already are in one.
/// With `is_last`, only other calls and their answers may follow a call; otherwise text may follow it too.
fn answerable<'a>(
    message: &'a Message,
    is_last: bool,
    written_as: impl Fn(&'a Part) -> WrittenAs<'a>,
) -> Option<Vec<&'a Part>> {
    let mut parts: Vec<_> = message.content.iter().map(|part| (written_as(part), part)).collect();
    let is_late = |at: usize| {
        let WrittenAs::Hosted(id) = parts[at].0 else { return false };
        let until = parts[at..].iter().position(|(as_, _)| *as_ == WrittenAs::Answer(id));
        until.is_some_and(|until| is_refused(&parts[at..at + until], is_last))
    };
    let late = (0..parts.len()).any(is_late);
    if late {
        parts = answered_at_once(parts);
    }
    let is_call = |as_: &WrittenAs<'_>| *as_ == WrittenAs::Call;
    let first = parts.iter().position(|(as_, _)| is_call(as_)).unwrap_or(parts.len());
    let refused = is_refused(&parts[first..], is_last);
    if refused {
        parts.sort_by_key(|(as_, _)| is_call(as_)); // stable
    }
    (late || refused).then(|| parts.into_iter().map(|(_, part)| part).collect())
}

/// Returns whether the first of `parts`, a call, cannot be answered after the rest of them.
fn is_refused(parts: &[(WrittenAs<'_>, &Part)], is_last: bool) -> bool {
    let mut answered = false;
    parts.iter().any(|(as_, _)| {
        answered |= matches!(as_, WrittenAs::Answer(_));
        match as_ {
            WrittenAs::Said => is_last || answered,
            WrittenAs::Call | WrittenAs::Hosted(_) | WrittenAs::Nothing => answered,
            WrittenAs::Answer(_) => false,
        }
    })
}

/// Moves the answer of each call that another provider ran directly behind that call.
fn answered_at_once<'a>(
    mut parts: Vec<(WrittenAs<'a>, &'a Part)>,
) -> Vec<(WrittenAs<'a>, &'a Part)> {
    for at in 0..parts.len() {
        let WrittenAs::Hosted(id) = parts[at].0 else { continue };
        let later = &mut parts[at + 1..];
        if let Some(answer) = later.iter().position(|(as_, _)| *as_ == WrittenAs::Answer(id)) {
            later[..=answer].rotate_right(1);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `t` is text, a capital letter is our call, a small letter is a hosted call, and `=` precedes its
    /// answer.
    fn order(parts: &str, is_last: bool) -> String {
        let letters: Vec<char> = parts.chars().collect();
        let mut content = Vec::new();
        let mut answer = false;
        for letter in letters {
            let name = letter.to_string();
            match letter {
                '=' => {
                    answer = true;
                    continue;
                }
                _ if answer => content.push(Part::ToolResult(ToolResult::text(name, "", ""))),
                't' => content.push(Part::text(name)),
                _ => content.push(Part::ToolCall(ToolCall {
                    provider_executed: letter.is_lowercase(),
                    ..ToolCall::new(name, "", "")
                })),
            }
            answer = false;
        }
        let message = Message::assistant(content);
        let parts = answerable(&message, is_last, |part| match part {
            Part::ToolCall(call) if call.provider_executed => WrittenAs::Hosted(&call.id),
            Part::ToolCall(_) => WrittenAs::Call,
            Part::ToolResult(result) => WrittenAs::Answer(&result.id),
            Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => WrittenAs::Said,
        });
        let parts = parts.unwrap_or_else(|| message.content.iter().collect());
        let names = parts.into_iter().map(|part| match part {
            Part::ToolCall(call) => call.id.clone(),
            Part::ToolResult(result) => format!("={}", result.id),
            Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => "t".to_owned(),
        });
        names.collect()
    }

    #[test]
    fn what_was_said_after_a_call_comes_before_it() {
        for (said, shown) in [
            ("tAt", "ttA"),
            ("AtBt", "ttAB"),
            ("Aa=at", "a=atA"),
            ("at=at", "a=att"),
            ("abt=a=b", "a=ab=bt"),
            ("ab=aC=b", "a=ab=bC"),
            ("aAt=aB", "a=atAB"),
            ("Aa=aB", "a=aAB"),
            ("Aat=at", "a=attA"),
        ] {
            assert_eq!(order(said, true), shown, "{said}");
        }
    }

    #[test]
    fn what_is_accepted_stays_as_it_is() {
        for said in ["", "t", "tAB", "ta=atA", "ab=a=b", "Aab=a=b", "ABa=a"] {
            assert_eq!(order(said, true), said);
            assert_eq!(order(said, false), said);
        }
        assert_eq!(order("tAtB", false), "tAtB");
        assert_eq!(order("Aat=a", false), "Aat=a");
        assert_eq!(order("Aa=at", false), "a=atA");
        assert_eq!(order("ab=at=b", false), "a=ab=bt");
    }
}
