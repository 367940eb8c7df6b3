//! Calls that share a statement: each as if it were alone, and none waits for another's lock.

use std::sync::Arc;
use std::time::Duration;

use domain::{DrainOutcome, SessionEvent, SessionRef};
use sqlx::Connection;
use store::{Admission, DrainEnd, Hold, StoreError, Written};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

/// Sessions that are used at the same time.
const SESSIONS: usize = 24;

async fn sessions(world: &World) -> Vec<SessionRef> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(world.session().await);
    }
    sessions
}

/// Transaction ids taken so far.
async fn transactions(world: &World) -> i64 {
    sqlx::query_scalar("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        .fetch_one(&world.root)
        .await
        .expect("a snapshot")
}

#[tokio::test]
async fn prompts_that_come_together_share_commits_and_each_is_admitted_once() {
    let world = Arc::new(World::new().await);
    let sessions = sessions(&world).await;
    let before = transactions(&world).await;
    let mut seen = 0;
    // Two of one session would go alone where the first of them is not committed yet.
    for text in ["first", "second"] {
        let mut all = JoinSet::new();
        for session in &sessions {
            let (world, session) = (world.clone(), session.clone());
            let prompt = world.prompt(text);
            all.spawn(async move { world.try_admit(&session, &prompt).await });
        }
        for admitted in all.join_all().await {
            assert_eq!(admitted.expect("admitted").admission, Admission::First);
            seen += 1;
        }
    }
    let taken = transactions(&world).await - before;
    assert!(taken < seen / 2, "{seen} prompts took {taken} transactions");
    for session in &sessions {
        assert_eq!((world.head(session).await.next_seq, world.head(session).await.pending), (4, 2));
    }
    world.assert_sound(false).await;
}

// Finding core-3 C2: a statement had a bound of calls and none of bytes, and five seconds.
#[tokio::test]
async fn a_statement_carries_a_bounded_number_of_bytes() {
    let world = Arc::new(World::new().await);
    let sessions = sessions(&world).await;
    let before = transactions(&world).await;
    let mut all = JoinSet::new();
    for session in sessions.into_iter().take(8) {
        // Each byte is six in JSON, and two such prompts are more than one statement carries.
        let mut prompt = world.prompt(&"\u{1}".repeat(360_000));
        prompt.digest = "large".into();
        let world = world.clone();
        all.spawn(async move { world.try_admit(&session, &prompt).await });
    }
    for admitted in all.join_all().await {
        assert_eq!(admitted.expect("admitted").admission, Admission::First);
    }
    let taken = transactions(&world).await - before;
    assert!(taken >= 8, "8 large prompts took {taken} transactions");
}

#[tokio::test]
async fn a_taken_id_a_retry_and_a_missing_session_fail_alone() {
    let world = World::new().await;
    let (one, other, third) = (world.session().await, world.session().await, world.session().await);
    let known = world.admit(&one, "hello").await;
    let mut elsewhere = world.prompt("hello");
    elsewhere.message = known.message.clone();
    let mut gone = third.clone();
    gone.session = domain::SessionId::mint(&mut world.mint());
    let (new, lost) = (world.prompt("new"), world.prompt("lost"));
    let (retried, taken, missing, admitted) = tokio::join!(
        world.try_admit(&one, &known),
        world.try_admit(&other, &elsewhere),
        world.try_admit(&gone, &lost),
        world.try_admit(&third, &new),
    );
    assert_eq!(retried.expect("the first row").admission, Admission::Retry);
    assert!(matches!(taken, Err(StoreError::Conflict { .. })));
    assert!(matches!(missing, Err(StoreError::NotFound)));
    assert_eq!(admitted.expect("admitted").admission, Admission::First);
    assert_eq!(world.head(&other).await.next_seq, 2);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn whose_head_is_locked_waits_alone() {
    let world = Arc::new(World::new().await);
    let sessions = sessions(&world).await;
    let mut holder = world.root.acquire().await.expect("a connection");
    let mut lock = holder.begin().await.expect("a transaction");
    sqlx::query("SELECT FROM session_head WHERE id = $1 FOR UPDATE")
        .bind(sessions[0].session.as_str())
        .execute(&mut *lock)
        .await
        .expect("the head's lock");
    let mut waits = JoinSet::new();
    waits.spawn({
        let (world, session) = (world.clone(), sessions[0].clone());
        async move { world.admit(&session, "patient").await }
    });
    let mut all = JoinSet::new();
    for session in &sessions[1..] {
        let (world, session) = (world.clone(), session.clone());
        all.spawn(async move { world.admit(&session, "hello").await });
    }
    timeout(Duration::from_secs(60), all.join_all()).await.expect("nobody waits for the lock");
    assert!(waits.try_join_next().is_none(), "it waits for the lock");
    lock.rollback().await.expect("the lock let go");
    timeout(Duration::from_secs(60), waits.join_all()).await.expect("its turn");
    world.assert_sound(false).await;
}

#[tokio::test]
async fn writes_that_come_together_are_each_as_if_alone() {
    drains_together(Arc::new(World::new().await)).await;
}

/// Drains of many sessions at the same time, some of which lose a race or come with a token too low.
pub(crate) async fn drains_together(world: Arc<World>) {
    world.fence(1).await;
    let another = world.another_location().await;
    let mut all = JoinSet::new();
    for number in 0..SESSIONS {
        let world = world.clone();
        let elsewhere = (number % 6 == 5).then(|| another.clone());
        all.spawn(async move {
            // The other Location has no token yet: a start there is refused, and only it.
            let session = match &elsewhere {
                Some(location) => world.session_at(location).await,
                None => world.session().await,
            };
            let prompt = world.admit(&session, "hello").await;
            if elsewhere.is_some() {
                assert_eq!(world.refused(&session, 1).await, "superseded");
                return;
            }
            let (look, _) = world.look(&session, 1, Hold::Look).await;
            if number % 4 == 3 {
                world.admit(&session, "one more").await;
                let events = [promoted(&prompt)];
                let refused = world.try_write(look, &events, DrainEnd::Keep).await;
                assert!(matches!(refused, Ok(Written::Stale)));
                return;
            }
            let mut mint = world.mint();
            let turn = TestTurn::new(&mut mint, &prompt.message);
            let mut events = vec![promoted(&prompt)];
            events.extend(turn.start());
            let first = world.try_write(look, &events, DrainEnd::Keep).await;
            let Ok(Written::Next(next)) = first else { panic!("nobody came between") };
            let mut events: Vec<SessionEvent> = turn.reply(&mut mint).into();
            events.push(ended(DrainOutcome::Completed));
            world.write(*next, &events, DrainEnd::Close).await.expect("its own");
        });
    }
    all.join_all().await;
    // Also proves that a rebuild, which folds one event after the other, gives the same rows.
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_prompt_that_has_begun_is_admitted_although_nobody_waits_for_it() {
    let world = World::new().await;
    let session = world.session().await;
    let mut begun = 0;
    for polls in 1..6 {
        let prompt = world.prompt("hello");
        let asked = world.try_admit(&session, &prompt);
        if crate::world::dropped_after(polls, asked).await.is_some() {
            continue;
        }
        begun += 1;
        // Whatever became of it, asking again says so and changes nothing more.
        let again = world.try_admit(&session, &prompt).await.expect("admitted now or before");
        assert_eq!(world.try_admit(&session, &prompt).await.expect("a retry").seq, again.seq);
    }
    assert!(begun > 0, "no call was dropped");
    world.assert_sound(false).await;
}
