//! Recorded exchanges with Anthropic: our encoder writes a body that it accepted, and our decoder reads its
//! answer under every split of the bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{assert_any_cuts, body, decode, load, names, usage, without_pieces};
use llm_protocol::{
    CachePolicy, ErrorReason, FinishReason, LlmEvent, LlmRequest, Message, Part, Protocol, RawJson,
    ToolCall, ToolChoice, ToolDefinition, ToolResult, Usage, classify,
};
use proptest::prelude::*;

const ANTHROPIC: Protocol = Protocol::AnthropicMessages;
const HAIKU: &str = "claude-haiku-4-5-20251001";

const REJECTED: &str = "anthropic-messages/rejects-malformed-assistant-tool-order-without-patch";
const CACHED: &str =
    "anthropic-messages-cache/writes-then-reads-cache-control-on-identical-second-call";

/// The answers of a recording, each with its usage.
struct Recording {
    name: &'static str,
    request: LlmRequest,
    text: Option<&'static str>,
    call: Option<ToolCall>,
    usages: Vec<Usage>,
}

fn request(system: &str, user: &str, max_tokens: u64) -> LlmRequest {
    let mut request = common::request(HAIKU, system, user, max_tokens);
    request.generation.temperature = Some(0.0);
    request
}

fn calls() -> Recording {
    let user = "Call get_weather with city exactly Paris.";
    let mut request = request("Call tools exactly as requested.", user, 80);
    request.tools.push(common::get_weather());
    request.tool_choice = ToolChoice::Tool("get_weather".into());
    let id = "toolu_012rmAruviySvUXSjgCPWVRu";
    Recording {
        name: "anthropic-messages/streams-tool-call",
        request,
        text: None,
        call: Some(ToolCall::new(id, "get_weather", r#"{"city": "Paris"}"#)),
        usages: vec![usage(677, 33)],
    }
}

fn cached() -> Recording {
    let sentence = "You are a concise, factual assistant. Answer precisely and avoid filler. Cite numbers when known. ";
    let mut request = request(&sentence.repeat(250), "Say hi.", 16);
    request.cache = serde_json::from_str(r#"{"system":true}"#).unwrap();
    let wrote = Usage { cache_write_tokens: 5752, ..usage(5761, 5) };
    let read = Usage { cache_read_tokens: 5752, ..usage(5761, 5) };
    Recording { name: CACHED, request, text: Some("Hi."), call: None, usages: vec![wrote, read] }
}

fn recordings() -> Vec<Recording> {
    let says = Recording {
        name: "anthropic-messages/streams-text",
        request: request("You are concise.", "Reply with exactly: Hello!", 20),
        text: Some("Hello!"),
        call: None,
        usages: vec![usage(18, 5)],
    };
    vec![cached(), says, calls()]
}

#[test]
fn every_recording_is_replayed() {
    let mut ours: Vec<_> = recordings().iter().map(|recording| recording.name.to_owned()).collect();
    ours.push(REJECTED.to_owned());
    ours.sort();
    assert_eq!(ours, names(&["anthropic-messages", "anthropic-messages-cache"]));
}

#[test]
fn our_bodies_are_what_anthropic_accepted() {
    for recording in recordings() {
        let ours = body(ANTHROPIC, &recording.request);
        for exchange in load(recording.name) {
            assert_eq!(ours, exchange.body, "{}", recording.name);
        }
    }
    let mut unmarked = cached().request;
    unmarked.cache = CachePolicy::None;
    assert_ne!(body(ANTHROPIC, &unmarked), load(CACHED)[0].body);
}

#[test]
fn their_answers_decode_to_the_right_events() {
    for recording in recordings() {
        let exchanges = load(recording.name);
        assert_eq!(exchanges.len(), recording.usages.len());
        for (exchange, usage) in exchanges.iter().zip(&recording.usages) {
            let mut expected = Vec::new();
            if let Some(text) = recording.text {
                let id = || "text-0".to_owned();
                expected.extend([
                    LlmEvent::TextStart { id: id() },
                    LlmEvent::TextDelta { id: id(), text: text.to_owned() },
                    LlmEvent::TextEnd { id: id(), provider_metadata: None },
                ]);
            }
            let (events, pieces) =
                without_pieces(decode(ANTHROPIC, HAIKU, [exchange.answer.as_slice()]));
            let mut reason = FinishReason::Stop;
            if let Some(call) = &recording.call {
                assert_eq!(pieces, call.arguments, "{}", recording.name);
                let (id, name) = (call.id.clone(), call.name.clone());
                expected.push(LlmEvent::ToolInputStart { id: id.clone(), name });
                expected.push(LlmEvent::ToolInputEnd { id });
                expected.push(LlmEvent::ToolCall(call.clone()));
                reason = FinishReason::ToolCalls;
            }
            let usage = Some(*usage);
            expected.push(LlmEvent::StepFinish { reason, usage });
            expected.push(LlmEvent::Finish { reason, usage });
            assert_eq!(events, expected, "{}", recording.name);
        }
    }
}

#[test]
fn a_refused_request_is_what_we_would_send_and_its_error_is_invalid_request() {
    let call = ToolCall::new("call_1", "get_weather", r#"{"city":"Paris"}"#);
    let result = ToolResult::text("call_1", "get_weather", r#"{"temperature":"72F"}"#);
    let said = vec![Part::ToolCall(call), Part::text("I will check the weather.")];
    let user = Message::user("Use that result to answer briefly.");
    let mut request =
        LlmRequest::new(HAIKU, vec![Message::assistant(said), Message::tool(vec![result]), user]);
    request.tools.push(ToolDefinition {
        name: "get_weather".into(),
        description: "Get weather".into(),
        input_schema: RawJson::parse(r#"{"type":"object","properties":{}}"#).unwrap(),
    });
    let exchange = load(REJECTED).remove(0);
    assert_eq!(body(ANTHROPIC, &request), exchange.body);
    let error = classify(exchange.status, None, &String::from_utf8(exchange.answer).unwrap());
    assert_eq!(error.reason, ErrorReason::InvalidRequest);
    assert!(error.message.contains("must have a corresponding `tool_result`"), "{}", error.message);
}

#[test]
fn any_cuts_of_a_recording_give_the_same_events_or_are_found() {
    let names: Vec<_> = recordings().iter().map(|recording| recording.name).collect();
    assert_any_cuts(ANTHROPIC, &names, "message_delta");
}

proptest! {
    /// Any frames give events or an error.
    #[test]
    fn no_frame_makes_the_decoder_panic(frames in prop::collection::vec(frame(), 0..16)) {
        let mut decoder = ANTHROPIC.decoder();
        for frame in &frames {
            if decoder.push(frame).is_err() { return Ok(()); }
        }
        prop_assert_eq!(decoder.is_done(), decoder.finish().is_ok());
    }
}

fn frame() -> impl Strategy<Value = String> {
    let index = 0..3_u64;
    let block = prop::sample::select(vec![
        r#"{"type":"text","text":"a"}"#,
        r#"{"type":"thinking","thinking":"","signature":"s"}"#,
        r#"{"type":"redacted_thinking"}"#,
        r#"{"type":"tool_use","id":"a","name":"t","input":{"a":1}}"#,
        r#"{"type":"server_tool_use","id":"a","name":"t","input":{}}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"a","content":{"type":"x"}}"#,
        r#"{"type":"novel"}"#,
        "7",
    ]);
    let delta = prop::sample::select(vec![
        r#"{"type":"text_delta","text":"a"}"#,
        r#"{"type":"thinking_delta","thinking":"b"}"#,
        r#"{"type":"signature_delta","signature":"c"}"#,
        r#"{"type":"input_json_delta","partial_json":"1"}"#,
        r#"{"type":"citations_delta"}"#,
    ]);
    prop_oneof![
        "[\\[\\]{}:,\"a-z0-9]{0,40}",
        (index.clone(), block).prop_map(|(index, block)| format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#
        )),
        (index.clone(), delta).prop_map(|(index, delta)| format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#
        )),
        index.prop_map(|index| format!(r#"{{"type":"content_block_stop","index":{index}}}"#)),
        Just(r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{}}"#.to_owned()),
        Just(r#"{"type":"message_stop"}"#.to_owned()),
    ]
}
