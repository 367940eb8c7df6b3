//! Recorded exchanges with real providers: our encoder writes what they accepted, our decoder reads what they
//! answered, under every split of the bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use llm_protocol::sse::Framer;
use llm_protocol::{
    FinishReason, LlmEvent, LlmRequest, Message, Part, Protocol, RawJson, SystemPart, ToolCall,
    ToolChoice, ToolDefinition, ToolResult, Usage, openai_chat,
};
use proptest::prelude::*;
use serde_json::Value;

struct Recording {
    name: &'static str,
    request: LlmRequest,
    text: &'static [&'static str],
    call: Option<ToolCall>,
    reason: FinishReason,
    usage: Usage,
}

fn usage(input_tokens: u64, output_tokens: u64) -> Option<Usage> {
    let total_tokens = input_tokens + output_tokens;
    Some(Usage { input_tokens, output_tokens, total_tokens, ..Usage::default() })
}

fn request(model: &str, system: &str, user: &str, max_tokens: u64) -> LlmRequest {
    let mut request = LlmRequest::new(model, vec![Message::user(user)]);
    request.system.push(SystemPart::text(system));
    request.generation.max_tokens = Some(max_tokens);
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
        usage: usage(cost.0, cost.1).unwrap(),
    }
}

fn calls(name: &'static str, model: &str, id: &str, cost: (u64, u64)) -> Recording {
    let user = "Call get_weather with city exactly Paris.";
    let mut request = request(model, "Call tools exactly as requested.", user, 80);
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}"#;
    request.tools.push(ToolDefinition {
        name: "get_weather".into(),
        description: "Get current weather for a city.".into(),
        input_schema: RawJson::parse(schema).unwrap(),
    });
    request.tool_choice = ToolChoice::Tool("get_weather".into());
    Recording {
        name,
        request,
        text: &[],
        call: Some(ToolCall::new(id, "get_weather", r#"{"city":"Paris"}"#)),
        reason: FinishReason::ToolCalls,
        usage: usage(cost.0, cost.1).unwrap(),
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
        usage: usage(59, 14).unwrap(),
    }
}

fn recordings() -> Vec<Recording> {
    let exactly = "Reply with exactly: Hello!";
    let short = "Say hello in one short sentence.";
    let hello: &[&str] = &["Hello", "!"];
    vec![
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

/// The request body and the raw answer of a recording of one exchange.
fn load(name: &str) -> (Value, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.json"));
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |side: &str| file["interactions"][0][side]["body"].as_str().unwrap();
    (serde_json::from_str(text("request")).unwrap(), text("response").to_owned())
}

fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<LlmEvent> {
    let (mut framer, mut decoder) = (Framer::default(), Protocol::OpenAiChat.decoder());
    let mut events = Vec::new();
    for chunk in chunks {
        for data in framer.push(chunk).unwrap() {
            events.extend(decoder.push(&data).unwrap());
        }
    }
    events.extend(decoder.finish().unwrap());
    events
}

#[test]
fn every_recording_is_replayed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut files: Vec<String> = Vec::new();
    for folder in ["openai-chat", "openai-compatible-chat"] {
        for file in std::fs::read_dir(root.join(folder)).unwrap() {
            let stem = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
            files.push(format!("{folder}/{stem}"));
        }
    }
    files.sort();
    let named: Vec<String> = recordings().iter().map(|r| r.name.to_owned()).collect();
    assert_eq!(named, files);
}

#[test]
fn our_bodies_are_what_the_providers_accepted() {
    for recording in recordings() {
        let ours: Value = serde_json::from_slice(&openai_chat::encode(&recording.request)).unwrap();
        assert_eq!(ours, load(recording.name).0, "{}", recording.name);
    }
}

#[test]
fn their_answers_decode_to_the_right_events() {
    for recording in recordings() {
        let answer = load(recording.name).1;
        let events = decode([answer.as_bytes()]);
        let mut expected = Vec::new();
        let id = || "text-0".to_owned();
        if !recording.text.is_empty() {
            expected.push(LlmEvent::TextStart { id: id() });
            let delta = |text: &&str| LlmEvent::TextDelta { id: id(), text: (*text).to_owned() };
            expected.extend(recording.text.iter().map(delta));
            expected.push(LlmEvent::TextEnd { id: id(), provider_metadata: None });
        }
        // How the arguments were cut is the provider's affair; that the pieces make the whole is ours.
        let mut pieces = String::new();
        let mut whole = Vec::new();
        for event in events {
            if let LlmEvent::ToolInputDelta { text, .. } = event {
                pieces.push_str(&text);
            } else {
                whole.push(event);
            }
        }
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
fn any_place_to_cut_a_recording_once_gives_the_same_frames() {
    for recording in recordings() {
        let answer = load(recording.name).1.into_bytes();
        let whole = Framer::default().push(&answer).unwrap();
        for cut in 0..=answer.len() {
            let mut framer = Framer::default();
            let mut frames = framer.push(&answer[..cut]).unwrap();
            frames.extend(framer.push(&answer[cut..]).unwrap());
            assert_eq!(frames, whole, "{} cut at {cut}", recording.name);
        }
        assert_eq!(decode(answer.chunks(1)), decode([answer.as_slice()]), "{}", recording.name);
    }
}

#[test]
fn a_recording_that_is_cut_off_before_its_end_is_truncated() {
    for recording in recordings() {
        let answer = load(recording.name).1;
        let cut = answer.find("\"finish_reason\":\"").unwrap();
        let (mut framer, mut decoder) = (Framer::default(), openai_chat::Decoder::new());
        for data in framer.push(&answer.as_bytes()[..cut]).unwrap() {
            decoder.push(&data).unwrap();
        }
        assert_eq!(decoder.finish().unwrap_err(), llm_protocol::DecodeError::Truncated);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_split_of_a_recording_gives_the_same_events(
        which in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1usize..200, 1..40),
    ) {
        let all = recordings();
        let answer = load(all[which.index(all.len())].name).1.into_bytes();
        let mut rest = answer.as_slice();
        let mut chunks = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break; }
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        prop_assert_eq!(decode(chunks), decode([answer.as_slice()]));
    }

    /// Whatever comes, a decoder answers with events or an error.
    #[test]
    fn no_frame_makes_the_decoder_panic(frames in prop::collection::vec("[\\[\\]{}:,\"a-z0-9]{0,40}|\\{\"choices\":\\[\\{\"delta\":\\{\"tool_calls\":\\[\\{(\"index\":[0-2],)?(\"id\":\"[ab]?\",)?\"function\":\\{(\"name\":\"t\",)?\"arguments\":\"[1 ]?\"\\}\\}\\]\\}\\}\\]\\}", 0..12)) {
        let mut decoder = openai_chat::Decoder::new();
        for frame in &frames {
            if decoder.push(frame).is_err() { return Ok(()); }
        }
        prop_assert!(decoder.finish().is_err());
    }
}
