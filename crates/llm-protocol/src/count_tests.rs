//! Every count of every protocol, with numbers that are none.

use serde_json::Value;

use crate::{LlmEvent, Protocol, Usage};

/// Numbers as providers have sent them, and whether an answer with them can be true.
const NUMBERS: [(&str, bool); 11] = [
    ("0", true),
    ("1.5", true),
    ("\"7\"", true),
    ("-1", true),
    ("null", true),
    ("10000000", true),
    ("10000001", false),
    ("9007199254740992", false),
    ("9223372036854775807", false),
    ("18446744073709551615", false),
    ("\"18446744073709551616\"", false),
];

/// The frames of an answer with `usage`, and the places of all counts in it.
fn answer(protocol: Protocol) -> (Vec<&'static str>, &'static [&'static str]) {
    match protocol {
        Protocol::OpenAiChat => (
            vec![
                r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":USAGE}"#,
            ],
            &[
                "/prompt_tokens",
                "/completion_tokens",
                "/prompt_tokens_details/cached_tokens",
                "/prompt_tokens_details/cache_write_tokens",
                "/completion_tokens_details/reasoning_tokens",
                "/cached_tokens",
                "/prompt_cache_hit_tokens",
                "/cache_read_input_tokens",
                "/cache_creation_input_tokens",
                "/prompt_tokens_details/cache_creation_tokens",
                "/cache_creation/ephemeral_5m_input_tokens",
            ],
        ),
        Protocol::OpenAiResponses => (
            vec![r#"{"type":"response.completed","response":{"usage":USAGE}}"#],
            &[
                "/input_tokens",
                "/output_tokens",
                "/input_tokens_details/cached_tokens",
                "/input_tokens_details/cache_write_tokens",
                "/output_tokens_details/reasoning_tokens",
            ],
        ),
        Protocol::AnthropicMessages => (
            vec![
                r#"{"type":"message_start","message":{"usage":USAGE}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}"#,
                r#"{"type":"message_stop"}"#,
            ],
            &[
                "/input_tokens",
                "/output_tokens",
                "/cache_creation_input_tokens",
                "/cache_creation/ephemeral_1h_input_tokens",
                "/cache_read_input_tokens",
            ],
        ),
        Protocol::Gemini => (
            vec![
                r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":USAGE}"#,
            ],
            &[
                "/promptTokenCount",
                "/toolUsePromptTokenCount",
                "/cachedContentTokenCount",
                "/candidatesTokenCount",
                "/thoughtsTokenCount",
            ],
        ),
        Protocol::BedrockConverse => (
            vec![
                r#"{"messageStop":{"stopReason":"end_turn"}}"#,
                r#"{"metadata":{"usage":USAGE,"metrics":{}}}"#,
            ],
            &["/inputTokens", "/outputTokens", "/cacheReadInputTokens", "/cacheWriteInputTokens"],
        ),
    }
}

/// Returns the JSON of an object that has `number` at `place` alone.
fn usage_with(place: &str, number: &str) -> String {
    place
        .rsplit('/')
        .filter(|key| !key.is_empty())
        .fold(number.to_owned(), |inner, key| format!("{{{}:{inner}}}", Value::from(key)))
}

/// Returns the usage at the end of an answer.
fn counted(protocol: Protocol, usage: &str) -> Option<Usage> {
    let mut decoder = protocol.decoder();
    let mut events = Vec::new();
    for frame in answer(protocol).0 {
        events.extend(decoder.push(&frame.replace("USAGE", usage)).expect("a frame"));
    }
    events.extend(decoder.finish().expect("a whole answer"));
    let usage = |event| if let LlmEvent::Finish { usage, .. } = event { Some(usage) } else { None };
    events.into_iter().find_map(usage).expect("a finish")
}

// Finding core-3 H5: one count beyond all numbers ended a session for ever.
#[test]
fn no_count_of_any_protocol_is_believed_beyond_what_can_be() {
    for protocol in Protocol::ALL {
        for place in answer(*protocol).1 {
            for (number, can_be) in NUMBERS {
                let usage = counted(*protocol, &usage_with(place, number));
                let plausible = usage.is_none_or(|usage| usage.is_plausible());
                assert_eq!(plausible, can_be, "{protocol:?} {place} {number}: {usage:?}");
            }
        }
    }
}

// The public reports litellm#39618 and DevoxxGenieIDEAPlugin#1156: counts that are no object failed a complete answer.
#[test]
fn counts_that_are_no_object_fail_no_answer() {
    for protocol in Protocol::ALL {
        let places = answer(*protocol).1.iter().filter_map(|place| place.rsplit_once('/'));
        for (place, _) in places {
            for odd in ["null", "\"n/a\"", "\"\"", "true", "5", "-1.5", "[1,2]", "[{}]", "{}"] {
                let usage = counted(*protocol, &usage_with(place, odd)).unwrap_or_default();
                let sum = usage.input_tokens + usage.output_tokens;
                assert_eq!(sum, 0, "{protocol:?} {place} {odd}: {usage:?}");
            }
        }
    }
}
