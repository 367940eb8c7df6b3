//! Traces of the work on a prompt, as OpenTelemetry has them.
//!
//! ```text
//! admit ─▶ invoke_agent (a drain) ─▶ turn ─▶ chat (an attempt) · execute_tool
//!            ▲ a link from the drain that took over
//! ```
//!
//! Invariant: ids are made of durable ids. The trace of a prompt is the hash of its message's id, and a drain's span that of its
//! session and claim. So whoever goes on after a takeover adds to the same trace, and nothing is stored for it.
//! Invariant: nobody waits for a trace. A full queue drops spans and counts them.
//!
//! Absent: the way to a collector, and texts of prompts, arguments and results unless the operator has asked for them.

mod encode;
pub mod genai;
mod id;
mod proto;
mod queue;
mod span;

pub use encode::{Resource, encode};
pub use id::{SpanId, TraceId, drain_span, span_of, trace_of};
pub use queue::{Content, Settings, Spans, content, is_on, record, start};
pub use span::{Kind, Span, Value};
