//! An organisation's stored provider settings: one JSON text per provider.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::overrides::{Overrides, ProviderOverride, RateLimits};
use crate::patch::ModelPatch;

/// The provider name of the row for all providers: the allow and deny lists.
pub const ALL_PROVIDERS: &str = "*";

/// An organisation's settings of all its providers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrgSettings {
    /// The changes to the catalog.
    pub overrides: Overrides,
    /// Accounts, regions and the like, by provider.
    pub env: BTreeMap<String, BTreeMap<String, String>>,
}

/// The part of a row that the catalog reads. Sign-in settings belong to other code.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Row {
    base_url: Option<String>,
    env: BTreeMap<String, String>,
    limits: RateLimits,
    overrides: Map<String, Value>,
}

impl OrgSettings {
    /// Reads rows of provider and text. An unreadable row may have been a refusal, so its provider is denied
    /// (or all, if the row is for all), and listed.
    pub fn read<'a>(
        rows: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (Self, Vec<(String, serde_json::Error)>) {
        let mut settings = Self::default();
        let mut unreadable = Vec::new();
        for (provider, text) in rows {
            if let Err(error) = settings.add(provider, text) {
                settings.overrides.deny.push(provider.to_owned());
                unreadable.push((provider.to_owned(), error));
            }
        }
        (settings, unreadable)
    }

    /// Returns whether the organisation influences the address of requests to the provider. Then no variable
    /// of the process's environment goes with them.
    #[must_use]
    pub fn redirects(&self, provider: &str) -> bool {
        let over = self.overrides.providers.get(provider);
        let plain = |over: &ProviderOverride| {
            let limits = RateLimits::default();
            ProviderOverride { limits, ..over.clone() } == ProviderOverride::default()
        };
        !over.is_none_or(plain) || self.env.get(provider).is_some_and(|env| !env.is_empty())
    }

    /// Returns whether the organisation has set the provider's address: its own server, which may need no
    /// key.
    #[must_use]
    pub fn has_address(&self, provider: &str) -> bool {
        let over = self.overrides.providers.get(provider);
        over.is_some_and(|over| over.own_api().is_some())
    }

    /// Returns whether the organisation sets any part of the address of requests to the provider. Unlike
    /// [`OrgSettings::redirects`], headers and options do not count.
    #[must_use]
    pub fn moves(&self, provider: &str) -> bool {
        let own = self.env.get(provider).is_some_and(|env| !env.is_empty());
        let over = self.overrides.providers.get(provider);
        let patched = |patch: &ModelPatch| patch.provider.is_some() || patch.experimental.is_some();
        own || over.is_some_and(|over| {
            over.own_api().is_some()
                || over.npm.is_some()
                || over.env.is_some()
                || over.models.values().any(patched)
        })
    }

    fn add(&mut self, provider: &str, text: &str) -> Result<(), serde_json::Error> {
        let row: Row = serde_json::from_str(text)?;
        let overrides = Value::Object(row.overrides);
        if provider == ALL_PROVIDERS {
            let all = Overrides::deserialize(overrides)?;
            self.overrides.allow = all.allow;
            self.overrides.deny.extend(all.deny);
            return Ok(());
        }
        let mut over = ProviderOverride::deserialize(overrides)?;
        over.api = row.base_url.or(over.api);
        let RateLimits { requests_per_minute, tokens_per_minute } = row.limits;
        over.limits.requests_per_minute = requests_per_minute.or(over.limits.requests_per_minute);
        over.limits.tokens_per_minute = tokens_per_minute.or(over.limits.tokens_per_minute);
        self.overrides.providers.insert(provider.to_owned(), over);
        self.env.insert(provider.to_owned(), row.env);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_laid_together_and_one_that_cannot_be_read_is_a_refusal() {
        let (settings, unreadable) = OrgSettings::read([
            ("*", r#"{"overrides":{"allow":["a","b"],"deny":["a/old*"]}}"#),
            (
                "a",
                r#"{"baseUrl":"http://a","env":{"REGION":"r"},"limits":{"requestsPerMinute":60},"oauth":{"clientId":"x"},
                "overrides":{"api":"http://b","limits":{"tokensPerMinute":9,"requestsPerMinute":7}}}"#,
            ),
            ("b", r#"{"overrides":{"allow":[]}}"#),
        ]);
        assert_eq!(unreadable.len(), 1);
        let overrides = &settings.overrides;
        assert!(overrides.allows("a", "new") && !overrides.allows("a", "old-1"));
        assert!(!overrides.allows("b", "m") && !overrides.allows("c", "m"));
        assert_eq!(overrides.providers["a"].api.as_deref(), Some("http://a"));
        let limits = RateLimits { requests_per_minute: Some(60), tokens_per_minute: Some(9) };
        assert_eq!(overrides.limits("a"), limits);
        assert_eq!(settings.env["a"]["REGION"], "r");
        assert!(settings.redirects("a") && settings.has_address("a"));
        assert!(!settings.redirects("c") && !settings.has_address("c"));
        let (limited, _) = OrgSettings::read([("a", r#"{"limits":{"requestsPerMinute":1}}"#)]);
        assert!(!limited.redirects("a"));
        let (headers, _) = OrgSettings::read([("a", r#"{"overrides":{"headers":{"x":"y"}}}"#)]);
        assert!(headers.redirects("a") && !headers.moves("a") && settings.moves("a"));
        let (nothing, _) = OrgSettings::read([("*", "{")]);
        assert!(!nothing.overrides.allows("any", "model"));
    }
}
