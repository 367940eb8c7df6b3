//! Sums of usage: counted once, whoever counts how often and ends where.

use domain::{
    Author, DrainOutcome, PromptAdmitted, SessionEvent, SessionRef, TimestampMs, TurnUsage,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::{
    DrainEnd, UsageCounter, UsageKey, UsageOf, UsageQuery, UsageRow, UsageStep, UsageTable,
};

use crate::forks::fork_of;
use crate::script::{TestTurn, USAGE, ended, every_kind, promoted};
use crate::world::{NOW, World};

/// Counts all that is due.
async fn count(world: &World) -> usize {
    world.store.count_usage(world.org).await.expect("counted")
}

async fn ask(world: &World, query: UsageQuery) -> Vec<UsageRow> {
    let whole = UsageQuery { from: NOW - 86_400_000, to: NOW + 86_400_000, ..query };
    let table = whole.table().expect("a table");
    world.store.usage(world.org, whole, table).await.expect("an answer").rows
}

/// All sums of work, by name.
async fn sum(world: &World, name: &str) -> i64 {
    let place = UsageTable::WORK_SUMS.iter().position(|it| *it == name).expect("a sum");
    let rows = ask(world, UsageQuery { step: UsageStep::All, ..UsageQuery::default() }).await;
    rows.iter().map(|row| row.sums[place]).sum()
}

/// The sums are those of a recount, and the tokens and costs those that the list of sessions shows.
async fn assert_exact(world: &World) {
    assert_eq!(world.store.usage_violations(world.org).await.expect("a recount"), []);
}

/// The sums of what the rows of sessions say.
async fn listed(world: &World) -> (i64, i64, i64) {
    sqlx::query_as(
        "SELECT sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cost_nanos)::bigint FROM session
         WHERE org_id = $1",
    )
    .bind(world.org.0)
    .fetch_one(&world.root)
    .await
    .expect("sums")
}

async fn counted(world: &World) -> (i64, i64, i64) {
    let of = async |name| sum(world, name).await;
    (of("input_tokens").await, of("output_tokens").await, of("cost_nanos").await)
}

fn by(author: &str) -> Option<Author> {
    Some(Author { key: "key_1".into(), actor: Some(author.into()) })
}

/// A prompt of `author` and its whole answer.
async fn answered(world: &World, session: &SessionRef, author: &str) {
    let prompt = PromptAdmitted { by: by(author), ..world.prompt("hello") };
    world.try_admit(session, &prompt).await.expect("admitted");
    let mut mint = world.mint();
    let turn = TestTurn::new(&mut mint, &prompt.message);
    let mut events: Vec<SessionEvent> = vec![promoted(&prompt)];
    events.extend(turn.start());
    events.extend(turn.reply(&mut mint));
    events.push(ended(DrainOutcome::Completed));
    world.drain(session, 1, &events, DrainEnd::Close).await;
}

#[tokio::test]
async fn every_kind_of_event_is_counted_once() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    assert_eq!(count(&world).await, 1);
    let once = listed(&world).await;
    assert_eq!(counted(&world).await, once, "the figures of the list");
    assert!(once.2 > 0 && once.0 >= USAGE.input * 4, "{once:?}");
    assert_eq!(sum(&world, "sessions").await, 1);
    assert_eq!(sum(&world, "prompts").await, 4, "the synthetic ones are nobody's");
    assert_eq!(sum(&world, "turns").await, 7);
    assert_eq!((sum(&world, "tool_calls").await, sum(&world, "tool_failures").await), (2, 1));
    assert_eq!((sum(&world, "retries").await, sum(&world, "compactions").await), (1, 1));
    assert_eq!(sum(&world, "requests").await, sum(&world, "unpriced").await);
    assert_exact(&world).await;
    // Nothing is new, whoever asks again.
    assert_eq!(count(&world).await, 0);
    assert!(
        !world.store.roll_up_usage(world.org, vec![session.session.to_string()]).await.unwrap()
    );
    assert_eq!(counted(&world).await, once);

    let tools = UsageQuery {
        of: UsageOf::Tools,
        step: UsageStep::All,
        by: vec![UsageKey::Tool, UsageKey::Outcome],
        ..UsageQuery::default()
    };
    let tools: Vec<_> =
        ask(&world, tools).await.into_iter().map(|row| (row.keys.join(" "), row.sums)).collect();
    let expected = ["shell completed", "shell unknown"].map(|key| (key.to_owned(), vec![1, 5]));
    assert_eq!(tools, expected);
    let ends = UsageQuery {
        of: UsageOf::Ends,
        step: UsageStep::All,
        by: vec![UsageKey::Outcome, UsageKey::Code],
        ..UsageQuery::default()
    };
    let ends: Vec<_> = ask(&world, ends).await.into_iter().map(|row| row.keys.join(" ")).collect();
    let expected =
        ["completed ", "interrupted ", "lost ", "overflowed ", "retried provider.rate_limit"];
    assert_eq!(ends, expected);
}

#[tokio::test]
async fn work_counts_for_the_author_of_the_newest_prompt() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    answered(&world, &session, "key_a").await;
    count(&world).await;
    answered(&world, &session, "key_b").await;
    answered(&world, &session, "key_b").await;
    count(&world).await;
    let people = UsageQuery {
        step: UsageStep::All,
        by: vec![UsageKey::Person, UsageKey::Model],
        ..UsageQuery::default()
    };
    let turns = |rows: Vec<UsageRow>| -> Vec<_> {
        rows.into_iter().map(|row| (row.keys[0].clone(), row.sums[2], row.sums[15])).collect()
    };
    let all = turns(ask(&world, people.clone()).await);
    let a = ("key_a".to_owned(), 1, USAGE.cost);
    let b = ("key_b".to_owned(), 2, 2 * USAGE.cost);
    assert_eq!(all, [(String::new(), 0, 0), a, b.clone()]);
    let only = UsageQuery { only: vec![(UsageKey::Person, "key_b".into())], ..people };
    assert_eq!(turns(ask(&world, only).await), [b]);
    let rows = ask(&world, UsageQuery::default()).await;
    let people: Vec<_> = rows.iter().map(|row| row.people).collect();
    assert_eq!(people, [Some(2)]);
    assert_exact(&world).await;
}

#[tokio::test]
async fn a_fork_counts_nothing_that_it_inherited() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    count(&world).await;
    let (turns, tokens) = (sum(&world, "turns").await, counted(&world).await);
    let calls = sum(&world, "tool_calls").await;
    let fork = fork_of(&world, &session).await;
    count(&world).await;
    assert_eq!(sum(&world, "sessions").await, 2);
    assert_eq!((sum(&world, "turns").await, counted(&world).await), (turns, tokens));
    assert_eq!(sum(&world, "tool_calls").await, calls);
    answered(&world, &fork, "key_a").await;
    count(&world).await;
    assert_eq!(sum(&world, "turns").await, turns + 1);
    assert_eq!(counted(&world).await, listed(&world).await);
    assert_exact(&world).await;
}

#[tokio::test]
async fn a_deleted_session_leaves_its_sums() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let (used, other) = (listed(&world).await, world.session().await);
    // Nobody has counted it yet.
    world.make_again(&session).await;
    count(&world).await;
    assert_eq!(counted(&world).await, used);
    assert_eq!(sum(&world, "sessions").await, 3, "it is another one now");
    answered(&world, &other, "key_a").await;
    world.store.delete_session(world.org, other.session.clone()).await.expect("deleted");
    assert_eq!(sum(&world, "turns").await, 8);
    assert_eq!(count(&world).await, 1, "it was changed, and is not there any more");
    assert_exact(&world).await;
}

// Finding core-3 H3: after a statement that took too long, nothing of the organisation was counted any more.
#[tokio::test]
async fn a_session_that_cannot_be_counted_holds_up_no_other() {
    let world = World::new().await;
    world.fence(1).await;
    let (odd, other) = (world.session().await, world.session().await);
    let break_it = format!(
        "ALTER FUNCTION usage_facts RENAME TO whole_usage_facts;
         CREATE FUNCTION usage_facts(p_org uuid, p_number bigint, p_first bigint, p_last bigint)
         RETURNS SETOF usage_fact LANGUAGE plpgsql AS $$ BEGIN
             IF p_number = {} THEN
                 RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';
             END IF;
             RETURN QUERY SELECT * FROM whole_usage_facts(p_org, p_number, p_first, p_last);
         END $$",
        world.head(&odd).await.incarnation
    );
    world.database.tamper(break_it).await.expect("broken");
    answered(&world, &odd, "key_a").await;
    answered(&world, &other, "key_b").await;
    let failures = || {
        let text = telemetry::exposition();
        let line = text.lines().find_map(|line| line.strip_prefix("oc_usage_failures_total "));
        line.map_or(0, |count| count.parse::<u64>().expect("a count"))
    };
    let (before, mut counter) = (failures(), UsageCounter::new(world.store.clone()));
    counter.count(world.org).await.expect("the other is counted");
    assert_eq!((sum(&world, "turns").await, failures()), (1, before + 1));
    assert_eq!(world.store.uncounted_organisations().await.expect("organisations"), []);
    // It is not tried with each look, and not forgotten.
    answered(&world, &odd, "key_a").await;
    answered(&world, &other, "key_b").await;
    counter.count(world.org).await.expect("the other is counted");
    assert_eq!((sum(&world, "turns").await, failures()), (2, before + 1));
    let mend = "DROP FUNCTION usage_facts; ALTER FUNCTION whole_usage_facts RENAME TO usage_facts";
    world.database.tamper(mend.to_owned()).await.expect("mended");
    count(&world).await;
    assert_eq!(sum(&world, "turns").await, 4);
    assert_exact(&world).await;
}

#[tokio::test]
async fn a_rebuild_changes_no_sum() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    count(&world).await;
    let before = counted(&world).await;
    world.store.rebuild(world.org, session.session.clone(), false).await.expect("rebuilt");
    count(&world).await;
    assert_eq!(counted(&world).await, before);
    assert_exact(&world).await;
}

#[tokio::test]
async fn a_position_that_is_too_old_or_lost_passes_nothing_over() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    count(&world).await;
    for tamper in [
        "DELETE FROM usage_cursor",
        "UPDATE usage_cursor SET read_ms = read_ms - 7200000",
        // As after a restore into another server, whose transactions have lower numbers.
        "UPDATE usage_cursor SET next_xid = '9000000000000'::xid8",
        "UPDATE usage_cursor SET read_ms = read_ms + 7200000",
        // As after a crash of Postgres, and as the build before leaves it.
        "TRUNCATE change_epoch",
        "UPDATE change_epoch SET id = gen_random_uuid()",
        "UPDATE usage_cursor SET epoch = NULL",
    ] {
        answered(&world, &session, "key_a").await;
        sqlx::query(tamper).execute(&world.root).await.expect("tampered");
        sqlx::query("TRUNCATE session_change").execute(&world.root).await.expect("forgotten");
        let orgs = world.store.uncounted_organisations().await.expect("organisations");
        assert!(orgs.contains(&world.org) || tamper.contains("9000000000000"), "{tamper}");
        count(&world).await;
        assert_eq!(counted(&world).await, listed(&world).await, "{tamper}");
    }
    assert_eq!(sum(&world, "turns").await, 7);
    assert_exact(&world).await;
}

// The position of a worker that read before a crash of Postgres, and kept what it had read after it.
#[tokio::test]
async fn a_position_of_before_a_crash_is_not_believed_after_it() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    count(&world).await;
    let early = world.store.due_usage(world.org).await.expect("due");
    answered(&world, &session, "key_a").await;
    for unlogged in ["TRUNCATE session_change", "TRUNCATE change_epoch"] {
        sqlx::query(unlogged).execute(&world.root).await.expect("emptied");
    }
    // Another names the new epoch before.
    world.store.due_usage(world.org).await.expect("due");
    world.store.keep_usage_position(early).await.expect("kept");
    assert_eq!(world.store.uncounted_organisations().await.expect("organisations"), [world.org]);
    assert_eq!(count(&world).await, 1);
    assert_eq!(counted(&world).await, listed(&world).await);
    assert_eq!(world.store.uncounted_organisations().await.expect("organisations"), []);
}

#[tokio::test]
async fn a_commit_that_was_open_at_the_position_is_found() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    count(&world).await;
    // A change whose transaction began before the position, and commits after it.
    let mut late = world.root.begin().await.expect("a transaction");
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *late).await.expect("a number");
    answered(&world, &session, "key_a").await;
    let due = world.store.due_usage(world.org).await.expect("due");
    assert_eq!(due.sessions, [session.session.to_string()]);
    world.store.keep_usage_position(due).await.expect("kept");
    assert_eq!(world.store.due_usage(world.org).await.expect("due").sessions, [""; 0]);
    sqlx::query(
        "INSERT INTO session_change (first, last, incarnation, org_id, session_id)
         SELECT 1, 1, incarnation, org_id, id FROM session_head",
    )
    .execute(&mut *late)
    .await
    .expect("a row");
    late.commit().await.expect("committed");
    let due = world.store.due_usage(world.org).await.expect("due");
    assert_eq!(due.sessions, [session.session.to_string()]);
    let orgs = world.store.uncounted_organisations().await.expect("organisations");
    assert!(orgs.contains(&world.org));
    assert_eq!(count(&world).await, 1);
    assert_eq!(counted(&world).await, listed(&world).await);
    assert_eq!(world.store.uncounted_organisations().await.expect("organisations"), []);
}

#[tokio::test]
async fn the_recount_finds_a_sum_that_is_off() {
    let world = World::new().await;
    every_kind(&world).await;
    count(&world).await;
    assert_exact(&world).await;
    for tamper in [
        "UPDATE usage_daily SET turns = turns + 1 WHERE turns > 0",
        "UPDATE usage_daily SET turns = turns - 1 WHERE turns > 0",
        "UPDATE usage_hourly SET cost_nanos = cost_nanos - 1 WHERE cost_nanos > 0",
        "DELETE FROM usage_person",
        "UPDATE usage_tool SET calls = calls + 1",
        "UPDATE usage_outcome SET turns = 0",
        "UPDATE usage_through SET last = last - 3",
    ] {
        let mut tx = world.root.begin().await.expect("a transaction");
        sqlx::query(tamper).execute(&mut *tx).await.expect("tampered");
        tx.commit().await.expect("committed");
        let found = world.store.usage_violations(world.org).await.expect("a recount");
        if tamper.contains("turns + 1") {
            let said = &found[0].found;
            assert!(said.contains("usage_daily differs") && said.contains("turns by +1"), "{said}");
        }
        assert!(!found.is_empty() || tamper.contains("turns - 1"), "{tamper}");
        assert!(found.iter().all(|it| it.invariant == "I22"), "{found:?}");
    }
}

#[tokio::test]
async fn a_damaged_log_holds_up_no_other() {
    let world = World::new().await;
    world.fence(1).await;
    let (damaged, whole) = (world.session().await, world.session().await);
    for session in [&damaged, &whole] {
        answered(&world, session, "key_a").await;
    }
    sqlx::query(
        "UPDATE session_event SET payload = replace(payload, '120', '\"many\"')
         WHERE kind = 'turn.settled' AND incarnation = (SELECT incarnation FROM session_head WHERE id = $1)",
    )
    .bind(damaged.session.as_str())
    .execute(&world.root)
    .await
    .expect("damaged");
    count(&world).await;
    assert_eq!(sum(&world, "turns").await, 1);
    answered(&world, &whole, "key_a").await;
    count(&world).await;
    assert_eq!(sum(&world, "turns").await, 2);
}

/// Writers, counters that stop anywhere, deletes, forks and rebuilds, from a seed; then the sums are those of a recount.
#[tokio::test]
async fn sums_equal_a_recount_wherever_counters_end() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new().await;
    world.fence(1).await;
    let mut sessions = vec![every_kind(&world).await, world.session().await];
    let mut deleted = TurnUsage::default();
    let mut waiting: Vec<store::UsageDue> = Vec::new();
    for _ in 0..60 {
        let place = random.random_range(0..sessions.len());
        match random.random_range(0..10) {
            0..4 => {
                let author = ["key_a", "key_b", "key_c"][random.random_range(0..3)];
                // The one that has moved is at another Location.
                let session = sessions[1 + place % (sessions.len() - 1)].clone();
                answered(&world, &session, author).await;
            }
            4 => sessions.push(world.session().await),
            5 => sessions.push(fork_of(&world, &sessions[0].clone()).await),
            6 if sessions.len() > 3 => {
                let gone = sessions.remove(place.max(1));
                let used = world.store.session(world.org, gone.session.clone()).await.expect("it");
                deleted.input += used.usage.input;
                world.store.delete_session(world.org, gone.session).await.expect("deleted");
            }
            // A counter that ended after it looked, or in the middle of its sessions: the next one goes on.
            7 => waiting.push(world.store.due_usage(world.org).await.expect("due")),
            8 => {
                if let Some(due) = waiting.pop() {
                    let some = due.sessions.iter().take(random.random_range(0..4)).cloned();
                    let some: Vec<_> = some.collect();
                    let all = some.len() == due.sessions.len();
                    while world.store.roll_up_usage(world.org, some.clone()).await.expect("so far")
                    {
                    }
                    // It comes late with an older position.
                    if all {
                        world.store.keep_usage_position(due).await.expect("kept");
                    }
                }
            }
            _ => {
                // Two at once.
                let (one, two) = tokio::join!(
                    world.store.count_usage(world.org),
                    world.store.count_usage(world.org)
                );
                one.and(two).expect("counted");
            }
        }
    }
    count(&world).await;
    assert_exact(&world).await;
    let (input, ..) = counted(&world).await;
    assert_eq!(input, listed(&world).await.0 + deleted.input);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn steps_and_the_time_before_are_told_apart() {
    let world = World::new().await;
    let day = 86_400_000;
    // 2026-11-21 is a Saturday.
    for (days, cost) in [(0, 1), (1, 2), (2, 4), (9, 8), (40, 16)] {
        sqlx::query(
            "INSERT INTO usage_person SELECT $1, $2, 'p', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, $3, 0, 0, 0, 0",
        )
        .bind(world.org.0)
        .bind(NOW - NOW % day - days * day)
        .bind(cost)
        .execute(&world.root)
        .await
        .expect("a row");
    }
    let (from, to): (TimestampMs, _) = (NOW - NOW % day - 2 * day, NOW);
    let base = UsageQuery { from, to, ..UsageQuery::default() };
    let costs = async |step, before| -> Vec<(bool, i64, i64)> {
        let query = UsageQuery { step, before, ..base.clone() };
        let table = query.table().expect("a table");
        let rows = world.store.usage(world.org, query, table).await.expect("an answer").rows;
        rows.iter()
            .map(|it| (it.is_earlier, (it.starts - from).div_euclid(day), it.sums[15]))
            .collect()
    };
    assert_eq!(costs(UsageStep::Day, None).await, [(false, 0, 4), (false, 1, 2), (false, 2, 1)]);
    let before = Some(from - 10 * day);
    assert_eq!(costs(UsageStep::All, before).await, [(false, 0, 7), (true, -10, 8)]);
    let weeks = costs(UsageStep::Week, Some(from - 60 * day)).await;
    let total: i64 = weeks.iter().map(|it| it.2).sum();
    assert_eq!(total, 31);
    for (_, start, _) in weeks {
        let weekday = (from / day + start + 3).rem_euclid(7);
        assert_eq!(weekday, 0, "a week begins on Monday");
    }
    assert_eq!(
        costs(UsageStep::Month, Some(from - 60 * day)).await.iter().map(|it| it.2).sum::<i64>(),
        31
    );
}
