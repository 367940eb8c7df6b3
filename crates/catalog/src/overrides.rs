//! What an organisation has otherwise than the catalog.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::patch::ModelPatch;

/// An organisation's own view of the catalog. In JSON as a configuration has it; an unknown member is an error, but in
/// models, where models.dev has more than we use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Overrides {
    /// Only these: `provider`, `provider/model` or `provider/prefix*`. None: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Never these, whatever is allowed; written as in `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// By provider; one that the catalog has not is added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub providers: BTreeMap<String, ProviderOverride>,
}

/// What an organisation has otherwise for a provider. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ProviderOverride {
    /// As people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The package that speaks to it elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// Its base URL, for all its models; may hold `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The environment variables that set it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// Sent with every request. No credentials: they would be shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is always asked of its models, in any shape that [`crate::partition`] knows.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// By id; one that the catalog has not is added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ModelPatch>,
    /// How many milliseconds it may say nothing, before an answer and within; a model's own comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// How much may be sent to it.
    pub limits: RateLimits,
}

/// How much an organisation may send to a provider, by all workers together. None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimits {
    /// In any 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// In any 60 seconds, input and output, as estimated before a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
}

impl Overrides {
    /// Whether the organisation may use this model.
    #[must_use]
    pub fn allows(&self, provider: &str, model: &str) -> bool {
        let any =
            |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, provider, model));
        self.allow.as_deref().is_none_or(any) && !any(&self.deny)
    }

    /// How much may be sent to a provider.
    #[must_use]
    pub fn limits(&self, provider: &str) -> RateLimits {
        self.providers.get(provider).map(|provider| provider.limits).unwrap_or_default()
    }
}

impl ProviderOverride {
    /// The base URL, also where it is written as an option.
    pub(crate) fn own_api(&self) -> Option<&str> {
        let names = ["baseURL", "baseUrl"];
        let option = || names.iter().find_map(|name| self.options.get(*name)?.as_str());
        self.api.as_deref().or_else(option)
    }
}

/// `provider`, `provider/model`, `provider/prefix*`.
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
