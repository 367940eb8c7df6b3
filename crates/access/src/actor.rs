use std::fmt;
use std::str::FromStr;

use domain::{ServiceId, UserId};

/// Somebody who acts: a person, or a service account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A person.
    User(UserId),
    /// A service account.
    Service(ServiceId),
}

/// A text that names no actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorError;

impl Actor {
    /// The service account that keys from before there were people belong to.
    pub const FIRST_SERVICE: &str = "svc_first";

    /// Returns the actor's id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::User(id) => id.as_str(),
            Self::Service(id) => id.as_str(),
        }
    }

    /// Returns `user` or `service`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Service(_) => "service",
        }
    }

    /// Returns whether the actor is a person.
    #[must_use]
    pub fn is_person(&self) -> bool {
        matches!(self, Self::User(_))
    }
}

impl FromStr for Actor {
    type Err = ActorError;

    fn from_str(text: &str) -> Result<Self, ActorError> {
        let user = text.parse().map(Self::User);
        user.or_else(|_| text.parse().map(Self::Service)).map_err(|_| ActorError)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl fmt::Display for ActorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an actor is a person (usr_…) or a service account (svc_…)")
    }
}

impl std::error::Error for ActorError {}
