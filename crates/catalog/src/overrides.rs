//! An organisation's changes to the catalog.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::patch::ModelPatch;

/// An organisation's own view of the catalog, in the JSON of a configuration file. An unknown member is an
/// error, except in models, where models.dev has members that we do not use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Overrides {
    /// The only allowed models: `provider`, `provider/model` or `provider/prefix*`. None: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Denied models, in the same form. They win over `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Changes by provider. A provider that the catalog does not have is added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub providers: BTreeMap<String, ProviderOverride>,
}

/// An organisation's changes to a provider. Absent fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ProviderOverride {
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The npm package that other clients use for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// The base URL for all its models; may contain `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The environment variables that configure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// Headers for every request. Their values may be secrets, and are not shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Options for all requests to its models, in any form that [`crate::partition`] accepts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Changes by model id. A model that the catalog does not have is added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ModelPatch>,
    /// The longest silence before and within an answer, in milliseconds. A model's own value wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// The organisation's rate limits for it.
    pub limits: RateLimits,
}

/// An organisation's rate limits for a provider, over all workers together. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimits {
    /// The most requests in any 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// The most input and output tokens in any 60 seconds, as estimated before each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
}

impl Overrides {
    /// Returns whether the organisation may use this model.
    #[must_use]
    pub fn allows(&self, provider: &str, model: &str) -> bool {
        let any =
            |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, provider, model));
        self.allow.as_deref().is_none_or(any) && !any(&self.deny)
    }

    /// Returns the rate limits for a provider.
    #[must_use]
    pub fn limits(&self, provider: &str) -> RateLimits {
        self.providers.get(provider).map(|provider| provider.limits).unwrap_or_default()
    }
}

impl ProviderOverride {
    /// Returns the base URL, even if it was given as an option.
    pub(crate) fn own_api(&self) -> Option<&str> {
        let names = ["baseURL", "baseUrl"];
        let option = || names.iter().find_map(|name| self.options.get(*name)?.as_str());
        self.api.as_deref().or_else(option)
    }
}

/// Returns whether `provider`, `provider/model` or `provider/prefix*` matches the model.
fn matches(pattern: &str, provider: &str, model: &str) -> bool {
    let Some((its_provider, its_model)) = pattern.split_once('/') else {
        return pattern == provider || pattern == "*";
    };
    its_provider == provider
        && match its_model.strip_suffix('*') {
            Some(prefix) => model.starts_with(prefix),
            None => model == its_model,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(json: &str) -> Overrides {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn lists_name_providers_models_and_beginnings_and_a_refusal_wins() {
        let some = overrides(r#"{"allow":["a","b/x","c/gpt-*","o/x/y"],"deny":["a/old*","b"]}"#);
        let allowed = |id: &str| {
            let (provider, model) = id.split_once('/').unwrap();
            some.allows(provider, model)
        };
        for id in ["a/new", "a/x/y", "c/gpt-5", "c/gpt-", "o/x/y"] {
            assert!(allowed(id), "{id}");
        }
        for id in ["a/old", "a/old-1", "b/x", "c/gpt", "d/x", "o/x", "aa/x"] {
            assert!(!allowed(id), "{id}");
        }
        assert!(Overrides::default().allows("any", "model"));
        assert!(!overrides(r#"{"allow":[]}"#).allows("any", "model"));
        assert!(!overrides(r#"{"deny":["*"]}"#).allows("any", "model"));
    }

    #[test]
    fn a_member_that_is_misspelt_is_an_error() {
        assert!(serde_json::from_str::<Overrides>(r#"{"alow":[]}"#).is_err());
        assert!(
            serde_json::from_str::<Overrides>(r#"{"providers":{"a":{"limits":{"rpm":1}}}}"#)
                .is_err()
        );
        let text = r#"{"providers":{"a":{"limits":{"requestsPerMinute":60}}}}"#;
        assert_eq!(overrides(text).limits("a").requests_per_minute, Some(60));
        assert_eq!(serde_json::to_string(&overrides(text)).unwrap(), text);
    }
}
