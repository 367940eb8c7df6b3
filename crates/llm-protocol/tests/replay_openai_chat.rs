//! Recorded exchanges with real providers: our encoder writes a body that they accepted, and our decoder
//! reads their answer under every split of the bytes.

mod common;

use common::{assert_any_cuts, body, decode, load, names, usage};
use llm_protocol::{
    FinishReason, LlmEvent, LlmRequest, Message, Part, Protocol, ToolCall, ToolChoice, ToolResult,
    Usage,
};
use proptest::prelude::*;

const CHAT: Protocol = Protocol::OpenAiChat;

struct Recording {
    name: &'static str,
    request: LlmRequest,
    text: &'static [&'static str],
    call: Option<ToolCall>,
    reason: FinishReason,
    usage: Usage,
}

fn request(model: &str, system: &str, user: &str, max_tokens: u64) -> LlmRequest {
    let mut request = common::request(model, system, user, max_tokens);
    request.generation.temperature = Some(0.0);
    request
}

fn says(
    name: &'static str,
    model: &str,
    user: &str,
    words: &'static [&'static str],
    cost: (u64, u64),
) -> Recording {
    Recording {
        name,
        request: request(model, "You are concise.", user, 20),
        text: words,
        call: None,
        reason: FinishReason::Stop,
        usage: usage(cost.0, cost.1),
    }
}

fn calls(name: &'static str, model: &str, id: &str, cost: (u64, u64)) -> Recording {
    let user = "Call get_weather with city exactly Paris.";
    let mut request = request(model, "Call tools exactly as requested.", user, 80);
    request.tools.push(common::get_weather());
    request.tool_choice = ToolChoice::Tool("get_weather".into());
    Recording {
        name,
        request,
        text: &[],
        call: Some(ToolCall::new(id, "get_weather", r#"{"city":"Paris"}"#)),
        reason: FinishReason::ToolCalls,
        usage: usage(cost.0, cost.1),
    }
}

fn continues() -> Recording {
    let user = "What is the weather in Paris?";
    let mut request =
        request("gpt-4o-mini", "Answer using only the provided tool result.", user, 40);
    let call = ToolCall::new("call_weather", "get_weather", r#"{"city":"Paris"}"#);
    let result = r#"{"forecast":"sunny","temperature_c":22}"#;
    request.messages.push(Message::assistant(vec![Part::ToolCall(call)]));
    request.messages.push(Message::tool(vec![ToolResult::text(
        "call_weather",
        "get_weather",
        result,
    )]));
    Recording {
        name: "openai-chat/continues-after-tool-result",
        request,
        text: &[
            "The",
            " weather",
            " in",
            " Paris",
            " is",
            " sunny",
            " with",
            " a",
            " temperature",
            " of",
            " ",
            "22",
            "°C",
            ".",
        ],
        call: None,
        reason: FinishReason::Stop,
        usage: usage(59, 14),
    }
}

fn recordings() -> [Recording; 8] {
    let exactly = "Reply with exactly: Hello!";
    let short = "Say hello in one short sentence.";
    let hello: &[&str] = &["Hello", "!"];
    let mut workers = says(
        "cloudflare-workers-ai/cloudflare-workers-ai-llama-3-1-8b-text",
        "@cf/meta/llama-3.1-8b-instruct",
        "Reply exactly with: Hello!",
        hello,
        (45, 2), // followed by a usage of zeros
    );
    workers.request.generation.max_tokens = Some(40);
    [
        workers,
        continues(),
        says("openai-chat/streams-text", "gpt-4o-mini", short, hello, (22, 2)),
        calls(
            "openai-chat/streams-tool-call",
            "gpt-4o-mini",
            "call_5wBV98AvGPwOyC6a2HtKh85w",
            (67, 5),
        ),
        says(
            "openai-compatible-chat/deepseek-streams-text",
            "deepseek-chat",
            exactly,
            hello,
            (14, 2),
        ),
        calls(
            "openai-compatible-chat/groq-streams-tool-call",
            "llama-3.3-70b-versatile",
            "mcf2d8nn1",
            (249, 10),
        ),
        calls(
            "openai-compatible-chat/openrouter-streams-tool-call",
            "openai/gpt-4o-mini",
            "call_L7mHMq49ZSUTBHjLJfBIP2eT",
            (67, 5),
        ),
        says(
            "openai-compatible-chat/togetherai-streams-text",
            "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            exactly,
            hello,
            (45, 3),
        ),
    ]
}

#[test]
fn every_recording_is_replayed() {
    let named: Vec<String> = recordings().iter().map(|r| r.name.to_owned()).collect();
    assert_eq!(named, names(&["cloudflare-workers-ai", "openai-chat", "openai-compatible-chat"]));
}

#[test]
fn our_bodies_are_what_the_providers_accepted() {
    for recording in recordings() {
        let [exchange] = load(recording.name).try_into().ok().unwrap();
        assert_eq!(body(CHAT, &recording.request), exchange.body, "{}", recording.name);
    }
}

#[test]
fn their_answers_decode_to_the_right_events() {
    for recording in recordings() {
        let answer = load(recording.name).remove(0).answer;
        let events = decode(CHAT, &recording.request.model, [answer.as_slice()]);
        let mut expected = Vec::new();
        let id = || "text-0".to_owned();
        if !recording.text.is_empty() {
            expected.push(LlmEvent::TextStart { id: id() });
            let delta = |text: &&str| LlmEvent::TextDelta { id: id(), text: (*text).to_owned() };
            expected.extend(recording.text.iter().map(delta));
            expected.push(LlmEvent::TextEnd { id: id(), provider_metadata: None });
        }
        let (whole, pieces) = common::without_pieces(events);
        if let Some(call) = recording.call {
            assert_eq!(pieces, call.arguments, "{}", recording.name);
            expected
                .push(LlmEvent::ToolInputStart { id: call.id.clone(), name: call.name.clone() });
            expected.push(LlmEvent::ToolInputEnd { id: call.id.clone() });
            expected.push(LlmEvent::ToolCall(call));
        }
        let (reason, usage) = (recording.reason, Some(recording.usage));
        expected
            .extend([LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }]);
        assert_eq!(whole, expected, "{}", recording.name);
    }
}

#[test]
fn any_cuts_of_a_recording_give_the_same_events_or_are_found() {
    assert_any_cuts(
        CHAT,
        &recordings().each_ref().map(|recording| recording.name),
        "\"finish_reason\":\"",
    );
}

proptest! {
    /// Any frames give events or an error.
    #[test]
    fn no_frame_makes_the_decoder_panic(frames in prop::collection::vec("[\\[\\]{}:,\"a-z0-9]{0,40}|\\{\"choices\":\\[\\{\"delta\":\\{\"tool_calls\":\\[\\{(\"index\":[0-2],)?(\"id\":\"[ab]?\",)?\"function\":\\{(\"name\":\"t\",)?\"arguments\":\"[1 ]?\"\\}\\}\\]\\}\\}\\]\\}", 0..12)) {
        let mut decoder = CHAT.decoder();
        for frame in &frames {
            if decoder.push(frame).is_err() { return Ok(()); }
        }
        prop_assert!(decoder.finish().is_err());
    }
}
