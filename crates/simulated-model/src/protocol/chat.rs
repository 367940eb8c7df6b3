//! OpenAI chat completions: reads requests, and writes the events of answers.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat>.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::MODEL;
use crate::answer::{Answer, DraftCall, Frame, ToldUsage, some_text};
use crate::phrase;
use crate::request::{Choice, Content, MadeCall, Message, Request, Role};

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default)]
    model: String,
    #[serde(borrow)]
    messages: Vec<WireMessage<'a>>,
    #[serde(borrow, default)]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    role: Role,
    #[serde(borrow, default)]
    content: Content<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Called<'a>>>,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    function: Named<'a>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    function: Named<'a>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Reads a body. The error can be shown to the client.
pub(crate) fn parse(body: &[u8]) -> Result<Request<'_>, String> {
    let body: Body<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not a chat completions request: {error}"))?;
    if body.messages.is_empty() {
        return Err("`messages` is empty: send at least one message".to_owned());
    }
    let choice = match body.tool_choice["function"]["name"].as_str() {
        Some(name) => Choice::Only(name.to_owned()),
        None if body.tool_choice == "none" => Choice::None,
        None => Choice::Any,
    };
    Ok(Request {
        model: body.model,
        messages: body.messages.into_iter().map(message).flat_map(split_joined).collect(),
        tools: body.tools.into_iter().flatten().map(|tool| tool.function.name).collect(),
        choice,
        max_tokens: body.max_completion_tokens.or(body.max_tokens),
        stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.is_some_and(|options| options.include_usage),
    })
}

fn message(wire: WireMessage<'_>) -> Message<'_> {
    let calls = wire.tool_calls.into_iter().flatten();
    let calls = calls.map(|call| MadeCall { id: call.id, name: call.function.name }).collect();
    let tool_call_id = wire.tool_call_id;
    Message { calls, tool_call_id, ..Message::new(wire.role, wire.content) }
}

/// The beginnings and ends of the texts that a service adds to a conversation as user messages.
const ADDED: [(&str, &str); 4] = [
    ("<notice>", "</notice>"),
    ("<system-update>", "</system-update>"),
    ("<conversation-checkpoint>", "</conversation-checkpoint>"),
    ("<summary-request>", "</summary-request>"),
];

/// Takes apart a user message that a service has joined from several, as it does for servers that it does not know.
fn split_joined(message: Message<'_>) -> Vec<Message<'_>> {
    let [text] = message.content.0.as_slice() else { return vec![message] };
    if message.role != Role::User || !text.contains("\n\n") {
        return vec![message];
    }
    let mut texts: Vec<String> = Vec::new();
    for piece in text.split("\n\n") {
        let is_added = ADDED.iter().any(|(begin, _)| piece.starts_with(begin));
        let begins = is_added || phrase::recognise(piece).is_some();
        let has_ended = |before: &str| ADDED.iter().any(|(_, end)| before.ends_with(end));
        let is_open = |before: &str| {
            ADDED.iter().any(|(begin, _)| before.starts_with(begin)) && !has_ended(before)
        };
        match texts.last_mut() {
            Some(before) if is_open(before) || !(begins || has_ended(before)) => {
                before.push_str("\n\n");
                before.push_str(piece);
            }
            Some(_) | None => texts.push(piece.to_owned()),
        }
    }
    let user = |text: String| Message::new(Role::User, Content(vec![Cow::Owned(text)]));
    texts.into_iter().map(user).collect()
}

/// A writer of a stream's events.
pub(crate) struct Writer {
    id: String,
}

impl Writer {
    pub(crate) fn new(id: String) -> Self {
        Self { id }
    }

    /// Returns the server-sent event for `frame`.
    pub(crate) fn encode(&self, frame: &Frame) -> Bytes {
        let (delta, finish_reason) = match frame {
            Frame::Role => {
                (Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }, None)
            }
            Frame::Reasoning(text) => {
                (Delta { reasoning_content: Some(text), ..Delta::default() }, None)
            }
            Frame::Text(text) => (Delta { content: Some(text), ..Delta::default() }, None),
            Frame::CallStart { index, id, name } => {
                let call = WireCall::part(*index, Some(id), Some(name), "");
                (Delta { tool_calls: Some([call]), ..Delta::default() }, None)
            }
            Frame::CallArguments { index, part } => {
                let call = WireCall::part(*index, None, None, part);
                (Delta { tool_calls: Some([call]), ..Delta::default() }, None)
            }
            Frame::Finish(reason) => (Delta::default(), Some(reason.as_str())),
            Frame::Usage(usage) => return self.event(&[], Some(usage)),
            Frame::Done => return Bytes::from_static(b"data: [DONE]\n\n"),
        };
        self.event(&[Choices { index: 0, message: None, delta: Some(delta), finish_reason }], None)
    }

    fn event(&self, choices: &[Choices<'_>], usage: Option<&ToldUsage>) -> Bytes {
        let chunk = json(&Envelope {
            id: &self.id,
            object: "chat.completion.chunk",
            created: 0,
            model: MODEL,
            system_fingerprint: MODEL,
            choices,
            usage,
        });
        let mut event = Vec::with_capacity(chunk.len() + 8);
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&chunk);
        event.extend_from_slice(b"\n\n");
        event.into()
    }
}

/// Returns the answer as one JSON object.
pub(crate) fn whole(answer: &Answer) -> Bytes {
    let text = answer.draft.text.concat();
    let message = WholeMessage {
        role: "assistant",
        content: (!text.is_empty() || answer.draft.calls.is_empty()).then_some(text),
        reasoning_content: some_text(answer.draft.reasoning.concat()),
        tool_calls: answer.draft.calls.iter().map(WireCall::whole).collect(),
    };
    let told = answer.told_usage.clone();
    let usage = told.map_or(ToldUsage::Counted(answer.usage), ToldUsage::Scripted);
    json(&Envelope {
        id: &answer.id,
        object: "chat.completion",
        created: 0,
        model: MODEL,
        system_fingerprint: MODEL,
        choices: &[Choices {
            index: 0,
            message: Some(message),
            delta: None,
            finish_reason: Some(&answer.finish_reason),
        }],
        usage: Some(&usage),
    })
    .into()
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'static str,
    system_fingerprint: &'static str,
    choices: &'a [Choices<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a ToldUsage>,
}

#[derive(Serialize)]
struct Choices<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<WholeMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct WholeMessage<'a> {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[WireCall<'a>; 1]>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> WireCall<'a> {
    fn whole(call: &'a DraftCall) -> Self {
        let function = WireFunction { name: Some(&call.name), arguments: &call.arguments };
        Self { index: None, id: call.id.as_deref(), kind: Some("function"), function }
    }

    /// Returns a part of a streamed call. Its first part has an id.
    fn part(index: usize, id: Option<&'a str>, name: Option<&'a str>, arguments: &'a str) -> Self {
        let kind = id.map(|_| "function");
        Self { index: Some(index), id, kind, function: WireFunction { name, arguments } }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings and numbers always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Draft, words};

    #[test]
    fn content_may_be_text_parts_or_nothing() {
        let body = br#"{"messages":[{"role":"user","content":"a\nb"},
            {"role":"user","content":[{"type":"text","text":"c"},{"type":"image_url","image_url":{}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
             "function":{"name":"read","arguments":"{}"}}]}],
            "tools":[{"type":"function","function":{"name":"read"}}],
            "tool_choice":{"type":"function","function":{"name":"read"}}}"#;
        let request = parse(body).unwrap_or_else(|error| panic!("{error}"));
        let texts: Vec<_> = request.messages.iter().map(|m| m.content.joined()).collect();
        assert_eq!(texts, ["a\nb", "c", ""]);
        assert_eq!(request.messages[2].calls.len(), 1);
        assert!(request.may_call("read") && !request.may_call("write") && !request.stream);
    }

    #[test]
    fn a_bad_body_is_explained() {
        assert!(parse(b"{}").is_err_and(|e| e.contains("messages")));
        assert!(parse(br#"{"messages":[]}"#).is_err_and(|e| e.contains("empty")));
    }

    #[test]
    fn a_frame_is_a_labelled_event() {
        let draft = Draft { text: words(1), ..Draft::default() };
        let writer = Writer::new(Answer::new(draft, &[1; 32], 5).id);
        let event = writer.encode(&Frame::Text("a\"b".to_owned()));
        let expected = concat!(
            r#"data: {"id":"chatcmpl-sim-010101010101010101010101","object":"chat.completion.chunk","#,
            r#""created":0,"model":"simulated","system_fingerprint":"simulated","choices":[{"index":0,"#,
            r#""delta":{"content":"a\"b"},"finish_reason":null}]}"#,
            "\n\n"
        );
        assert_eq!(event, expected);
    }
}
