use std::path::Path;

use context::{ContextSnapshot, EnvironmentFacts, SystemContext, date, environment};
use jiff::tz::TimeZone;

use crate::drain::Runtime;
use crate::workspace::Workspace;

/// What was seen of the Context Sources before a transaction; rendered within it, against the snapshot.
pub(crate) struct Observation {
    facts: EnvironmentFacts,
    now_ms: i64,
    zone: TimeZone,
}

/// Looks at the Context Sources.
pub(crate) async fn observe(runtime: &Runtime, workspace: &Workspace) -> Observation {
    let (repository, branch) = match workspace.root() {
        Some(root) => repository(root).await,
        None => (false, None),
    };
    Observation {
        facts: EnvironmentFacts {
            directory: workspace.shown().to_owned(),
            platform: "linux".to_owned(),
            repository,
            branch,
        },
        now_ms: runtime.clock.now_ms(),
        zone: runtime.settings.zone.clone(),
    }
}

impl Observation {
    /// The System Context, in the stable order of its keys' registration.
    pub(crate) fn context(&self, told: Option<&ContextSnapshot>) -> SystemContext {
        SystemContext::combine([environment(&self.facts), date(self.now_ms, &self.zone, told)])
            .expect("the built-in sources have distinct keys")
    }
}

/// Whether `root` is a git checkout, and its branch. A worktree's `.git` is a file that names the folder.
async fn repository(root: &Path) -> (bool, Option<String>) {
    let git = root.join(".git");
    let folder = match tokio::fs::read_to_string(&git).await {
        Ok(text) => match text.trim().strip_prefix("gitdir: ") {
            Some(folder) => root.join(folder),
            None => return (false, None),
        },
        Err(_) => git,
    };
    match tokio::fs::read_to_string(folder.join("HEAD")).await {
        Ok(head) => (true, head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)),
        Err(_) => (false, None),
    }
}
