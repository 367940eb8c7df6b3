//! Recorded exchanges with Bedrock: our encoder writes a body that it accepted, and our decoder reads its
//! answer under every split of the bytes.

mod common;

use common::{assert_any_cuts, body, decode, get_weather, load, names, try_decode, usage};
use llm_protocol::{
    DecodeError, FinishReason, LlmEvent, LlmRequest, Protocol, ToolCall, ToolChoice,
};

const BEDROCK: Protocol = Protocol::BedrockConverse;
const NOVA: &str = "us.amazon.nova-micro-v1:0";
const TEXT: &str = "bedrock-converse/streams-text";
const CALL: &str = "bedrock-converse/streams-a-tool-call";

fn request(system: &str, user: &str, max_tokens: u64) -> LlmRequest {
    let mut request = common::request(NOVA, system, user, max_tokens);
    request.generation.temperature = Some(0.0);
    request
}

fn answer(name: &str) -> Vec<u8> {
    load(name).remove(0).answer
}

fn end(reason: FinishReason, input: u64, output: u64) -> [LlmEvent; 2] {
    let usage = Some(usage(input, output));
    [LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }]
}

#[test]
fn every_recording_is_replayed() {
    assert_eq!(names(&["bedrock-converse"]), [CALL, TEXT]);
}

#[test]
fn our_bodies_are_what_bedrock_accepted() {
    let says = request("Reply with the single word 'Hello'.", "Say hello.", 16);
    assert_eq!(body(BEDROCK, &says), load(TEXT)[0].body);
    let user = "Call get_weather with city exactly Paris.";
    let mut calls = request("Call tools exactly as requested.", user, 80);
    calls.tools.push(get_weather());
    calls.tool_choice = ToolChoice::Tool("get_weather".into());
    assert_eq!(body(BEDROCK, &calls), load(CALL)[0].body);
}

#[test]
fn a_text_decodes_to_the_right_events() {
    let id = || "text-0".to_owned();
    let mut expected = vec![
        LlmEvent::TextStart { id: id() },
        LlmEvent::TextDelta { id: id(), text: "Hello".to_owned() },
        LlmEvent::TextEnd { id: id(), provider_metadata: None },
    ];
    expected.extend(end(FinishReason::Stop, 12, 2));
    assert_eq!(decode(BEDROCK, NOVA, [answer(TEXT).as_slice()]), expected);
}

#[test]
fn a_call_decodes_to_the_right_events() {
    let id = || "tooluse_6a1pPvnc99GLKO3KGkUA2N".to_owned();
    let arguments = r#"{"city":"Paris"}"#;
    let mut expected = vec![
        LlmEvent::ToolInputStart { id: id(), name: "get_weather".to_owned() },
        LlmEvent::ToolInputDelta { id: id(), text: arguments.to_owned() },
        LlmEvent::ToolInputEnd { id: id() },
        LlmEvent::ToolCall(ToolCall::new(id(), "get_weather", arguments)),
    ];
    expected.extend(end(FinishReason::ToolCalls, 419, 16));
    assert_eq!(decode(BEDROCK, NOVA, [answer(CALL).as_slice()]), expected);
}

#[test]
fn any_cuts_of_a_recording_give_the_same_events_or_are_found() {
    assert_any_cuts(BEDROCK, &[TEXT, CALL], "messageStop");
}

// Finding llm 9: a wrong checksum means damage in transit, so a retry may succeed.
#[test]
fn a_recording_whose_bytes_changed_on_the_way_is_damaged() {
    let mut broken = answer(TEXT);
    let at = broken.windows(5).position(|bytes| bytes == b"Hello").unwrap();
    broken[at] = b'J';
    let error = try_decode(BEDROCK, NOVA, [broken.as_slice()]).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { .. }), "{error}");
}
