//! A sandbox of any tier whose commands are ended when they fill the disk.
//!
//! A watch, no quota: it looks again before a fast disk could be full, so that what a command writes in between is not kept
//! from it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::command::{Command, End, Limit, Outcome, Sandbox, SandboxError};
use crate::disk::{Disk, DiskLimits, disks, pause_for};
use crate::tally::Tally;

/// Workspaces that are counted at once.
const COUNTS: usize = 2;
/// Workspaces whose size is remembered.
const KNOWN: usize = 1024;
/// A workspace beyond its limit may grow by this in one command: a command that deletes files also writes some.
const SLACK: u64 = 1 << 20;

/// Runs commands in another sandbox, and looks at their disks meanwhile.
pub(crate) struct WatchedSandbox {
    inner: Arc<dyn Sandbox>,
    limits: DiskLimits,
    /// A folder of the service, whose disk is looked at too.
    own: PathBuf,
    sizes: Mutex<HashMap<PathBuf, Arc<Tally>>>,
    counts: Arc<Semaphore>,
}

/// A command that is watched.
struct Watch<'w> {
    watched: &'w WatchedSandbox,
    workspace: PathBuf,
    since: Instant,
    /// The disks when it began, that of the workspace first.
    start: Vec<Disk>,
    /// The size of its workspace and the limit of that, if it has one.
    size: Option<(Arc<Tally>, u64)>,
}

impl WatchedSandbox {
    pub(crate) fn new(inner: Arc<dyn Sandbox>, limits: DiskLimits, own: PathBuf) -> Self {
        let counts = Arc::new(Semaphore::new(COUNTS));
        Self { inner, limits, own, sizes: Mutex::default(), counts }
    }

    /// Looks at the disks of a workspace and of the service.
    async fn look(&self, workspace: &Path) -> Vec<Disk> {
        let (limits, paths) = (self.limits, [workspace.to_path_buf(), self.own.clone()]);
        let looked = tokio::task::spawn_blocking(move || disks(limits, &paths)).await;
        // It ends otherwise only with the runtime.
        looked.unwrap_or_default()
    }

    fn tally(&self, workspace: &Path) -> Arc<Tally> {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= KNOWN && !sizes.contains_key(workspace) {
            sizes.retain(|_, tally| Arc::strong_count(tally) > 1);
        }
        sizes.entry(workspace.to_path_buf()).or_default().clone()
    }

    async fn watch(&self, command: &Command) -> Watch<'_> {
        let workspace = command.cell.workspace.as_ref().unwrap_or(&command.directory).clone();
        let start = self.look(&workspace).await;
        let limit =
            start.first().and_then(|disk| self.limits.of_a_workspace(disk, command.cell.protect));
        let size = limit.map(|limit| (self.tally(&workspace), limit));
        Watch { watched: self, workspace, since: Instant::now(), start, size }
    }
}

impl Watch<'_> {
    /// Returns the limit that the command meets, when it does.
    async fn until_met(&self) -> Limit {
        let mut now = self.start.clone();
        let mut begun_with = None;
        loop {
            let mut pause = self.pause(&now);
            if let (Some((tally, limit)), Some(disk)) = (&self.size, now.first()) {
                let (turns, used) = (&self.watched.counts, disk.used_bytes());
                tally.refresh(&self.workspace, used, *limit, turns);
                // An older count may be of before a command that has grown it: this one may be the one that deletes.
                if let Some(counted) = tally.newest().filter(|newest| newest.at >= self.since) {
                    let begun = *begun_with.get_or_insert(counted.bytes);
                    if counted.bytes > (*limit).max(begun + SLACK) {
                        return Limit::Workspace { holds: counted.bytes, limit: *limit };
                    }
                    pause = pause.min(pause_for(limit.saturating_sub(counted.bytes)));
                }
            }
            tokio::time::sleep(pause).await;
            now = self.watched.look(&self.workspace).await;
            if let Some(met) = self.met(&now) {
                return met;
            }
        }
    }

    /// Each disk with what it was when the command began.
    fn pairs<'d>(&'d self, now: &'d [Disk]) -> impl Iterator<Item = (&'d Disk, &'d Disk)> {
        now.iter().filter_map(|disk| {
            let start = self.start.iter().find(|start| start.device == disk.device)?;
            Some((disk, start))
        })
    }

    fn met(&self, now: &[Disk]) -> Option<Limit> {
        self.pairs(now).find_map(|(now, start)| now.met_since(start))
    }

    fn pause(&self, now: &[Disk]) -> Duration {
        let pauses = self.pairs(now).map(|(now, start)| now.pause(start));
        pauses.min().unwrap_or_else(|| pause_for(u64::MAX))
    }

    /// A disk that was full when a command failed by itself.
    async fn reason(&self, outcome: &Outcome) -> Option<Limit> {
        if matches!(outcome.end, End::Exited(0) | End::Cancelled) {
            return None;
        }
        let now = self.watched.look(&self.workspace).await;
        now.iter().find_map(Disk::is_used_up)
    }
}

#[async_trait]
impl Sandbox for WatchedSandbox {
    fn shows_outputs(&self) -> bool {
        self.inner.shows_outputs()
    }

    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let watch = self.watch(&command).await;
        if let Some(full) = watch.start.iter().find_map(Disk::refusal) {
            tracing::warn!(workspace = %watch.workspace.display(), "{full}");
            return Err(SandboxError::Refused(full));
        }
        let ending = cancel.child_token();
        let run = self.inner.run(command, &ending);
        tokio::pin!(run);
        let met = tokio::select! {
            ended = &mut run => {
                let mut outcome = ended?;
                outcome.limits.extend(watch.reason(&outcome).await);
                return Ok(outcome);
            }
            met = watch.until_met() => met,
        };
        tracing::warn!(?met, workspace = %watch.workspace.display(), "a command filled its disk and was ended");
        ending.cancel();
        let mut outcome = run.await?;
        outcome.limits.push(met);
        if outcome.end == End::Cancelled && !cancel.is_cancelled() {
            outcome.end = End::OverLimit;
        }
        Ok(outcome)
    }
}
