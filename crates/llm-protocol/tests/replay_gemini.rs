//! Recorded exchanges with Google: our encoder writes a body that it accepted, and our decoder reads its
//! answer under every split of the bytes.

mod common;

use common::{assert_any_cuts, body, decode, load, names};
use llm_protocol::{
    FinishReason, LlmEvent, LlmRequest, Message, Part, Protocol, ToolCall, ToolChoice, ToolResult,
    Usage,
};
use proptest::prelude::*;
use serde_json::json;

const GEMINI: Protocol = Protocol::Gemini;
const FLASH: &str = "gemini-2.5-flash";
const TEXT: &str = "gemini/streams-text";
const CALL: &str = "gemini/streams-tool-call";

fn request(system: &str, user: &str) -> LlmRequest {
    let mut request = common::request(FLASH, system, user, 80);
    request.generation.temperature = Some(0.0);
    request
}

fn calls() -> LlmRequest {
    let user = "Call get_weather with city exactly Paris.";
    let mut request = request("Call tools exactly as requested.", user);
    request.tools.push(common::get_weather());
    request.tool_choice = ToolChoice::Tool("get_weather".into());
    request
}

fn recordings() -> [(&'static str, LlmRequest); 2] {
    [(TEXT, request("You are concise.", "Reply with exactly: Hello!")), (CALL, calls())]
}

fn answer(name: &str) -> Vec<u8> {
    load(name).remove(0).answer
}

fn usage(input: u64, output: u64, reasoning: u64) -> Option<Usage> {
    Some(Usage {
        input_tokens: input,
        output_tokens: output,
        reasoning_tokens: reasoning,
        total_tokens: input + output,
        ..Usage::default()
    })
}

#[test]
fn every_recording_is_replayed() {
    assert_eq!(recordings().map(|(name, _)| name.to_owned()).to_vec(), names(&["gemini"]));
}

#[test]
fn our_bodies_are_what_google_accepted() {
    for (name, request) in recordings() {
        assert_eq!(body(GEMINI, &request), load(name)[0].body, "{name}");
    }
}

#[test]
fn their_answers_decode_to_the_right_events() {
    let (reason, used) = (FinishReason::Stop, usage(11, 18, 16));
    let id = || "text-0".to_owned();
    assert_eq!(
        decode(GEMINI, FLASH, [answer(TEXT).as_slice()]),
        [
            LlmEvent::TextStart { id: id() },
            LlmEvent::TextDelta { id: id(), text: "Hello!".into() },
            LlmEvent::TextEnd { id: id(), provider_metadata: None },
            LlmEvent::StepFinish { reason, usage: used },
            LlmEvent::Finish { reason, usage: used },
        ]
    );
    let events = decode(GEMINI, FLASH, [answer(CALL).as_slice()]);
    let LlmEvent::ToolCall(call) = &events[3] else { panic!("{events:?}") };
    let state = call.provider_metadata.as_ref().unwrap().get();
    assert!(state.starts_with(r#"{"google":{"model":"gemini-2.5-flash","thoughtSignature":"CiQB"#));
    let arguments = r#"{"city": "Paris"}"#;
    let expected = ToolCall {
        provider_metadata: call.provider_metadata.clone(),
        ..ToolCall::new("call_0", "get_weather", arguments)
    };
    let (reason, used) = (FinishReason::ToolCalls, usage(55, 60, 45));
    let id = || "call_0".to_owned();
    assert_eq!(
        events,
        [
            LlmEvent::ToolInputStart { id: id(), name: "get_weather".into() },
            LlmEvent::ToolInputDelta { id: id(), text: arguments.into() },
            LlmEvent::ToolInputEnd { id: id() },
            LlmEvent::ToolCall(expected),
            LlmEvent::StepFinish { reason, usage: used },
            LlmEvent::Finish { reason, usage: used },
        ]
    );
}

#[test]
fn the_recorded_call_goes_back_with_its_exact_signature() {
    let exchange = load(CALL).remove(0);
    let sent: serde_json::Value = {
        let text = String::from_utf8(exchange.answer.clone()).unwrap();
        serde_json::from_str(text.trim().strip_prefix("data: ").unwrap()).unwrap()
    };
    let events = decode(GEMINI, FLASH, [exchange.answer.as_slice()]);
    let LlmEvent::ToolCall(call) = &events[3] else { panic!("{events:?}") };
    let mut request = calls();
    request.messages.push(Message::assistant(vec![Part::ToolCall(call.clone())]));
    request.messages.push(Message::tool(vec![ToolResult::text("call_0", "get_weather", "22")]));
    let contents = body(GEMINI, &request)["contents"].take();
    assert_eq!(contents[1], sent["candidates"][0]["content"]);
    assert_eq!(
        contents[2],
        json!({"role": "user", "parts": [{"functionResponse": {
            "name": "get_weather", "response": {"name": "get_weather", "content": "22"}
        }}]})
    );
}

#[test]
fn any_cuts_of_a_recording_give_the_same_events_or_are_found() {
    assert_any_cuts(GEMINI, &[TEXT, CALL], "finishReason");
}

proptest! {
    /// Any frames give events or an error.
    #[test]
    fn no_frame_makes_the_decoder_panic(frames in prop::collection::vec(frame(), 0..16)) {
        let mut decoder = GEMINI.decoder();
        for frame in &frames {
            if decoder.push(frame).is_err() { return Ok(()); }
        }
        let ended = frames.iter().any(|frame| frame.contains("STOP"));
        prop_assert_eq!(decoder.finish().is_ok(), ended);
    }
}

fn frame() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        r#"{"text":"a"}"#,
        r#"{"text":"b","thought":true}"#,
        r#"{"text":"","thoughtSignature":"s"}"#,
        r#"{"text":"c","thoughtSignature":"s"}"#,
        r#"{"functionCall":{"name":"t","args":[]},"thoughtSignature":7}"#,
        r#"{"functionCall":{"id":"a","name":"t"}}"#,
        r#"{"executableCode":{"code":"1"}}"#,
        r#"{"codeExecutionResult":"x"}"#,
        "{}",
    ]);
    let parts = prop::collection::vec(parts, 0..4);
    prop_oneof![
        "[\\[\\]{}:,\"a-z0-9]{0,40}",
        parts.prop_map(|parts| format!(
            r#"{{"candidates":[{{"content":{{"parts":[{}]}}}}]}}"#,
            parts.join(",")
        )),
        Just(r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{}}"#.to_owned()),
    ]
}
