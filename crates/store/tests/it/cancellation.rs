use std::collections::BTreeSet;
use std::sync::Arc;

use domain::FencingToken;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::{DrainEnd, Hold, NewPrompt, Started};
use tokio::task::JoinSet;

use crate::script::ended;
use crate::world::{World, dropped_after};

/// How our backends are doing: (busy, longest in an idle transaction in ms).
async fn activity(world: &World) -> (i64, i64) {
    sqlx::query_as(
        "SELECT count(*) FILTER (WHERE state <> 'idle'),
                coalesce(max(extract(epoch FROM clock_timestamp() - state_change) * 1000)
                    FILTER (WHERE state LIKE 'idle in transaction%'), 0)::bigint
         FROM pg_stat_activity WHERE datname = current_database() AND usename = 'oc_app'",
    )
    .fetch_one(&world.root)
    .await
    .expect("pg_stat_activity")
}

/// Waits until every call that outlives its caller has ended. A statement that was just sent to a backend is not
/// seen at once: it must be quiet for some looks in a row.
async fn until_quiet(world: &World) {
    let mut quiet = 0;
    while quiet < 5 {
        let (busy, idle_ms) = activity(world).await;
        // At 1,000 ms Postgres would end it and hide what we look for.
        assert!(idle_ms < 800, "a dropped caller left a transaction open for {idle_ms} ms");
        quiet = if busy == 0 { quiet + 1 } else { 0 };
        tokio::task::yield_now().await;
    }
}

/// Our backends. One that is gone was ended by Postgres for an idle transaction: the pool keeps its own.
async fn backends(world: &World) -> BTreeSet<i32> {
    let pids: Vec<i32> = sqlx::query_scalar(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'oc_app'",
    )
    .fetch_all(&world.root)
    .await
    .expect("pg_stat_activity");
    pids.into_iter().collect()
}

/// One at a time, so that no later caller tidies up what an earlier one left on its connection.
#[tokio::test]
async fn a_caller_dropped_at_any_await_leaves_its_connection_outside_a_transaction() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    let mut known = backends(&world).await;
    for polls in 0..12 {
        let token = FencingToken(1);
        dropped_after(
            polls,
            world.store.start_drain(session.clone(), token, store::KnownLog::NOTHING, Hold::Lock),
        )
        .await;
        until_quiet(&world).await;
        let (tx, _) = world.start(&session, 1).await;
        let claim = tx.claim();
        world.write(tx, &[], DrainEnd::Keep).await.expect("the newest claim");
        dropped_after(
            polls,
            world.store.resume_drain(session.clone(), claim, store::KnownLog::NOTHING),
        )
        .await;
        until_quiet(&world).await;
        let (tx, _) = world
            .store
            .resume_drain(session.clone(), claim, store::KnownLog::NOTHING)
            .await
            .expect("the claim holds");
        dropped_after(polls, world.write(tx, &[], DrainEnd::Keep)).await;
        until_quiet(&world).await;
        dropped_after(polls, world.store.raise_fence(world.at(), token)).await;
        dropped_after(polls, world.store.session(world.org, session.session.clone())).await;
        dropped_after(polls, world.store.rebuild(world.org, session.session.clone(), true)).await;
        until_quiet(&world).await;
        let now = backends(&world).await;
        assert!(known.is_subset(&now), "after {polls} polls: {known:?} are {now:?}");
        known = now;
    }
    world.assert_sound(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_callers_leave_no_transaction_and_no_half_admission() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(world.session().await);
    }
    let mut lanes = JoinSet::new();
    for lane in 0..10_u64 {
        let world = world.clone();
        let session = sessions[usize::try_from(lane % 4).expect("small")].clone();
        lanes.spawn(async move {
            let mut random = StdRng::seed_from_u64(lane);
            let mut completed = 0;
            let mut prompts = Vec::new();
            for _ in 0..50 {
                let polls = random.random_range(0..4);
                let org = world.org;
                let done = match random.random_range(0..5) {
                    0 => {
                        let interrupt =
                            world.store.interrupt(org, session.session.clone(), None, world.tick());
                        dropped_after(polls, interrupt).await.map(|done| done.map(drop))
                    }
                    1 => {
                        let drain = drain(&world, &session);
                        dropped_after(random.random_range(0..12), drain).await
                    }
                    _ => {
                        let prompt = world.prompt("dropped");
                        prompts.push(prompt.clone());
                        let now = world.tick();
                        let new = NewPrompt { session: session.session.clone(), prompt, now };
                        let admit = world.store.admit_prompt(org, new);
                        dropped_after(polls, admit).await.map(|done| done.map(drop))
                    }
                };
                completed += i32::from(done.transpose().expect("no call fails").is_some());
            }
            (session, prompts, completed)
        });
    }
    let lanes = lanes.join_all().await;
    until_quiet(&world).await;
    let completed: i32 = lanes.iter().map(|lane| lane.2).sum();
    assert!((50..450).contains(&completed), "calls must end both ways: {completed} of 500 did");
    world.assert_sound(false).await;

    // The pools serve, and a client that tries again finds its prompt admitted, or admits it now.
    for (session, prompts, _) in &lanes {
        for prompt in prompts {
            world.try_admit(session, prompt).await.expect("admitted once");
        }
    }
    let admitted: i64 =
        sqlx::query_scalar("SELECT count(*) FROM session_event WHERE kind = 'prompt.admitted'")
            .fetch_one(&world.root)
            .await
            .expect("a count");
    let asked: usize = lanes.iter().map(|lane| lane.1.len()).sum();
    assert_eq!(usize::try_from(admitted).expect("positive"), asked);
    world.assert_sound(false).await;
}

/// A drain of one write after another, which can be dropped anywhere in between.
async fn drain(world: &World, session: &domain::SessionRef) -> Result<(), store::StoreError> {
    let started = world
        .store
        .start_drain(session.clone(), FencingToken(1), store::KnownLog::NOTHING, Hold::Lock)
        .await?;
    let Started::Ready(tx, ..) = started else { return Ok(()) };
    let claim = tx.claim();
    world.write(*tx, &[], DrainEnd::Keep).await?;
    let end = ended(domain::DrainOutcome::Completed);
    match world.resume(session, claim, &[end], DrainEnd::Close).await {
        Err(store::StoreError::Fenced { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}
