//! Makes the patches and bundles that somebody has asked for: from the newest snapshot and the repository's packs, in a cell of
//! its own. Any worker can, also while another one holds the Location.

use std::convert::Infallible;
use std::fs::File;
use std::time::Duration;

use blobs::BlobKey;
use domain::{FencingToken, LocationRef, OrgId, OutId};
use git_wire::Oid;
use sandbox::HiddenPaths;
use session::{Files, FilesOptions, Runtime};
use store::{BlobUse, OutMade, OutRow};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::warn;
use workspaces::{Out, OutFound};

use super::mirror::{Mirror, blocking, scratch};
use super::{Fault, Fill, Fills, cell, place};

pub(crate) const OUTS: TaskKind =
    TaskKind::new("patches and bundles", OnError::Log, OnCancel::Abort);

/// The time between two looks of a worker.
const EVERY: Duration = Duration::from_secs(1);
/// How long a worker is believed to be making one.
const CLAIM_MS: i64 = 25 * 60 * 1_000;
/// The file that git writes. Its name is in no snapshot.
const FILE: &str = ".oc-tmp-out";

/// Looks from time to time, and makes what nobody else makes, one after another.
pub(crate) async fn make_outs(runtime: Runtime, fills: Fills) -> Result<(), Infallible> {
    loop {
        let now = runtime.clock.now_ms();
        match runtime.store.asked_outs(now, 8).await {
            Ok(asked) => {
                for (org, id) in asked {
                    if let Err(error) = make(&runtime, &fills, org, &id).await {
                        warn!(out.id = %id, %error, "it is not made yet");
                    }
                }
            }
            Err(error) => warn!(%error, "asked patches and bundles could not be looked at"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

pub(super) async fn make(
    runtime: &Runtime,
    fills: &Fills,
    org: OrgId,
    id: &OutId,
) -> Result<(), Fault> {
    let (store, now) = (&runtime.store, runtime.clock.now_ms());
    if !store.claim_out(org, id.clone(), now, now + CLAIM_MS).await? {
        return Ok(());
    }
    let row = store.session_out(org, id.clone()).await?;
    let made = match made(runtime, fills, org, &row).await {
        Ok(made) => made,
        Err(Fault::Store(error)) => return Err(error.into()),
        Err(Fault::Later(text) | Fault::Ends { text, .. }) => {
            OutMade { state: "failed", fault: Some(text), ..OutMade::default() }
        }
    };
    Ok(store.end_out(org, id.clone(), made, runtime.clock.now_ms()).await?)
}

async fn made(
    runtime: &Runtime,
    fills: &Fills,
    org: OrgId,
    row: &OutRow,
) -> Result<OutMade, Fault> {
    let at = LocationRef { org, location: row.location.clone() };
    let kind = match row.kind.as_str() {
        "patch" => Out::Patch,
        "bundle" => Out::Bundle,
        other => {
            return Err(Fault::ends(
                "unknown_kind",
                format!("`{other}` is neither patch nor bundle"),
            ));
        }
    };
    let origin = runtime.store.origin(at.clone()).await?;
    let origin = origin.ok_or_else(|| {
        Fault::ends(
            "no_repository",
            "the session has no repository, so there is nothing to compare its files with",
        )
    })?;
    let base: Option<Oid> = origin.commit.as_deref().and_then(|commit| commit.parse().ok());
    let Some(base) = base.filter(|_| origin.is_filled) else {
        return Ok(OutMade { state: "nothing", ..OutMade::default() });
    };
    let nothing =
        || OutMade { state: "nothing", base: Some(base.to_string()), ..OutMade::default() };
    if origin.shares_base && runtime.store.workspace_packs(at.clone()).await?.is_empty() {
        return Ok(nothing());
    }
    // A patch is for the machine that has what was sent already.
    let sent = origin.sent.as_ref().and_then(|sent| sent.wip.as_ref());
    let from = sent.and_then(|sent| sent.wip.parse().ok()).unwrap_or(base);
    let folder = scratch(&fills.folder, |root| {
        std::fs::create_dir(root.join("files"))?;
        std::fs::create_dir(root.join("cache"))
    })
    .await?;
    let root = folder.path().join("files");
    let settings = runtime.settings.snapshots.clone();
    let file_bytes = settings.limits.file_bytes;
    let files = Files::new(FilesOptions {
        at: at.clone(),
        token: FencingToken(runtime.store.location(org, at.location.clone()).await?.fence),
        root: root.clone(),
        lock: None,
        git: true,
        hidden: HiddenPaths::default(),
        cache: folder.path().join("cache"),
        store: runtime.store.clone(),
        blobs: runtime.blobs.clone(),
        clock: runtime.clock.clone(),
        settings: super::of_repositories(settings),
    });
    let restored = files.restore_newest().await;
    let restored = restored
        .map_err(|error| Fault::later(format!("the newest snapshot cannot be read: {error}")))?;
    if restored.is_none() {
        return Ok(nothing());
    }
    let fill =
        Fill { fills, runtime, at: &at, token: FencingToken(0), lock: None, root: root.clone() };
    let through = origin.packs_through.unwrap_or(i64::MAX);
    let packs = Mirror::open(&fill, &origin).await?.packs(through).await?;
    place::give_packs(&fill, &packs).await?;
    fill.large_files(file_bytes).await?;
    let stage = format!("making the {}", row.kind);
    let git = match kind {
        Out::Patch => workspaces::patch(from, FILE),
        Out::Bundle => workspaces::bundle(base, FILE),
    };
    let said = fill.run(&stage, git, cell::LONG).await?;
    let found = match kind {
        Out::Patch => None,
        Out::Bundle => Some(
            said.lines()
                .last()
                .and_then(OutFound::parse)
                .ok_or_else(|| Fault::later(format!("{stage}: git said: {}", said.trim())))?,
        ),
    };
    let head = found.map(|found| found.head.to_string());
    let wip = found.and_then(|found| found.wip).map(|wip| wip.to_string());
    let path = root.join(FILE);
    let opened = blocking(move || {
        if path.symlink_metadata().is_ok_and(|made| made.is_file() && made.len() > 0) {
            File::open(&path).map(Some)
        } else {
            Ok(None)
        }
    });
    let base = Some(base.to_string());
    let Some(file) = opened.await.map_err(|error| Fault::later(error.to_string()))? else {
        return Ok(OutMade { state: "nothing", base, head, wip, ..OutMade::default() });
    };
    let failed =
        |error: blobs::BlobError| Fault::later(format!("{stage}: it cannot be kept: {error}"));
    // Made again, it may be another one: a name has one content.
    let name = format!("{}-{}", row.id, runtime.clock.now_ms());
    let key = BlobKey::new(&org.to_string(), BlobUse::Out.kind(), &name).map_err(failed)?;
    let bytes = runtime.blobs.put_file(&key, file).await.map_err(failed)?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok(OutMade { state: "made", blob: Some((name, bytes)), base, head, wip, fault: None })
}
