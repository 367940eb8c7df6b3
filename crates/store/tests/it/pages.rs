//! Pages of large rows: bounded by bytes, and nothing is lost between them.

use domain::{FencingToken, Seq, SessionRef};
use sqlx::AssertSqlSafe;
use store::{DrainEnd, GivenUp, Hold, KnownLog, Messages, Page, Started};

use crate::script::error;
use crate::world::World;

/// How many bytes of text the payload has that [`enlarge`] writes.
const LARGE: usize = 6 * 500_000;
/// As the store has it.
const PAGE_BYTES: usize = 8 << 20;

/// A session that is ready, and `count` large events after its first two.
async fn enlarge(world: &World, count: i64) -> SessionRef {
    let session = world.session().await;
    world.fence(1).await;
    world.admit(&session, "hello").await;
    let mut tx = world.root.begin().await.expect("a transaction");
    // Compressed once: a row takes it over as it is.
    let count_of_escapes = LARGE / 6;
    let table = format!(
        r#"CREATE TEMPORARY TABLE large ON COMMIT DROP AS
           SELECT '{{"key":"k","value":"' || repeat('\u0001', {count_of_escapes}) || '"}}' AS payload"#
    );
    sqlx::raw_sql(AssertSqlSafe(table)).execute(&mut *tx).await.expect("a text");
    sqlx::query(
        "INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
         SELECT $1, (SELECT incarnation FROM session_head WHERE id = $2), n, 'evt_' || n, 'entry.set', 1, 1,
             large.payload
         FROM large, generate_series(3, 2 + $3::bigint) AS n",
    )
    .bind(session.org.0)
    .bind(session.session.as_str())
    .bind(count)
    .execute(&mut *tx)
    .await
    .expect("events");
    sqlx::query("UPDATE session_head SET next_seq = next_seq + $2 WHERE id = $1")
        .bind(session.session.as_str())
        .bind(count)
        .execute(&mut *tx)
        .await
        .expect("the head");
    tx.commit().await.expect("durable");
    session
}

// Finding store 6: a page of events over 1 GiB wedged its session: Postgres has no array of that size.
#[tokio::test]
async fn a_look_at_more_than_a_gibibyte_is_answered() {
    let world = World::new().await;
    let session = enlarge(&world, 400).await;
    let sizes = "SELECT cardinality(ids), (SELECT sum(octet_length(p)) FROM unnest(payloads) AS p)::bigint FROM ";
    let one = "look_at_drain($1, $2, $3, 1, 0, 0, 1000, false)";
    let many = "look_at_drains($1, ARRAY[$2, $2], ARRAY[$3, $3], ARRAY[1, 1]::bigint[], ARRAY[0, 0]::bigint[],
        ARRAY[0, 0]::bigint[], 1000)";
    for (look, rows) in [(one, 1), (many, 2)] {
        let found: Vec<(i32, i64)> = sqlx::query_as(AssertSqlSafe(format!("{sizes}{look}")))
            .bind(session.org.0)
            .bind(session.session.as_str())
            .bind(session.location.as_str())
            .fetch_all(&world.root)
            .await
            .expect("an answer");
        assert_eq!(found.len(), rows);
        let events: i32 = found.iter().map(|(events, _)| events).sum();
        let bytes: i64 = found.iter().map(|(_, bytes)| bytes).sum();
        assert!(events >= 3, "{found:?}");
        // Each ends with the event that goes past its bound.
        let most = PAGE_BYTES + rows * (LARGE + 100);
        assert!(usize::try_from(bytes).is_ok_and(|bytes| bytes <= most), "{found:?}");
    }
}

// Findings store 6, security 11.
#[tokio::test]
async fn a_log_of_large_events_is_read_whole_in_small_pages() {
    let world = World::new().await;
    let session = enlarge(&world, 4).await;
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let after = Seq(seen.last().copied().unwrap_or_default());
        let page = world.store.events(world.org, session.session.clone(), after, 1_000).await;
        let Page { items, more } = page.expect("a page");
        assert!(items.len() <= 5, "{} events of 3 MB", items.len());
        seen.extend(items.iter().map(|event| event.seq.0));
        pages += 1;
        if !more {
            break;
        }
    }
    assert_eq!(seen, (1..=6).collect::<Vec<_>>());
    assert!(pages >= 2, "{pages} pages");

    let token = FencingToken(1);
    let look = |hold| world.store.start_drain(session.clone(), token, KnownLog::NOTHING, hold);
    for hold in [Hold::Look, Hold::Lock] {
        let Ok(Started::Ready(_, _, events)) = look(hold).await else { panic!("it is ready") };
        assert_eq!(events.len(), 6);
    }
    let (tx, _) = world.start(&session, 1).await;
    let claim = tx.claim();
    world.write(tx, &[], DrainEnd::Keep).await.expect("a claim");
    let resumed = world.store.resume_drain(session.clone(), claim, KnownLog::NOTHING).await;
    assert_eq!(resumed.expect("still ours").1.len(), 6);
    let report = world.store.rebuild(world.org, session.session.clone(), true).await;
    assert_eq!(report.expect("a rebuild").events, 6);
}

// Finding security 11: a list of large prompts was read at once.
#[tokio::test]
async fn inbox_and_messages_come_in_pages_of_bytes() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let text = "x".repeat(4_000_000);
    for _ in 0..4 {
        world.admit(&session, &text).await;
    }
    let (mut waiting, mut after) = (0, Seq(0));
    loop {
        let page = world.store.inbox(world.org, session.session.clone(), after, 100).await;
        let page = page.expect("an inbox");
        assert!(page.items.len() <= 3, "{} prompts of 4 MB", page.items.len());
        waiting += page.items.len();
        after = page.items.last().map_or(after, |last| last.seq);
        if !page.more {
            break;
        }
    }
    assert_eq!(waiting, 4);

    for sql in [
        "INSERT INTO message (org_id, id, incarnation, seq, role, created_ms, projector_version)
         SELECT $1, 'msg_' || n, (SELECT incarnation FROM session_head WHERE id = $2), n, 'user', 1, 4 FROM generate_series(10, 21) AS n",
        "INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
         SELECT $1, 'prt_' || n, (SELECT incarnation FROM session_head WHERE id = $2), 'msg_' || n, n, 1, 'text', repeat('x', 4000000), 4
         FROM generate_series(10, 21) AS n",
    ] {
        let made = sqlx::query(sql).bind(session.org.0).bind(session.session.as_str());
        made.execute(&world.root).await.expect("rows");
    }
    let read = async |which, limit| {
        world
            .store
            .transcript(world.org, session.session.clone(), which, limit)
            .await
            .expect("messages")
    };
    let newest = read(Messages::Newest, 100).await;
    assert_eq!((newest.messages.len(), newest.older), (9, true));
    let oldest = newest.messages[0].id.clone();
    let rest = read(Messages::Before(oldest.clone()), 100).await;
    assert_eq!((rest.messages.len(), rest.older), (3, false));
    assert!(rest.messages[2].seq < newest.messages[0].seq);
    let two = read(Messages::Before(oldest), 2).await;
    assert_eq!(two.messages, rest.messages[1..]);
    assert!(two.older);
    let nobody = Messages::Before("msg_nobody".parse().expect("an id"));
    let missing = world.store.transcript(world.org, session.session.clone(), nobody, 2).await;
    assert!(matches!(missing, Err(store::StoreError::NotFound)), "{missing:?}");
}

// Finding security 11: the changes of a session were read at once, with all their patches.
#[tokio::test]
async fn changes_of_files_come_in_pages_of_bytes() {
    let world = World::new().await;
    let session = world.session().await;
    sqlx::query(
        "INSERT INTO workspace_change (org_id, incarnation, seq, base, tree, files, more, projector_version)
         SELECT $1, (SELECT incarnation FROM session_head WHERE id = $2), n, false, repeat('a', 64), json_build_array(
             json_build_object('path', 'f', 'status', 'modified', 'additions', 1, 'deletions', 0,
                 'patch', repeat('x', 3000000)))::text, 0, 6
         FROM generate_series(10, 16) AS n",
    )
    .bind(session.org.0)
    .bind(session.session.as_str())
    .execute(&world.root)
    .await
    .expect("changes");
    let read = async |after, limit| {
        let id = session.session.clone();
        world.store.changes(world.org, id, None, Seq(after), limit).await.expect("a page")
    };
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = read(after, 1_000).await;
        assert!(page.items.len() <= 3, "{} changes of 3 MB", page.items.len());
        seen.extend(page.items.iter().map(|change| change.seq.0));
        if !page.more {
            break;
        }
        after = *seen.last().expect("a page with more has a change");
    }
    assert_eq!(seen, (10..=16).collect::<Vec<_>>());
    let two = read(0, 2).await;
    assert_eq!((two.items.len(), two.more), (2, true));
    let none = read(16, 2).await;
    assert_eq!((none.items.len(), none.more), (0, false));
}

// Finding store 6: what always fails is parked, and whoever asks next gets another try.
#[tokio::test]
async fn work_that_is_given_up_waits_for_a_new_wake() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(2).await;
    let give_up = async |token| {
        let (token, now) = (FencingToken(token), world.tick());
        world.store.give_up(session.clone(), token, error(), now).await.expect("an answer")
    };
    assert_eq!(give_up(2).await, GivenUp::Idle);
    world.admit(&session, "hello").await;
    assert_eq!(give_up(1).await, GivenUp::Superseded);
    let before = world.head(&session).await;
    assert_eq!(give_up(2).await, GivenUp::Parked(Seq(before.next_seq)));
    let after = world.head(&session).await;
    assert_eq!((after.ready, after.pending, after.claim), (false, 1, before.claim + 2));
    assert_eq!(world.kinds(&session).await.last().map(String::as_str), Some("drain.ended"));
    assert_eq!(give_up(2).await, GivenUp::Idle);
    world.assert_sound(true).await;
    let now = world.tick();
    world.store.wake_session(world.org, session.session.clone(), now).await.expect("woken");
    assert!(world.head(&session).await.ready);
}
