//! The ways in which a request carries credentials.

use std::fmt;
use std::sync::Arc;

use llm_protocol::Protocol;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::client::Client;
use crate::endpoint::{Endpoint, InvalidEndpoint, insert};
use crate::error::LlmError;
use crate::exchange::{Access, Exchange, Kept};
use crate::secret::{Redactor, Secret, sensitive};
use crate::sigv4::AwsAccess;
use crate::transport::WireRequest;

/// The credentials of a [`crate::Route`].
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// No credentials besides the endpoint's: its headers and its `api_key`, which is sent as with
    /// [`Auth::Key`].
    #[default]
    None,
    /// An API key, in the header of the protocol's owner: `x-api-key` (Anthropic), `x-goog-api-key` (Gemini),
    /// otherwise `authorization: Bearer …`.
    Key(Secret),
    /// `authorization: Bearer …` in any protocol.
    Bearer(Secret),
    /// A header with this name and value.
    Header {
        /// Its name.
        name: String,
        /// Its whole value.
        value: Secret,
    },
    /// A signature of the whole request with an AWS access key.
    SigV4(AwsAccess),
    /// A changing token, fetched before each request and sent as `authorization: Bearer …`.
    Source(Arc<dyn TokenSource>),
    /// A token that we get in exchange for other credentials.
    Exchanged(Arc<Exchange>),
}

/// A source of tokens that expire, such as an OAuth grant or a metadata server.
#[async_trait::async_trait]
pub trait TokenSource: Send + Sync + fmt::Debug {
    /// Returns a token that is valid now; fetches or refreshes it if needed. The source bounds the time that
    /// this takes.
    ///
    /// # Errors
    /// No token is available. The reason says whether a retry may help; the delivery is *not sent*
    /// ([`LlmError::unsent`]).
    async fn token(&self) -> Result<Secret, LlmError>;

    /// Reports that a provider refused this token with a 401. The source must not return it again.
    fn refused(&self, token: &Secret);
}

/// The credentials of one request, as sent.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) redactor: Redactor,
    token: Option<Token>,
}

/// A token that may have expired early, and its source.
enum Token {
    Of(Arc<dyn TokenSource>, Secret),
    Exchanged(Arc<Access>, Kept),
}

impl Sent {
    /// Tells the token's source that the token was refused. Returns whether there is a source, so that a
    /// retry may work.
    pub(crate) fn refused(&self) -> bool {
        match &self.token {
            None => return false,
            Some(Token::Of(source, token)) => source.refused(token),
            Some(Token::Exchanged(access, kept)) => kept.forget(access),
        }
        true
    }
}

impl Auth {
    /// Adds the credentials, and then the endpoint's headers, which replace headers of the same name.
    /// `unix_ms` is now.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        protocol: Protocol,
        endpoint: &Endpoint,
        request: &mut WireRequest,
        unix_ms: u64,
    ) -> Result<Sent, LlmError> {
        let headers = &mut request.headers;
        let mut sent = Sent::default();
        sent.redactor.add(endpoint.secrets().cloned());
        match self {
            Self::None => {
                if let Some(key) = &endpoint.api_key {
                    add_key(protocol, headers, key)?;
                }
            }
            Self::Key(key) => {
                sent.redactor.add([key.clone()]);
                add_key(protocol, headers, key)?;
            }
            Self::Bearer(token) => {
                sent.redactor.add([token.clone()]);
                bearer(headers, token)?;
            }
            Self::Header { name, value } => {
                sent.redactor.add([value.clone()]);
                insert(headers, name, value.expose())?;
            }
            Self::SigV4(access) => sent.redactor.add(access.secrets().cloned()),
            Self::Source(source) => {
                let token = source.token().await?;
                sent.redactor.add([token.clone()]);
                bearer(headers, &token)?;
                sent.token = Some(Token::Of(Arc::clone(source), token));
            }
            Self::Exchanged(exchange) => {
                let (access, kept) = exchange.token(client, unix_ms).await?;
                sent.redactor.add([access.token.clone()]);
                access.add_headers(headers)?;
                bearer(headers, &access.token)?;
                sent.token = Some(Token::Exchanged(access, kept));
            }
        }
        add_required(protocol, headers);
        endpoint.add_headers(headers, &request.body)?;
        if let Self::SigV4(access) = self {
            access.sign(request, unix_ms)?; // last, because it covers the other headers
        }
        Ok(sent)
    }
}

/// Adds the API version, which Anthropic requires in every request.
/// <https://docs.anthropic.com/en/api/versioning>
fn add_required(protocol: Protocol, headers: &mut HeaderMap) {
    if protocol.id() == "anthropic-messages" {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
}

fn add_key(
    protocol: Protocol,
    headers: &mut HeaderMap,
    key: &Secret,
) -> Result<(), InvalidEndpoint> {
    let name = match protocol.id() {
        "anthropic-messages" => "x-api-key",
        "gemini" => "x-goog-api-key",
        _ => return bearer(headers, key),
    };
    insert(headers, name, key.expose()).map_err(|_| InvalidEndpoint::Key)
}

fn bearer(headers: &mut HeaderMap, token: &Secret) -> Result<(), InvalidEndpoint> {
    let value = HeaderValue::try_from(format!("Bearer {}", token.expose()));
    headers.insert(AUTHORIZATION, sensitive(value.map_err(|_| InvalidEndpoint::Key)?));
    Ok(())
}
