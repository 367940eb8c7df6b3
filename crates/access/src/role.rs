use std::fmt;
use std::str::FromStr;

/// The role of a person or service account in its organisation, from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrgRole {
    /// Reads.
    Viewer,
    /// Works: prompts, answers, changes sessions.
    Member,
    /// Sets the organisation up: providers, people, keys.
    Admin,
    /// Names owners, and who vouches for people.
    Owner,
}

/// A text that is no role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRole(pub String);

impl OrgRole {
    /// All roles, from the least.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Admin, Self::Owner];

    /// Returns the stored form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

impl FromStr for OrgRole {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

impl fmt::Display for OrgRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for UnknownRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no role `{}`; there are viewer, member, admin and owner", self.0)
    }
}

impl std::error::Error for UnknownRole {}
