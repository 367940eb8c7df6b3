//! Amazon Bedrock's Converse API, streamed.
//!
//! Source: <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html> and the
//! recordings in `tests/recordings`. Each quirk of the models behind it has a named function beside the code
//! that handles it.

mod block;
mod body;
mod content;
mod decode;
mod encode;
mod frame;
mod hosted;
mod media;
mod part;
mod tools;

pub use decode::Decoder;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::framing::Framing;
use crate::protocol::Spec;

/// The version of the written bytes: see [`crate::openai_chat::WIRE_VERSION`].
pub const WIRE_VERSION: u32 = 1;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "bedrock-converse";

const STATE_KEY: &str = "bedrock";

pub(crate) const SPEC: Spec = Spec {
    id: ID,
    wire_version: WIRE_VERSION,
    state_key: STATE_KEY,
    framing: Framing::AwsEventStream,
    base_path: "",
    path,
    write: body::write,
};

/// Keeps RFC 3986's unreserved characters; a model's `:` and an ARN's `/` are escaped.
const IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn path(model: &str) -> String {
    format!("model/{}/converse-stream", utf8_percent_encode(model, IN_SEGMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_one_segment_of_the_path() {
        assert_eq!(path("us.nova-v1:0"), "model/us.nova-v1%3A0/converse-stream");
        let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/x";
        let encoded =
            "model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse-stream";
        assert_eq!(path(arn), encoded);
    }
}
