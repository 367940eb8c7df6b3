//! Sums of usage through the real service.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Api, World, eventually, superuser_url};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

/// The turns of the last days.
async fn turns(api: &Api) -> Result<i64> {
    let usage = api.get("/platform/usage").await?.ok()?;
    let rows = usage["rows"].as_array().context("rows")?;
    rows.iter().map(|row| row["sums"]["turns"].as_i64().context("turns")).sum()
}

async fn counted(api: &Api, wanted: i64) -> Result<()> {
    eventually("the turns are counted", 60, async || {
        // Postgres may be recovering.
        let is_counted = turns(api).await.is_ok_and(|turns| turns >= wanted);
        Ok(is_counted.then_some(()))
    })
    .await
}

// What a commit has changed is not in Postgres's write-ahead log (docs/decisions/0085), and is lost when it crashes.
#[tokio::test]
async fn a_turn_before_a_crash_of_postgres_is_counted_after_it() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let session = api.session(&world.workspace("one")?).await?;
    ensure!(api.prompt(&session, "hello", 60).await? == "completed");
    counted(api, 1).await?;

    // Nobody can count until Postgres crashes, and with it this connection.
    let mut root = PgConnection::connect(&superuser_url(&world.data())?).await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE usage_through IN EXCLUSIVE MODE").execute(&mut root).await?;
    ensure!(api.prompt(&session, "hello again", 60).await? == "completed");
    // A worker has looked meanwhile.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let changes: i64 =
        sqlx::query_scalar("SELECT count(*) FROM session_change").fetch_one(&mut root).await?;
    ensure!(changes > 0 && turns(api).await? == 1);
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut root).await?;
    kill_process(Pid::from_raw(backend).context("a process")?, Signal::KILL)?;

    counted(api, 2).await?;
    ensure!(turns(api).await? == 2);
    let faults = api.get("/platform/check").await?.ok()?;
    ensure!(faults == serde_json::json!([]), "{faults}");
    let mut root = PgConnection::connect(&superuser_url(&world.data())?).await?;
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM session_change").fetch_one(&mut root).await?;
    ensure!(left == 0, "Postgres did not crash: {left} of {changes} changes are left");
    root.close().await?;
    up.stop(&world).await
}
