//! GitHub Copilot. Its tokens come from a [`crate::TokenSource`]; who we are is a setting, since GitHub registers it.

use super::{COMPATIBLE, Model, Provider, Reach, Setup, SetupError, Spoken, openai};
use crate::Secret;

pub(super) const PROVIDER: Provider = Provider {
    speaks,
    reach,
    ..Provider::chat(
        "github-copilot",
        &["@ai-sdk/github-copilot", COMPATIBLE],
        "https://api.githubcopilot.com",
    )
};

/// OpenAI's newer models in Responses, all others in chat.
fn speaks(model: &Model<'_>) -> Spoken {
    let is_newer = model.id.starts_with("gpt-5") && !model.id.starts_with("gpt-5-mini");
    if is_newer { openai::speaks(model) } else { Spoken::chat(model) }
}

/// Its paths begin at the root.
fn reach(setup: &Setup<'_>) -> Result<Reach, SetupError> {
    let mut reach = setup.at_its_url()?.with_bearer();
    reach.endpoint.path = Some(speaks(&setup.model).protocol.path(setup.model.id));
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
