use std::collections::BTreeSet;

/// What may be used of a kind of things: all of them, or those that are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permitted {
    /// Whatever there is.
    All,
    /// These, and nothing else.
    Only(BTreeSet<String>),
}

impl Permitted {
    /// Nothing at all.
    pub const NOTHING: &'static Self = &Self::Only(BTreeSet::new());

    /// What is named.
    #[must_use]
    pub fn only<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Whether the thing of this name may be used.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}
