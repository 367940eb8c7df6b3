use domain::FencingToken;

use crate::change::FileChanges;
use crate::object::TreeId;
use crate::scan::Skipped;

/// A committed row of the Location: a tree, and the pack that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackRef {
    /// The token under which it was captured.
    pub token: FencingToken,
    /// Its number under that token.
    pub ordinal: i64,
    /// The tree.
    pub tree: TreeId,
    /// The pack with the tree's new content; `None` if it has no new content.
    pub pack: Option<String>,
}

/// A tree that differs from the previous one, or the same tree with new left-out files. Its pack is stored,
/// and its row can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The token.
    pub token: FencingToken,
    /// Its number under that token; later Captures have greater ones.
    pub ordinal: i64,
    /// The tree.
    pub tree: TreeId,
    /// The previous tree; `None` for the Location's first.
    pub parent: Option<TreeId>,
    /// The stored pack; `None` if committed packs hold the whole tree.
    pub pack: Option<String>,
    /// The size of the pack in bytes.
    pub bytes: u64,
    /// The changes since `parent`; empty for the Location's first.
    pub changes: FileChanges,
    /// Files that are in no snapshot although no ignore file names them, and that were not reported before.
    pub skipped: Skipped,
}

impl Captured {
    /// Returns the row for it.
    #[must_use]
    pub fn pack_ref(&self) -> PackRef {
        let Self { token, ordinal, tree, pack, .. } = self;
        PackRef { token: *token, ordinal: *ordinal, tree: *tree, pack: pack.clone() }
    }
}
