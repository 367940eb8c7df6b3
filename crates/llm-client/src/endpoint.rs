//! The address of a provider.

use std::fmt;

use llm_protocol::Protocol;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::secret::{Secret, sensitive};

/// A provider's address, key and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The base URL as the user wrote it; see [`normalize_base_url`].
    pub base_url: String,
    /// The key, sent in the header of the protocol's owner; see [`crate::Auth::None`].
    pub api_key: Option<Secret>,
    /// Extra headers. They replace our own headers of the same name. Their values are secret too.
    pub headers: Vec<(String, Secret)>,
    /// The path below the base URL, in place of the protocol's; may end with a query. `{model}` is replaced
    /// by the model's name, percent-encoded except for slashes.
    pub path: Option<String>,
    /// Parameters for the query of every address (`api-version`).
    pub query: Vec<(String, String)>,
    /// Headers that depend on the request's body.
    pub by_body: Option<ByBody>,
}

/// Headers that are computed from a request's body, for providers that want some of its contents announced in
/// headers. The function is pure, and returns nothing for a body that it does not know.
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

/// Characters of a model's name that stay as they are in a path: RFC 3986's unreserved ones, and slashes.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl Endpoint {
    /// Makes an endpoint without credentials.
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

    /// Sets the key.
    #[must_use]
    pub fn with_api_key(mut self, key: Secret) -> Self {
        self.api_key = Some(key);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// Sets a path in place of the protocol's (see [`Endpoint::path`]).
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Adds a parameter to the query of every address.
    #[must_use]
    pub fn with_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Returns the address of `path` (such as `chat/completions`) below the base URL, whose query is kept. A
    /// base URL without a path gets `/v1`.
    ///
    /// # Errors
    /// The base URL is invalid.
    pub fn url(&self, path: &str) -> Result<Url, InvalidEndpoint> {
        self.below(normalize_base_url(&self.base_url)?, path)
    }

    /// Returns the address for requests of `protocol` to `model`. A base URL without a path gets the
    /// protocol's, unless [`Endpoint::path`] is set.
    ///
    /// # Errors
    /// The base URL is invalid.
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

    /// Adds the headers that depend on the body, then the user's.
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

    /// Returns the secrets, for redaction.
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

/// An endpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The base URL is invalid.
    #[error(
        "`{url}` is no base URL of a model provider: {problem}; expected one like http://127.0.0.1:11434/v1"
    )]
    BaseUrl {
        /// The URL as given, without credentials.
        url: String,
        /// The problem with it.
        problem: String,
    },
    /// The key contains characters that a header cannot carry.
    #[error("the API key holds characters that a header cannot carry (a line break?)")]
    Key,
    /// A header's name or value is not valid in HTTP.
    #[error("the header `{name}` has a name or value that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
}

/// Returns the base URL without a trailing slash, and without the path of requests. A URL without a path gets `/v1`: servers that people name
/// only by host and port (Ollama, vLLM, llama.cpp, OpenAI) have their API there.
///
/// # Errors
/// It is not http or https, has no host, or carries a user name or password (they would end up in logs).
pub fn normalize_base_url(base_url: &str) -> Result<Url, InvalidEndpoint> {
    self::base_url(base_url, "/v1")
}

/// The request paths at the ends of the addresses that providers' pages show for copying.
const REQUEST_PATHS: [&str; 3] = ["/chat/completions", "/responses", "/messages"];

/// Returns the path of a base URL without that of requests.
fn without_request_path(path: &str) -> &str {
    let base = REQUEST_PATHS.into_iter().find_map(|end| path.strip_suffix(end));
    base.unwrap_or(path).trim_end_matches('/')
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
        path => without_request_path(path).to_owned(),
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

    // Finding next report 28: `…/v1/chat/completions/chat/completions` was asked.
    #[test]
    fn the_address_of_requests_is_a_base_url_too() {
        for base in ["http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions/"] {
            assert_eq!(url(base), "http://h:1/v1/chat/completions");
            assert_eq!(Endpoint::new(base).url("models").unwrap().as_str(), "http://h:1/v1/models");
        }
        assert_eq!(url("http://h:1/chat/completions"), "http://h:1/chat/completions");
        let request = |base: &str, protocol| {
            Endpoint::new(base).request_url(protocol, "m").unwrap().to_string()
        };
        let messages = request("http://h:1/v1/messages", Protocol::AnthropicMessages);
        assert_eq!(messages, "http://h:1/v1/messages");
        let responses = request("http://h:1/v1/responses?a=b", Protocol::OpenAiResponses);
        assert_eq!(responses, "http://h:1/v1/responses?a=b");
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
