//! Writes the conversation as contents of parts.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::arguments;
use crate::call_ids::function_name;
use crate::dialect::wrap_instructions;
use crate::json::RawJson;
use crate::media::{is_url, not_shown};
use crate::message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::request::LlmRequest;
use crate::state::StateOwner;

#[derive(Serialize)]
pub(super) struct Content<'a> {
    role: &'static str,
    parts: Vec<WirePart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WirePart<'a> {
    Made(MadePart<'a>),
    /// A part that the provider sent, verbatim.
    Exact(RawJson),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MadePart<'a> {
    #[serde(flatten)]
    body: Body<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<RawJson>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Body<'a> {
    Text(Cow<'a, str>),
    InlineData(InlineData<'a>),
    FileData(FileData<'a>),
    FunctionCall(FunctionCall<'a>),
    FunctionResponse(FunctionResponse<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData<'a> {
    mime_type: &'a str,
    file_uri: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: Cow<'a, str>,
    args: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RawJson>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RawJson>,
    response: Outcome<'a>,
    /// Media that the model sees with the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Body<'a>>,
}

/// The result of a call. Gemini accepts any object; only `error` has a special meaning.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Done { name: Cow<'a, str>, content: Cow<'a, str> },
    Failed { error: Cow<'a, str> },
}

/// The provider state of our own thoughts and texts.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TextState {
    thought: bool,
    thought_signature: Option<RawJson>,
}

/// The provider state of our own calls.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CallState {
    id: Option<RawJson>,
    thought_signature: Option<RawJson>,
}

/// The provider state of code that the provider ran.
#[derive(Deserialize)]
struct HostedState {
    part: RawJson,
}

impl<'a> From<Body<'a>> for WirePart<'a> {
    fn from(body: Body<'a>) -> Self {
        Self::Made(MadePart { body, thought: false, thought_signature: None })
    }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> WirePart<'a> {
    Body::Text(text.into()).into()
}

/// Writes the conversation. With `raw_names`, names of calls are sent as they came.
pub(super) fn contents<'a>(
    request: &'a LlmRequest,
    owner: &'a StateOwner,
    raw_names: bool,
) -> Vec<Content<'a>> {
    let third = is_third_generation(&request.model);
    let (contents, call_ids) = (Vec::new(), HashMap::new());
    let mut writer = Writer { owner, contents, call_ids, third, raw_names };
    for message in &request.messages {
        match message.role {
            Role::User => writer.user(message),
            Role::Assistant => writer.assistant(message),
            Role::Tool => writer.results(message),
            Role::System => writer.instructions(message),
        }
    }
    writer.contents
}

const USER: &str = "user";
const MODEL: &str = "model";

/// Google's own stand-in for the signature of calls that another model made. From Gemini 3 on, it refuses a
/// batch of calls whose first call has no signature.
/// <https://ai.google.dev/gemini-api/docs/thought-signatures#faqs>
const FOREIGN_SIGNATURE: &str = "\"skip_thought_signature_validator\"";

fn is_third_generation(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let generation = name.strip_prefix("gemini-").and_then(|rest| {
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    generation.is_some_and(|generation| generation >= 3)
}

struct Writer<'a> {
    owner: &'a StateOwner,
    contents: Vec<Content<'a>>,
    /// The provider's ids of its calls, by ours.
    call_ids: HashMap<&'a str, RawJson>,
    /// The model is of the third generation or later: calls of other models need a stand-in signature, and
    /// media of a result go inside the result.
    third: bool,
    /// Sends names of calls as they came, as the first wire version did.
    raw_names: bool,
}

impl<'a> Writer<'a> {
    /// Returns a call's name as this version sends it.
    fn fit_name(&self, name: &'a str) -> Cow<'a, str> {
        if self.raw_names { Cow::Borrowed(name) } else { function_name(name) }
    }

    /// Adds parts. Roles alternate, so consecutive parts of one role become one content.
    fn say(&mut self, role: &'static str, parts: Vec<WirePart<'a>>) {
        match self.contents.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == role => last.parts.extend(parts),
            Some(_) | None => self.contents.push(Content { role, parts }),
        }
    }

    fn user(&mut self, message: &'a Message) {
        let parts = message.content.iter().filter_map(|part| match part {
            Part::Text(part) => (!part.text.is_empty()).then(|| text(part.text.as_str())),
            Part::Media(part) => Some(media(&part.mime, &part.data).into()),
            Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        });
        let parts = parts.collect();
        self.say(USER, parts);
    }

    /// Writes instructions in the middle as user content, because Gemini has no role for them.
    fn instructions(&mut self, message: &Message) {
        let texts = message.content.iter().filter_map(|part| match part {
            Part::Text(part) => Some(part.text.as_str()),
            Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        });
        let said = texts.collect::<Vec<_>>().join("\n");
        if !said.is_empty() {
            self.say(USER, vec![text(wrap_instructions(&said))]);
        }
    }

    fn results(&mut self, message: &'a Message) {
        let mut parts = Vec::new();
        for part in &message.content {
            match part {
                Part::ToolResult(result) => self.result(result, &mut parts),
                Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => {}
            }
        }
        self.say(USER, parts);
    }

    /// Writes a result. Its images go inside it if the model accepts that, otherwise after it.
    /// <https://ai.google.dev/gemini-api/docs/function-calling#multimodal>
    fn result(&self, result: &'a ToolResult, parts: &mut Vec<WirePart<'a>>) {
        let texts: Vec<&str> = result
            .content
            .iter()
            .filter_map(|content| match content {
                ToolContent::Text { text } => Some(text.as_str()),
                ToolContent::Media { .. } => None,
            })
            .collect();
        let content = match texts[..] {
            [one] => Cow::Borrowed(one),
            _ => texts.join("\n").into(),
        };
        let name = self.fit_name(&result.name);
        let response = if result.is_error {
            Outcome::Failed { error: content }
        } else {
            Outcome::Done { name: name.clone(), content }
        };
        let id = self.call_ids.get(result.id.as_str()).cloned();
        let media = result.content.iter().filter_map(|content| match content {
            ToolContent::Media { mime, data } => Some(media(mime, data)),
            ToolContent::Text { .. } => None,
        });
        let (within, after): (Vec<_>, Vec<_>) =
            media.partition(|media| self.third && is_shown(media));
        let answer = FunctionResponse { name, id, response, parts: within };
        parts.push(Body::FunctionResponse(answer).into());
        parts.extend(after.into_iter().map(WirePart::from));
    }

    /// Writes the model's text, thoughts and calls, in order. Code that another provider ran is written as a
    /// call of ours. Its result must follow in a user content, so text that came after the result comes after
    /// that content.
    fn assistant(&mut self, message: &'a Message) {
        let mut said: Vec<WirePart<'a>> = Vec::new();
        let mut answers: Vec<WirePart<'a>> = Vec::new();
        let mut exact: Vec<&str> = Vec::new();
        let mut batch_begins = true;
        for part in message.content.iter().filter(|part| can_carry(message.role, part)) {
            if !answers.is_empty() && !matches!(part, Part::ToolResult(_)) {
                self.say(MODEL, std::mem::take(&mut said));
                self.say(USER, std::mem::take(&mut answers));
                batch_begins = true;
            }
            match part {
                Part::Text(part) => said.extend(self.text(part)),
                Part::Reasoning(part) => said.extend(self.reasoning(part)),
                Part::Media(media) => said.push(text(not_shown(&media.mime))),
                Part::ToolCall(call) if call.provider_executed => {
                    let state = call.provider_metadata.as_ref();
                    if let Some(HostedState { part }) = self.owner.read(state) {
                        exact.push(&call.id);
                        said.push(WirePart::Exact(part));
                    } else if has_result(message, &call.id) {
                        said.push(self.call(call, std::mem::take(&mut batch_begins)));
                    }
                }
                Part::ToolCall(call) => {
                    said.push(self.call(call, std::mem::take(&mut batch_begins)));
                }
                Part::ToolResult(result) if exact.contains(&&*result.id) => {
                    let state = result.provider_metadata.as_ref();
                    if let Some(HostedState { part }) = self.owner.read(state) {
                        said.push(WirePart::Exact(part));
                    }
                }
                Part::ToolResult(result) => self.result(result, &mut answers),
            }
        }
        self.say(MODEL, said);
        self.say(USER, answers);
    }

    fn call(&mut self, call: &'a ToolCall, is_first: bool) -> WirePart<'a> {
        let state: CallState = self.owner.read(call.provider_metadata.as_ref()).unwrap_or_default();
        match &state.id {
            Some(id) => self.call_ids.insert(&call.id, id.clone()),
            None => self.call_ids.remove(call.id.as_str()),
        };
        let stand_in = || {
            let signature = RawJson::parse(FOREIGN_SIGNATURE).expect("it is JSON");
            (is_first && self.third).then_some(signature)
        };
        let args = arguments::object(&call.arguments);
        let name = self.fit_name(&call.name);
        WirePart::Made(MadePart {
            body: Body::FunctionCall(FunctionCall { name, args, id: state.id }),
            thought: false,
            thought_signature: state.thought_signature.or_else(stand_in),
        })
    }

    fn text(&self, part: &'a TextPart) -> Option<WirePart<'a>> {
        let state: TextState = self.owner.read(part.provider_metadata.as_ref()).unwrap_or_default();
        let is_said = !part.text.is_empty() || state.thought_signature.is_some();
        is_said.then(|| {
            WirePart::Made(MadePart {
                body: Body::Text(part.text.as_str().into()),
                thought: false,
                thought_signature: state.thought_signature,
            })
        })
    }

    /// Writes reasoning: as a thought for its own model, as text for another.
    fn reasoning(&self, part: &'a TextPart) -> Option<WirePart<'a>> {
        let state: Option<TextState> = self.owner.read(part.provider_metadata.as_ref());
        let Some(TextState { thought, thought_signature }) = state else {
            return (!part.text.is_empty()).then(|| text(part.text.as_str()));
        };
        let body = Body::Text(part.text.as_str().into());
        Some(WirePart::Made(MadePart { body, thought, thought_signature }))
    }
}

/// Returns whether the message holds the result of a call that a provider ran.
fn has_result(message: &Message, id: &str) -> bool {
    message.content.iter().any(|part| match part {
        Part::ToolResult(result) => result.id == id,
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => false,
    })
}

fn media<'a>(mime: &'a str, data: &'a str) -> Body<'a> {
    if is_url(data) {
        Body::FileData(FileData { mime_type: mime, file_uri: data })
    } else {
        Body::InlineData(InlineData { mime_type: mime, data })
    }
}

/// Returns whether a result can contain this media.
fn is_shown(media: &Body<'_>) -> bool {
    let known = ["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"];
    matches!(media, Body::InlineData(data) if known.contains(&data.mime_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_generation_is_told_by_its_name() {
        for (model, required) in [
            ("gemini-2.5-flash", false),
            ("gemini-3-pro-preview", true),
            ("publishers/google/models/gemini-3.1-pro", true),
            ("gemini-flash-latest", false),
            ("gemma-3-27b-it", false),
        ] {
            assert_eq!(is_third_generation(model), required, "{model}");
        }
    }
}
