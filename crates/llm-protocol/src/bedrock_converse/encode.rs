//! The conversation: neutral messages in, Bedrock's out. Roles alternate there, so what follows in one role is one
//! message; instructions in the middle and results are the user's.

use serde::{Deserialize, Serialize};

use crate::arguments::object;
use crate::bedrock_converse::content::{CachePoint, Content, Reasoning};
use crate::bedrock_converse::media::{Documents, block};
use crate::call_ids::CallIds;
use crate::dialect::wrap_instructions;
use crate::json::RawJson;
use crate::media::not_shown;
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::state::StateOwner;

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

/// What we keep of an answer for its provider.
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

/// The messages, with a cache point after those at `marks`.
pub(super) fn messages<'a>(
    messages: &'a [Message],
    marks: &[usize],
    owner: &'a StateOwner,
) -> Vec<WireMessage<'a>> {
    let (ids, documents) = (CallIds::default(), Documents::default());
    let mut writer = Writer { owner, messages: Vec::new(), ids, documents };
    for (at, message) in messages.iter().enumerate() {
        let wrote = writer.message(message);
        if wrote && marks.contains(&at) {
            let last = writer.messages.last_mut().expect("one was just written");
            last.content.push(Content::CachePoint(CachePoint::DEFAULT));
        }
    }
    writer.messages
}

impl<'a> Writer<'a> {
    /// Whether there was anything to write.
    fn message(&mut self, message: &'a Message) -> bool {
        let parts = || message.content.iter().filter(|part| can_carry(message.role, part));
        match message.role {
            Role::User => {
                let content = parts().filter_map(|part| self.user_part(part)).collect();
                self.push("user", content)
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
            Role::Assistant => {
                let content = parts().filter_map(|part| self.assistant_part(part)).collect();
                let said = self.push("assistant", content);
                // Of calls that another provider ran: here they are answered as ours are.
                let results: Vec<_> = parts().filter_map(result_of).collect();
                let mut content = Vec::new();
                for result in results {
                    if self.own_block(&result.provider_metadata).is_none() {
                        content.push(self.result(result));
                    }
                }
                self.push("user", content) || said
            }
        }
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

    /// Reasoning goes back signed to the model that wrote it; to any other it is plain text.
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
        Content::ToolUse { tool_use_id, name: &call.name, input: object(&call.arguments) }
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
