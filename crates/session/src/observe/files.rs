//! All that is looked at in a Location's files for one boundary, in one go: each pass takes a thread and wakes
//! the drain, whatever it looks for.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use context::InstructionFile;
use tokio::time::timeout;

use super::{ObservedAt, PATIENCE, instructions, nested, repository};

/// What one pass has seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// Whether the Location is a git checkout, and its branch.
    pub(super) repository: (bool, Option<String>),
    /// The project's instructions, from its top down to the Location. `Err`: why they cannot be read for now.
    pub(super) project: Result<Vec<InstructionFile>, String>,
    /// Those of the directories below in which the model has read.
    pub(super) nested: Result<Vec<InstructionFile>, String>,
}

/// What a pass looks at.
struct Pass {
    root: PathBuf,
    shown: PathBuf,
    in_project: bool,
    project_instructions: bool,
    reads: Arc<BTreeSet<String>>,
}

/// Looks once, where it may block. `Err` says why nothing could be looked at for now.
pub(super) async fn look(at: &ObservedAt) -> Result<Seen, String> {
    let pass = Pass {
        root: at.root.clone().ok_or("the workspace is not here")?,
        shown: PathBuf::from(&at.shown),
        in_project: at.in_project,
        project_instructions: at.project_instructions,
        reads: Arc::clone(&at.reads),
    };
    let looking = tokio::task::spawn_blocking(move || pass.look());
    match timeout(PATIENCE, looking).await {
        Ok(looked) => looked.map_err(|failed| failed.to_string()),
        Err(_elapsed) => Err(format!("its files did not answer within {} s", PATIENCE.as_secs())),
    }
}

impl Pass {
    fn look(&self) -> Seen {
        let told = |files: io::Result<_>| files.map_err(|error| error.to_string());
        let (project, nested) = if self.project_instructions {
            let Self { root, shown, reads, .. } = self;
            (told(self.project()), told(nested::found(root, shown, reads)))
        } else {
            (Ok(Vec::new()), Ok(Vec::new()))
        };
        Seen { repository: repository::repository(&self.root), project, nested }
    }

    fn project(&self) -> io::Result<Vec<InstructionFile>> {
        let root = &self.root;
        let top = if self.in_project { worktree(root) } else { root };
        instructions::upward(root, top, &self.shown)
    }
}

/// Directories above a Location in which the top of its worktree is looked for.
const MAX_DEPTH: usize = 64;

/// The nearest directory from `root` upwards that has a `.git`; `root` itself without one.
pub(super) fn worktree(root: &Path) -> &Path {
    let mut above = root.ancestors().take(MAX_DEPTH);
    above.find(|directory| directory.join(".git").symlink_metadata().is_ok()).unwrap_or(root)
}
