//! A Postgres that comes back without its last commits. `cargo run -p journeys --bin went-back-run` goes on for longer.

use anyhow::{Context, Result, ensure};
use journeys::{
    Commits, LossyDatabase, Past, StandbyPair, WentBack, WentBackRun, World, events_of,
};
use reqwest::Method;
use serde_json::json;

// Finding core-3 C1: the model got the text of a lost turn, and `check` said that all was well.
#[tokio::test]
async fn a_turn_after_a_put_back_is_asked_with_the_log_that_is_there() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let session = api.session(&world.workspace("back")?).await?;
    for text in ["the first", "the second"] {
        ensure!(api.prompt(&session, text, 60).await? == "completed");
    }
    let mut past = Past::open(&world.data()).await?;
    past.keep().await?;
    for text in ["what is lost", "what is lost too"] {
        ensure!(api.prompt(&session, text, 60).await? == "completed");
    }
    let before = api.log(&session).await?.len();
    past.put_back().await?;
    let path = format!("/platform/session/{session}");
    let mut length = api.log(&session).await?.len();
    ensure!(length < before, "it is shorter");
    let kept = length;
    while length <= before {
        let title = json!({ "title": format!("title {length}") });
        api.send(api.request(Method::PATCH, &path).json(&title)).await?.ok()?;
        length += 1;
    }
    ensure!(api.prompt(&session, "what comes after", 60).await? == "completed");
    let asked = world.model().requests().pop().and_then(|request| request.body);
    let asked = asked.context("the model was asked")?;
    ensure!(asked.contains("the second") && asked.contains("what comes after"), "{asked}");
    ensure!(!asked.contains("what is lost"), "the model got what the database lost: {asked}");
    let log = api.log(&session).await?;
    let turn = events_of(&log, "turn.started").pop().context("a turn")?["turn"].clone();
    let turn = turn.as_str().context("an id")?;
    let told = api.get(&format!("/platform/explain/{turn}")).await?.ok()?;
    ensure!(told["match"] == json!(true), "{told:#}");
    ensure!(api.get("/platform/check?settled=true").await?.ok()? == json!([]));
    ensure!(kept > 0 && log.len() > before);
    up.stop(&world).await
}

// Finding ops-3 B1: sessions that ran while it went back had turns settled that never began.
#[tokio::test]
async fn sessions_at_work_outlive_a_database_that_goes_back() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let run = WentBackRun { seed: 1, repetitions: 4, sessions: 3 };
    let report = run.run(&world, up.api()).await?;
    ensure!(report.shorter > 0 && report.proved > 0, "{report}");
    up.stop(&world).await
}

// The same where a standby takes over. Without synchronous replication it lacks the last commits; with it, nothing that was
// acknowledged.
#[tokio::test]
async fn sessions_at_work_outlive_a_standby_that_lacks_commits() -> Result<()> {
    let report = promote(Commits::Asynchronous).await?;
    ensure!(report.shorter > 0 && report.proved > 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn a_synchronous_standby_keeps_what_was_acknowledged() -> Result<()> {
    let report = promote(Commits::Synchronous).await?;
    ensure!(report.shorter == 0 && report.proved > 0, "{report}");
    Ok(())
}

async fn promote(commits: Commits) -> Result<WentBack> {
    let world = World::new().await?;
    let mut pair = StandbyPair::start(commits).await?;
    let up = world.up_with(&["--database-url", &pair.url()]).await?;
    let run = WentBackRun { seed: 2, repetitions: 2, sessions: 3 };
    let report = run.run_on(&world, up.api(), &mut pair).await?;
    up.stop(&world).await?;
    pair.stop().await?;
    Ok(report)
}
