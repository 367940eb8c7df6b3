//! The remains of a deleted session, on a real Postgres, in storage and on two disks.
//
// Finding store 21.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use domain::{LocationId, OrgId, SessionRef};

use super::*;
use crate::disk::WorkspaceDisk;
use crate::location::tests::World;

const NONE: CollectedRows = CollectedRows { components: 0, locations: 0, packs: 0, workspaces: 0 };

/// Everything below a folder that belongs to a Location.
fn left(folder: &Path, location: &LocationId) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().contains(location.as_str()) {
                found.insert(entry.path());
            } else if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(found)
}

async fn delete(world: &World, session: &SessionRef) -> Result<()> {
    Ok(world.runtime.store.delete_session(session.org, session.session.clone()).await?)
}

#[tokio::test]
async fn rows_blobs_and_folders_of_a_deleted_session_go() -> Result<()> {
    let world = World::new().await?;
    let store = &world.runtime.store;
    let (a, b) = (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let (gone, kept) = (world.session().await?, world.session().await?);
    for session in [&gone, &kept] {
        let workspace = world.take_over(&a, session, 1).await?;
        let root = workspace.root().context("a workspace")?;
        std::fs::write(root.join("file"), "of the user")?;
        world.capture(session, 1, root).await?;
        world.take_over(&b, session, 2).await?;
    }
    let folder = world.folder.path();
    let of_kept = left(folder, &kept.location)?;
    let rows = |retention| RowCollector { store: store.clone(), retention };
    let (now, never) = (Some(Duration::ZERO), None);
    delete(&world, &gone).await?;
    let before = left(folder, &gone.location)?;
    // Two workspaces and notes, the lock, two caches, and the pack.
    assert!(before.len() >= 6, "{before:?}");
    assert_eq!(rows(never).collect().await?, NONE);
    assert_eq!(rows(Some(Duration::MAX)).collect().await?, NONE, "noted, and its time is not over");
    for worker in [&a, &b] {
        assert_eq!(folders::collect(store, worker).await?, 0);
    }
    assert_eq!(left(folder, &gone.location)?, before);

    let collected = rows(now).collect().await?;
    assert_eq!(collected, CollectedRows { locations: 1, packs: 1, ..NONE });
    assert_eq!(rows(now).collect().await?, NONE);
    for worker in [&a, &b] {
        assert_eq!(folders::collect(store, worker).await?, 1);
        assert_eq!(folders::collect(store, worker).await?, 0);
    }
    let retention = Duration::ZERO;
    let (blobs, clock) = (world.runtime.blobs.clone(), world.runtime.clock.clone());
    let blobs = BlobCollector { store: store.clone(), blobs, clock, retention };
    assert_eq!(blobs.collect().await?, CollectedBlobs { found: 2, deleted: 1 });
    assert_eq!(left(folder, &gone.location)?, BTreeSet::new());
    assert_eq!(left(folder, &kept.location)?, of_kept, "a session is there");
    Ok(())
}

#[tokio::test]
async fn only_folders_of_locations_that_were_deleted_are_removed() -> Result<()> {
    let world = World::new().await?;
    let worker = world.worker("a", WorkspaceDisk::Shared);
    let session = world.session().await?;
    let at = session.location.clone();
    // Its rows may be in a database that is restored later.
    let unknown = worker.workspace_dir.join(OrgId::random().to_string()).join(at.as_str());
    let strange = worker.workspace_dir.join("readme").join(at.as_str());
    let longer = worker.workspace_dir.join(session.org.to_string()).join(format!("{at}0"));
    for folder in [&unknown, &strange, &longer] {
        std::fs::create_dir_all(folder)?;
    }
    world.take_over(&worker, &session, 1).await?;
    delete(&world, &session).await?;
    let retention = Some(Duration::ZERO);
    let rows = RowCollector { store: world.runtime.store.clone(), retention };
    assert_eq!(rows.collect().await?.locations, 1);
    assert_eq!(folders::collect(&world.runtime.store, &worker).await?, 1);
    let left = left(world.folder.path(), &at)?;
    assert_eq!(left, BTreeSet::from([unknown, strange, longer]));
    Ok(())
}
