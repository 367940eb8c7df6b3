//! Vertex AI: Google's own models, and Anthropic's hosted by Google. Credentials are access tokens.
//! <https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/use-claude>

use llm_protocol::{Dialect, Protocol};
use serde_json::json;

use super::{Model, Provider, Reach, Setup, SetupError, Spoken};

pub(super) const GEMINI: Provider = Provider {
    id: "google-vertex",
    npm: &["@ai-sdk/google-vertex"],
    url: None,
    speaks: |_| Spoken::plain(Protocol::Gemini),
    reach: |setup| Ok(setup.at(&url(setup, "google")?)?.with_bearer()),
};

pub(super) const ANTHROPIC: Provider = Provider {
    id: "google-vertex-anthropic",
    npm: &["@ai-sdk/google-vertex/anthropic"],
    url: None,
    speaks: claude,
    reach: reach_claude,
};

/// Claude on Vertex: the path names the model, and the body holds the version.
fn claude(_: &Model<'_>) -> Spoken {
    let mut dialect = Dialect { omit: vec!["model".to_owned()], ..Dialect::default() };
    dialect.body.insert("anthropic_version".to_owned(), json!("vertex-2023-10-16"));
    Spoken { protocol: Protocol::AnthropicMessages, dialect }
}

fn reach_claude(setup: &Setup<'_>) -> Result<Reach, SetupError> {
    let mut reach = setup.at(&url(setup, "anthropic")?)?.with_bearer();
    reach.endpoint.path = Some("models/{model}:streamRawPredict".to_owned());
    Ok(reach)
}

/// Returns the base URL, or an empty text if the user has one.
fn url(setup: &Setup<'_>, publisher: &str) -> Result<String, SetupError> {
    if setup.base_url.is_some() {
        return Ok(String::new());
    }
    let (project, location) = ("GOOGLE_VERTEX_PROJECT", location(setup));
    let project = setup.part(project, setup.required(project)?)?;
    let (location, host) = (setup.part("GOOGLE_VERTEX_LOCATION", location)?, host(setup));
    Ok(format!("https://{host}/v1/projects/{project}/locations/{location}/publishers/{publisher}"))
}

fn location(setup: &Setup<'_>) -> String {
    setup.optional("GOOGLE_VERTEX_LOCATION").unwrap_or_else(|| "us-central1".to_owned())
}

/// Returns the host of the location: a region, a multi-region, or `global`.
/// <https://cloud.google.com/vertex-ai/generative-ai/docs/learn/locations>
pub(super) fn host(setup: &Setup<'_>) -> String {
    match location(setup).as_str() {
        "global" => "aiplatform.googleapis.com".to_owned(),
        multi @ ("us" | "eu") => format!("aiplatform.{multi}.rep.googleapis.com"),
        location => format!("{location}-aiplatform.googleapis.com"),
    }
}
