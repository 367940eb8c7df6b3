use super::*;
use crate::dialect::Dialect;
use crate::error::ErrorReason;
use crate::event::Usage;
use crate::message::ToolCall;
use LlmEvent::{
    ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta, TextEnd, TextStart, ToolInputDelta,
    ToolInputEnd, ToolInputStart,
};

fn s(text: &str) -> String {
    text.to_owned()
}

fn raw(text: &str) -> Option<RawJson> {
    Some(RawJson::parse(text).unwrap())
}

fn decoder() -> Decoder {
    Decoder::new(StateOwner::new("anthropic", "m"))
}

fn push(decoder: &mut Decoder, frames: &[&str]) -> Vec<LlmEvent> {
    frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect()
}

fn start(index: u64, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: u64, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn stop(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn events(frames: &[String]) -> Vec<LlmEvent> {
    let mut decoder = decoder();
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    push(&mut decoder, &frames)
}

fn finish_of(frames: &[&str]) -> (FinishReason, Option<Usage>) {
    let mut decoder = decoder();
    push(&mut decoder, frames);
    push(&mut decoder, &[r#"{"type":"message_stop"}"#]);
    let events = decoder.finish().unwrap();
    let [LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { .. }] = events[..] else {
        panic!("{events:?}")
    };
    (reason, usage)
}

fn ended(reason: &str) -> FinishReason {
    finish_of(&[&format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#)]).0
}

#[test]
fn thinking_is_signed_and_redacted_thinking_is_kept() {
    let frames = [
        start(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"hm\n"}"#),
        delta(0, r#"{"type":"signature_delta","signature":"Eq\"+"}"#),
        delta(0, r#"{"type":"signature_delta","signature":"/=="}"#),
        stop(0),
        start(1, r#"{"type":"redacted_thinking","data":"Em=="}"#),
        stop(1),
        start(2, r#"{"type":"text","text":""}"#),
        delta(2, r#"{"type":"text_delta","text":"So"}"#),
        delta(2, r#"{"type":"citations_delta","citation":{"type":"char_location"}}"#),
        delta(2, r#"{"type":"novel_delta","text":7}"#).replace('7', "null"),
        stop(2),
    ];
    let (first, second, third) = (|| s("reasoning-0"), || s("reasoning-1"), || s("text-2"));
    assert_eq!(
        events(&frames),
        [
            ReasoningStart { id: first() },
            ReasoningDelta { id: first(), text: s("hm\n") },
            ReasoningEnd {
                id: first(),
                provider_metadata: raw(r#"{"anthropic":{"model":"m","signature":"Eq\"+/=="}}"#)
            },
            ReasoningStart { id: second() },
            ReasoningEnd {
                id: second(),
                provider_metadata: raw(r#"{"anthropic":{"model":"m","redacted":"Em=="}}"#)
            },
            TextStart { id: third() },
            TextDelta { id: third(), text: s("So") },
            TextEnd { id: third(), provider_metadata: None },
        ]
    );
}

#[test]
fn thinking_without_text_is_a_part_and_an_empty_text_is_none() {
    let frames = [
        start(0, r#"{"type":"thinking","thinking":""}"#),
        delta(0, r#"{"type":"signature_delta","signature":"E"}"#),
        stop(0),
        start(1, r#"{"type":"text","text":""}"#),
        stop(1),
    ];
    let id = || s("reasoning-0");
    assert_eq!(
        events(&frames),
        [
            ReasoningStart { id: id() },
            ReasoningEnd {
                id: id(),
                provider_metadata: raw(r#"{"anthropic":{"model":"m","signature":"E"}}"#)
            },
        ]
    );
}

#[test]
fn only_servers_that_sign_nothing_get_unsigned_thinking_back() {
    let frames = [
        start(0, r#"{"type":"thinking","thinking":"a"}"#),
        stop(0),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    let state = |owner: StateOwner| {
        let mut decoder = Decoder::new(owner);
        let events = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).last();
        let Some(ReasoningEnd { provider_metadata, .. }) = events else { panic!("{events:?}") };
        provider_metadata
    };
    assert_eq!(state(StateOwner::new("anthropic", "m")), None);
    assert_eq!(state(StateOwner::new("google-vertex-anthropic", "claude-x@default")), None);
    let unsigned = raw(r#"{"minimax":{"model":"m","signature":""}}"#);
    assert_eq!(state(StateOwner::new("minimax", "m")), unsigned);
}

#[test]
fn calls_may_be_parallel_and_without_input() {
    let frames = [
        start(0, r#"{"type":"tool_use","id":"a","name":"read","input":{}}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":""}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"{\"p\": "}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"1.0}"}"#),
        stop(0),
        start(1, r#"{"type":"tool_use","id":"b","name":"list","input":{}}"#),
        stop(1),
        start(2, r#"{"type":"tool_use","name":"whole","input":{"a": 1}}"#),
        stop(2),
    ];
    let call = |id: &str, name: &str, arguments: &str| {
        LlmEvent::ToolCall(ToolCall::new(id, name, arguments))
    };
    assert_eq!(
        events(&frames),
        [
            ToolInputStart { id: s("a"), name: s("read") },
            ToolInputDelta { id: s("a"), text: s(r#"{"p": "#) },
            ToolInputDelta { id: s("a"), text: s("1.0}") },
            ToolInputEnd { id: s("a") },
            call("a", "read", r#"{"p": 1.0}"#),
            ToolInputStart { id: s("b"), name: s("list") },
            ToolInputEnd { id: s("b") },
            call("b", "list", "{}"),
            ToolInputStart { id: s("call_2"), name: s("whole") },
            ToolInputEnd { id: s("call_2") },
            call("call_2", "whole", r#"{"a": 1}"#),
        ]
    );
    // Broken JSON is for the tool to report; the stream is fine.
    let broken = [
        start(0, r#"{"type":"tool_use","id":"a","name":"read","input":{}}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"{"}"#),
        stop(0),
    ];
    assert_eq!(events(&broken).last(), Some(&call("a", "read", "{")));
}

#[test]
fn tools_that_the_provider_runs_are_calls_and_results_with_their_exact_blocks() {
    let result = r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[{"type":"web_search_result","url":"https://h","encrypted_content":"X"}]}"#;
    let mcp = r#"{"type":"mcp_tool_result","tool_use_id":"mcp","is_error":true,"content":[{"type":"text","text":"no"}]}"#;
    let frames = [
        start(0, r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{}}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}"#),
        stop(0),
        start(1, result),
        stop(1),
        start(
            2,
            r#"{"type":"mcp_tool_use","id":"mcp","name":"echo","server_name":"s","input":{}}"#,
        ),
        stop(2),
        start(3, mcp),
        stop(3),
    ];
    let state = |block: &str| raw(&format!(r#"{{"anthropic":{{"model":"m","block":{block}}}}}"#));
    let call = |id: &str, name: &str, arguments: &str, block: &str| {
        LlmEvent::ToolCall(ToolCall {
            provider_executed: true,
            provider_metadata: state(block),
            ..ToolCall::new(id, name, arguments)
        })
    };
    let text = r#"[{"type":"web_search_result","url":"https://h"}]"#;
    let found = ToolResult {
        provider_metadata: state(result),
        ..ToolResult::text("srv", "web_search", text)
    };
    let failed =
        ToolResult { provider_metadata: state(mcp), ..ToolResult::error("mcp", "echo", "no") };
    assert_eq!(
        events(&frames),
        [
            ToolInputStart { id: s("srv"), name: s("web_search") },
            ToolInputDelta { id: s("srv"), text: s(r#"{"query":"x"}"#) },
            ToolInputEnd { id: s("srv") },
            call(
                "srv",
                "web_search",
                r#"{"query":"x"}"#,
                r#"{"id":"srv","input":{"query":"x"},"name":"web_search","type":"server_tool_use"}"#
            ),
            LlmEvent::ToolResult(found),
            ToolInputStart { id: s("mcp"), name: s("echo") },
            ToolInputEnd { id: s("mcp") },
            call(
                "mcp",
                "echo",
                "{}",
                r#"{"id":"mcp","input":{},"name":"echo","server_name":"s","type":"mcp_tool_use"}"#
            ),
            LlmEvent::ToolResult(failed),
        ]
    );
}

#[test]
fn unknown_frames_and_blocks_are_ignored_and_missing_stops_are_made_up_for() {
    let frames = [
        r#"{"type":"ping"}"#.to_owned(),
        r#"{"type":"novel","content_block":7}"#.to_owned(),
        start(0, r#"{"type":"container_upload","file_id":"f"}"#),
        start(0, r#"{"type":"text","text":"a"}"#),
        start(0, r#"{"type":"text","text":"b"}"#),
        start(1, r#"{"type":"thinking","thinking":"c"}"#),
        r#"{"type":"message_stop"}"#.to_owned(),
        start(2, r#"{"type":"text","text":"after the end"}"#),
    ];
    let part = |id: &str, text: &str| {
        [
            TextStart { id: s(id) },
            TextDelta { id: s(id), text: s(text) },
            TextEnd { id: s(id), provider_metadata: None },
        ]
    };
    let id = || s("reasoning-2");
    let thought = [
        ReasoningStart { id: id() },
        ReasoningDelta { id: id(), text: s("c") },
        ReasoningEnd { id: id(), provider_metadata: None },
    ];
    let expected = [part("text-0", "a"), part("text-1", "b"), thought].concat();
    assert_eq!(events(&frames), expected);
}

#[test]
fn reasons_are_mapped_and_corrected() {
    assert_eq!(ended("end_turn"), FinishReason::Stop);
    assert_eq!(ended("stop_sequence"), FinishReason::Stop);
    assert_eq!(ended("max_tokens"), FinishReason::Length);
    assert_eq!(ended("model_context_window_exceeded"), FinishReason::Length);
    assert_eq!(ended("tool_use"), FinishReason::ToolCalls);
    assert_eq!(ended("refusal"), FinishReason::ContentFilter);
    // Finding llm 7: `pause_turn` was read as a complete answer.
    assert_eq!(ended("pause_turn"), FinishReason::Length);
    assert_eq!(ended("novel"), FinishReason::Unknown);
    let call = start(0, r#"{"type":"tool_use","id":"a","name":"t","input":{}}"#);
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    assert_eq!(finish_of(&[&call, end]).0, FinishReason::ToolCalls);
    let hosted = start(0, r#"{"type":"server_tool_use","id":"a","name":"t","input":{}}"#);
    assert_eq!(finish_of(&[&hosted, end]).0, FinishReason::Stop);
    assert_eq!(finish_of(&[]), (FinishReason::Unknown, None));
}

#[test]
fn the_last_usage_counts_and_zeros_do_not() {
    let begin = r#"{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_creation_input_tokens":7,"cache_read_input_tokens":11,"output_tokens":1}}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"output_tokens":13}}"#;
    let expected = Usage {
        input_tokens: 23,
        output_tokens: 13,
        cache_read_tokens: 11,
        cache_write_tokens: 7,
        reasoning_tokens: 0,
        total_tokens: 36,
        ..Usage::default()
    };
    assert_eq!(finish_of(&[begin, end]), (FinishReason::Stop, Some(expected)));
}

#[test]
fn errors_in_the_stream_have_their_reason() {
    let reason = |kind: &str, message: &str| {
        let frame = format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"r"}}"#
        );
        decoder().push(&frame).unwrap_err().reason()
    };
    assert_eq!(
        reason("overloaded_error", "Overloaded"),
        ErrorReason::ProviderInternal { retry_after_ms: None }
    );
    assert_eq!(reason("rate_limit_error", "x"), ErrorReason::RateLimit { retry_after_ms: None });
    assert_eq!(reason("authentication_error", "x"), ErrorReason::Authentication);
    assert_eq!(reason("billing_error", "x"), ErrorReason::Quota);
    assert_eq!(reason("invalid_request_error", "x"), ErrorReason::InvalidRequest);
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    assert_eq!(reason("invalid_request_error", long), ErrorReason::ContextOverflow);
    let error = decoder().push(r#"{"type":"error"}"#).unwrap_err();
    assert_eq!(error.reason(), ErrorReason::Unknown);
}

#[test]
fn an_answer_without_its_stop_is_truncated_and_a_broken_one_is_said_to_be() {
    let mut cut = decoder();
    push(
        &mut cut,
        &[r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}"#],
    );
    assert!(!cut.has_stopped());
    assert_eq!(cut.finish().unwrap_err(), DecodeError::Truncated);
    let broken = ErrorReason::InvalidOutput { incomplete_stream: false };
    let late = delta(3, r#"{"type":"input_json_delta","partial_json":"{"}"#);
    assert_eq!(decoder().push(&late).unwrap_err().reason(), broken);
    let nameless = start(0, r#"{"type":"tool_use","id":"a","input":{}}"#);
    // Finding scenarios F10: the model gets a failure for a call without a name.
    let begun = decoder().push(&nameless).unwrap();
    assert_eq!(begun, [ToolInputStart { id: s("a"), name: s("unnamed") }]);
    assert_eq!(decoder().push("<html>").unwrap_err().reason(), broken);
}

// Finding reports 7: an answer whose reason to stop had come was asked for again when only the last frame was missing.
#[test]
fn an_answer_with_its_reason_is_whole_without_its_last_frame() {
    let mut whole = decoder();
    push(
        &mut whole,
        &[
            &start(0, r#"{"type":"tool_use","id":"a","name":"t","input":{}}"#),
            &delta(0, r#"{"type":"input_json_delta","partial_json":"{}"}"#),
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}"#,
        ],
    );
    assert!(whole.has_stopped() && !whole.is_done());
    let events = whole.finish().unwrap();
    let [ToolInputEnd { .. }, LlmEvent::ToolCall(_), LlmEvent::StepFinish { .. }, last] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    let LlmEvent::Finish { reason, usage: Some(usage) } = *last else { panic!("{events:?}") };
    assert_eq!((reason, usage.output_tokens), (FinishReason::ToolCalls, 7));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut decoder = decoder();
    let mut calls = |index| {
        decoder.push(&start(index, r#"{"type":"tool_use","id":"a","name":"t","input":{}}"#))
    };
    for index in 0..256 {
        calls(index).unwrap();
    }
    let max = MAX_CALLS;
    assert_eq!(calls(256), Err(DecodeError::TooLarge { what: "tool calls", max }));
    let signature = "x".repeat(1 << 20);
    let frame = delta(0, &format!(r#"{{"type":"signature_delta","signature":"{signature}"}}"#));
    let mut decoder = self::decoder();
    let passed = (0..17).find_map(|at| decoder.push(&frame).err().map(|error| (at, error)));
    let (at, error) = passed.unwrap();
    assert_eq!(at, 16);
    assert!(matches!(error, DecodeError::TooLarge { max: MAX_KEPT_BYTES, .. }), "{error:?}");
}

#[test]
fn a_dialect_names_the_owner_of_the_state() {
    let dialect = Dialect { state_key: Some("kimi".into()), ..Dialect::default() };
    let owner = crate::Protocol::AnthropicMessages.owner("k2", &dialect);
    assert_eq!(owner, StateOwner::new("kimi", "k2"));
}

#[test]
fn a_block_of_an_unknown_type_is_ignored_with_all_that_is_added_to_it() {
    let frames = [
        start(0, r#"{"type":"novel","input":{}}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"{}"}"#),
        delta(0, r#"{"type":"text_delta","text":"a"}"#),
        stop(0),
    ];
    assert_eq!(events(&frames), []);
    let lost = delta(1, r#"{"type":"input_json_delta","partial_json":"{}"}"#);
    assert!(decoder().push(&lost).is_err());
}

#[test]
fn ids_that_a_server_gives_twice_are_told_apart() {
    let call = r#"{"type":"tool_use","id":"a","name":"t","input":{}}"#;
    let frames = [start(0, call), stop(0), start(1, call), stop(1)];
    let called = |event| if let LlmEvent::ToolCall(call) = event { Some(call.id) } else { None };
    let ids: Vec<_> = events(&frames).into_iter().filter_map(called).collect();
    assert_eq!(ids, ["a", "a_2"]);
}
