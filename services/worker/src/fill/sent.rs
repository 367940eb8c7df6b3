//! Fills from what somebody has sent: their packs stand for a server.

use std::path::Path;

use blobs::{BlobError, BlobKey};
use domain::UploadId;
use git_wire::Oid;
use store::{BlobUse, FillNote, OriginRow, SentRow};

use super::mirror::{CopyError, Mirror, copy_blob};
use super::place::{self, Beginning, Changes};
use super::{Fault, Fill, pinned_of};

/// Where a workspace has the pack of changes until it is taken in.
pub(super) const UPLOADED: &str = ".git/oc-uploaded";

/// The fault of an upload that is not there any more.
pub(super) fn gone() -> Fault {
    Fault::ends(
        "upload_gone",
        "checking what was sent: it is not here any more; begin a new session with `run --here`, which sends it again",
    )
}

impl Fill<'_> {
    pub(super) async fn of_sent(&self, origin: &OriginRow, sent: &SentRow) -> Result<(), Fault> {
        let pinned = pinned_of(origin)?.ok_or_else(|| Fault::later("the row has no commit"))?;
        let mirror = Mirror::open(self, origin).await?;
        let through = match mirror.has(pinned.commit) {
            Some((through, _)) => through,
            None => mirror.take(sent.commits.as_ref(), pinned.commit).await?,
        };
        let changes = changes(sent)?;
        self.share_base(origin, pinned.commit).await?;
        self.stage("checking out", 0).await?;
        let packs = mirror.packs(through).await?;
        let beginning =
            Beginning { address: None, pinned: &pinned, refs: &[], packs: &packs, changes };
        place::anew(self, beginning).await?;
        self.note(FillNote::Filled(through)).await
    }
}

fn changes(sent: &SentRow) -> Result<Option<Changes>, Fault> {
    let Some(wip) = &sent.wip else { return Ok(None) };
    let damaged = |_| Fault::later("a commit in the row is damaged");
    let commit = |oid: &str| oid.parse::<Oid>().map_err(damaged);
    let upload = sent.changes.clone().ok_or_else(gone)?;
    Ok(Some(Changes { upload, staged: commit(&wip.staged)?, wip: commit(&wip.wip)? }))
}

/// Copies an upload to a file, and returns its bytes.
pub(super) async fn fetch(fill: &Fill<'_>, upload: &UploadId, to: &Path) -> Result<u64, Fault> {
    let org = fill.at.org.to_string();
    let unread = |error: &dyn std::fmt::Display| {
        Fault::later(format!("checking what was sent: it cannot be read: {error}"))
    };
    let key = BlobKey::new(&org, BlobUse::Upload.kind(), upload.as_str());
    let key = key.map_err(|error| unread(&error))?;
    match copy_blob(&fill.runtime.blobs, &key, to).await {
        Ok(bytes) => Ok(bytes),
        Err(CopyError::Blob(BlobError::NotFound(_))) => Err(gone()),
        Err(error) => Err(unread(&error)),
    }
}
