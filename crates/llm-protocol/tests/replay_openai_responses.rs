//! Recorded exchanges of the OpenAI responses protocol; see `common`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{assert_any_cuts, body, decode, load, names, usage};
use llm_protocol::{
    FinishReason, LlmEvent, LlmRequest, Protocol, RawJson, ToolCall, ToolChoice, Usage,
};
use proptest::prelude::*;
use serde_json::json;

const RESPONSES: Protocol = Protocol::OpenAiResponses;
const MODEL: &str = "gpt-5.5";

struct Recording {
    name: &'static str,
    request: LlmRequest,
    events: Vec<LlmEvent>,
    reason: FinishReason,
    usage: Usage,
}

fn state(members: &str) -> Option<RawJson> {
    Some(RawJson::parse(format!(r#"{{"openai":{{"model":"{MODEL}",{members}}}}}"#)).unwrap())
}

/// Returns the events of empty reasoning and then a text.
fn hello(reasoning: &str) -> Vec<LlmEvent> {
    let (thought, text) = (|| "reasoning-0".to_owned(), || "text-1".to_owned());
    let phase = state(r#""phase":"final_answer""#);
    vec![
        LlmEvent::ReasoningStart { id: thought() },
        LlmEvent::ReasoningEnd { id: thought(), provider_metadata: state(reasoning) },
        LlmEvent::TextStart { id: text() },
        LlmEvent::TextDelta { id: text(), text: "Hello".into() },
        LlmEvent::TextDelta { id: text(), text: "!".into() },
        LlmEvent::TextEnd { id: text(), provider_metadata: phase },
    ]
}

fn text() -> Recording {
    let user = "Reply with exactly: Hello!";
    Recording {
        name: "openai-responses/gpt-5-5-streams-text",
        request: common::request(MODEL, "You are concise.", user, 80),
        events: hello(r#""itemId":"rs_0ea948e2f42449980069fa8aa1d588819cbbcb9b056624d27c""#),
        reason: FinishReason::Stop,
        usage: Usage { reasoning_tokens: 10, ..usage(20, 18) },
    }
}

fn call() -> Recording {
    let user = "Call get_weather with city exactly Paris.";
    let mut request = common::request(MODEL, "Call tools exactly as requested.", user, 80);
    request.tools.push(common::get_weather());
    request.tool_choice = ToolChoice::Tool("get_weather".into());
    let id = || "call_ZAbAwsIFeJSyPqz3HaHRXBSn".to_owned();
    let name = "get_weather";
    Recording {
        name: "openai-responses/gpt-5-5-streams-tool-call",
        request,
        events: vec![
            LlmEvent::ToolInputStart { id: id(), name: name.into() },
            LlmEvent::ToolInputEnd { id: id() },
            LlmEvent::ToolCall(ToolCall::new(id(), name, r#"{"city":"Paris"}"#)),
        ],
        reason: FinishReason::ToolCalls,
        usage: usage(61, 18),
    }
}

fn reasoning() -> Recording {
    let name = "openai-responses/openai-responses-gpt-5-5-reasoning";
    let system = "Show concise reasoning when the provider supports visible reasoning summaries.";
    let user = "Think briefly, then reply exactly with: Hello!";
    let mut request = common::request(MODEL, system, user, 120);
    let options = json!({"store": false, "include": ["reasoning.encrypted_content"],
        "reasoningEffort": "low", "reasoningSummary": "auto", "textVerbosity": "low"});
    request.provider_options.insert("openai".into(), options);
    // The content of the completed item, taken from the raw bytes.
    let answer = String::from_utf8(load(name).remove(0).answer).unwrap();
    let done = answer.split("\n\n").find(|event| event.contains("output_item.done")).unwrap();
    let content = done.split(r#""encrypted_content":""#).nth(1).unwrap();
    let content = content.split('"').next().unwrap();
    let item = "rs_05f7e55dc1d2d743016a1235e65eac8193ba914b956e3a49e1";
    Recording {
        name,
        request,
        events: hello(&format!(r#""itemId":"{item}","encryptedContent":"{content}""#)),
        reason: FinishReason::Stop,
        usage: Usage { reasoning_tokens: 13, ..usage(31, 21) },
    }
}

fn recordings() -> [Recording; 3] {
    [text(), call(), reasoning()]
}

#[test]
fn every_recording_is_replayed() {
    let named: Vec<String> = recordings().iter().map(|r| r.name.to_owned()).collect();
    assert_eq!(named, names(&["openai-responses"]));
}

#[test]
fn our_bodies_are_what_the_provider_accepted() {
    for recording in recordings() {
        let [exchange] = load(recording.name).try_into().ok().unwrap();
        assert_eq!(body(RESPONSES, &recording.request), exchange.body, "{}", recording.name);
    }
}

#[test]
fn its_answers_decode_to_the_right_events() {
    for recording in recordings() {
        let answer = load(recording.name).remove(0).answer;
        let (events, pieces) =
            common::without_pieces(decode(RESPONSES, MODEL, [answer.as_slice()]));
        let mut expected = recording.events;
        if let Some(LlmEvent::ToolCall(call)) = expected.last() {
            assert_eq!(pieces, call.arguments, "{}", recording.name);
        }
        let (reason, usage) = (recording.reason, Some(recording.usage));
        expected
            .extend([LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }]);
        assert_eq!(events, expected, "{}", recording.name);
    }
}

#[test]
fn any_cuts_of_a_recording_give_the_same_events_or_are_found() {
    assert_any_cuts(
        RESPONSES,
        &recordings().each_ref().map(|recording| recording.name),
        r#""type":"response.completed""#,
    );
}

proptest! {
    /// Any frames give events or an error, and parts never overlap.
    #[test]
    fn no_frames_make_the_decoder_panic_or_its_parts_overlap(
        frames in prop::collection::vec(frame(), 0..16),
    ) {
        let mut decoder = RESPONSES.decoder();
        let mut events = Vec::new();
        for frame in &frames {
            match decoder.push(frame) {
                Ok(more) => events.extend(more),
                Err(_) => return Ok(()),
            }
        }
        if decoder.is_done() {
            events.extend(decoder.finish().unwrap());
            prop_assert_eq!(common::disorder(&events), None, "{:?}", frames);
        } else {
            prop_assert!(decoder.finish().is_err());
        }
    }
}

/// Makes a frame of the protocol with arbitrary members, or any text.
fn frame() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec![
        "output_text.delta",
        "refusal.delta",
        "reasoning_summary_text.delta",
        "reasoning_text.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.added",
        "output_item.done",
        "completed",
        "incomplete",
    ]);
    let item = prop::sample::select(vec![
        "message",
        "reasoning",
        "function_call",
        "web_search_call",
        "local_shell_call",
    ]);
    let known = (kind, item, 0u8..3, 0u8..3, "[ab]?", 0u8..2).prop_map(
        |(kind, item, index, id, text, piece)| {
            format!(
                r#"{{"type":"response.{kind}","output_index":{index},"item_id":"i{id}","delta":"{text}","arguments":"{text}","content_index":{piece},"summary_index":{piece},"item":{{"type":"{item}","id":"i{id}","call_id":"c{id}{index}","name":"t","arguments":"{text}","summary":[{{"text":"{text}"}}],"content":[{{"text":"{text}"}}]}},"response":{{}}}}"#
            )
        },
    );
    prop_oneof![9 => known, 1 => "[\\[\\]{}:,\"a-z0-9]{0,40}"]
}
