use domain::{Author, OrgId};

/// Who sends a request, and for which organisation: what verbs need of a [`store::Principal`], which only a row makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// Every call of the store takes it.
    pub(crate) org: OrgId,
    /// Written beside what the request does.
    pub(crate) author: Author,
}

impl From<&store::Principal> for Principal {
    fn from(proved: &store::Principal) -> Self {
        Self { org: proved.org(), author: proved.author() }
    }
}

impl Principal {
    /// Returns the organisation and the id of the person or service account; of the key, where a key has no owner.
    pub(crate) fn person(&self) -> (OrgId, String) {
        let id = self.author.actor.as_ref().unwrap_or(&self.author.key);
        (self.org, id.clone())
    }
}
