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
use crate::fill::tests::{Forge, root};
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

/// Finding security-3 C2: the worker aborted at each start, and no other deleted session was collected.
#[tokio::test]
async fn a_deleted_workspace_goes_however_deep_it_is() -> Result<()> {
    let world = World::new().await?;
    let memory = testkit::memory_folder()?;
    let mut worker = world.worker("a", WorkspaceDisk::Shared);
    worker.workspace_dir = memory.path().join("workspaces");
    let session = world.session().await?;
    let workspace = world.take_over(&worker, &session, 1).await?;
    testkit::dig(workspace.root().context("a workspace")?, 18_000)?;
    drop(workspace);
    delete(&world, &session).await?;
    let retention = Some(Duration::ZERO);
    let rows = RowCollector { store: world.runtime.store.clone(), retention };
    assert_eq!(rows.collect().await?.locations, 1);
    assert_eq!(folders::collect(&world.runtime.store, &worker).await?, 1);
    assert_eq!(left(&worker.workspace_dir, &session.location)?, BTreeSet::new());
    Ok(())
}

/// Attack 2: a worker died between a pack's blob and its row.
#[tokio::test]
async fn a_pack_without_a_row_is_collected_and_fetched_again() -> Result<()> {
    let forge = Forge::new().await?;
    let World { database, runtime, .. } = &forge.world;
    let session = forge.session(None).await?;
    database
        .run("ALTER TABLE repository_pack ADD CONSTRAINT dies CHECK (false) NOT VALID".into())
        .await?;
    assert!(forge.take_over("a", &session, 1).await.is_err(), "the row is refused");
    database.run("ALTER TABLE repository_pack DROP CONSTRAINT dies".into()).await?;
    let blobs = || BlobCollector {
        store: runtime.store.clone(),
        blobs: runtime.blobs.clone(),
        clock: runtime.clock.clone(),
        retention: Duration::ZERO,
    };
    // It and its index.
    assert_eq!(blobs().collect().await?, CollectedBlobs { found: 2, deleted: 2 });
    let workspace = forge.take_over("a", &session, 2).await?;
    testkit::git(root(&workspace)?, &["fsck", "--strict"])?;
    assert_eq!(
        blobs().collect().await?,
        CollectedBlobs { found: 2, deleted: 0 },
        "they are there again"
    );
    std::fs::remove_dir_all(forge.world.folder.path().join("repositories"))?;
    let other = forge.take_over("b", &forge.session(None).await?, 1).await?;
    testkit::git(root(&other)?, &["fsck", "--strict"])?;
    Ok(())
}

#[tokio::test]
async fn copies_of_forgotten_repositories_go() -> Result<()> {
    let forge = Forge::new().await?;
    let store = &forge.world.runtime.store;
    let copies = forge.world.folder.path().join("repositories");
    let session = forge.session(None).await?;
    root(&forge.take_over("a", &session, 1).await?)?;
    let of = copies.join(session.org.to_string());
    assert_eq!(std::fs::read_dir(&of)?.count(), 1);
    std::fs::create_dir_all(copies.join(".tmp-other"))?;
    assert_eq!(folders::collect_repositories(store, &copies).await?, 0, "there is a session");
    delete(&forge.world, &session).await?;
    // It is forgotten after a day without a use.
    let used = "UPDATE repository SET seen_ms = 1, fetched_ms = 1, created_ms = 1";
    forge.world.database.run(used.into()).await?;
    let rows = || RowCollector { store: store.clone(), retention: Some(Duration::ZERO) };
    while rows().collect().await? != NONE {}
    assert_eq!(folders::collect_repositories(store, &copies).await?, 1);
    assert_eq!(std::fs::read_dir(&of)?.count(), 0);
    assert!(copies.join(".tmp-other").exists(), "somebody makes something there");
    // It is fetched again for whoever comes later.
    root(&forge.take_over("a", &forge.session(None).await?, 1).await?)?;
    assert_eq!(std::fs::read_dir(&of)?.count(), 1);
    Ok(())
}
