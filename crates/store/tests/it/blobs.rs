//! Which blobs no row names, since when, and who looks.

use std::time::Duration;

use domain::OrgId;
use store::BlobUse::{self, Snapshot, ToolOutput};

use crate::script::every_kind;
use crate::world::World;

const HOUR: Duration = Duration::from_hours(1);

/// Those that nothing has named for `retention`, in the order of their names.
async fn unnamed(
    (world, org): (&World, OrgId),
    of: BlobUse,
    names: &[&str],
    retention: Duration,
) -> Vec<String> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let found = world.store.note_unnamed_blobs(org, of, names, retention).await;
    let mut found = found.expect("an answer");
    found.sort();
    found
}

#[tokio::test]
async fn what_a_row_names_stays_and_the_rest_waits_for_its_time() {
    let world = World::new().await;
    let ours = (&world, world.org);
    let session = every_kind(&world).await;
    let (output, pack) = ("tool_1", "o/x/snapshot/1-2");
    for (of, named) in [(ToolOutput, output), (Snapshot, pack)] {
        let all = [named, "none"];
        assert_eq!(unnamed(ours, of, &all, HOUR).await, [""; 0], "it was noted just now");
        assert_eq!(unnamed(ours, of, &all, Duration::ZERO).await, ["none"]);
        assert_eq!(unnamed(ours, of, &[named], Duration::ZERO).await, [""; 0]);
    }
    // A blob that is named for one use is not for the other; an organisation's rows name nobody else's blobs.
    assert_eq!(unnamed(ours, Snapshot, &[output], Duration::ZERO).await, [output]);
    let other = (&world, OrgId::random());
    assert_eq!(unnamed(other, ToolOutput, &[output], Duration::ZERO).await, [output]);

    // A deleted session names nothing; the files of its Location outlive it.
    world.store.delete_session(world.org, session.session).await.expect("deleted");
    assert_eq!(unnamed(ours, ToolOutput, &[output], HOUR).await, [""; 0]);
    assert_eq!(unnamed(ours, ToolOutput, &[output], Duration::ZERO).await, [output]);
    assert_eq!(unnamed(ours, Snapshot, &[pack], Duration::ZERO).await, [""; 0]);
}

/// The names, `limit` at a time.
async fn named(world: &World, of: BlobUse, limit: i64) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().map_or("", String::as_str).to_owned();
        let page = world.store.named_blobs(world.org, of, &after, limit).await.expect("a page");
        if page.is_empty() {
            return names;
        }
        names.extend(page.into_iter().map(|blob| blob.name));
    }
}

#[tokio::test]
async fn what_rows_name_is_listed_page_by_page() {
    let world = World::new().await;
    assert_eq!(named(&world, ToolOutput, 2).await, [""; 0]);
    let session = every_kind(&world).await;
    assert_eq!(named(&world, ToolOutput, 2).await, ["tool_1"]);
    let all = named(&world, Snapshot, 10).await;
    assert!(all.contains(&"o/x/snapshot/1-2".to_owned()) && all.is_sorted(), "{all:?}");
    assert_eq!(named(&world, Snapshot, 1).await, all);
    let page = world.store.named_blobs(world.org, ToolOutput, "", 1).await.expect("a page");
    assert_eq!(page[0].holder, session.session.as_str());
    let others = world.store.named_blobs(OrgId::random(), Snapshot, "", 10).await;
    assert_eq!(others.expect("a page"), []);
}

#[tokio::test]
async fn what_is_named_again_begins_its_time_anew() {
    let world = World::new().await;
    let ours = (&world, world.org);
    assert_eq!(unnamed(ours, ToolOutput, &["tool_1"], HOUR).await, [""; 0]);
    let wait = Duration::from_millis(2);
    tokio::time::sleep(wait).await;
    assert_eq!(unnamed(ours, ToolOutput, &["tool_1"], wait).await, ["tool_1"]);
    let session = every_kind(&world).await;
    assert_eq!(unnamed(ours, ToolOutput, &["tool_1"], Duration::ZERO).await, [""; 0]);
    world.store.delete_session(world.org, session.session).await.expect("deleted");
    assert_eq!(unnamed(ours, ToolOutput, &["tool_1"], HOUR).await, [""; 0]);
    world.store.forget_blobs(world.org, ToolOutput, vec!["tool_1".into()]).await.expect("done");
    assert_eq!(unnamed(ours, ToolOutput, &["tool_1"], HOUR).await, [""; 0]);
}

#[tokio::test]
async fn a_chore_is_one_process_at_a_time() {
    let world = World::new().await;
    let claims = (0..8).map(|_| world.store.claim_chore("test", HOUR));
    let claimed = futures::future::try_join_all(claims).await.expect("answers");
    assert_eq!(claimed.into_iter().filter(|mine| *mine).count(), 1);
    assert!(world.store.claim_chore("another", HOUR).await.expect("an answer"));
    assert!(!world.store.claim_chore("test", HOUR).await.expect("an answer"));
    assert!(world.store.claim_chore("test", Duration::ZERO).await.expect("an answer"));
}
