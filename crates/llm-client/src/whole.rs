//! Answers that came whole, or as a stream under another name.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use llm_protocol::{Framing, Protocol, value_of};
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::header;
use crate::transport::WireResponse;

/// The beginnings of a stream of events.
const BEGINNINGS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b":"];
/// The bytes by which each beginning is told.
const ENOUGH: usize = 6;

/// Returns an answer as a stream, or as the refusal that it is.
///
/// Servers that cannot stream send their answer as one JSON value, and some proxies call every answer JSON or HTML: both
/// are made streams. Reads at most `most` bytes for that, and waits at most `silence` for each piece.
pub(crate) async fn make_stream(
    protocol: Protocol,
    mut response: WireResponse,
    most: usize,
    silence: Duration,
) -> Result<WireResponse, WireResponse> {
    if !response.status.is_success() {
        return Err(response);
    }
    if may_be_stream(&response) {
        return Ok(response);
    }
    if protocol.framing() != Framing::Sse {
        return Err(response);
    }
    let mut body = BytesMut::new();
    let (mut is_stream, mut events, mut broken) = (false, None, None);
    while body.len() <= most {
        match tokio::time::timeout(silence, response.body.next()).await {
            Ok(Some(Ok(piece))) => body.extend_from_slice(&piece),
            Ok(None) => {
                events = make_events(protocol, &body);
                break;
            }
            // One that breaks off is read as a stream, which tells why.
            Ok(Some(Err(error))) => {
                broken = Some(Err(error));
                break;
            }
            Err(_) => break,
        }
        let start = body.trim_ascii_start();
        is_stream = BEGINNINGS.iter().any(|beginning| start.starts_with(beginning));
        if is_stream || (start.len() >= ENOUGH && !may_be_whole(protocol, start)) {
            break;
        }
    }
    is_stream |= events.is_some() || broken.is_some();
    let start = [Some(Ok(events.unwrap_or_else(|| body.freeze()))), broken];
    let start = stream::iter(start.into_iter().flatten());
    response.body = start.chain(response.body).boxed();
    if is_stream { Ok(response) } else { Err(response) }
}

/// Returns whether an answer is a stream by its media type. Servers are lax about it, but these two rule a stream out.
fn may_be_stream(response: &WireResponse) -> bool {
    let kind = header(&response.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    !kind.starts_with("application/json") && !kind.starts_with("text/html")
}

/// A whole answer of Anthropic's protocol.
#[derive(Deserialize)]
struct WholeMessage<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// Returns whether a body that begins so may be a whole answer of the protocol.
fn may_be_whole(protocol: Protocol, start: &[u8]) -> bool {
    match protocol {
        Protocol::OpenAiChat | Protocol::AnthropicMessages | Protocol::OpenAiResponses => {
            start.starts_with(b"{")
        }
        Protocol::Gemini => start.starts_with(b"{") || start.starts_with(b"["),
        Protocol::BedrockConverse => false,
    }
}

/// Returns a whole body as server-sent events, if it is an answer of the protocol.
pub(crate) fn make_events(protocol: Protocol, body: &[u8]) -> Option<Bytes> {
    match protocol {
        Protocol::OpenAiChat => make_chat_event(body),
        Protocol::AnthropicMessages => make_message_events(body),
        Protocol::OpenAiResponses => make_response_event(body),
        Protocol::Gemini => make_gemini_events(body),
        Protocol::BedrockConverse => None,
    }
}

/// Returns a whole response as its last event, which repeats all of it.
fn make_response_event(body: &[u8]) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let json = value_of(text).ok()?;
    json.get("output").filter(|output| output.is_array())?;
    let kind = match json.get("status").and_then(Value::as_str) {
        Some("completed") | None => "response.completed",
        Some("incomplete") => "response.incomplete",
        Some(_) => return None, // its error is told, if it has one
    };
    let mut events = String::with_capacity(text.len() + 64);
    push_event(&mut events, &format!(r#"{{"type":"{kind}","response":{text}}}"#));
    Some(events.into())
}

/// Returns the frames of a whole answer of Gemini as events: one frame alone, or the list of all.
fn make_gemini_events(body: &[u8]) -> Option<Bytes> {
    let frames: Vec<&RawValue> = if body.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice(body).ok()?
    } else {
        vec![serde_json::from_slice(body).ok()?]
    };
    let is_answer = |json: Value| json.get("candidates").or(json.get("promptFeedback")).is_some();
    if !frames.iter().any(|frame| value_of(frame.get()).is_ok_and(is_answer)) {
        return None;
    }
    let mut events = String::with_capacity(body.len() + 1_024);
    for frame in frames {
        push_event(&mut events, frame.get());
    }
    Some(events.into())
}

/// Returns a whole chat completion as one event: its decoder reads a whole message in place of pieces.
fn make_chat_event(body: &[u8]) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let json = value_of(text).ok()?;
    json.get("choices").and_then(Value::as_array).filter(|choices| !choices.is_empty())?;
    let mut events = String::with_capacity(text.len() + 32);
    push_event(&mut events, text);
    push_event(&mut events, "[DONE]");
    Some(events.into())
}

/// Returns a whole message of Anthropic's protocol as the events of its stream. Each block comes whole with its start.
fn make_message_events(body: &[u8]) -> Option<Bytes> {
    let message: WholeMessage<'_> = serde_json::from_slice(body).ok()?;
    if message.kind != "message" {
        return None;
    }
    let (usage, reason) = (raw_text(message.usage), raw_text(message.stop_reason));
    let mut events = String::with_capacity(body.len() + 1_024);
    let start = format!(r#"{{"type":"message_start","message":{{"usage":{usage}}}}}"#);
    push_event(&mut events, &start);
    for (index, block) in message.content.iter().enumerate() {
        let block = block.get();
        let start =
            format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#);
        push_event(&mut events, &start);
        push_event(&mut events, &format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
    }
    let end =
        format!(r#"{{"type":"message_delta","delta":{{"stop_reason":{reason}}},"usage":{usage}}}"#);
    push_event(&mut events, &end);
    push_event(&mut events, r#"{"type":"message_stop"}"#);
    Some(events.into())
}

fn raw_text(value: Option<&RawValue>) -> &str {
    value.map_or("null", RawValue::get)
}

/// Adds one event. In JSON a line end stands only between values.
fn push_event(events: &mut String, json: &str) {
    events.push_str("data: ");
    events.extend(json.chars().map(|letter| if "\r\n".contains(letter) { ' ' } else { letter }));
    events.push_str("\n\n");
}
