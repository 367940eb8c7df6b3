//! Writes that were decided on without a lock: right, or refused without a trace.

use domain::{
    DrainOutcome, FencingToken, MessageId, NoticeKind, NoticeRecorded, Seq, SessionEvent,
    SessionIncarnation, SessionRef,
};
use store::{DrainEnd, Hold, KnownLog, Started, Written};

use crate::script::{ended, promoted};
use crate::world::{World, is_fenced};

fn notice(world: &World) -> SessionEvent {
    let message = MessageId::mint(&mut world.mint());
    NoticeRecorded { message, kind: NoticeKind::Recovery, text: "working".into() }.into()
}

/// A session with a prompt, whose Location has token 1.
async fn prompted(world: &World) -> (SessionRef, SessionEvent) {
    let session = world.session().await;
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    (session, promoted(&prompt))
}

#[tokio::test]
async fn a_drain_runs_from_look_to_end_without_holding_a_lock() {
    let world = World::new().await;
    let (session, promoted) = prompted(&world).await;
    let (look, taken) = world.look(&session, 1, Hold::Look).await;
    assert!(!taken.was_open);
    let first = world.try_write(look, &[promoted], DrainEnd::Keep).await.expect("an answer");
    let Written::Next(next) = first else { panic!("nobody came between") };
    let claim = next.claim();
    assert_eq!(
        (world.head(&session).await.claim, world.head(&session).await.open),
        (claim.0, true)
    );
    let end = [notice(&world), ended(DrainOutcome::Completed)];
    world.write(*next, &end, DrainEnd::Close).await.expect("its own");
    let head = world.head(&session).await;
    assert_eq!((head.claim, head.open, head.ready), (claim.0 + 1, false, false));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn what_comes_between_look_and_write_makes_it_stale_and_is_seen_under_the_lock() {
    let world = World::new().await;
    let (session, first) = prompted(&world).await;
    let (look, _) = world.look(&session, 1, Hold::Look).await;
    world.admit(&session, "one more").await;
    let before = world.rows(&session).await;
    let refused = world.try_write(look, std::slice::from_ref(&first), DrainEnd::Keep).await;
    assert!(matches!(refused, Ok(Written::Stale)));
    assert_eq!(world.rows(&session).await, before);

    let (locked, _) = world.look(&session, 1, Hold::Lock).await;
    let Ok(Written::Next(next)) = world.try_write(locked, &[first], DrainEnd::Keep).await else {
        panic!("a locked head does not move")
    };
    let claim = next.claim();
    let now = world.tick();
    world
        .store
        .interrupt(world.org, session.session.clone(), None, now)
        .await
        .expect("an interrupt");
    let known = KnownLog {
        incarnation: claim.incarnation(),
        seq: Seq(next.head().next_seq.0 - 1),
        id: next.head().after.clone(),
    };
    let end = [ended(DrainOutcome::Completed)];
    let before = world.rows(&session).await;
    let refused = world.try_write(*next, &end, DrainEnd::Close).await;
    assert!(matches!(refused, Ok(Written::Stale)));
    assert_eq!(world.rows(&session).await, before);
    let resumed = world.store.resume_drain(session.clone(), claim, known).await;
    let (locked, new) = resumed.expect("still ours");
    assert!(matches!(new[0].event, SessionEvent::InterruptRequested(_)), "{new:?}");
    let end = [ended(DrainOutcome::Interrupted)];
    world.write(locked, &end, DrainEnd::Close).await.expect("its own");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_fence_between_look_and_write_stops_a_start_and_a_running_drain() {
    let world = World::new().await;
    let (session, promoted) = prompted(&world).await;
    let (look, _) = world.look(&session, 1, Hold::Look).await;
    world.fence(2).await;
    let before = world.rows(&session).await;
    let refused = world.try_write(look, std::slice::from_ref(&promoted), DrainEnd::Keep).await;
    assert!(matches!(refused, Ok(Written::Superseded)));
    assert_eq!(world.rows(&session).await, before);

    let (look, _) = world.look(&session, 2, Hold::Look).await;
    let Ok(Written::Next(next)) = world.try_write(look, &[promoted], DrainEnd::Keep).await else {
        panic!("nobody came between")
    };
    world.fence(3).await;
    let before = world.rows(&session).await;
    let refused = world.try_write(*next, &[notice(&world)], DrainEnd::Keep).await;
    assert!(is_fenced(&refused));
    assert_eq!(world.rows(&session).await, before);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn of_two_that_looked_at_once_one_starts() {
    let world = World::new().await;
    let (session, promoted) = prompted(&world).await;
    let (one, _) = world.look(&session, 1, Hold::Look).await;
    let (two, _) = world.look(&session, 1, Hold::Look).await;
    let end = [promoted, ended(DrainOutcome::Completed)];
    world.write(one, &end, DrainEnd::Close).await.expect("the first");
    let before = world.rows(&session).await;
    assert!(matches!(world.try_write(two, &end, DrainEnd::Close).await, Ok(Written::Stale)));
    assert_eq!(world.rows(&session).await, before);
    assert_eq!(world.refused(&session, 1).await, "idle");
}

#[tokio::test]
async fn a_log_longer_than_a_page_is_read_whole_from_where_it_is_known() {
    const LONG: i64 = 2_100;
    let world = World::new().await;
    let (session, promoted) = prompted(&world).await;
    let mut events = vec![promoted];
    events.extend((3..LONG).map(|_| notice(&world)));
    world.drain(&session, 1, &events, DrainEnd::HandOver).await;
    let own = SessionIncarnation(world.head(&session).await.incarnation);
    let another = SessionIncarnation(own.0 - 1);
    for (incarnation, known) in
        [(own, 0), (own, 3), (own, LONG - 1), (own, LONG), (another, 3), (another, LONG + 7)]
    {
        let known_log = KnownLog { incarnation, seq: Seq(known), id: None };
        let token = FencingToken(1);
        let started = world.store.start_drain(session.clone(), token, known_log, Hold::Look).await;
        let Ok(Started::Ready(_, _, log)) = started else { panic!("it was left open") };
        // Of another session's log nothing is known here.
        let from = if incarnation == another { 1 } else { known + 1 };
        let seqs: Vec<i64> = log.iter().map(|recorded| recorded.seq.0).collect();
        assert_eq!(seqs, (from..=LONG).collect::<Vec<_>>(), "known up to {known}");
    }
}
