//! Writes the conversation as chat messages.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::arguments::object_text;
use crate::cache::{Breakpoints, CacheControl};
use crate::call_ids::{CallIds, short_id, tool_name};
use crate::dialect::{Dialect, Instructions, wrap_instructions};
use crate::json::RawJson;
use crate::media::not_shown;
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::openai_chat::content::{Content, ContentPart, join};
use crate::openai_chat::encode::{Function, function};
use crate::openai_chat::{RAW_ARGUMENTS, RAW_NAMES};
use crate::protocol::body::Source;
use crate::request::SystemPart;
use crate::state::StateOwner;

/// The beginning of an error result's text, because the protocol has no flag for errors.
const ERROR_PREFIX: &str = "Error: ";

/// An assistant text between results and the user, for deployments that require one.
const RESULTS_SEEN: &str = "I have seen the results.";

/// The field for OpenRouter's list of reasoning, verbatim. Any other field takes the text.
/// <https://openrouter.ai/docs/use-cases/reasoning-tokens>
const REASONING_DETAILS: &str = "reasoning_details";

/// The fields in which GitHub Copilot takes its reasoning back. It accepts the text only with its seal.
/// <https://github.com/anomalyco/opencode/pull/8900>
const COPILOTS: [&str; 2] = ["reasoning_text", "reasoning_opaque"];

pub(super) struct WireMessage<'a> {
    role: &'static str,
    tool_call_id: Option<Cow<'a, str>>,
    /// Null only beside tool calls.
    content: Option<Content<'a>>,
    tool_calls: Vec<WireCall<'a>>,
    reasoning: Option<(&'a str, Reasoning<'a>)>,
    opaque: Option<RawJson>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Reasoning<'a> {
    Text(Cow<'a, str>),
    Details(Vec<RawJson>),
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    call: Function<CalledFunction<'a>>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ReasoningState {
    #[serde(default)]
    details: Vec<RawJson>,
    opaque: Option<RawJson>,
}

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", self.role)?;
        if let Some(id) = &self.tool_call_id {
            message.serialize_entry("tool_call_id", id)?;
        }
        message.serialize_entry("content", &self.content)?;
        if !self.tool_calls.is_empty() {
            message.serialize_entry("tool_calls", &self.tool_calls)?;
        }
        if let Some((field, reasoning)) = &self.reasoning {
            message.serialize_entry(field, reasoning)?;
        }
        if let Some(opaque) = &self.opaque {
            message.serialize_entry(COPILOTS[1], opaque)?;
        }
        message.end()
    }
}

impl<'a> WireMessage<'a> {
    fn new(role: &'static str, content: Option<Content<'a>>) -> Self {
        let (tool_call_id, tool_calls) = (None, Vec::new());
        Self { role, tool_call_id, content, tool_calls, reasoning: None, opaque: None }
    }

    /// Returns whether `next` may become a part of this message. Chat templates of Gemma, Mistral and others refuse
    /// two messages of one role in a row ("Conversation roles must alternate").
    fn is_continued_by(&self, next: &Self) -> bool {
        let joins = [Role::User.as_str(), Role::Assistant.as_str()].contains(&self.role);
        joins && self.role == next.role && self.tool_calls.is_empty()
    }

    /// Appends a message of the same role, with an empty line between the texts.
    fn append(&mut self, next: Self) {
        self.content = match (self.content.take(), next.content) {
            (Some(first), Some(second)) => Some(first.followed_by(second)),
            (first, second) => first.or(second),
        };
        self.tool_calls = next.tool_calls;
        self.reasoning = match (self.reasoning.take(), next.reasoning) {
            (Some((field, first)), Some((_, second))) => Some((field, first.followed_by(second))),
            (first, second) => first.or(second),
        };
        self.opaque = next.opaque.or(self.opaque.take());
    }
}

impl Reasoning<'_> {
    /// Joins the reasoning of two messages. Both are of the same form, because one field takes one form.
    fn followed_by(self, next: Self) -> Self {
        match (self, next) {
            (Self::Text(first), Self::Text(second)) => {
                Self::Text(format!("{first}\n\n{second}").into())
            }
            (Self::Details(mut first), Self::Details(second)) => {
                first.extend(second);
                Self::Details(first)
            }
            (Self::Text(_), next @ Self::Details(_)) | (Self::Details(_), next @ Self::Text(_)) => {
                next
            }
        }
    }
}

/// The state that all messages are written with.
struct Writer<'a> {
    dialect: &'a Dialect,
    owner: &'a StateOwner,
    marks: Breakpoints,
    messages: Vec<WireMessage<'a>>,
    /// Media of the current batch's results.
    shown: Vec<ContentPart<'a>>,
    /// Rewrites ids of calls for deployments that accept only some.
    ids: Option<CallIds<'a>>,
    /// Sends arguments as the model's text, as the first wire version did.
    raw_arguments: bool,
    /// Sends names and ids of calls as they came, as the versions before the third did.
    raw_names: bool,
}

pub(super) fn messages(source: Source<'_>) -> Vec<WireMessage<'_>> {
    let Source { request, dialect, owner, version } = source;
    let marks =
        if dialect.inline_cache { Breakpoints::of(request) } else { Breakpoints::default() };
    let messages = Vec::with_capacity(request.messages.len() + 1);
    let ids = dialect.call_ids.map(CallIds::of);
    let (raw_arguments, raw_names) = (version <= RAW_ARGUMENTS, version <= RAW_NAMES);
    let shown = Vec::new();
    let mut writer =
        Writer { dialect, owner, marks, messages, shown, ids, raw_arguments, raw_names };
    writer.system(&request.system);
    for (at, message) in request.messages.iter().enumerate() {
        let first = writer.messages.len();
        writer.message(message);
        let next = request.messages.get(at + 1).map(|message| message.role);
        if next != Some(Role::Tool) {
            writer.show();
        }
        if writer.marks.messages.contains(&at) {
            writer.mark_from(first);
        }
    }
    writer.messages
}

impl<'a> Writer<'a> {
    /// Adds a message that is not a result, or joins it with the one before. Mistral refuses a user message right after results (`Unexpected
    /// role 'user' after role 'tool'`, <https://github.com/zed-industries/zed/issues/37021>), so an assistant
    /// text goes in between.
    fn push(&mut self, message: WireMessage<'a>) {
        let after_results =
            self.messages.last().is_some_and(|last| last.role == Role::Tool.as_str());
        if self.dialect.answers_results && after_results && message.role != Role::Assistant.as_str()
        {
            let said = Some(Content::Text(RESULTS_SEEN.into()));
            self.messages.push(WireMessage::new(Role::Assistant.as_str(), said));
        }
        match self.messages.last_mut() {
            Some(last) if self.dialect.joins_messages && last.is_continued_by(&message) => {
                last.append(message);
            }
            Some(_) | None => self.messages.push(message),
        }
    }

    fn system(&mut self, parts: &'a [SystemPart]) {
        let control = CacheControl::of(self.marks.ttl_seconds);
        let part = |(at, SystemPart::Text { text }): (usize, &'a SystemPart)| {
            let mut part = ContentPart::text(text.as_str());
            part.cache_control = self.marks.system.contains(&at).then_some(control);
            part
        };
        let content = Content::of(parts.iter().enumerate().map(part).collect());
        if content.is_some() {
            self.messages.push(WireMessage::new(self.instructions_role(), content));
        }
    }

    fn instructions_role(&self) -> &'static str {
        match self.dialect.instructions {
            Some(Instructions::Developer) => "developer",
            Some(Instructions::System | Instructions::Wrapped) | None => Role::System.as_str(),
        }
    }

    fn message(&mut self, message: &'a Message) {
        let mut parts = Vec::new();
        let mut tool_calls = Vec::new();
        let mut results = Vec::new();
        for part in message.content.iter().filter(|part| can_carry(message.role, part)) {
            match part {
                Part::Text(part) => parts.push(ContentPart::text(part.text.as_str())),
                Part::Media(media) if message.role == Role::User => {
                    let part = ContentPart::media(&media.mime, &media.data);
                    parts.push(part.unwrap_or_else(ContentPart::text));
                }
                Part::Media(media) => parts.push(ContentPart::text(not_shown(&media.mime))),
                Part::ToolCall(call) => tool_calls.push(self.call(call)),
                Part::ToolResult(result) => results.push(result),
                Part::Reasoning(_) => {}
            }
        }
        let content = Content::of(parts);
        if content.is_some() || !tool_calls.is_empty() {
            self.said(message, content, tool_calls);
        }
        self.results(&results);
    }

    fn said(
        &mut self,
        message: &'a Message,
        content: Option<Content<'a>>,
        tool_calls: Vec<WireCall<'a>>,
    ) {
        let role = match message.role {
            Role::System => self.instructions_role(),
            Role::User | Role::Assistant | Role::Tool => message.role.as_str(),
        };
        let wraps = self.dialect.instructions == Some(Instructions::Wrapped);
        let (role, content) = match content {
            Some(Content::Text(text)) if wraps && message.role == Role::System => {
                (Role::User.as_str(), Some(Content::Text(wrap_instructions(&text).into())))
            }
            content => (role, content),
        };
        let opaque = self.opaque(message);
        let field = opaque.as_ref().map(|_| COPILOTS[0]);
        let reasoning = self.reasoning(message, field.or(self.dialect.reasoning_field.as_deref()));
        self.push(WireMessage { tool_calls, reasoning, opaque, ..WireMessage::new(role, content) });
    }

    fn call(&mut self, call: &'a ToolCall) -> WireCall<'a> {
        let ToolCall { id, name, arguments, .. } = call;
        let id = match &mut self.ids {
            Some(ids) => ids.of_call(id),
            None if self.raw_names => Cow::Borrowed(id.as_str()),
            None => short_id(id),
        };
        let name = if self.raw_names { Cow::Borrowed(name.as_str()) } else { tool_name(name) };
        let arguments = if self.raw_arguments {
            Cow::Borrowed(arguments.as_str())
        } else {
            object_text(arguments)
        };
        WireCall { id, call: function(CalledFunction { name, arguments }) }
    }

    /// Returns the opaque state that Copilot sent with a message's reasoning.
    fn opaque(&self, message: &Message) -> Option<RawJson> {
        let states = thoughts(message).filter_map(|thought| thought.provider_metadata.as_ref());
        let read = |state| self.owner.read::<ReasoningState>(Some(state))?.opaque;
        states.filter_map(read).last()
    }

    /// Returns a message's reasoning, if the deployment accepts it.
    fn reasoning(
        &self,
        message: &'a Message,
        field: Option<&'a str>,
    ) -> Option<(&'a str, Reasoning<'a>)> {
        let field = field?;
        let thoughts = thoughts(message);
        if field != REASONING_DETAILS {
            // Copilot's reasoning parts without text only seal the others.
            let says = |text: &&str| field != COPILOTS[0] || !text.is_empty();
            let texts = thoughts.map(|thought| thought.text.as_str()).filter(says);
            let text = join(texts.map(Cow::Borrowed));
            let needs = self.dialect.reasoning_with_calls && has_calls(message);
            let text = text.or_else(|| needs.then_some(Cow::Borrowed("")))?;
            return Some((field, Reasoning::Text(text)));
        }
        let details = thoughts
            .filter_map(|thought| self.owner.read(thought.provider_metadata.as_ref()))
            .flat_map(|state: ReasoningState| state.details);
        let details: Vec<_> = details.collect();
        (!details.is_empty()).then_some((field, Reasoning::Details(details)))
    }

    /// Writes one message per result, so that every call has its answer. Results inside an assistant message
    /// (of calls that another provider ran) follow it. Tool messages hold only text.
    fn results(&mut self, results: &[&'a ToolResult]) {
        for result in results {
            let mut texts = Vec::new();
            let before = self.shown.len();
            for content in &result.content {
                match content {
                    ToolContent::Text { text } => texts.push(Cow::Borrowed(text.as_str())),
                    ToolContent::Media { mime, data } => match ContentPart::media(mime, data) {
                        Ok(part) => {
                            texts.push(format!("[{mime}: in the next message]").into());
                            self.shown.push(part);
                        }
                        Err(text) => texts.push(text.into()),
                    },
                }
            }
            if self.shown.len() > before {
                let whose = format!("[result of {} {}]", result.name, result.id);
                self.shown.insert(before, ContentPart::text(whose));
            }
            let text = join(texts.into_iter()).unwrap_or_default();
            let text = if result.is_error { format!("{ERROR_PREFIX}{text}").into() } else { text };
            let answer = WireMessage::new(Role::Tool.as_str(), Some(Content::Text(text)));
            let id = match &self.ids {
                Some(ids) => ids.of_result(&result.id),
                None if self.raw_names => Cow::Borrowed(result.id.as_str()),
                None => short_id(&result.id),
            };
            self.messages.push(WireMessage { tool_call_id: Some(id), ..answer });
        }
    }

    /// Writes the results' media as a user message after all results of the batch, because nothing may stand
    /// between results.
    fn show(&mut self) {
        if !self.shown.is_empty() {
            let content = Some(Content::Parts(std::mem::take(&mut self.shown)));
            self.push(WireMessage::new(Role::User.as_str(), content));
        }
    }

    /// Marks the last part written since `first`. A marked text becomes a list of one part.
    fn mark_from(&mut self, first: usize) {
        let control = CacheControl::of(self.marks.ttl_seconds);
        let written = self.messages[first..].iter_mut().rev();
        let Some(content) = written.filter_map(|message| message.content.as_mut()).next() else {
            return;
        };
        if let Content::Text(text) = content {
            if text.is_empty() {
                return; // an empty text cannot be marked
            }
            *content = Content::Parts(vec![ContentPart::text(std::mem::take(text))]);
        }
        if let Content::Parts(parts) = content
            && let Some(last) = parts.last_mut()
        {
            last.cache_control = Some(control);
        }
    }
}

fn has_calls(message: &Message) -> bool {
    message.content.iter().any(|part| matches!(part, Part::ToolCall(_)))
}

fn thoughts(message: &Message) -> impl Iterator<Item = &TextPart> {
    message.content.iter().filter_map(|part| match part {
        Part::Reasoning(thought) => Some(thought),
        Part::Text(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    })
}
