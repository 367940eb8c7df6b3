//! Rows that outlive their sessions, and the collection that deletes them beside writers that begin to use them.
//!
//! Long because each kind of row has the same four races, and they share the ways to hold a collection up.
//
// Finding store 21: components, Locations and packs of deleted sessions were never deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use domain::{
    AttemptId, AttemptStarted, ComponentList, Control, ControlAdmitted, LocationId, LocationRef,
    Seq, SessionEvent, SessionRef, TurnId,
};
use sqlx::{Postgres, Transaction};
use store::{Append, BlobUse, DrainEnd, DrainWrite, Hold, LocationKind, Seed, StoreError, Written};
use tokio::task::JoinSet;

use crate::files::{moved, snapshotted, tree};
use crate::script::{ended, promoted};
use crate::world::World;

const RETENTION: Duration = Duration::from_hours(1);

/// A list of components, as a request has it: each component with its hash, and the list.
struct TestList {
    hash: String,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TestList {
    /// A list whose parts have these names. Equal names are equal parts.
    fn of(parts: &[&str]) -> Self {
        let hash = |name: &str| format!("{:x<32}", &name[..name.len().min(32)]).into_bytes();
        let mut rows: Vec<_> =
            parts.iter().map(|part| (hash(part), part.as_bytes().to_vec())).collect();
        let names: BTreeMap<_, _> =
            parts.iter().map(|part| (*part, hex::encode(hash(part)))).collect();
        let list = hash(&format!("list-{}", parts.join("-")));
        rows.push((list.clone(), serde_json::to_vec(&names).expect("JSON")));
        Self { hash: hex::encode(list), rows }
    }

    fn named(&self, world: &World) -> SessionEvent {
        let mut mint = world.mint();
        AttemptStarted {
            attempt: AttemptId::mint(&mut mint),
            turn: TurnId::mint(&mut mint),
            ordinal: 1,
            body_hash: "cd".repeat(32),
            wire_version: 1,
            epoch: 0,
            through: Seq(1),
            components: ComponentList::Stored(self.hash.clone()),
            pricing: None,
        }
        .into()
    }
}

/// Writes an attempt that names the list, and brings its components or trusts that they are stored.
async fn name_with(
    world: &World,
    write: DrainWrite,
    list: &TestList,
    brings: bool,
) -> Result<Written, StoreError> {
    let now = world.tick();
    let components = if brings { list.rows.as_slice() } else { &[] };
    let events = &[list.named(world)];
    let append = Append { events, promoted: 0, progress: false, end: DrainEnd::Keep, components };
    let mut mint = write.mint(now);
    write.commit(&mut mint, now, append).await
}

/// A session whose drain has named the list.
async fn naming(world: &World, list: &TestList) -> SessionRef {
    let session = world.session().await;
    world.admit(&session, "hello").await;
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    let written = name_with(world, write, list, true).await;
    assert!(matches!(written, Ok(Written::Next(_))));
    session
}

async fn delete(world: &World, session: &SessionRef) {
    world.store.delete_session(world.org, session.session.clone()).await.expect("deleted");
    // Two deletions at once leave the rows of one.
    while world.store.clear_gone_session(world.org).await.expect("a page") {}
}

/// The number of components that one look deletes, in pages of two.
async fn collect(world: &World) -> i32 {
    let (mut deleted, mut next) = (0, Some(Vec::new()));
    while let Some(after) = next.take() {
        let page = world.store.collect_components(world.org, after, 2).await.expect("a page");
        deleted += page.deleted;
        next = page.last;
    }
    deleted
}

/// The texts of components, without lists.
async fn stored(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT convert_from(bytes, 'UTF8') FROM request_component
         WHERE bytes NOT LIKE '{%' ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("components")
}

async fn count(world: &World, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(sql).fetch_one(&world.root).await.expect("a count")
}

/// A transaction of the collection that has looked and not committed.
async fn collecting<'c>(world: &World, call: &'static str) -> Transaction<'c, Postgres> {
    let mut tx = world.root.begin().await.expect("a transaction");
    sqlx::query(call).bind(world.org.0).execute(&mut *tx).await.expect("a page");
    tx
}

#[tokio::test]
async fn components_go_with_the_last_session_that_names_them() {
    let world = World::new().await;
    world.fence(1).await;
    let (one, two) = (TestList::of(&["agent", "tools"]), TestList::of(&["other", "tools"]));
    let first = naming(&world, &one).await;
    let again = naming(&world, &one).await;
    let second = naming(&world, &two).await;
    assert_eq!(collect(&world).await, 0);
    delete(&world, &first).await;
    assert_eq!(collect(&world).await, 0, "another session names them");
    world.store.rebuild(world.org, again.session.clone(), false).await.expect("a rebuild");
    assert_eq!(collect(&world).await, 0, "a rebuild names them again");
    delete(&world, &again).await;
    assert_eq!(collect(&world).await + collect(&world).await, 2, "the list, and what it alone had");
    assert_eq!(stored(&world).await, ["other", "tools"]);
    delete(&world, &second).await;
    assert_eq!(collect(&world).await + collect(&world).await, 3);
    assert_eq!(count(&world, "request_component").await, 0);
    assert_eq!(count(&world, "component_member").await, 0);
}

#[tokio::test]
async fn components_of_an_inline_list_are_kept_too() {
    let world = World::new().await;
    let session = crate::script::every_kind(&world).await;
    assert_eq!(stored(&world).await, ["a component"]);
    assert_eq!(collect(&world).await, 0);
    delete(&world, &session).await;
    assert_eq!(collect(&world).await, 1);
}

#[tokio::test]
async fn a_write_that_names_a_deleted_component_changes_nothing() {
    let world = World::new().await;
    world.fence(1).await;
    let list = TestList::of(&["agent", "tools"]);
    let gone = naming(&world, &list).await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    delete(&world, &gone).await;
    // The list goes first, then its parts.
    for _ in 0..2 {
        assert!(collect(&world).await > 0);
        let before = world.rows(&session).await;
        for hold in [Hold::Look, Hold::Lock] {
            let (write, _) = world.look(&session, 1, hold).await;
            let written = name_with(&world, write, &list, false).await;
            assert!(matches!(written, Ok(Written::Unstored)));
            assert_eq!(world.rows(&session).await, before);
        }
    }
    let part = &TestList { rows: list.rows[2..].to_vec(), hash: list.hash.clone() };
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    assert!(matches!(name_with(&world, write, part, true).await, Ok(Written::Unstored)));
    let (write, _) = world.look(&session, 1, Hold::Lock).await;
    assert!(matches!(name_with(&world, write, &list, true).await, Ok(Written::Next(_))));
    assert_eq!(stored(&world).await, ["agent", "tools"]);
    assert_eq!(collect(&world).await, 0);
}

/// The collection has deleted the rows and not committed: who names them waits for it.
#[tokio::test]
async fn a_component_that_is_being_deleted_is_not_named() {
    for brings in [false, true] {
        let world = Arc::new(World::new().await);
        world.fence(1).await;
        let list = TestList::of(&["agent"]);
        let gone = naming(&world, &list).await;
        delete(&world, &gone).await;
        let session = world.session().await;
        world.admit(&session, "hello").await;
        let deleting = collecting(&world, "SELECT collect_components($1, ''::bytea, 100)").await;
        let mut writing = JoinSet::new();
        writing.spawn({
            let world = world.clone();
            async move {
                let (write, _) = world.look(&session, 1, Hold::Look).await;
                match name_with(&world, write, &TestList::of(&["agent"]), brings).await {
                    Ok(Written::Next(_)) => assert!(brings, "the row was there"),
                    Ok(Written::Unstored) => assert!(!brings, "the bytes were there"),
                    _ => panic!("neither written nor refused"),
                }
            }
        });
        assert!(world.waits_beside(&mut writing, 1).await, "it did not wait");
        deleting.commit().await.expect("committed");
        writing.join_all().await;
        let kept = if brings { vec!["agent"] } else { vec!["agent"; 0] };
        assert_eq!(
            collect(&world).await,
            i32::from(!brings),
            "the list's part, unless it is named"
        );
        assert_eq!(stored(&world).await, kept);
    }
}

/// A writer has named the rows and not committed: the collection passes them by.
#[tokio::test]
async fn a_component_that_is_being_named_is_not_deleted() {
    let world = World::new().await;
    world.fence(1).await;
    let list = TestList::of(&["agent"]);
    let gone = naming(&world, &list).await;
    let session = world.session().await;
    delete(&world, &gone).await;
    let mut naming = world.root.begin().await.expect("a transaction");
    sqlx::query(
        "INSERT INTO session_component (org_id, incarnation, hash, projector_version)
         SELECT org_id, incarnation, decode($2, 'hex'), 0 FROM session_head WHERE id = $1",
    )
    .bind(session.session.as_str())
    .bind(&list.hash)
    .execute(&mut *naming)
    .await
    .expect("a name");
    assert_eq!(collect(&world).await, 0, "it neither waits nor deletes");
    naming.commit().await.expect("committed");
    assert_eq!(collect(&world).await, 0);
    assert_eq!(stored(&world).await, ["agent"]);
}

/// The components that a session names and that are not there.
async fn dangling(world: &World) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM session_component s
         LEFT JOIN component_member m ON m.list = s.hash
         LEFT JOIN request_component c ON c.hash = m.member WHERE c.hash IS NULL",
    )
    .fetch_one(&world.root)
    .await
    .expect("a count")
}

/// Writers that trust what they know, sessions that are deleted, and a collection that never rests: until both have
/// met often enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_ever_names_a_component_that_is_gone() {
    const ENOUGH: usize = 10;
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let lists = [["a", "x"], ["b", "x"], ["b", "y"]];
    let (refused, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut collecting = JoinSet::new();
    collecting.spawn({
        let (world, over) = (world.clone(), over.clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                collect(&world).await;
            }
        }
    });
    let mut writers = JoinSet::new();
    for writer in 0..3 {
        let (world, refused) = (world.clone(), refused.clone());
        writers.spawn(async move {
            let mut knows = [false; 3];
            let mut round = writer;
            while round < writer + 10 || refused.load(Ordering::Relaxed) < ENOUGH {
                let at = round % lists.len();
                let list = TestList::of(&lists[at]);
                let session = world.session().await;
                world.admit(&session, "hello").await;
                loop {
                    let (write, _) = world.look(&session, 1, Hold::Look).await;
                    match name_with(&world, write, &list, !knows[at]).await {
                        Ok(Written::Next(_)) => break,
                        Ok(Written::Unstored) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            knows = [false; 3];
                        }
                        Ok(_) => panic!("nobody else writes to this session"),
                        Err(error) => panic!("{error:?}"),
                    }
                }
                knows[at] = true;
                assert_eq!(dangling(&world).await, 0);
                delete(&world, &session).await;
                round += 1;
            }
        });
    }
    writers.join_all().await;
    over.store(true, Ordering::Relaxed);
    collecting.join_all().await;
    collect(&world).await;
    collect(&world).await;
    assert_eq!(count(&world, "request_component").await, 0);
}

/// The number of Locations that one look deletes, in pages of two.
async fn collect_locations(world: &World) -> i32 {
    let (mut deleted, mut next) = (0, Some(String::new()));
    while let Some(after) = next.take() {
        let page = world.store.collect_locations(world.org, after, 2, RETENTION).await;
        let page = page.expect("a page");
        deleted += page.deleted;
        next = page.last;
    }
    deleted
}

/// Lets the retention pass for Locations that were seen unused.
async fn wait_long(world: &World) {
    sqlx::query("UPDATE location SET unused_ms = unused_ms - $1")
        .bind(i64::try_from(RETENTION.as_millis()).expect("short"))
        .execute(&world.root)
        .await
        .expect("the past");
}

/// Looks, and looks again after the retention.
async fn collect_unused(world: &World) -> i32 {
    assert_eq!(collect_locations(world).await, 0);
    wait_long(world).await;
    collect_locations(world).await
}

fn at(world: &World, location: &LocationId) -> LocationRef {
    LocationRef { org: world.org, location: location.clone() }
}

async fn exists(world: &World, location: &LocationId) -> bool {
    match world.store.location(world.org, location.clone()).await {
        Ok(_) => true,
        Err(StoreError::NotFound) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn move_to(world: &World, to: &LocationId) -> ControlAdmitted {
    let (project, location) = (world.project.clone(), to.clone());
    let control = Control::Move { project, location, directory: "/else".into(), carry: false };
    ControlAdmitted { control, ..world.compaction() }
}

#[tokio::test]
async fn a_location_goes_when_nothing_has_used_it_for_the_retention() {
    let world = World::new().await;
    let session = world.session().await;
    assert_eq!(collect_unused(&world).await, 0, "a session is there");
    delete(&world, &session).await;
    assert_eq!(collect_locations(&world).await, 0, "its time begins");
    assert_eq!(collect_locations(&world).await, 0, "and is not over");
    wait_long(&world).await;
    let session = world.session().await;
    assert_eq!(collect_locations(&world).await, 0, "a session is there again");
    delete(&world, &session).await;
    assert_eq!(collect_locations(&world).await, 0, "its time begins anew");
    wait_long(&world).await;
    assert_eq!(collect_locations(&world).await, 1);
    assert!(!exists(&world, &world.location).await);
    assert_eq!(collect_unused(&world).await, 0);
    let asked = [world.location.clone(), "loc_nowhere".parse().expect("an id")];
    let gone = world.store.gone_locations(world.org, &asked).await;
    assert_eq!(gone.expect("an answer"), asked[..1]);
}

#[tokio::test]
async fn a_location_that_is_asked_for_again_is_kept() {
    let world = World::new().await;
    assert_eq!(collect_locations(&world).await, 0);
    wait_long(&world).await;
    let again = world.store.ensure_location(
        world.org,
        world.project.clone(),
        LocationKind::Managed,
        "/workspace".into(),
        world.tick(),
    );
    assert_eq!(again.await.expect("a Location").id, world.location);
    assert_eq!(collect_unused(&world).await, 1, "its time begins anew");
}

#[tokio::test]
async fn a_location_is_used_by_seeds_moves_and_sessions_that_left_it() {
    let world = World::new().await;
    world.fence(1).await;
    let (seeded, waited_for) = (world.another_location().await, world.another_location().await);
    let seed = Seed { location: world.location.clone(), tree: tree('a') };
    world.store.seed_location(at(&world, &seeded), seed).await.expect("seeded");
    let elsewhere = world.session_at(&seeded).await;
    world.try_control(&elsewhere, &move_to(&world, &waited_for)).await.expect("admitted");
    assert_eq!(collect_unused(&world).await, 0, "a seed, and a Move that waits");
    delete(&world, &elsewhere).await;
    assert_eq!(collect_unused(&world).await, 2, "the seed's own Location is still named");
    assert_eq!(collect_unused(&world).await, 1);

    let world = World::new().await;
    world.fence(1).await;
    let (to, session) = (world.another_location().await, world.session().await);
    let asked = move_to(&world, &to);
    world.try_control(&session, &asked).await.expect("admitted");
    let delivered = domain::ControlDelivered { message: asked.message, error: None }.into();
    let events =
        [delivered, moved(&world, &session, &to, false), ended(domain::DrainOutcome::Completed)];
    world.drain(&session, 1, &events, DrainEnd::Moved).await;
    assert_eq!(collect_unused(&world).await, 0, "its log names where it was");
    world.assert_sound(true).await;
    delete(&world, &SessionRef { location: to, ..session }).await;
    assert_eq!(collect_unused(&world).await, 2);
}

// An imported session's Location begins with its own first snapshot.
#[tokio::test]
async fn a_location_is_not_used_by_its_own_seed() {
    let world = World::new().await;
    let own = world.another_location().await;
    let seed = Seed { location: own.clone(), tree: tree('a') };
    world.store.seed_location(at(&world, &own), seed).await.expect("seeded");
    let session = world.session_at(&own).await;
    assert_eq!(collect_unused(&world).await, 1, "the other one");
    delete(&world, &session).await;
    assert_eq!(collect_unused(&world).await, 1);
    assert!(!exists(&world, &own).await);
}

// Finding core-3 H4: a chain of Locations that began with each other's files was followed 32 times, and no further.
#[tokio::test]
async fn a_long_chain_of_seeds_names_and_keeps_its_packs() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let events = [promoted(&prompt), snapshotted(1, 'b', Some('a'), None)];
    world.drain(&session, 1, &events, DrainEnd::HandOver).await;
    delete(&world, &session).await;
    let mut last = world.location.clone();
    for _ in 0..200 {
        let next = world.another_location().await;
        let seed = Seed { location: last, tree: tree('b') };
        world.store.seed_location(at(&world, &next), seed).await.expect("seeded");
        last = next;
    }
    world.session_at(&last).await;
    let names = async |org, of: &domain::LocationId| {
        world.store.pack_names(org, vec![of.clone()]).await.expect("names")
    };
    assert_eq!(names(world.org, &last).await, ["o/x/snapshot/1-1"]);
    assert_eq!(names(domain::OrgId::random(), &last).await, [""; 0]);
    assert_eq!(collect_unused(&world).await, 0, "each is used by the one that began with it");
    let blobs = vec!["o/x/snapshot/1-1".to_owned()];
    let unnamed =
        world.store.note_unnamed_blobs(world.org, BlobUse::Snapshot, blobs, Duration::ZERO).await;
    assert_eq!(unnamed.expect("an answer"), [""; 0]);
    // No service writes a circle, and none is followed for ever.
    sqlx::query("UPDATE location SET seed_location = $1, seed_tree = '' WHERE id = $2")
        .bind(last.as_str())
        .bind(world.location.as_str())
        .execute(&world.root)
        .await
        .expect("a circle");
    assert_eq!(names(world.org, &last).await, ["o/x/snapshot/1-1"]);
}

#[tokio::test]
async fn packs_go_with_their_location_and_then_their_blobs() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let mut events = vec![promoted(&prompt)];
    events.extend(
        [('b', 'a'), ('c', 'b'), ('d', 'c')]
            .iter()
            .zip(1..)
            .map(|((of, before), n)| snapshotted(n, *of, Some(*before), None)),
    );
    world.drain(&session, 1, &events, DrainEnd::HandOver).await;
    let packs = async |limit| world.store.collect_packs(world.org, limit).await.expect("an answer");
    delete(&world, &session).await;
    assert_eq!(packs(2).await, None, "their Location may be used again");
    assert_eq!(collect_unused(&world).await, 1);
    let unnamed = async || {
        let names = vec!["o/x/snapshot/1-3".to_owned()];
        let store = &world.store;
        store.note_unnamed_blobs(world.org, BlobUse::Snapshot, names, Duration::ZERO).await
    };
    assert_eq!(unnamed().await.expect("an answer"), [""; 0]);
    assert_eq!((packs(2).await, packs(2).await, packs(2).await), (Some(2), Some(1), None));
    assert_eq!(count(&world, "workspace_pack").await, 0);
    assert_eq!(unnamed().await.expect("an answer"), ["o/x/snapshot/1-3"]);
    assert_eq!(count(&world, "gone_location").await, 1, "workers still remove their folders");
    sqlx::query("UPDATE gone_location SET gone_ms = 0").execute(&world.root).await.expect("set");
    assert_eq!(packs(2).await, None);
    assert_eq!(count(&world, "gone_location").await, 0, "forgotten after a year");
}

/// The collection has deleted a Location and not committed: who begins to use it waits, and finds none.
#[tokio::test]
async fn a_location_that_is_being_deleted_is_not_used() {
    for way in ["session", "ensure", "seed", "move", "moved"] {
        let world = Arc::new(World::new().await);
        let kept = world.another_location().await;
        let session = world.session_at(&kept).await;
        assert_eq!(collect_locations(&world).await, 0);
        let deleting = collecting(&world, "SELECT collect_locations($1, '', 100, 0)").await;
        let mut using = JoinSet::new();
        using.spawn({
            let (world, location, session) =
                (world.clone(), world.location.clone(), session.clone());
            async move {
                let found = match way {
                    "session" => try_session(&world, &location).await.map(drop),
                    "ensure" => {
                        let kind = LocationKind::Managed;
                        let (project, now) = (world.project.clone(), world.tick());
                        let made = world.store.ensure_location(
                            world.org,
                            project,
                            kind,
                            "/workspace".into(),
                            now,
                        );
                        let made = made.await.expect("a Location");
                        assert_ne!(made.id, location, "a Location that is gone does not come back");
                        Err(StoreError::NotFound)
                    }
                    "seed" => {
                        let seed = Seed { location, tree: tree('a') };
                        world.store.seed_location(at(&world, &session.location), seed).await
                    }
                    "move" => {
                        let asked = move_to(&world, &location);
                        world.try_control(&session, &asked).await.map(drop)
                    }
                    _ => {
                        world.admit(&session, "hello").await;
                        let fence = domain::FencingToken(1);
                        let here = at(&world, &session.location);
                        world.store.raise_fence(here, fence).await.expect("the fence");
                        let (write, _) = world.look(&session, 1, Hold::Look).await;
                        let events = [moved(&world, &session, &location, false)];
                        world.try_write(write, &events, DrainEnd::Moved).await.map(drop)
                    }
                };
                assert!(matches!(found, Err(StoreError::NotFound)), "{way}: {found:?}");
            }
        });
        assert!(world.waits_beside(&mut using, 1).await, "{way} did not wait");
        deleting.commit().await.expect("committed");
        using.join_all().await;
        assert!(!exists(&world, &world.location).await, "{way}");
    }
}

async fn try_session(world: &World, location: &LocationId) -> Result<store::Creation, StoreError> {
    let created = domain::SessionCreated {
        by: None,
        project: world.project.clone(),
        location: location.clone(),
        directory: "/workspace".into(),
        title: "New session".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: false,
        rules: Vec::new(),
        metadata: None,
    };
    let id = domain::SessionId::mint(&mut world.mint());
    let new = store::NewSession { id, created, now: world.tick() };
    world.store.create_session(world.org, new).await
}

/// Somebody has begun to use a Location and not committed: the collection passes it by.
#[tokio::test]
async fn a_location_that_is_being_used_is_not_deleted() {
    let world = World::new().await;
    assert_eq!(collect_locations(&world).await, 0);
    wait_long(&world).await;
    let mut using = world.root.begin().await.expect("a transaction");
    sqlx::query("SELECT FROM location WHERE id = $1 FOR KEY SHARE")
        .bind(world.location.as_str())
        .execute(&mut *using)
        .await
        .expect("locked, as a foreign key does");
    assert_eq!(collect_locations(&world).await, 0, "it neither waits nor deletes");
    using.commit().await.expect("committed");
    assert_eq!(collect_locations(&world).await, 1);
}
