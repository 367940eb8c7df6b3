//! An organisation's provider settings. OAuth endpoints and client ids only ever come from here: we ship
//! none.

use std::collections::BTreeMap;

use egress::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::CredentialsError;
use crate::hidden::{self, HIDDEN};

const MAX_TEXT_BYTES: usize = 2_048;
const MAX_ENTRIES: usize = 64;

/// An organisation's settings of one provider, in the form of clients' requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProviderSettings {
    /// Values for its addresses (an account, a region, a project), by the catalog's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The OAuth client for signing in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuthSettings>,
    /// The organisation's changes to the catalog for it: address, limits, models. For all providers (`*`):
    /// the allowed models. The catalog interprets it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub overrides: Map<String, Value>,
    /// Somebody tries these settings with one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<ProviderTrial>,
}

/// The mark of settings that somebody tries. Without an answer within ten minutes, the service sets up what was before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProviderTrial {
    /// The `overrides` before. `None`: the provider had no settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Map<String, Value>>,
}

/// An OAuth client at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuthSettings {
    /// The client's id at the provider.
    pub client_id: String,
    /// The way to send the client's secret, if it has one.
    #[serde(default, skip_serializing_if = "ClientAuth::is_default")]
    pub client_auth: ClientAuth,
    /// The address that gives tokens.
    pub token_url: String,
    /// The address for a browser. With it, people may sign in by code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorize_url: Option<String>,
    /// The address that gives device codes. With it, people may sign in on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_url: Option<String>,
    /// The address that the browser comes back to, as registered with the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_url: Option<String>,
    /// The requested scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Additional parameters of the browser's address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    /// The exchange of the access token for the API's own token, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeSettings>,
}

/// The way in which a client authenticates (RFC 6749 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// In the header `authorization`.
    #[default]
    Basic,
    /// In the body.
    Post,
}

impl ClientAuth {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A second exchange: a short-lived token for the access token, as at GitHub Copilot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExchangeSettings {
    /// The address. It answers with `token` and `expires_at` (seconds since 1970), or `access_token` and
    /// `expires_in`.
    pub url: String,
    /// The word before the access token in the header `authorization`.
    #[serde(default = "bearer")]
    pub scheme: String,
}

fn bearer() -> String {
    "Bearer".to_owned()
}

impl ProviderSettings {
    /// Checks everything that needs no network.
    ///
    /// # Errors
    /// [`CredentialsError::Invalid`], which names the member.
    pub fn check(&self, rules: &Rules) -> Result<(), CredentialsError> {
        if let Some(url) = self.overrides.get("api").and_then(Value::as_str) {
            // Fill in its values. These two may come from the credential.
            let given = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let of_credential = [("AWS_REGION", "any"), ("GOOGLE_VERTEX_PROJECT", "any")];
            let filled = given.chain(of_credential).fold(url.to_owned(), |url, (name, value)| {
                url.replace(&format!("${{{name}}}"), value)
            });
            check_address(rules, "overrides.api", &filled)?;
        }
        if self.env.len() > MAX_ENTRIES {
            return Err(CredentialsError::Invalid(format!(
                "`env` has at most {MAX_ENTRIES} names"
            )));
        }
        for (name, value) in &self.env {
            text("env", name)?;
            text("env", value)?;
            check_value(rules, name, value)?;
        }
        let before = self.trial.as_ref().and_then(|trial| trial.before.clone());
        if before.is_some_and(has_plain_secret) {
            let message = "`trial.before` keeps no headers and no keys: try the settings under another provider's name";
            return Err(CredentialsError::Invalid(message.to_owned()));
        }
        self.oauth.as_ref().map_or(Ok(()), |oauth| oauth.check(rules))
    }
}

/// Returns whether a value of a header, or a key, stands in it as it is.
fn has_plain_secret(mut overrides: Map<String, Value>) -> bool {
    hidden::take(&mut overrides).values().any(|value| value != HIDDEN)
}

impl OAuthSettings {
    fn check(&self, rules: &Rules) -> Result<(), CredentialsError> {
        text("oauth.clientId", &self.client_id)?;
        check_address(rules, "oauth.tokenUrl", &self.token_url)?;
        let urls = [
            ("oauth.authorizeUrl", self.authorize_url.as_ref()),
            ("oauth.deviceUrl", self.device_url.as_ref()),
            ("oauth.exchange.url", self.exchange.as_ref().map(|exchange| &exchange.url)),
        ];
        for (name, url) in urls {
            url.map_or(Ok(()), |url| check_address(rules, name, url))?;
        }
        // The browser goes there, often on the user's own machine.
        self.redirect_url.as_ref().map_or(Ok(()), |url| redirect("oauth.redirectUrl", url))?;
        if let Some(exchange) = &self.exchange {
            text("oauth.exchange.scheme", &exchange.scheme)?;
        }
        if self.scopes.len() > MAX_ENTRIES || self.extra.len() > MAX_ENTRIES {
            let message = format!("`oauth.scopes` and `oauth.extra` have at most {MAX_ENTRIES}");
            return Err(CredentialsError::Invalid(message));
        }
        let own = ["client_id", "redirect_uri", "state", "code_challenge", "response_type"];
        for (name, value) in &self.extra {
            if own.contains(&name.as_str()) {
                let message = format!("`oauth.extra` cannot set `{name}`: the service does");
                return Err(CredentialsError::Invalid(message));
            }
            text("oauth.extra", name)?;
            text("oauth.extra", value)?;
        }
        self.scopes.iter().try_for_each(|scope| text("oauth.scopes", scope))
    }
}

/// Checks an address for redirects: any HTTP address is allowed.
pub(crate) fn redirect(name: &str, url: &str) -> Result<(), CredentialsError> {
    text(name, url)?;
    match Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        _ => Err(CredentialsError::Invalid(format!("`{name}` is no http or https address"))),
    }
}

fn text(name: &str, text: &str) -> Result<(), CredentialsError> {
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        let message =
            format!("`{name}` has 1 to {MAX_TEXT_BYTES} bytes, without control characters");
        return Err(CredentialsError::Invalid(message));
    }
    Ok(())
}

/// Returns whether a URL's host is on the internet: not this machine, a private network, or a name without a
/// dot.
#[must_use]
pub fn is_of_internet(url: &str) -> bool {
    let Ok(mut url) = Url::parse(url) else { return false };
    // The choice of http or https does not affect the location.
    url.set_scheme("https").is_ok() && Rules::default().check(&url).is_ok()
}

/// Checks a value of `env` that is itself an address (`GITLAB_INSTANCE_URL`, `DATABRICKS_HOST`). Other values
/// are parts of names in the provider's address and cannot redirect requests.
fn check_value(rules: &Rules, name: &str, value: &str) -> Result<(), CredentialsError> {
    let member = || format!("env.{name}");
    match name.rsplit('_').next() {
        Some("URL") => check_address(rules, &member(), value.trim()),
        _ if value.contains("://") => check_address(rules, &member(), value.trim()),
        Some("HOST" | "ENDPOINT") => {
            check_address(rules, &member(), &format!("https://{}", value.trim()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks the text of an address that an organisation has chosen.
pub(crate) fn check_address(rules: &Rules, name: &str, url: &str) -> Result<(), CredentialsError> {
    redirect(name, url)?;
    let refused =
        |why: &dyn std::fmt::Display| CredentialsError::Invalid(format!("`{name}`: {why}"));
    let parsed = Url::parse(url).map_err(|error| refused(&error))?;
    rules.check(&parsed).map(|_| ()).map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(value: Value) -> Result<ProviderSettings, String> {
        let read: ProviderSettings =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        read.check(&Rules::default()).map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn settings_are_written_as_they_were_read() {
        let whole = json!({
            "env": { "ACME_REGION": "eu" },
            "oauth": {
                "clientId": "c1",
                "clientAuth": "post",
                "tokenUrl": "https://id.example/token",
                "authorizeUrl": "https://id.example/authorize",
                "deviceUrl": "https://id.example/device",
                "redirectUrl": "http://localhost:1455/callback",
                "scopes": ["openid"],
                "extra": { "prompt": "consent" },
                "exchange": { "url": "https://api.example/token", "scheme": "token" },
            },
            "overrides": { "api": "https://${ACME_REGION}.llm.example/v1" },
        });
        let read = settings(whole.clone()).expect("good settings");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), whole);
        assert_eq!(
            serde_json::to_value(settings(json!({})).expect("none")).expect("JSON"),
            json!({})
        );
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        let oauth = |change: Value| {
            let mut base = json!({ "clientId": "c1", "tokenUrl": "https://id.example/token" });
            let (Some(base), Some(change)) = (base.as_object_mut(), change.as_object()) else {
                panic!("objects")
            };
            base.extend(change.clone());
            json!({ "oauth": base })
        };
        let bad = [
            (json!({ "baseURL": "https://llm.example" }), "baseURL"),
            (json!({ "overrides": { "api": "llm.example" } }), "overrides.api"),
            (
                json!({ "overrides": { "api": "https://${H}/v1" }, "env": { "H": "10.0.0.1" } }),
                "private",
            ),
            (json!({ "env": { "A": "line\nbreak" } }), "env"),
            (json!({ "env": { "GITLAB_INSTANCE_URL": "gitlab.example" } }), "GITLAB_INSTANCE_URL"),
            (json!({ "oauth": { "clientId": "c1" } }), "tokenUrl"),
            (oauth(json!({ "clientId": "" })), "clientId"),
            (oauth(json!({ "deviceUrl": "ftp://id.example" })), "deviceUrl"),
            (oauth(json!({ "extra": { "state": "x" } })), "`state`"),
            (oauth(json!({ "redirectUrl": "app:done" })), "redirectUrl"),
        ];
        for (value, says) in bad {
            let error = settings(value).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_value_that_says_where_a_provider_is_leads_to_no_private_network() {
        let any = Rules { allow_private: true, ..Rules::default() };
        let public = Rules::default();
        let check = |name: &str, value: &str, rules: &Rules| {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let settings = ProviderSettings { env, ..ProviderSettings::default() };
            settings.check(rules).map_err(|error| error.to_string())
        };
        let inside = [
            ("GITLAB_INSTANCE_URL", "http://169.254.169.254/latest"),
            ("GITLAB_AI_GATEWAY_URL", "https://10.0.0.1"),
            ("GITLAB_AI_GATEWAY_URL", " https://localhost/ "),
            ("DATABRICKS_HOST", "10.0.0.1:8080"),
            ("GOOGLE_VERTEX_ENDPOINT", "metadata"),
            ("PRIVATEMODE_ENDPOINT", "http://127.0.0.1:8080/v1"),
            ("ANYTHING", "https://[fd00::1]/"),
        ];
        for (name, value) in inside {
            let error = check(name, value, &public).expect_err(value);
            assert!(error.contains(&format!("`env.{name}`")), "{error}");
            assert_eq!(check(name, value, &any), Ok(()), "{name}={value}");
        }
        for (name, value) in [
            ("GITLAB_INSTANCE_URL", "https://gitlab.example.com/"),
            ("DATABRICKS_HOST", "adb-1.2.azuredatabricks.net"),
            ("AWS_REGION", "eu-west-1"),
            ("CLOUDFLARE_ACCOUNT_ID", "1234567890"),
            ("AZURE_RESOURCE_NAME", "localhost"),
        ] {
            assert_eq!(check(name, value, &public), Ok(()), "{name}={value}");
        }
    }

    #[test]
    fn a_service_for_many_asks_only_public_addresses() {
        let any = Rules { allow_private: true, ..Rules::default() };
        let public = Rules::default();
        let private = [
            "http://id.example/token",
            "https://localhost/token",
            "https://gateway/token",
            "https://127.0.0.1/token",
            "https://10.1.2.3/token",
            "https://169.254.169.254/latest",
            "https://100.64.1.1/token",
            "https://[::1]/token",
            "https://[::ffff:10.0.0.1]/token",
            "https://[fd00::1]/token",
            "https://[fe80::1]/token",
            "https://0x7f.1/token",
        ];
        for url in private {
            assert!(check_address(&public, "url", url).is_err(), "{url}");
            assert!(check_address(&any, "url", url).is_ok(), "{url}");
        }
        for url in ["https://id.example/token", "https://8.8.8.8/t", "https://[2606:4700::1]/t"] {
            assert!(check_address(&public, "url", url).is_ok(), "{url}");
        }
    }
}
