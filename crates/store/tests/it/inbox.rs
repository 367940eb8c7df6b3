//! Changes of an input between its admission and its promotion.

use std::sync::Arc;

use domain::{
    ControlAdmitted, ControlDelivered, Delivery, DrainOutcome, MessageId, PromptAdmitted, Seq,
    SessionEvent, SessionRef,
};
use store::{
    ControlAdmission, DrainEnd, InboxChange, InboxItem, InboxRow, StoreError, Taken, Written,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::script::{ended, promoted};
use crate::world::World;

async fn cancel(world: &World, session: &SessionRef, input: &MessageId) -> InboxChange {
    let id = session.session.clone();
    let asked = world.store.cancel_input(world.org, id, input.clone(), world.tick());
    asked.await.expect("an answer")
}

async fn change(
    world: &World,
    session: &SessionRef,
    input: &MessageId,
    to: Delivery,
) -> Result<InboxChange, StoreError> {
    let id = session.session.clone();
    world.store.change_delivery(world.org, id, input.clone(), to, world.tick()).await
}

async fn wake(world: &World, session: &SessionRef) -> InboxChange {
    let id = session.session.clone();
    world.store.wake_session(world.org, id, world.tick()).await.expect("an answer")
}

async fn interrupt(world: &World, session: &SessionRef) {
    let id = session.session.clone();
    world.store.interrupt(world.org, id, None, world.tick()).await.expect("an answer");
}

async fn inbox(world: &World, session: &SessionRef) -> Vec<InboxRow> {
    world
        .store
        .inbox(world.org, session.session.clone(), Seq(0), 100)
        .await
        .expect("an inbox")
        .items
}

fn done(session: &SessionRef, seq: i64) -> InboxChange {
    InboxChange::Done { seq: Seq(seq), location: session.location.clone() }
}

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict { .. }))
}

#[tokio::test]
async fn a_control_is_admitted_once_and_an_exact_retry_is_given_the_first() {
    let world = World::new().await;
    let (session, other) = (world.session().await, world.session().await);
    let control = world.compaction();
    let first = world.try_control(&session, &control).await.expect("admitted");
    assert_eq!((first.admission, first.seq), (ControlAdmission::First, Seq(2)));
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.wake_seq, head.ready), (1, 2, true));
    let before = world.rows(&session).await;
    let again = world.try_control(&session, &control).await.expect("found");
    assert_eq!(
        (again.admission, again.seq, &again.control),
        (ControlAdmission::Retry, Seq(2), &control)
    );
    let prompt = world.prompt("hello");
    let differing = [
        (&session, ControlAdmitted { delivery: Delivery::Queue, ..control.clone() }),
        (&session, ControlAdmitted { digest: "another".into(), ..control.clone() }),
        (&other, control.clone()),
    ];
    for (at, control) in differing {
        assert!(is_conflict(&world.try_control(at, &control).await));
    }
    // Nor may a prompt have a control's id, or a control a prompt's.
    let taken = PromptAdmitted { message: control.message.clone(), ..prompt.clone() };
    assert!(is_conflict(&world.try_admit(&session, &taken).await));
    assert_eq!(world.rows(&session).await, before);
    world.try_admit(&other, &prompt).await.expect("admitted");
    let taken = ControlAdmitted { message: prompt.message, ..world.compaction() };
    assert!(is_conflict(&world.try_control(&session, &taken).await));
    assert!(is_conflict(&world.try_control(&other, &taken).await));
    world.assert_sound(false).await;
}

#[tokio::test]
async fn one_compaction_waits_and_a_second_request_wakes_it_if_it_sleeps() {
    let world = World::new().await;
    let session = world.session().await;
    let stored = ControlAdmitted { wake: false, ..world.compaction() };
    world.try_control(&session, &stored).await.expect("admitted");
    assert!(!world.head(&session).await.ready);
    let before = world.rows(&session).await;
    let second = ControlAdmitted { wake: false, ..world.compaction() };
    let answer = world.try_control(&session, &second).await.expect("found");
    assert_eq!((answer.admission, &answer.control), (ControlAdmission::Pending, &stored));
    assert_eq!(world.rows(&session).await, before);

    let answer = world.try_control(&session, &world.compaction()).await.expect("found");
    assert_eq!((answer.admission, answer.seq), (ControlAdmission::Pending, Seq(2)));
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.wake_seq, head.ready), (1, 3, true));
    assert_eq!(world.kinds(&session).await[2..], ["delivery.changed"]);
    let awake = world.rows(&session).await;
    world.try_control(&session, &world.compaction()).await.expect("found");
    assert_eq!(world.rows(&session).await, awake, "it is awake already");

    interrupt(&world, &session).await;
    assert!(!world.head(&session).await.ready);
    world.try_control(&session, &world.compaction()).await.expect("found");
    assert!(world.head(&session).await.ready, "what an interrupt parked is woken too");
    world.fence(1).await;
    let delivered = ControlDelivered { message: stored.message, error: None }.into();
    world.drain(&session, 1, &[delivered, ended(DrainOutcome::Completed)], DrainEnd::Close).await;
    let next = world.try_control(&session, &world.compaction()).await.expect("admitted");
    assert_eq!(next.admission, ControlAdmission::First, "the next one waits anew");
    world.assert_sound(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_compactions_asked_for_at_once_one_waits() {
    let world = Arc::new(World::new().await);
    let session = world.session().await;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (world, session) = (world.clone(), session.clone());
        calls.spawn(async move {
            let control = world.compaction();
            world.try_control(&session, &control).await.expect("an answer")
        });
    }
    let answers = calls.join_all().await;
    let first: Vec<_> = answers.iter().filter(|a| a.admission == ControlAdmission::First).collect();
    assert_eq!(first.len(), 1);
    assert!(answers.iter().all(|answer| answer.control == first[0].control));
    assert_eq!(world.head(&session).await.pending, 1);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn the_inbox_shows_what_waits_in_the_order_of_admission() {
    let world = World::new().await;
    let session = world.session().await;
    assert_eq!(inbox(&world, &session).await, []);
    let queued = PromptAdmitted { delivery: Delivery::Queue, ..world.prompt("later") };
    world.try_admit(&session, &queued).await.expect("admitted");
    let synthetic = PromptAdmitted { synthetic: Some("A note".into()), ..world.prompt("see a.rs") };
    world.try_admit(&session, &synthetic).await.expect("admitted");
    let control = world.compaction();
    world.try_control(&session, &control).await.expect("admitted");
    change(&world, &session, &queued.message, Delivery::Steer).await.expect("changed");
    let shown: Vec<_> = inbox(&world, &session)
        .await
        .into_iter()
        .map(|row| (row.id, row.delivery, row.seq.0, row.item))
        .collect();
    assert_eq!(
        shown,
        [
            (queued.message.clone(), Delivery::Steer, 2, InboxItem::Prompt(queued)),
            (synthetic.message.clone(), Delivery::Steer, 3, InboxItem::Prompt(synthetic)),
            (control.message.clone(), Delivery::Steer, 4, InboxItem::Control(control)),
        ]
    );
    let nobody =
        world.store.inbox(world.org, "ses_nobody".parse().expect("an id"), Seq(0), 1).await;
    assert!(matches!(nobody, Err(StoreError::NotFound)), "{nobody:?}");
}

#[tokio::test]
async fn a_cancelled_input_leaves_the_inbox_and_is_never_promoted() {
    let world = World::new().await;
    let (session, other) = (world.session().await, world.session().await);
    let (dropped, kept) =
        (world.admit(&session, "dropped").await, world.admit(&session, "kept").await);
    assert_eq!(cancel(&world, &other, &dropped.message).await, InboxChange::Unchanged);
    assert_eq!(cancel(&world, &session, &dropped.message).await, done(&session, 4));
    let left = inbox(&world, &session).await;
    assert_eq!(left.iter().map(|row| &row.id).collect::<Vec<_>>(), [&kept.message]);
    assert!(world.head(&session).await.ready);
    // Gone, whether cancelled, promoted or never there: nothing changes.
    world.fence(1).await;
    let events = [promoted(&kept), ended(DrainOutcome::Completed)];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    let before = world.rows(&session).await;
    let nobody = MessageId::mint(&mut world.mint());
    for input in [&dropped.message, &kept.message, &nobody] {
        assert_eq!(cancel(&world, &session, input).await, InboxChange::Unchanged);
    }
    assert_eq!(world.rows(&session).await, before);
    // Its id stays taken.
    assert!(is_conflict(
        &world.try_admit(&session, &PromptAdmitted { digest: "x".into(), ..dropped }).await
    ));
    let nowhere = "ses_nobody".parse().expect("an id");
    let answer = world.store.cancel_input(world.org, nowhere, nobody, world.tick()).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    world.assert_sound(true).await;
}

/// I11 the other way round: what only was stored does not run because something else was cancelled.
#[tokio::test]
async fn cancelling_the_only_awake_input_puts_the_session_to_sleep() {
    let world = World::new().await;
    let session = world.session().await;
    let awake = world.admit(&session, "awake").await;
    let stored = world.admit_only(&session, "stored").await;
    assert!(world.head(&session).await.ready);
    cancel(&world, &session, &awake.message).await;
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (1, false));
    assert_eq!(world.refused(&session, 1).await, "idle");
    // Its delivery changed to steer wakes it, changed to queue does not.
    change(&world, &session, &stored.message, Delivery::Queue).await.expect("changed");
    assert!(!world.head(&session).await.ready);
    change(&world, &session, &stored.message, Delivery::Steer).await.expect("changed");
    assert!(world.head(&session).await.ready);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_delivery_changes_only_while_it_waits_and_only_to_the_other() {
    let world = World::new().await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let before = world.rows(&session).await;
    assert!(is_conflict(&change(&world, &session, &prompt.message, Delivery::Steer).await));
    let nobody = MessageId::mint(&mut world.mint());
    let answer = change(&world, &session, &nobody, Delivery::Steer).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);
    let changed = change(&world, &session, &prompt.message, Delivery::Queue).await;
    assert_eq!(changed.expect("changed"), done(&session, 3));
    assert!(world.head(&session).await.ready, "what woke it stays awake");
    // A retry tells what was admitted, however it was changed since.
    let again = world.try_admit(&session, &prompt).await.expect("found");
    assert_eq!(again.admission, store::Admission::Retry);
    let differing = PromptAdmitted { delivery: Delivery::Queue, ..prompt.clone() };
    assert!(is_conflict(&world.try_admit(&session, &differing).await));
    world.fence(1).await;
    let events = [promoted(&prompt), ended(DrainOutcome::Completed)];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    assert!(is_conflict(&change(&world, &session, &prompt.message, Delivery::Steer).await));
    world.assert_sound(true).await;
}

/// A drain decides on what it has seen: a change of the inbox makes it look again.
#[tokio::test]
async fn a_drain_that_has_not_seen_a_cancel_writes_nothing() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let (write, _) = world.look(&session, 1, store::Hold::Look).await;
    cancel(&world, &session, &prompt.message).await;
    let before = world.rows(&session).await;
    let written = world.try_write(write, &[promoted(&prompt)], DrainEnd::Keep).await;
    assert!(matches!(written, Ok(Written::Stale)));
    assert_eq!(world.rows(&session).await, before);
    assert_eq!(world.refused(&session, 1).await, "idle");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_wake_starts_what_was_stored_or_parked_and_survives_the_interrupt_before_it() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    world.admit_only(&session, "stored").await;
    assert_eq!(wake(&world, &session).await, done(&session, 3));
    let head = world.head(&session).await;
    assert_eq!((head.open, head.handed_over, head.ready), (true, true, true));
    // Nobody had it: its drain is no recovery.
    let (write, taken) = world.start(&session, 1).await;
    assert_eq!(taken, Taken { was_open: true, handed_over: true, recoveries: 0 });
    let claim = write.claim();
    world.write(write, &[], DrainEnd::Keep).await.expect("ours");
    // Interrupted, then asked to go on before the drain has noticed.
    interrupt(&world, &session).await;
    assert_eq!(wake(&world, &session).await, done(&session, 5));
    let end = [ended(DrainOutcome::Interrupted)];
    world.resume(&session, claim, &end, DrainEnd::Close).await.expect("ours");
    let head = world.head(&session).await;
    assert_eq!((head.open, head.pending, head.ready), (false, 1, true));
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_wake_opens_an_idle_session_and_leaves_a_running_one_alone() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    assert_eq!(wake(&world, &session).await, done(&session, 2));
    let claim = world.drain(&session, 1, &[], DrainEnd::Keep).await;
    let before = world.rows(&session).await;
    assert_eq!(wake(&world, &session).await, InboxChange::Unchanged);
    assert_eq!(world.rows(&session).await, before);
    let end: [SessionEvent; 1] = [ended(DrainOutcome::Completed)];
    world.resume(&session, claim, &end, DrainEnd::Close).await.expect("ours");
    assert!(!world.head(&session).await.ready);
    world.assert_sound(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_meets_a_promotion_wins_or_finds_it_gone() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut outcomes = [0, 0];
    for round in 0..40 {
        let session = world.session().await;
        let prompt = world.admit(&session, "hello").await;
        let mut both = JoinSet::new();
        // It comes at any time, after the drain's look, or after its write.
        let come = Arc::new(Notify::new());
        both.spawn({
            let (world, session, id) = (world.clone(), session.clone(), prompt.message.clone());
            let come = come.clone();
            async move {
                if round % 3 > 0 {
                    come.notified().await;
                }
                cancel(&world, &session, &id).await != InboxChange::Unchanged
            }
        });
        both.spawn({
            let (world, session) = (world.clone(), session.clone());
            async move {
                let token = domain::FencingToken(1);
                let at = session.clone();
                let look = world
                    .store
                    .start_drain(at, token, store::KnownLog::NOTHING, store::Hold::Look)
                    .await;
                if round % 3 == 1 {
                    come.notify_one();
                }
                match look {
                    Ok(store::Started::Ready(write, ..)) => {
                        let events = [promoted(&prompt), ended(DrainOutcome::Completed)];
                        let written = world.try_write(*write, &events, DrainEnd::Close).await;
                        come.notify_one();
                        matches!(written, Ok(Written::Stale))
                    }
                    Ok(store::Started::Idle) => true,
                    _ => panic!("neither ready nor idle"),
                }
            }
        });
        let both = both.join_all().await;
        assert_eq!(both[0], both[1], "cancelled, or promoted");
        outcomes[usize::from(both[0])] += 1;
        assert!(!world.head(&session).await.ready);
    }
    assert!(outcomes.iter().all(|count| *count > 0), "both orders must happen: {outcomes:?}");
    world.assert_sound(true).await;
}
