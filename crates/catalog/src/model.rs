//! What is known of providers and their models.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domains::Domains;
use crate::prices::Prices;

/// Providers and their models, immutable; behind an `Arc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// Names exactly this content: `models.dev:` and 16 hex digits of the SHA-256 of its providers. The version of
    /// every price in it.
    pub version: String,
    /// When the newest thing in it was last changed, `2026-05-01`; dates of one form, so they compare as text.
    pub updated: String,
    /// By id.
    pub(crate) providers: BTreeMap<String, ProviderEntry>,
}

impl Catalog {
    /// The provider of this id.
    #[must_use]
    pub fn provider(&self, id: &str) -> Option<&ProviderEntry> {
        self.providers.get(id)
    }

    /// All providers, by id.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.providers.values()
    }

    /// How many models there are.
    #[must_use]
    pub fn models(&self) -> usize {
        self.providers.values().map(|provider| provider.models.len()).sum()
    }
}

/// A provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderEntry {
    /// As models are named: `<provider>/<model>`.
    pub id: String,
    /// As people read it.
    pub name: String,
    /// The package that speaks to it elsewhere: how we know its protocol ([`llm_client::providers`]).
    pub npm: String,
    /// Its base URL, with `${NAME}` where a value of [`ProviderEntry::env`] belongs; none where its module knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The environment variables that set it up: keys, and what its URL needs.
    pub env: Vec<String>,
    /// Sent with every request. No credentials.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// By id. None: any name is taken (a server of one's own).
    pub models: BTreeMap<String, CatalogModel>,
}

impl ProviderEntry {
    /// Those of `env` that hold a key or token, best first: the others are parts of its URL.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        key_names(&self.env)
    }
}

/// Which of these environment variables hold a key or token.
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
    /// As it is chosen.
    pub id: String,
    /// The provider's own name for it, where that is another (`gpt-5.5` of `gpt-5.5-fast`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_id: Option<String>,
    /// As people read it.
    pub name: String,
    /// `claude-opus`, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Whether it is offered.
    pub status: ModelStatus,
    /// How much it takes and gives.
    pub limits: Limits,
    /// What it takes and gives.
    pub modalities: Modalities,
    /// Whether it calls tools.
    pub tool_call: bool,
    /// Whether it reasons before it answers.
    pub reasoning: bool,
    /// How its reasoning can be set, where the metadata says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasoning_options: Vec<ReasoningOption>,
    /// Whether it takes files.
    pub attachment: bool,
    /// Whether it takes a temperature; none: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<bool>,
    /// How many milliseconds it may say nothing, where somebody says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// `2026-04-23`, or nothing.
    pub release_date: String,
    /// What it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// What is always asked of it.
    pub domains: Domains,
    /// What is asked of it beside that when a variant is chosen, by the variant's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, Domains>,
    /// In place of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// In place of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Which of its package's protocols it speaks: `completions` or `responses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The field of an assistant message that takes its reasoning back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleaved: Option<String>,
}

impl CatalogModel {
    /// The provider's own name for it.
    #[must_use]
    pub fn api_id(&self) -> &str {
        self.api_id.as_deref().unwrap_or(&self.id)
    }
}

/// Where a model is offered, as far as that decides who speaks to it.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    /// The provider's package.
    pub(crate) npm: &'a str,
    /// Whether somebody says where the provider is.
    pub(crate) has_url: bool,
}

impl Home<'_> {
    /// The package that speaks to a model. Its own counts where somebody says where that is, or where it is of the
    /// provider's family (`google-vertex/anthropic` of `google-vertex`): a gateway's models stay at the gateway.
    pub(crate) fn package<'a>(&'a self, model: &'a CatalogModel) -> &'a str {
        let is_reachable = |own: &&str| {
            let is_family = own.strip_prefix(self.npm).is_some_and(|rest| rest.starts_with('/'));
            is_family || self.has_url || model.api.is_some()
        };
        model.npm.as_deref().filter(is_reachable).unwrap_or(self.npm)
    }
}

/// Whether a model is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelStatus {
    /// It is.
    #[default]
    Available,
    /// Its provider will end it. Who has chosen it keeps it, with a notice.
    Deprecated,
    /// It is not listed. Who names it gets it.
    Hidden,
}

/// How many tokens. None: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Input, where it is less than the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}

/// What goes in and comes out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Modalities {
    /// In a message.
    pub input: BTreeSet<Modality>,
    /// In an answer.
    pub output: BTreeSet<Modality>,
}

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Words.
    Text,
    /// Pictures.
    Image,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
    /// PDF files.
    Pdf,
}

/// A way to set how much a model reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReasoningOption {
    /// By a word.
    Effort {
        /// Those that it knows.
        values: Vec<String>,
    },
    /// On or off.
    Toggle,
    /// By a number of tokens.
    BudgetTokens {
        /// The least.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<u64>,
        /// The most.
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
