//! Answers that came whole, or as a stream under another name.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt, stream};
use llm_protocol::{Framing, Protocol, value_of};
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

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
        let is_object = protocol == Protocol::OpenAiChat && start.starts_with(b"{");
        if is_stream || (start.len() >= ENOUGH && !is_object) {
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

/// Returns a whole body as server-sent events, if it is an answer of the protocol.
fn make_events(protocol: Protocol, body: &[u8]) -> Option<Bytes> {
    // Only this protocol's decoder reads a whole message in place of its pieces.
    if protocol != Protocol::OpenAiChat {
        return None;
    }
    let json = value_of(std::str::from_utf8(body).ok()?).ok()?;
    json.get("choices").and_then(Value::as_array).filter(|choices| !choices.is_empty())?;
    let mut events = BytesMut::with_capacity(body.len() + 32);
    events.put_slice(b"data: ");
    // In JSON a line end stands only between values.
    events.extend(body.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }));
    events.put_slice(b"\n\ndata: [DONE]\n\n");
    Some(events.freeze())
}
