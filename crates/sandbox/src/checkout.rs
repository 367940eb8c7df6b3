//! Keeps the repositories in a person's checkout as they are: git runs and obeys them outside of the sandbox later, with that
//! person's rights.
//!
//! Three parts. What is there before a command is read-only in it; of the `.git` at the top it sees a [front](front), so that
//! it commits as ever. A repository that a command has made is put aside after it, unless git runs nothing in it. While the
//! command runs, such a new repository is there: `docs/decisions/0090-git-of-a-checkout.md` says what that leaves open.

mod config;
mod find;
pub(crate) mod front;
mod index;
pub(crate) mod kept;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use tokio_util::sync::CancellationToken;

use crate::command::{Command, Outcome, Sandbox, SandboxError};
use find::{Kind, Repository, repositories};

/// Checkouts whose own repositories of commands are remembered.
const KNOWN: usize = 1024;

type Made = BTreeSet<(u64, u64)>;

/// A sandbox of any tier that keeps repositories in checkouts of persons as they are.
pub(crate) struct CheckoutSandbox {
    inner: Arc<dyn Sandbox>,
    /// Whether what is there before a command is read-only in it.
    keeps: bool,
    /// Harmless repositories that commands have made, by workspace: commands may go on changing them.
    made: Mutex<HashMap<PathBuf, Made>>,
}

impl CheckoutSandbox {
    pub(crate) fn new(inner: Arc<dyn Sandbox>, keeps: bool) -> Self {
        Self { inner, keeps, made: Mutex::default() }
    }

    fn read_made(&self, workspace: &Path) -> Made {
        let known = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(workspace).cloned().unwrap_or_default()
    }

    fn remember(&self, workspace: &Path, change: impl FnOnce(&mut Made)) {
        let mut known = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN && !known.contains_key(workspace) {
            known.clear(); // What was made is the person's then: read-only.
        }
        change(known.entry(workspace.to_path_buf()).or_default());
    }
}

/// Opens a workspace by its real path.
pub(crate) fn open_workspace(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

async fn find_in(workspace: &Path) -> Result<(Arc<OwnedFd>, BTreeSet<Repository>), SandboxError> {
    let (path, shown) = (workspace.to_path_buf(), workspace.display().to_string());
    let look = move || {
        let fd = open_workspace(&path)?;
        let found = repositories(fd.as_fd());
        rustix::io::Result::Ok((Arc::new(fd), found))
    };
    let looked = tokio::task::spawn_blocking(look).await;
    let looked = looked.map_err(|error| SandboxError::System(error.into()))?;
    looked.map_err(|errno| SandboxError::NotStarted(format!("{shown} cannot be opened: {errno}")))
}

#[async_trait]
impl Sandbox for CheckoutSandbox {
    fn shows_outputs(&self) -> bool {
        self.inner.shows_outputs()
    }

    async fn run(
        &self,
        mut command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        if !command.cell.protect {
            return self.inner.run(command, cancel).await;
        }
        let workspace = command.cell.workspace.clone().unwrap_or_else(|| command.directory.clone());
        let is_git = |name: &std::ffi::OsStr| name.eq_ignore_ascii_case(".git");
        let (fd, before) = find_in(&workspace).await?;
        let is_bare = before.iter().any(|it| it.kind == Kind::Bare && it.path == Path::new(""));
        if is_bare || workspace.iter().any(is_git) {
            return Err(SandboxError::NotStarted(format!(
                "{} is a folder of git's own, which git obeys outside of the sandbox; work in a directory with a checkout",
                workspace.display()
            )));
        }
        let made = self.read_made(&workspace);
        let kept = before.iter().filter(|it| self.keeps && !made.contains(&it.id));
        command.read_only = kept.map(|it| it.path.clone()).collect();
        let ran = self.inner.run(command, cancel).await;
        let known: BTreeSet<_> =
            before.iter().map(|it| it.id).filter(|id| !made.contains(id)).collect();
        let judge = move || {
            let fresh: Vec<_> =
                repositories(fd.as_fd()).into_iter().filter(|it| !known.contains(&it.id)).collect();
            let (good, bad): (Vec<_>, Vec<_>) =
                fresh.into_iter().partition(|it| it.is_harmless(fd.as_fd()));
            let said: Vec<_> = bad.iter().filter_map(|it| it.put_aside(fd.as_fd())).collect();
            (good, bad, said)
        };
        let judged = tokio::task::spawn_blocking(judge).await;
        let (good, bad, said) = judged.map_err(|error| SandboxError::System(error.into()))?;
        self.remember(&workspace, |made| {
            made.extend(good.iter().map(|it| it.id));
            made.retain(|id| !bad.iter().any(|it| it.id == *id));
        });
        for sentence in &said {
            tracing::warn!(workspace = %workspace.display(), "{sentence}");
        }
        let mut outcome = ran?;
        outcome.notes.extend(said);
        Ok(outcome)
    }
}
