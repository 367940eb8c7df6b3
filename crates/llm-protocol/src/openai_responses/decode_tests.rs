use super::*;
use crate::message::{ToolCall, ToolContent, ToolResult};
use LlmEvent::{
    ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta, TextEnd, TextStart, ToolInputDelta,
    ToolInputEnd, ToolInputStart,
};

fn s(text: &str) -> String {
    text.to_owned()
}

fn state(members: &str) -> Option<RawJson> {
    Some(RawJson::parse(format!(r#"{{"openai":{{"model":"m",{members}}}}}"#)).unwrap())
}

fn decoder() -> Decoder {
    Decoder::new(StateOwner::new("openai", "m"))
}

const COMPLETED: &str = r#"{"type":"response.completed","response":{"usage":null}}"#;

/// Returns the events of a completed answer with these frames, without its end.
fn events(frames: &[&str]) -> Vec<LlmEvent> {
    let mut decoder = decoder();
    let mut events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    events.extend(decoder.push(COMPLETED).unwrap());
    assert!(decoder.is_done());
    events
}

fn item(event: &str, index: u64, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.{event}","output_index":{index},"item":{item}}}"#)
}

fn delta(kind: &str, place: &str, text: &str) -> String {
    format!(r#"{{"type":"response.{kind}.delta",{place},"delta":"{text}"}}"#)
}

fn finish_of(frames: &[&str]) -> FinishReason {
    let mut decoder = decoder();
    for frame in frames {
        decoder.push(frame).unwrap();
    }
    let events = decoder.finish().unwrap();
    let [LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason: again, usage: same }] =
        events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!((reason, usage), (again, same));
    *reason
}

#[test]
fn parallel_calls_stream_side_by_side_and_each_is_announced_with_its_item() {
    let call = |index, id: &str, arguments: &str| {
        format!(
            r#"{{"type":"function_call","id":"fc{index}","call_id":"{id}","name":"t","arguments":"{arguments}"}}"#
        )
    };
    let arguments = |at: u64, text: &str| {
        delta("function_call_arguments", &format!(r#""output_index":{at}"#), text)
    };
    assert_eq!(
        events(&[
            &item("added", 0, &call(0, "a", "")),
            &item("added", 1, &call(1, "b", "")),
            &arguments(1, "[1"),
            &arguments(0, "{}"),
            &arguments(1, "]"),
            &item("done", 1, &call(1, "b", "[1]")),
            &item("done", 0, &call(0, "a", "{}")),
        ]),
        [
            ToolInputStart { id: s("a"), name: s("t") },
            ToolInputStart { id: s("b"), name: s("t") },
            ToolInputDelta { id: s("b"), text: s("[1") },
            ToolInputDelta { id: s("a"), text: s("{}") },
            ToolInputDelta { id: s("b"), text: s("]") },
            ToolInputEnd { id: s("b") },
            LlmEvent::ToolCall(ToolCall::new("b", "t", "[1]")),
            ToolInputEnd { id: s("a") },
            LlmEvent::ToolCall(ToolCall::new("a", "t", "{}")),
        ]
    );
}

#[test]
fn a_call_is_whole_however_a_server_sends_it() {
    let whole = r#"{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}"#;
    let empty = r#"{"type":"function_call","call_id":"a","name":"t"}"#;
    let done =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    let expected = [
        ToolInputStart { id: s("a"), name: s("t") },
        ToolInputDelta { id: s("a"), text: s("{}") },
        ToolInputEnd { id: s("a") },
        LlmEvent::ToolCall(ToolCall::new("a", "t", "{}")),
    ];
    // only complete; without pieces; never complete
    assert_eq!(events(&[&item("done", 0, whole)]), expected);
    assert_eq!(events(&[&item("added", 0, empty), &item("done", 0, whole)]), expected);
    assert_eq!(events(&[&item("added", 0, empty), done]), expected);
    // the same item twice
    let frames = [item("added", 0, empty), item("done", 0, whole), item("done", 0, whole)];
    assert_eq!(events(&frames.each_ref().map(String::as_str)), expected);
    // a call without an id gets one from its place
    let nameless = r#"{"type":"function_call","name":"t","arguments":"{}"}"#;
    assert!(
        matches!(&events(&[&item("done", 0, nameless)])[0], ToolInputStart { id, .. } if id == "call_0")
    );
}

#[test]
fn an_item_is_found_by_its_place_when_its_id_changes() {
    let added = r#"{"type":"message","id":"x1","content":[]}"#;
    let done = r#"{"type":"message","id":"x3","phase":"final_answer","content":[{"type":"output_text","text":"Hi"}]}"#;
    assert_eq!(
        events(&[
            &item("added", 0, added),
            &delta("output_text", r#""item_id":"x2","output_index":0,"content_index":0"#, "Hi"),
            &item("done", 0, done),
        ]),
        [
            TextStart { id: s("text-0") },
            TextDelta { id: s("text-0"), text: s("Hi") },
            TextEnd { id: s("text-0"), provider_metadata: state(r#""phase":"final_answer""#) },
        ]
    );
    // several items with the same index differ by type
    let call = r#"{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}"#;
    let all = events(&[&item("done", 0, done), &item("done", 0, call)]);
    assert_eq!(all.last(), Some(&LlmEvent::ToolCall(ToolCall::new("a", "t", "{}"))));
}

#[test]
fn reasoning_is_one_part_whose_pieces_are_joined_and_which_keeps_its_state() {
    let added = r#"{"type":"reasoning","id":"rs","encrypted_content":"early","summary":[]}"#;
    let done = r#"{"type":"reasoning","id":"rs","encrypted_content":"la\/te","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"bc"}]}"#;
    let piece = |at: u64, text: &str| {
        delta("reasoning_summary_text", &format!(r#""item_id":"rs","summary_index":{at}"#), text)
    };
    let id = || s("reasoning-0");
    let end = ReasoningEnd {
        id: id(),
        provider_metadata: state(
            r#""itemId":"rs","encryptedContent":"la\/te","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"bc"}]"#,
        ),
    };
    assert_eq!(
        events(&[
            &item("added", 0, added),
            &piece(0, "a"),
            &piece(1, "b"),
            &piece(1, "c"),
            &item("done", 0, done)
        ]),
        [
            ReasoningStart { id: id() },
            ReasoningDelta { id: id(), text: s("a") },
            ReasoningDelta { id: id(), text: s("\n\nb") },
            ReasoningDelta { id: id(), text: s("c") },
            end.clone(),
        ]
    );
    assert_eq!(
        events(&[&item("done", 0, done)]),
        [
            ReasoningStart { id: id() },
            ReasoningDelta { id: id(), text: s("a") },
            ReasoningDelta { id: id(), text: s("\n\nbc") },
            end,
        ]
    );
    // open models show their reasoning
    let open = delta("reasoning_text", r#""output_index":0,"content_index":0"#, "hm");
    assert_eq!(
        events(&[&open]),
        [
            ReasoningStart { id: id() },
            ReasoningDelta { id: id(), text: s("hm") },
            ReasoningEnd { id: id(), provider_metadata: None },
        ]
    );
}

#[test]
fn reasoning_without_text_is_a_part_that_carries_its_state() {
    let done = r#"{"type":"reasoning","id":"rs","encrypted_content":"e","summary":[]}"#;
    let provider_metadata = state(r#""itemId":"rs","encryptedContent":"e""#);
    assert_eq!(
        events(&[&item("done", 0, done)]),
        [
            ReasoningStart { id: s("reasoning-0") },
            ReasoningEnd { id: s("reasoning-0"), provider_metadata },
        ]
    );
}

#[test]
fn a_tool_that_the_provider_ran_is_a_call_and_a_result_that_keeps_its_item() {
    let search = r#"{"type":"web_search_call","id":"ws","status":"completed","action":{"type":"search", "query":"x"}}"#;
    let events_of = |raw: &str| {
        let all = events(&[&item("added", 0, raw), &item("done", 0, raw)]);
        let [.., LlmEvent::ToolCall(call), LlmEvent::ToolResult(result)] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(result.provider_metadata, state(&format!(r#""item":{raw}"#)));
        (call.clone(), result.clone())
    };
    let (call, result) = events_of(search);
    let arguments = r#"{"type":"search", "query":"x"}"#;
    let expected =
        ToolCall { provider_executed: true, ..ToolCall::new("ws", "web_search", arguments) };
    assert_eq!(call, expected);
    assert_eq!((result.is_error, result.name.as_str()), (false, "web_search"));
    assert_eq!(finish_of(&[&item("done", 0, search), COMPLETED]), FinishReason::Stop);

    let code = r#"{"type":"code_interpreter_call","id":"ci","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}"#;
    let (call, result) = events_of(code);
    assert_eq!(call.arguments, r#"{"code":"1+1"}"#);
    let text = ToolContent::Text { text: s(r#"[{"type":"logs","logs":"2"}]"#) };
    assert_eq!(result.content, [text]);

    let mcp = r#"{"type":"mcp_call","id":"mcp","name":"ask","arguments":"{\"q\":1}","output":null,"error":"no such server"}"#;
    let (call, result) = events_of(mcp);
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("ask", r#"{"q":1}"#));
    let failed = ToolResult::error("mcp", "ask", "no such server");
    assert_eq!(ToolResult { provider_metadata: None, ..result }, failed);

    let image =
        r#"{"type":"image_generation_call","id":"ig","result":"AA==","output_format":"webp"}"#;
    let (_, result) = events_of(image);
    assert_eq!(result.content, [ToolContent::Media { mime: s("image/webp"), data: s("AA==") }]);
}

#[test]
fn a_call_of_a_tool_that_only_a_client_can_run_is_ours_to_answer() {
    let shell =
        r#"{"type":"local_shell_call","id":"ls","call_id":"c","action":{"command":["ls"]}}"#;
    let all = events(&[&item("done", 0, shell)]);
    let call = ToolCall::new("c", "local_shell", r#"{"command":["ls"]}"#);
    assert_eq!(all.last(), Some(&LlmEvent::ToolCall(call)));
    assert_eq!(finish_of(&[&item("done", 0, shell), COMPLETED]), FinishReason::ToolCalls);
}

#[test]
fn reasons_are_read_and_corrected() {
    let incomplete = |reason: &str| {
        format!(r#"{{"type":"response.incomplete","response":{{"incomplete_details":{reason}}}}}"#)
    };
    assert_eq!(finish_of(&[COMPLETED]), FinishReason::Stop);
    let length = incomplete(r#"{"reason":"max_output_tokens"}"#);
    assert_eq!(finish_of(&[&length]), FinishReason::Length);
    let filtered = incomplete(r#"{"reason":"content_filter"}"#);
    assert_eq!(finish_of(&[&filtered]), FinishReason::ContentFilter);
    assert_eq!(finish_of(&[&incomplete("null")]), FinishReason::Unknown);
    let refusal = delta("refusal", r#""output_index":0,"content_index":0"#, "I can't.");
    assert_eq!(finish_of(&[&refusal, COMPLETED]), FinishReason::ContentFilter);
    let whole = r#"{"type":"message","content":[{"type":"refusal","refusal":"No."}]}"#;
    assert_eq!(finish_of(&[&item("done", 0, whole), COMPLETED]), FinishReason::ContentFilter);
    let call = r#"{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}"#;
    assert_eq!(finish_of(&[&item("done", 0, call), COMPLETED]), FinishReason::ToolCalls);
}

#[test]
fn usage_is_inclusive() {
    let mut decoder = decoder();
    decoder
        .push(r#"{"type":"response.completed","response":{"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":16}}}"#)
        .unwrap();
    let usage = Usage {
        input_tokens: 9,
        output_tokens: 7,
        cache_read_tokens: 4,
        cache_write_tokens: 0,
        reasoning_tokens: 5,
        total_tokens: 16,
        ..Usage::default()
    };
    let (reason, usage) = (FinishReason::Stop, Some(usage));
    assert_eq!(decoder.finish().unwrap()[1], LlmEvent::Finish { reason, usage });
}

#[test]
fn an_error_in_the_stream_is_typed() {
    let error = |frame: &str| {
        let DecodeError::Provider(error) = decoder().push(frame).unwrap_err() else {
            panic!("not the provider's: {frame}")
        };
        (error.reason.name(), error.message)
    };
    for frame in [
        r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow down"}}}"#,
        r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}"#,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
        r#"{"error":{"code":429,"message":"slow down"}}"#,
    ] {
        assert_eq!(error(frame), ("rate-limit", s("slow down")), "{frame}");
    }
    let unsaid = r#"{"type":"response.failed","response":{"error":null}}"#;
    assert_eq!(error(unsaid).0, "provider-internal");
    let long =
        r#"{"type":"error","error":{"code":"context_length_exceeded","message":"too long"}}"#;
    assert_eq!(error(long).0, "overflow");
    let prompt = r#"{"type":"error","code":"invalid_prompt","message":"bad"}"#;
    assert_eq!(error(prompt).0, "invalid-request");
}

#[test]
fn frames_that_say_nothing_to_us_are_ignored() {
    let mut decoder = decoder();
    for frame in [
        "",
        "{}",
        "null",
        "[1]",
        "[DONE]",
        r#"{"type":"response.created","response":{"output":[],"usage":null}}"#,
        r#"{"type":"response.new_thing","delta":{"an":"object"},"item":7}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"novel_item","tools":[]}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"novel_item","tools":[]}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":7,"delta":"x"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":""}"#,
    ] {
        assert_eq!(decoder.push(frame).unwrap(), [], "{frame}");
    }
    assert_eq!(decoder.finish().unwrap_err(), DecodeError::Truncated);
}

#[test]
fn what_is_not_this_protocol_is_malformed() {
    for frame in [
        "{",
        "hello",
        r#"{"type":"response.output_text.delta","delta":7}"#,
        r#"{"type":"response.output_item.added","item":{"type":7}}"#,
    ] {
        let error = decoder().push(frame).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed { .. }), "{frame}: {error}");
    }
}

#[test]
fn a_stream_cannot_make_us_keep_endless_items_or_arguments() {
    let mut decoder = decoder();
    let added = |at| item("added", at, r#"{"type":"function_call","call_id":"c","name":"t"}"#);
    let error = (0..9999).find_map(|at| decoder.push(&added(at)).err());
    assert!(matches!(error, Some(DecodeError::TooLarge { max: 256, .. })), "{error:?}");
    let mut decoder = self::decoder();
    let added = |at| item("added", at, r#"{"type":"message"}"#);
    let error = (0..9999).find_map(|at| decoder.push(&added(at)).err());
    assert!(matches!(error, Some(DecodeError::TooLarge { max: 1024, .. })), "{error:?}");
    let mut decoder = self::decoder();
    decoder
        .push(&item("added", 0, r#"{"type":"function_call","call_id":"c","name":"t"}"#))
        .unwrap();
    let piece = delta("function_call_arguments", r#""output_index":0"#, &"x".repeat(1 << 20));
    let error = (0..17).find_map(|_| decoder.push(&piece).err());
    assert!(matches!(error, Some(DecodeError::TooLarge { .. })), "{error:?}");
}

// Finding llm 6: some servers send the output only at the end of the response.
#[test]
fn output_that_comes_only_at_the_end_is_read() {
    let mut decoder = Decoder::new(StateOwner::new("openai", "m"));
    let end = r#"{"type":"response.completed","response":{"usage":{"input_tokens":"3","output_tokens":2.0},"output":[
        {"type":"message","id":"m1","content":[{"type":"output_text","text":"hi"}]},
        {"type":"function_call","id":"f1","call_id":"c1","name":"read","arguments":{"p": 1}},
        {"type":"function_call","id":"f2","call_id":"c2","name":"","arguments":"{}"}]}}"#;
    let events = decoder.push(end).unwrap();
    let said = |event: &LlmEvent| matches!(event, LlmEvent::TextDelta { text, .. } if text == "hi");
    assert!(events.iter().any(said), "{events:?}");
    let read = LlmEvent::ToolCall(ToolCall::new("c1", "read", r#"{"p": 1}"#));
    // Finding scenarios F10: a call without a name is still a call.
    let unnamed = LlmEvent::ToolCall(ToolCall::new("c2", "unnamed", "{}"));
    assert!(events.contains(&read) && events.contains(&unnamed), "{events:?}");
    let usage = Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5, ..Usage::default() };
    let reason = FinishReason::ToolCalls;
    assert!(decoder.finish().unwrap().contains(&LlmEvent::Finish { reason, usage: Some(usage) }));
}
