use std::collections::BTreeSet;

use domain::SessionRef;
use sqlx::AssertSqlSafe;
use store::Violation;

use crate::forks::fork_of;
use crate::script::every_kind;
use crate::world::World;

async fn violations(world: &World, settled: bool) -> Vec<Violation> {
    world.store.violations(world.org, settled).await.expect("the oracle's answer")
}

/// The oracle's finding of one session: the invariants, and nothing of any other session.
async fn assert_reports(world: &World, session: &SessionRef, what: &str, invariants: &[&str]) {
    let found = violations(world, true).await;
    // A log without a head is named by its incarnation: nothing else is left to name it by.
    let is_its = |violation: &Violation| {
        violation.session == session.session.as_str()
            || violation.session.starts_with("incarnation ")
    };
    let here: BTreeSet<&str> = found
        .iter()
        .filter(|violation| is_its(violation))
        .map(|violation| violation.invariant.as_str())
        .collect();
    assert_eq!(here, invariants.iter().copied().collect(), "{what}: {found:#?}");
    assert!(found.iter().all(is_its), "{what}: {found:#?}");
}

/// Changes rows as nobody but a superuser can; `SESSION` stands for the session's id, and `NUMBER` for its incarnation.
async fn tamper(world: &World, session: &SessionRef, sql: &str) {
    let number = "(SELECT incarnation FROM session_head WHERE id = SESSION)";
    let sql = sql.replace("NUMBER", number).replace("SESSION", &format!("'{}'", session.session));
    sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&world.root).await.expect(&sql);
}

/// Appends an event behind the log's end, consistent with the head. `CLAIM` is the log's highest.
fn append(kind: &str, claim: &str, payload: &str) -> String {
    format!(
        "INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, claim, payload)
         SELECT org_id, incarnation, next_seq, 'evt_' || next_seq, '{kind}', 1, 1, {}, {payload}
         FROM session_head WHERE id = SESSION;
         UPDATE session_head SET next_seq = next_seq + 1, claim = claim + 1 WHERE id = SESSION",
        claim.replace("CLAIM", "(SELECT max(claim) FROM session_event WHERE incarnation = NUMBER)"),
    )
}

/// The payload of the session's first event of a kind.
fn first(kind: &str) -> String {
    format!(
        "(SELECT payload FROM session_event WHERE incarnation = NUMBER AND kind = '{kind}'
          ORDER BY seq LIMIT 1)"
    )
}

fn set_payload(kind: &str, from: &str, to: &str) -> String {
    format!(
        "UPDATE session_event SET payload = replace(payload, '{from}', '{to}')
         WHERE incarnation = NUMBER AND kind = '{kind}'"
    )
}

fn set_kind(from: &str, to: &str) -> String {
    format!("UPDATE session_event SET kind = '{to}' WHERE incarnation = NUMBER AND kind = '{from}'")
}

/// One of every way to break the rows, with the invariants that it breaks.
fn tamperings() -> Vec<(&'static str, &'static [&'static str], String)> {
    let live = "(SELECT claim FROM session_head WHERE id = SESSION)";
    let last_of = |kind: &str| {
        format!(
            "(SELECT max(seq) FROM session_event WHERE incarnation = NUMBER AND kind = '{kind}')"
        )
    };
    vec![
        (
            "an admission whose row is gone",
            &["I1"],
            "DELETE FROM session_input WHERE admitted_seq = 2 AND incarnation = NUMBER".into(),
        ),
        (
            "a row whose admission is another's",
            &["I1", "I2"],
            "UPDATE session_input SET id = id || 'x' WHERE admitted_seq = 2 AND incarnation = NUMBER;
             UPDATE session_event SET kind = 'retry.scheduled' WHERE seq = 2 AND incarnation = NUMBER"
                .into(),
        ),
        (
            "a counter that lost an input",
            &["I1"],
            "UPDATE session_head SET pending = 1 WHERE id = SESSION".into(),
        ),
        (
            "a second promotion",
            &["I2"],
            append("prompt.promoted", live, &first("prompt.promoted")),
        ),
        (
            "a promotion of what was never admitted",
            &["I2"],
            append("prompt.promoted", live, "'{\"message\":\"msg_nobody\"}'"),
        ),
        (
            "promotions in the wrong order",
            &["I2"],
            "UPDATE session_input SET promoted_seq = 9 - promoted_seq WHERE incarnation = NUMBER"
                .into(),
        ),
        (
            "an input that a later one overtook",
            &["I1", "I2"],
            "UPDATE session_input SET status = 'admitted', promoted_seq = NULL
             WHERE admitted_seq = 2 AND incarnation = NUMBER"
                .into(),
        ),
        (
            "a write of an earlier claim between others",
            &["I3"],
            "UPDATE session_event SET claim = claim - 1 WHERE seq = 8 AND incarnation = NUMBER".into(),
        ),
        (
            "a head that gave one claim to two",
            &["I3"],
            "UPDATE session_head SET claim = claim - 1 WHERE id = SESSION".into(),
        ),
        // Finding store 11: nothing showed that a stale token had written.
        (
            "a start of an earlier token",
            &["I3"],
            "UPDATE session_event SET token = token + 1 WHERE incarnation = NUMBER AND seq =
                 (SELECT min(seq) FROM session_event WHERE incarnation = NUMBER AND token IS NOT NULL)"
                .into(),
        ),
        (
            "a start of a token that nobody was given",
            &["I3"],
            format!(
                "{}; UPDATE session_event SET token = 1000 WHERE incarnation = NUMBER AND seq =
                     (SELECT max(seq) FROM session_event WHERE incarnation = NUMBER)",
                append("notice.recorded", live, "'{\"message\":\"msg_late\"}'")
            ),
        ),
        (
            "a write after the drain's end under its claim",
            &["I4"],
            append("notice.recorded", "CLAIM", "'{\"message\":\"msg_late\"}'"),
        ),
        (
            "a turn that began while another was open",
            &["I4"],
            "UPDATE session_event SET seq = -seq WHERE incarnation = NUMBER AND seq =
                 (SELECT min(seq) FROM session_event WHERE incarnation = NUMBER AND kind = 'turn.settled');
             UPDATE session_event SET seq = seq - 2 WHERE incarnation = NUMBER AND seq =
                 (SELECT min(seq) FROM session_event WHERE incarnation = NUMBER AND kind = 'turn.started'
                      AND seq > (SELECT -min(seq) FROM session_event WHERE incarnation = NUMBER));
             UPDATE session_event SET seq = 2 - seq WHERE incarnation = NUMBER AND seq < 0"
                .into(),
        ),
        (
            "a turn that was settled twice",
            &["I4"],
            append("turn.settled", live, &first("turn.settled")),
        ),
        (
            "a hole in the log",
            &["I5"],
            "DELETE FROM session_event WHERE kind = 'context.updated' AND incarnation = NUMBER".into(),
        ),
        (
            "a log that begins at 0",
            &["I5"],
            "UPDATE session_event SET seq = 0 WHERE seq = 1 AND incarnation = NUMBER".into(),
        ),
        (
            "a head that is ahead of its log",
            &["I5"],
            "UPDATE session_head SET next_seq = next_seq + 1 WHERE id = SESSION".into(),
        ),
        (
            "a log without a head",
            &["I5"],
            "DELETE FROM session_head WHERE id = SESSION".into(),
        ),
        (
            "a turn interrupted by nobody",
            &["I6"],
            set_payload("turn.settled", "\"outcome\":\"completed\"", "\"outcome\":\"interrupted\""),
        ),
        (
            "an interrupt of a turn that was over",
            &["I6"],
            format!(
                "UPDATE session_event SET payload = json_build_object('target', json_build_object(
                     'type', 'turn', 'turn', {}::json->>'turn'))::text
                 WHERE incarnation = NUMBER AND kind = 'interrupt.requested'",
                first("turn.settled")
            ),
        ),
        (
            "a drain that went on after its interrupt",
            &["I6"],
            "UPDATE session_event SET kind = 'interrupt.requested', payload = '{\"target\":{\"type\":\"drain\"}}'
             WHERE incarnation = NUMBER AND kind = 'context.updated'"
                .into(),
        ),
        (
            "a drain of what an interrupt had parked",
            &["I6", "I7"],
            "UPDATE session_event SET kind = 'interrupt.requested', payload = '{\"target\":{\"type\":\"parked\"}}'
             WHERE incarnation = NUMBER AND seq = (SELECT min(seq) FROM session_event
                 WHERE incarnation = NUMBER AND kind = 'epoch.started')"
                .into(),
        ),
        (
            "a head that missed its interrupt",
            &["I6"],
            "UPDATE session_head SET interrupt_seq = 0 WHERE id = SESSION".into(),
        ),
        (
            "a second result of a call",
            &["I8"],
            append("tool.settled", live, &first("tool.settled")),
        ),
        (
            "a result without an intent",
            &["I8"],
            append("tool.settled", live, "'{\"call\":\"call_nobody\",\"outcome\":\"failed\"}'"),
        ),
        (
            "a second body of an unsafe call",
            &["I8"],
            "UPDATE session_event SET kind = 'tool.started', payload = (SELECT payload FROM session_event
                 WHERE incarnation = NUMBER AND kind = 'tool.started')
             WHERE incarnation = NUMBER AND seq =
                 (SELECT seq - 1 FROM session_event WHERE incarnation = NUMBER AND kind = 'tool.started')"
                .into(),
        ),
        (
            "a fourth body of a pure call",
            &["I8"],
            format!(
                "{0}; {0}; {0}",
                append(
                    "tool.started",
                    live,
                    "(SELECT json_build_object('call', payload::json#>>'{intent,call}') FROM session_event
                      WHERE incarnation = NUMBER AND kind = 'tool.called' AND payload LIKE '%pure%')"
                )
            ),
        ),
        (
            "a result of a call that never began",
            &["I8"],
            format!(
                "{}; UPDATE session_event SET kind = 'retry.scheduled' WHERE incarnation = NUMBER AND kind = 'tool.started'",
                set_payload("tool.settled", "\"outcome\":\"unknown\"", "\"outcome\":\"completed\"")
            ),
        ),
        (
            "a call of a settled turn without a result",
            &["I8"],
            format!(
                "UPDATE session_event SET kind = 'retry.scheduled' WHERE incarnation = NUMBER AND seq = {}",
                last_of("tool.settled")
            ),
        ),
        (
            "an idle session with an open turn",
            &["I8"],
            format!(
                "UPDATE session_event SET kind = 'retry.scheduled' WHERE incarnation = NUMBER AND seq = {}",
                last_of("turn.settled")
            ),
        ),
        (
            "an attempt that is counted wrong",
            &["I9"],
            set_payload("attempt.started", "\"ordinal\":2", "\"ordinal\":1"),
        ),
        (
            "an attempt that ended twice",
            &["I9"],
            append("attempt.ended", live, &first("attempt.ended")),
        ),
        (
            "an attempt of a settled turn without an end",
            &["I9"],
            format!(
                "UPDATE session_event SET kind = 'retry.scheduled' WHERE incarnation = NUMBER AND seq = {}",
                last_of("attempt.ended")
            ),
        ),
        (
            "a turn that used more than its attempts",
            &["I9"],
            set_payload("turn.settled", "\"input\":120", "\"input\":121"),
        ),
        (
            "a session that should still run",
            &["I11"],
            "UPDATE session_head SET open = true WHERE id = SESSION".into(),
        ),
        (
            "two compactions that wait",
            &["I1"],
            "WITH admitted AS (
                 UPDATE session_head SET next_seq = next_seq + 2, pending = pending + 2
                 WHERE id = SESSION RETURNING org_id, incarnation, next_seq - 1 AS seq),
             logged AS (
                 INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
                 SELECT org_id, incarnation, seq - n, 'evt_control' || n, 'control.admitted', 1, 1,
                     json_build_object('message', 'msg_control' || n, 'wake', false)
                 FROM admitted, generate_series(0, 1) AS n)
             INSERT INTO session_input (org_id, id, incarnation, kind, delivery, status, admitted_seq,
                 admitted_ms, projector_version)
             SELECT org_id, 'msg_control' || n, incarnation, 'compaction', 'steer', 'admitted', seq - n, 1, 2
             FROM admitted, generate_series(0, 1) AS n"
                .into(),
        ),
        (
            "a control that was delivered twice",
            &["I2"],
            append("control.delivered", live, &first("control.delivered")),
        ),
        (
            "a cancelled prompt that was promoted",
            &["I2"],
            append("prompt.promoted", live, &first("input.cancelled")),
        ),
        (
            "a control that was promoted like a prompt",
            &["I2"],
            set_kind("control.delivered", "prompt.promoted"),
        ),
        (
            "a change of an input that had left the inbox",
            &["I2"],
            append("delivery.changed", "NULL", &first("delivery.changed")),
        ),
        (
            "a turn that began within a compaction",
            &["I4"],
            set_kind("compaction.reminded", "turn.started"),
        ),
        ("a title that began twice", &["I4"], append("title.started", live, &first("title.started"))),
        (
            "a compaction that nobody cancelled",
            &["I6"],
            set_payload("compaction.ended", "\"outcome\":\"completed\"", "\"outcome\":\"cancelled\""),
        ),
        (
            "a compaction without a new epoch",
            &["I7"],
            format!(
                "UPDATE session_event SET kind = 'retry.scheduled' WHERE incarnation = NUMBER AND seq = {} + 1",
                last_of("compaction.ended")
            ),
        ),
        // Finding core-3 M6: epochs had any numbers.
        (
            "an epoch with the number of another one",
            &["I7"],
            set_payload("epoch.started", "\"epoch\":2", "\"epoch\":1"),
        ),
        (
            "an epoch after the highest number",
            &["I7"],
            set_payload("epoch.started", "\"epoch\":2", "\"epoch\":2147483647"),
        ),
        (
            "a turn in an epoch that has not begun",
            &["I7"],
            set_payload("turn.started", "\"epoch\":0", "\"epoch\":9"),
        ),
        (
            "a move after which the old epoch goes on",
            &["I7"],
            set_kind("workspace.restored", "session.moved"),
        ),
        (
            "a head that is not where its session is",
            &["I7"],
            "INSERT INTO location (org_id, id, project_id, kind, directory, created_ms)
                 SELECT org_id, 'loc_other', project_id, kind, '/other', created_ms FROM location LIMIT 1;
             UPDATE session SET location_id = 'loc_other' WHERE id = SESSION"
                .into(),
        ),
        (
            "a head that says a revert is staged",
            &["I7"],
            "UPDATE session_head SET staged_seq = 5 WHERE id = SESSION".into(),
        ),
        (
            "a head that forgot what is staged",
            &["I7"],
            append("revert.staged", "NULL", &first("revert.staged")),
        ),
        (
            "a call that did not wait for the capture of what was before it",
            &["I8"],
            format!(
                "{}; {}",
                append(
                    "tool.called",
                    live,
                    "'{\"turn\":\"trn_later\",\"class\":\"unsafe\",\"state\":\"started\",\"intent\":{\"call\":\"c\"}}'"
                ),
                append(
                    "workspace.snapshotted",
                    live,
                    "(SELECT payload FROM session_event WHERE incarnation = NUMBER
                      AND kind = 'workspace.snapshotted' AND payload LIKE '%\"turn\"%' LIMIT 1)"
                )
            ),
        ),
        (
            "a compaction whose end is missing",
            &["I4", "I8"],
            set_kind("compaction.ended", "retry.scheduled"),
        ),
        ("a title whose end is missing", &["I8"], set_kind("title.ended", "retry.scheduled")),
        (
            "a compaction that used more than its attempts",
            &["I9"],
            set_payload("compaction.ended", "\"input\":240", "\"input\":241"),
        ),
        (
            "a request to go on that the head forgot",
            &["I11"],
            append("wake.requested", "NULL", "'{}'"),
        ),
        ("a wake that the head forgot", &["I11"], forgotten_wake().into()),
        // Finding store 11: any later end of a drain hid a wake that it had lost.
        (
            "a wake that was lost at a drain's end",
            &["I11"],
            format!(
                "{}; {}",
                forgotten_wake(),
                append("drain.ended", live, "'{\"outcome\":\"completed\"}'")
            ),
        ),
    ]
}

/// A prompt that woke the session, which its head does not say.
fn forgotten_wake() -> &'static str {
    "WITH admitted AS (
                 UPDATE session_head SET next_seq = next_seq + 1, pending = pending + 1
                 WHERE id = SESSION RETURNING org_id, incarnation, next_seq - 1 AS seq),
             logged AS (
                 INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
                 SELECT org_id, incarnation, seq, 'evt_wake', 'prompt.admitted', 1, 1,
                     '{\"message\":\"msg_wake\",\"wake\":true}' FROM admitted)
             INSERT INTO session_input (org_id, id, incarnation, delivery, status, admitted_seq, admitted_ms,
                 projector_version)
             SELECT org_id, 'msg_wake', incarnation, 'steer', 'admitted', seq, 1, 1 FROM admitted"
}

#[tokio::test]
async fn the_oracle_finds_nothing_in_good_histories_and_every_tampering() {
    let world = World::new().await;
    let untouched = every_kind(&world).await;
    assert_eq!(violations(&world, true).await, []);
    let mut broken = BTreeSet::new();
    for (what, invariants, sql) in tamperings() {
        let session = every_kind(&world).await;
        let number = world.head(&session).await.incarnation;
        tamper(&world, &session, &sql).await;
        assert_reports(&world, &session, what, invariants).await;
        broken.extend(invariants);
        // The next one starts from a good history again. Some have no head by now that would tell the number.
        for table in ["session_event", "session_input", "session_head"] {
            tamper(&world, &session, &format!("DELETE FROM {table} WHERE incarnation = {number}"))
                .await;
        }
    }
    let checked = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I11"];
    assert_eq!(broken, BTreeSet::from(checked), "each is shown to be able to fail");
    assert_eq!(violations(&world, true).await, []);
    assert!(world.rows(&untouched).await.len() > 30);
}

/// The copied part of a Fork was admitted and interrupted elsewhere. The rest was not.
#[tokio::test]
async fn only_what_a_fork_copied_needs_no_beginning() {
    let world = World::new().await;
    let parent = every_kind(&world).await;
    let copied = |from: &str, to: &str| set_payload("session.forked", from, to);
    // The promotion is the last event instead of the fourth.
    let last = "UPDATE session_event SET seq = 99 WHERE incarnation = NUMBER AND seq = 4;
        UPDATE session_event SET seq = -(seq - 1) WHERE incarnation = NUMBER AND seq BETWEEN 5 AND 7;
        UPDATE session_event SET seq = abs(seq) WHERE incarnation = NUMBER AND seq < 0;
        UPDATE session_event SET seq = 7 WHERE incarnation = NUMBER AND seq = 99";
    for (what, invariants, sql) in [
        ("copies that are not there", vec!["I5"], copied("\"copied\":5", "\"copied\":6")),
        ("copies that are none", vec!["I2", "I6"], copied("\"copied\":5", "\"copied\":0")),
        (
            "a promotion behind the copies",
            vec!["I2"],
            format!("{last}; {}", copied("\"copied\":5", "\"copied\":4")),
        ),
    ] {
        let fork = fork_of(&world, &parent).await;
        assert_eq!(violations(&world, true).await, []);
        tamper(&world, &fork, &sql).await;
        assert_reports(&world, &fork, what, &invariants).await;
        world.store.delete_session(world.org, fork.session).await.expect("deleted");
    }
}

#[tokio::test]
async fn work_that_is_under_way_is_no_violation_until_all_should_be_settled() {
    let world = World::new().await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    assert_eq!(violations(&world, false).await, []);
    assert_reports(&world, &session, "ready", &["I11"]).await;
    let found = violations(&world, true).await;
    let still = Violation {
        invariant: "I11".into(),
        session: session.session.to_string(),
        found: "still ready".into(),
    };
    assert_eq!(found, [still]);
}

/// A tenant's check says nothing of another's sessions.
#[tokio::test]
async fn the_oracle_looks_at_one_organisation() {
    let world = World::new().await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    let (stranger, ..) = crate::world::organisation(&world.store).await;
    assert_eq!(world.store.violations(stranger, true).await.expect("an answer"), []);
}
