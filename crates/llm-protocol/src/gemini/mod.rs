//! The Gemini protocol of Google's Gemini API and of Vertex.
//!
//! Source: <https://ai.google.dev/api/generate-content> with its pages on function calling
//! (<https://ai.google.dev/gemini-api/docs/function-calling>) and thought signatures
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>), and the recordings in `tests/recordings`.
//!
//! ```text
//! message(s) ─contents→ parts ─encode→ body │ frames ─decode→ parts ─state→ providerMetadata ─contents→ parts
//! tool schema ─schema→ the subset of OpenAPI that Gemini takes
//! ```
//! State that goes back: the signatures of thoughts, texts and calls, ids of calls, and, verbatim, the parts
//! of code that the provider ran.

mod contents;
mod decode;
mod encode;
mod frame;
mod schema;

pub use decode::Decoder;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::framing::Framing;
use crate::protocol::Spec;

/// The version of the written bytes; see [`crate::openai_chat::WIRE_VERSION`].
/// `tests/encode_gemini.rs` fails when bytes change under the same version.
///
/// - 1: names of calls are sent as they came.
/// - 2: names of calls have the characters and lengths that Gemini accepts.
pub const WIRE_VERSION: u32 = 2;

/// The last version that sent names of calls as they came.
const RAW_NAMES: u32 = 1;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "gemini";

const STATE_KEY: &str = "google";

pub(crate) const SPEC: Spec = Spec {
    id: ID,
    wire_version: WIRE_VERSION,
    state_key: STATE_KEY,
    framing: Framing::Sse,
    base_path: "/v1beta",
    path,
    write: encode::write,
};

/// Keeps RFC 3986's unreserved characters and the slash of a model's full name (`tunedModels/x`).
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

fn path(model: &str) -> String {
    let collection = if model.contains('/') { "" } else { "models/" };
    let model = utf8_percent_encode(model, IN_PATH);
    format!("{collection}{model}:streamGenerateContent?alt=sse")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_in_the_path_under_its_full_name() {
        assert_eq!(path("gemini-3-pro"), "models/gemini-3-pro:streamGenerateContent?alt=sse");
        assert_eq!(path("tunedModels/a b"), "tunedModels/a%20b:streamGenerateContent?alt=sse");
    }
}
