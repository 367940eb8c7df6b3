use serde::{Deserialize, Serialize};

use crate::{LocationId, OrgId, SessionId};

/// A Location with the organisation that owns it: the unit that placement leases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocationRef {
    /// The owning organisation.
    pub org: OrgId,
    /// The Location.
    pub location: LocationId,
}

/// A session with its organisation and Location: the subject of a hint or a drain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionRef {
    /// The owning organisation.
    pub org: OrgId,
    /// The Location that the session lives in.
    pub location: LocationId,
    /// The session.
    pub session: SessionId,
}

impl SessionRef {
    /// Returns the Location of this session.
    #[must_use]
    pub fn location_ref(&self) -> LocationRef {
        LocationRef { org: self.org, location: self.location.clone() }
    }
}
