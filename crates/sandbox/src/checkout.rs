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
mod judge;
pub(crate) mod kept;
mod names;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use tokio_util::sync::CancellationToken;

use crate::command::{Command, Outcome, Sandbox, SandboxError};
use find::{Found, Id, Kind, Repository, Unseen, find_repositories};
use judge::Aside;
use kept::blocking;

/// Checkouts whose own repositories of commands are remembered.
const KNOWN: usize = 1024;

/// A sandbox of any tier that keeps repositories in checkouts of persons as they are.
pub(crate) struct CheckoutSandbox {
    inner: Arc<dyn Sandbox>,
    /// Whether what is there before a command is read-only in it.
    keeps: bool,
    /// Whether a wall of the kernel holds back the writes of a command that may remove files only.
    holds_back_writes: bool,
    memory: Mutex<HashMap<PathBuf, Memory>>,
    /// Looks for repositories.
    find: fn(&OwnedFd) -> Found,
}

/// The things that are remembered of a workspace, for as long as the service runs.
#[derive(Debug, Default, Clone)]
struct Memory {
    /// Harmless repositories that commands have made: commands may go on changing them.
    made: BTreeSet<Id>,
    /// Repositories that were not to be trusted and could not be put aside. They never count as the person's.
    refused: BTreeSet<Id>,
    /// The person's, as of before a command after which nobody has looked: its caller went away, or it could not be ended.
    unjudged: Option<BTreeSet<Id>>,
}

impl Memory {
    fn is_suspect(&self, id: Id) -> bool {
        let is_new = |persons: &BTreeSet<Id>| !persons.contains(&id) && !self.made.contains(&id);
        self.refused.contains(&id) || self.unjudged.as_ref().is_some_and(is_new)
    }
}

/// The repositories that were looked at, by their end.
#[derive(Default)]
struct Judgement {
    good: BTreeSet<Id>,
    bad: BTreeSet<Id>,
    /// Those of the bad ones that are where they were, and a sentence about one of them.
    stuck: BTreeSet<Id>,
    refusal: Option<String>,
    /// A sentence about each of the bad ones.
    said: Vec<String>,
}

impl CheckoutSandbox {
    /// `holds_back_writes`: whether [`crate::DiskShare::removes_only`] holds in `inner`.
    pub(crate) fn new(inner: Arc<dyn Sandbox>, keeps: bool, holds_back_writes: bool) -> Self {
        let (memory, find) = (Mutex::default(), find_repositories);
        Self { inner, keeps, holds_back_writes, memory, find }
    }

    fn read_memory(&self, workspace: &Path) -> Memory {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(workspace).cloned().unwrap_or_default()
    }

    fn remember(&self, workspace: &Path, change: impl FnOnce(&mut Memory)) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= KNOWN && !memory.contains_key(workspace) {
            // Repositories that commands made are the person's then: read-only. Untrusted ones never are.
            memory.retain(|_, it| !it.refused.is_empty() || it.unjudged.is_some());
        }
        change(memory.entry(workspace.to_path_buf()).or_default());
    }

    fn remember_judgement(&self, workspace: &Path, judgement: &Judgement) {
        self.remember(workspace, |memory| {
            memory.made.extend(&judgement.good);
            memory.made.retain(|id| !judgement.bad.contains(id));
            memory.refused.retain(|id| !judgement.good.contains(id) && !judgement.bad.contains(id));
            memory.refused.extend(&judgement.stuck);
        });
        for sentence in &judgement.said {
            tracing::warn!(workspace = %workspace.display(), "{sentence}");
        }
    }

    async fn look(&self, fd: &Arc<OwnedFd>) -> Result<Found, SandboxError> {
        let (fd, find) = (fd.clone(), self.find);
        blocking(move || find(&fd)).await
    }

    /// Looks for repositories, and judges again those that were refused, or that nobody has judged. Returns what is there then,
    /// and sentences about what is not any more.
    async fn look_again(
        &self,
        workspace: &Path,
        fd: &Arc<OwnedFd>,
    ) -> Result<(Found, Vec<String>), SandboxError> {
        let memory = self.read_memory(workspace);
        let found = self.look(fd).await?;
        let is_suspect = |it: &&Repository| memory.is_suspect(it.id);
        let suspects: Vec<_> = found.repositories.iter().filter(is_suspect).cloned().collect();
        let judgement = judge(fd, suspects).await?;
        self.remember_judgement(workspace, &judgement);
        if let Some(refusal) = judgement.refusal {
            return Err(SandboxError::Refused(format!("commands are not run: {refusal}")));
        }
        if memory.unjudged.is_some() && found.unseen.is_none() {
            self.remember(workspace, |it| {
                // Another command may have gone unjudged meanwhile.
                it.unjudged =
                    it.unjudged.take().filter(|now| Some(now) != memory.unjudged.as_ref());
            });
        }
        let found = if judgement.bad.is_empty() { found } else { self.look(fd).await? };
        Ok((found, judgement.said))
    }
}

/// Judges repositories that are no person's, and puts those aside that are not to be trusted.
async fn judge(fd: &Arc<OwnedFd>, fresh: Vec<Repository>) -> Result<Judgement, SandboxError> {
    let fd = fd.clone();
    blocking(move || {
        let mut judgement = Judgement::default();
        for repository in fresh {
            if repository.is_harmless(fd.as_fd()) {
                judgement.good.insert(repository.id);
                continue;
            }
            judgement.bad.insert(repository.id);
            match repository.put_aside(fd.as_fd()) {
                Aside::Gone => {}
                Aside::Moved(sentence) => judgement.said.push(sentence),
                Aside::Stuck(sentence) => {
                    judgement.stuck.insert(repository.id);
                    judgement.refusal.get_or_insert_with(|| sentence.clone());
                    judgement.said.push(sentence);
                }
            }
        }
        judgement
    })
    .await
}

/// A command after which the repositories are still to be judged.
struct Pending<'s> {
    sandbox: &'s CheckoutSandbox,
    workspace: PathBuf,
    /// The person's, as of before it.
    known: Option<BTreeSet<Id>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(known) = self.known.take() else { return };
        self.sandbox.remember(&self.workspace, |memory| {
            let persons = memory.unjudged.get_or_insert_with(|| known.clone());
            persons.retain(|id| known.contains(id));
        });
    }
}

/// A sentence about a workspace in which repositories may be hidden.
fn say_unseen(unseen: &Unseen) -> String {
    format!(
        "the search for new git repositories did not finish: {unseen}; until it does, commands here can read and delete \
         files, and write none"
    )
}

/// Opens a workspace by its real path.
pub(crate) fn open_workspace(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
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
        let (path, shown) = (workspace.clone(), workspace.display().to_string());
        let fd = blocking(move || open_workspace(&path)).await?.map_err(|errno| {
            SandboxError::NotStarted(format!("{shown} cannot be opened: {errno}"))
        })?;
        let fd = Arc::new(fd);
        let (Found { repositories: before, unseen }, mut notes) =
            self.look_again(&workspace, &fd).await?;
        let is_bare = before.iter().any(|it| it.kind == Kind::Bare && it.path == Path::new(""));
        if is_bare || workspace.iter().any(is_git) {
            return Err(SandboxError::NotStarted(format!(
                "{shown} is a folder of git's own, which git obeys outside of the sandbox; work in a directory with a checkout",
            )));
        }
        if let Some(unseen) = &unseen {
            let sentence = say_unseen(unseen);
            tracing::warn!(workspace = %shown, "{sentence}");
            if !self.holds_back_writes {
                return Err(SandboxError::Refused(format!("commands are not run: {unseen}")));
            }
            command.share.removes_only = true;
            notes.push(sentence);
        }
        let made = self.read_memory(&workspace).made;
        let kept = before.iter().filter(|it| self.keeps && !made.contains(&it.id));
        command.read_only = kept.map(|it| it.path.clone()).collect();
        let known: BTreeSet<_> =
            before.iter().map(|it| it.id).filter(|id| !made.contains(id)).collect();
        let mut pending = Pending {
            sandbox: self,
            workspace: workspace.clone(),
            known: unseen.is_none().then(|| known.clone()),
        };
        let ran = self.inner.run(command, cancel).await;
        let after = self.look(&fd).await?;
        // One that removes files only makes none: those that it has uncovered may be the person's.
        let is_fresh = |it: &Repository| unseen.is_none() && !known.contains(&it.id);
        let fresh = after.repositories.into_iter().filter(is_fresh).collect();
        let judgement = judge(&fd, fresh).await?;
        self.remember_judgement(&workspace, &judgement);
        let is_over =
            !matches!(ran, Err(SandboxError::SupervisorLost | SandboxError::Unkillable(_)));
        if is_over && after.unseen.is_none() {
            pending.known = None;
        }
        let mut outcome = ran?;
        if unseen.is_none() {
            notes.extend(after.unseen.as_ref().map(say_unseen));
        }
        notes.extend(judgement.said);
        outcome.notes.extend(notes);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests;
