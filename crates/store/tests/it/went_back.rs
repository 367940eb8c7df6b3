//! A database that comes back without its last commits: whoever knew them decides nothing on the log that grew in their
//! place. Rows that are taken away stand for a standby that lacked them.

use domain::{
    Claim, EventId, FencingToken, MessageId, NoticeKind, NoticeRecorded, Seq, SessionEvent,
    SessionRef,
};
use store::{DrainEnd, Hold, KnownLog, Started, StoreError, Written};

use crate::script::promoted;
use crate::world::World;

fn notice(world: &World) -> SessionEvent {
    let message = MessageId::mint(&mut world.mint());
    NoticeRecorded { message, kind: NoticeKind::Recovery, text: "working".into() }.into()
}

/// A head as it is now, for [`put_back`].
async fn read_head(world: &World, session: &SessionRef) -> String {
    sqlx::query_scalar("SELECT to_jsonb(h)::text FROM session_head h WHERE org_id = $1 AND id = $2")
        .bind(session.org.0)
        .bind(session.session.as_str())
        .fetch_one(&world.root)
        .await
        .expect("a head")
}

/// Puts a session's head and log back to what they were.
async fn put_back(world: &World, session: &SessionRef, then: &str) {
    sqlx::query(
        "WITH past AS (SELECT * FROM jsonb_populate_record(NULL::session_head, $3::text::jsonb)),
         head AS (UPDATE session_head h SET next_seq = t.next_seq, claim = t.claim, last_id = t.last_id,
                 wake_seq = t.wake_seq, parked_seq = t.parked_seq, pending = t.pending, open = t.open,
                 handed_over = t.handed_over, recoveries = t.recoveries
             FROM past t WHERE h.org_id = $1 AND h.id = $2)
         DELETE FROM session_event e USING past t WHERE e.incarnation = t.incarnation AND e.seq >= t.next_seq",
    )
    .bind(session.org.0)
    .bind(session.session.as_str())
    .bind(then)
    .execute(&world.root)
    .await
    .expect("rows that are taken away");
}

/// A drain's claim, its last write and the log that it knows after that. Then the write is lost.
async fn lost_write(world: &World) -> (SessionRef, Claim, store::DrainWrite, KnownLog) {
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let (look, _) = world.look(&session, 1, Hold::Look).await;
    let first = world.try_write(look, &[promoted(&prompt)], DrainEnd::Keep).await;
    let Ok(Written::Next(next)) = first else { panic!("nobody came between") };
    let then = read_head(world, &session).await;
    let second = world.try_write(*next, &[notice(world)], DrainEnd::Keep).await;
    let Ok(Written::Next(lost)) = second else { panic!("nobody came between") };
    let claim = lost.claim();
    let known = KnownLog {
        incarnation: claim.incarnation(),
        seq: Seq(lost.head().next_seq.0 - 1),
        id: lost.head().after.clone(),
    };
    put_back(world, &session, &then).await;
    (session, claim, *lost, known)
}

/// The log has grown back to the number that is known, under the same claim.
pub(crate) async fn a_log_that_grew_back(world: &World) {
    world.fence(1).await;
    for hold in [Hold::Look, Hold::Lock] {
        let (session, claim, lost, known) = lost_write(world).await;
        world.admit(&session, "in its place").await;
        let head = world.head(&session).await;
        assert_eq!((head.next_seq, head.claim), (lost.head().next_seq.0, claim.0));
        let before = world.rows(&session).await;
        let written = world.try_write(lost, &[notice(world)], DrainEnd::Keep).await;
        assert!(matches!(written, Ok(Written::Stale)), "it was decided on another log");
        let resumed = world.store.resume_drain(session.clone(), claim, known.clone()).await;
        assert!(matches!(resumed, Err(StoreError::WentBack { .. })), "it is not known");
        assert_eq!(world.rows(&session).await, before);
        let started = world.store.start_drain(session.clone(), FencingToken(1), known, hold).await;
        let Ok(Started::Ready(_, _, log)) = started else { panic!("it was left open") };
        assert_eq!(log.first().map(|first| first.seq), Some(Seq(1)), "{hold:?}");
    }
}

// Finding core-3 C1: a worker went on with what the database had lost, once the log had as many events again.
#[tokio::test]
async fn nothing_is_decided_on_a_log_that_grew_back() {
    a_log_that_grew_back(&World::new().await).await;
}

// Finding ops-3 B1: a running drain ended its reading where the head was behind what it knew, and went on.
#[tokio::test]
async fn a_running_drain_stops_at_a_log_that_is_shorter() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, claim, lost, known) = lost_write(&world).await;
    let before = world.rows(&session).await;
    let written = world.try_write(lost, &[notice(&world)], DrainEnd::Keep).await;
    assert!(matches!(written, Ok(Written::Stale)));
    let resumed = world.store.resume_drain(session.clone(), claim, known.clone()).await;
    assert!(matches!(resumed, Err(StoreError::WentBack { .. })));
    let started =
        world.store.start_drain(session.clone(), FencingToken(1), known, Hold::Look).await;
    let Ok(Started::Ready(write, _, log)) = started else { panic!("it was left open") };
    assert_eq!(log.len(), 3, "read from its first event");
    let again = world.try_write(*write, &[notice(&world)], DrainEnd::Keep).await;
    assert!(matches!(again, Ok(Written::Next(_))), "the next drain goes on with what is there");
    assert_ne!(world.rows(&session).await, before);
}

#[tokio::test]
async fn a_known_log_is_read_on_and_another_id_is_not_believed() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    let log = world.store.events(world.org, session.session.clone(), Seq(0), 10).await;
    let log = log.expect("a log").items;
    let own =
        KnownLog { incarnation: claim.incarnation(), seq: Seq(2), id: Some(log[1].id.clone()) };
    let another = EventId::mint(&mut world.mint());
    let other = KnownLog { id: Some(another), ..own.clone() };
    let (locked, new) =
        world.store.resume_drain(session.clone(), claim, own.clone()).await.expect("its own log");
    assert_eq!(new.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [3]);
    assert_eq!(locked.head().after, Some(log[2].id.clone()));
    locked.release().await.expect("let go");
    let resumed = world.store.resume_drain(session.clone(), claim, other.clone()).await;
    assert!(matches!(resumed, Err(StoreError::WentBack { .. })));
    for (known, first) in [(own, 3), (other, 1)] {
        for hold in [Hold::Look, Hold::Lock] {
            let known = known.clone();
            let started =
                world.store.start_drain(session.clone(), FencingToken(1), known, hold).await;
            let Ok(Started::Ready(_, _, log)) = started else { panic!("it was left open") };
            assert_eq!(log[0].seq, Seq(first), "{hold:?}");
        }
    }
}

// The build before names no event: what it asks is answered as it was.
#[tokio::test]
async fn the_build_before_calls_the_functions_as_it_did() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, claim, _, known) = lost_write(&world).await;
    world.admit(&session, "in its place").await;
    let (org, id, at) = (session.org.0, session.session.as_str(), session.location.as_str());
    let after: i64 =
        sqlx::query_scalar("SELECT after FROM look_at_drain($1, $2, $3, 1, $4, $5, 10, false)")
            .bind(org)
            .bind(id)
            .bind(at)
            .bind(known.incarnation.0)
            .bind(known.seq.0)
            .fetch_one(&world.root)
            .await
            .expect("a look");
    assert_eq!(after, known.seq.0);
    let after: i64 = sqlx::query_scalar(
        "SELECT after FROM look_at_drains($1, ARRAY[$2], ARRAY[$3], ARRAY[1::bigint], ARRAY[$4::bigint],
             ARRAY[$5::bigint], 10)",
    )
    .bind(org)
    .bind(id)
    .bind(at)
    .bind(known.incarnation.0)
    .bind(known.seq.0)
    .fetch_one(&world.root)
    .await
    .expect("a look");
    assert_eq!(after, known.seq.0);
    let next: i64 = sqlx::query_scalar("SELECT next_seq FROM prove_claim($1, $2, $3)")
        .bind(org)
        .bind(id)
        .bind(claim.0)
        .fetch_one(&world.root)
        .await
        .expect("a proof");
    let written: String = sqlx::query_scalar(
        "SELECT write_drain($1, $2, $3, NULL, $4, $5, 0, 1, 'keep', false, 1, '{}', '{}', '{}', '{}', '{}', '{}')",
    )
    .bind(org)
    .bind(id)
    .bind(at)
    .bind(claim.0)
    .bind(next)
    .fetch_one(&world.root)
    .await
    .expect("a write");
    assert_eq!(written, "written");
    let written: Vec<i32> = sqlx::query_scalar(
        "SELECT write_drains($1, ARRAY[$2], ARRAY[$3], ARRAY[NULL::bigint], ARRAY[$4::bigint], ARRAY[$5::bigint],
             '{0}', '{0}', '{1}', '{keep}', '{false}', '{1}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    )
    .bind(org)
    .bind(id)
    .bind(at)
    .bind(claim.0)
    .bind(next)
    .fetch_one(&world.root)
    .await
    .expect("a write");
    assert_eq!(written, [1]);
    let moved: String = sqlx::query_scalar(
        "SELECT move_session($1, $2, $3, $6, NULL, NULL, $4, $5, 0, 1, 'moved', false, 1, '{}', '{}', '{}', '{}')",
    )
    .bind(org)
    .bind(id)
    .bind(at)
    .bind(claim.0)
    .bind(next)
    .bind(world.another_location().await.as_str())
    .fetch_one(&world.root)
    .await
    .expect("a move");
    assert_eq!(moved, "written");
}

// Finding ops-3 B1: nothing told that the database went back.
#[tokio::test]
async fn another_database_is_noticed_once() {
    let world = World::new().await;
    let look = async || world.store.look_at_database().await.expect("an answer");
    let root = async |sql| sqlx::query(sql).execute(&world.root).await.expect("done");
    root("INSERT INTO change_epoch DEFAULT VALUES ON CONFLICT DO NOTHING").await;
    world.session().await;
    assert_eq!((look().await, look().await), (0, 0));
    root("TRUNCATE change_epoch").await; // as Postgres does when it recovers, and where a standby takes over
    assert_eq!((look().await, look().await), (1, 1));
    root("INSERT INTO change_epoch DEFAULT VALUES").await;
    assert_eq!(look().await, 1, "it was only named");
    root("UPDATE change_epoch SET id = gen_random_uuid()").await;
    assert_eq!((look().await, look().await), (2, 2));
}
