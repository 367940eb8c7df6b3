//! Reads the reason for an answer's end, in the words of any protocol.
//!
//! One table for all protocols: gateways translate requests and pass the words of the provider behind them on, so that a
//! chat ends with Anthropic's `end_turn`. No word means two things in two protocols.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::event::FinishReason;

impl FinishReason {
    /// Returns the meaning of a provider's word. `None` if it says that the answer goes on.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let word = word.trim().to_ascii_lowercase().replace(['-', ' ', '.'], "_");
        let word = word.strip_prefix("finish_reason_").unwrap_or(&word);
        Some(match word {
            // DashScope says `null` in a text while it streams.
            "" | "null" | "none" | "undefined" => return None,
            "stop" | "stopped" | "stop_sequence" | "stop_sequences" | "stop_token" | "end"
            | "end_turn" | "endturn" | "end_of_turn" | "eos" | "eos_token" | "eot" | "eod"
            | "complete" | "completed" | "done" | "finish" | "finished" | "success" | "normal" => {
                Self::Stop
            }
            // Mistral distinguishes its two limits. `pause_turn` and `compaction`: the answer continues in another
            // request.
            "length"
            | "length_limit"
            | "model_length"
            | "max_length"
            | "max_tokens"
            | "max_token"
            | "max_output_tokens"
            | "max_completion_tokens"
            | "max_new_tokens"
            | "max_context_length"
            | "context_length"
            | "context_length_exceeded"
            | "context_window_exceeded"
            | "model_context_window_exceeded"
            | "token_limit"
            | "limit"
            | "error_limit"
            | "truncated"
            | "pause_turn"
            | "compaction" => Self::Length,
            "tool_calls" | "tool_call" | "toolcalls" | "tool_use" | "tooluse" | "tools"
            | "function_call" | "function_calls" => Self::ToolCalls,
            // `sensitive` is Zhipu's, the words with `image` and `spii` are Google's, `error_toxic` is Cohere's.
            "content_filter"
            | "content_filtered"
            | "contentfilter"
            | "content_policy"
            | "content_policy_violation"
            | "data_inspection_failed"
            | "sensitive"
            | "risk"
            | "refusal"
            | "refused"
            | "safety"
            | "recitation"
            | "language"
            | "blocklist"
            | "blocked"
            | "prohibited_content"
            | "spii"
            | "model_armor"
            | "image_safety"
            | "image_prohibited_content"
            | "image_recitation"
            | "guardrail"
            | "guardrails"
            | "guardrail_intervened"
            | "moderation"
            | "moderated"
            | "flagged"
            | "censored"
            | "violation"
            | "error_toxic" => Self::ContentFilter,
            // `network_error` is Zhipu's. DeepSeek ran out of machines:
            // <https://api-docs.deepseek.com/api/create-chat-completion>.
            "error"
            | "network_error"
            | "insufficient_system_resource"
            | "server_error"
            | "internal_error"
            | "internal_server_error"
            | "system_error"
            | "engine_error"
            | "model_error"
            | "overloaded"
            | "engine_overloaded"
            | "unavailable"
            | "service_unavailable"
            | "timeout"
            | "timed_out"
            | "failed"
            | "failure"
            | "abort"
            | "aborted"
            | "cancelled"
            | "canceled"
            | "user_cancel"
            | "malformed_model_output"
            | "malformed_tool_use"
            | "malformed_function_call"
            | "malformed_response"
            | "unexpected_tool_call"
            | "too_many_tool_calls"
            | "missing_thought_signature" => Self::Error,
            _ => Self::Unknown,
        })
    }
}

/// Reads a reason: a word, or an object with the word as its `type` (SGLang). Anything else is none.
pub(crate) fn read_reason<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FinishReason>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let word = value.as_str().or_else(|| value.get("type").and_then(Value::as_str));
    Ok(word.and_then(FinishReason::from_word))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{LlmEvent, Protocol};

    const WORDS: [(FinishReason, &[&str]); 5] = [
        (
            FinishReason::Stop,
            &["stop", "end_turn", "eos", "COMPLETE", "STOP", "stop_sequence", "FINISH_REASON_STOP"],
        ),
        (
            FinishReason::Length,
            &[
                "length",
                "model_length",
                "MAX_TOKENS",
                "pause_turn",
                "compaction",
                "max_output_tokens",
            ],
        ),
        (FinishReason::ToolCalls, &["tool_calls", "tool_use", "function_call", "TOOL_CALL"]),
        (
            FinishReason::ContentFilter,
            &[
                "content_filter",
                "sensitive",
                "refusal",
                "SAFETY",
                "guardrail_intervened",
                "ERROR_TOXIC",
            ],
        ),
        (
            FinishReason::Error,
            &[
                "error",
                "network_error",
                "insufficient_system_resource",
                "abort",
                "MALFORMED_FUNCTION_CALL",
            ],
        ),
    ];

    /// Returns the frames of an answer that says `hi` and ends with `word`.
    fn frames(protocol: Protocol, word: &Value) -> Vec<Value> {
        match protocol {
            Protocol::OpenAiChat => vec![
                json!({"choices": [{"delta": {"content": "hi"}}]}),
                json!({"choices": [{"delta": {}, "finish_reason": word}]}),
            ],
            Protocol::AnthropicMessages => vec![
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": word}}),
            ],
            Protocol::Gemini => vec![
                json!({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": word}]}),
            ],
            Protocol::BedrockConverse => vec![
                json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hi"}}}),
                json!({"messageStop": {"stopReason": word}}),
            ],
            Protocol::OpenAiResponses => vec![
                json!({"type": "response.output_text.delta", "delta": "hi"}),
                json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": word}}}),
            ],
        }
    }

    fn reason(protocol: Protocol, word: &Value) -> Option<FinishReason> {
        let mut decoder = protocol.decoder();
        for frame in frames(protocol, word) {
            decoder.push(&frame.to_string()).expect("frames of the protocol");
        }
        assert_eq!(decoder.has_stopped(), !word.is_null(), "{protocol:?} {word}");
        let events = decoder.finish().ok()?;
        events.iter().find_map(|event| {
            if let LlmEvent::Finish { reason, .. } = event { Some(*reason) } else { None }
        })
    }

    // Finding heldout-3: Zhipu's `sensitive` and `network_error`, a server's `end_turn` and Anthropic's `compaction` read
    // as complete answers of which nobody knows why they ended.
    #[test]
    fn reasons_are_known_in_every_protocol() {
        for protocol in Protocol::ALL {
            for (expected, words) in WORDS {
                for word in words {
                    assert_eq!(
                        reason(*protocol, &json!(word)),
                        Some(expected),
                        "{protocol:?} {word}"
                    );
                }
            }
            assert_eq!(reason(*protocol, &json!("novel")), Some(FinishReason::Unknown));
        }
        let object = json!({"type": "length", "length": 5});
        assert_eq!(reason(Protocol::OpenAiChat, &object), Some(FinishReason::Length));
    }

    #[test]
    fn an_answer_that_goes_on_has_no_reason_yet() {
        for word in [json!("null"), json!(""), json!(null), json!(7)] {
            let mut decoder = Protocol::OpenAiChat.decoder();
            let frame = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": word}]});
            decoder.push(&frame.to_string()).expect("a frame");
            assert!(!decoder.has_stopped(), "{word}");
            assert!(decoder.finish().is_err(), "{word}");
        }
    }
}
