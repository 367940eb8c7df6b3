//! An organisation's limit of requests a minute at its provider holds for all its workers together.

use std::time::Duration;

use anyhow::{Result, ensure};
use journeys::{World, eventually, oracle};
use reqwest::Method;
use serde_json::json;

/// The limit of requests a minute.
const LIMIT: usize = 4;
const PROMPTS: usize = 10;

#[tokio::test]
async fn two_workers_together_send_no_more_than_the_organisations_limit() -> Result<()> {
    let world = World::new().await?;
    let cluster = world.cluster(&["--workers=2"]).await?;
    let api = cluster.gateway(0);
    let settings = json!({ "overrides": { "limits": { "requestsPerMinute": LIMIT } } });
    api.send(api.request(Method::PUT, "/platform/provider/custom").json(&settings)).await?.ok()?;

    let mut waiting = Vec::new();
    for number in 0..PROMPTS {
        // A Location each, so that both workers have some.
        let session = api.session(&world.workspace(&format!("rate-{number}"))?).await?;
        let message = api.admit(&session, "say 2 words").await?;
        waiting.push((session, message));
    }
    let asked = || world.model().requests().len();
    eventually("the limit is used", 60, async || Ok((asked() >= LIMIT).then_some(()))).await?;
    let status = cluster.placement().await?;
    let leases: Vec<usize> = status.workers.iter().map(|worker| worker.leases).collect();
    ensure!(leases.len() == 2 && leases.iter().all(|leases| *leases > 0), "{leases:?}");
    // Long enough for a second request by those that wait, if they were told to wait less than the rest of the
    // minute.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(asked() == LIMIT, "{} requests under a limit of {LIMIT}", asked());

    // A session that waits for the minute has a drain like any other: an interrupt ends it.
    for (session, _) in &waiting {
        api.post(&format!("/platform/session/{session}/abort"), &json!({})).await?.ok()?;
    }
    let mut completed = 0;
    for (session, message) in &waiting {
        match api.outcome(session, message, 60).await?.as_str() {
            "completed" => completed += 1,
            "interrupted" => {}
            other => anyhow::bail!("{session} ended as {other}"),
        }
    }
    ensure!(completed == LIMIT, "{completed} of {LIMIT} were answered");
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
}
