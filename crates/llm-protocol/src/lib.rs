#![doc = include_str!("../README.md")]
//! # Map
//! ```text
//! LlmRequest ─encode→ body │ bytes ─sse::Framer→ data payloads ─Decoder→ LlmEvent
//!                          │ status + body ─classify→ ErrorReason
//! ```
//! Invariant: this crate does no I/O, reads no clock and depends on none of our other crates. URLs, keys,
//! retries and timeouts live in `llm-client`.

mod answerable;
pub mod anthropic_messages;
mod arguments;
pub mod aws_event_stream;
pub mod bedrock_converse;
mod cache;
mod call_ids;
mod classify;
#[cfg(test)]
mod count_tests;
mod decode_error;
mod dialect;
mod error;
mod error_event;
mod event;
mod finish;
mod framing;
pub mod gemini;
mod google_error;
mod json;
mod limit_reset;
mod media;
mod message;
mod message_json;
pub mod openai_chat;
pub mod openai_responses;
mod options;
mod overflow;
mod protocol;
mod refused_state;
mod request;
pub mod retry;
pub mod schema;
pub mod sse;
mod state;
mod stated_wait;
mod surrogates;
mod text;
mod thinking;

pub use cache::{Breakpoints, CacheMarks, CachePolicy, MessageMarks};
pub use classify::{
    classify, classify_in_stream, classify_named, http_date_unix_ms, retry_after_ms, stated_error,
};
pub use decode_error::DecodeError;
pub use dialect::{CallIdForm, Dialect, Instructions, wrap_instructions};
pub use error::{Delivery, ErrorReason, ProviderError, truncate};
pub use error_event::ErrorEvent;
pub use event::{FinishReason, LlmEvent, Usage};
pub use framing::{Framer, Framing};
pub use json::RawJson;
pub use limit_reset::limit_reset_ms;
pub use message::{Media, Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
pub use protocol::{Decoder, Protocol};
pub use request::{Generation, LlmRequest, SystemPart, ToolChoice, ToolDefinition};
pub use state::StateOwner;
pub use surrogates::value_of;
