//! Timeouts and bounds of a client.

use std::time::Duration;

use llm_protocol::sse::Framer;

/// Timeouts and bounds of a client. A whole answer has no timeout: it may take any time while bytes arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The timeout for the TCP connection and the TLS handshake.
    pub connect_timeout: Duration,
    /// The timeout from sending the request to the headers of the answer. Providers may hold those back until
    /// the first token, after minutes of reasoning.
    pub first_byte_timeout: Duration,
    /// The timeout from the headers to the first bytes of the body, and between any two chunks.
    pub idle_timeout: Duration,
    /// The most bytes of one answer.
    pub max_response_bytes: usize,
    /// The most bytes of one server-sent event.
    pub max_frame_bytes: usize,
    /// The value of `user-agent`.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_mins(5),
            idle_timeout: Duration::from_mins(2),
            max_response_bytes: 64 * 1024 * 1024,
            max_frame_bytes: Framer::DEFAULT_MAX_FRAME_BYTES,
            user_agent: concat!("opencode-cloud/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}
