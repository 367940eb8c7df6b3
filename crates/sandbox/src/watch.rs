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

use crate::command::{Command, DiskShare, End, Limit, Outcome, Sandbox, SandboxError};
use crate::disk::{Disk, DiskLimits, disks, pause_for};
use crate::tally::{Counted, Tally, TreeSize};

/// Workspaces that are counted at once.
const COUNTS: usize = 2;
/// Workspaces whose size is remembered.
const KNOWN: usize = 1024;
/// A workspace beyond its limit may grow by this in one command: a command that deletes files also writes some.
const SLACK: TreeSize = TreeSize { bytes: 1 << 20, files: 1_000 };
/// Near the reserve, a command is ended whose workspace has grown by more than this since it began.
const NOTICED: TreeSize = TreeSize { bytes: 1 << 20, files: 50 };
/// How long a command waits for a count of its workspace, where that or its disk is nearly full.
const PATIENCE: Duration = Duration::from_secs(3);
/// A workspace that has less room than this is counted before a command begins: its files are bounded by what is left.
const NEARLY: u64 = 256 << 20;
/// The time between two looks at a count that is awaited.
const TICK: Duration = Duration::from_millis(20);

/// Runs commands in another sandbox, and looks at their disks meanwhile.
pub(crate) struct WatchedSandbox {
    inner: Arc<dyn Sandbox>,
    limits: DiskLimits,
    /// Whether [`DiskShare::removes_only`] holds in it, by a wall of the kernel.
    holds_back_writes: bool,
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
    size: Option<(Arc<Tally>, TreeSize)>,
    /// The most that it may take, by the kernel's word.
    share: DiskShare,
    /// The limit that a file meets which is as large as that, where it is not the largest one of all.
    bound: Option<Limit>,
}

impl WatchedSandbox {
    pub(crate) fn new(
        inner: Arc<dyn Sandbox>,
        limits: DiskLimits,
        holds_back_writes: bool,
        own: PathBuf,
    ) -> Self {
        let counts = Arc::new(Semaphore::new(COUNTS));
        Self { inner, limits, holds_back_writes, own, sizes: Mutex::default(), counts }
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
            start.first().and_then(|disk| self.limits.workspace(disk, command.cell.protect));
        let size = limit.map(|limit| (self.tally(&workspace), limit));
        let (since, share) = (Instant::now(), command.share);
        let mut watch = Watch { watched: self, workspace, since, start, size, share, bound: None };
        watch.bound_files().await;
        watch.share.removes_only = watch.removes_only().await;
        watch
    }
}

impl Watch<'_> {
    /// Bounds each file by what is left of the disk and of the workspace.
    async fn bound_files(&mut self) {
        let of_disk = self.start.iter().map(Disk::left).min().unwrap_or(u64::MAX);
        let of_workspace = match &self.size {
            None => u64::MAX,
            Some((tally, limit)) => limit.bytes.saturating_sub(self.read_held(tally, *limit).await),
        };
        let least = of_disk.min(of_workspace).max(SLACK.bytes);
        if least < self.share.file_bytes {
            self.share.file_bytes = least;
            let is_of_disk = of_disk <= of_workspace;
            let bound = if is_of_disk { Limit::FileOfDisk } else { Limit::FileOfWorkspace };
            self.bound = Some(bound(least));
        }
    }

    /// Returns the bytes that a workspace holds. Of one that was nearly full, much may have been deleted since.
    async fn read_held(&self, tally: &Arc<Tally>, limit: TreeSize) -> u64 {
        let Some(newest) = tally.newest() else { return 0 };
        let is_nearly_full = limit.bytes.saturating_sub(newest.size.bytes) < NEARLY;
        let fresh = if is_nearly_full { self.wait_for_count(tally, limit).await } else { None };
        fresh.unwrap_or(newest).size.bytes
    }

    /// Whether the command may remove files only. Where the disk is nearly full, those whose workspaces are beyond their limits
    /// do, and where it is fuller than that, everybody's.
    async fn removes_only(&self) -> bool {
        self.start.iter().any(Disk::is_over)
            || (self.start.iter().any(Disk::is_low) && self.is_beyond().await)
    }

    /// Whether the workspace is larger than it may be. What was counted before may have been deleted since.
    async fn is_beyond(&self) -> bool {
        let Some((tally, limit)) = &self.size else { return false };
        let is_beyond = |it: Counted| it.size.bytes > limit.bytes || it.size.files > limit.files;
        if !tally.newest().is_some_and(is_beyond) {
            return false;
        }
        self.wait_for_count(tally, *limit).await.is_none_or(is_beyond)
    }

    /// Waits for a count of after the command's begin; `None` if it takes too long.
    async fn wait_for_count(&self, tally: &Arc<Tally>, limit: TreeSize) -> Option<Counted> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(counted) = self.count(&self.start, tally, limit, true) {
                return Some(counted);
            }
            tokio::time::sleep(TICK).await;
        }
        None
    }

    /// The newest count, if it is of after the command's begin: an older one may be of before a command that has grown the
    /// workspace, and this may be the one that deletes. `is_awaited`: a command waits for it.
    fn count(
        &self,
        now: &[Disk],
        tally: &Arc<Tally>,
        limit: TreeSize,
        is_awaited: bool,
    ) -> Option<Counted> {
        let used = now.first().map(Disk::used).unwrap_or_default();
        let is_soon = is_awaited || now.iter().any(Disk::is_low);
        tally.refresh(&self.workspace, used, limit, is_soon, &self.watched.counts);
        tally.newest().filter(|newest| newest.at >= self.since)
    }

    /// Returns the limit that the command meets, when it does.
    async fn until_met(&self) -> Limit {
        let mut now = self.start.clone();
        let mut begun_with = None;
        loop {
            let mut pause = self.pause(&now);
            let mut has_grown = self.size.is_none();
            if let Some((tally, limit)) = &self.size
                && let Some(counted) = self.count(&now, tally, *limit, false)
            {
                let begun = *begun_with.get_or_insert(counted.size);
                if let Some(met) = beyond(counted.size, begun, *limit) {
                    return met;
                }
                has_grown = counted.size.bytes > begun.bytes + NOTICED.bytes
                    || counted.size.files > begun.files + NOTICED.files;
                pause = pause.min(pause_for(limit.bytes.saturating_sub(counted.size.bytes)));
            }
            // One that removes files only is no reason for a full disk. Near the reserve, neither is one whose workspace
            // does not grow: what another one does there is not its fault.
            let is_reason = has_grown || now.iter().any(Disk::is_over);
            if let Some(met) = self.met(&now).filter(|_| is_reason && !self.share.removes_only) {
                return met;
            }
            tokio::time::sleep(pause).await;
            now = self.watched.look(&self.workspace).await;
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

    /// Names the limit that a command may have run into which ended by itself.
    async fn explain(&self, outcome: &mut Outcome) {
        if matches!(outcome.end, End::Exited(0) | End::Cancelled) {
            return;
        }
        if let Some(bound) = self.bound {
            for limit in &mut outcome.limits {
                if matches!(limit, Limit::File(_)) {
                    *limit = bound;
                }
            }
        }
        let now = self.watched.look(&self.workspace).await;
        outcome.limits.extend(if self.share.removes_only {
            now.iter().find(|disk| disk.is_low()).map(Disk::removes_only)
        } else {
            now.iter().find_map(Disk::is_used_up)
        });
    }
}

/// The limit of a workspace that has this size now, and had another one when the command began.
fn beyond(size: TreeSize, begun: TreeSize, limit: TreeSize) -> Option<Limit> {
    if size.bytes > limit.bytes.max(begun.bytes + SLACK.bytes) {
        return Some(Limit::Workspace { holds: size.bytes, limit: limit.bytes });
    }
    (size.files > limit.files.max(begun.files + SLACK.files))
        .then_some(Limit::WorkspaceFiles { holds: size.files, limit: limit.files })
}

#[async_trait]
impl Sandbox for WatchedSandbox {
    fn shows_outputs(&self) -> bool {
        self.inner.shows_outputs()
    }

    async fn run(
        &self,
        mut command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let watch = self.watch(&command).await;
        command.share = watch.share;
        let full = watch.start.iter().find_map(Disk::refusal);
        if let Some(full) = full.filter(|_| !self.holds_back_writes) {
            tracing::warn!(workspace = %watch.workspace.display(), "{full}");
            return Err(SandboxError::Refused(full));
        }
        let ending = cancel.child_token();
        let run = self.inner.run(command, &ending);
        tokio::pin!(run);
        let met = tokio::select! {
            ended = &mut run => {
                let mut outcome = ended?;
                watch.explain(&mut outcome).await;
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
