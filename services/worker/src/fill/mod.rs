//! Fills a Location from its repository before its first drain, and gives a restored one its repository's packs again.
//!
//! ```text
//! origin ─▶ resolve ─▶ pin ─▶ fetch ─▶ check in a cell ─▶ blob, row ─▶ give packs ─▶ measure ─▶ check out ─▶ filled
//!             └───── the worker's own egress ─────┘            └ mirror: this worker's cache of checked packs
//! ```
//!
//! Invariant: git runs in cells only, without a network. The worker speaks git's protocol itself and reads no object.
//! Invariant: the mark that a Location is not whole stays until all is done, and the pinned commit never changes: whoever
//! fills again fills the same.

mod cell;
mod fault;
mod fetch;
mod mirror;
mod out;
mod place;
mod sent;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{FencingToken, LocationRef, TimestampMs};
use egress::Egress;
use git_wire::{Listed, Oid};
use sandbox::{LocationLock, Sandbox};
use session::{Runtime, SnapshotSettings};
use signals::{Hint, SessionHint, Topic};
use store::{FillNote, OriginFault, OriginRow, StoreError};
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};
use workspaces::{Address, FillBounds, Pinned};

pub(crate) use fault::Fault;
use fetch::{Remote, Resolved};
use mirror::Mirror;
pub(crate) use out::{OUTS, make_outs};
use place::Beginning;

/// The fills of a worker at once.
const AT_ONCE: usize = 2;
/// The shortest time between two notes of progress.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// The parts of a worker that fills need.
#[derive(Clone)]
pub struct Fills {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) egress: Egress,
    /// The folder of mirrors and of what is being made. Not in any workspace.
    pub(crate) folder: PathBuf,
    pub(crate) bounds: FillBounds,
    slots: Arc<Semaphore>,
}

impl Fills {
    /// Makes the fills of a worker. `folder` is its own, on the disk of the workspaces.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>, egress: Egress, folder: PathBuf) -> Self {
        let bounds = FillBounds::default();
        Self { sandbox, egress, folder, bounds, slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Takes other bounds.
    #[must_use]
    pub fn with_bounds(self, bounds: FillBounds) -> Self {
        Self { bounds, ..self }
    }
}

/// One fill.
pub(crate) struct Fill<'a> {
    pub(crate) fills: &'a Fills,
    pub(crate) runtime: &'a Runtime,
    pub(crate) at: &'a LocationRef,
    pub(crate) token: FencingToken,
    /// The Location's lock; `None` for a copy of its files.
    pub(crate) lock: Option<LocationLock>,
    /// The Location's directory, which is not whole.
    pub(crate) root: PathBuf,
}

impl Fill<'_> {
    /// Fills an empty Location: whatever is in its directory is of a fill that did not end. Returns once it is noted as
    /// filled; the caller then marks the directory as whole.
    pub(crate) async fn anew(&self, origin: &OriginRow) -> Result<(), Fault> {
        let _slot =
            self.fills.slots.acquire().await.map_err(|_| Fault::later("the worker stops"))?;
        let done = self.fill(origin).await;
        match &done {
            Ok(()) => info!(location.id = %self.at.location, "the workspace is filled"),
            Err(fault) => self.tell(fault).await,
        }
        done
    }

    async fn fill(&self, origin: &OriginRow) -> Result<(), Fault> {
        match &origin.sent {
            None => self.of_server(origin).await,
            Some(sent) => self.of_sent(origin, sent).await,
        }
    }

    async fn of_server(&self, origin: &OriginRow) -> Result<(), Fault> {
        let address = address(origin)?;
        let remote = Remote::new(self.fills, &address);
        let (pinned, resolved) = self.pinned(origin, &remote).await?;
        let mirror = Mirror::open(self, origin).await?;
        let (through, refs) = self.fetched(&mirror, &remote, &pinned, resolved).await?;
        self.share_base(origin, pinned.commit).await?;
        self.stage("checking out", 0).await?;
        let packs = mirror.packs(through).await?;
        let (address, refs) = (Some(&address), &refs[..]);
        let beginning = Beginning { address, pinned: &pinned, refs, packs: &packs, changes: None };
        place::anew(self, beginning).await?;
        self.note(FillNote::Filled(through)).await
    }

    /// Finds the commit out, once and for all.
    async fn pinned(
        &self,
        origin: &OriginRow,
        remote: &Remote<'_>,
    ) -> Result<(Pinned, Option<Resolved>), Fault> {
        if let Some(pinned) = pinned_of(origin)? {
            return Ok((pinned, None));
        }
        self.stage("resolving", 0).await?;
        let resolved = remote.resolve().await?;
        let wanted = origin.wanted.as_deref().map(str::parse).transpose();
        let wanted = wanted.map_err(|error: workspaces::AddressError| {
            Fault::ends("bad_reference", error.to_string())
        })?;
        let found = workspaces::resolve(wanted.as_ref(), resolved.head.as_ref(), &resolved.refs);
        let found = found.map_err(|error| remote.ends("unknown_reference", "resolving", &error))?;
        let store = &self.runtime.store;
        let branch = found.branch.as_ref().map(ToString::to_string);
        let commit = found.commit.to_string();
        let (commit, branch) =
            store.pin_origin(self.at.clone(), self.token, commit, branch).await?;
        Ok((pinned(&commit, branch.as_deref())?, Some(resolved)))
    }

    /// Lets the Location's snapshots name content that another Location of the repository has stored.
    async fn share_base(&self, origin: &OriginRow, commit: Oid) -> Result<(), Fault> {
        let (store, at) = (&self.runtime.store, self.at);
        if origin.shares_base {
            return Ok(());
        }
        let (repository, commit) = (origin.repository.id.clone(), commit.to_string());
        if let Some(base) = store.base_of(at.clone(), repository, commit).await? {
            store.share_base(at.clone(), self.token, base).await?;
        }
        Ok(())
    }

    /// Sees to it that the repository's packs have the commit. Returns the number of the newest pack that a workspace
    /// needs, with the refs that it shows.
    async fn fetched(
        &self,
        mirror: &Mirror<'_, '_>,
        remote: &Remote<'_>,
        pinned: &Pinned,
        resolved: Option<Resolved>,
    ) -> Result<(i64, Vec<Listed>), Fault> {
        if let Some((through, refs)) = mirror.has(pinned.commit) {
            let refs = resolved.map_or(refs, |resolved| mirror.known_of(resolved.refs));
            return Ok((through, refs));
        }
        let resolved = match resolved {
            Some(resolved) => resolved,
            None => remote.resolve().await?,
        };
        let through = mirror.fetch(remote, pinned.commit, &resolved).await?;
        Ok((through, resolved.refs))
    }

    /// Gives a Location that is being restored the packs of its repository.
    pub(crate) async fn give_packs(&self, origin: &OriginRow) -> Result<(), Fault> {
        let _slot =
            self.fills.slots.acquire().await.map_err(|_| Fault::later("the worker stops"))?;
        let Some(through) = origin.packs_through else { return Ok(()) };
        let mirror = Mirror::open(self, origin).await?;
        let packs = mirror.packs(through).await?;
        place::give_packs(self, &packs).await
    }

    /// Makes files again that are in no snapshot because they are too large, and that the commit has.
    pub(crate) async fn large_files(&self, bytes: u64) -> Result<(), Fault> {
        let missing = workspaces::check_out_missing(bytes, snapshots::LARGE_FILES);
        self.run("checking out", missing, cell::LONG).await.map(drop)
    }

    async fn stage(&self, stage: &str, bytes: u64) -> Result<(), Fault> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.note(FillNote::Stage(stage.to_owned(), bytes)).await
    }

    async fn note(&self, note: FillNote) -> Result<(), Fault> {
        let (store, org) = (&self.runtime.store, self.at.org);
        store.note_fill(self.at.clone(), self.token, note).await?;
        for session in store.sessions_at(self.at.clone()).await? {
            let topic = Topic::Session(org, session);
            self.runtime.signals.publish(&topic, Hint::Session(SessionHint::Workspace));
        }
        Ok(())
    }

    /// Keeps the reason why a fill came to nothing, for who asks. The drain records it too.
    async fn tell(&self, fault: &Fault) {
        let (code, text) = match fault {
            Fault::Store(StoreError::Superseded) => return,
            Fault::Store(error) => ("store", error.to_string()),
            Fault::Later(text) => ("later", text.clone()),
            Fault::Ends { code, text } => (*code, text.clone()),
        };
        let location = &self.at.location;
        match fault {
            Fault::Ends { .. } => {
                warn!(location.id = %location, code, text, "the workspace is not filled");
            }
            // It is tried again, and the executor says so once, with the same reason.
            Fault::Store(_) | Fault::Later(_) => {
                debug!(location.id = %location, code, text, "the workspace is not filled");
            }
        }
        let note = FillNote::Fault(OriginFault { code: code.to_owned(), text });
        if let Err(error) = self.note(note).await {
            warn!(%error, "the reason is not kept");
        }
    }

    fn now(&self) -> TimestampMs {
        self.runtime.clock.now_ms()
    }
}

/// Returns the settings of snapshots of a repository's workspace: it may have as many files as a fill checks out.
pub(crate) fn of_repositories(mut settings: SnapshotSettings) -> SnapshotSettings {
    settings.limits.entries = settings.limits.entries.max(2_200_000);
    settings.limits.capture_bytes = settings.limits.capture_bytes.max(24 << 30);
    settings.limits.git_file_bytes = settings.limits.git_file_bytes.max(256 << 20);
    settings.limits.lists_large = true;
    settings
}

/// Returns the commit of an origin, if it was found out.
fn pinned_of(origin: &OriginRow) -> Result<Option<Pinned>, Fault> {
    let commit = origin.commit.as_deref();
    commit.map(|commit| pinned(commit, origin.branch.as_deref())).transpose()
}

fn pinned(commit: &str, branch: Option<&str>) -> Result<Pinned, Fault> {
    let damaged = |_| Fault::later("the pinned commit in the row is damaged");
    let commit: Oid = commit.parse().map_err(damaged)?;
    Ok(Pinned { commit, branch: branch.and_then(|name| name.parse().ok()) })
}

/// Returns a repository's address.
fn address(origin: &OriginRow) -> Result<Address, Fault> {
    let url = format!("https://{}/{}", origin.repository.host, origin.repository.path);
    Address::parse(&url).map_err(|error| Fault::ends("bad_address", error.to_string()))
}

#[cfg(test)]
pub(crate) mod tests;
