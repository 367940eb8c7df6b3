use serde::{Deserialize, Serialize};

use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The environment's key.
pub const ENVIRONMENT_KEY: SourceKey = SourceKey::fixed("core/environment");

/// What is told of a Location. Nothing that differs between workers or changes with every edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentFacts {
    /// The directory, as the model is shown it.
    pub directory: String,
    /// What tools run on, such as `linux`.
    pub platform: String,
    /// Whether it is a git repository.
    pub repository: bool,
    /// The branch that is checked out, if one is.
    pub branch: Option<String>,
}

impl EnvironmentFacts {
    fn told_as(&self, opening: &str) -> String {
        let Self { directory, platform, .. } = self;
        let repository = if self.repository { "yes" } else { "no" };
        let mut text = format!(
            "{opening}:\n<environment>\nWorking directory: {directory}\nPlatform: {platform}\n\
             Git repository: {repository}"
        );
        if let Some(branch) = &self.branch {
            text.push_str("\nGit branch: ");
            text.push_str(branch);
        }
        text + "\n</environment>"
    }
}

impl ContextSource for EnvironmentFacts {
    type Told = Self;

    fn told(&self) -> Self {
        self.clone()
    }

    fn baseline(&self) -> String {
        self.told_as("You work in this environment")
    }

    fn update(&self, _told: &Self) -> String {
        self.told_as("The environment is now")
    }
}

/// The environment of a Location.
#[must_use]
pub fn environment(facts: Loaded<EnvironmentFacts>) -> SystemContext {
    SystemContext::make(ENVIRONMENT_KEY, facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reconciled;

    #[test]
    fn a_switch_of_branch_is_told_and_the_same_facts_are_not() {
        let on = |branch: &str| {
            environment(Loaded::Value(EnvironmentFacts {
                directory: "/workspace".into(),
                platform: "linux".into(),
                repository: true,
                branch: Some(branch.into()),
            }))
        };
        let first = on("main").initialize().expect("available");
        assert_eq!(
            first.baseline,
            "You work in this environment:\n<environment>\nWorking directory: /workspace\n\
             Platform: linux\nGit repository: yes\nGit branch: main\n</environment>"
        );
        assert_eq!(on("main").reconcile(&first.snapshot), Reconciled::Unchanged);
        assert!(matches!(on("fix").reconcile(&first.snapshot), Reconciled::Updated { .. }));
    }
}
