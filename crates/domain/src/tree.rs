use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All files of a Location at one moment, by the SHA-256 of everything in them: equal trees are equal files.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(inline, with = "String", extend("pattern" = "^[0-9a-f]{64}$"))]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotTree(String);

/// The error for a string that is not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tree is 64 lower-case hex digits")]
pub struct BadTree;

impl SnapshotTree {
    const DIGITS: usize = 64;

    /// Returns the stored text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SnapshotTree {
    type Error = BadTree;

    fn try_from(text: String) -> Result<Self, BadTree> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && text.len() == Self::DIGITS { Ok(Self(text)) } else { Err(BadTree) }
    }
}

impl From<SnapshotTree> for String {
    fn from(tree: SnapshotTree) -> Self {
        tree.0
    }
}

impl fmt::Display for SnapshotTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_a_hash_in_hex() {
        assert!(SnapshotTree::try_from("0a".repeat(32)).is_ok());
        for bad in ["0a".repeat(31), "0A".repeat(32), "0g".repeat(32), String::new()] {
            assert_eq!(SnapshotTree::try_from(bad.clone()), Err(BadTree), "{bad}");
        }
    }
}
