//! Writes the conversation as Bedrock's messages. Roles alternate there, so neighbouring messages of one role
//! become one; instructions in the middle and results belong to the user.

use serde::{Deserialize, Serialize};

use crate::arguments::object;
use crate::bedrock_converse::content::{CachePoint, Content, Reasoning};
use crate::bedrock_converse::media::{Documents, block};
use crate::call_ids::{CallIds, tool_name};
use crate::dialect::wrap_instructions;
use crate::json::RawJson;
use crate::media::not_shown;
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::state::StateOwner;
use crate::thinking::Written;

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

impl WireMessage<'_> {
    /// Returns the message's role in a round of calls. Blocks of hosted tools do not count.
    pub(super) fn in_round(&self) -> Written {
        let is_answer = |block: &Content<'_>| matches!(block, Content::ToolResult { .. });
        let mut own = self.content.iter().filter(|block| !matches!(block, Content::Verbatim(_)));
        if self.role == "user" {
            Written::User { answers: self.content.iter().any(is_answer) }
        } else {
            Written::Assistant { thought: matches!(own.next(), Some(Content::Reasoning(_))) }
        }
    }
}

/// The provider state of a part.
#[derive(Deserialize)]
struct State {
    signature: Option<String>,
    redacted: Option<String>,
    block: Option<RawJson>,
}

struct Writer<'a> {
    owner: &'a StateOwner,
    messages: Vec<WireMessage<'a>>,
    ids: CallIds<'a>,
    documents: Documents,
}

/// Writes the messages, with a cache point after those at `marks`.
pub(super) fn messages<'a>(
    messages: &'a [Message],
    (marks, point): (&[usize], CachePoint),
    owner: &'a StateOwner,
) -> Vec<WireMessage<'a>> {
    let (ids, documents) = (CallIds::plain(), Documents::default());
    let mut writer = Writer { owner, messages: Vec::new(), ids, documents };
    for (at, message) in messages.iter().enumerate() {
        let wrote = writer.message(message);
        if wrote && marks.contains(&at) {
            let last = writer.messages.last_mut().expect("one was just written");
            last.content.push(Content::CachePoint(point));
        }
    }
    writer.messages
}

impl<'a> Writer<'a> {
    /// Writes a message and returns whether it had any content.
    fn message(&mut self, message: &'a Message) -> bool {
        let parts = || message.content.iter().filter(|part| can_carry(message.role, part));
        match message.role {
            Role::User => {
                let content = parts().filter_map(|part| self.user_part(part)).collect();
                self.push("user", introduced(content))
            }
            Role::System => {
                let texts: Vec<_> = parts().filter_map(text_of).collect();
                let text = Content::said(texts.join("\n"));
                let wrapped =
                    text.map(|_| Content::Text(wrap_instructions(&texts.join("\n")).into()));
                self.push("user", wrapped.into_iter().collect())
            }
            Role::Tool => {
                let results = parts().filter_map(result_of);
                let content = results.map(|result| self.result(result)).collect();
                self.push("user", content)
            }
            Role::Assistant => self.assistant(message),
        }
    }

    /// Writes an assistant message. Calls that another provider ran are answered in a user message, as ours
    /// are; text that came after their results comes after that message.
    fn assistant(&mut self, message: &'a Message) -> bool {
        let (mut said, mut answers) = (Vec::new(), Vec::new());
        let mut wrote = false;
        for part in message.content.iter().filter(|part| can_carry(message.role, part)) {
            let answer = result_of(part).filter(|result| !self.is_ours(&result.provider_metadata));
            if let Some(result) = answer {
                answers.push(self.result(result));
                continue;
            }
            if !answers.is_empty() {
                wrote |= self.push("assistant", std::mem::take(&mut said));
                wrote |= self.push("user", std::mem::take(&mut answers));
            }
            said.extend(self.assistant_part(part));
        }
        wrote |= self.push("assistant", said);
        self.push("user", answers) || wrote
    }

    fn is_ours(&self, metadata: &Option<RawJson>) -> bool {
        self.own_block(metadata).is_some()
    }

    fn push(&mut self, role: &'static str, mut content: Vec<Content<'a>>) -> bool {
        if content.is_empty() {
            return false;
        }
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.content.append(&mut content),
            _ => self.messages.push(WireMessage { role, content }),
        }
        true
    }

    fn user_part(&mut self, part: &'a Part) -> Option<Content<'a>> {
        match part {
            Part::Text(part) => Content::said(&part.text),
            Part::Media(media) => Some(block(&media.mime, &media.data, &mut self.documents)),
            Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        }
    }

    fn assistant_part(&mut self, part: &'a Part) -> Option<Content<'a>> {
        match part {
            Part::Text(part) => Content::said(&part.text),
            Part::Reasoning(part) => self.reasoning(part),
            Part::Media(media) => Content::said(not_shown(&media.mime)),
            Part::ToolCall(call) => Some(self.call(call)),
            Part::ToolResult(result) => {
                self.own_block(&result.provider_metadata).map(Content::Verbatim)
            }
        }
    }

    /// Writes reasoning: signed for the model that wrote it, as plain text for any other.
    fn reasoning(&self, part: &'a TextPart) -> Option<Content<'a>> {
        let state = self.owner.read::<State>(part.provider_metadata.as_ref());
        let reasoning = match state {
            Some(State { redacted: Some(redacted), .. }) => Reasoning::RedactedContent(redacted),
            Some(State { signature: Some(signature), .. }) => {
                Reasoning::ReasoningText { text: &part.text, signature }
            }
            Some(_) | None => return Content::said(&part.text),
        };
        Some(Content::Reasoning(reasoning))
    }

    fn call(&mut self, call: &'a ToolCall) -> Content<'a> {
        if let Some(block) = self.own_block(&call.provider_metadata) {
            return Content::Verbatim(block);
        }
        let tool_use_id = self.ids.of_call(&call.id);
        let name = tool_name(&call.name);
        Content::ToolUse { tool_use_id, name, input: object(&call.arguments) }
    }

    fn result(&mut self, result: &'a ToolResult) -> Content<'a> {
        let pieces = result.content.iter().filter_map(|piece| match piece {
            ToolContent::Text { text } => Content::said(text),
            ToolContent::Media { mime, data } => Some(block(mime, data, &mut self.documents)),
        });
        Content::ToolResult {
            tool_use_id: self.ids.of_result(&result.id),
            content: pieces.collect(),
            status: result.is_error.then_some("error"),
        }
    }

    fn own_block(&self, metadata: &Option<RawJson>) -> Option<RawJson> {
        self.owner.read::<State>(metadata.as_ref())?.block
    }
}

/// Adds a text to a message that has a document but no text, because Bedrock refuses it otherwise.
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html>
fn introduced(mut content: Vec<Content<'_>>) -> Vec<Content<'_>> {
    let is_document = |part: &Content<'_>| matches!(part, Content::Document(_));
    let is_text = |part: &Content<'_>| matches!(part, Content::Text(_));
    if content.iter().any(is_document) && !content.iter().any(is_text) {
        content.insert(0, Content::Text("A document:".into()));
    }
    content
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(part) => Some(&part.text),
        Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

fn result_of(part: &Part) -> Option<&ToolResult> {
    match part {
        Part::ToolResult(result) => Some(result),
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => None,
    }
}
