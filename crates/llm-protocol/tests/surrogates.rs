//! Answers whose JSON holds half surrogate pairs, because providers cut texts between UTF-16 units.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::said;
use llm_protocol::{
    ErrorReason, LlmEvent, LlmRequest, Message, Part, Protocol, ToolCall, ToolContent, classify,
};

/// Returns the events of an answer with these frames, without its finish.
fn events(protocol: Protocol, frames: &[&str]) -> Vec<LlmEvent> {
    let mut decoder = protocol.decoder_for("m", &llm_protocol::Dialect::default());
    let mut events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    events.extend(decoder.finish().unwrap());
    assert_eq!(common::disorder(&events), None);
    events
}

fn text(protocol: Protocol, frames: &[&str]) -> String {
    let events = events(protocol, frames);
    let mut said = String::new();
    for event in &events {
        if let LlmEvent::TextDelta { text, .. } = event {
            said.push_str(text);
        }
    }
    said
}

const HALVES: [&str; 3] = [r"a\ud83d", r"\ude00b", r"\ude00c\ud83dd"];
const JOINED: &str = "a\u{1F600}b\u{FFFD}c\u{FFFD}d";

/// Returns frames that send each half in its own delta, and then the end.
fn deltas(delta: impl Fn(&str) -> String, end: &[&str]) -> Vec<String> {
    let deltas = HALVES.into_iter().map(delta);
    deltas.chain(end.iter().map(|frame| (*frame).to_owned())).collect()
}

#[test]
fn a_character_that_is_cut_over_two_deltas_is_joined_in_every_protocol() {
    let cases = [
        (
            Protocol::OpenAiChat,
            deltas(
                |text| format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#),
                &[r#"{"choices":[{"finish_reason":"stop"}]}"#, "[DONE]"],
            ),
        ),
        (
            Protocol::OpenAiResponses,
            deltas(
                |text| {
                    format!(
                        r#"{{"type":"response.output_text.delta","output_index":0,"delta":"{text}"}}"#
                    )
                },
                &[r#"{"type":"response.completed","response":{}}"#],
            ),
        ),
        (
            Protocol::AnthropicMessages,
            deltas(
                |text| {
                    format!(
                        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
                    )
                },
                &[r#"{"type":"message_stop"}"#],
            ),
        ),
        (
            Protocol::Gemini,
            deltas(
                |text| {
                    format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}}}}]}}"#)
                },
                &[r#"{"candidates":[{"finishReason":"STOP"}]}"#],
            ),
        ),
        (
            Protocol::BedrockConverse,
            deltas(
                |text| {
                    format!(
                        r#"{{"contentBlockDelta":{{"contentBlockIndex":0,"delta":{{"text":"{text}"}}}}}}"#
                    )
                },
                &[r#"{"messageStop":{"stopReason":"end_turn"}}"#],
            ),
        ),
    ];
    for (protocol, frames) in cases {
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        assert_eq!(text(protocol, &frames), JOINED, "{protocol:?}");
    }
}

#[test]
fn values_that_are_kept_hold_no_half() {
    let call = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","args":{"a":"\ud83d"}}}]}}]}"#;
    let code = r#"{"candidates":[{"content":{"parts":[{"executableCode":{"code":"\ude00"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"\ud83d"}}]},"finishReason":"STOP"}]}"#;
    let parts = said(&events(Protocol::Gemini, &[call, code])).content;
    let kept = serde_json::to_string(&parts).unwrap();
    assert_eq!(kept.matches(r"\ufffd").count() + kept.matches('\u{FFFD}').count(), 5, "{kept}");
    assert!(!kept.contains(r"\ud83d") && !kept.contains(r"\ude00"), "{kept}");

    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"mcp_call","id":"i","name":"t","arguments":"{}","output":"b\ud83d"}}"#;
    let end = r#"{"type":"response.completed","response":{}}"#;
    let parts = said(&events(Protocol::OpenAiResponses, &[item, end])).content;
    let Some(Part::ToolResult(result)) = parts.last() else { panic!("{parts:?}") };
    assert_eq!(result.content, [ToolContent::Text { text: "b\u{FFFD}".into() }]);
    let state = result.provider_metadata.as_ref().unwrap().get();
    assert!(state.contains(r#""output":"b\ufffd""#), "{state}");

    let result = r#"{"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[{"title":"\ud83d"}]}}"#;
    let call = r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#;
    let stop = r#"{"type":"content_block_stop","index":1}"#;
    let frames = [call, stop, result, r#"{"type":"message_stop"}"#];
    let parts = said(&events(Protocol::AnthropicMessages, &frames));
    let kept = serde_json::to_string(&parts).unwrap();
    assert!(kept.contains(r#"[{"title":"\ufffd"}]"#), "{kept}");
}

#[test]
fn errors_are_understood_and_bodies_are_sent_whole() {
    let error =
        classify(400, None, r#"{"error":{"code":"context_length_exceeded","message":"\ud83d"}}"#);
    assert_eq!((error.reason, &*error.message), (ErrorReason::ContextOverflow, "\u{FFFD}"));
    let in_stream = r#"{"type":"error","error":{"type":"overloaded_error","message":"\ud83d"}}"#;
    let error = Protocol::AnthropicMessages.decoder().push(in_stream).unwrap_err();
    assert_eq!(error.reason(), ErrorReason::ProviderInternal { retry_after_ms: None });
    // A half pair in a model's arguments leaves every body readable.
    let call = ToolCall::new("c", "t", r#"{"a":"\ud83d"}"#);
    let request = LlmRequest::new("m", vec![Message::assistant(vec![Part::ToolCall(call)])]);
    for protocol in Protocol::ALL {
        let body = String::from_utf8(protocol.encode(&request)).unwrap();
        let is_read = serde_json::from_str::<serde_json::Value>(&body).is_ok();
        assert!(is_read, "{protocol:?} {body}");
    }
}
