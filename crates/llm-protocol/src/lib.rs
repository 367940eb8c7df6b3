#![doc = include_str!("../README.md")]
//! # Map
//! ```text
//! LlmRequest ─encode→ body │ bytes ─sse::Framer→ data payloads ─Decoder→ LlmEvent
//!                          │ status + body ─classify→ ErrorReason
//! ```
//! Invariant: this crate does no I/O, reads no clock and depends on nothing else of ours. URLs, keys, retries
//! and timeouts live in `llm-client`.

mod classify;
mod decode_error;
mod error;
mod event;
mod json;
mod message;
mod message_json;
pub mod openai_chat;
mod protocol;
mod request;
pub mod retry;
pub mod sse;

pub use classify::{classify, classify_in_stream, http_date_unix_ms, retry_after_ms};
pub use decode_error::DecodeError;
pub use error::{Delivery, ErrorReason, ProviderError, truncate};
pub use event::{FinishReason, LlmEvent, Usage};
pub use json::RawJson;
pub use message::{Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
pub use protocol::{Decoder, Protocol};
pub use request::{Generation, LlmRequest, SystemPart, ToolChoice, ToolDefinition};
