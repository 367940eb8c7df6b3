//! Deletions beside everything that goes on at the same ids.

use std::sync::Arc;
use std::time::Duration;

use domain::{DrainOutcome, SessionEvent, SessionId, SessionRef};
use store::{DrainEnd, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

/// Takes the lock of an organisation's sums of usage, as another deletion or a count has it.
async fn hold_sums(world: &World) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut tx = world.root.begin().await.expect("a transaction");
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('usage ' || $1::uuid, 0))")
        .bind(world.org.0)
        .execute(&mut *tx)
        .await
        .expect("the lock");
    tx
}

// Finding core-3 M2: it waited for the sums, and then took the session that another had made meanwhile.
pub(crate) async fn what_is_not_there_is_not_deleted(world: &World) {
    let sums = hold_sums(world).await;
    let id: SessionId = "ses_nobody".parse().expect("an id");
    let deleted = world.store.delete_session(world.org, id.clone());
    let answer = timeout(Duration::from_secs(3), deleted).await.expect("it waits for nothing");
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    sums.rollback().await.expect("the end");
}

#[tokio::test]
async fn the_deletion_of_no_session_waits_for_nobody() {
    what_is_not_there_is_not_deleted(&World::new().await).await;
}

// Finding core-3 M2: `deadlock detected`, six to twelve times in eight seconds.
#[tokio::test]
async fn one_id_is_made_prompted_and_deleted_by_all() {
    let world = Arc::new(World::new().await);
    let id: SessionId = "ses_again".parse().expect("an id");
    let until = Instant::now() + Duration::from_secs(8);
    let mut all = JoinSet::new();
    for nth in 0..6 {
        let (world, id) = (world.clone(), id.clone());
        all.spawn(async move {
            let at = SessionRef { org: world.org, location: world.location.clone(), session: id };
            while Instant::now() < until {
                let answer = match nth % 3 {
                    0 => {
                        world.try_create(at.session.clone(), &world.location, None).await.map(drop)
                    }
                    1 => world.try_admit(&at, &world.prompt("hello")).await.map(drop),
                    _ => world.store.delete_session(world.org, at.session.clone()).await,
                };
                // Others were faster: no fault of the database.
                let is_told = |error: &StoreError| {
                    matches!(error, StoreError::NotFound | StoreError::Conflict { .. })
                };
                assert!(answer.as_ref().err().is_none_or(is_told), "{nth}: {answer:?}");
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("every call is answered");
    }
    world.assert_sound(false).await;
}

// A log that cannot be counted held up its own deletion for ever.
#[tokio::test]
async fn a_log_that_cannot_be_counted_can_be_deleted() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let mut mint = world.mint();
    let turn = TestTurn::new(&mut mint, &prompt.message);
    let mut events: Vec<SessionEvent> = vec![promoted(&prompt)];
    events.extend(turn.start());
    events.extend(turn.reply(&mut mint));
    events.push(ended(DrainOutcome::Completed));
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    sqlx::query("UPDATE session_event SET payload = '{\"usage\":{\"input\":\"many\"}}' WHERE kind = 'turn.settled'")
        .execute(&world.root)
        .await
        .expect("tampered");
    let id = || session.session.clone();
    world.store.delete_session(world.org, id()).await.expect("deleted");
    let again = world.store.delete_session(world.org, id()).await;
    assert!(matches!(again, Err(StoreError::NotFound)), "{again:?}");
}
