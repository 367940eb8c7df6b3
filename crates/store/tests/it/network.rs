//! The store over a network with faults: no call waits for an answer that cannot come.

use std::sync::Arc;
use std::time::Duration;

use domain::{FencingToken, Seq, SessionRef};
use store::{Hold, Messages, NewKey, Store, StoreError, StoreOptions};
use testkit::Proxy;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::world::World;

/// Longer than any limit of the store's for what is asked here, and much shorter than TCP's own.
const AT_ONCE: Duration = Duration::from_secs(60);

async fn behind_a_proxy() -> (World, Proxy) {
    let database = testkit::database().await.expect("a test database");
    let url = database.store_url();
    let host = url.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/'));
    let proxy = Proxy::to(host.expect("a host").0).await.expect("a port");
    let url = proxy.url(&url);
    (World::through(database, &url).await, proxy)
}

async fn read(world: &World, session: &SessionRef) -> Result<(), StoreError> {
    let reading = world.store.session(world.org, session.session.clone());
    timeout(AT_ONCE, reading).await.expect("an end in time").map(drop)
}

/// Finding cluster 3: idle connections whose flows have vanished are noticed before a call begins on them.
#[tokio::test]
async fn idle_connections_that_vanished_cost_no_call_its_answer() {
    let (world, proxy) = behind_a_proxy().await;
    let session = world.session().await;
    let all = tokio::join!(read(&world, &session), read(&world, &session), read(&world, &session));
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok());
    sleep(Duration::from_millis(150)).await; // a connection is trusted for 100 ms after its last use
    proxy.lose_flows();
    for _ in 0..4 {
        read(&world, &session).await.expect("on another connection");
    }
    world.store.ping().await.expect("every lane is answered");
}

/// Finding cluster 3: a statement whose flow vanishes under way ends, and those after it are answered.
#[tokio::test]
async fn a_statement_that_is_not_answered_is_given_up() {
    let (world, proxy) = behind_a_proxy().await;
    let world = Arc::new(world);
    let session = world.session().await;
    read(&world, &session).await.expect("an answer");
    proxy.mute(true);
    let mut under_way = JoinSet::new();
    for _ in 0..2 {
        let (world, session) = (world.clone(), session.clone());
        under_way.spawn(async move { read(&world, &session).await });
    }
    let looked = {
        let (world, session) = (world.clone(), session.clone());
        async move {
            let known = store::KnownLog::NOTHING;
            let look = world.store.start_drain(session, FencingToken(0), known, Hold::Look);
            timeout(AT_ONCE, look).await.expect("an end in time").map(drop)
        }
    };
    under_way.spawn(looked);
    // They are on their way when the flows vanish.
    sleep(Duration::from_millis(50)).await;
    proxy.lose_flows();
    proxy.mute(false);
    for ended in under_way.join_all().await {
        if let Err(error) = ended {
            assert!(matches!(error, StoreError::Database(_)), "{error:?}");
        }
    }
    read(&world, &session).await.expect("on another connection");
    world.store.ping().await.expect("every lane is answered");
}

/// Finding cluster 3: `/readyz` asked a pool that served nobody.
#[tokio::test]
async fn a_ping_waits_for_the_turns_that_calls_wait_for() {
    let world = World::new().await;
    let session = world.session().await;
    let url = world.database.store_url();
    let narrow = StoreOptions { gateway_connections: 1, ..StoreOptions::new(url) };
    let store = Store::connect(&narrow).expect("a URL");
    store.ping().await.expect("every lane is answered");
    // A wait for a lock would give its connection back.
    let slow = "CREATE POLICY slow ON session AS RESTRICTIVE USING (pg_sleep(3)::text = '')";
    sqlx::query(slow).execute(&world.root).await.expect("a slow table");
    let mut stuck = JoinSet::new();
    let asked = (store.clone(), world.org, session.session.clone());
    stuck.spawn(async move { asked.0.session(asked.1, asked.2).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let waits = async || -> i64 {
        sqlx::query_scalar(waiting).fetch_one(&world.root).await.expect("a count")
    };
    while waits().await == 0 {
        tokio::task::yield_now().await;
    }
    let answer = timeout(Duration::from_secs(1), store.ping()).await;
    assert!(!matches!(answer, Ok(Ok(()))), "no reading is answered: {answer:?}");
    assert!(stuck.join_all().await.into_iter().all(|read| read.is_ok()));
    sqlx::query("DROP POLICY slow ON session").execute(&world.root).await.expect("a quick table");
    store.ping().await.expect("every lane is answered");
}

/// Finding store 13: at most 28 connections a process, whatever the load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_has_at_most_28_connections_whatever_the_load() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut all: JoinSet<()> = JoinSet::new();
    for number in 0..100_u8 {
        let world = world.clone();
        all.spawn(async move {
            let (store, org, now) = (&world.store, world.org, world.tick());
            let session = world.session().await;
            world.admit(&session, "hello").await;
            let key = NewKey {
                id: format!("key_{number}"),
                hash: vec![number; 32],
                name: "a key".into(),
                scopes: Vec::new(),
                expires_ms: None,
            };
            store.create_key(org, key, now).await.expect("a key");
            let (write, _) = world.start(&session, 1).await;
            drop(write);
            store.heads(&[(org, session.session.clone())]).await.expect("a head");
            store
                .transcript(org, session.session.clone(), Messages::Newest, 9)
                .await
                .expect("messages");
            store.inbox(org, session.session.clone(), Seq(0), 9).await.expect("an inbox");
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("every call is answered");
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND usename IN ('oc_app', 'oc_sched')",
        )
        .fetch_one(&world.root)
        .await
        .expect("a count");
        assert!(open <= 28, "{open} connections");
    }
}
