//! The binding of a secret to origins: those that its organisation had set up when the secret was entered.
//!
//! A binding is sealed together with its secret. Someone who can change settings or rows therefore cannot
//! send a stored secret to another host: it has to be entered again for that host.

use std::collections::BTreeSet;

use catalog::{Destination, origin};
use serde_json::{Value, json};

use crate::settings::OAuthSettings;

/// The origins that a secret may be sent to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// The destination of requests to its provider when it was entered.
    pub destination: Destination,
    /// The origins where its sign-in was made and is refreshed; empty for other secrets.
    pub sign_in: BTreeSet<String>,
}

/// The error for a request that would send a secret to a host that it was not entered for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was entered for {entered_for}, and the settings of its provider now lead to {origin}")]
pub struct OtherOrigin {
    /// The origin of the request.
    pub origin: String,
    /// The hosts that the secret was entered for, for display.
    pub entered_for: String,
}

impl Binding {
    /// Checks that the secret may go with a request to these origins. `is_catalogs`: the catalog alone
    /// determines them.
    ///
    /// # Errors
    /// The secret was entered for other origins.
    pub fn allows(&self, origins: &[String], is_catalogs: bool) -> Result<(), OtherOrigin> {
        // If a catalog moves a provider, it does so for everyone: that is the operator's choice.
        if self.destination.is_catalogs && is_catalogs {
            return Ok(());
        }
        within(&self.destination.origins, origins)
    }

    /// Checks that a sign-in may be refreshed with these settings.
    pub(crate) fn allows_sign_in(&self, oauth: &OAuthSettings) -> Result<(), OtherOrigin> {
        within(&self.sign_in, &Vec::from_iter(sign_in_origins(oauth)))
    }

    pub(crate) fn to_json(&self) -> Value {
        let Destination { origins, is_catalogs } = &self.destination;
        json!({ "origins": origins, "catalogs": is_catalogs, "signIn": self.sign_in })
    }

    /// Reads a binding. A secret that was sealed without one opens, but may go to no address that an
    /// organisation sets.
    pub(crate) fn of_json(value: &Value) -> Self {
        let set = |value: &Value| {
            let items = value.as_array().into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let is_catalogs = value["catalogs"].as_bool().unwrap_or(false);
        let destination = Destination { origins: set(&value["origins"]), is_catalogs };
        Self { destination, sign_in: set(&value["signIn"]) }
    }
}

fn within(bound: &BTreeSet<String>, asked: &[String]) -> Result<(), OtherOrigin> {
    let Some(other) = asked.iter().find(|origin| !bound.contains(*origin)) else { return Ok(()) };
    let entered_for = match bound.len() {
        0 => "no host yet".to_owned(),
        1..=3 => Vec::from_iter(bound.iter().map(String::as_str)).join(", "),
        _ => "other hosts".to_owned(),
    };
    Err(OtherOrigin { origin: other.clone(), entered_for })
}

/// Returns the origins that receive a sign-in's tokens and the client's secret.
pub(crate) fn sign_in_origins(oauth: &OAuthSettings) -> BTreeSet<String> {
    let exchange = oauth.exchange.as_ref().map(|exchange| exchange.url.as_str());
    let urls = [Some(oauth.token_url.as_str()), oauth.device_url.as_deref(), exchange];
    urls.into_iter().flatten().map(origin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(origins: &[&str], is_catalogs: bool) -> Binding {
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Binding { destination: Destination { origins, is_catalogs }, sign_in: BTreeSet::new() }
    }

    // Finding security 6: after its host changes, a secret is unusable until it is entered again.
    #[test]
    fn a_secret_goes_only_where_it_was_entered_for() {
        let evil = ["https://evil.example".to_owned()];
        let own = ["https://api.example.com".to_owned()];
        let by_catalog = bound(&["https://api.example.com"], true);
        assert_eq!(by_catalog.allows(&own, true), Ok(()));
        assert_eq!(by_catalog.allows(&own, false), Ok(()));
        assert_eq!(by_catalog.allows(&evil, true), Ok(()), "the catalog has moved it");
        let error = by_catalog.allows(&evil, false).expect_err("another host").to_string();
        assert!(error.contains("https://api.example.com") && error.contains("evil"), "{error}");
        let by_settings = bound(&["https://proxy.example"], false);
        assert!(by_settings.allows(&own, true).is_err(), "the settings were removed");
        assert!(bound(&[], false).allows(&own, true).is_err());
    }

    #[test]
    fn a_binding_is_read_as_it_was_sealed() {
        let mut binding = bound(&["https://a", "https://b"], true);
        binding.sign_in.insert("https://id".to_owned());
        assert_eq!(Binding::of_json(&binding.to_json()), binding);
        assert_eq!(Binding::of_json(&Value::Null), Binding::default());
    }
}
