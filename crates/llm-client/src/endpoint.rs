//! Where a provider is and how it knows us.

use std::fmt;

use llm_protocol::Protocol;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::secret::{Secret, sensitive};

/// A provider's address and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As the user gives it; see [`normalize_base_url`].
    pub base_url: String,
    /// Sent in the header that the protocol's owner has for it; see [`crate::Auth::None`].
    pub api_key: Option<Secret>,
    /// Sent beside our own headers, and in place of one of the same name. Values are secret too.
    pub headers: Vec<(String, Secret)>,
    /// In place of the protocol's own path below the base URL; may end with a query. `{model}` is replaced by the
    /// model's name, percent-encoded but for its slashes.
    pub path: Option<String>,
    /// Added to the query of every address (`api-version`).
    pub query: Vec<(String, String)>,
    /// Headers that depend on what a request says.
    pub by_body: Option<ByBody>,
}

/// Headers by a request's body, for a provider that wants to be told outside it what is in it. The function is pure,
/// and gives nothing for a body that it does not know.
#[derive(Clone, Copy)]
pub struct ByBody(pub fn(&[u8]) -> Vec<(&'static str, &'static str)>);

impl fmt::Debug for ByBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByBody(…)")
    }
}

impl PartialEq for ByBody {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for ByBody {}

/// What a model's name may hold in a path as it is: RFC 3986's unreserved characters, and slashes.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl Endpoint {
    /// An endpoint that needs no credentials.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            headers: Vec::new(),
            path: None,
            query: Vec::new(),
            by_body: None,
        }
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

    /// With another path than the protocol's (see [`Endpoint::path`]).
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// With one more parameter in every address's query.
    #[must_use]
    pub fn with_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// The address of `path` (`chat/completions`, say) below the base URL, whose query it keeps. A base URL without a
    /// path gets `/v1`.
    ///
    /// # Errors
    /// The base URL is none.
    pub fn url(&self, path: &str) -> Result<Url, InvalidEndpoint> {
        self.below(normalize_base_url(&self.base_url)?, path)
    }

    /// Where requests of `protocol` for `model` go. A base URL without a path gets the protocol's, unless
    /// [`Endpoint::path`] is set.
    ///
    /// # Errors
    /// The base URL is none.
    pub fn request_url(&self, protocol: Protocol, model: &str) -> Result<Url, InvalidEndpoint> {
        match &self.path {
            None => {
                let base = base_url(&self.base_url, protocol.base_path())?;
                self.below(base, &protocol.path(model))
            }
            Some(path) => {
                let model = utf8_percent_encode(model, IN_PATH).to_string();
                self.below(base_url(&self.base_url, "")?, &path.replace("{model}", &model))
            }
        }
    }

    fn below(&self, mut url: Url, path: &str) -> Result<Url, InvalidEndpoint> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let full = format!("{}/{}", url.path().trim_end_matches('/'), path.trim_start_matches('/'));
        url.set_path(&full);
        if !query.is_empty() {
            let joined = url.query().map(|own| format!("{own}&{query}"));
            url.set_query(Some(joined.as_deref().unwrap_or(query)));
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }

    /// The headers that the body asks for, then those of the user.
    pub(crate) fn add_headers(
        &self,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), InvalidEndpoint> {
        for (name, value) in self.by_body.iter().flat_map(|ByBody(headers)| headers(body)) {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in &self.headers {
            insert(headers, name, value.expose())?;
        }
        Ok(())
    }

    /// What must not be shown.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.api_key.iter().chain(self.headers.iter().map(|(_, value)| value))
    }
}

/// Adds a header with a secret value.
pub(crate) fn insert(
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), InvalidEndpoint> {
    let invalid = || InvalidEndpoint::Header { name: name.to_owned() };
    let key = HeaderName::try_from(name).map_err(|_| invalid())?;
    let value = HeaderValue::try_from(value).map_err(|_| invalid())?;
    headers.insert(key, sensitive(value));
    Ok(())
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
    self::base_url(base_url, "/v1")
}

fn base_url(base_url: &str, default_path: &str) -> Result<Url, InvalidEndpoint> {
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
        "" => default_path.to_owned(),
        path => path.to_owned(),
    };
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
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
    fn a_path_of_its_own_takes_the_model_and_queries_are_joined() {
        let endpoint = Endpoint::new("https://h/openai?tenant=a b")
            .with_path("/deployments/{model}/chat/completions?x=1")
            .with_query("api-version", "2024/10");
        let url = endpoint.request_url(Protocol::OpenAiChat, "gpt 4/o@1:2").unwrap();
        let expected = "https://h/openai/deployments/gpt%204/o%401%3A2/chat/completions?tenant=a%20b&x=1&api-version=2024%2F10";
        assert_eq!(url.as_str(), expected);
        let root = Endpoint::new("https://h").with_path("run/{model}");
        let url = root.request_url(Protocol::OpenAiChat, "m").unwrap();
        assert_eq!(url.as_str(), "https://h/run/m");
        let own = Endpoint::new("https://h").request_url(Protocol::OpenAiChat, "m").unwrap();
        assert_eq!(own.as_str(), "https://h/v1/chat/completions");
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_an_error() {
        let endpoint = Endpoint::new("http://h").with_header("x-a", Secret::new("a\nb"));
        let invalid = InvalidEndpoint::Header { name: "x-a".to_owned() };
        assert_eq!(endpoint.add_headers(&mut HeaderMap::new(), b""), Err(invalid));
    }
}
