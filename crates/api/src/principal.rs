use domain::{Author, OrgId};

/// Who sends a request, and for which organisation, as the request's key proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// Every call of the store takes it.
    pub(crate) org: OrgId,
    /// Written beside what the request does.
    pub(crate) author: Author,
}
