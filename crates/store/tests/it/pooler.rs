//! The store by way of a pooler that gives each transaction another backend.

use std::sync::Arc;

use domain::Seq;
use store::{Messages, NewKey, Store, StoreError, StoreOptions};
use tokio::task::JoinSet;

use crate::batch::drains_together;
use crate::world::World;

/// Finding store 13: the service works through pgbouncer in transaction mode.
#[tokio::test]
async fn a_store_works_by_way_of_a_pooler_in_transaction_mode() {
    let database = testkit::database().await.expect("a test database");
    let pooler = testkit::pooler(&database, 2).await.expect("a pgbouncer");
    let world = Arc::new(World::through(database, pooler.store_url()).await);
    // It ends with the oracle and a rebuild of each session.
    drains_together(world.clone()).await;

    // Transactions, sweeps and statements of every lane, all at once, over two backends a role.
    let mut all: JoinSet<Result<(), StoreError>> = JoinSet::new();
    for number in 0..60_u8 {
        let world = world.clone();
        all.spawn(async move {
            let (store, org, now) = (&world.store, world.org, world.tick());
            let session = world.session().await;
            let prompt = world.admit(&session, "hello").await;
            assert_eq!(world.admit(&session, "more").await.delivery, prompt.delivery);
            let key = NewKey {
                id: format!("key_{number}"),
                hash: vec![number; 32],
                name: "a key".into(),
                scopes: Vec::new(),
                expires_ms: None,
            };
            store.create_key(org, key, now).await?;
            assert_eq!(store.key_by_hash(vec![number; 32], now).await?.principal.org(), org);
            store.heads(&[(org, session.session.clone())]).await?;
            store.transcript(org, session.session.clone(), Messages::Newest, 9).await?;
            store.inbox(org, session.session.clone(), Seq(0), 9).await?;
            store.interrupt(org, session.session.clone(), None, now).await.map(drop)
        });
    }
    for done in all.join_all().await {
        done.expect("every call is answered");
    }
    // An id that is taken is refused within a transaction: the next statement stands in one of its own.
    let (one, other) = (world.session().await, world.session().await);
    let known = world.admit(&one, "hello").await;
    let taken = world.try_admit(&other, &known).await;
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "{taken:?}");
    world.store.ping().await.expect("every lane is answered");
    world.assert_sound(false).await;
}

#[test]
fn a_mode_of_poolers_that_is_none_is_refused() {
    let options = StoreOptions::new("postgres://oc_app@localhost/oc?pooler=statement");
    let refused = Store::connect(&options).map(drop).expect_err("no such mode");
    assert!(refused.to_string().contains("pooler=transaction"), "{refused}");
}
