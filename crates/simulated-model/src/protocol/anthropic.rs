//! Anthropic messages: reads requests, and writes the events of answers.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>, <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::MODEL;
use crate::answer::Frame;
use crate::cache::Pieces;
use crate::protocol::json::{content, filled, list, names, owned, text, wanted};
use crate::protocol::turns::Turns;
use crate::protocol::{Ending, Protocol, Read};
use crate::request::{Choice, Request};
use crate::signature::sign;

const ID: Protocol = Protocol::Anthropic;

/// Reads a body. Like Anthropic, it requires `max_tokens`, results for all calls, and thinking with its signature.
pub(super) fn parse(body: &Value) -> Result<Read<'static>, String> {
    let model = wanted(body, "model", "the body")?.to_owned();
    if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        return Err("max_tokens: Field required".to_owned());
    }
    if body["stream"] != true {
        return Err("this protocol is only streamed here: set `stream` to true".to_owned());
    }
    let messages = filled(body, "messages")?;
    let mut pieces = Pieces::default();
    pieces.extend("tool", &body["tools"]);
    match text(body, "system") {
        Some(system) => pieces.push("system", &json!({ "type": "text", "text": system })),
        None => pieces.extend("system", &body["system"]),
    }
    let mut turns = Turns::default();
    for (at, message) in messages.iter().enumerate() {
        let role = wanted(message, "role", &format!("messages.{at}"))?;
        let plain;
        let blocks = match text(message, "content") {
            Some(said) => {
                plain = [json!({ "type": "text", "text": said })];
                plain.as_slice()
            }
            None => list(&message["content"]),
        };
        if blocks.is_empty() {
            return Err(format!("messages.{at}: all messages must have non-empty content"));
        }
        for (nth, block) in blocks.iter().enumerate() {
            pieces.push(role, block);
            let at = format!("messages.{at}.content.{nth}");
            match role {
                "user" => user(block, &at, &mut turns)?,
                "assistant" => assistant(block, &at, &mut turns)?,
                "system" => turns.system(content(&json!([block]))),
                other => return Err(format!("{at}: there is no role `{other}`")),
            }
        }
    }
    let choice = match text(&body["tool_choice"], "type") {
        Some("none") => Choice::None,
        Some("tool") => Choice::Only(wanted(&body["tool_choice"], "name", "tool_choice")?.into()),
        Some(_) | None => Choice::Any,
    };
    let messages = turns.finish()?;
    let tools = names(&body["tools"], None);
    let request = Request {
        model,
        messages,
        tools,
        choice,
        max_tokens: body["max_tokens"].as_u64(),
        stream: true,
        include_usage: true,
    };
    Ok(Read { request, pieces })
}

fn user(block: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    match text(block, "type") {
        Some("text") => match wanted(block, "text", at)? {
            "" => return Err(format!("{at}: text content blocks must be non-empty")),
            said => turns.user(said),
        },
        Some("tool_result") => {
            turns.result(wanted(block, "tool_use_id", at)?, content(&block["content"]));
        }
        Some("image" | "document") => {}
        other => return Err(format!("{at}: no block of a user: {other:?}")),
    }
    Ok(())
}

fn assistant(block: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    match text(block, "type") {
        Some("text") => match wanted(block, "text", at)? {
            "" => return Err(format!("{at}: text content blocks must be non-empty")),
            said => turns.assistant().content.0.push(owned(said)),
        },
        Some("thinking") => {
            let signature = wanted(block, "signature", at)?;
            if signature != sign(ID.id(), wanted(block, "thinking", at)?) {
                return Err(format!("{at}: Invalid `signature` in `thinking` block"));
            }
            turns.assistant().signatures.push(signature.to_owned());
        }
        Some("tool_use") => {
            if !block["input"].is_object() {
                return Err(format!("{at}: `input` is no object"));
            }
            turns.call(wanted(block, "id", at)?, wanted(block, "name", at)?);
        }
        other => return Err(format!("{at}: no block of the simulated model: {other:?}")),
    }
    Ok(())
}

/// A writer of a stream's events.
pub(crate) struct Writer {
    ending: Ending,
    /// The number of blocks so far. The last of them is open.
    blocks: usize,
    open: Option<Open>,
}

#[derive(PartialEq, Eq)]
enum Open {
    /// The thinking so far, which is signed at its end.
    Thinking(String),
    Text,
    Call,
}

impl Writer {
    pub(super) fn new(ending: Ending) -> Self {
        Self { ending, blocks: 0, open: None }
    }

    pub(super) fn encode(&mut self, frame: &Frame) -> Bytes {
        let mut events = Vec::new();
        match frame {
            Frame::Role => self.start(&mut events),
            Frame::Reasoning(said) => {
                if !matches!(self.open, Some(Open::Thinking(_))) {
                    let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                    self.begin(Open::Thinking(String::new()), &block, &mut events);
                }
                if let Some(Open::Thinking(text)) = &mut self.open {
                    text.push_str(said);
                }
                self.delta(&json!({ "type": "thinking_delta", "thinking": said }), &mut events);
            }
            Frame::Text(said) => {
                if self.open != Some(Open::Text) {
                    self.begin(Open::Text, &json!({ "type": "text", "text": "" }), &mut events);
                }
                self.delta(&json!({ "type": "text_delta", "text": said }), &mut events);
            }
            Frame::CallStart { id, name, .. } => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.begin(Open::Call, &block, &mut events);
            }
            Frame::CallArguments { part, .. } => {
                let delta = json!({ "type": "input_json_delta", "partial_json": part });
                self.delta(&delta, &mut events);
            }
            Frame::Finish(reason) => {
                self.end(&mut events);
                event(
                    "message_delta",
                    &json!({
                        "type": "message_delta",
                        "delta": { "stop_reason": stop_reason(reason), "stop_sequence": null },
                        "usage": self
                            .ending
                            .usage(json!({ "output_tokens": self.ending.usage.completion_tokens })),
                    }),
                    &mut events,
                );
            }
            Frame::Usage(_) => {}
            Frame::Done => event("message_stop", &json!({ "type": "message_stop" }), &mut events),
        }
        events.into()
    }

    fn start(&self, events: &mut Vec<u8>) {
        let usage = self.ending.usage;
        let message = json!({
            "id": self.ending.id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": self.ending.usage(json!({
                "input_tokens":
                    usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
                "cache_read_input_tokens": usage.cache_read_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens,
                "output_tokens": 1,
            })),
        });
        event("message_start", &json!({ "type": "message_start", "message": message }), events);
        event("ping", &json!({ "type": "ping" }), events);
    }

    fn begin(&mut self, open: Open, block: &Value, events: &mut Vec<u8>) {
        self.end(events);
        self.open = Some(open);
        self.blocks += 1;
        let index = self.blocks - 1;
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        event("content_block_start", &start, events);
    }

    fn delta(&self, delta: &Value, events: &mut Vec<u8>) {
        let index = self.blocks.saturating_sub(1);
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        event("content_block_delta", &delta, events);
    }

    fn end(&mut self, events: &mut Vec<u8>) {
        match self.open.take() {
            None => return,
            Some(Open::Thinking(text)) => {
                let signature = sign(ID.id(), &text);
                let delta = json!({ "type": "signature_delta", "signature": signature });
                self.delta(&delta, events);
            }
            Some(Open::Text | Open::Call) => {}
        }
        let index = self.blocks.saturating_sub(1);
        let stop = json!({ "type": "content_block_stop", "index": index });
        event("content_block_stop", &stop, events);
    }
}

fn stop_reason(reason: &str) -> &str {
    match reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

fn event(name: &str, data: &Value, events: &mut Vec<u8>) {
    events.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
