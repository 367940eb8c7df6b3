//! OpenAI responses: reads requests, and writes the events of answers.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses>.

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

const ID: Protocol = Protocol::Responses;

/// Reads a body. No answers are stored, so reasoning must come back complete: with `encrypted_content`.
pub(super) fn parse(body: &Value) -> Result<Read<'static>, String> {
    let model = wanted(body, "model", "the body")?.to_owned();
    if body["stream"] != true {
        return Err("this protocol is only streamed here: set `stream` to true".to_owned());
    }
    if !body["previous_response_id"].is_null() {
        return Err("no answers are stored here: send the whole input".to_owned());
    }
    let mut pieces = Pieces::default();
    pieces.extend("tool", &body["tools"]);
    pieces.push("instructions", &body["instructions"]);
    let mut turns = Turns::default();
    if let Some(said) = text(body, "input") {
        turns.user(said);
    } else {
        for (at, item) in filled(body, "input")?.iter().enumerate() {
            pieces.push("input", item);
            read(item, &format!("input[{at}]"), &mut turns)?;
        }
    }
    let choice = match (&body["tool_choice"], text(&body["tool_choice"], "name")) {
        (_, Some(name)) => Choice::Only(name.to_owned()),
        (choice, None) if choice == "none" => Choice::None,
        (_, None) => Choice::Any,
    };
    let messages = turns.finish()?;
    let tools = names(&body["tools"], None);
    let request = Request {
        model,
        messages,
        tools,
        choice,
        max_tokens: body["max_output_tokens"].as_u64(),
        stream: true,
        include_usage: true,
    };
    Ok(Read { request, pieces })
}

fn read(item: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    match (text(item, "type"), text(item, "role")) {
        (None | Some("message"), Some("system" | "developer")) => {
            turns.system(content(&item["content"]));
        }
        (None | Some("message"), Some("user")) => {
            content(&item["content"]).0.iter().for_each(|said| turns.user(said));
        }
        (None | Some("message"), Some("assistant")) => {
            turns.assistant().content.0.extend(content(&item["content"]).0);
        }
        (Some("reasoning"), _) => {
            let texts = list(&item["summary"]).iter().filter_map(|part| text(part, "text"));
            let said = texts.map(owned).collect::<String>();
            let signature = wanted(item, "encrypted_content", at)?;
            if signature != sign(ID.id(), &said) {
                return Err(format!("{at}: the encrypted content could not be verified"));
            }
            turns.assistant().signatures.push(signature.to_owned());
        }
        (Some("function_call"), _) => {
            wanted(item, "arguments", at)?;
            turns.call(wanted(item, "call_id", at)?, wanted(item, "name", at)?);
        }
        (Some("function_call_output"), _) => {
            turns.result(wanted(item, "call_id", at)?, content(&item["output"]));
        }
        (kind, role) => {
            return Err(format!("{at}: no item of type {kind:?} and role {role:?} is known here"));
        }
    }
    Ok(())
}

/// A writer of a stream's events.
pub(crate) struct Writer {
    ending: Ending,
    /// The number of items so far. The last of them may be open.
    items: usize,
    open: Option<Open>,
    /// The complete items.
    output: Vec<Value>,
    /// The number of the next event.
    sequence: u64,
}

/// The item in progress, with its text or arguments so far.
enum Open {
    Reasoning(String),
    Message(String),
    Call { id: String, name: String, arguments: String },
}

impl Writer {
    pub(super) fn new(ending: Ending) -> Self {
        Self { ending, items: 0, open: None, output: Vec::new(), sequence: 0 }
    }

    pub(super) fn encode(&mut self, frame: &Frame) -> Bytes {
        let mut events = Vec::new();
        match frame {
            Frame::Role => {
                let response = self.response("in_progress");
                self.event("response.created", json!({ "response": response }), &mut events);
                self.event("response.in_progress", json!({ "response": response }), &mut events);
            }
            Frame::Reasoning(said) => self.think(said, &mut events),
            Frame::Text(said) => self.say(said, &mut events),
            Frame::CallStart { id, name, .. } => {
                let (id, name) = (id.clone(), name.clone());
                self.begin(Open::Call { id, name, arguments: String::new() }, &mut events);
            }
            Frame::CallArguments { part, .. } => {
                if let Some(Open::Call { arguments, .. }) = &mut self.open {
                    arguments.push_str(part);
                }
                let delta = json!({ "delta": part });
                self.of_item("response.function_call_arguments.delta", delta, &mut events);
            }
            Frame::Finish(_) | Frame::Usage(_) => {}
            Frame::Done => self.finish(&mut events),
        }
        events.into()
    }

    fn think(&mut self, said: &str, events: &mut Vec<u8>) {
        if !matches!(self.open, Some(Open::Reasoning(_))) {
            self.begin(Open::Reasoning(String::new()), events);
            let part =
                json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "" } });
            self.of_item("response.reasoning_summary_part.added", part, events);
        }
        if let Some(Open::Reasoning(text)) = &mut self.open {
            text.push_str(said);
        }
        let delta = json!({ "summary_index": 0, "delta": said });
        self.of_item("response.reasoning_summary_text.delta", delta, events);
    }

    fn say(&mut self, said: &str, events: &mut Vec<u8>) {
        if !matches!(self.open, Some(Open::Message(_))) {
            self.begin(Open::Message(String::new()), events);
            let part = json!({ "content_index": 0, "part": { "type": "output_text", "text": "" } });
            self.of_item("response.content_part.added", part, events);
        }
        if let Some(Open::Message(text)) = &mut self.open {
            text.push_str(said);
        }
        let delta = json!({ "content_index": 0, "delta": said, "logprobs": [] });
        self.of_item("response.output_text.delta", delta, events);
    }

    fn finish(&mut self, events: &mut Vec<u8>) {
        self.end(events);
        let details = match self.ending.finish_reason.as_str() {
            "stop" | "tool_calls" => None,
            "length" => Some("max_output_tokens"),
            other => Some(other),
        };
        let status = if details.is_some() { "incomplete" } else { "completed" };
        let usage = self.ending.usage;
        let mut response = self.response(status);
        response["incomplete_details"] =
            details.map_or(Value::Null, |why| json!({ "reason": why }));
        response["usage"] = self.ending.usage(json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": { "cached_tokens": usage.cache_read_tokens },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": { "reasoning_tokens": self.ending.reasoning_tokens },
            "total_tokens": usage.total_tokens,
        }));
        self.event(&format!("response.{status}"), json!({ "response": response }), events);
    }

    fn begin(&mut self, open: Open, events: &mut Vec<u8>) {
        self.end(events);
        self.items += 1;
        let item = self.item(&open, "in_progress");
        self.open = Some(open);
        let added = json!({ "output_index": self.items - 1, "item": item });
        self.event("response.output_item.added", added, events);
    }

    fn end(&mut self, events: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        self.end_parts(&open, events);
        let item = self.item(&open, "completed");
        self.output.push(item.clone());
        let done = json!({ "output_index": self.items - 1, "item": item });
        self.event("response.output_item.done", done, events);
    }

    /// Writes the whole text or arguments of an item, which SDKs read instead of the pieces.
    fn end_parts(&mut self, open: &Open, events: &mut Vec<u8>) {
        match open {
            Open::Reasoning(text) => {
                let done = json!({ "summary_index": 0, "text": text });
                self.of_item("response.reasoning_summary_text.done", done, events);
                let part = json!({ "type": "summary_text", "text": text });
                let done = json!({ "summary_index": 0, "part": part });
                self.of_item("response.reasoning_summary_part.done", done, events);
            }
            Open::Message(text) => {
                let done = json!({ "content_index": 0, "text": text, "logprobs": [] });
                self.of_item("response.output_text.done", done, events);
                let part = json!({ "type": "output_text", "text": text, "annotations": [] });
                let done = json!({ "content_index": 0, "part": part });
                self.of_item("response.content_part.done", done, events);
            }
            Open::Call { name, arguments, .. } => {
                let done = json!({ "name": name, "arguments": arguments });
                self.of_item("response.function_call_arguments.done", done, events);
            }
        }
    }

    /// Returns an item as it begins or, when `completed`, as it ends.
    fn item(&self, open: &Open, status: &str) -> Value {
        let id = self.item_id();
        let done = status == "completed";
        match open {
            Open::Reasoning(text) => {
                let summary = json!([{ "type": "summary_text", "text": text }]);
                let summary = if done { summary } else { json!([]) };
                let mut item = json!({ "type": "reasoning", "id": id, "summary": summary });
                if done {
                    item["encrypted_content"] = sign(ID.id(), text).into();
                }
                item
            }
            Open::Message(text) => {
                let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
                let content = if done { content } else { json!([]) };
                let role = "assistant";
                json!({ "type": "message", "id": id, "status": status, "role": role, "content": content })
            }
            Open::Call { id: call_id, name, arguments } => json!({
                "type": "function_call",
                "id": id,
                "status": status,
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
            }),
        }
    }

    fn item_id(&self) -> String {
        format!("{}_{}", self.ending.id("item_"), self.items)
    }

    fn response(&self, status: &str) -> Value {
        json!({
            "id": self.ending.id("resp_"),
            "object": "response",
            "created_at": 0,
            "model": MODEL,
            "status": status,
            "output": self.output,
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "metadata": {},
            "parallel_tool_calls": true,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        })
    }

    /// Writes an event about the open item.
    fn of_item(&mut self, kind: &str, mut data: Value, events: &mut Vec<u8>) {
        data["item_id"] = self.item_id().into();
        data["output_index"] = (self.items - 1).into();
        self.event(kind, data, events);
    }

    fn event(&mut self, kind: &str, mut data: Value, events: &mut Vec<u8>) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        events.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
    }
}
