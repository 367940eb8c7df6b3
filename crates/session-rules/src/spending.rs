//! The monthly stop, as it was looked up before a boundary.

use std::collections::BTreeMap;

use domain::{Author, SessionError};

/// The people who may begin no turn because a monthly limit of cost is reached, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpendingStop {
    /// Nobody may.
    pub organisation: Option<SessionError>,
    /// These people may not.
    pub people: BTreeMap<String, SessionError>,
}

impl SpendingStop {
    /// Returns why work for a prompt of `author` must not begin. Work of nobody known is only the organisation's.
    #[must_use]
    pub fn of(&self, author: Option<&Author>) -> Option<&SessionError> {
        let person = author.and_then(|author| self.people.get(author.person()));
        self.organisation.as_ref().or(person)
    }
}
