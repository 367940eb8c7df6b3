//! Bedrock Converse: reads requests, and writes the messages of an answer's event stream.
//!
//! Source: <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::answer::Frame;
use crate::cache::Pieces;
use crate::protocol::json::{content, filled, list, names, owned, text, wanted};
use crate::protocol::turns::Turns;
use crate::protocol::{Ending, Protocol, Read};
use crate::request::{Choice, Request};
use crate::signature::sign;

const ID: Protocol = Protocol::Bedrock;

/// Reads a body. Like Bedrock, it requires alternating roles, results for all calls, and reasoning with its
/// signature.
pub(super) fn parse(body: &Value, model: &str) -> Result<Read<'static>, String> {
    let mut pieces = Pieces::default();
    blocks("tool", &body["toolConfig"]["tools"], &mut pieces);
    blocks("system", &body["system"], &mut pieces);
    let mut turns = Turns::default();
    let mut wanted_role = "user";
    for (at, message) in filled(body, "messages")?.iter().enumerate() {
        let role = wanted(message, "role", &format!("messages.{at}"))?;
        if role != wanted_role {
            return Err(format!(
                "messages.{at}: roles must alternate, beginning with `user`: expected `{wanted_role}`"
            ));
        }
        wanted_role = if role == "user" { "assistant" } else { "user" };
        blocks(role, &message["content"], &mut pieces);
        let content = list(&message["content"]);
        if content.is_empty() {
            return Err(format!("messages.{at}.content: is empty"));
        }
        for (nth, block) in content.iter().enumerate() {
            let at = format!("messages.{at}.content.{nth}");
            match role {
                "user" => user(block, &at, &mut turns)?,
                _ => assistant(block, &at, &mut turns)?,
            }
        }
    }
    let chosen = &body["toolConfig"]["toolChoice"]["tool"];
    let choice = text(chosen, "name").map_or(Choice::Any, |name| Choice::Only(name.to_owned()));
    let messages = turns.finish()?;
    let tools = names(&body["toolConfig"]["tools"], Some("toolSpec"));
    let model = model.to_owned();
    let request = Request {
        model,
        messages,
        tools,
        choice,
        max_tokens: body["inferenceConfig"]["maxTokens"].as_u64(),
        stream: true,
        include_usage: true,
    };
    Ok(Read { request, pieces })
}

/// Adds the blocks of a list. A `cachePoint` is not a block, but marks the one before it.
fn blocks(role: &str, all: &Value, pieces: &mut Pieces) {
    for block in list(all) {
        if block["cachePoint"].is_object() {
            pieces.mark();
        } else {
            pieces.push(role, block);
        }
    }
}

fn user(block: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    if let Some(said) = text(block, "text") {
        if said.trim().is_empty() {
            return Err(format!("{at}: the text field is blank"));
        }
        turns.user(said);
    } else if block["toolResult"].is_object() {
        let result = &block["toolResult"];
        turns.result(wanted(result, "toolUseId", at)?, content(&result["content"]));
    } else if !["image", "document", "video", "cachePoint"].iter().any(|it| block[it].is_object()) {
        return Err(format!("{at}: no block of a user"));
    }
    Ok(())
}

fn assistant(block: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    if let Some(said) = text(block, "text") {
        if said.trim().is_empty() {
            return Err(format!("{at}: the text field is blank"));
        }
        turns.assistant().content.0.push(owned(said));
    } else if block["reasoningContent"].is_object() {
        let reasoning = &block["reasoningContent"]["reasoningText"];
        let signature = wanted(reasoning, "signature", at)?;
        if signature != sign(ID.id(), wanted(reasoning, "text", at)?) {
            return Err(format!("{at}: Invalid `signature` in `thinking` block"));
        }
        turns.assistant().signatures.push(signature.to_owned());
    } else if block["toolUse"].is_object() {
        let call = &block["toolUse"];
        if !call["input"].is_object() {
            return Err(format!("{at}: `input` is no object"));
        }
        turns.call(wanted(call, "toolUseId", at)?, wanted(call, "name", at)?);
    } else if !block["cachePoint"].is_object() {
        return Err(format!("{at}: no block of the simulated model"));
    }
    Ok(())
}

/// A writer of a stream's messages.
pub(crate) struct Writer {
    ending: Ending,
    /// The number of blocks so far. The last of them may be open.
    blocks: usize,
    open: Option<Open>,
}

#[derive(PartialEq, Eq)]
enum Open {
    /// The reasoning so far, which is signed at its end.
    Reasoning(String),
    Text,
    Call,
}

impl Writer {
    pub(super) fn new(ending: Ending) -> Self {
        Self { ending, blocks: 0, open: None }
    }

    pub(super) fn encode(&mut self, frame: &Frame) -> Bytes {
        let mut bytes = Vec::new();
        match frame {
            Frame::Role => message("messageStart", &json!({ "role": "assistant" }), &mut bytes),
            Frame::Reasoning(said) => {
                if !matches!(self.open, Some(Open::Reasoning(_))) {
                    self.begin(Open::Reasoning(String::new()), &mut bytes);
                }
                if let Some(Open::Reasoning(text)) = &mut self.open {
                    text.push_str(said);
                }
                self.delta(&json!({ "reasoningContent": { "text": said } }), &mut bytes);
            }
            Frame::Text(said) => {
                if self.open != Some(Open::Text) {
                    self.begin(Open::Text, &mut bytes);
                }
                self.delta(&json!({ "text": said }), &mut bytes);
            }
            Frame::CallStart { id, name, .. } => {
                self.begin(Open::Call, &mut bytes);
                let start = json!({ "toolUse": { "toolUseId": id, "name": name } });
                let start = json!({ "contentBlockIndex": self.blocks - 1, "start": start });
                message("contentBlockStart", &start, &mut bytes);
            }
            Frame::CallArguments { part, .. } => {
                self.delta(&json!({ "toolUse": { "input": part } }), &mut bytes);
            }
            Frame::Finish(reason) => {
                self.end(&mut bytes);
                let stop = json!({ "stopReason": stop_reason(reason) });
                message("messageStop", &stop, &mut bytes);
            }
            Frame::Usage(_) => {}
            Frame::Done => self.metadata(&mut bytes),
        }
        bytes.into()
    }

    fn metadata(&self, bytes: &mut Vec<u8>) {
        let usage = self.ending.usage;
        let metadata = json!({
            "usage": self.ending.usage(json!({
                "inputTokens":
                    usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
                "outputTokens": usage.completion_tokens,
                "cacheReadInputTokens": usage.cache_read_tokens,
                "cacheWriteInputTokens": usage.cache_write_tokens,
                "totalTokens": usage.total_tokens,
            })),
            "metrics": { "latencyMs": 0 },
        });
        message("metadata", &metadata, bytes);
    }

    fn begin(&mut self, open: Open, bytes: &mut Vec<u8>) {
        self.end(bytes);
        self.open = Some(open);
        self.blocks += 1;
    }

    fn delta(&self, delta: &Value, bytes: &mut Vec<u8>) {
        let index = self.blocks.saturating_sub(1);
        message("contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": delta }), bytes);
    }

    fn end(&mut self, bytes: &mut Vec<u8>) {
        match self.open.take() {
            None => return,
            Some(Open::Reasoning(text)) => {
                let signature = sign(ID.id(), &text);
                self.delta(&json!({ "reasoningContent": { "signature": signature } }), bytes);
            }
            Some(Open::Text | Open::Call) => {}
        }
        let index = self.blocks.saturating_sub(1);
        message("contentBlockStop", &json!({ "contentBlockIndex": index }), bytes);
    }
}

fn stop_reason(reason: &str) -> &str {
    match reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "content_filtered",
        other => other,
    }
}

/// Writes one message of the event stream.
fn message(name: &str, payload: &Value, bytes: &mut Vec<u8>) {
    let header = |key: &'static str, value: &str| {
        Header::new(key, HeaderValue::String(value.to_owned().into()))
    };
    let headers = vec![
        header(":event-type", name),
        header(":content-type", "application/json"),
        header(":message-type", "event"),
    ];
    let message = Message::new_from_parts(headers, payload.to_string().into_bytes());
    write_message_to(&message, bytes).expect("a few short headers and a payload far below 16 MiB");
}
