//! Providers and models as the catalog knows them.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domains::Domains;
use crate::prices::Prices;

/// Providers and their models. Immutable, shared through an `Arc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// Identifies exactly this content: `models.dev:` and 16 hex digits of the SHA-256 of its providers. All
    /// prices in it have this version.
    pub version: String,
    /// The date of the newest change in it, as `2026-05-01`; such dates compare as text.
    pub updated: String,
    /// Providers by id.
    pub(crate) providers: BTreeMap<String, ProviderEntry>,
}

impl Catalog {
    /// Returns the provider with this id.
    #[must_use]
    pub fn provider(&self, id: &str) -> Option<&ProviderEntry> {
        self.providers.get(id)
    }

    /// Returns all providers, ordered by id.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.providers.values()
    }

    /// Returns the number of models.
    #[must_use]
    pub fn models(&self) -> usize {
        self.providers.values().map(|provider| provider.models.len()).sum()
    }
}

/// A provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderEntry {
    /// The first part of a model's full name, `<provider>/<model>`.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The npm package that other clients use for it. It determines the protocol ([`llm_client::providers`]).
    pub npm: String,
    /// The base URL, with `${NAME}` in place of values of [`ProviderEntry::env`]; none if its module knows
    /// the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The environment variables that configure it: keys, and parts of its URL.
    pub env: Vec<String>,
    /// Headers for every request. No credentials.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Models by id. If empty, any name is accepted (a self-hosted server).
    pub models: BTreeMap<String, CatalogModel>,
}

impl ProviderEntry {
    /// Returns the variables in `env` that hold a key or token, best first. The others are parts of its URL.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        key_names(&self.env)
    }
}

/// Returns the variables that hold a key or token.
pub(crate) fn key_names(env: &[String]) -> impl Iterator<Item = &str> {
    const LAST_WORDS: [&str; 5] = ["KEY", "TOKEN", "PAT", "SECRET", "BEDROCK"];
    let is_key = |name: &&str| {
        let last = name.rsplit('_').next().unwrap_or_default();
        LAST_WORDS.contains(&last) && !name.starts_with("AWS_SECRET")
    };
    env.iter().map(String::as_str).filter(is_key)
}

/// A model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogModel {
    /// The id by which users choose it.
    pub id: String,
    /// The provider's own name for it, if that differs (`gpt-5.5` for `gpt-5.5-fast`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_id: Option<String>,
    /// The display name.
    pub name: String,
    /// The family, such as `claude-opus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The state of the offer.
    pub status: ModelStatus,
    /// Limits in tokens.
    pub limits: Limits,
    /// The kinds of input and output.
    pub modalities: Modalities,
    /// It calls tools.
    pub tool_call: bool,
    /// It reasons before it answers.
    pub reasoning: bool,
    /// Ways to set its reasoning, if metadata lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasoning_options: Vec<ReasoningOption>,
    /// It accepts files.
    pub attachment: bool,
    /// Whether it accepts a temperature; none if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<bool>,
    /// The longest silence in milliseconds, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// The release date as `2026-04-23`, or empty.
    pub release_date: String,
    /// The prices, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Options for every request.
    pub domains: Domains,
    /// Additional options of each variant, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, Domains>,
    /// An npm package in place of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// A base URL in place of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The protocol to choose among those of its package: `completions` or `responses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The field of an assistant message that returns its reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleaved: Option<String>,
}

impl CatalogModel {
    /// Returns the provider's own name for it.
    #[must_use]
    pub fn api_id(&self) -> &str {
        self.api_id.as_deref().unwrap_or(&self.id)
    }
}

/// The place that offers a model, as far as it determines the package to use.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    /// The provider's package.
    pub(crate) npm: &'a str,
    /// The provider has a known base URL.
    pub(crate) has_url: bool,
}

impl Home<'_> {
    /// Returns the package to use for a model. The model's own package counts only if a base URL is known, or
    /// if it belongs to the provider's family (`google-vertex/anthropic` of `google-vertex`); otherwise a
    /// gateway's models stay at the gateway.
    pub(crate) fn package<'a>(&'a self, model: &'a CatalogModel) -> &'a str {
        let is_reachable = |own: &&str| {
            let is_family = own.strip_prefix(self.npm).is_some_and(|rest| rest.starts_with('/'));
            is_family || self.has_url || model.api.is_some()
        };
        model.npm.as_deref().filter(is_reachable).unwrap_or(self.npm)
    }
}

/// The state of a model's offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelStatus {
    /// It is offered.
    #[default]
    Available,
    /// Its provider will retire it. Sessions that chose it keep it, with a notice.
    Deprecated,
    /// It is not listed, but can be chosen by name.
    Hidden,
}

/// Limits in tokens. `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// The most input and output tokens together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// The most input tokens, if less than the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// The most output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}

/// The kinds of input and output of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Modalities {
    /// Kinds of content in messages.
    pub input: BTreeSet<Modality>,
    /// Kinds of content in answers.
    pub output: BTreeSet<Modality>,
}

/// A kind of content.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Text.
    Text,
    /// Images.
    Image,
    /// Audio.
    Audio,
    /// Video.
    Video,
    /// PDF files.
    Pdf,
}

/// A way to set the amount of reasoning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReasoningOption {
    /// A level, by name.
    Effort {
        /// The supported levels.
        values: Vec<String>,
    },
    /// On or off.
    Toggle,
    /// A number of tokens.
    BudgetTokens {
        /// The smallest budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<u64>,
        /// The largest budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u64>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_what_a_url_needs() {
        let env = [
            "CLOUDFLARE_API_TOKEN",
            "CLOUDFLARE_ACCOUNT_ID",
            "CLOUDFLARE_GATEWAY_ID",
            "302AI_API_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_REGION",
            "AWS_BEARER_TOKEN_BEDROCK",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "DATABRICKS_HOST",
            "CLARIFAI_PAT",
            "ABLIT_KEY",
        ]
        .map(str::to_owned);
        let keys: Vec<&str> = key_names(&env).collect();
        let expected = [
            "CLOUDFLARE_API_TOKEN",
            "302AI_API_KEY",
            "AWS_BEARER_TOKEN_BEDROCK",
            "CLARIFAI_PAT",
            "ABLIT_KEY",
        ];
        assert_eq!(keys, expected);
    }
}
