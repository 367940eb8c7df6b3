//! A session that is deleted and made again under its id is another session: no claim, no look and no write of the
//! first one is good for it.

use domain::{Claim, FencingToken, Seq, SessionIncarnation, SessionRef};
use store::{DrainEnd, Hold, KnownLog, Started, StoreError, Written};

use crate::script::promoted;
use crate::world::World;

/// A drain looked at a session, which was then made again with as many events: its first write promotes nothing.
pub(crate) async fn an_old_look_is_stale(world: &World) {
    let session = world.session().await;
    let old = world.admit(&session, "hello").await;
    let (write, _) = world.look(&session, 1, Hold::Look).await;
    world.make_again(&session).await;
    world.admit(&session, "hello again").await;
    assert_eq!(write.head().next_seq.0, world.head(&session).await.next_seq);
    let before = world.rows(&session).await;
    let written = world.try_write(write, &[promoted(&old)], DrainEnd::Keep).await;
    assert!(matches!(written, Ok(Written::Stale)), "a look at another session is good for nothing");
    assert_eq!(world.rows(&session).await, before);
}

/// A drain under an older token stalled while its session was made again and another worker took over.
pub(crate) async fn an_old_drain_is_fenced(world: &World) {
    let session = world.session().await;
    let old = world.admit(&session, "hello").await;
    let zombie = world.drain(&session, 1, &[promoted(&old)], DrainEnd::Keep).await;
    world.make_again(&session).await;
    world.store.raise_fence(world.at(), FencingToken(2)).await.expect("ours");
    let new = world.admit(&session, "hello again").await;
    let owner = world.drain(&session, 2, &[promoted(&new)], DrainEnd::Keep).await;
    let before = world.rows(&session).await;
    is_fenced(world, &session, zombie).await;
    assert_eq!(world.rows(&session).await, before);
    world.resume(&session, owner, &[], DrainEnd::Keep).await.expect("the rightful owner goes on");
}

async fn is_fenced(world: &World, session: &SessionRef, claim: Claim) {
    let answer = world.resume(session, claim, &[], DrainEnd::Close).await;
    assert!(matches!(answer, Err(StoreError::Fenced { .. })), "{answer:?}");
}

// Finding store 1: an acknowledged prompt was lost, and a deleted one ran in its place.
#[tokio::test]
async fn a_look_at_a_deleted_session_promotes_nothing() {
    let world = World::new().await;
    world.fence(1).await;
    an_old_look_is_stale(&world).await;
}

// Finding store 2: a zombie under token 1 committed past fence 2, and the rightful owner was fenced.
#[tokio::test]
async fn a_drain_of_a_deleted_session_is_fenced() {
    let world = World::new().await;
    world.fence(1).await;
    an_old_drain_is_fenced(&world).await;
}

// Finding store 3: events of the new session were folded onto the history of the deleted one.
#[tokio::test]
async fn a_log_that_was_known_is_read_anew_for_another_session() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    world.admit(&session, "a secret").await;
    let head = world.head(&session).await;
    let known = KnownLog {
        incarnation: SessionIncarnation(head.incarnation),
        seq: Seq(head.next_seq - 1),
        id: None,
    };
    world.make_again(&session).await;
    // Its log is longer than the one that was known.
    for text in ["one", "two", "three"] {
        world.admit(&session, text).await;
    }
    for hold in [Hold::Look, Hold::Lock] {
        let started =
            world.store.start_drain(session.clone(), FencingToken(1), known.clone(), hold).await;
        let Ok(Started::Ready(write, _, log)) = started else { panic!("it has work") };
        assert_eq!(log.first().map(|first| first.seq), Some(Seq(1)));
        assert_ne!(write.claim().incarnation(), known.incarnation);
    }
}

#[tokio::test]
async fn a_fork_begins_with_claims_of_its_own() {
    let world = World::new().await;
    let session = world.session().await;
    let new = crate::forks::new_fork(&world, &session);
    let id = new.id.clone();
    world.store.fork(world.org, new).await.expect("forked");
    let fork = SessionRef { session: id, ..session.clone() };
    let (first, second) = (world.head(&session).await, world.head(&fork).await);
    assert_eq!(second.claim, second.first_claim());
    assert!(second.incarnation > first.incarnation);
}

#[tokio::test]
async fn a_raised_generation_leaves_incarnations_unused() {
    let world = World::new().await;
    let before = world.head(&world.session().await).await.incarnation;
    let migrate = world.database.url("oc_migrate");
    store::Store::raise_generation(&migrate).await.expect("raised");
    let after = world.head(&world.session().await).await.incarnation;
    assert!(after > before + 1_000_000, "{before} {after}");
}
