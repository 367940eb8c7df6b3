//! Ids that everybody derives alike.

use domain::{Claim, MessageId, SessionId};
use sha2::{Digest, Sha256};

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// Returns the trace of a prompt: the work that answers its message, whoever does it.
#[must_use]
pub fn trace_of(message: &MessageId) -> TraceId {
    TraceId(hash("trace", message.as_str()))
}

/// Returns the span of something with a durable id.
#[must_use]
pub fn span_of(kind: &str, id: &str) -> SpanId {
    SpanId(hash(kind, id))
}

/// Returns the span of a drain's work on a prompt. A drain may answer several, each in its own trace.
#[must_use]
pub fn drain_span(session: &SessionId, claim: Claim) -> SpanId {
    span_of("drain", &format!("{session} {}", claim.0))
}

fn hash<const N: usize>(kind: &str, id: &str) -> [u8; N] {
    let digest = Sha256::new().chain_update(kind).chain_update([0]).chain_update(id).finalize();
    let mut bytes = [0; N];
    bytes.copy_from_slice(&digest[..N]);
    // An id of zeros counts as none.
    bytes[N - 1] |= 1;
    bytes
}
