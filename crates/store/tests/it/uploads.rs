//! The storage that an organisation's uploads may take.

use store::{NewUpload, Store, StoreError, UploadNote};
use tokio::task::JoinSet;

use crate::world::{World, organisation};

const MIB: u64 = 1024 * 1024;

async fn add(
    store: Store,
    org: domain::OrgId,
    bytes: u64,
    most: u64,
) -> Result<UploadNote, StoreError> {
    store.add_upload(org, NewUpload { id: Store::mint_upload(1), bytes, now: 1 }, most).await
}

// Finding look 7 (M4): packs that were sent had no bound together.
#[tokio::test]
async fn two_uploads_do_not_pass_a_quota_for_one() {
    let world = World::new().await;
    let mut both = JoinSet::new();
    for _ in 0..8 {
        both.spawn(add(world.store.clone(), world.org, MIB, 3 * MIB - 1));
    }
    let mut added = 0;
    while let Some(note) = both.join_next().await {
        match note.expect("no panic").expect("an answer") {
            UploadNote::Added => added += 1,
            UploadNote::Full { stored } => assert!(stored > MIB, "{stored}"),
        }
    }
    assert_eq!(added, 2);
    assert_eq!(world.store.bytes_of_uploads(world.org).await.expect("a sum"), 2 * MIB);
    // Another organisation has its own.
    let (theirs, ..) = organisation(&world.store).await;
    let note = add(world.store.clone(), theirs, MIB, MIB).await.expect("an answer");
    assert_eq!(note, UploadNote::Added);
}

#[tokio::test]
async fn the_number_of_small_uploads_has_an_end() {
    let world = World::new().await;
    let small = || add(world.store.clone(), world.org, 1, 2 * 64 * 1024);
    assert_eq!(small().await.expect("an answer"), UploadNote::Added);
    assert_eq!(small().await.expect("an answer"), UploadNote::Added);
    let full = UploadNote::Full { stored: 2 * 64 * 1024 };
    assert_eq!(small().await.expect("an answer"), full);
}
