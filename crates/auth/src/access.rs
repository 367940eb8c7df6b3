use domain::OrgId;

/// What a key may do. Stored as text, so that a newer build's scopes are kept and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// See projects, sessions, messages and logs.
    Read,
    /// Create and delete sessions, admit prompts, interrupt.
    Prompt,
    /// Rebuild, check, explain.
    Administer,
}

impl Scope {
    /// The scope that allows everything, as stored: what a first boot's key has.
    pub const ALL: &'static str = "*";

    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prompt => "prompt",
            Self::Administer => "administer",
        }
    }
}

/// What a request has proved: it travels with every call that needs a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The organisation.
    pub org: OrgId,
    /// The key's id (not the key).
    pub key: String,
    /// What the key may do, as stored.
    pub scopes: Vec<String>,
}

impl Access {
    /// Whether the key has `scope`, or all of them.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|held| held == Scope::ALL || held == scope.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(scopes: &[&str]) -> Access {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        Access { org: OrgId::FIRST, key: "key_1".into(), scopes }
    }

    #[test]
    fn a_key_may_do_what_its_scopes_say_and_nothing_without_them() {
        assert!(access(&["*"]).may(Scope::Administer));
        assert!(access(&["read", "prompt"]).may(Scope::Prompt));
        assert!(!access(&["read"]).may(Scope::Prompt));
        assert!(!access(&[]).may(Scope::Read));
        assert!(!access(&["reader"]).may(Scope::Read));
    }
}
