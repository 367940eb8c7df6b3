//! The signatures of the simulated model's reasoning, which later requests must repeat. Pure.

use sha2::{Digest, Sha256};

/// Returns the signature of `text`: hex of a hash of the protocol's id and the text, so that a signature of one
/// protocol is wrong in another.
pub(crate) fn sign(protocol: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(protocol);
    hash.update([0]);
    hash.update(text);
    hex::encode(hash.finalize())
}
