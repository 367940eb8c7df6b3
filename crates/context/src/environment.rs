use serde_json::json;

use crate::{Observation, Observed, SystemContext};

/// The environment's key.
pub const ENVIRONMENT_KEY: &str = "core/environment";

/// What is told of a Location. Nothing that differs between workers or changes with every edit.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The environment of a Location.
#[must_use]
pub fn environment(facts: &EnvironmentFacts) -> SystemContext {
    let mut told = format!(
        "Working directory: {}\nPlatform: {}\nGit repository: {}",
        facts.directory,
        facts.platform,
        if facts.repository { "yes" } else { "no" },
    );
    if let Some(branch) = &facts.branch {
        told.push_str("\nGit branch: ");
        told.push_str(branch);
    }
    SystemContext::make(
        ENVIRONMENT_KEY,
        Observed::Value(Observation {
            value: json!({
                "directory": facts.directory,
                "platform": facts.platform,
                "repository": facts.repository,
                "branch": facts.branch,
            }),
            baseline: format!(
                "You work in this environment:\n<environment>\n{told}\n</environment>"
            ),
            update: format!("The environment is now:\n<environment>\n{told}\n</environment>"),
            removal: None,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reconciled;

    #[test]
    fn a_switch_of_branch_is_told_and_the_same_facts_are_not() {
        let on = |branch: &str| {
            environment(&EnvironmentFacts {
                directory: "/workspace".into(),
                platform: "linux".into(),
                repository: true,
                branch: Some(branch.into()),
            })
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
