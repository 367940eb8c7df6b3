//! Writes the conversation as a list of input items.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::arguments::object_text;
use crate::call_ids::{CallIds, tool_name};
use crate::dialect::{Instructions, wrap_instructions};
use crate::json::RawJson;
use crate::media::{data_url, not_shown};
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::openai_responses::{LONE_REASONING, RAW_ARGUMENTS};
use crate::protocol::body::Source;
use crate::request::SystemPart;
use crate::state::StateOwner;

/// The beginning of an error result's text, because the protocol has no flag for errors.
const ERROR_PREFIX: &str = "Error: ";

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Item<'a> {
    Instructions {
        role: &'static str,
        content: String,
    },
    Said {
        role: &'static str,
        content: Vec<Content<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<RawJson>,
    },
    Typed(Typed<'a>),
    /// An item that the provider sent, verbatim.
    Exact(RawJson),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Typed<'a> {
    Reasoning(Thought<'a>),
    FunctionCall { call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: Cow<'a, str> },
    FunctionCallOutput { call_id: Cow<'a, str>, output: Output<'a> },
}

/// Reasoning of this provider, verbatim.
#[derive(Serialize)]
pub(super) struct Thought<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RawJson>,
    summary: Summary<'a>,
    /// The visible reasoning of models that do not hide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encrypted_content: Option<RawJson>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Summary<'a> {
    Exact(RawJson),
    Texts(Vec<Content<'a>>),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Output<'a> {
    Text(Cow<'a, str>),
    List(Vec<Content<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    InputText {
        text: Cow<'a, str>,
    },
    OutputText {
        text: Cow<'a, str>,
    },
    SummaryText {
        text: &'a str,
    },
    InputImage {
        image_url: Cow<'a, str>,
    },
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
    },
}

/// The provider state of our own reasoning.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningState {
    item_id: Option<RawJson>,
    encrypted_content: Option<RawJson>,
    summary: Option<RawJson>,
    content: Option<RawJson>,
    /// A whole item of another kind.
    item: Option<RawJson>,
}

#[derive(Deserialize)]
struct TextState {
    phase: Option<RawJson>,
}

#[derive(Deserialize)]
struct HostedState {
    item: Option<RawJson>,
}

pub(super) fn items(source: Source<'_>) -> Vec<Item<'_>> {
    let Source { request, dialect, owner, version } = source;
    let older = Older {
        raw_arguments: version <= RAW_ARGUMENTS,
        lone_reasoning: version <= LONE_REASONING,
    };
    let role = match dialect.instructions {
        Some(Instructions::Developer) => "developer",
        Some(Instructions::System | Instructions::Wrapped) | None => Role::System.as_str(),
    };
    let wrapped = dialect.instructions == Some(Instructions::Wrapped);
    let mut items = Vec::with_capacity(request.messages.len() + 1);
    let mut ids = CallIds::any();
    let system: Vec<_> = request.system.iter().map(|SystemPart::Text { text }| &**text).collect();
    let content = system.join("\n");
    if !content.is_empty() {
        items.push(Item::Instructions { role, content });
    }
    for message in &request.messages {
        match message.role {
            Role::System => items.extend(instructions(message, role, wrapped)),
            Role::User => items.extend(user(message)),
            Role::Assistant => {
                assistant(message, owner, older, &mut ids, &mut items);
            }
            Role::Tool => items.extend(results(message, &ids)),
        }
    }
    items
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|part| match part {
        Part::Text(part) => Some(part.text.as_str()),
        Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    })
}

fn instructions<'a>(message: &Message, role: &'static str, wrapped: bool) -> Option<Item<'a>> {
    let content = texts(message).collect::<Vec<_>>().join("\n");
    if content.is_empty() {
        return None;
    }
    if !wrapped {
        return Some(Item::Instructions { role, content });
    }
    let content = vec![Content::InputText { text: wrap_instructions(&content).into() }];
    Some(Item::Said { role: Role::User.as_str(), content, phase: None })
}

fn user(message: &Message) -> Option<Item<'_>> {
    let content = message.content.iter().filter_map(|part| match part {
        Part::Text(part) => input_text(&part.text),
        Part::Media(media) => Some(input_media(&media.mime, &media.data)),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    });
    let content: Vec<_> = content.collect();
    let role = Role::User.as_str();
    (!content.is_empty()).then_some(Item::Said { role, content, phase: None })
}

fn input_text(text: &str) -> Option<Content<'_>> {
    (!text.is_empty()).then_some(Content::InputText { text: text.into() })
}

/// Returns an image or a PDF document; other types become text, because the protocol does not accept them.
fn input_media<'a>(mime: &'a str, data: &'a str) -> Content<'a> {
    if mime.starts_with("image/") {
        return Content::InputImage { image_url: data_url(mime, data) };
    }
    if mime != "application/pdf" {
        return Content::InputText { text: not_shown(mime).into() };
    }
    match data_url(mime, data) {
        Cow::Borrowed(url) => {
            Content::InputFile { filename: None, file_data: None, file_url: Some(url) }
        }
        Cow::Owned(data) => Content::InputFile {
            filename: Some("document.pdf"),
            file_data: Some(data.into()),
            file_url: None,
        },
    }
}

/// What older versions of the written bytes did.
#[derive(Clone, Copy)]
struct Older {
    /// A call's arguments are the model's text.
    raw_arguments: bool,
    /// Reasoning that no item of its message follows is sent.
    lone_reasoning: bool,
}

/// Writes the model's text, thoughts and calls, in order.
fn assistant<'a>(
    message: &'a Message,
    owner: &StateOwner,
    older: Older,
    ids: &mut CallIds<'a>,
    items: &mut Vec<Item<'a>>,
) {
    let first = items.len();
    let mut answered = first;
    let mut exact: Vec<&str> = Vec::new();
    for part in message.content.iter().filter(|part| can_carry(message.role, part)) {
        match part {
            Part::Text(part) => items.extend(output_text(part, owner)),
            Part::Reasoning(part) => reason(part, owner, items),
            Part::Media(media) => items.push(said(not_shown(&media.mime).into(), None)),
            Part::ToolCall(ToolCall { id, .. }) | Part::ToolResult(ToolResult { id, .. })
                if exact.contains(&id.as_str()) => {}
            Part::ToolCall(ToolCall { id, name, arguments, .. }) => {
                items.push(if let Some(item) = hosted_item(message, id, owner) {
                    exact.push(id);
                    Item::Exact(item)
                } else {
                    let (call_id, name) = (ids.of_call(id), tool_name(name));
                    let arguments = if older.raw_arguments {
                        Cow::Borrowed(arguments.as_str())
                    } else {
                        object_text(arguments)
                    };
                    Item::Typed(Typed::FunctionCall { call_id, name, arguments })
                });
            }
            Part::ToolResult(result) => items.push(output(result, ids)),
        }
        if !is_own_reasoning(part, owner) {
            answered = items.len();
        }
    }
    // Reasoning that nothing follows is refused: "reasoning was provided without its required following item".
    if !older.lone_reasoning {
        items.truncate(answered);
    }
    // A server that stores nothing cannot find reasoning by its id alone.
    let is_known = |item: &Item<'_>| match item {
        Item::Typed(Typed::Reasoning(thought)) => {
            thought.encrypted_content.is_some() || thought.content.is_some()
        }
        Item::Typed(Typed::FunctionCall { .. } | Typed::FunctionCallOutput { .. })
        | Item::Instructions { .. }
        | Item::Said { .. }
        | Item::Exact(_) => true,
    };
    let said = items.split_off(first);
    items.extend(said.into_iter().filter(is_known));
}

fn said<'a>(text: Cow<'a, str>, phase: Option<RawJson>) -> Item<'a> {
    let content = vec![Content::OutputText { text }];
    Item::Said { role: Role::Assistant.as_str(), content, phase }
}

fn output_text<'a>(part: &'a TextPart, owner: &StateOwner) -> Option<Item<'a>> {
    let state: Option<TextState> = owner.read(part.provider_metadata.as_ref());
    (!part.text.is_empty()).then(|| said(part.text.as_str().into(), state.and_then(|s| s.phase)))
}

/// Writes reasoning: verbatim for its own model, with parts of one item joined again; as text for another
/// model.
fn reason<'a>(part: &'a TextPart, owner: &StateOwner, items: &mut Vec<Item<'a>>) {
    let text = part.text.as_str();
    let Some(state) = owner.read::<ReasoningState>(part.provider_metadata.as_ref()) else {
        items.extend((!text.is_empty()).then(|| said(text.into(), None)));
        return;
    };
    let ReasoningState { item_id: id, encrypted_content, summary, content, item } = state;
    if let Some(item) = item {
        items.push(Item::Exact(item));
        return;
    }
    let says = !text.is_empty() && content.is_none();
    let text = says.then_some(Content::SummaryText { text });
    match items.last_mut() {
        Some(Item::Typed(Typed::Reasoning(last))) if id.is_some() && last.id == id => {
            if let Summary::Texts(texts) = &mut last.summary {
                texts.extend(text);
            }
            last.encrypted_content = encrypted_content.or(last.encrypted_content.take());
        }
        Some(_) | None => {
            let texts = || Summary::Texts(text.into_iter().collect());
            let summary = summary.map_or_else(texts, Summary::Exact);
            let thought = Thought { id, summary, content, encrypted_content };
            items.push(Item::Typed(Typed::Reasoning(thought)));
        }
    }
}

/// Returns whether a part becomes a reasoning item: text of another model's reasoning is an answer.
fn is_own_reasoning(part: &Part, owner: &StateOwner) -> bool {
    match part {
        Part::Reasoning(part) => {
            owner.read::<ReasoningState>(part.provider_metadata.as_ref()).is_some()
        }
        Part::Text(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => false,
    }
}

/// Returns the item of a call that this provider ran, from the state of its result.
fn hosted_item(message: &Message, id: &str, owner: &StateOwner) -> Option<RawJson> {
    let state = message.content.iter().find_map(|part| match part {
        Part::ToolResult(result) if result.id == id => result.provider_metadata.as_ref(),
        Part::Text(_)
        | Part::Reasoning(_)
        | Part::Media(_)
        | Part::ToolCall(_)
        | Part::ToolResult(_) => None,
    });
    owner.read::<HostedState>(state)?.item
}

fn results<'a>(message: &'a Message, ids: &CallIds<'a>) -> impl Iterator<Item = Item<'a>> {
    message.content.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(output(result, ids)),
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => None,
    })
}

/// Writes a result: one text if it has only texts, a list if it has media.
fn output<'a>(result: &'a ToolResult, ids: &CallIds<'a>) -> Item<'a> {
    let prefix = if result.is_error { ERROR_PREFIX } else { "" };
    let only_text = |content: &ToolContent| matches!(content, ToolContent::Text { .. });
    let output = match result.content.as_slice() {
        [ToolContent::Text { text }] if !result.is_error => Output::Text(text.into()),
        parts if parts.iter().all(only_text) => {
            let texts = parts.iter().filter_map(|part| match part {
                ToolContent::Text { text } => Some(text.as_str()),
                ToolContent::Media { .. } => None,
            });
            let joined = texts.collect::<Vec<_>>().join("\n");
            Output::Text(format!("{prefix}{joined}").into())
        }
        parts => {
            let flag =
                result.is_error.then(|| Content::InputText { text: prefix.trim_end().into() });
            let parts = parts.iter().filter_map(|part| match part {
                ToolContent::Text { text } => input_text(text),
                ToolContent::Media { mime, data } => Some(input_media(mime, data)),
            });
            Output::List(flag.into_iter().chain(parts).collect())
        }
    };
    Item::Typed(Typed::FunctionCallOutput { call_id: ids.of_result(&result.id), output })
}
