//! What workspaces of repositories were made of: which rows name it, when it is forgotten, and what the oracle says of it.

use std::time::Duration;

use domain::{FencingToken, LocationRef};
use store::{BlobUse, FillNote, NewRepositoryPack, NewSent, NewUpload, SentRow, Store, UploadNote};

use crate::world::World;

const RETENTION: Duration = Duration::from_hours(1);

fn pack(id: &str) -> NewRepositoryPack {
    NewRepositoryPack {
        pack: id.repeat(40),
        bytes: 1,
        commit: "c".repeat(40),
        refs: String::new(),
        default_branch: None,
        now: 1,
    }
}

async fn named(world: &World, of: BlobUse) -> Vec<String> {
    let page = world.store.named_blobs(world.org, of, "", 10).await.expect("a page");
    page.into_iter().map(|blob| blob.name).collect()
}

async fn unnamed(world: &World, of: BlobUse, names: &[String]) -> Vec<String> {
    let found = world.store.note_unnamed_blobs(world.org, of, names.to_vec(), Duration::ZERO).await;
    found.expect("an answer")
}

#[tokio::test]
async fn what_workspaces_were_made_of_is_forgotten_in_time() {
    let world = World::new().await;
    let (store, org) = (&world.store, world.org);
    let used = store.ensure_repository(org, "here".into(), "a-1".into(), 1).await.expect("one");
    let idle = store.ensure_repository(org, "h.org".into(), "b".into(), 1).await.expect("two");
    for (repository, id) in [(&used, "a"), (&idle, "b")] {
        store.add_repository_pack(org, repository.id.clone(), pack(id)).await.expect("added");
    }
    let known = vec!["c".repeat(40), "d".repeat(40)];
    let known = store.known_commits(org, used.id.clone(), known).await.expect("an answer");
    assert_eq!(known, ["c".repeat(40)]);
    let [begun, stray] = [1, 2].map(Store::mint_upload);
    for id in [&begun, &stray] {
        let new = NewUpload { id: id.clone(), bytes: 1, now: 1 };
        let added = store.add_upload(org, new, u64::MAX).await.expect("an answer");
        assert_eq!(added, UploadNote::Added);
    }
    let session = world.session_at(&world.another_location().await).await;
    let out = store.ask_out(session.clone(), "patch", 1).await.expect("asked");
    let sent = SentRow { commits: Some(begun.clone()), changes: None, wip: None };
    let (commit, repository) = ("c".repeat(40), used.id.clone());
    let new = NewSent { repository, commit, branch: None, sent, now: 2 };
    let at = session.location_ref();
    store.begin_with_sent(at.clone(), new.clone()).await.expect("begun");
    let late = NewSent { now: 30 * 60 * 60 * 1_000, ..new };
    let elsewhere = LocationRef { org, location: world.another_location().await };
    store.begin_with_sent(elsewhere, late).await.expect_err("the upload is too old");

    let all = named(&world, BlobUse::Repository).await;
    let blobs = [(&used, "a"), (&idle, "b")].map(|(of, id)| format!("{}-{}", of.id, id.repeat(40)));
    assert_eq!(all.len(), 2);
    assert_eq!(unnamed(&world, BlobUse::Repository, &blobs).await, [""; 0]);
    assert_eq!(unnamed(&world, BlobUse::Out, &[out.to_string()]).await, [""; 0]);

    assert_eq!(store.collect_workspaces(org, RETENTION).await.expect("collected"), 3);
    assert_eq!(named(&world, BlobUse::Upload).await, [begun.to_string()]);
    assert_eq!(unnamed(&world, BlobUse::Repository, &blobs).await, [blobs[1].clone()]);
    assert_eq!(unnamed(&world, BlobUse::RepositoryIndex, &blobs).await, [blobs[1].clone()]);
    assert_eq!(unnamed(&world, BlobUse::Out, &[out.to_string()]).await, [out.to_string()]);
    assert_eq!(unnamed(&world, BlobUse::Upload, &[stray.to_string()]).await, [stray.to_string()]);
    assert_eq!(store.collect_workspaces(org, RETENTION).await.expect("collected"), 0);
}

#[tokio::test]
async fn the_oracle_knows_unfilled_and_lacking_workspaces() {
    let world = World::new().await;
    let (store, org) = (&world.store, world.org);
    let session = world.session_at(&world.another_location().await).await;
    let at = session.location_ref();
    let repository =
        store.ensure_repository(org, "h.org".into(), "r".into(), 1).await.expect("one");
    store.begin_with_repository(at.clone(), repository.id.clone(), None).await.expect("begun");
    world.assert_sound(false).await;
    store.raise_fence(at.clone(), FencingToken(1)).await.expect("fenced");
    store.note_fill(at.clone(), FencingToken(1), FillNote::Filled(1)).await.expect("noted");
    let found = store.violations(org, false).await.expect("an answer");
    let mut invariants: Vec<&str> = found.iter().map(|one| one.invariant.as_str()).collect();
    invariants.sort_unstable();
    assert_eq!(invariants, ["I25", "I26"], "{found:?}");
    store.add_repository_pack(org, repository.id, pack("a")).await.expect("added");
    store.pin_origin(at, FencingToken(1), "c".repeat(40), None).await.expect("pinned");
    world.assert_sound(false).await;
}
