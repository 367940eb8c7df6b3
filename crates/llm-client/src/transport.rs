//! The seam between us and the network.

use bytes::Bytes;
use futures::stream::BoxStream;
use llm_protocol::Delivery;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};

/// Carries one request to a provider. The real one is [`crate::ReqwestTransport`]; a deterministic simulation can
/// stand in for it.
#[async_trait::async_trait]
pub trait ProviderTransport: Send + Sync {
    /// Sends `request` once: no retry, no redirect, the exact body. Returns when the headers have come. Dropping
    /// the future, or the body that it returns, aborts the request. The client watches over all times
    /// but the connection's.
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
    /// Where to.
    pub url: Url,
    /// All headers but those that HTTP itself needs.
    pub headers: HeaderMap,
    /// The exact bytes.
    pub body: Bytes,
}

/// An answer whose body still comes.
pub struct WireResponse {
    /// Any status; an unwelcome one is no transport error.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it comes. It ends after an error.
    pub body: BoxStream<'static, Result<Bytes, TransportError>>,
}

/// The network failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// How far the request got.
    pub delivery: Delivery,
    /// What failed, without the URL.
    pub message: String,
}
