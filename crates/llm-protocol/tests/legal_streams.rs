//! Things that servers may send by their references, or that gateways add, and that must not fail an answer.

mod common;

use llm_protocol::{DecodeError, ErrorReason, LlmEvent, Protocol, ToolCall};

/// Decodes an answer that comes as these bytes.
fn answer(protocol: Protocol, bytes: &str) -> Result<Vec<LlmEvent>, DecodeError> {
    let mut decoder = protocol.decoder();
    let mut events = Vec::new();
    for frame in protocol.framer(1 << 20).push(bytes.as_bytes())? {
        events.extend(decoder.push(&frame)?);
    }
    events.extend(decoder.finish()?);
    assert_eq!(common::disorder(&events), None);
    Ok(events)
}

fn text(events: &[LlmEvent]) -> String {
    let mut said = String::new();
    for event in events {
        if let LlmEvent::TextDelta { text, .. } = event {
            said.push_str(text);
        }
    }
    said
}

fn calls(events: &[LlmEvent]) -> Vec<ToolCall> {
    let mut calls = Vec::new();
    for event in events {
        if let LlmEvent::ToolCall(call) = event {
            calls.push(call.clone());
        }
    }
    calls
}

#[test]
fn chats_with_odd_ids_numbers_and_empty_members() {
    let bytes = concat!(
        "\u{FEFF}: connected\r\n\r\n",
        "data: {\"id\":7,\"choices\":[],\"usage\":null,\"error\":null,\"prompt_filter_results\":[]}\r\n\r\n",
        ": keep-alive\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":null}],\"error\":\"\"}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"So.\",\"tool_calls\":null,\"novel\":{\"a\":1}}}],\"error\":{}}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\"}},{}]}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"id\":12,\"function\":{\"name\":\"t\",\"arguments\":\"{\"}}]}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"id\":null,\"function\":{\"arguments\":\"}\"}}]}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\",\"error\":false}]}\r\n\r\n",
    );
    let events = answer(Protocol::OpenAiChat, bytes).unwrap();
    assert_eq!(text(&events), "So.");
    assert_eq!(calls(&events), [ToolCall::new("12", "t", "{}")]);
    let failed = answer(Protocol::OpenAiChat, "data: {\"error\":\"rate_limit_exceeded\"}\n\n");
    assert!(matches!(failed, Err(DecodeError::Provider(_))), "{failed:?}");
}

#[test]
fn items_that_we_do_not_read_may_hold_anything() {
    let bytes = concat!(
        "data: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"novel\",\"name\":{},\"status\":7}}\n\n",
        "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"novel\",\"name\":{},\"status\":7}}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"So.\"}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"usage\":null,\"error\":null,\"incomplete_details\":null}}\n\n",
    );
    assert_eq!(text(&answer(Protocol::OpenAiResponses, bytes).unwrap()), "So.");
    let broken = "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"id\":[]}}\n\n";
    let broken = answer(Protocol::OpenAiResponses, broken);
    assert!(matches!(broken, Err(DecodeError::Malformed { .. })), "{broken:?}");
}

#[test]
fn messages_with_blocks_deltas_and_ends_of_others() {
    let bytes = concat!(
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":null,\"content\":[],\"stop_reason\":null}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"novel\",\"text\":null}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"novel_delta\",\"content\":{}}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"So.\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"citations_delta\",\"citation\":{}}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":null}\n\n",
        "data: [DONE]\n\n",
        "data: {\"type\":\"message_stop\"}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(text(&answer(Protocol::AnthropicMessages, bytes).unwrap()), "So.");
    let gateways = "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy\"}}\n\n";
    let error = answer(Protocol::AnthropicMessages, gateways).unwrap_err();
    assert_eq!(error.reason(), ErrorReason::ProviderInternal { retry_after_ms: None });
}

#[test]
fn contents_with_novel_parts_and_a_gateways_end() {
    let bytes = concat!(
        "data: {\"usageMetadata\":null,\"promptFeedback\":null,\"candidates\":null}\r\n\r\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"novel\":{}},{\"text\":\"So.\",\"thought\":null}]},\"finishReason\":null}]}\r\n\r\n",
        "data: {\"candidates\":[{\"content\":{},\"finishReason\":\"STOP\"}]}\r\n\r\n",
        "data: [DONE]\r\n\r\n",
    );
    assert_eq!(text(&answer(Protocol::Gemini, bytes).unwrap()), "So.");
}

#[test]
fn events_of_converse_that_we_do_not_read() {
    let mut decoder = Protocol::BedrockConverse.decoder();
    let frames = [
        r#"{"messageStart":{"role":"assistant"}}"#,
        r#"{"novelEvent":{"contentBlockIndex":"x"}}"#,
        r#"{"contentBlockStart":{"contentBlockIndex":0,"start":{"novel":{}}}}"#,
        r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"novel":{}},"p":"ab"}}"#,
        r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":null}}"#,
        r#"{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"text":"So.","citation":{}}}}"#,
        r#"{"messageStop":{"stopReason":"novel_reason","additionalModelResponseFields":null}}"#,
        r#"{"metadata":{"usage":null,"metrics":null}}"#,
    ];
    let events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    assert_eq!(text(&events), "So.");
    assert!(decoder.finish().is_ok());
}
