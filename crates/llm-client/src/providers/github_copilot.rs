//! GitHub Copilot. A [`crate::TokenSource`] gives its tokens. The client's identity is a setting, because
//! GitHub registers it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{COMPATIBLE, Model, Provider, Reach, Setup, SetupError, Spoken, openai};
use crate::{ByBody, Secret};

pub(super) const PROVIDER: Provider = Provider {
    speaks,
    reach,
    ..Provider::chat(
        "github-copilot",
        &["@ai-sdk/github-copilot", COMPATIBLE],
        "https://api.githubcopilot.com",
    )
};

/// OpenAI's newer models use Responses, all others chat.
fn speaks(model: &Model<'_>) -> Spoken {
    let is_newer = model.id.starts_with("gpt-5") && !model.id.starts_with("gpt-5-mini");
    if is_newer { openai::speaks(model) } else { Spoken::chat(model) }
}

/// Paths begin at the root.
fn reach(setup: &Setup<'_>) -> Result<Reach, SetupError> {
    let mut reach = setup.at_its_url()?.with_bearer();
    reach.endpoint.path = Some(speaks(&setup.model).protocol.path(setup.model.id));
    reach.endpoint.by_body = Some(ByBody(by_body));
    let intent = Secret::new("conversation-edits");
    reach.endpoint = reach.endpoint.with_header("openai-intent", intent);
    for (name, header) in [
        ("COPILOT_INTEGRATION_ID", "copilot-integration-id"),
        ("COPILOT_EDITOR_VERSION", "editor-version"),
    ] {
        if let Some(value) = setup.optional(name) {
            reach.endpoint = reach.endpoint.with_header(header, Secret::new(&value));
        }
    }
    Ok(reach)
}

/// The part of a body that its headers need, in chat or in Responses.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, alias = "input")]
    messages: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    role: Option<&'a str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
}

/// Returns the headers for a body. Copilot charges by initiator: the user with a prompt, or the agent with
/// results of tools. It refuses images that no header announces (`missing required Copilot-Vision-Request
/// header`).
fn by_body(body: &[u8]) -> Vec<(&'static str, &'static str)> {
    let Ok(Body { messages }) = serde_json::from_slice(body) else { return Vec::new() };
    let is_ours = |item: &&Item<'_>| matches!(item.role, Some("system" | "developer"));
    let last = messages.iter().rev().find(|item| !is_ours(item));
    let is_users = last.is_none_or(|item| item.role == Some("user"));
    let mut headers = vec![("x-initiator", if is_users { "user" } else { "agent" })];
    let parts = messages.iter().flat_map(|item| [item.content, item.output]).flatten();
    let mut parts = parts
        .filter_map(|content| serde_json::from_str::<Vec<Part<'_>>>(content.get()).ok())
        .flatten();
    if parts.any(|part| matches!(part.kind, "image_url" | "input_image")) {
        headers.push(("copilot-vision-request", "true"));
    }
    headers
}

#[cfg(test)]
mod tests {
    use llm_protocol::{LlmRequest, Media, Message, Part, Protocol, ToolCall, ToolResult};

    use super::by_body;

    #[test]
    fn what_is_in_a_body_is_told_in_its_headers() {
        const USER: (&str, &str) = ("x-initiator", "user");
        const AGENT: (&str, &str) = ("x-initiator", "agent");
        const VISION: (&str, &str) = ("copilot-vision-request", "true");
        let (mime, data) = ("image/png".to_owned(), "iVBORw0KGgo=".to_owned());
        let image = Part::Media(Media { mime, data, provider_metadata: None });
        let mut looks = Message::user("look");
        looks.content.push(image);
        let call = Part::ToolCall(ToolCall::new("c1", "read", "{}"));
        let result = Message::tool(vec![ToolResult::text("c1", "read", "image_url")]);
        let called = vec![Message::user("look"), Message::assistant(vec![call]), result];
        let mut updated = called.clone();
        updated.push(Message::system("It is late."));
        let mut steered = called.clone();
        steered.push(Message::user("and now?"));
        for (messages, expected) in [
            (vec![Message::user("\"type\":\"image_url\"")], vec![USER]),
            (vec![looks], vec![USER, VISION]),
            (called, vec![AGENT]),
            (updated, vec![AGENT]),
            (steered, vec![USER]),
        ] {
            let request = LlmRequest::new("m", messages);
            for protocol in [Protocol::OpenAiChat, Protocol::OpenAiResponses] {
                let body = protocol.encode(&request);
                assert_eq!(by_body(&body), expected, "{protocol:?} {request:?}");
            }
        }
        assert_eq!(by_body(b""), []);
    }
}
