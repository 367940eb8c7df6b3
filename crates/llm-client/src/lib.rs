#![doc = include_str!("../README.md")]
//! # Map
//! ```text
//! Client::stream ─WireRequest→ ProviderTransport ─chunks→ sse::Framer ─→ Decoder ─→ LlmStream
//! ```
//! Invariant: one call of [`Client::stream`] is at most one request on the wire. Nothing here retries, follows
//! a redirect, or changes a byte of the body.

mod client;
mod endpoint;
mod error;
mod models;
mod options;
mod reqwest_transport;
mod stream;
mod transport;

pub use client::{Client, ClientError};
pub use endpoint::{Endpoint, InvalidEndpoint, Secret, normalize_base_url};
pub use error::{LlmError, RetryAdvice};
pub use llm_protocol::retry;
pub use models::LIST_MODELS_TIMEOUT;
pub use options::Options;
pub use reqwest_transport::ReqwestTransport;
pub use stream::LlmStream;
pub use transport::{ProviderTransport, TransportError, WireRequest, WireResponse};
