use super::*;
use crate::error::ErrorReason;
use LlmEvent::{
    ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta, TextEnd, TextStart, ToolInputDelta,
    ToolInputEnd, ToolInputStart,
};

fn s(text: &str) -> String {
    text.to_owned()
}

fn state(members: &str) -> Option<RawJson> {
    Some(RawJson::parse(format!(r#"{{"google":{{"model":"m",{members}}}}}"#)).unwrap())
}

fn decoder() -> Decoder {
    Decoder::new(StateOwner::new("google", "m"))
}

fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

fn end(reason: &str) -> String {
    format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)
}

/// Returns the events of a successful answer with these frames, without its two last events.
fn events(frames: &[String]) -> Vec<LlmEvent> {
    let mut decoder = decoder();
    let mut events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    decoder.push(&end("STOP")).unwrap();
    events.extend(decoder.finish().unwrap());
    events.truncate(events.len() - 2);
    events
}

fn finish_of(frames: &[&str]) -> (FinishReason, Option<Usage>) {
    let mut decoder = decoder();
    for frame in frames {
        decoder.push(frame).unwrap();
    }
    let events = decoder.finish().unwrap();
    let Some(LlmEvent::Finish { reason, usage }) = events.last() else { panic!("{events:?}") };
    (*reason, *usage)
}

#[test]
fn thoughts_and_texts_follow_each_other_and_a_signature_ends_a_part() {
    let frames = [
        parts(r#"{"text":"a","thought":true},{"text":"b","thought":true}"#),
        parts(r#"{"text":"","thoughtSignature":"S1"}"#),
        parts(r#"{"text":"c"}"#),
        parts(r#"{"text":"d","thoughtSignature":"S2"},{"text":"e"}"#),
        parts(r#"{"text":""}"#),
    ];
    let part = |id: &str, texts: &[&str], end: Option<RawJson>| {
        let mut events = vec![TextStart { id: s(id) }];
        events.extend(texts.iter().map(|text| TextDelta { id: s(id), text: s(text) }));
        events.push(TextEnd { id: s(id), provider_metadata: end });
        events
    };
    let id = || s("reasoning-0");
    let thought = vec![
        ReasoningStart { id: id() },
        ReasoningDelta { id: id(), text: s("a") },
        ReasoningDelta { id: id(), text: s("b") },
        ReasoningEnd {
            id: id(),
            provider_metadata: state(r#""thought":true,"thoughtSignature":"S1""#),
        },
    ];
    let expected = [
        thought,
        part("text-1", &["c", "d"], state(r#""thoughtSignature":"S2""#)),
        part("text-2", &["e"], None),
    ];
    assert_eq!(events(&frames), expected.concat());
}

#[test]
fn a_thought_without_a_signature_is_still_known_and_a_signature_alone_is_a_part() {
    let frames = [
        parts(r#"{"text":"a","thought":true}"#),
        parts(r#"{"functionCall":{"name":"t"}}"#),
        parts(r#"{"thoughtSignature":"S"}"#),
    ];
    let events = events(&frames);
    assert_eq!(
        events[2],
        ReasoningEnd { id: s("reasoning-0"), provider_metadata: state(r#""thought":true"#) }
    );
    assert_eq!(
        events[7..],
        [
            ReasoningStart { id: s("reasoning-1") },
            ReasoningEnd {
                id: s("reasoning-1"),
                provider_metadata: state(r#""thoughtSignature":"S""#)
            }
        ]
    );
}

#[test]
fn calls_come_whole_with_their_signature_and_id() {
    let frames = [
        parts(
            r#"{"functionCall":{"name":"read","args":{"p": 1.0}},"thoughtSignature":"S"},{"functionCall":{"id":"x/1","name":"list"}}"#,
        ),
        parts(r#"{"text":"after"}"#),
    ];
    let whole = |id: &str, arguments: &str, call: ToolCall| {
        vec![
            ToolInputStart { id: s(id), name: call.name.clone() },
            ToolInputDelta { id: s(id), text: s(arguments) },
            ToolInputEnd { id: s(id) },
            LlmEvent::ToolCall(call),
        ]
    };
    let read = ToolCall {
        provider_metadata: state(r#""thoughtSignature":"S""#),
        ..ToolCall::new("call_0", "read", r#"{"p": 1.0}"#)
    };
    let list = ToolCall {
        provider_metadata: state(r#""id":"x/1""#),
        ..ToolCall::new("x/1", "list", "{}")
    };
    let text = vec![
        TextStart { id: s("text-0") },
        TextDelta { id: s("text-0"), text: s("after") },
        TextEnd { id: s("text-0"), provider_metadata: None },
    ];
    let expected = [whole("call_0", r#"{"p": 1.0}"#, read), whole("x/1", "{}", list), text];
    assert_eq!(events(&frames), expected.concat());
}

#[test]
fn code_that_the_provider_runs_is_a_call_and_a_result_with_their_exact_parts() {
    let code = r#"{"language": "PYTHON","code": "print(1)\n"}"#;
    let frames = [
        parts(&format!(r#"{{"executableCode":{code},"thoughtSignature":"S"}}"#)),
        parts(r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}}"#),
        parts(r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"without code"}}"#),
        parts(r#"{"executableCode":{}},{"codeExecutionResult":{"outcome":"OUTCOME_FAILED"}}"#),
    ];
    let events: Vec<_> = events(&frames)
        .into_iter()
        .filter(|event| matches!(event, LlmEvent::ToolCall(_) | LlmEvent::ToolResult(_)))
        .collect();
    let call = |id: &str, code: &str, part: &str| {
        LlmEvent::ToolCall(ToolCall {
            provider_executed: true,
            provider_metadata: state(&format!(r#""part":{part}"#)),
            ..ToolCall::new(id, "code_execution", code)
        })
    };
    let result = |result: ToolResult, part: &str| {
        let provider_metadata = state(&format!(r#""part":{part}"#));
        LlmEvent::ToolResult(ToolResult { provider_metadata, ..result })
    };
    assert_eq!(
        events,
        [
            call("call_0", code, &format!(r#"{{"executableCode":{code},"thoughtSignature":"S"}}"#)),
            result(
                ToolResult::text("call_0", "code_execution", "1\n"),
                r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}}"#
            ),
            call("call_1", "{}", r#"{"executableCode":{}}"#),
            result(
                ToolResult::error("call_1", "code_execution", "OUTCOME_FAILED"),
                r#"{"codeExecutionResult":{"outcome":"OUTCOME_FAILED"}}"#
            ),
        ]
    );
}

#[test]
fn reasons_are_mapped_and_corrected() {
    let reason = |reason: &str| finish_of(&[&end(reason)]).0;
    assert_eq!(reason("STOP"), FinishReason::Stop);
    assert_eq!(reason("MAX_TOKENS"), FinishReason::Length);
    for blocked in ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"] {
        assert_eq!(reason(blocked), FinishReason::ContentFilter, "{blocked}");
    }
    assert_eq!(reason("MALFORMED_FUNCTION_CALL"), FinishReason::Error);
    let mut told = decoder();
    let frame = r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"no such tool: lookat"}]}"#;
    told.push(frame).unwrap();
    let error = told.finish().unwrap_err();
    assert!(error.to_string().ends_with("with an error: no such tool: lookat"), "{error}");
    assert_eq!(reason("OTHER"), FinishReason::Unknown);
    let call = parts(r#"{"functionCall":{"name":"t"}}"#);
    assert_eq!(finish_of(&[&call, &end("STOP")]).0, FinishReason::ToolCalls);
    let hosted = parts(r#"{"executableCode":{}}"#);
    assert_eq!(finish_of(&[&hosted, &end("STOP")]).0, FinishReason::Stop);
}

#[test]
fn a_blocked_prompt_is_a_whole_answer_of_nothing() {
    let blocked = r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7}}"#;
    let usage = Usage { input_tokens: 7, total_tokens: 7, ..Usage::default() };
    assert_eq!(finish_of(&[blocked]), (FinishReason::ContentFilter, Some(usage)));
    // Safety ratings alone do not block an answer.
    let mut rated = decoder();
    rated.push(r#"{"promptFeedback":{"safetyRatings":[]}}"#).unwrap();
    assert_eq!(rated.finish().unwrap_err(), DecodeError::Truncated);
}

#[test]
fn the_last_usage_counts_also_after_the_reason_and_zeros_do_not() {
    let last =
        r#"{"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7}}"#;
    let none = r#"{"usageMetadata":{"trafficType":"ON_DEMAND"}}"#;
    let usage = Usage { input_tokens: 5, output_tokens: 2, total_tokens: 7, ..Usage::default() };
    let first = r#"{"usageMetadata":{"promptTokenCount":5}}"#;
    assert_eq!(finish_of(&[first, &end("STOP"), last, none]), (FinishReason::Stop, Some(usage)));
    assert_eq!(finish_of(&[&end("STOP")]), (FinishReason::Stop, None));
}

#[test]
fn unknown_frames_parts_and_other_candidates_are_ignored() {
    let frames = [
        r#"{"novel":{"x":1},"modelVersion":"m"}"#.to_owned(),
        "17".to_owned(),
        "[]".to_owned(),
        r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]}}]}"#.to_owned(),
        parts(r#"{"inlineData":{"mimeType":"image/png","data":"AA=="}},{"novel":true}"#),
        r#"{"candidates":[{"content":null}],"usageMetadata":null}"#.to_owned(),
    ];
    assert_eq!(events(&frames), []);
}

#[test]
fn errors_in_the_stream_have_their_reason() {
    let reason =
        |error: &str| decoder().push(&format!(r#"{{"error":{error}}}"#)).unwrap_err().reason();
    assert_eq!(
        reason(r#"{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}"#),
        ErrorReason::ProviderInternal { retry_after_ms: None }
    );
    assert_eq!(
        reason(r#"{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}"#),
        ErrorReason::RateLimit { retry_after_ms: None }
    );
    assert_eq!(
        reason(
            r#"{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}"#
        ),
        ErrorReason::ContextOverflow
    );
}

#[test]
fn an_answer_without_its_reason_is_truncated_and_a_broken_one_is_said_to_be() {
    let mut cut = decoder();
    cut.push(&parts(r#"{"text":"half"}"#)).unwrap();
    assert_eq!(cut.finish().unwrap_err(), DecodeError::Truncated);
    let broken = ErrorReason::InvalidOutput { incomplete_stream: false };
    for frame in ["<html>", "{", r#"{"candidates":7}"#] {
        assert_eq!(decoder().push(frame).unwrap_err().reason(), broken, "{frame}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let mut decoder = decoder();
    let call = parts(r#"{"functionCall":{"name":"t"}}"#);
    for _ in 0..MAX_CALLS {
        decoder.push(&call).unwrap();
    }
    let error = decoder.push(&call).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
    let signature = "x".repeat(1 << 20);
    let frame = parts(&format!(r#"{{"text":"a","thoughtSignature":"{signature}"}}"#));
    let mut decoder = self::decoder();
    let passed = (0..17).find_map(|at| decoder.push(&frame).err().map(|error| (at, error)));
    let (at, error) = passed.unwrap();
    assert_eq!(at, 15); // the quotes count too
    assert!(matches!(error, DecodeError::TooLarge { max: MAX_KEPT_BYTES, .. }), "{error:?}");
}

#[test]
fn ids_that_a_server_gives_twice_are_told_apart() {
    let mut decoder = Decoder::new(StateOwner::new("google", "m"));
    let call = r#"{"functionCall":{"id":"a","name":"t"}}"#;
    let frame = format!(r#"{{"candidates":[{{"content":{{"parts":[{call},{call}]}}}}]}}"#);
    let called = |event| if let LlmEvent::ToolCall(call) = event { Some(call.id) } else { None };
    let ids: Vec<_> = decoder.push(&frame).unwrap().into_iter().filter_map(called).collect();
    assert_eq!(ids, ["a", "a_2"]);
}

// Finding scenarios F10: a call without a name does not end the answer. Finding llm 7: `FUNCTION_CALL`.
#[test]
fn a_call_without_a_name_is_read_and_function_call_is_a_reason() {
    let mut decoder = Decoder::new(StateOwner::new("google", "m"));
    let frame = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"","args":{}}}]},"finishReason":"FUNCTION_CALL"}]}"#;
    let events = decoder.push(frame).unwrap();
    let unnamed =
        |event: &LlmEvent| matches!(event, LlmEvent::ToolCall(call) if call.name == "unnamed");
    assert!(events.iter().any(unnamed), "{events:?}");
    let finish = decoder.finish().unwrap();
    assert!(
        matches!(finish.last(), Some(LlmEvent::Finish { reason: FinishReason::ToolCalls, .. })),
        "{finish:?}"
    );
}
