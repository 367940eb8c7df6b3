//! The rules of a connection: they decide about a person's place and role.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Claims, Groups};

/// A role that a connection can give. None of them is the owner's: owners are made by owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MappedRole {
    /// Reads.
    #[default]
    Viewer,
    /// Works.
    Member,
    /// Sets the organisation up.
    Admin,
}

/// The error for a role that no connection can give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no role that a connection can give: admin, member or viewer (an owner is made by an owner)"
)]
pub struct UnknownRole(pub String);

impl MappedRole {
    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for MappedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MappedRole {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = [Self::Viewer, Self::Member, Self::Admin].into_iter();
        let found = found.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| UnknownRole(text.chars().take(40).collect()))
    }
}

/// A connection's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The claim that has a person's groups.
    pub groups_claim: String,
    /// The role of each group. Empty: groups do not matter.
    pub groups: BTreeMap<String, MappedRole>,
    /// The role of a person in none of these groups.
    pub default_role: MappedRole,
    /// The e-mail domains whose people may join. Empty: everybody whom the provider signs in.
    pub domains: Vec<String>,
}

/// The role of a person, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The role. Of a person who is known already, see [`Admission::keeps_role`].
    pub role: MappedRole,
    /// The reason.
    pub why: Why,
}

impl Admission {
    /// Returns whether a person who is known already keeps the role that they have: they are in too many groups for the
    /// provider to tell, which is no sign that they left one.
    #[must_use]
    pub fn keeps_role(&self) -> bool {
        matches!(self.why, Why::TooMany(_))
    }
}

/// The reason for a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The person is in this group.
    Group(String),
    /// The person is in no group that the connection maps.
    NoGroup,
    /// The person is in too many groups to know them, for this reason.
    TooMany(String),
    /// The groups are not known, for this reason.
    Unknown(String),
    /// The connection maps no groups.
    NoMapping,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "the group `{group}` has this role"),
            Self::NoGroup => f.write_str(
                "the person is in no group that the connection maps, so the default role counts",
            ),
            Self::TooMany(why) => {
                write!(
                    f,
                    "{why}, so the last known role stays, and the default role counts for new people"
                )
            }
            Self::Unknown(why) => write!(f, "{why}, so the default role counts"),
            Self::NoMapping => {
                f.write_str("the connection maps no groups, so the default role counts")
            }
        }
    }
}

/// The reason why a person may not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The provider does not say that the address is the person's.
    #[error(
        "the connection is for the e-mail domains {0}, and the provider confirms no e-mail address of this person"
    )]
    Unverified(String),
    /// The domain is another.
    #[error(
        "the connection is for the e-mail domains {0}, and the e-mail address of this person is at `{1}`"
    )]
    Domain(String, String),
}

impl Rules {
    /// Returns whether groups decide the role. If so, they decide it at every sign-in.
    #[must_use]
    pub fn maps_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Decides whether a person may join or sign in, and with which role.
    ///
    /// # Errors
    /// The connection names domains, and the person's verified address is in none of them.
    pub fn admit(&self, claims: &Claims) -> Result<Admission, NotAdmitted> {
        if !self.domains.is_empty() {
            let shown = || self.domains.join(", ");
            let domain =
                claims.verified_domain().ok_or_else(|| NotAdmitted::Unverified(shown()))?;
            if !self.domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(&domain)) {
                return Err(NotAdmitted::Domain(shown(), domain));
            }
        }
        let default = |why| Admission { role: self.default_role, why };
        if !self.maps_groups() {
            return Ok(default(Why::NoMapping));
        }
        Ok(match claims.groups(&self.groups_claim) {
            Groups::Known(groups) => {
                let mapped =
                    groups.iter().filter_map(|group| Some((*self.groups.get(group)?, group)));
                match mapped.max_by_key(|(role, _)| *role) {
                    Some((role, group)) => Admission { role, why: Why::Group(group.clone()) },
                    None => default(Why::NoGroup),
                }
            }
            Groups::TooMany(why) => default(Why::TooMany(why)),
            Groups::Unknown(why) => default(Why::Unknown(why)),
            Groups::Absent => {
                let why = format!("the provider sent no claim `{}`", self.groups_claim);
                default(Why::Unknown(why))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claims(value: Value) -> Claims {
        let Value::Object(claims) = value else { panic!("an object") };
        Claims::new(claims)
    }

    fn rules() -> Rules {
        let groups = [("eng".to_owned(), MappedRole::Member), ("it".to_owned(), MappedRole::Admin)];
        Rules {
            groups_claim: "groups".into(),
            groups: groups.into(),
            default_role: MappedRole::Viewer,
            domains: Vec::new(),
        }
    }

    #[test]
    fn the_highest_mapped_group_gives_the_role() {
        let role =
            |groups: Value| rules().admit(&claims(json!({ "groups": groups }))).expect("in").role;
        assert_eq!(role(json!(["eng"])), MappedRole::Member);
        assert_eq!(role(json!(["it", "eng", "x"])), MappedRole::Admin);
        assert_eq!(role(json!(["x"])), MappedRole::Viewer);
        assert_eq!(role(json!([])), MappedRole::Viewer);
    }

    // Attack 5: a truncated token makes no admin. Finding reports 26: it takes no role away either, if the provider says why
    // the groups are missing; if they are missing without a word, the default role counts.
    #[test]
    fn unknown_groups_give_the_default_role_and_say_why() {
        let overage = json!({ "_claim_names": { "groups": "src1" }, "groups": ["it"] });
        let admitted = rules().admit(&claims(overage)).expect("in");
        assert_eq!(admitted.role, MappedRole::Viewer);
        assert!(admitted.why.to_string().contains("more groups than"), "{}", admitted.why);
        assert!(admitted.keeps_role());
        let gone = rules().admit(&claims(json!({}))).expect("in");
        assert_eq!((gone.role, gone.keeps_role()), (MappedRole::Viewer, false));
        assert!(gone.why.to_string().contains("no claim `groups`"), "{}", gone.why);
    }

    #[test]
    fn no_connection_makes_an_owner() {
        assert!("owner".parse::<MappedRole>().is_err());
        assert!(serde_json::from_value::<MappedRole>(json!("owner")).is_err());
        assert_eq!("admin".parse(), Ok(MappedRole::Admin));
    }

    // Attack 2: an address that another tenant asserts opens nothing.
    #[test]
    fn a_domain_filters_by_verified_addresses_only() {
        let rules = Rules { domains: vec!["Example.com".into()], ..rules() };
        let of = |email: &str, verified: bool| {
            rules.admit(&claims(json!({ "email": email, "email_verified": verified })))
        };
        assert!(of("a@example.com", true).is_ok());
        assert!(matches!(of("a@example.com", false), Err(NotAdmitted::Unverified(_))));
        assert!(matches!(of("a@evil.example", true), Err(NotAdmitted::Domain(..))));
        assert!(matches!(of("a@example.com@evil.example", true), Err(NotAdmitted::Domain(..))));
    }
}
