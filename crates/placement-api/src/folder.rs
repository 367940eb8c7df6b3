use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The random id of a member's data folder, made together with the folder.
///
/// A member's number says who it is; this says whether it still remembers what it voted for. The group's
/// membership names both, and a member answers only messages that are meant for its folder: one whose folder
/// was emptied would otherwise vote and count as if it had never agreed to anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FolderId(pub Uuid);

impl FolderId {
    /// An id for a new folder.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Whether it names a folder: a membership that an older build wrote names none.
    #[must_use]
    pub fn is_known(self) -> bool {
        !self.0.is_nil()
    }
}

impl fmt::Display for FolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_simple())
    }
}
