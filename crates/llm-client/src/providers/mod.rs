//! Providers: which protocol each speaks, where it is, and what it does otherwise.
//!
//! A provider is a constant of [`Provider`], in a small file of its own where it has something of its own, else a line in
//! `hosts.rs`; metadata finds it by the name of the package that speaks to it elsewhere (`npm`). One that nobody here
//! knows is a server compatible with OpenAI's chat, so metadata alone adds a provider. A caller's own `Provider` needs
//! nothing of this module but the types: see `tests/own_provider.rs`.

mod amazon_bedrock;
mod anthropic;
mod azure;
mod cloudflare;
mod github_copilot;
mod gitlab;
mod google;
mod google_vertex;
mod hosts;
mod openai;
mod openrouter;
mod setup;
mod snowflake_cortex;
mod xai;

pub use setup::{Reach, Setup, SetupError};

use llm_protocol::{CallIdForm, Dialect, Protocol};

use crate::route::Route;

/// A provider.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// As models.dev names it.
    pub id: &'static str,
    /// The packages that speak to it elsewhere.
    pub npm: &'static [&'static str],
    /// Its base URL, with `${NAME}` where a setting belongs; none where only metadata or a user knows it.
    pub url: Option<&'static str>,
    /// How a model of it is spoken to. Pure: it decides the bytes of requests, long before they are sent.
    pub speaks: fn(&Model<'_>) -> Spoken,
    /// Where it is, and how it knows us.
    pub reach: fn(&Setup<'_>) -> Result<Reach, SetupError>,
}

/// As much of a model as decides how it is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model<'a> {
    /// The provider's own name for it.
    pub id: &'a str,
    /// Which of several protocols it speaks, where the metadata says: `completions` or `responses`.
    pub shape: Option<&'a str>,
    /// Whether it reasons.
    pub reasoning: bool,
    /// The field of an assistant message that takes its reasoning back, where the metadata says.
    pub reasoning_field: Option<&'a str>,
}

/// How a model is spoken to.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The protocol.
    pub protocol: Protocol,
    /// What is otherwise than its owner has it.
    pub dialect: Dialect,
}

impl Spoken {
    /// In this protocol, as its owner has it.
    #[must_use]
    pub fn plain(protocol: Protocol) -> Self {
        Self { protocol, dialect: Dialect::default() }
    }

    /// In OpenAI's chat, with the model's field for reasoning.
    #[must_use]
    pub fn chat(model: &Model<'_>) -> Self {
        let reasoning_field = model.reasoning_field.map(str::to_owned);
        let dialect = Dialect { reasoning_field, ..of_family(model.id) };
        Self { protocol: Protocol::OpenAiChat, dialect }
    }
}

/// What a family of models refuses wherever it runs. Mistral's models bring their checks of a conversation along, to vLLM and
/// to the hosts that are built on it: <https://github.com/mistralai/mistral-vibe/issues/578>.
fn of_family(model: &str) -> Dialect {
    const MISTRALS: [&str; 6] =
        ["mistral", "ministral", "devstral", "codestral", "magistral", "pixtral"];
    let model = model.to_ascii_lowercase();
    let is_mistrals = MISTRALS.iter().any(|name| model.contains(name));
    Dialect {
        call_ids: is_mistrals.then_some(CallIdForm::Nine),
        answers_results: is_mistrals,
        ..Dialect::default()
    }
}

impl Provider {
    /// A server that is compatible with OpenAI's chat and has nothing of its own.
    #[must_use]
    pub const fn chat(id: &'static str, npm: &'static [&'static str], url: &'static str) -> Self {
        Self { id, npm, url: Some(url), speaks: Spoken::chat, reach: Reach::at_its_url }
    }

    /// The route to a model.
    ///
    /// # Errors
    /// A setting is missing; the error names it.
    pub fn route(&self, setup: &Setup<'_>) -> Result<Route, SetupError> {
        let Spoken { protocol, dialect } = (self.speaks)(&setup.model);
        let Reach { endpoint, auth } = (self.reach)(&Setup { provider: self, ..*setup })?;
        Ok(Route::new(protocol, setup.model.id, endpoint).with_auth(auth).with_dialect(dialect))
    }
}

/// The package of servers that have none of their own.
pub const COMPATIBLE: &str = "@ai-sdk/openai-compatible";

/// All that are known by name, in one table. Of several that have a package, the first is found by it.
pub const ALL: &[&[Provider]] = &[
    &[openai::PROVIDER, anthropic::PROVIDER, google::PROVIDER],
    &[google_vertex::GEMINI, google_vertex::ANTHROPIC, amazon_bedrock::PROVIDER],
    &[azure::PROVIDER, azure::COGNITIVE_SERVICES, openrouter::PROVIDER, xai::PROVIDER],
    &[github_copilot::PROVIDER, gitlab::PROVIDER, snowflake_cortex::PROVIDER],
    &[cloudflare::GATEWAY, cloudflare::WORKERS_AI],
    hosts::ALL,
];

/// What speaks to servers that are compatible with OpenAI's chat.
pub static OPENAI_COMPATIBLE: Provider = Provider {
    id: "openai-compatible",
    npm: &[COMPATIBLE],
    url: None,
    speaks: Spoken::chat,
    reach: Reach::at_its_url,
};

/// The provider of this id.
#[must_use]
pub fn of(id: &str) -> Option<&'static Provider> {
    ALL.iter().copied().flatten().find(|provider| provider.id == id)
}

/// The provider whose package this is; none for one that nobody here knows.
#[must_use]
pub fn of_npm(npm: &str) -> Option<&'static Provider> {
    if npm == COMPATIBLE {
        return Some(&OPENAI_COMPATIBLE);
    }
    ALL.iter().copied().flatten().find(|provider| provider.npm.contains(&npm))
}

/// What speaks to the provider `id` of the metadata, whose package is `npm`: the one of this id if it still has that
/// package, else the package's, else [`OPENAI_COMPATIBLE`].
#[must_use]
pub fn find(id: &str, npm: &str) -> &'static Provider {
    of(id)
        .filter(|provider| provider.npm.contains(&npm))
        .or_else(|| of_npm(npm))
        .unwrap_or(&OPENAI_COMPATIBLE)
}

#[cfg(test)]
mod tests;
