//! Sessions that go to another Location, and whoever is there or still comes to the old one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::{
    Control, ControlDelivered, DrainOutcome, EpochReason, EpochStarted, FencingToken, LocationId,
    LocationRef, PromptAdmitted, SessionEvent, SessionRef,
};
use store::{DrainEnd, DrainWrite, Hold, Started, StoreError, Taken, Written};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::files::{control, moved, snapshotted, tree};
use crate::script::{TestTurn, ended, promoted};
use crate::world::{World, is_fenced};

/// The session as it is known at another Location.
fn at(session: &SessionRef, location: &LocationId) -> SessionRef {
    SessionRef { location: location.clone(), ..session.clone() }
}

async fn fence_at(world: &World, location: &LocationId, token: i64) {
    let at = LocationRef { org: world.org, location: location.clone() };
    world.store.raise_fence(at, FencingToken(token)).await.expect("the highest token");
}

/// A Location with a fence of its own.
async fn elsewhere(world: &World, token: i64) -> LocationId {
    let to = world.another_location().await;
    fence_at(world, &to, token).await;
    to
}

fn epoch(number: i32) -> SessionEvent {
    let (baseline, snapshot) = ("You are here.".to_owned(), "{}".to_owned());
    EpochStarted { epoch: number, baseline, snapshot, reason: Some(EpochReason::Move) }.into()
}

async fn ask(world: &World, session: &SessionRef, to: &LocationId) -> SessionEvent {
    let (project, location) = (world.project.clone(), to.clone());
    let asked = Control::Move { project, location, directory: "/else".into(), carry: false };
    ControlDelivered { message: control(world, session, asked).await, error: None }.into()
}

/// Commits, however long Postgres takes to answer.
async fn commit(
    world: &World,
    write: DrainWrite,
    events: &[SessionEvent],
    end: DrainEnd,
) -> Result<&'static str, StoreError> {
    let mut written = world.try_write(write, events, end).await?;
    loop {
        return Ok(match written {
            Written::Next(_) => "written",
            Written::Stale => "stale",
            Written::Superseded => "superseded",
            Written::Unstored => "unstored",
            Written::Unanswered(unanswered, error) => {
                assert!(is_late(&error), "{error:?}");
                written = unanswered.again().await?;
                continue;
            }
        });
    }
}

/// Whether an error says that the machine is busy or a row locked, and nothing else.
fn is_late(error: &StoreError) -> bool {
    error.is_locked()
        || matches!(error, StoreError::Database(cause) if cause.as_database_error().is_none())
}

#[tokio::test]
async fn work_that_goes_on_elsewhere_is_fenced_here_and_no_recovery_there() {
    let world = World::new().await;
    let (session, to) = (world.session().await, elsewhere(&world, 7).await);
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![epoch(1), promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
    let later = PromptAdmitted { delivery: domain::Delivery::Queue, ..world.prompt("later") };
    world.try_admit(&session, &later).await.expect("admitted");
    let mut events = turn.reply(&mut world.mint()).to_vec();
    events.push(ask(&world, &session, &to).await);
    events.push(moved(&world, &session, &to, false));
    world.resume(&session, claim, &events, DrainEnd::MovedOpen).await.expect("the claim holds");

    let head = world.head(&session).await;
    assert_eq!((head.open, head.handed_over, head.ready, head.pending), (true, true, true, 1));
    assert_eq!(head.claim, claim.0 + 1);
    let before = world.rows(&session).await;
    let answer = world.resume(&session, claim, &[], DrainEnd::Keep).await;
    assert!(is_fenced(&answer), "{answer:?}");
    assert_eq!(world.refused(&session, 1).await, "idle", "a hint that is late finds nothing");
    assert_eq!(world.rows(&session).await, before);
    let row = world.store.session(world.org, session.session.clone()).await.expect("a session");
    assert_eq!((&row.at.location, row.directory.as_str()), (&to, "/workspace/else"));

    let there = at(&session, &to);
    let (write, taken) = world.start(&there, 7).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: true, recoveries: 0 });
    let events = [epoch(2), promoted(&later), ended(DrainOutcome::Completed)];
    world.write(write, &events, DrainEnd::Close).await.expect("ready");
    world.assert_sound(true).await;
}

/// A decision on an earlier look is not written after a Move, whoever looked.
#[tokio::test]
async fn a_write_that_was_based_on_the_old_location_is_refused() {
    let world = World::new().await;
    let (session, to) = (world.session().await, elsewhere(&world, 1).await);
    world.fence(1).await;
    let delivered = ask(&world, &session, &to).await;
    let (early, _) = world.look(&session, 1, Hold::Look).await;
    let claim = world.drain(&session, 1, &[], DrainEnd::Keep).await;
    let events = [delivered, moved(&world, &session, &to, false), ended(DrainOutcome::Completed)];
    world.resume(&session, claim, &events, DrainEnd::Moved).await.expect("the claim holds");
    let before = world.rows(&session).await;
    assert_eq!(commit(&world, early, &[], DrainEnd::Keep).await.expect("an answer"), "stale");
    assert!(is_fenced(&world.resume(&session, claim, &[], DrainEnd::Keep).await));
    assert_eq!(world.rows(&session).await, before);
    let head = world.head(&session).await;
    assert_eq!((head.open, head.ready, head.pending), (false, false, 0));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn input_that_waits_comes_along_awake_or_asleep() {
    let world = World::new().await;
    world.fence(1).await;
    let to = elsewhere(&world, 1).await;
    for wakes in [true, false] {
        let session = world.session().await;
        let delivered = ask(&world, &session, &to).await;
        let prompt = PromptAdmitted { wake: wakes, ..world.prompt("at the new place") };
        world.try_admit(&session, &prompt).await.expect("admitted");
        let events =
            [delivered, moved(&world, &session, &to, false), ended(DrainOutcome::Completed)];
        let (write, _) = world.look(&session, 1, Hold::Look).await;
        // The drain's first write may be its last here.
        let end = DrainEnd::Moved;
        assert_eq!(commit(&world, write, &events, end).await.expect("an answer"), "written");
        let head = world.head(&session).await;
        assert_eq!((head.ready, head.pending, head.open), (wakes, 1, false));
        let ready: Vec<_> = world.store.ready_locations(None, 10).await.expect("a list");
        let there = at(&session, &to);
        assert_eq!(ready.iter().any(|ready| ready.session == there), wakes, "{ready:?}");
        if !wakes {
            world
                .store
                .wake_session(world.org, session.session.clone(), world.tick())
                .await
                .expect("woken");
        }
        let events = [epoch(1), promoted(&prompt), ended(DrainOutcome::Completed)];
        world.drain(&there, 1, &events, DrainEnd::Close).await;
    }
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_move_that_cannot_be_written_changes_nothing() {
    let world = World::new().await;
    let (session, to) = (world.session().await, elsewhere(&world, 1).await);
    world.fence(1).await;
    let delivered = ask(&world, &session, &to).await;
    let nowhere: LocationId = "loc_nowhere".parse().expect("an id");
    let go = |to: &LocationId| {
        vec![delivered.clone(), moved(&world, &session, to, false), ended(DrainOutcome::Completed)]
    };
    let (write, _) = world.look(&session, 1, Hold::Lock).await;
    let before = world.rows(&session).await;
    let answer = commit(&world, write, &go(&nowhere), DrainEnd::Moved).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    let answer = commit(&world, write, &[], DrainEnd::Moved).await;
    assert!(matches!(answer, Err(StoreError::Unreadable(_))), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);

    // The head moved, the token passed on, the claim passed on.
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    world.admit(&session, "meanwhile").await;
    let before = world.rows(&session).await;
    assert_eq!(commit(&world, write, &go(&to), DrainEnd::Moved).await.expect("an answer"), "stale");
    assert_eq!(world.rows(&session).await, before);
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    let claim = world.drain(&session, 1, &[], DrainEnd::Keep).await;
    world.fence(2).await;
    let before = world.rows(&session).await;
    let answer = commit(&world, write, &go(&to), DrainEnd::Moved).await;
    assert_eq!(answer.expect("an answer"), "superseded");
    let answer = world.resume(&session, claim, &go(&to), DrainEnd::Moved).await;
    assert!(is_fenced(&answer), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);
}

/// Whether a Move was seen to wait for a drain that is just starting at `blocked`, and another start to wait for the Move.
/// False when the machine is so busy that one of them gave up: nothing was seen then.
async fn waits_for_a_start(world: &Arc<World>, to: &LocationId, blocked: &LocationId) -> bool {
    let (session, other) = (world.session().await, world.session_at(blocked).await);
    world.admit(&other, "hello").await;
    let delivered = ask(world, &session, to).await;
    let before = world.rows(&session).await;
    // The lock of a start, held by a connection that no time-out ends.
    let mut starting = world.root.begin().await.expect("a transaction");
    sqlx::query("SELECT pg_advisory_xact_lock_shared(location_lock($1, $2))")
        .bind(world.org.0)
        .bind(blocked.as_str())
        .execute(&mut *starting)
        .await
        .expect("the Location's lock");
    let is_written = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    tasks.spawn({
        let (world, session, is_written) = (world.clone(), session.clone(), is_written.clone());
        let events =
            [delivered, moved(&world, &session, to, false), ended(DrainOutcome::Completed)];
        async move {
            let (write, _) = world.look(&session, 1, Hold::Look).await;
            match world.try_write(write, &events, DrainEnd::Moved).await {
                Ok(Written::Next(_)) => is_written.store(true, Ordering::SeqCst),
                Ok(Written::Unanswered(_, error)) => assert!(is_late(&error), "{error:?}"),
                Ok(_) => panic!("nobody else is there"),
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    let mut waits = world.waits_beside(&mut tasks, 1).await;
    assert!(!is_written.load(Ordering::SeqCst), "it did not wait");
    assert_eq!(world.rows(&session).await, before);
    let started = Arc::new(AtomicBool::new(false));
    tasks.spawn({
        let (world, started) = (world.clone(), started.clone());
        async move {
            let (token, known) = (FencingToken(1), store::KnownLog::NOTHING);
            match world.store.start_drain(other, token, known, Hold::Lock).await {
                Ok(Started::Ready(..)) => started.store(true, Ordering::SeqCst),
                Ok(_) => panic!("it has work"),
                Err(error) => assert!(is_late(&error), "{error:?}"),
            }
        }
    });
    waits = waits && world.waits_beside(&mut tasks, 2).await;
    assert!(!waits || !started.load(Ordering::SeqCst));
    starting.rollback().await.expect("released");
    tasks.join_all().await;
    let both = is_written.load(Ordering::SeqCst) && started.load(Ordering::SeqCst);
    if both {
        assert_eq!(world.refused(&session, 1).await, "idle");
    }
    waits && both
}

/// Both Locations are locked while it is written: nobody starts a drain at either.
#[tokio::test]
async fn a_move_waits_for_both_locations_and_starts_wait_for_it() {
    let world = Arc::new(World::new().await);
    let to = elsewhere(&world, 1).await;
    world.fence(1).await;
    for blocked in [&world.location, &to] {
        while !waits_for_a_start(&world, &to, blocked).await {}
    }
    world.assert_sound(false).await;
}

/// Moves in both directions, drains that start and fences that are raised: none waits for another for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_in_opposite_directions_do_not_block_each_other() {
    const ROUNDS: usize = 25;
    let world = Arc::new(World::new().await);
    let to = elsewhere(&world, 1).await;
    world.fence(1).await;
    let mut moves = 0;
    for _ in 0..ROUNDS {
        let mut sessions = Vec::new();
        for (from, to) in [(&world.location, &to), (&to, &world.location)] {
            let session = world.session_at(from).await;
            let delivered = ask(&world, &session, to).await;
            let events =
                vec![delivered, moved(&world, &session, to, false), ended(DrainOutcome::Completed)];
            sessions.push((session, events));
        }
        let together = Arc::new(Barrier::new(4));
        let mut calls = JoinSet::new();
        for (session, events) in sessions {
            let (world, together) = (world.clone(), together.clone());
            calls.spawn(async move {
                // Without a lock: Postgres ends a transaction that waits for others.
                let (write, _) = world.look(&session, 1, Hold::Look).await;
                together.wait().await;
                let answer = commit(&world, write, &events, DrainEnd::Moved).await;
                assert_eq!(answer.expect("no deadlock"), "written");
                1
            });
        }
        for location in [world.location.clone(), to.clone()] {
            let (world, together) = (world.clone(), together.clone());
            calls.spawn(async move {
                together.wait().await;
                fence_at(&world, &location, 1).await;
                0
            });
        }
        moves += calls.join_all().await.into_iter().sum::<usize>();
    }
    assert_eq!(moves, 2 * ROUNDS);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_new_location_begins_with_the_files_that_are_carried_there() {
    let world = World::new().await;
    world.fence(1).await;
    let (fresh, used) = (elsewhere(&world, 1).await, elsewhere(&world, 1).await);
    let owner = world.session_at(&used).await;
    world.admit(&owner, "hello").await;
    world.drain(&owner, 1, &[snapshotted(1, 'a', None, None)], DrainEnd::HandOver).await;
    for to in [&fresh, &used] {
        let session = world.session().await;
        let delivered = ask(&world, &session, to).await;
        let events = [delivered, moved(&world, &session, to, true), ended(DrainOutcome::Completed)];
        let (write, _) = world.look(&session, 1, Hold::Look).await;
        let answer = commit(&world, write, &events, DrainEnd::Moved).await;
        assert_eq!(answer.expect("an answer"), "written");
    }
    let seed = |location: &LocationId| {
        let location = location.clone();
        async { world.store.location(world.org, location).await.expect("a Location").seed }
    };
    let seeded = store::Seed { location: world.location.clone(), tree: tree('b') };
    assert_eq!(seed(&fresh).await, Some(seeded));
    assert_eq!(seed(&used).await, None, "it has files of its own");
}
