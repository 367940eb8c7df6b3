//! Gemini: reads requests, and writes the events of answers.
//!
//! Source: <https://ai.google.dev/api/generate-content>, <https://ai.google.dev/gemini-api/docs/thought-signatures>.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::MODEL;
use crate::answer::Frame;
use crate::cache::Pieces;
use crate::protocol::json::{content, filled, list, names, owned, text, wanted};
use crate::protocol::turns::Turns;
use crate::protocol::{Ending, Protocol, Read};
use crate::request::{Choice, Content, Request};
use crate::signature::sign;

const ID: Protocol = Protocol::Gemini;

/// Google's word for "not signed by this model".
const UNSIGNED: &str = "skip_thought_signature_validator";

/// Reads a body. Signatures must match their parts.
pub(super) fn parse(body: &Value, model: &str) -> Result<Read<'static>, String> {
    let declared = &body["tools"][0]["functionDeclarations"];
    let mut pieces = Pieces::default();
    pieces.extend("tool", declared);
    pieces.push("system", &body["systemInstruction"]);
    let mut turns = Turns::default();
    for (at, said) in filled(body, "contents")?.iter().enumerate() {
        let role = text(said, "role").unwrap_or("user");
        let parts = list(&said["parts"]);
        if parts.is_empty() {
            return Err(format!("contents[{at}].parts: must contain at least one part"));
        }
        for (nth, part) in parts.iter().enumerate() {
            pieces.push(role, part);
            let at = format!("contents[{at}].parts[{nth}]");
            match role {
                "user" => user(part, &at, &mut turns)?,
                "model" => spoken(part, &at, &mut turns)?,
                other => return Err(format!("{at}: there is no role `{other}`")),
            }
        }
    }
    let calling = &body["toolConfig"]["functionCallingConfig"];
    let choice = match (text(calling, "mode"), list(&calling["allowedFunctionNames"])) {
        (Some("NONE"), _) => Choice::None,
        (_, [only]) => Choice::Only(only.as_str().unwrap_or_default().to_owned()),
        (_, _) => Choice::Any,
    };
    let messages = turns.finish()?;
    let (model, tools) = (model.to_owned(), names(declared, None));
    let request = Request {
        model,
        messages,
        tools,
        choice,
        max_tokens: body["generationConfig"]["maxOutputTokens"].as_u64(),
        stream: true,
        include_usage: true,
    };
    Ok(Read { request, pieces })
}

fn user(part: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    if let Some(said) = text(part, "text") {
        turns.user(said);
    } else if part["functionResponse"].is_object() {
        let response = &part["functionResponse"];
        let name = wanted(response, "name", at)?;
        let id = match text(response, "id") {
            Some(id) => id.to_owned(),
            None => turns.waiting(name).ok_or_else(|| format!("{at}: `{name}` was not called"))?,
        };
        let outcome = &response["response"];
        let told = ["error", "output", "content"].iter().find_map(|member| text(outcome, member));
        let told = told.map_or_else(|| outcome.to_string(), str::to_owned);
        turns.result(&id, Content(vec![owned(&told)]));
    } else if !part["inlineData"].is_object() && !part["fileData"].is_object() {
        return Err(format!("{at}: no part of a user"));
    }
    Ok(())
}

fn spoken(part: &Value, at: &str, turns: &mut Turns) -> Result<(), String> {
    let signature = text(part, "thoughtSignature");
    let signed = if let Some(said) = text(part, "text") {
        let is_thought = part["thought"] == true;
        if is_thought && signature.is_none() {
            return Err(format!("{at}: a thought is missing a `thoughtSignature`"));
        }
        if !is_thought {
            turns.assistant().content.0.extend(content(&json!(said)).0);
        }
        said.to_owned()
    } else if part["functionCall"].is_object() {
        let call = &part["functionCall"];
        let name = wanted(call, "name", at)?;
        let nth = turns.assistant().calls.len();
        let id = text(call, "id").map_or_else(|| format!("{name}#{nth}"), str::to_owned);
        turns.call(&id, name);
        called(name, &call["args"])
    } else {
        return Err(format!("{at}: no part of the simulated model"));
    };
    match signature {
        Some(signature) if signature == sign(ID.id(), &signed) => {
            turns.assistant().signatures.push(signature.to_owned());
        }
        Some(UNSIGNED) | None => {}
        Some(_) => return Err(format!("{at}: Thought signature is not valid")),
    }
    Ok(())
}

/// Returns the text that a call's signature covers.
fn called(name: &str, arguments: &Value) -> String {
    format!("{name}\n{arguments}")
}

/// A writer of a stream's events.
pub(crate) struct Writer {
    ending: Ending,
    /// The id and the name of each call.
    calls: Vec<(Option<String>, String)>,
    /// The thoughts so far, until they are signed.
    thought: String,
    thinks: bool,
    malformed: bool,
}

impl Writer {
    pub(super) fn new(ending: Ending, calls: Vec<(Option<String>, String)>) -> Self {
        Self { ending, calls, thought: String::new(), thinks: false, malformed: false }
    }

    pub(super) fn encode(&mut self, frame: &Frame) -> Bytes {
        let mut events = Vec::new();
        match frame {
            // SDKs keep the content of each event in the chat, so no event may be empty.
            Frame::Role => self.part(&json!({ "text": "" }), &mut events),
            Frame::Reasoning(said) => {
                self.thought.push_str(said);
                self.thinks = true;
                self.part(&json!({ "text": said, "thought": true }), &mut events);
            }
            Frame::Text(said) => {
                self.sign_thought(&mut events);
                self.part(&json!({ "text": said }), &mut events);
            }
            Frame::CallArguments { index, part } => {
                self.sign_thought(&mut events);
                self.call(*index, part, &mut events);
            }
            Frame::CallStart { .. } | Frame::Finish(_) | Frame::Usage(_) => {}
            Frame::Done => self.finish(&mut events),
        }
        events.into()
    }

    /// Writes a call. This protocol cannot show arguments that are not an object: its finish reports them.
    fn call(&mut self, index: usize, arguments: &str, events: &mut Vec<u8>) {
        let Ok(args @ Value::Object(_)) = serde_json::from_str(arguments) else {
            self.malformed = true;
            return self.part(&json!({ "text": "" }), events);
        };
        let (id, name) = self.calls.get(index).cloned().unwrap_or_default();
        let mut part = json!({ "functionCall": { "name": name, "args": args, "id": id } });
        if self.thinks && index == 0 {
            part["thoughtSignature"] = sign(ID.id(), &called(&name, &args)).into();
        }
        self.part(&part, events);
    }

    fn sign_thought(&mut self, events: &mut Vec<u8>) {
        if !self.thought.is_empty() {
            let signature = sign(ID.id(), &std::mem::take(&mut self.thought));
            let part = json!({ "text": "", "thought": true, "thoughtSignature": signature });
            self.part(&part, events);
        }
    }

    fn finish(&mut self, events: &mut Vec<u8>) {
        self.sign_thought(events);
        let reason = match self.ending.finish_reason.as_str() {
            _ if self.malformed => "MALFORMED_FUNCTION_CALL",
            "stop" | "tool_calls" => "STOP",
            "length" => "MAX_TOKENS",
            "content_filter" => "SAFETY",
            other => other,
        };
        let content = json!({ "parts": [{ "text": "" }], "role": "model" });
        let last = json!({
            "candidates": [{ "content": content, "finishReason": reason, "index": 0 }],
        });
        self.event(&last, events);
    }

    fn part(&self, part: &Value, events: &mut Vec<u8>) {
        let content = json!({ "parts": [part], "role": "model" });
        self.event(&json!({ "candidates": [{ "content": content, "index": 0 }] }), events);
    }

    /// Writes an event. Each event reports the usage, but only that of the last one counts.
    fn event(&self, data: &Value, events: &mut Vec<u8>) {
        let (usage, thoughts) = (self.ending.usage, self.ending.reasoning_tokens);
        let mut data = data.clone();
        data["usageMetadata"] = self.ending.usage(json!({
            "promptTokenCount": usage.prompt_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "candidatesTokenCount": usage.completion_tokens.saturating_sub(thoughts),
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": usage.total_tokens,
        }));
        data["modelVersion"] = MODEL.into();
        data["responseId"] = self.ending.id("").into();
        events.extend_from_slice(format!("data: {data}\r\n\r\n").as_bytes());
    }
}
