//! An interrupt that lets what steers go on.

use domain::{
    Claim, ControlAdmitted, ControlDelivered, Delivery, DrainOutcome, MessageId, PromptAdmitted,
    SessionRef,
};
use store::{DrainEnd, Resumed, StoreError};

use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

async fn resume(world: &World, session: &SessionRef) -> Resumed {
    let asked =
        world.store.interrupt_and_resume(world.org, session.session.clone(), None, world.tick());
    asked.await.expect("an answer")
}

async fn queued(world: &World, session: &SessionRef) -> PromptAdmitted {
    let prompt = PromptAdmitted { delivery: Delivery::Queue, ..world.prompt("later") };
    world.try_admit(session, &prompt).await.expect("admitted");
    prompt
}

async fn compaction(world: &World, session: &SessionRef, delivery: Delivery) -> MessageId {
    let control = ControlAdmitted { delivery, ..world.compaction() };
    world.try_control(session, &control).await.expect("admitted");
    control.message
}

/// A session in the middle of a turn.
async fn mid_turn(world: &World) -> (SessionRef, Claim, TestTurn) {
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
    (session, claim, turn)
}

/// Its drain ends as one that was interrupted does.
async fn stop(world: &World, (session, claim, turn): &(SessionRef, Claim, TestTurn)) {
    let mut events = turn.stop(domain::TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.resume(session, *claim, &events, DrainEnd::Close).await.expect("the claim holds");
}

#[tokio::test]
async fn only_what_steers_goes_on_after_the_interrupted_turn() {
    let world = World::new().await;
    world.fence(1).await;
    let running = mid_turn(&world).await;
    let session = &running.0;
    let later = queued(&world, session).await;
    let steer = world.admit(session, "instead").await;
    let known = world.kinds(session).await.len();
    let resumed = resume(&world, session).await;
    let wake = resumed.wake.expect("a wake");
    assert_eq!(resumed.interrupt.map(|seq| seq.0 + 1), Some(wake.0));
    assert_eq!(world.kinds(session).await[known..], ["interrupt.requested", "wake.requested"]);
    stop(&world, &running).await;
    let head = world.head(session).await;
    assert_eq!((head.ready, head.open, head.pending), (true, false, 2));
    let events = [promoted(&steer), ended(DrainOutcome::Completed)];
    world.drain(session, 1, &events, DrainEnd::Close).await;
    assert!(!world.head(session).await.ready, "what is queued stays parked");
    world
        .store
        .wake_session(world.org, session.session.clone(), world.tick())
        .await
        .expect("woken");
    let events = [promoted(&later), ended(DrainOutcome::Completed)];
    world.drain(session, 1, &events, DrainEnd::Close).await;
    world.assert_sound(true).await;
}

#[tokio::test]
async fn it_is_parked_when_only_prompts_are_queued() {
    let world = World::new().await;
    world.fence(1).await;
    let running = mid_turn(&world).await;
    let session = &running.0;
    queued(&world, session).await;
    // A control behind a queued prompt is not next.
    compaction(&world, session, Delivery::Queue).await;
    let resumed = resume(&world, session).await;
    assert_eq!((resumed.interrupt.is_some(), resumed.wake), (true, None));
    stop(&world, &running).await;
    let head = world.head(session).await;
    assert_eq!((head.ready, head.pending), (false, 2));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_queued_control_that_is_next_goes_on_and_a_prompt_behind_it_does_not() {
    let world = World::new().await;
    world.fence(1).await;
    let running = mid_turn(&world).await;
    let session = &running.0;
    let control = compaction(&world, session, Delivery::Queue).await;
    queued(&world, session).await;
    assert!(resume(&world, session).await.wake.is_some());
    stop(&world, &running).await;
    assert!(world.head(session).await.ready);
    let events =
        [ControlDelivered { message: control, error: None }.into(), ended(DrainOutcome::Completed)];
    world.drain(session, 1, &events, DrainEnd::Close).await;
    let head = world.head(session).await;
    assert_eq!((head.ready, head.pending), (false, 1));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn an_idle_session_goes_on_with_what_steers_it() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let before = world.rows(&session).await;
    let nothing = resume(&world, &session).await;
    assert_eq!((nothing.interrupt, nothing.wake), (None, None));
    assert_eq!(nothing.location, session.location);
    let stored = PromptAdmitted { delivery: Delivery::Queue, wake: false, ..world.prompt("later") };
    assert_eq!(world.rows(&session).await, before);
    world.try_admit(&session, &stored).await.expect("admitted");
    assert_eq!(resume(&world, &session).await.wake, None);
    world.admit_only(&session, "stored").await;
    let resumed = resume(&world, &session).await;
    assert_eq!((resumed.interrupt, resumed.wake.is_some()), (None, true));
    assert!(world.head(&session).await.ready);
    // Input that was woken and not taken up is parked first, then woken again.
    let again = resume(&world, &session).await;
    assert!(again.interrupt.is_some() && again.wake > again.interrupt);
    assert!(world.head(&session).await.ready);
    world.assert_sound(false).await;
    let nobody = world.store.interrupt_and_resume(
        world.org,
        "ses_nobody".parse().expect("an id"),
        None,
        world.tick(),
    );
    assert!(matches!(nobody.await, Err(StoreError::NotFound)));
}
