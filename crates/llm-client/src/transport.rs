//! The interface between this crate and the network.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use llm_protocol::Delivery;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};

/// Carries one request to a provider. The real one is [`crate::ReqwestTransport`]; a deterministic simulation
/// can replace it.
#[async_trait::async_trait]
pub trait ProviderTransport: Send + Sync {
    /// Sends `request` once, with its exact body, without retries or redirects. Returns when the headers have
    /// come. Dropping the future, or the body that it returns, aborts the request. The client enforces all
    /// timeouts except the connection's.
    ///
    /// # Errors
    /// No answer came; the error says how far the request got.
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError>;
}

/// A request, complete with its credentials.
#[derive(Clone, Debug)]
pub struct WireRequest {
    /// POST, or GET without a body.
    pub method: Method,
    /// The address.
    pub url: Url,
    /// All headers except those that HTTP itself needs.
    pub headers: HeaderMap,
    /// The exact bytes.
    pub body: Bytes,
}

/// An answer whose body is still arriving.
pub struct WireResponse {
    /// Any status; a failure status is not a transport error.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body's chunks. It ends after an error.
    pub body: BoxStream<'static, Result<Bytes, TransportError>>,
}

impl WireResponse {
    /// Reads the body to its end, at most `most` bytes.
    ///
    /// # Errors
    /// The network failed, or the body has more.
    pub async fn whole(mut self, most: usize) -> Result<Bytes, BodyError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.body.next().await {
            let chunk = chunk?;
            if whole.len() + chunk.len() > most {
                return Err(BodyError::TooLarge(most));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }
}

/// The reason why a body was not read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The network failed.
    #[error(transparent)]
    Network(#[from] TransportError),
    /// It has more bytes than this.
    #[error("its answer has more than {0} bytes")]
    TooLarge(usize),
}

/// The network failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// How far the request got.
    pub delivery: Delivery,
    /// The failure, without the URL.
    pub message: String,
}
