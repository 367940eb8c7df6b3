use super::*;
use crate::error::ErrorReason;
use crate::json::RawJson;
use crate::message::{ToolCall, ToolContent, ToolResult};
use proptest::prelude::*;

const STOP: &str = r#"{"messageStop":{"stopReason":"end_turn"}}"#;
const CALLED: &str = r#"{"messageStop":{"stopReason":"tool_use"}}"#;

fn decoder() -> Decoder {
    Decoder::new(StateOwner::new("bedrock", "m"))
}

fn decode(frames: &[&str]) -> Vec<LlmEvent> {
    let mut decoder = decoder();
    let mut events = Vec::new();
    for frame in frames {
        events.extend(decoder.push(frame).unwrap());
    }
    events.extend(decoder.finish().unwrap());
    events
}

fn fail(frames: &[&str]) -> DecodeError {
    let mut decoder = decoder();
    frames.iter().find_map(|frame| decoder.push(frame).err()).expect("it fails")
}

fn text(index: u64, text: &str) -> String {
    json!({"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": text}}}).to_string()
}

fn reasoning(delta: &Value) -> String {
    json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": delta}}})
        .to_string()
}

fn call(index: u64, id: &str, name: &str) -> String {
    let start = json!({"toolUse": {"toolUseId": id, "name": name}});
    json!({"contentBlockStart": {"contentBlockIndex": index, "start": start}}).to_string()
}

fn input(index: u64, text: &str) -> String {
    let delta = json!({"toolUse": {"input": text}});
    json!({"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}).to_string()
}

fn stop(index: u64) -> String {
    json!({"contentBlockStop": {"contentBlockIndex": index}}).to_string()
}

fn end(reason: FinishReason) -> [LlmEvent; 2] {
    [LlmEvent::StepFinish { reason, usage: None }, LlmEvent::Finish { reason, usage: None }]
}

fn state(text: &str) -> Option<RawJson> {
    Some(RawJson::parse(text).unwrap())
}

fn id(text: &str) -> String {
    text.to_owned()
}

#[test]
fn reasoning_keeps_its_signature_and_text_follows_it() {
    let events = decode(&[
        r#"{"messageStart":{"role":"assistant","p":"abc"}}"#,
        &reasoning(&json!({"text": "Let me "})),
        &reasoning(&json!({"text": "see."})),
        &reasoning(&json!({"signature": "AB"})),
        &reasoning(&json!({"signature": "C="})),
        &stop(0),
        &text(1, "It is "),
        &text(1, ""),
        &text(1, "4."),
        &stop(1),
        STOP,
    ]);
    let metadata = state(r#"{"bedrock":{"model":"m","signature":"ABC="}}"#);
    let mut expected = vec![
        LlmEvent::ReasoningStart { id: id("reasoning-0") },
        LlmEvent::ReasoningDelta { id: id("reasoning-0"), text: "Let me ".into() },
        LlmEvent::ReasoningDelta { id: id("reasoning-0"), text: "see.".into() },
        LlmEvent::ReasoningEnd { id: id("reasoning-0"), provider_metadata: metadata },
        LlmEvent::TextStart { id: id("text-1") },
        LlmEvent::TextDelta { id: id("text-1"), text: "It is ".into() },
        LlmEvent::TextDelta { id: id("text-1"), text: "4.".into() },
        LlmEvent::TextEnd { id: id("text-1"), provider_metadata: None },
    ];
    expected.extend(end(FinishReason::Stop));
    assert_eq!(events, expected);
}

#[test]
fn redacted_reasoning_is_a_part_without_text() {
    let redacted = |pieces: &[&str]| {
        let pieces = pieces.iter().map(|base64| reasoning(&json!({ "redactedContent": base64 })));
        let mut frames: Vec<String> = pieces.collect();
        frames.extend([stop(0), STOP.to_owned()]);
        decode(&frames.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for pieces in [&["AAEC"][..], &["AA==", "AQI="], &["AAEC", ""]] {
        let metadata = state(r#"{"bedrock":{"model":"m","redacted":"AAEC"}}"#);
        let mut expected = vec![
            LlmEvent::ReasoningStart { id: id("reasoning-0") },
            LlmEvent::ReasoningEnd { id: id("reasoning-0"), provider_metadata: metadata },
        ];
        expected.extend(end(FinishReason::Stop));
        assert_eq!(redacted(pieces), expected);
    }
    let broken = [
        reasoning(&json!({"redactedContent": "AA=="})),
        reasoning(&json!({"redactedContent": "?"})),
    ];
    let error = fail(&[&broken[0], &broken[1]]);
    assert!(matches!(error, DecodeError::Malformed { .. }), "{error}");
}

#[test]
fn calls_are_complete_when_their_block_stops_and_may_be_parallel() {
    let events = decode(&[
        &text(0, "Reading."),
        &stop(0),
        &call(1, "a", "read"),
        &input(1, ""),
        &input(1, "{\"path\":"),
        &call(2, "b", "list"),
        &input(1, "\"x\"}"),
        &stop(1),
        &stop(2),
        CALLED,
    ]);
    let started =
        |call: &str, name: &str| LlmEvent::ToolInputStart { id: id(call), name: id(name) };
    let piece = |text: &str| LlmEvent::ToolInputDelta { id: id("a"), text: id(text) };
    let mut expected = vec![
        LlmEvent::TextStart { id: id("text-0") },
        LlmEvent::TextDelta { id: id("text-0"), text: "Reading.".into() },
        LlmEvent::TextEnd { id: id("text-0"), provider_metadata: None },
        started("a", "read"),
        piece("{\"path\":"),
        started("b", "list"),
        piece("\"x\"}"),
        LlmEvent::ToolInputEnd { id: id("a") },
        LlmEvent::ToolCall(ToolCall::new("a", "read", r#"{"path":"x"}"#)),
        LlmEvent::ToolInputEnd { id: id("b") },
        LlmEvent::ToolCall(ToolCall::new("b", "list", "{}")),
    ];
    expected.extend(end(FinishReason::ToolCalls));
    assert_eq!(events, expected);
}

#[test]
fn what_is_open_when_the_message_stops_is_closed_and_a_forced_call_is_one() {
    let events = decode(&[&call(0, "a", "read"), &input(0, "{"), STOP]);
    let expected = [
        LlmEvent::ToolInputStart { id: id("a"), name: id("read") },
        LlmEvent::ToolInputDelta { id: id("a"), text: id("{") },
        LlmEvent::ToolInputEnd { id: id("a") },
        LlmEvent::ToolCall(ToolCall::new("a", "read", "{")),
    ];
    assert_eq!(events[..4], expected);
    assert_eq!(events[4..], end(FinishReason::ToolCalls));
    // A part that begins after the stop is closed too (found by the fuzzer).
    for frames in [[text(0, "cut"), STOP.to_owned()], [STOP.to_owned(), text(0, "late")]] {
        let open = decode(&[&frames[0], &frames[1]]);
        assert_eq!(open[2], LlmEvent::TextEnd { id: id("text-0"), provider_metadata: None });
        assert_eq!(open[3..], end(FinishReason::Stop));
    }
}

#[test]
fn a_tool_that_bedrock_ran_is_no_call_of_ours_and_its_blocks_are_kept_exact() {
    let start = |start: Value| {
        json!({"contentBlockStart": {"contentBlockIndex": 1, "start": start}}).to_string()
    };
    let events = decode(&[
        &start(
            json!({"toolUse": {"toolUseId": "g", "name": "nova_grounding", "type": "server_tool_use"}}),
        ),
        &input(1, "{\"q\": 1.0}"),
        &stop(1),
        &start(
            json!({"toolResult": {"toolUseId": "g", "type": "nova_grounding_result", "status": "success"}}),
        ),
        r#"{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"toolResult":[{"text":"found"},{"json":{"b": 1.0,"a":2}}]}}}"#,
        &stop(1),
        STOP,
    ]);
    let call = ToolCall {
        provider_executed: true,
        provider_metadata: state(
            r#"{"bedrock":{"model":"m","block":{"toolUse":{"toolUseId":"g","name":"nova_grounding","input":{"q": 1.0},"type":"server_tool_use"}}}}"#,
        ),
        ..ToolCall::new("g", "nova_grounding", "{\"q\": 1.0}")
    };
    let pieces = ["found", r#"{"json":{"b": 1.0,"a":2}}"#];
    let result = ToolResult {
        id: id("g"),
        name: id("nova_grounding"),
        content: pieces.map(|text| ToolContent::Text { text: id(text) }).to_vec(),
        is_error: false,
        provider_metadata: state(
            r#"{"bedrock":{"model":"m","block":{"toolResult":{"toolUseId":"g","content":[{"text":"found"},{"json":{"b": 1.0,"a":2}}],"status":"success","type":"nova_grounding_result"}}}}"#,
        ),
    };
    assert_eq!(events[3], LlmEvent::ToolCall(call));
    assert_eq!(events[4], LlmEvent::ToolResult(result));
    assert_eq!(events[5..], end(FinishReason::Stop));
}

#[test]
fn the_answer_is_over_with_its_usage_and_whole_without_it() {
    let mut decoder = decoder();
    let usage =
        r#"{"metadata":{"usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5},"metrics":{}}}"#;
    let zeros = r#"{"metadata":{"usage":{"inputTokens":0,"outputTokens":0,"totalTokens":0}}}"#;
    for frame in [usage, zeros] {
        assert_eq!(decoder.push(frame), Ok(vec![])); // usage before the message stopped does not end it
        assert!(!decoder.is_done());
    }
    decoder.push(STOP).unwrap();
    assert!(!decoder.is_done());
    decoder.push(zeros).unwrap();
    assert!(decoder.is_done());
    assert_eq!(decoder.push("not even JSON"), Ok(vec![]));
    let reason = FinishReason::Stop;
    let usage =
        Some(Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5, ..Usage::default() });
    let expected = [LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }];
    assert_eq!(decoder.finish().unwrap(), expected);
    assert_eq!(decode(&[STOP]), end(FinishReason::Stop));
    assert_eq!(super::tests::decoder().finish(), Err(DecodeError::Truncated));
}

#[test]
fn reasons_are_told_apart() {
    for (theirs, ours) in [
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("guardrail_intervened", FinishReason::ContentFilter),
        ("content_filtered", FinishReason::ContentFilter),
        ("something_new", FinishReason::Unknown),
    ] {
        let stop = json!({"messageStop": {"stopReason": theirs}}).to_string();
        assert_eq!(decode(&[&stop]), end(ours));
    }
}

#[test]
fn unknown_frames_are_ignored_and_what_is_no_frame_is_malformed() {
    let events = decode(&[r#"{"somethingNew":{"a":1}}"#, "[1]", "3", "{}", STOP]);
    assert_eq!(events, end(FinishReason::Stop));
    for frame in ["{", "data", r#"{"contentBlockDelta":7}"#, r#"{"messageStop":{"stopReason":7}}"#]
    {
        assert!(matches!(fail(&[frame]), DecodeError::Malformed { .. }), "{frame}");
    }
    assert!(matches!(fail(&[&input(0, "{}")]), DecodeError::Malformed { .. }), "no call is open");
    let nameless =
        r#"{"contentBlockStart":{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"a"}}}}"#;
    // Finding scenarios F10: the model gets a failure for a call without a name.
    let begun = Decoder::new(StateOwner::new("bedrock", "m")).push(nameless).unwrap();
    assert!(
        matches!(&begun[..], [LlmEvent::ToolInputStart { name, .. }] if name == "unnamed"),
        "{begun:?}"
    );
}

#[test]
fn exceptions_have_their_reasons() {
    let wait = None;
    let reason = |name: &str, message: &str| {
        let frame = json!({ name: { "message": message } }).to_string();
        fail(&[&frame]).reason()
    };
    let internal = ErrorReason::ProviderInternal { retry_after_ms: wait };
    let limited = ErrorReason::RateLimit { retry_after_ms: wait };
    assert_eq!(reason("throttlingException", "Too many tokens"), limited);
    assert_eq!(reason("validationException", "bad"), ErrorReason::InvalidRequest);
    let overflow = reason("validationException", "Input is too long for requested model.");
    assert_eq!(overflow, ErrorReason::ContextOverflow);
    for name in [
        "internalServerException",
        "modelStreamErrorException",
        "serviceUnavailableException",
        "modelTimeoutException",
    ] {
        assert_eq!(reason(name, "oops"), internal, "{name}");
    }
    assert_eq!(reason("accessDeniedException", "no"), ErrorReason::Authentication);
    let frame = r#"{"error":{"code":"InternalFailure","message":""}}"#;
    let DecodeError::Provider(error) = fail(&[frame]) else { panic!("the provider's error") };
    assert_eq!((error.reason, error.message.as_str()), (internal, "InternalFailure"));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut decoder = decoder();
    for at in 0..256 {
        decoder.push(&call(at, &format!("c{at}"), "t")).unwrap();
    }
    let error = decoder.push(&call(256, "more", "t")).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { what: "tool calls", max: 256 });
    let mut decoder = super::tests::decoder();
    decoder.push(&call(0, "c", "t")).unwrap();
    let piece = input(0, &"x".repeat(1 << 20));
    let error = (0..17).find_map(|_| decoder.push(&piece).err());
    assert!(matches!(error, Some(DecodeError::TooLarge { .. })), "{error:?}");
}

proptest! {
    /// Any frames give events or an error.
    #[test]
    fn no_frame_makes_the_decoder_panic(frames in prop::collection::vec(
        "[\\[\\]{}:,\"a-z0-9]{0,40}|\\{\"contentBlock(Start|Delta|Stop)\":\\{(\"contentBlockIndex\":[0-2],)?\"(start|delta)\":\\{\"(toolUse|toolResult|text|reasoningContent)\":(\"t\"|\\[\\]|\\{(\"name\":\"t\",)?\"(input|toolUseId|signature|redactedContent)\":\"[A=1{]{0,4}\"\\})\\}\\}\\}", 0..12,
    )) {
        let mut decoder = decoder();
        for frame in &frames {
            if decoder.push(frame).is_err() { return Ok(()); }
        }
        prop_assert_eq!(decoder.finish(), Err(DecodeError::Truncated));
    }
}
