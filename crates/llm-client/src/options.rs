//! Timeouts and bounds of a client.

use std::time::Duration;

use llm_protocol::sse::Framer;

/// Timeouts and bounds of a client. There is none on a whole answer: one that keeps coming may take its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// For the TCP connection and TLS handshake.
    pub connect_timeout: Duration,
    /// From sending the request to the headers of the answer. Providers may hold them back until the first
    /// token, after minutes of reasoning.
    pub first_byte_timeout: Duration,
    /// From the headers to the first bytes of the body, and between any two.
    pub idle_timeout: Duration,
    /// The most bytes of one answer.
    pub max_response_bytes: usize,
    /// The most bytes of one server-sent event.
    pub max_frame_bytes: usize,
    /// Sent as `user-agent`.
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
