use std::fmt;

use crate::{Actor, Need, OrgRole, Scopes};

/// The least role for each need.
pub const POLICY: [(Need, OrgRole); Need::ALL.len()] = [
    (Need::SessionRead, OrgRole::Viewer),
    (Need::SessionPrompt, OrgRole::Member),
    (Need::SessionInspect, OrgRole::Admin),
    (Need::SettingsManage, OrgRole::Admin),
    (Need::ProviderManage, OrgRole::Admin),
    (Need::MeRead, OrgRole::Viewer),
    (Need::MeManage, OrgRole::Viewer),
    (Need::PeopleRead, OrgRole::Viewer),
    (Need::PeopleManage, OrgRole::Admin),
    (Need::KeyManage, OrgRole::Admin),
    (Need::OwnerManage, OrgRole::Owner),
    (Need::SsoManage, OrgRole::Owner),
];

/// Who acts, and how far it may go: its role now, and the scopes of what it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Who acts.
    pub actor: Actor,
    /// Its role now.
    pub role: OrgRole,
    /// The scopes of its key; everything for a login.
    pub scopes: Scopes,
}

/// Why a need is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It wants at least this role.
    Role {
        /// The role that there is.
        has: OrgRole,
        /// The least that is wanted.
        wants: OrgRole,
    },
    /// The key has no scope for it.
    Scope,
}

/// The answer of [`decide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Yes,
    /// It may not.
    Forbidden(Need, Missing),
}

impl Standing {
    /// Returns the role that counts: a service account is never an owner.
    #[must_use]
    pub fn effective_role(&self) -> OrgRole {
        if self.actor.is_person() { self.role } else { self.role.min(OrgRole::Admin) }
    }

    /// Returns whether it may do what `need` says.
    #[must_use]
    pub fn may(&self, need: Need) -> bool {
        decide(self, need) == Decision::Yes
    }

    /// Returns all that it may.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        Need::ALL.into_iter().filter(|need| self.may(*need))
    }
}

/// Decides whether `standing` may do what `need` says. The role is looked at first: no key makes up for it.
#[must_use]
pub fn decide(standing: &Standing, need: Need) -> Decision {
    let (has, wants) = (standing.effective_role(), least(need));
    if has < wants {
        return Decision::Forbidden(need, Missing::Role { has, wants });
    }
    if !standing.scopes.has(need) {
        return Decision::Forbidden(need, Missing::Scope);
    }
    Decision::Yes
}

/// Returns the least role for a need. A need without a row is the owner's alone; a test finds it.
fn least(need: Need) -> OrgRole {
    let row = POLICY.iter().find(|(of, _)| *of == need);
    row.map_or(OrgRole::Owner, |(_, role)| *role)
}

/// Returns the policy as a table in Markdown, for `docs/security.md`.
#[must_use]
pub fn policy_table() -> String {
    let mut table =
        String::from("| need | to | least role | scope of keys |\n| --- | --- | --- | --- |\n");
    for (need, role) in POLICY {
        let bundle = need.bundle().as_str();
        table.push_str(&format!("| `{need}` | {} | {role} | `{bundle}` |\n", need.about()));
    }
    table
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role { has, wants } => {
                write!(f, "it wants the role {wants}, and yours is {has}; an admin can change it")
            }
            Self::Scope => f.write_str("the API key lacks the scope for it; use another key"),
        }
    }
}
