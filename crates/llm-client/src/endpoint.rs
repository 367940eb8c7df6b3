//! Where a provider is and how it knows us.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

/// A provider's address and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As the user gives it; see [`normalize_base_url`].
    pub base_url: String,
    /// Sent as `authorization: Bearer …`.
    pub api_key: Option<Secret>,
    /// Sent beside our own headers, and in place of one of the same name. Values are secret too.
    pub headers: Vec<(String, Secret)>,
}

impl Endpoint {
    /// An endpoint that needs no credentials.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self { base_url: base_url.into(), api_key: None, headers: Vec::new() }
    }

    /// With a key.
    #[must_use]
    pub fn with_api_key(mut self, key: Secret) -> Self {
        self.api_key = Some(key);
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// The address of `path` (`chat/completions`, say) below the base URL, whose query it keeps.
    ///
    /// # Errors
    /// The base URL is none.
    pub fn url(&self, path: &str) -> Result<Url, InvalidEndpoint> {
        let mut url = normalize_base_url(&self.base_url)?;
        let full = format!("{}/{path}", url.path());
        url.set_path(&full);
        Ok(url)
    }

    /// The headers that carry credentials.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) -> Result<(), InvalidEndpoint> {
        if let Some(key) = &self.api_key {
            let bearer = HeaderValue::try_from(format!("Bearer {}", key.expose()));
            headers.insert(AUTHORIZATION, sensitive(bearer.map_err(|_| InvalidEndpoint::Key)?));
        }
        for (name, value) in &self.headers {
            let invalid = || InvalidEndpoint::Header { name: name.clone() };
            let key = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
            let value = HeaderValue::try_from(value.expose()).map_err(|_| invalid())?;
            headers.insert(key, sensitive(value));
        }
        Ok(())
    }

    /// Takes our secrets out of a text that a provider wrote: some repeat the key that they refuse.
    pub(crate) fn redact(&self, text: String) -> String {
        /// Anything shorter would hit ordinary words.
        const MIN_BYTES: usize = 8;
        let secrets = self.api_key.iter().chain(self.headers.iter().map(|(_, value)| value));
        secrets.map(Secret::expose).filter(|secret| secret.len() >= MIN_BYTES).fold(
            text,
            |text, secret| {
                if text.contains(secret) { text.replace(secret, "[redacted]") } else { text }
            },
        )
    }
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// An endpoint that no request can be made to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The base URL is none.
    #[error(
        "`{url}` is no base URL of a model provider: {problem}; expected one like http://127.0.0.1:11434/v1"
    )]
    BaseUrl {
        /// As given, without credentials.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The key cannot be sent.
    #[error("the API key holds characters that a header cannot carry (a line break?)")]
    Key,
    /// A header cannot be sent.
    #[error("the header `{name}` has a name or value that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
}

/// The base URL without a slash at its end; `/v1` is added when it has no path, since that is where every server
/// that people name by host and port only (Ollama, vLLM, llama.cpp, OpenAI) has its API.
///
/// # Errors
/// It is not http or https, has no host, or carries a user name or password (they would end up in logs).
pub fn normalize_base_url(base_url: &str) -> Result<Url, InvalidEndpoint> {
    let invalid = |url: &str, problem: &str| InvalidEndpoint::BaseUrl {
        url: url.to_owned(),
        problem: problem.to_owned(),
    };
    let trimmed = base_url.trim();
    let mut url = Url::parse(trimmed).map_err(|error| invalid(trimmed, &error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("…", "it holds a user name or password; pass the key apart"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(trimmed, "it does not begin with http:// or https://"));
    }
    let path = match url.path().trim_end_matches('/') {
        "" => "/v1".to_owned(),
        path => path.to_owned(),
    };
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// A string that is not shown: `Debug` is redacted and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps the secret; white space around it (a file's last line break) is dropped.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(secret.trim().into())
    }

    /// The secret itself. Do not log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base: &str) -> String {
        Endpoint::new(base).url("chat/completions").unwrap().to_string()
    }

    #[test]
    fn a_base_url_without_a_path_gets_v1() {
        assert_eq!(url("http://h:1"), "http://h:1/v1/chat/completions");
        assert_eq!(url(" http://h:1/ "), "http://h:1/v1/chat/completions");
        assert_eq!(url("https://h/openai/v1/"), "https://h/openai/v1/chat/completions");
        assert_eq!(url("https://h/api?version=2#x"), "https://h/api/chat/completions?version=2");
    }

    #[test]
    fn what_is_no_base_url_is_refused_with_the_reason() {
        for base in ["", "localhost:11434", "ftp://h", "http://"] {
            let error = normalize_base_url(base).unwrap_err().to_string();
            assert!(error.contains("expected one like"), "{error}");
        }
        let error = normalize_base_url("http://me:secret@h").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let endpoint = Endpoint::new("http://h")
            .with_api_key(Secret::new("sk-12345678\n"))
            .with_header("x-team", Secret::new("team-secret"));
        let debug = format!("{endpoint:?}");
        assert!(!debug.contains("sk-1") && !debug.contains("team-secret"), "{debug}");
        let mut headers = HeaderMap::new();
        endpoint.add_headers(&mut headers).unwrap();
        let debug = format!("{headers:?}");
        assert!(!debug.contains("sk-1") && !debug.contains("team-secret"), "{debug}");
        assert_eq!(headers[AUTHORIZATION], "Bearer sk-12345678");
        let said = "Incorrect API key provided: sk-12345678.".to_owned();
        assert_eq!(endpoint.redact(said), "Incorrect API key provided: [redacted].");
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_an_error() {
        let endpoint = Endpoint::new("http://h").with_api_key(Secret::new("a\nb"));
        assert_eq!(endpoint.add_headers(&mut HeaderMap::new()), Err(InvalidEndpoint::Key));
    }
}
