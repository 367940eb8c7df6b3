use std::sync::Arc;

use domain::{DrainOutcome, InterruptTarget, Seq, SessionEvent, SessionRef, TurnOutcome};
use store::{DrainEnd, InboxChange, Interrupted, StoreError, Taken};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

async fn interrupt(world: &World, session: &SessionRef) -> Interrupted {
    let asked = world.store.interrupt(world.org, session.session.clone(), None, world.tick());
    asked.await.expect("an answer")
}

/// The target of the interrupt at `seq`, from the log.
async fn target(world: &World, session: &SessionRef, seq: Seq) -> InterruptTarget {
    let id = session.session.clone();
    let log = world.store.events(world.org, id, Seq(seq.0 - 1), 1).await.expect("a log").items;
    match &log[0].event {
        SessionEvent::InterruptRequested(asked) => asked.target.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_interrupt_of_an_idle_session_changes_nothing() {
    let world = World::new().await;
    let (fresh, stored, done) =
        (world.session().await, world.session().await, world.session().await);
    world.fence(1).await;
    world.admit_only(&stored, "stored").await;
    let prompt = world.admit(&done, "hello").await;
    let events = [promoted(&prompt), ended(DrainOutcome::Completed)];
    world.drain(&done, 1, &events, DrainEnd::Close).await;
    for session in [&fresh, &stored, &done] {
        let before = world.rows(session).await;
        assert_eq!(interrupt(&world, session).await, Interrupted::Idle);
        assert_eq!(world.rows(session).await, before);
    }
    let nobody = "ses_nobody".parse().expect("an id");
    let answer = world.store.interrupt(world.org, nobody, None, world.tick()).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
}

#[tokio::test]
async fn an_interrupt_before_any_drain_parks_the_wake_until_the_next() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    world.admit(&session, "stopped").await;
    let location = session.location.clone();
    let applied = Interrupted::Applied { seq: Seq(3), location };
    assert_eq!(interrupt(&world, &session).await, applied);
    assert_eq!(target(&world, &session, Seq(3)).await, InterruptTarget::Parked);
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready, head.interrupt_seq), (1, false, 3));
    assert_eq!(world.refused(&session, 1).await, "idle");
    assert_eq!(interrupt(&world, &session).await, Interrupted::Idle);
    world.admit_only(&session, "stored").await;
    assert!(!world.head(&session).await.ready);
    world.assert_sound(true).await;

    world.admit(&session, "go on").await;
    let (tx, taken) = world.start(&session, 1).await;
    assert_eq!(tx.head().interrupt_seq, Seq(3));
    assert_eq!(world.head(&session).await.pending, 3);
    assert_eq!(taken, Taken { was_open: false, handed_over: false, recoveries: 0 });
}

#[tokio::test]
async fn an_interrupt_names_the_open_turn_and_its_drain_sees_it_in_its_next_write() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    // Between two turns it is for the drain.
    let Interrupted::Applied { seq, .. } = interrupt(&world, &session).await else {
        panic!("a drain is open")
    };
    assert_eq!(target(&world, &session, seq).await, InterruptTarget::Drain);
    let end = [ended(DrainOutcome::Interrupted)];
    world.resume(&session, claim, &end, DrainEnd::Close).await.expect("ours");

    let prompt = world.admit(&session, "again").await;
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
    let waits = world.admit(&session, "queued behind it").await;
    let Interrupted::Applied { seq, .. } = interrupt(&world, &session).await else {
        panic!("a turn is open")
    };
    let named = InterruptTarget::Turn { turn: turn.turn.clone() };
    assert_eq!(target(&world, &session, seq).await, named);
    let (tx, _) = world
        .store
        .resume_drain(session.clone(), claim, store::KnownLog::NOTHING)
        .await
        .expect("ours");
    assert_eq!(tx.head().interrupt_seq, seq);
    let mut events = turn.stop(TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.write(tx, &events, DrainEnd::Close).await.expect("ours");
    // Prompts that had been sent before the interrupt stay parked with it.
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (1, false));
    let turns = world.store.turns(world.org, session.session.clone()).await.expect("turns");
    assert_eq!(turns[0].outcome.as_deref(), Some("interrupted"));
    world.assert_sound(true).await;
    let go_on = world.admit(&session, "go on").await;
    let events = [promoted(&waits), promoted(&go_on), ended(DrainOutcome::Completed)];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    world.assert_sound(true).await;
}

/// Its worker is dead: the next owner finds the interrupt and settles the turn.
#[tokio::test]
async fn an_interrupt_of_a_turn_without_an_owner_waits_for_the_next() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    world.drain(&session, 1, &events, DrainEnd::Keep).await;
    world.fence(2).await;
    let Interrupted::Applied { seq, .. } = interrupt(&world, &session).await else {
        panic!("the session is open")
    };
    assert!(world.head(&session).await.ready);
    let (tx, taken) = world.start(&session, 2).await;
    assert_eq!((tx.head().interrupt_seq, taken.was_open), (seq, true));
    let mut events = turn.stop(TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.write(tx, &events, DrainEnd::Close).await.expect("ours");
    world.assert_sound(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_that_meets_a_drains_end_is_seen_by_it_or_changes_nothing() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut outcomes = [0, 0];
    for round in 0..40 {
        let session = world.session().await;
        let prompt = world.admit(&session, "hello").await;
        let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
        let together = Arc::new(Barrier::new(2));
        let mut both = JoinSet::new();
        both.spawn({
            let (world, session, together) = (world.clone(), session.clone(), together.clone());
            async move {
                together.wait().await;
                // Each end gets its head start in turn.
                for _ in 0..(round % 3) * 20 {
                    tokio::task::yield_now().await;
                }
                matches!(interrupt(&world, &session).await, Interrupted::Applied { .. })
            }
        });
        both.spawn({
            let (world, session) = (world.clone(), session.clone());
            async move {
                together.wait().await;
                let (tx, _) = world
                    .store
                    .resume_drain(session.clone(), claim, store::KnownLog::NOTHING)
                    .await
                    .expect("ours");
                let seen = tx.head().interrupt_seq > Seq(0);
                let outcome =
                    if seen { DrainOutcome::Interrupted } else { DrainOutcome::Completed };
                world.write(tx, &[ended(outcome)], DrainEnd::Close).await.expect("ours");
                seen
            }
        });
        let both = both.join_all().await;
        assert_eq!(both[0], both[1], "asked and seen must agree");
        outcomes[usize::from(both[0])] += 1;
        let kinds = world.kinds(&session).await;
        let expected: &[&str] = if both[0] {
            &[
                "session.created",
                "prompt.admitted",
                "prompt.promoted",
                "interrupt.requested",
                "drain.ended",
            ]
        } else {
            &["session.created", "prompt.admitted", "prompt.promoted", "drain.ended"]
        };
        assert_eq!(kinds, expected);
        assert!(!world.head(&session).await.ready);
    }
    assert!(outcomes.iter().all(|count| *count > 0), "both orders must happen: {outcomes:?}");
    world.assert_sound(true).await;
}

// Finding scenarios F13: each repeated abort during one stop was recorded.
#[tokio::test]
async fn asking_again_while_it_stops_adds_nothing() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    let first = interrupt(&world, &session).await;
    let before = world.rows(&session).await;
    for _ in 0..3 {
        assert_eq!(interrupt(&world, &session).await, first);
    }
    assert_eq!(world.rows(&session).await, before);
    let end = [ended(DrainOutcome::Interrupted)];
    world.resume(&session, claim, &end, DrainEnd::Close).await.expect("its own");
    assert_eq!(interrupt(&world, &session).await, Interrupted::Idle);
    // The next drain's is another one.
    let prompt = world.admit(&session, "again").await;
    world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    assert_ne!(interrupt(&world, &session).await, first);
    world.assert_sound(false).await;
}

// Finding scenarios F7: a session that was woken while it stopped was left with a prompt that nobody took up.
#[tokio::test]
async fn a_session_that_stops_can_be_woken_for_its_prompt() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    let wake = async || {
        let woken = world.store.wake_session(world.org, session.session.clone(), world.tick());
        woken.await.expect("an answer")
    };
    assert_eq!(wake().await, InboxChange::Unchanged, "it runs");
    interrupt(&world, &session).await;
    assert!(matches!(wake().await, InboxChange::Done { .. }));
    // Whoever asks it to stop after that means that as well.
    let Interrupted::Applied { seq, .. } = interrupt(&world, &session).await else {
        panic!("it is open")
    };
    assert_eq!(seq, Seq(6));
    assert!(matches!(wake().await, InboxChange::Done { .. }));
    let end = [ended(DrainOutcome::Interrupted)];
    world.resume(&session, claim, &end, DrainEnd::HandOver).await.expect("its own");
    let (_, taken) = world.start(&session, 1).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: true, recoveries: 0 });
    world.assert_sound(false).await;
}
