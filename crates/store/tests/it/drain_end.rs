use domain::{
    Delivery, DrainOutcome, FencingToken, PromptAdmitted, SessionEvent, SessionRef, TurnOutcome,
};
use store::{DrainEnd, Hold, Started, Taken};

use crate::script::{TestTurn, ended, promoted};
use crate::world::{HeadRow, World};

fn completed() -> [domain::SessionEvent; 1] {
    [ended(DrainOutcome::Completed)]
}

#[tokio::test]
async fn a_drain_that_closes_with_nothing_pending_leaves_an_idle_session() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let [end] = completed();
    world.drain(&session, 1, &[promoted(&prompt), end], DrainEnd::Close).await;
    let head = world.head(&session).await;
    let expected = HeadRow {
        incarnation: head.incarnation,
        next_seq: 5,
        // The start and the end; the fence was raised before there was anything to fence.
        claim: head.first_claim() + 2,
        pending: 0,
        open: false,
        handed_over: false,
        recoveries: 0,
        wake_seq: 2,
        parked_seq: 2,
        interrupt_seq: 0,
        ready: false,
    };
    assert_eq!(head, expected);
    assert_eq!(world.refused(&session, 1).await, "idle");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn an_input_that_woke_the_session_and_is_still_pending_starts_another_drain() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let first = world.admit(&session, "first").await;
    let queued = PromptAdmitted { delivery: Delivery::Queue, ..world.prompt("second") };
    world.try_admit(&session, &queued).await.expect("admitted");
    let failed = [promoted(&first), ended(DrainOutcome::Failed)];
    world.drain(&session, 1, &failed, DrainEnd::Close).await;
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.open, head.ready), (1, false, true));
    let [end] = completed();
    let (tx, taken) = world.start(&session, 1).await;
    assert_eq!(taken, Taken { was_open: false, handed_over: false, recoveries: 0 });
    world.write(tx, &[promoted(&queued), end], DrainEnd::Close).await.expect("the last write");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn what_was_only_stored_waits_for_a_wake() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let before = world.admit_only(&session, "before any wake").await;
    assert_eq!(world.refused(&session, 1).await, "idle");
    let wakes = world.admit(&session, "wakes").await;
    let [end] = completed();
    let events = [promoted(&before), promoted(&wakes), end];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    let after = world.admit_only(&session, "after the drain").await;
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (1, false));
    assert_eq!(world.refused(&session, 1).await, "idle");
    world.assert_sound(true).await;
    let wakes = world.admit(&session, "wakes both").await;
    let [end] = completed();
    world.drain(&session, 1, &[promoted(&after), promoted(&wakes), end], DrainEnd::Close).await;
    world.assert_sound(true).await;
}

/// The wake that started the drain is spent by it, though an input is left.
#[tokio::test]
async fn what_was_only_stored_while_a_drain_ran_does_not_start_another() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let first = world.admit(&session, "first").await;
    let claim = world.drain(&session, 1, &[promoted(&first)], DrainEnd::Keep).await;
    let stored = world.admit_only(&session, "stored").await;
    let failed = [ended(DrainOutcome::Failed)];
    world.resume(&session, claim, &failed, DrainEnd::Close).await.expect("the last write");
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready, head.parked_seq), (1, false, head.wake_seq));
    world.assert_sound(true).await;
    // One that wakes brings it along, and is not forgotten should it be left over itself.
    let wakes = world.admit(&session, "wakes").await;
    let failed = [promoted(&stored), ended(DrainOutcome::Failed)];
    world.drain(&session, 1, &failed, DrainEnd::Close).await;
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (1, true));
    world
        .drain(&session, 1, &[promoted(&wakes), ended(DrainOutcome::Completed)], DrainEnd::Close)
        .await;
    world.assert_sound(true).await;
}

#[tokio::test]
async fn parked_inputs_wait_for_a_new_wake_and_run_with_it() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let parked = world.admit(&session, "cannot start").await;
    world.drain(&session, 1, &[ended(DrainOutcome::Failed)], DrainEnd::Park).await;
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.open, head.ready), (1, false, false));
    world.admit_only(&session, "no wake").await;
    assert_eq!(world.refused(&session, 1).await, "idle");
    world.assert_sound(true).await;
    world.admit(&session, "try again").await;
    let token = FencingToken(1);
    let started =
        world.store.start_drain(session.clone(), token, store::KnownLog::NOTHING, Hold::Look).await;
    let Ok(Started::Ready(_, _, log)) = started else { panic!("it wants a drain") };
    let waits: Vec<_> = log
        .iter()
        .filter_map(|recorded| match &recorded.event {
            SessionEvent::PromptAdmitted(prompt) => Some(prompt.digest.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [parked.digest.as_str(), "no wake", "try again"]);
}

/// Ends a worker's life without a word, and starts a drain for the next.
async fn next_owner(world: &World, session: &SessionRef, token: i64) -> (store::DrainWrite, Taken) {
    world.fence(token).await;
    world.start(session, token).await
}

#[tokio::test]
async fn recoveries_count_takeovers_in_a_row_without_progress() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    world.drain(&session, 1, &events, DrainEnd::Keep).await;
    let mut last = turn;
    for (token, recoveries) in [(2, 1), (3, 2)] {
        let (tx, taken) = next_owner(&world, &session, token).await;
        assert_eq!(taken, Taken { was_open: true, handed_over: false, recoveries });
        // A turn that is lost is no progress.
        let next = TestTurn::new(&mut world.mint(), &prompt.message);
        let mut events = last.stop(TurnOutcome::Lost).to_vec();
        events.extend(next.start());
        last = next;
        world.write(tx, &events, DrainEnd::Keep).await.expect("ours");
    }
    let (tx, taken) = next_owner(&world, &session, 4).await;
    assert_eq!(taken.recoveries, 3);
    let claim = tx.claim();
    world.write(tx, &last.reply(&mut world.mint()), DrainEnd::Keep).await.expect("ours");
    assert_eq!(world.head(&session).await.recoveries, 0);
    world.resume(&session, claim, &[], DrainEnd::Keep).await.expect("ours");
    let (tx, taken) = next_owner(&world, &session, 5).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: false, recoveries: 1 });
    let [end] = completed();
    world.write(tx, &[end], DrainEnd::Close).await.expect("ours");
    assert_eq!(world.head(&session).await.recoveries, 0);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn twenty_rolling_restarts_within_one_drain_are_no_recovery() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    // One death first: handing over neither counts nor clears.
    let (tx, taken) = next_owner(&world, &session, 2).await;
    assert_eq!(taken.recoveries, 1);
    world.write(tx, &[], DrainEnd::HandOver).await.expect("ours");
    for token in 3..23 {
        let head = world.head(&session).await;
        assert_eq!((head.open, head.handed_over, head.ready), (true, true, true));
        let (tx, taken) = next_owner(&world, &session, token).await;
        assert_eq!(taken, Taken { was_open: true, handed_over: true, recoveries: 1 });
        world.write(tx, &[], DrainEnd::HandOver).await.expect("ours");
    }
    let (tx, _) = next_owner(&world, &session, 23).await;
    world.write(tx, &[], DrainEnd::Keep).await.expect("ours");
    let (tx, taken) = next_owner(&world, &session, 24).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: false, recoveries: 2 });
    let [end] = completed();
    world.write(tx, &[end], DrainEnd::Close).await.expect("ours");
    world.assert_sound(true).await;
}
