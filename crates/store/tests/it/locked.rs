//! A session that somebody has locked for long costs others nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::{DrainEnd, EpochStarted, OrgId, SessionId, SessionRef, Stamp};
use store::{Hold, NewImport, NewKey, SessionFilter, Store, StoreError, StoreOptions, Written};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{NOW, World};

async fn lock(world: &World, session: &SessionRef) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut tx = world.root.begin().await.expect("a transaction");
    sqlx::query("SELECT FROM session_head WHERE org_id = $1 AND id = $2 FOR UPDATE")
        .bind(session.org.0)
        .bind(session.session.as_str())
        .execute(&mut *tx)
        .await
        .expect("the lock");
    tx
}

/// How many backends wait for a lock.
pub(crate) async fn waiting(world: &World) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    sqlx::query_scalar(sql).fetch_one(&world.root).await.expect("a count")
}

async fn key(store: &Store, org: OrgId, number: u8) -> Result<(), StoreError> {
    let id = format!("key_{number}");
    let (hash, name) = (vec![number; 32], "a key".into());
    store
        .create_key(org, NewKey { id, hash, name, scopes: Vec::new(), expires_ms: None }, NOW)
        .await
}

// Finding core-3 H1: twelve prompts of a locked session took all connections, and left 36 backends waiting.
#[tokio::test]
async fn a_locked_session_costs_others_nothing() {
    let world = Arc::new(World::new().await);
    let locked = world.session().await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(world.session().await);
    }
    let lock = lock(&world, &locked).await;
    let mut prompts = JoinSet::new();
    for _ in 0..12 {
        let (world, locked) = (world.clone(), locked.clone());
        prompts.spawn(async move { world.try_admit(&locked, &world.prompt("hello")).await });
    }
    // Of other kinds, too: each is one more in the same queue.
    let (store, org, id) = (world.store.clone(), world.org, locked.session.clone());
    let (now, also) = (world.tick(), world.clone());
    #[expect(clippy::disallowed_methods, reason = "a test's own task")]
    let interrupt = tokio::spawn(async move { store.interrupt(org, id, None, now).await });
    let (mut slowest, begun) = (Duration::ZERO, Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        for other in &others {
            let asked = Instant::now();
            world.admit(other, "hello").await;
            also.store.sessions(org, SessionFilter::default(), 10).await.expect("a list");
            slowest = slowest.max(asked.elapsed());
        }
        assert!(waiting(&world).await <= 1, "one at a time waits in Postgres");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // Whoever waited is answered when the lock is free.
    lock.rollback().await.expect("free");
    while let Some(prompt) = prompts.join_next().await {
        prompt.expect("no panic").expect("admitted");
    }
    interrupt.await.expect("no panic").expect("an answer");
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_backend() {
    let world = World::new().await;
    let session = world.session().await;
    let lock = lock(&world, &session).await;
    let prompt = world.prompt("hello");
    let given_up = world.try_admit(&session, &prompt).await;
    assert!(given_up.as_ref().is_err_and(StoreError::is_locked), "{given_up:?}");
    assert_eq!(waiting(&world).await, 0);
    lock.rollback().await.expect("free");
    // It was not admitted by anybody who was left behind.
    assert_eq!(world.head(&session).await.pending, 0);
    world.try_admit(&session, &prompt).await.expect("admitted");
}

/// A deletion may not wait with other sessions in its hand either.
// The database was taken for one that is gone, so everybody's drains connected anew.
#[tokio::test]
async fn a_drain_that_meets_a_lock_closes_no_connection() {
    let world = World::new().await;
    let (locked, other) = (world.session().await, world.session().await);
    world.fence(1).await;
    world.admit(&locked, "hello").await;
    world.admit(&other, "hello").await;
    let (others, _) = world.start(&other, 1).await;
    let (write, _) = world.look(&locked, 1, Hold::Look).await;
    others.release().await.expect("free");
    let connections = async || -> BTreeSet<i32> {
        let sql = "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND usename = 'oc_app'";
        let pids: Vec<i32> = sqlx::query_scalar(sql).fetch_all(&world.root).await.expect("rows");
        pids.into_iter().collect()
    };
    let (before, lock) = (connections().await, lock(&world, &locked).await);
    let epoch = EpochStarted {
        epoch: 1,
        baseline: "You are here.".into(),
        snapshot: "{}".into(),
        reason: None,
    };
    match world.try_write(write, &[epoch.into()], DrainEnd::Keep).await {
        Ok(Written::Unanswered(write, error)) => {
            assert!(error.is_locked(), "{error:?}");
            assert_eq!(before.difference(&connections().await).count(), 0, "of {before:?}");
            lock.rollback().await.expect("free");
            assert!(matches!(write.again().await, Ok(Written::Next(_))));
        }
        _ => panic!("nobody waited for the lock"),
    }
}

#[tokio::test]
async fn a_deletion_waits_without_its_locks() {
    let world = Arc::new(World::new().await);
    let parent = world.session().await;
    let child = world.child(&parent).await;
    let lock = lock(&world, &child).await;
    let (store, org, id) = (world.store.clone(), world.org, parent.session.clone());
    #[expect(clippy::disallowed_methods, reason = "a test's own task")]
    let deleted = tokio::spawn(async move { store.delete_session(org, id).await });
    for _ in 0..10 {
        world.admit(&parent, "hello").await;
    }
    lock.rollback().await.expect("free");
    deleted.await.expect("no panic").expect("deleted");
}

#[tokio::test]
async fn keys_are_made_beside_imports_that_take_long() {
    let world = World::new().await;
    let mut clients = Vec::new();
    let mut imports = JoinSet::new();
    for number in 0..4 {
        let (client, pages) = mpsc::channel(1);
        clients.push(client);
        let new = NewImport {
            id: format!("ses_import{number}").parse::<SessionId>().expect("an id"),
            location: world.location.clone(),
            events: 1,
            last_id: Stamp::default(),
            components: Vec::new(),
            files: None,
            now: NOW,
        };
        let (store, org) = (world.store.clone(), world.org);
        imports.spawn(async move { store.import(org, new, pages).await });
    }
    let begun = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    while sqlx::query_scalar::<_, i64>(begun).fetch_one(&world.root).await.expect("a count") < 1 {
        sleep(Duration::from_millis(10)).await;
    }
    for number in 0..5 {
        let made = timeout(Duration::from_secs(2), key(&world.store, world.org, number)).await;
        made.expect("it waits for no import").expect("a key");
    }
    drop(clients);
    while let Some(import) = imports.join_next().await {
        assert!(import.expect("no panic").is_err(), "fewer events than it said");
    }
}

// Finding ops-3 S3: "the database does not answer" was said of a process that was busy.
#[tokio::test]
async fn a_call_whose_turn_does_not_come_says_so() {
    let world = World::new().await;
    let mut options = StoreOptions::new(world.database.store_url());
    options.gateway_connections = 1;
    options.acquire_timeout = Duration::from_millis(150);
    let store = Store::connect(&options).expect("a URL");
    let lists =
        |store: Store, org| async move { store.sessions(org, SessionFilter::default(), 1).await };
    lists(store.clone(), world.org).await.expect("a connection");
    // The first one waits for the table, and the second one for the first.
    let mut table = world.root.begin().await.expect("a transaction");
    sqlx::raw_sql("LOCK TABLE session").execute(&mut *table).await.expect("the lock");
    let mut both = JoinSet::new();
    both.spawn(lists(store.clone(), world.org));
    both.spawn(lists(store.clone(), world.org));
    let mut said = Vec::new();
    while let Some(answer) = both.join_next().await {
        let error = answer.expect("no panic").expect_err("the table is locked");
        said.push((error.is_crowded(), error.is_locked()));
    }
    assert_eq!(said, [(true, false), (false, true)]);
    table.rollback().await.expect("free");
    lists(store, world.org).await.expect("a list");
}
