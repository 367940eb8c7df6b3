//! The signatures of the simulated model's reasoning, which it wants to see again. Pure.

use sha2::{Digest, Sha256};

/// The signature of `text` in the protocol of this id: hex of a hash of both, so that a signature of one protocol is
/// wrong in another.
pub(crate) fn sign(protocol: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(protocol);
    hash.update([0]);
    hash.update(text);
    hex::encode(hash.finalize())
}
