use serde::{Deserialize, Serialize};

use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The key of the environment.
pub const ENVIRONMENT_KEY: SourceKey = SourceKey::fixed("core/environment");

/// The facts about a Location that the model receives. Nothing in it differs between workers or changes with
/// every edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentFacts {
    /// The directory, as shown to the model.
    pub directory: String,
    /// The platform of the tools, such as `linux`.
    pub platform: String,
    /// It is a git repository.
    pub repository: bool,
    /// The current branch, if there is one.
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

/// Returns the source for a Location's environment.
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
