//! Decides when Claude must not be asked to think: in a round of calls that began without thinking.
//!
//! To Anthropic a round (calls, their answers, more calls) is one turn of the model, and thinking cannot be
//! switched on within it. With a thinking budget, it refuses a round that does not start with a thinking
//! block ("a final `assistant` message must start with a thinking block"). Such a round began with another
//! model, whose reasoning Claude does not receive, or without thinking. It continues without thinking; the
//! next turn thinks again.
//! <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#extended-thinking-with-tool-use>

use serde_json::{Map, Value};

/// A written message, as far as rounds matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// A user message. The provider joins neighbouring ones.
    User {
        /// It answers calls, so the round continues.
        answers: bool,
    },
    /// A message of the model.
    Assistant {
        /// It begins with a thought that the provider signed.
        thought: bool,
    },
    /// Instructions with a role of their own.
    Instructions,
}

/// Returns whether the conversation ends in a round that did not begin with a thought. A later thought of the
/// round also counts: the provider made it within this round, so it accepts that the round thinks.
pub(crate) fn is_round_without_thought(messages: impl DoubleEndedIterator<Item = Written>) -> bool {
    let mut asked_since = None;
    let mut begun = false;
    for message in messages.rev() {
        match message {
            Written::Instructions => {}
            Written::User { answers } => {
                asked_since = Some(answers || asked_since.unwrap_or(false));
            }
            Written::Assistant { .. } if asked_since == Some(false) => break,
            Written::Assistant { thought: true } => return false,
            Written::Assistant { thought: false } => (asked_since, begun) = (None, true),
        }
    }
    begun
}

/// Returns whether a value of `thinking` demands thoughts, with a budget. With `adaptive` the model decides,
/// and a round may have none.
/// <https://docs.anthropic.com/en/docs/build-with-claude/adaptive-thinking>
pub(crate) fn is_demanded(thinking: &Value) -> bool {
    thinking["type"] == "enabled"
}

/// Removes betas that mean nothing without thinking. Returns `None` if no beta is left.
pub(crate) fn without_thinking_betas(betas: Value) -> Option<Value> {
    let Value::Array(mut betas) = betas else { return Some(betas) };
    let before = betas.len();
    let is_of_thinking =
        |beta: &Value| beta.as_str().is_some_and(|name| name.starts_with("interleaved-thinking-"));
    betas.retain(|beta| !is_of_thinking(beta));
    (before == 0 || !betas.is_empty()).then_some(Value::Array(betas))
}

/// Removes the `context_management` edits that are refused without thinking (`clear_thinking_20251015`).
/// <https://docs.anthropic.com/en/docs/build-with-claude/context-editing#thinking-block-clearing>
pub(crate) fn without_thinking_edits(mut management: Value) -> Option<Value> {
    let Some(Value::Array(edits)) = management.get_mut("edits") else { return Some(management) };
    let before = edits.len();
    let is_of_thinking = |edit: &Value| {
        edit["type"].as_str().is_some_and(|kind| kind.starts_with("clear_thinking_"))
    };
    edits.retain(|edit| !is_of_thinking(edit));
    let nothing_left = before > 0 && edits.is_empty();
    let alone = management.as_object().is_none_or(|members: &Map<_, _>| members.len() == 1);
    (!nothing_left || !alone).then_some(management)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `u` is a question, `r` results, `b` both, `s` instructions, `a` the model, `t` the model with a
    /// thought.
    fn without_thought(conversation: &str) -> bool {
        let messages: Vec<Written> = conversation
            .chars()
            .map(|letter| match letter {
                'u' => Written::User { answers: false },
                'r' | 'b' => Written::User { answers: true },
                's' => Written::Instructions,
                letter => Written::Assistant { thought: letter == 't' },
            })
            .collect();
        is_round_without_thought(messages.into_iter())
    }

    #[test]
    fn only_an_open_round_without_a_thought_cannot_begin_to_think() {
        for conversation in ["uar", "uarar", "uaru", "uars", "utuar", "uaruar", "ua", "utuarsar"] {
            assert!(without_thought(conversation), "{conversation}");
        }
        for conversation in ["", "u", "uau", "utr", "utrar", "uautr", "uarau", "uartr", "utrsar"] {
            assert!(!without_thought(conversation), "{conversation}");
        }
    }

    #[test]
    fn what_depends_on_thinking_goes_with_it() {
        let betas = json!(["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"]);
        assert_eq!(without_thinking_betas(betas), Some(json!(["context-1m-2025-08-07"])));
        assert_eq!(without_thinking_betas(json!(["interleaved-thinking-2025-05-14"])), None);
        assert_eq!(without_thinking_betas(json!([])), Some(json!([])));
        let clear = json!({"type": "clear_thinking_20251015", "keep": "all"});
        let other = json!({"type": "clear_tool_uses_20250919"});
        assert_eq!(
            without_thinking_edits(json!({"edits": [clear, other]})),
            Some(json!({"edits": [other]}))
        );
        assert_eq!(without_thinking_edits(json!({"edits": [clear]})), None);
        assert_eq!(without_thinking_edits(json!({"edits": []})), Some(json!({"edits": []})));
    }
}
