use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The random id of a member's data folder, created with the folder.
///
/// A member's number identifies the member; this id shows whether it still remembers its votes. The group's
/// membership contains both, and a member answers only messages for its own folder. Otherwise a member whose
/// folder was emptied would vote as if it had never agreed to anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FolderId(pub Uuid);

impl FolderId {
    /// Makes an id for a new folder.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns whether it identifies a folder. Memberships of older builds have none.
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
