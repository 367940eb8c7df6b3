//! The conversation as messages of content blocks.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::arguments;
use crate::cache::{Breakpoints, CacheControl};
use crate::call_ids::{CallIds, tool_name};
use crate::dialect::{Dialect, Instructions, wrap_instructions};
use crate::json::RawJson;
use crate::media::{is_url, not_shown};
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::request::{LlmRequest, SystemPart};
use crate::state::StateOwner;
use crate::thinking::Written;

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

impl WireMessage<'_> {
    /// Returns the message's role in a round of calls. Blocks of hosted tools do not count.
    pub(super) fn in_round(&self) -> Written {
        let is_answer = |block: &Block<'_>| {
            matches!(block, Block::Typed { block: Typed::ToolResult { .. }, .. })
        };
        let mut own = self.content.iter().filter(|block| !matches!(block, Block::Exact(_)));
        match self.role {
            USER => Written::User { answers: self.content.iter().any(is_answer) },
            ASSISTANT => {
                Written::Assistant { thought: matches!(own.next(), Some(Block::Thought(_))) }
            }
            _ => Written::Instructions,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Block<'a> {
    Typed {
        #[serde(flatten)]
        block: Typed<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// Reasoning, which accepts no cache mark.
    Thought(Thought<'a>),
    /// A block that the provider sent, verbatim.
    Exact(RawJson),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Typed<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Content<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thought<'a> {
    Thinking { thinking: &'a str, signature: RawJson },
    RedactedThinking { data: RawJson },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

/// The content of a result: one text if it has only texts, or a list of blocks if it has media.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Typed<'a>>),
}

/// The provider state of our own reasoning.
#[derive(Deserialize)]
struct ReasoningState {
    signature: Option<RawJson>,
    redacted: Option<RawJson>,
    /// A whole block of another kind.
    block: Option<RawJson>,
}

/// The provider state of a tool that the provider ran.
#[derive(Deserialize)]
struct HostedState {
    block: RawJson,
}

impl<'a> Block<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Typed::Text { text: text.into() }.into()
    }
}

impl<'a> From<Typed<'a>> for Block<'a> {
    fn from(block: Typed<'a>) -> Self {
        Self::Typed { block, cache_control: None }
    }
}

/// Returns the instructions before the conversation, one block per piece.
pub(super) fn system<'a>(request: &'a LlmRequest, marks: &Breakpoints) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    let mut from = Vec::new();
    for (at, SystemPart::Text { text }) in request.system.iter().enumerate() {
        if is_said(text) {
            blocks.push(Block::text(text.as_str()));
            from.push(at);
        }
    }
    for mark in &marks.system {
        let at = from.iter().rposition(|from| from <= mark);
        if let Some(Block::Typed { cache_control, .. }) = at.map(|at| &mut blocks[at]) {
            *cache_control = Some(CacheControl::of(marks.ttl_seconds));
        }
    }
    blocks
}

pub(super) fn messages<'a>(
    request: &'a LlmRequest,
    dialect: &Dialect,
    owner: &'a StateOwner,
    marks: &Breakpoints,
) -> Vec<WireMessage<'a>> {
    let mut writer =
        Writer { owner, messages: Vec::new(), blocks: 0, from: Vec::new(), ids: CallIds::plain() };
    for (at, message) in request.messages.iter().enumerate() {
        match message.role {
            Role::User => writer.user(message),
            Role::Assistant => writer.assistant(message),
            Role::Tool => writer.results(message),
            Role::System => {
                let next = request.messages.get(at + 1).map(|message| message.role);
                let native = dialect.instructions == Some(Instructions::System);
                writer.instructions(message, native, next);
            }
        }
        writer.from.resize(writer.blocks, at);
    }
    writer.mark(marks);
    writer.messages
}

/// Returns whether Anthropic accepts the text: it refuses blocks of only white space.
fn is_said(text: &str) -> bool {
    !text.trim().is_empty()
}

struct Writer<'a> {
    owner: &'a StateOwner,
    messages: Vec<WireMessage<'a>>,
    /// The number of blocks in all messages.
    blocks: usize,
    /// The index of the neutral message that each block comes from.
    from: Vec<usize>,
    ids: CallIds<'a>,
}

const USER: &str = "user";
const ASSISTANT: &str = "assistant";

impl<'a> Writer<'a> {
    fn say(&mut self, role: &'static str, content: Vec<Block<'a>>) {
        self.blocks += content.len();
        if !content.is_empty() {
            self.messages.push(WireMessage { role, content });
        }
    }

    fn user(&mut self, message: &'a Message) {
        let content = message.content.iter().filter_map(|part| match part {
            Part::Text(part) => is_said(&part.text).then(|| Block::text(part.text.as_str())),
            Part::Media(part) => Some(media(&part.mime, &part.data).into()),
            Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        });
        let content = content.collect();
        self.say(USER, content);
    }

    /// Writes instructions in the middle. Only some models have a role for them, and only between a user's
    /// message and the model's; otherwise they continue the user's message.
    fn instructions(&mut self, message: &Message, native: bool, next: Option<Role>) {
        let texts = message.content.iter().filter_map(|part| match part {
            Part::Text(part) => is_said(&part.text).then_some(part.text.as_str()),
            Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            return;
        }
        let last = self.messages.last_mut().filter(|last| last.role == USER);
        match (native && matches!(next, None | Some(Role::Assistant)), last) {
            (true, Some(_)) => self.say(Role::System.as_str(), vec![Block::text(text)]),
            (false, Some(last)) => {
                last.content.push(Block::text(wrap_instructions(&text)));
                self.blocks += 1;
            }
            (_, None) => self.say(USER, vec![Block::text(wrap_instructions(&text))]),
        }
    }

    /// Writes all results of a batch as one message. Results of hosted calls that end the previous message
    /// belong to the same batch.
    fn results(&mut self, message: &'a Message) {
        let mut content = Vec::new();
        for part in &message.content {
            match part {
                Part::ToolResult(result) => content.push(self.result(result)),
                Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => {}
            }
        }
        self.answer(content);
    }

    fn answer(&mut self, content: Vec<Block<'a>>) {
        let result = |block: &Block<'_>| {
            matches!(block, Block::Typed { block: Typed::ToolResult { .. }, .. })
        };
        match self.messages.last_mut() {
            Some(last) if last.role == USER && last.content.iter().all(result) => {
                self.blocks += content.len();
                last.content.extend(content);
            }
            Some(_) | None => self.say(USER, content),
        }
    }

    fn result(&self, result: &'a ToolResult) -> Block<'a> {
        let tool_use_id = self.ids.of_result(&result.id);
        let is_error = result.is_error;
        Typed::ToolResult { tool_use_id, content: result_content(result), is_error }.into()
    }

    /// Writes the model's text, thoughts and calls, in order. A call that another provider ran is written as
    /// ours. Its result must follow in a user message, so text that came after the result comes after that
    /// message.
    fn assistant(&mut self, message: &'a Message) {
        let mut said: Vec<Block<'a>> = Vec::new();
        let mut answers: Vec<Block<'a>> = Vec::new();
        let mut exact: Vec<&str> = Vec::new();
        for part in message.content.iter().filter(|part| can_carry(message.role, part)) {
            if !answers.is_empty() && !matches!(part, Part::ToolResult(_)) {
                self.say(ASSISTANT, std::mem::take(&mut said));
                self.say(USER, std::mem::take(&mut answers));
            }
            match part {
                Part::Text(part) if is_said(&part.text) => {
                    said.push(Block::text(part.text.as_str()));
                }
                Part::Text(_) => {}
                Part::Reasoning(part) => said.extend(self.reasoning(part)),
                Part::Media(media) => said.push(Block::text(not_shown(&media.mime))),
                Part::ToolCall(call) if call.provider_executed => {
                    let state = call.provider_metadata.as_ref();
                    if let Some(HostedState { block }) = self.owner.read(state) {
                        exact.push(&call.id);
                        said.push(Block::Exact(block));
                    } else if hosted_result(message, &call.id).is_some() {
                        said.push(self.call(call));
                    }
                }
                Part::ToolCall(call) => said.push(self.call(call)),
                Part::ToolResult(result) => {
                    let state = result.provider_metadata.as_ref();
                    match self.owner.read(state) {
                        Some(HostedState { block }) if exact.contains(&&*result.id) => {
                            said.push(Block::Exact(block));
                        }
                        Some(_) | None if exact.contains(&&*result.id) => {}
                        Some(_) | None => answers.push(self.result(result)),
                    }
                }
            }
        }
        self.say(ASSISTANT, said);
        self.say(USER, answers);
    }

    fn call(&mut self, call: &'a ToolCall) -> Block<'a> {
        let id = self.ids.of_call(&call.id);
        let name = tool_name(&call.name);
        Typed::ToolUse { id, name, input: arguments::object(&call.arguments) }.into()
    }

    /// Writes reasoning: signed for its own model, as text for another.
    fn reasoning(&self, part: &'a TextPart) -> Option<Block<'a>> {
        let state: Option<ReasoningState> = self.owner.read(part.provider_metadata.as_ref());
        match state {
            Some(ReasoningState { block: Some(block), .. }) => Some(Block::Exact(block)),
            Some(ReasoningState { redacted: Some(data), .. }) => {
                Some(Block::Thought(Thought::RedactedThinking { data }))
            }
            Some(ReasoningState { signature: Some(signature), .. }) => {
                Some(Block::Thought(Thought::Thinking { thinking: &part.text, signature }))
            }
            Some(ReasoningState { signature: None, redacted: None, block: None }) | None => {
                is_said(&part.text).then(|| Block::text(part.text.as_str()))
            }
        }
    }

    /// Puts each mark on the last block of its message that can take one, or of an earlier message.
    fn mark(&mut self, marks: &Breakpoints) {
        if marks.messages.is_empty() {
            return;
        }
        let blocks = self.messages.iter_mut().flat_map(|message| &mut message.content);
        let mut blocks: Vec<_> = blocks.zip(&self.from).collect();
        for mark in &marks.messages {
            let control = blocks.iter_mut().rev().find_map(|(block, from)| match block {
                Block::Typed { cache_control, .. } if **from <= *mark => Some(cache_control),
                Block::Typed { .. } | Block::Thought(_) | Block::Exact(_) => None,
            });
            if let Some(control) = control {
                *control = Some(CacheControl::of(marks.ttl_seconds));
            }
        }
    }
}

/// Returns the message's result for a call that a provider ran.
fn hosted_result<'a>(message: &'a Message, id: &str) -> Option<&'a ToolResult> {
    message.content.iter().find_map(|part| match part {
        Part::ToolResult(result) if result.id == id => Some(result),
        Part::Text(_)
        | Part::Reasoning(_)
        | Part::Media(_)
        | Part::ToolCall(_)
        | Part::ToolResult(_) => None,
    })
}

fn media<'a>(mime: &'a str, data: &'a str) -> Typed<'a> {
    let mime = if mime == "image/jpg" { "image/jpeg" } else { mime };
    let source = if is_url(data) {
        Source::Url { url: data }
    } else {
        Source::Base64 { media_type: mime, data }
    };
    match mime {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => Typed::Image { source },
        "application/pdf" => Typed::Document { source },
        _ => Typed::Text { text: not_shown(mime).into() },
    }
}

/// Returns a result's content. A failure must have content, and only text.
fn result_content(result: &ToolResult) -> Content<'_> {
    let is_media = |content: &ToolContent| matches!(content, ToolContent::Media { .. });
    if !result.is_error && result.content.iter().any(is_media) {
        let blocks = result.content.iter().filter_map(|content| match content {
            ToolContent::Text { text } => {
                is_said(text).then(|| Typed::Text { text: text.as_str().into() })
            }
            ToolContent::Media { mime, data } => Some(media(mime, data)),
        });
        return Content::Blocks(blocks.collect());
    }
    let texts: Vec<Cow<'_, str>> = result
        .content
        .iter()
        .map(|content| match content {
            ToolContent::Text { text } => text.as_str().into(),
            ToolContent::Media { mime, .. } => not_shown(mime).into(),
        })
        .collect();
    let text = match <[_; 1]>::try_from(texts) {
        Ok([text]) => text,
        Err(texts) => texts.join("\n").into(),
    };
    if result.is_error && !is_said(&text) {
        return Content::Text("the call failed and said nothing".into());
    }
    Content::Text(text)
}
