#![doc = include_str!("../README.md")]
//! # Map
//! ```text
//! Route = protocol × endpoint × auth │ Client::on(route) = Llm
//! Llm::stream ─encode→ body ─WireRequest→ ProviderTransport ─chunks→ Framer ─→ Decoder ─→ LlmStream
//! ```
//! Invariant: one call of [`Llm::stream`] or [`Llm::send`] is at most one request on the wire. This crate
//! never retries, follows a redirect, or changes a byte of the body.

mod answer;
mod auth;
mod certificate;
mod client;
mod dispatch;
mod endpoint;
mod error;
mod exchange;
mod llm;
mod models;
mod options;
pub mod providers;
mod reqwest_transport;
mod route;
mod said;
mod secret;
mod sigv4;
mod stream;
mod tools;
mod transport;
mod whole;

pub use answer::Answer;
pub use auth::{Auth, TokenSource};
pub use certificate::certificate_fault;
pub use client::{Client, ClientError};
pub use endpoint::{ByBody, Endpoint, InvalidEndpoint, normalize_base_url};
pub use error::{LlmError, RetryAdvice};
pub use exchange::Exchange;
pub use llm::Llm;
pub use llm_protocol::retry;
pub use models::LIST_MODELS_TIMEOUT;
pub use options::Options;
pub use reqwest_transport::{ReqwestTransport, is_refused_unseen};
pub use route::Route;
pub use secret::Secret;
pub use sigv4::AwsAccess;
pub use stream::LlmStream;
pub use tools::{Bounds, Tools};
pub use transport::{BodyError, ProviderTransport, TransportError, WireRequest, WireResponse};
