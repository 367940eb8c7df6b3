//! Helpers for the tests of all protocols: recordings, answers cut in every way, and requests that use
//! everything.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part; tests panic")]

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use llm_protocol::{
    DecodeError, Dialect, Generation, LlmEvent, LlmRequest, Media, Message, Part, Protocol,
    RawJson, SystemPart, TextPart, ToolContent, ToolDefinition, ToolResult, Usage,
};
use proptest::prelude::*;
use serde_json::Value;

/// One exchange of a recording.
pub(crate) struct Exchange {
    /// The body that the provider accepted, or refused (see the status).
    pub(crate) body: Value,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The bytes of the answer.
    pub(crate) answer: Vec<u8>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// Loads the exchanges of `folder/name`, in order.
pub(crate) fn load(name: &str) -> Vec<Exchange> {
    let file = std::fs::read(root().join(format!("{name}.json"))).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let exchange = |interaction: &Value| {
        let (request, response) = (&interaction["request"], &interaction["response"]);
        let text = response["body"].as_str().unwrap();
        let answer = match response["bodyEncoding"].as_str() {
            Some("base64") => STANDARD.decode(text).unwrap(),
            None => text.as_bytes().to_vec(),
            Some(other) => panic!("{name}: a body in {other}"),
        };
        Exchange {
            body: serde_json::from_str(request["body"].as_str().unwrap()).unwrap(),
            status: response["status"].as_u64().unwrap().try_into().unwrap(),
            answer,
        }
    };
    file["interactions"].as_array().unwrap().iter().map(exchange).collect()
}

/// Returns the sorted names of all recordings in these folders (`folder/name`).
pub(crate) fn names(folders: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for folder in folders {
        for file in std::fs::read_dir(root().join(folder)).unwrap() {
            let stem = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
            names.push(format!("{folder}/{stem}"));
        }
    }
    names.sort();
    names
}

/// Returns the body of `request` as JSON.
pub(crate) fn body(protocol: Protocol, request: &LlmRequest) -> Value {
    serde_json::from_slice(&protocol.encode(request)).unwrap()
}

/// Returns the frames of an answer that came in these chunks.
pub(crate) fn frames<'a>(
    protocol: Protocol,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<String> {
    let mut framer = protocol.framer(16 << 20);
    chunks.into_iter().flat_map(|chunk| framer.push(chunk).unwrap()).collect()
}

/// Decodes an answer of `model` that came in these chunks.
pub(crate) fn try_decode<'a>(
    protocol: Protocol,
    model: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<LlmEvent>, DecodeError> {
    let mut framer = protocol.framer(16 << 20);
    let mut decoder = protocol.decoder_for(model, &Dialect::default());
    let mut events = Vec::new();
    for chunk in chunks {
        for frame in framer.push(chunk)? {
            events.extend(decoder.push(&frame)?);
        }
    }
    events.extend(decoder.finish()?);
    Ok(events)
}

/// Decodes like [`try_decode`]; the answer must be complete.
pub(crate) fn decode<'a>(
    protocol: Protocol,
    model: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<LlmEvent> {
    try_decode(protocol, model, chunks).unwrap()
}

/// Asserts the same frames and events for every single cut of the answer, and byte by byte.
pub(crate) fn assert_splits(protocol: Protocol, answer: &[u8]) {
    let whole = frames(protocol, [answer]);
    assert!(!whole.is_empty(), "no frames");
    for cut in 0..=answer.len() {
        assert_eq!(frames(protocol, [&answer[..cut], &answer[cut..]]), whole, "cut at {cut}");
    }
    let events = decode(protocol, "m", [answer]);
    assert_eq!(decode(protocol, "m", answer.chunks(1)), events, "one byte at a time");
}

/// Asserts that an answer cut anywhere before the frame with `last` is truncated.
pub(crate) fn assert_truncations(protocol: Protocol, answer: &[u8], last: &str) {
    let frames = frames(protocol, [answer]);
    let end = frames.iter().position(|frame| frame.contains(last)).expect("the frame that ends it");
    for kept in 0..=end {
        let mut decoder = protocol.decoder();
        for frame in &frames[..kept] {
            decoder.push(frame).unwrap();
            assert!(!decoder.is_done(), "done after {frame}");
        }
        assert_eq!(decoder.finish().unwrap_err(), DecodeError::Truncated, "after {kept} frames");
    }
}

/// Asserts that all cuts of these recordings give the same events, and that an answer cut before the frame
/// with `last` fails.
pub(crate) fn assert_any_cuts(protocol: Protocol, names: &[&str], last: &str) {
    let exchanges = names.iter().flat_map(|name| load(name)).filter(|one| one.status == 200);
    let answers: Vec<_> = exchanges.map(|exchange| exchange.answer).collect();
    for answer in &answers {
        assert_splits(protocol, answer);
        assert_truncations(protocol, answer, last);
    }
    let sizes = prop::collection::vec(1_usize..200, 1..40);
    proptest!(ProptestConfig::with_cases(64), |(which in prop::sample::select(answers), sizes in sizes)| {
        let whole = decode(protocol, "m", [which.as_slice()]);
        prop_assert_eq!(decode(protocol, "m", chunks(&which, &sizes)), whole);
    });
}

/// Cuts the answer into chunks of these sizes, repeated.
pub(crate) fn chunks<'a>(answer: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = answer;
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at((*size).min(rest.len()));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// Takes the pieces of tool arguments out of the events and joins them: how a provider cuts them does not
/// matter.
pub(crate) fn without_pieces(events: Vec<LlmEvent>) -> (Vec<LlmEvent>, String) {
    let mut pieces = String::new();
    let mut whole = Vec::new();
    for event in events {
        if let LlmEvent::ToolInputDelta { text, .. } = event {
            pieces.push_str(&text);
        } else {
            whole.push(event);
        }
    }
    (whole, pieces)
}

/// Makes a usage without details.
pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    let total_tokens = input_tokens + output_tokens;
    Usage { input_tokens, output_tokens, total_tokens, ..Usage::default() }
}

/// Makes a request like most recordings have, without a temperature.
pub(crate) fn request(model: &str, system: &str, user: &str, max_tokens: u64) -> LlmRequest {
    let mut request = LlmRequest::new(model, vec![Message::user(user)]);
    request.system.push(SystemPart::text(system));
    request.generation.max_tokens = Some(max_tokens);
    request
}

/// Returns the tool that recordings call.
pub(crate) fn get_weather() -> ToolDefinition {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}"#;
    ToolDefinition {
        name: "get_weather".into(),
        description: "Get current weather for a city.".into(),
        input_schema: RawJson::parse(schema).unwrap(),
    }
}

/// Returns the first breach of the order that `LlmEvent` documents.
pub(crate) fn disorder(events: &[LlmEvent]) -> Option<String> {
    let mut open_part: Option<&str> = None;
    let mut open_inputs: Vec<&str> = Vec::new();
    let mut parts: Vec<&str> = Vec::new();
    let mut called: Vec<&str> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let wrong = match event {
            LlmEvent::TextStart { id } | LlmEvent::ReasoningStart { id } => {
                let wrong = open_part.is_some() || parts.contains(&id.as_str());
                parts.push(id);
                open_part = Some(id);
                wrong
            }
            LlmEvent::TextDelta { id, text } | LlmEvent::ReasoningDelta { id, text } => {
                open_part != Some(id) || text.is_empty()
            }
            LlmEvent::TextEnd { id, .. } | LlmEvent::ReasoningEnd { id, .. } => {
                open_part.take() != Some(id)
            }
            LlmEvent::ToolInputStart { id, .. } => {
                open_inputs.push(id);
                false
            }
            LlmEvent::ToolInputDelta { id, text } => {
                !open_inputs.contains(&id.as_str()) || text.is_empty()
            }
            LlmEvent::ToolInputEnd { id } => {
                let open = open_inputs.iter().position(|open| open == id);
                open.map(|at| open_inputs.remove(at)).is_none()
                    || !matches!(events.get(at + 1), Some(LlmEvent::ToolCall(call)) if call.id == *id)
            }
            LlmEvent::ToolCall(call) => {
                called.push(&call.id);
                false
            }
            LlmEvent::ToolResult(result) => !called.contains(&result.id.as_str()),
            LlmEvent::StepFinish { .. } => {
                at + 2 != events.len() || open_part.is_some() || !open_inputs.is_empty()
            }
            LlmEvent::Finish { .. } => at + 1 != events.len(),
        };
        if wrong {
            return Some(format!("event {at}, {event:?}, in {events:?}"));
        }
    }
    None
}

/// Asserts the bytes of `request`, also after a round trip through neutral JSON, where only white space
/// between the tokens of a call's input may be lost.
pub(crate) fn assert_version_1(protocol: Protocol, request: &LlmRequest, bytes: &str) {
    assert_eq!(protocol.wire_version(), 1, "keep this corpus and add one for the new version");
    assert_version(protocol, 1, request, bytes);
}

/// Asserts the bytes for any wire version. A version that was ever sent is still written as long as rows
/// refer to it.
pub(crate) fn assert_version(protocol: Protocol, version: u32, request: &LlmRequest, bytes: &str) {
    let written = |request: &LlmRequest| {
        let body = protocol.encode_version(version, request, &Dialect::default()).unwrap();
        String::from_utf8(body).unwrap()
    };
    assert_eq!(written(request), bytes);
    let read = neutral(request);
    assert_eq!(neutral(&read), read);
    let closer =
        bytes.replace(r#"\"b\": 1.0"#, r#"\"b\":1.0"#).replace(r#""b": 1.0"#, r#""b":1.0"#);
    assert_eq!(written(&read), closer);
}

/// Returns the request after a round trip through neutral JSON.
pub(crate) fn neutral(request: &LlmRequest) -> LlmRequest {
    serde_json::from_str(&serde_json::to_string(request).unwrap()).unwrap()
}

/// Returns all controls.
pub(crate) fn full_generation() -> Generation {
    Generation {
        max_tokens: Some(100),
        temperature: Some(0.0),
        top_p: Some(0.95),
        top_k: Some(40),
        stop: vec!["END".into()],
        seed: Some(-7),
    }
}

/// Returns two pieces of instructions.
pub(crate) fn full_system() -> Vec<SystemPart> {
    vec![SystemPart::text("Be brief."), SystemPart::text("Use tools.")]
}

/// Makes text with provider state.
pub(crate) fn text(text: &str, provider_metadata: Option<RawJson>) -> TextPart {
    TextPart { text: text.into(), provider_metadata }
}

/// Makes reasoning with provider state.
pub(crate) fn thought(said: &str, provider_metadata: Option<RawJson>) -> Part {
    Part::Reasoning(text(said, provider_metadata))
}

/// Makes a media part.
pub(crate) fn media(mime: &str, data: &str) -> Part {
    Part::Media(Media { mime: mime.into(), data: data.into(), provider_metadata: None })
}

/// Makes a result with a text and an image.
pub(crate) fn seen(id: &str) -> ToolResult {
    let image = ToolContent::Media { mime: "image/png".into(), data: "AA==".into() };
    let content = vec![ToolContent::Text { text: "line".into() }, image];
    ToolResult { content, ..ToolResult::text(id, "read", "") }
}

/// Makes state of the model `m`.
pub(crate) fn state_of(key: &str, members: &str) -> Option<RawJson> {
    Some(RawJson::parse(format!(r#"{{"{key}":{{"model":"m",{members}}}}}"#)).unwrap())
}

/// Returns the message that an answer's events add up to.
pub(crate) fn said(events: &[LlmEvent]) -> Message {
    let mut parts: Vec<Part> = Vec::new();
    for event in events {
        match event {
            LlmEvent::TextStart { .. } => parts.push(Part::Text(text("", None))),
            LlmEvent::ReasoningStart { .. } => parts.push(thought("", None)),
            LlmEvent::TextDelta { text, .. } | LlmEvent::ReasoningDelta { text, .. } => {
                open(&mut parts).text.push_str(text);
            }
            LlmEvent::TextEnd { provider_metadata, .. }
            | LlmEvent::ReasoningEnd { provider_metadata, .. } => {
                open(&mut parts).provider_metadata.clone_from(provider_metadata);
            }
            LlmEvent::ToolCall(call) => parts.push(Part::ToolCall(call.clone())),
            LlmEvent::ToolResult(result) => parts.push(Part::ToolResult(result.clone())),
            LlmEvent::ToolInputStart { .. }
            | LlmEvent::ToolInputDelta { .. }
            | LlmEvent::ToolInputEnd { .. }
            | LlmEvent::StepFinish { .. }
            | LlmEvent::Finish { .. } => {}
        }
    }
    Message::assistant(parts)
}

/// Returns the newest text or reasoning; tool input may be open beside it.
fn open(parts: &mut [Part]) -> &mut TextPart {
    let open = parts.iter_mut().rev().find_map(|part| match part {
        Part::Text(part) | Part::Reasoning(part) => Some(part),
        Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    });
    open.unwrap()
}
