//! Providers: the protocol, address, credentials and quirks of each.
//!
//! A provider is a constant of [`Provider`]: in its own small file if it has peculiarities, otherwise a line
//! in `hosts.rs`. Metadata refers to it by the npm package that other clients use for it. An unknown provider
//! counts as a server compatible with OpenAI's chat, so metadata alone can add one. A caller's own `Provider`
//! needs only the types of this module: see `tests/own_provider.rs`.

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

use llm_protocol::{CallIdForm, Dialect, Instructions, Protocol};

use crate::route::Route;

/// A provider.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Its id on models.dev.
    pub id: &'static str,
    /// The npm packages that other clients use for it.
    pub npm: &'static [&'static str],
    /// Its base URL, with `${NAME}` in place of settings; none if only metadata or the user knows it.
    pub url: Option<&'static str>,
    /// Chooses protocol and dialect for a model. Pure: this decides the bytes of requests, long before they
    /// are sent.
    pub speaks: fn(&Model<'_>) -> Spoken,
    /// Returns its address and credentials.
    pub reach: fn(&Setup<'_>) -> Result<Reach, SetupError>,
}

/// The properties of a model that decide about its protocol and dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model<'a> {
    /// The provider's own name for it.
    pub id: &'a str,
    /// The protocol to choose among several, if metadata says: `completions` or `responses`.
    pub shape: Option<&'a str>,
    /// The model reasons.
    pub reasoning: bool,
    /// The field of an assistant message that returns its reasoning, if metadata says.
    pub reasoning_field: Option<&'a str>,
}

/// The protocol and dialect of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The protocol.
    pub protocol: Protocol,
    /// The differences from the protocol's owner.
    pub dialect: Dialect,
}

impl Spoken {
    /// Returns this protocol without differences.
    #[must_use]
    pub fn plain(protocol: Protocol) -> Self {
        Self { protocol, dialect: Dialect::default() }
    }

    /// Returns OpenAI's chat, with the model's field for reasoning.
    #[must_use]
    pub fn chat(model: &Model<'_>) -> Self {
        let reasoning_field = model.reasoning_field.map(str::to_owned);
        let returns = model.reasoning_field == Some(REASONING_CONTENT);
        let reasoning_with_calls = returns && wants_reasoning_with_calls(model.id);
        let dialect = Dialect { reasoning_field, reasoning_with_calls, ..of_family(model.id) };
        Self { protocol: Protocol::OpenAiChat, dialect }
    }

    /// Returns OpenAI's chat, with the reasoning of thinking models whose own APIs refuse a history without it, also if
    /// no metadata says so.
    fn thinking(model: &Model<'_>) -> Self {
        let field = is_known_to_think(model.id).then_some(REASONING_CONTENT);
        Self::chat(&Model { reasoning_field: model.reasoning_field.or(field), ..*model })
    }

    /// Returns OpenAI's chat as a server speaks it of which nothing is known but its model. It may run any model with
    /// that model's own chat template, and many templates refuse instructions in the middle
    /// (<https://github.com/vllm-project/vllm/issues/41114>) or two messages of one role in a row
    /// (<https://github.com/microsoft/autogen/issues/7864>).
    #[must_use]
    pub fn compatible(model: &Model<'_>) -> Self {
        let Self { protocol, dialect } = Self::thinking(model);
        let instructions = Some(Instructions::Wrapped);
        Self { protocol, dialect: Dialect { instructions, joins_messages: true, ..dialect } }
    }
}

/// The field in which DeepSeek and those after it send reasoning, and take it back.
const REASONING_CONTENT: &str = "reasoning_content";

/// Returns whether a model family's API refuses a message with calls that lacks its reasoning: DeepSeek's
/// (<https://api-docs.deepseek.com/guides/thinking_mode>), Moonshot's Kimi
/// (<https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model>) and Xiaomi's `MiMo`.
fn wants_reasoning_with_calls(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["deepseek", "kimi", "mimo"].iter().any(|family| model.contains(family))
}

/// Returns whether a model always thinks, by its name at its own API.
fn is_known_to_think(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    let has = |name: &str| model.contains(name);
    let deepseeks = ["deepseek-reasoner", "deepseek-v4"].into_iter().any(has);
    deepseeks || (has("kimi") && ["thinking", "k2.5", "k2.6", "k3"].into_iter().any(has))
}

/// Returns the dialect of a model family, on any host. Mistral's models bring their checks of a conversation
/// along, to vLLM and hosts built on it: <https://github.com/mistralai/mistral-vibe/issues/578>.
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
    /// Makes a server that is compatible with OpenAI's chat and has no peculiarities.
    #[must_use]
    pub const fn chat(id: &'static str, npm: &'static [&'static str], url: &'static str) -> Self {
        Self { id, npm, url: Some(url), speaks: Spoken::chat, reach: Reach::at_its_url }
    }

    /// Returns the route to a model.
    ///
    /// # Errors
    /// A setting is missing or invalid, or there is no base URL; the error names it.
    pub fn route(&self, setup: &Setup<'_>) -> Result<Route, SetupError> {
        let Spoken { protocol, dialect } = (self.speaks)(&setup.model);
        let Reach { endpoint, auth } = (self.reach)(&Setup { provider: self, ..*setup })?;
        Ok(Route::new(protocol, setup.model.id, endpoint).with_auth(auth).with_dialect(dialect))
    }
}

/// The npm package for servers without one of their own.
pub const COMPATIBLE: &str = "@ai-sdk/openai-compatible";

/// All known providers. If several share a package, the package means the first.
pub const ALL: &[&[Provider]] = &[
    &[openai::PROVIDER, anthropic::PROVIDER, google::PROVIDER],
    &[google_vertex::GEMINI, google_vertex::ANTHROPIC, amazon_bedrock::PROVIDER],
    &[azure::PROVIDER, azure::COGNITIVE_SERVICES, openrouter::PROVIDER, xai::PROVIDER],
    &[github_copilot::PROVIDER, gitlab::PROVIDER, snowflake_cortex::PROVIDER],
    &[cloudflare::GATEWAY, cloudflare::WORKERS_AI],
    hosts::ALL,
];

/// Any server that is compatible with OpenAI's chat.
pub static OPENAI_COMPATIBLE: Provider = Provider {
    id: "openai-compatible",
    npm: &[COMPATIBLE],
    url: None,
    speaks: Spoken::compatible,
    reach: Reach::at_its_url,
};

/// Returns the provider with this id.
#[must_use]
pub fn of(id: &str) -> Option<&'static Provider> {
    ALL.iter().copied().flatten().find(|provider| provider.id == id)
}

/// Returns the provider with this npm package; `None` if no known one has it.
#[must_use]
pub fn of_npm(npm: &str) -> Option<&'static Provider> {
    if npm == COMPATIBLE {
        return Some(&OPENAI_COMPATIBLE);
    }
    ALL.iter().copied().flatten().find(|provider| provider.npm.contains(&npm))
}

/// Returns the provider for metadata's `id` and `npm` package: the one with this id if it still has that
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
