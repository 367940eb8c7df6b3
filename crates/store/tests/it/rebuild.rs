use std::collections::BTreeSet;

use domain::{Seq, SessionEvent, SessionRef, TurnOutcome, TurnUsage};
use store::{DrainEnd, RebuildReport};

use crate::forks::fork_of;
use crate::script::{TestTurn, every_kind, promoted};
use crate::world::World;

#[tokio::test]
async fn a_rebuild_of_every_kind_of_event_gives_the_same_rows() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let kinds = world.kinds(&session).await;
    let fork = fork_of(&world, &session).await;
    let of_fork = world.kinds(&fork).await;
    let written: BTreeSet<&str> = kinds.iter().chain(&of_fork).map(String::as_str).collect();
    let known: BTreeSet<&str> = SessionEvent::KINDS.iter().copied().collect();
    assert_eq!(written, known, "the script must have every kind");
    let exact = RebuildReport {
        session: session.session.clone(),
        events: kinds.len(),
        missing: Vec::new(),
        added: Vec::new(),
    };
    let before = world.rows(&session).await;
    for check in [true, false, true] {
        let id = session.session.clone();
        let report = world.store.rebuild(world.org, id, check).await.expect("a rebuild");
        assert_eq!(report, exact);
        assert_eq!(world.rows(&session).await, before);
    }
    // Every projection has a row, so that none is exact for want of rows.
    for table in [
        "session",
        "session_input",
        "context_epoch",
        "mid_conversation_system_message",
        "message",
        "part",
        "provider_turn",
        "provider_attempt",
        "tool_result",
        "session_entry",
        "workspace_change",
    ] {
        let start = format!("{table}: ");
        assert!(before.iter().any(|row| row.starts_with(&start)), "{table} has no row");
    }
    world.assert_sound(true).await;
}

/// Live batches and a rebuild's pages end at different events.
#[tokio::test]
async fn where_a_batch_of_events_ends_makes_no_difference() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let rows = world.rows(&session).await;
    let log: Vec<(i64, String, String)> = sqlx::query_as(
        "SELECT time_ms, kind, payload FROM session_event WHERE org_id = $1
             AND incarnation = (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2) ORDER BY seq",
    )
    .bind(session.org.0)
    .bind(session.session.as_str())
    .fetch_all(&world.root)
    .await
    .expect("a log");
    for size in 1..=log.len() {
        fold(&world, &session, log.chunks(size)).await;
        assert_eq!(world.rows(&session).await, rows, "batches of {size}");
        fold(&world, &session, [&log[..size], &log[size..]]).await;
        assert_eq!(world.rows(&session).await, rows, "a batch of {size} and the rest");
    }
}

/// Drops a session's projections and folds its log anew, batch by batch.
async fn fold<'a>(
    world: &World,
    session: &SessionRef,
    batches: impl IntoIterator<Item = &'a [(i64, String, String)]>,
) {
    let mut tx = world.root.begin().await.expect("a transaction");
    let number = world.head(session).await.incarnation;
    sqlx::query("SELECT drop_projections($1, $2, $3)")
        .bind(session.org.0)
        .bind(session.session.as_str())
        .bind(number)
        .execute(&mut *tx)
        .await
        .expect("dropped");
    let mut next = 1;
    for batch in batches {
        sqlx::query("SELECT project_events($1, $2, $3, $4, $5, $6, $7)")
            .bind(session.org.0)
            .bind(vec![session.session.as_str().to_owned(); batch.len()])
            .bind(vec![number; batch.len()])
            .bind((next..).take(batch.len()).collect::<Vec<i64>>())
            .bind(batch.iter().map(|(time, ..)| *time).collect::<Vec<_>>())
            .bind(batch.iter().map(|(_, kind, _)| kind.clone()).collect::<Vec<_>>())
            .bind(batch.iter().map(|(.., payload)| payload.clone()).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await
            .expect("folded");
        next += i64::try_from(batch.len()).expect("small");
    }
    tx.commit().await.expect("a commit");
}

#[tokio::test]
async fn the_log_reads_back_in_order_page_by_page() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let id = || session.session.clone();
    let all = world.store.events(world.org, id(), Seq(0), i64::MAX).await.expect("a log").items;
    let seqs: Vec<i64> = all.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (1..=i64::try_from(all.len()).expect("small")).collect::<Vec<_>>());
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(Seq(0), |event: &domain::RecordedEvent| event.seq);
        let page = world.store.events(world.org, id(), after, 4).await.expect("a page").items;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 4);
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let ids: BTreeSet<&str> = all.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), all.len());
}

#[tokio::test]
async fn a_tampered_projection_is_reported_and_repaired() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let good = world.rows(&session).await;
    for (tamper, missing, added) in [
        ("UPDATE session SET title = 'mine'", 1, 1),
        ("UPDATE session_input SET delivery = 'queue'", 12, 12),
        ("UPDATE part SET text = text || ' ' WHERE kind = 'reasoning'", 1, 1),
        ("DELETE FROM tool_result WHERE class = 'pure'", 0, 1),
        ("DELETE FROM context_epoch", 0, 3),
        ("DELETE FROM provider_turn", 0, 9),
        ("DELETE FROM session_input", 0, 12),
        ("UPDATE session_input SET wake_seq = 0 WHERE kind = 'compaction'", 1, 1),
        ("DELETE FROM session_entry", 0, 1),
        ("DELETE FROM workspace_change", 0, 4),
        (
            "UPDATE workspace_change SET files = '[]' WHERE seq = (SELECT max(seq) FROM workspace_change)",
            1,
            1,
        ),
        ("UPDATE session SET revert = '{}', fork_of = 'ses_x'", 1, 1),
        ("UPDATE context_epoch SET reason = NULL WHERE epoch = 3", 1, 1),
        ("UPDATE session SET cost_nanos = 0", 1, 1),
        ("DELETE FROM message WHERE role = 'checkpoint'", 0, 1),
        ("UPDATE mid_conversation_system_message SET rendered = ''", 1, 1),
        (
            "UPDATE provider_attempt SET turn_id = '' WHERE id IN (SELECT payload::json->>'attempt' FROM session_event
             WHERE kind = 'attempt.started' AND payload::json->>'ordinal' = '2')",
            2,
            2,
        ),
        ("UPDATE provider_turn SET projector_version = 0 WHERE outcome = 'lost'", 1, 1),
        (
            "INSERT INTO message (org_id, id, incarnation, seq, role, created_ms, projector_version)
             SELECT org_id, 'msg_stray', incarnation, 1, 'user', 1, 1 FROM session",
            1,
            0,
        ),
    ] {
        sqlx::raw_sql(tamper).execute(&world.root).await.expect(tamper);
        let rebuild = |check| world.store.rebuild(world.org, session.session.clone(), check);
        let tampered = world.rows(&session).await;
        let report = rebuild(true).await.expect("a check");
        assert_eq!((report.missing.len(), report.added.len()), (missing, added), "{report:?}");
        assert_eq!(world.rows(&session).await, tampered, "a check changes nothing");
        assert_eq!(rebuild(false).await.expect("a rebuild"), report);
        assert_eq!(world.rows(&session).await, good, "{tamper}");
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_no_row_and_its_drain_is_fenced() {
    let world = World::new().await;
    let (session, kept) = (every_kind(&world).await, world.session().await);
    world.admit(&session, "hello").await;
    let claim = world.drain(&session, 1, &[], store::DrainEnd::Keep).await;
    let others = world.rows(&kept).await;
    world.store.delete_session(world.org, session.session.clone()).await.expect("deleted");
    assert_eq!(world.rows(&session).await, Vec::<String>::new());
    let answer = world.resume(&session, claim, &[], store::DrainEnd::Keep).await;
    assert!(crate::world::is_fenced(&answer), "{answer:?}");
    assert_eq!(world.refused(&session, 1).await, "idle");
    assert_eq!(world.rows(&kept).await, others);
    world.assert_sound(true).await;
}

// Finding core-3 H5: sums of a session with one odd count were beyond a bigint, so no later turn could be written.
#[tokio::test]
async fn sums_of_odd_counts_stay_at_the_largest_number() {
    let world = World::new().await;
    let session = world.session().await;
    world.fence(1).await;
    let odd = TurnUsage {
        input: i64::MAX,
        output: i64::MAX,
        reasoning: i64::MAX,
        cache_read: i64::MAX,
        cache_write: i64::MAX,
        cost: i64::MAX,
    };
    for _ in 0..2 {
        let prompt = world.admit(&session, "hello").await;
        let turn = TestTurn::new(&mut world.mint(), &prompt.message);
        let mut events = vec![promoted(&prompt)];
        events.extend(turn.start());
        events.push(turn.settled(TurnOutcome::Failed, odd));
        // Both at once, and one after the other.
        let second = TestTurn::new(&mut world.mint(), &prompt.message);
        events.extend(second.start());
        events.push(second.settled(TurnOutcome::Failed, odd));
        world.drain(&session, 1, &events, DrainEnd::Close).await;
    }
    let row = world.store.session(world.org, session.session.clone()).await.expect("a session");
    assert_eq!(row.usage, odd);
    let tree = world.store.tree_usage(world.org, session.session.clone()).await.expect("a tree");
    assert_eq!(tree.tree, odd);
    let id = session.session.clone();
    let report = world.store.rebuild(world.org, id, true).await.expect("a rebuild");
    assert!(report.missing.is_empty() && report.added.is_empty(), "{report:?}");
}
