use domain::OrgId;

/// A permission of a key. Stored as text, so that scopes of a newer build are kept and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Reads projects, sessions, messages and logs.
    Read,
    /// Creates and deletes sessions, admits prompts, interrupts.
    Prompt,
    /// Runs rebuild, check and explain.
    Administer,
}

impl Scope {
    /// The stored scope that allows everything. The key of a first boot has it.
    pub const ALL: &'static str = "*";

    /// Returns the stored form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prompt => "prompt",
            Self::Administer => "administer",
        }
    }
}

/// The proof of a request's authentication. Every call that needs a tenant takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The organisation.
    pub org: OrgId,
    /// The key's id (not the key).
    pub key: String,
    /// The key's stored scopes.
    pub scopes: Vec<String>,
}

impl Access {
    /// Returns whether the key has `scope`, or all scopes.
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
