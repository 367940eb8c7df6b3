use super::*;
use crate::error::ErrorReason;
use crate::message::ToolCall;
use LlmEvent::{
    ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta, TextEnd, TextStart, ToolInputDelta,
    ToolInputEnd, ToolInputStart,
};

fn fresh() -> Decoder {
    Decoder::new(StateOwner::new("openai", "m"))
}

fn s(text: &str) -> String {
    text.to_owned()
}

fn call(id: &str, name: &str, arguments: &str) -> LlmEvent {
    LlmEvent::ToolCall(ToolCall::new(id, name, arguments))
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
}

fn calls(deltas: &str) -> String {
    delta(&format!(r#"{{"content":null,"tool_calls":[{deltas}]}}"#))
}

fn end(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// Returns the calls of a successful answer with these frames.
fn calls_of(frames: &[String]) -> Vec<ToolCall> {
    let mut decoder = fresh();
    let mut events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    events.extend(decoder.push(&end("tool_calls")).unwrap());
    events.extend(decoder.finish().unwrap());
    let call = |event| if let LlmEvent::ToolCall(call) = event { Some(call) } else { None };
    events.into_iter().filter_map(call).collect()
}

#[test]
fn a_call_is_announced_when_the_next_begins_and_the_last_when_the_answer_ends() {
    let mut decoder = fresh();
    let mut push = |frame: &str| decoder.push(frame).unwrap();
    assert_eq!(
        push(&delta(r#"{"content":"ok"}"#)),
        [TextStart { id: s("text-0") }, TextDelta { id: s("text-0"), text: s("ok") }]
    );
    assert_eq!(
        push(&calls(
            r#"{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}"#
        )),
        [
            TextEnd { id: s("text-0"), provider_metadata: None },
            ToolInputStart { id: s("a"), name: s("read") }
        ]
    );
    assert_eq!(
        push(&calls(r#"{"index":0,"function":{"arguments":"{\"p\": 1.0}"}}"#)),
        [ToolInputDelta { id: s("a"), text: s(r#"{"p": 1.0}"#) }]
    );
    assert_eq!(
        push(&calls(r#"{"index":1,"id":"b","function":{"name":"glob","arguments":"{"}}"#)),
        [
            ToolInputEnd { id: s("a") },
            call("a", "read", r#"{"p": 1.0}"#),
            ToolInputStart { id: s("b"), name: s("glob") },
            ToolInputDelta { id: s("b"), text: s("{") },
        ]
    );
    // Broken JSON is for the tool to report; the stream is fine.
    assert_eq!(push(&end("tool_calls")), [ToolInputEnd { id: s("b") }, call("b", "glob", "{")]);
    assert_eq!(push(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#), []);
    assert_eq!(push("[DONE]"), []);
    let reason = FinishReason::ToolCalls;
    let usage =
        Some(Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5, ..Usage::default() });
    assert_eq!(
        decoder.finish().unwrap(),
        [LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }]
    );
}

#[test]
fn calls_are_told_apart_however_a_server_numbers_them() {
    let two = [ToolCall::new("a", "t", "{}"), ToolCall::new("b", "t", "[1]")];
    let whole = |extra: &str, id: &str, arguments: &str| {
        format!(r#"{{{extra}"id":"{id}","function":{{"name":"t","arguments":"{arguments}"}}}}"#)
    };
    let a = |extra| whole(extra, "a", "{}");
    let b = |extra| whole(extra, "b", "[1]");
    // both in one frame; in two; without numbers; all with the number 0
    assert_eq!(calls_of(&[calls(&[a(r#""index":0,"#), b(r#""index":1,"#)].join(","))]), two);
    assert_eq!(calls_of(&[calls(&a(r#""index":0,"#)), calls(&b(r#""index":1,"#))]), two);
    assert_eq!(calls_of(&[calls(&a("")), calls(&b(""))]), two);
    assert_eq!(calls_of(&[calls(&a(r#""index":0,"#)), calls(&b(r#""index":0,"#))]), two);
    // pieces without numbers; with everything repeated; with empty strings for what is absent
    let piece = |extra: &str, text: &str| {
        calls(&format!(r#"{{{extra}"function":{{"arguments":"{text}"}}}}"#))
    };
    assert_eq!(calls_of(&[calls(&a("")), calls(&whole("", "b", "[")), piece("", "1]")]), two);
    let repeated = |text| calls(&whole(r#""index":1,"#, "b", text));
    assert_eq!(calls_of(&[calls(&a(r#""index":0,"#)), repeated("["), repeated("1]")]), two);
    let empty = piece(r#""index":1,"id":"","#, "1]");
    assert_eq!(calls_of(&[calls(&a(r#""index":0,"#)), repeated("["), empty]), two);
    // interleaved: the first is not complete when the second begins
    let first = whole(r#""index":0,"#, "a", "{");
    let mixed =
        [calls(&first), repeated("["), piece(r#""index":0,"#, "}"), piece(r#""index":1,"#, "1]")];
    assert_eq!(calls_of(&mixed), two);
}

#[test]
fn a_call_without_an_id_gets_one_from_its_place() {
    let frame = calls(
        r#"{"function":{"name":"t","arguments":"{}"}},{"function":{"name":"u","arguments":""}}"#,
    );
    assert_eq!(
        calls_of(&[frame]),
        [ToolCall::new("call_0", "t", "{}"), ToolCall::new("call_1", "u", "")]
    );
}

#[test]
fn arguments_after_their_call_was_announced_are_an_error() {
    let mut decoder = fresh();
    let whole = r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"t"}}"#;
    decoder.push(&calls(whole)).unwrap();
    let late = decoder.push(&calls(r#"{"index":0,"function":{"arguments":"1"}}"#));
    assert_eq!(late.unwrap_err().reason(), ErrorReason::InvalidOutput { incomplete_stream: false });
}

#[test]
fn reasoning_and_text_are_parts_that_follow_each_other() {
    let mut decoder = fresh();
    let frames = [
        delta(r#"{"role":"assistant","content":null,"reasoning_content":"a"}"#),
        delta(r#"{"content":"","reasoning":"b"}"#),
        delta(r#"{"reasoning":"c","reasoning_content":"c"}"#),
        delta(r#"{"content":"d","reasoning_content":null}"#),
        end("length"),
    ];
    let events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    let id = || s("reasoning-0");
    assert_eq!(
        events,
        [
            ReasoningStart { id: id() },
            ReasoningDelta { id: id(), text: s("a") },
            ReasoningDelta { id: id(), text: s("b") },
            ReasoningDelta { id: id(), text: s("c") },
            ReasoningEnd { id: id(), provider_metadata: None },
            TextStart { id: s("text-1") },
            TextDelta { id: s("text-1"), text: s("d") },
            TextEnd { id: s("text-1"), provider_metadata: None },
        ]
    );
}

#[test]
fn an_answer_without_an_end_is_truncated() {
    let mut decoder = fresh();
    decoder.push(&delta(r#"{"content":"half"}"#)).unwrap();
    assert_eq!(decoder.finish().unwrap_err(), DecodeError::Truncated);
    assert_eq!(fresh().finish().unwrap_err(), DecodeError::Truncated);
}

fn finish_of(frames: &[String]) -> Vec<LlmEvent> {
    let mut decoder = fresh();
    for frame in frames {
        decoder.push(frame).unwrap();
    }
    decoder.finish().unwrap()
}

fn ended(reason: FinishReason) -> [LlmEvent; 2] {
    [LlmEvent::StepFinish { reason, usage: None }, LlmEvent::Finish { reason, usage: None }]
}

#[test]
fn reasons_are_mapped_and_corrected() {
    assert_eq!(finish_of(&[end("stop")]), ended(FinishReason::Stop));
    assert_eq!(finish_of(&[end("content_filter")]), ended(FinishReason::ContentFilter));
    assert_eq!(finish_of(&[end("odd")]), ended(FinishReason::Unknown));
    assert_eq!(finish_of(&[s("[DONE]")]), ended(FinishReason::Unknown));
    let forced = calls(r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}"#);
    assert_eq!(finish_of(&[forced, end("stop")]), ended(FinishReason::ToolCalls));
    let refusal = delta(r#"{"refusal":"I can't."}"#);
    assert_eq!(finish_of(&[refusal, end("stop")]), ended(FinishReason::ContentFilter));
}

#[test]
fn frames_that_say_nothing_are_ignored() {
    let mut decoder = fresh();
    for frame in [
        "",
        "{}",
        "null",
        "\"ping\"",
        "[1]",
        r#"{"type":"ping","choices":null}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
        r#"{"choices":[{"delta":null}],"error":null}"#,
    ] {
        assert_eq!(decoder.push(frame).unwrap(), [], "{frame}");
    }
}

#[test]
fn what_is_not_this_protocol_is_malformed() {
    for frame in ["{", "hello", r#"{"choices":[{"delta":{"content":{}}}]}"#] {
        let error = fresh().push(frame).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed { .. }), "{frame}: {error}");
    }
}

#[test]
fn an_error_in_the_stream_is_typed() {
    let frame = r#"{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":429,"message":"slow down"}}"#;
    let DecodeError::Provider(error) = fresh().push(frame).unwrap_err() else {
        panic!("not the provider's")
    };
    assert_eq!(error.reason, ErrorReason::RateLimit { retry_after_ms: None });
    assert_eq!(error.message, "slow down");
}

#[test]
fn a_stream_cannot_make_us_keep_endless_calls() {
    let mut decoder = fresh();
    let error = (0..1000).find_map(|at| {
        let frame = calls(&format!(r#"{{"index":{at},"id":"c{at}","function":{{"name":"t"}}}}"#));
        decoder.push(&frame).err()
    });
    assert!(matches!(error, Some(DecodeError::TooLarge { max: 256, .. })), "{error:?}");
}

#[test]
fn a_usage_of_zeros_does_not_replace_a_real_one() {
    let usage = |count: u64| {
        format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{count},"completion_tokens":{count}}}}}"#
        )
    };
    let frames = [usage(0), usage(2), usage(3), end("stop"), usage(0)];
    let counted = Usage { input_tokens: 3, output_tokens: 3, total_tokens: 6, ..Usage::default() };
    let (reason, usage) = (FinishReason::Stop, Some(counted));
    assert_eq!(finish_of(&frames)[1], LlmEvent::Finish { reason, usage });
}

#[test]
fn the_list_of_reasoning_is_kept_with_the_reasoning_and_what_comes_later_in_a_part_of_its_own() {
    let mut decoder = Decoder::new(StateOwner::new("openrouter", "m"));
    let frames = [
        delta(
            r#"{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}"#,
        ),
        delta(
            r#"{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","index":0}]}"#,
        ),
        delta(r#"{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}]}"#),
        delta(r#"{"content":"hi","reasoning_details":[]}"#),
        delta(r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#),
        end("stop"),
    ];
    let events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    let state = |list: &str| {
        let text = format!(r#"{{"openrouter":{{"model":"m","details":{list}}}}}"#);
        Some(RawJson::parse(text).unwrap())
    };
    let text = r#"[{"index":0,"signature":"s","text":"ab","type":"reasoning.text"}]"#;
    let sealed = r#"[{"data":"x","type":"reasoning.encrypted"}]"#;
    assert_eq!(
        events,
        [
            ReasoningStart { id: s("reasoning-0") },
            ReasoningDelta { id: s("reasoning-0"), text: s("a") },
            ReasoningDelta { id: s("reasoning-0"), text: s("b") },
            ReasoningEnd { id: s("reasoning-0"), provider_metadata: state(text) },
            TextStart { id: s("text-1") },
            TextDelta { id: s("text-1"), text: s("hi") },
            TextEnd { id: s("text-1"), provider_metadata: None },
            ReasoningStart { id: s("reasoning-2") },
            ReasoningEnd { id: s("reasoning-2"), provider_metadata: state(sealed) },
        ]
    );
}

#[test]
fn content_may_be_a_list_of_thoughts_and_texts() {
    let mut decoder = fresh();
    let thinking = r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#;
    let events = decoder.push(&delta(thinking)).unwrap();
    let id = || s("reasoning-0");
    assert_eq!(events, [ReasoningStart { id: id() }, ReasoningDelta { id: id(), text: s("hm") }]);
    let text =
        r#"{"content":[{"type":"reference","reference_ids":[1]},{"type":"text","text":"So"}]}"#;
    let id = || s("text-1");
    assert_eq!(
        decoder.push(&delta(text)).unwrap(),
        [
            ReasoningEnd { id: s("reasoning-0"), provider_metadata: None },
            TextStart { id: id() },
            TextDelta { id: id(), text: s("So") }
        ]
    );
    assert_eq!(
        decoder.push(&delta(r#"{"content":"."}"#)).unwrap(),
        [TextDelta { id: id(), text: s(".") }]
    );
    assert!(decoder.push(&delta(r#"{"content":{}}"#)).is_err());
}

#[test]
fn ids_that_a_server_gives_twice_are_told_apart() {
    let whole = |index: u64, id: &str, path: &str| {
        let arguments = serde_json::Value::from(format!("{{\"p\":\"{path}\"}}"));
        calls(&format!(
            r#"{{"index":{index},"id":"{id}","function":{{"name":"t","arguments":{arguments}}}}}"#
        ))
    };
    let ids = |frames: &[String]| -> Vec<String> {
        calls_of(frames).into_iter().map(|call| call.id).collect()
    };
    assert_eq!(
        ids(&[whole(0, "x", "a"), whole(1, "x", "b"), whole(2, "", "c")]),
        ["x", "x_2", "call_2"]
    );
    // One call in two pieces that both repeat its id and name is still one call.
    let piece = |id: &str, text: &str| {
        calls(&format!(
            r#"{{"index":1,"id":"{id}","function":{{"name":"t","arguments":"{text}"}}}}"#
        ))
    };
    assert_eq!(ids(&[whole(0, "x", "a"), piece("x", "{"), piece("x", "} ")]), ["x", "x_2"]);
}

#[test]
fn white_space_after_a_whole_call_is_nothing() {
    let begin = |index: u64| {
        calls(&format!(
            r#"{{"index":{index},"id":"c{index}","function":{{"name":"t","arguments":"{{}}"}}}}"#
        ))
    };
    let space = calls(r#"{"index":0,"function":{"arguments":" \n"}}"#);
    assert_eq!(calls_of(&[begin(0), begin(1), space]).len(), 2);
}

#[test]
fn errors_are_found_wherever_a_server_puts_them() {
    let reason = |frame: &str| {
        let Err(DecodeError::Provider(error)) = fresh().push(frame) else { panic!("{frame}") };
        error.reason
    };
    let choice = r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":429,"message":"slow"}}]}"#;
    assert_eq!(reason(choice), ErrorReason::RateLimit { retry_after_ms: None });
    let flat = r#"{"object":"error","message":"maximum context length is 10","type":"BadRequestError","code":400}"#;
    assert_eq!(reason(flat), ErrorReason::ContextOverflow);
    let groq = r#"{"error":{"message":"bad call","type":"invalid_request_error","code":"tool_use_failed","status_code":400}}"#;
    assert_eq!(reason(groq), ErrorReason::InvalidRequest);
}

// The public report hermes-agent#65631: an error beside empty choices was ignored, and the answer was asked for again.
#[test]
fn an_error_without_a_member_of_its_own_is_found() {
    for (frame, expected, words) in [
        (
            r#"{"id":"","choices":null,"error_type":"BadRequestError","error_message":"maximum context length is 10"}"#,
            ErrorReason::ContextOverflow,
            "maximum context length is 10",
        ),
        (
            r#"{"choices":[],"error_type":"rate_limit_error","error_message":"slow down","error_code":429}"#,
            ErrorReason::RateLimit { retry_after_ms: None },
            "slow down",
        ),
        (r#"{"code":401,"message":"no such key"}"#, ErrorReason::Authentication, "no such key"),
        (r#"{"error_code":110,"error_msg":"odd"}"#, ErrorReason::Unknown, "odd"),
        (
            r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
            ErrorReason::Quota,
            "insufficient balance",
        ),
    ] {
        let Err(DecodeError::Provider(error)) = fresh().push(frame) else { panic!("{frame}") };
        assert_eq!((error.reason, error.message.as_str()), (expected, words), "{frame}");
    }
    for frame in [
        r#"{"code":200,"message":"fine","choices":[]}"#,
        r#"{"error":{},"choices":[]}"#,
        r#"{"error_message":"","choices":[]}"#,
        r#"{"base_resp":{"status_code":0,"status_msg":""}}"#,
        r#"{"choices":[{"delta":{}}],"error_message":"a model's own"}"#,
    ] {
        assert_eq!(fresh().push(frame).unwrap(), [], "{frame}");
    }
}

// Finding scenarios F10: a call without a name is the model's mistake, and its result says so.
#[test]
fn a_call_without_a_name_does_not_end_the_answer() {
    let nameless = calls(r#"{"index":0,"id":"a","function":{"name":"","arguments":"{}"}}"#);
    assert_eq!(calls_of(&[nameless]), [ToolCall::new("a", "unnamed", "{}")]);
    // The name may come after the first arguments.
    let mut decoder = fresh();
    let mut push = |frame: &str| decoder.push(&calls(frame)).unwrap();
    assert_eq!(push(r#"{"index":0,"id":"a","function":{"arguments":"{\"p\""}}"#), []);
    assert_eq!(
        push(r#"{"index":0,"function":{"name":"read","arguments":":1}"}}"#),
        [
            ToolInputStart { id: s("a"), name: s("read") },
            ToolInputDelta { id: s("a"), text: s("{\"p\"") },
            ToolInputDelta { id: s("a"), text: s(":1}") },
        ]
    );
}

// Finding llm 6: whole answers in `message`, and the one call of servers of 2023.
#[test]
fn a_message_in_place_of_a_delta_is_read() {
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi","function_call":{"name":"read","arguments":"{\"p\":1}"}},"finish_reason":"function_call"}]}"#;
    let mut decoder = fresh();
    let events = decoder.push(whole).unwrap();
    assert!(events.contains(&TextDelta { id: s("text-0"), text: s("hi") }), "{events:?}");
    assert!(events.contains(&call("call_0", "read", r#"{"p":1}"#)), "{events:?}");
    assert!(matches!(
        decoder.finish().unwrap()[..],
        [_, LlmEvent::Finish { reason: FinishReason::ToolCalls, .. }]
    ));
    // A last frame that repeats the whole message adds nothing.
    let mut decoder = fresh();
    decoder.push(&delta(r#"{"content":"hi"}"#)).unwrap();
    let again = r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    assert_eq!(
        decoder.push(again).unwrap(),
        [TextEnd { id: s("text-0"), provider_metadata: None }]
    );
}

// Finding llm 10: odd numbers, arguments as an object and duplicate members do not fail a whole answer.
#[test]
fn odd_values_do_not_fail_an_answer() {
    let object = calls(r#"{"index":0,"id":"a","function":{"name":"read","arguments":{"p": 1.0}}}"#);
    assert_eq!(calls_of(&[object]), [ToolCall::new("a", "read", r#"{"p": 1.0}"#)]);
    let mut decoder = fresh();
    let twice = r#"{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}"#;
    assert!(decoder.push(twice).unwrap().contains(&TextDelta { id: s("text-0"), text: s("b") }));
    decoder.push(&end("stop")).unwrap();
    let odd =
        r#"{"choices":[],"usage":{"prompt_tokens":5.0,"completion_tokens":"7","total_tokens":-1}}"#;
    decoder.push(odd).unwrap();
    let usage = Usage { input_tokens: 5, output_tokens: 7, total_tokens: 12, ..Usage::default() };
    assert!(
        decoder
            .finish()
            .unwrap()
            .contains(&LlmEvent::Finish { reason: FinishReason::Stop, usage: Some(usage) })
    );
}

// Finding: report 30-a4 (cloudflare/ai#651).
#[test]
fn a_number_or_a_word_of_json_is_text() {
    let mut decoder = fresh();
    let frames = [
        delta(r#"{"reasoning_content":6}"#),
        delta(r#"{"reasoning":"."}"#),
        delta(r#"{"content":"port "}"#),
        delta(r#"{"content":6}"#),
        delta(r#"{"content":-1}"#),
        delta(r#"{"content":0.5}"#),
        delta(r#"{"content":true}"#),
        end("stop"),
    ];
    let (mut thought, mut said) = (String::new(), String::new());
    for event in frames.iter().flat_map(|frame| decoder.push(frame).unwrap()) {
        if let TextDelta { text, .. } = event {
            said += &text;
        } else if let ReasoningDelta { text, .. } = event {
            thought += &text;
        }
    }
    assert_eq!((thought.as_str(), said.as_str()), ("6.", "port 6-10.5true"));
}

// Finding: report 30-a5 (earendil-works/pi#2017).
#[test]
fn usage_beside_the_usual_place_is_counted() {
    let counted = |frames: &[String]| {
        let ended = finish_of(frames);
        let Some(LlmEvent::Finish { usage: Some(usage), .. }) = ended.last() else {
            panic!("{ended:?}");
        };
        (usage.input_tokens, usage.output_tokens)
    };
    let moonshot = |beside: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{}},"finish_reason":"stop","usage":{{"prompt_tokens":100,"completion_tokens":20}}}}]{beside}}}"#
        )
    };
    let groq = r#"{"x_groq":{"id":"r","usage":{"prompt_tokens":7,"completion_tokens":3}},"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let usual = r#","usage":{"prompt_tokens":1,"completion_tokens":2}"#;
    assert_eq!(counted(&[moonshot("")]), (100, 20));
    assert_eq!(counted(&[moonshot(r#","usage":null,"x_groq":"odd""#)]), (100, 20));
    assert_eq!(counted(&[moonshot(usual)]), (1, 2));
    assert_eq!(counted(&[s(groq)]), (7, 3));
}

// Finding: report 30-a16 (anvia-hq/anvia#262).
#[test]
fn the_index_of_a_call_may_be_text_or_have_a_fraction() {
    let begin = |index: &str, id: &str| {
        format!(
            r#"{{"choices":[{{"index":"0","delta":{{"tool_calls":[{{"index":{index},"id":"{id}","function":{{"name":"read","arguments":"{{"}}}}]}}}}]}}"#
        )
    };
    let more =
        |index: &str| calls(&format!(r#"{{"index":{index},"function":{{"arguments":"}}"}}}}"#));
    let two = [ToolCall::new("a", "read", "{}"), ToolCall::new("b", "read", "{}")];
    for (first, second) in [("\"0\"", "\"1\""), ("0.0", "1.0"), ("0", "\"1.0\"")] {
        let frames = [begin(first, "a"), begin(second, "b"), more(first), more(second)];
        assert_eq!(calls_of(&frames), two, "{first}");
    }
    assert_eq!(calls_of(&[begin("[]", "a"), more("null")]), two[..1]);
}

// Finding llm 7: these reasons were read as a complete answer.
#[test]
fn reasons_of_other_owners_are_known() {
    assert_eq!(FinishReason::from_word("model_length"), Some(FinishReason::Length));
    let failed = FinishReason::from_word("insufficient_system_resource");
    assert_eq!(failed, Some(FinishReason::Error));
}

// Finding next report 24: the thoughts of LM Studio and Ollama were told as the answer, and went back to the model.
#[test]
fn thoughts_between_tags_become_reasoning() {
    let mut decoder = fresh();
    let frames = [
        delta(r#"{"content":"<think>secret"}"#),
        delta(r#"{"content":" plan</th"}"#),
        delta(r#"{"content":"ink>\n\nHello"}"#),
    ];
    let events: Vec<_> = frames.iter().flat_map(|frame| decoder.push(frame).unwrap()).collect();
    let (thought, text) = (s("reasoning-0"), s("text-1"));
    assert_eq!(
        events,
        [
            ReasoningStart { id: thought.clone() },
            ReasoningDelta { id: thought.clone(), text: s("secret") },
            ReasoningDelta { id: thought.clone(), text: s(" plan") },
            ReasoningEnd { id: thought, provider_metadata: None },
            TextStart { id: text.clone() },
            TextDelta { id: text, text: s("Hello") },
        ]
    );
}

// Finding: report 30-c27 (jakobdylanc/llmcord#84).
#[test]
fn a_reason_may_be_spelled_in_camel_case_beside_a_null() {
    let camel = |reason: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{}},"finish_reason":null,"finishReason":"{reason}"}}]}}"#
        )
    };
    for (end, reason) in [
        (camel("stop"), FinishReason::Stop),
        (camel("length"), FinishReason::Length),
        (
            s(r#"{"choices":[{"delta":{},"finish_reason":"stop","finishReason":"length"}]}"#),
            FinishReason::Stop,
        ),
    ] {
        let mut decoder = fresh();
        decoder.push(&delta(r#"{"content":"hi"}"#)).unwrap();
        decoder.push(&end).unwrap();
        let events = decoder.finish().unwrap();
        assert_eq!(events.last(), Some(&LlmEvent::Finish { reason, usage: None }), "{end}");
    }
}
