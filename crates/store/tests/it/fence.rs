use std::sync::Arc;

use domain::{Claim, DrainOutcome, FencingToken, LocationRef, SessionRef};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::{DrainEnd, Hold, Started, StoreError, Taken, Written};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::script::{TestTurn, ended, promoted};
use crate::world::{World, is_fenced, name};

/// A session whose drain has an open turn under the claim that is returned.
async fn mid_turn(world: &World, token: i64) -> (SessionRef, Claim, TestTurn) {
    let session = world.session().await;
    world.fence(token).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&session, token, &events, DrainEnd::Keep).await;
    (session, claim, turn)
}

#[tokio::test]
async fn a_fenced_claim_can_neither_write_nor_end_its_drain_and_nothing_changes() {
    let world = World::new().await;
    let (session, stale, turn) = mid_turn(&world, 1).await;
    world.fence(2).await;
    let before = world.rows(&session).await;
    let reply = turn.reply(&mut world.mint());
    for end in [DrainEnd::Keep, DrainEnd::Close, DrainEnd::Park, DrainEnd::HandOver] {
        let answer = world.resume(&session, stale, &reply, end).await;
        assert!(is_fenced(&answer), "{answer:?}");
    }
    assert_eq!(world.rows(&session).await, before);

    // Nor after the new owner has taken over, with however many claims.
    let (tx, taken) = world.start(&session, 2).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: false, recoveries: 1 });
    let current = tx.claim();
    world.write(tx, &[], DrainEnd::Keep).await.expect("the newest claim");
    let before = world.rows(&session).await;
    for claim in world.head(&session).await.first_claim()..current.0 {
        let answer = world.resume(&session, Claim(claim), &reply, DrainEnd::Close).await;
        assert!(is_fenced(&answer), "claim {claim}: {answer:?}");
    }
    assert_eq!(world.rows(&session).await, before);
    world.resume(&session, current, &reply, DrainEnd::Keep).await.expect("the newest claim");
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_drain_that_has_ended_has_no_claim_left() {
    let world = World::new().await;
    for (end, token) in [(DrainEnd::Close, 1), (DrainEnd::Park, 2), (DrainEnd::HandOver, 3)] {
        let (session, claim, turn) = mid_turn(&world, token).await;
        let mut events = turn.reply(&mut world.mint()).to_vec();
        if end != DrainEnd::HandOver {
            events.push(ended(DrainOutcome::Completed));
        }
        world.resume(&session, claim, &events, end).await.expect("the last write");
        let before = world.rows(&session).await;
        let answer = world.resume(&session, claim, &[], DrainEnd::Keep).await;
        assert!(is_fenced(&answer), "{end:?}: {answer:?}");
        assert_eq!(world.rows(&session).await, before);
        world.assert_sound(false).await;
    }
}

#[tokio::test]
async fn only_the_token_that_is_the_fence_starts_drains() {
    let world = World::new().await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    world.fence(5).await;
    let before = world.rows(&session).await;
    // Older, and one whose holder has not raised the fence yet.
    for token in [0, 4, 6] {
        assert_eq!(world.refused(&session, token).await, "superseded", "token {token}");
    }
    let lower = world.store.raise_fence(world.at(), FencingToken(4)).await;
    assert!(matches!(lower, Err(StoreError::Superseded)), "{lower:?}");
    assert_eq!(world.rows(&session).await, before);
    let (tx, _) = world.start(&session, 5).await;
    tx.release().await.expect("rolled back");
    // A write that was rolled back claims nothing.
    assert_eq!(world.rows(&session).await, before);
}

#[tokio::test]
async fn tokens_are_compared_with_those_of_their_own_location_only() {
    let world = World::new().await;
    let other = world.another_location().await;
    let (here, there) = (world.session().await, world.session_at(&other).await);
    for session in [&here, &there] {
        world.admit(session, "hello").await;
    }
    world.fence(10).await;
    let at = LocationRef { org: world.org, location: other.clone() };
    world.store.raise_fence(at, FencingToken(3)).await.expect("the first token there");
    assert_eq!(world.refused(&there, 10).await, "superseded");
    assert_eq!(world.refused(&here, 3).await, "superseded");
    // A session asked for at a Location where it is not.
    let misplaced = SessionRef { location: other, ..here.clone() };
    assert_eq!(world.refused(&misplaced, 3).await, "idle");
    for (session, token) in [(&here, 10), (&there, 3)] {
        let (tx, _) = world.start(session, token).await;
        world.write(tx, &[], DrainEnd::Keep).await.expect("ready");
    }
    let theirs = world.head(&there).await;
    world.fence(11).await;
    assert_eq!(world.head(&there).await, theirs);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_takeover_fences_what_is_open_or_pending_and_leaves_the_idle_alone() {
    let world = World::new().await;
    let (open, ..) = mid_turn(&world, 1).await;
    let (pending, stored, idle) =
        (world.session().await, world.session().await, world.session().await);
    world.admit(&pending, "waits").await;
    world.admit_only(&stored, "stored").await;
    let all = [&open, &pending, &stored, &idle];
    let mut before = Vec::new();
    for session in all {
        before.push(world.head(session).await);
    }
    world.fence(2).await;
    for ((session, mut expected), bump) in all.into_iter().zip(before).zip([1, 1, 1, 0]) {
        expected.claim += bump;
        assert_eq!(world.head(session).await, expected);
    }
}

/// A worker whose answer was lost asks again while its own drains run.
#[tokio::test]
async fn raising_the_same_token_again_does_not_fence_its_own_drains() {
    let world = World::new().await;
    let (session, claim, turn) = mid_turn(&world, 7).await;
    let before = world.rows(&session).await;
    world.fence(7).await;
    assert_eq!(world.rows(&session).await, before);
    let reply = turn.reply(&mut world.mint());
    world.resume(&session, claim, &reply, DrainEnd::Keep).await.expect("still ours");
}

/// A fence that is raised to `token + 1` while a drain of `token` is just starting: the session, and the drain's claim once
/// it has written. `None` on a machine that is so busy that Postgres has ended the drain's transaction meanwhile, as it
/// does after one idle second.
async fn raised_beside_a_start(world: &Arc<World>, token: i64) -> Option<(SessionRef, Claim)> {
    let session = world.session().await;
    world.fence(token).await;
    let prompt = world.admit(&session, "hello").await;
    let (tx, _) = world.start(&session, token).await;
    let claim = tx.claim();
    let mut raising = JoinSet::new();
    raising.spawn({
        let world = world.clone();
        async move { world.fence(token + 1).await }
    });
    let mut waits = world.waits_beside(&mut raising, 1).await;
    // Nobody can start there meanwhile, not even with the old token.
    raising.spawn({
        let (world, session) = (world.clone(), session.clone());
        async move { assert_eq!(world.refused(&session, token).await, "superseded") }
    });
    waits = waits && world.waits_beside(&mut raising, 2).await;
    let written = world.try_write(tx, &[promoted(&prompt)], DrainEnd::Keep).await;
    raising.join_all().await;
    let written = written.expect("it was first, or nobody knows");
    match written {
        Written::Next(_) if waits => Some((session, claim)),
        Written::Next(_) | Written::Unanswered(..) => None,
        Written::Stale | Written::Superseded | Written::Unstored => {
            panic!("the fence did not wait")
        }
    }
}

#[tokio::test]
async fn a_fence_waits_for_a_drain_that_is_just_starting() {
    let world = Arc::new(World::new().await);
    let mut token = 1;
    let (session, claim) = loop {
        match raised_beside_a_start(&world, token).await {
            Some(done) => break done,
            None => token += 2,
        }
    };
    let before = world.rows(&session).await;
    let answer = world.resume(&session, claim, &[], DrainEnd::Keep).await;
    assert!(is_fenced(&answer), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);
    let (_, taken) = world.start(&session, token + 1).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: false, recoveries: 1 });
    assert_eq!(world.head(&session).await.pending, 0);
}

/// The race of a takeover, unscripted: whatever commits after the fence is raised is of its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fence_is_raised_no_earlier_claim_writes() {
    const ROUNDS: i64 = 30;
    const DRAINS: usize = 3;
    let world = Arc::new(World::new().await);
    let mut random = StdRng::seed_from_u64(7);
    let mut written = 0;
    for token in 1..=ROUNDS {
        world.fence(2 * token - 1).await;
        let mut sessions = Vec::new();
        for _ in 0..DRAINS {
            let session = world.session().await;
            world.admit(&session, "hello").await;
            sessions.push(session);
        }
        let together = Arc::new(Barrier::new(DRAINS + 1));
        let mut drains = JoinSet::new();
        for session in &sessions {
            let (world, session, together) = (world.clone(), session.clone(), together.clone());
            drains.spawn(async move {
                together.wait().await;
                write_until_fenced(&world, &session, 2 * token - 1).await
            });
        }
        together.wait().await;
        for _ in 0..random.random_range(0..40) {
            tokio::task::yield_now().await;
        }
        world.fence(2 * token).await;
        let mut at_fence = Vec::new();
        for session in &sessions {
            at_fence.push(world.rows(session).await);
        }
        written += drains.join_all().await.into_iter().sum::<usize>();
        for (session, rows) in sessions.iter().zip(at_fence) {
            assert_eq!(world.rows(session).await, rows, "token {token}");
            assert!(["ready", "idle"].contains(&world.refused(session, 2 * token).await));
        }
    }
    assert!(written > 0, "no drain ever wrote before it was fenced: the race did not happen");
    world.assert_sound(false).await;
}

/// Drains until it is told that it may not; counts its commits.
async fn write_until_fenced(world: &World, session: &SessionRef, token: i64) -> usize {
    let started = world
        .store
        .start_drain(session.clone(), FencingToken(token), store::KnownLog::NOTHING, Hold::Lock)
        .await;
    let (tx, claim) = match started {
        Ok(Started::Ready(tx, ..)) => {
            let claim = tx.claim();
            (*tx, claim)
        }
        Ok(Started::Superseded) => return 0,
        other => panic!("not ready but {}", name(&other)),
    };
    let notice = |world: &World| {
        let message = domain::MessageId::mint(&mut world.mint());
        let kind = domain::NoticeKind::Recovery;
        domain::NoticeRecorded { message, kind, text: "working".into() }.into()
    };
    world.write(tx, &[notice(world)], DrainEnd::Keep).await.expect("the lock is held");
    for commits in 1..5_000 {
        match world.resume(session, claim, &[notice(world)], DrainEnd::Keep).await {
            Ok(()) => {}
            Err(StoreError::Fenced { .. }) => return commits,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the drain was never fenced")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_starts_with_one_token_only_the_later_claim_writes() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    for _ in 0..25 {
        let session = world.session().await;
        world.admit(&session, "hello").await;
        let together = Arc::new(Barrier::new(2));
        let mut starts = JoinSet::new();
        for _ in 0..2 {
            let (world, session, together) = (world.clone(), session.clone(), together.clone());
            starts.spawn(async move {
                together.wait().await;
                let (tx, _) = world.start(&session, 1).await;
                let claim = tx.claim();
                world.write(tx, &[], DrainEnd::Keep).await.expect("its own first write");
                claim
            });
        }
        let mut claims = starts.join_all().await;
        claims.sort_unstable();
        let first = world.head(&session).await.first_claim();
        assert_eq!(claims, [Claim(first + 1), Claim(first + 2)]);
        let before = world.rows(&session).await;
        let answer = world.resume(&session, claims[0], &[], DrainEnd::Close).await;
        assert!(is_fenced(&answer), "{answer:?}");
        assert_eq!(world.rows(&session).await, before);
        world.resume(&session, claims[1], &[], DrainEnd::Keep).await.expect("the later claim");
    }
}
