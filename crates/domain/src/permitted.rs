use std::collections::BTreeSet;

use serde::Serialize;

/// The permitted things of one kind: all of them, or the named ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permitted {
    /// Everything.
    All,
    /// These, and nothing else.
    Only(BTreeSet<String>),
}

impl Permitted {
    /// Nothing.
    pub const NOTHING: &'static Self = &Self::Only(BTreeSet::new());

    /// Permits the named things.
    #[must_use]
    pub fn only<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Returns whether the thing with this name is permitted.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}
