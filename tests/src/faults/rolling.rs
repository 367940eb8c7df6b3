//! Rolling restarts: SIGTERM for the worker that runs the chain, again and again.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::injector::tell;
use super::tool_processes::tools_below;
use super::workload::EFFECTS;
use crate::oracle::oracle;
use crate::settle::{events_of, eventually};
use crate::world::World;

/// The number of tools in the chain, one after the other.
const TOOLS: usize = 30;

/// The result of rolling restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolled {
    /// Workers that were asked to stop while one of their tools ran.
    pub restarts: u32,
    /// The duration of the chain.
    pub took: Duration,
}

/// Runs one prompt of 30 tools, one after the other, and stops (SIGTERM) the worker that runs the tool `restarts`
/// times. The prompt must complete, each body must run exactly once, and the oracle must agree.
///
/// # Errors
/// The first violation; or that the chain ended before all restarts (*not exercised*).
pub async fn rolling_restarts(restarts: u32) -> Result<Rolled> {
    let world = World::new().await?;
    let cluster = world.cluster(&[]).await?;
    let location = world.workspace("chain")?;
    let api = cluster.gateway(0);
    let session = api.session(&location).await?;
    let step = |number| format!("run echo link{number:02} >> {EFFECTS}; sleep 0.4");
    let chain: Vec<String> = (0..TOOLS).map(step).collect();
    let begun = Instant::now();
    let message = api.admit(&session, &chain.join(" then ")).await?;
    for number in 0..restarts {
        let pid = eventually("a worker runs a tool of the chain", 60, async || {
            let workers: Vec<u32> =
                cluster.of("worker")?.into_iter().map(|worker| worker.pid).collect();
            Ok(tools_below(&workers).into_keys().next())
        })
        .await
        .with_context(|| format!("not exercised: the chain ended after {number} restarts"))?;
        cluster.signal(pid, Signal::TERM)?;
        eventually("the worker ends", 60, async || {
            Ok(cluster.of("worker")?.iter().all(|worker| worker.pid != pid).then_some(()))
        })
        .await?;
    }
    tell(&format!("{restarts} restarts in {:.1} s", begun.elapsed().as_secs_f64()));
    let outcome = api.outcome(&session, &message, 90).await?;
    let took = begun.elapsed();
    let log = api.log(&session).await?;
    ensure!(outcome == "completed", "the chain ended as {outcome}: {:#?}", log.last());
    let lines = fs::read_to_string(location.join(EFFECTS))?;
    let wanted: Vec<String> = (0..TOOLS).map(|number| format!("link{number:02}")).collect();
    ensure!(lines.lines().eq(wanted.iter()), "the bodies that ran: {lines}");
    let settled: Vec<&Value> = events_of(&log, "tool.settled");
    let completed = settled.iter().filter(|data| data["outcome"] == "completed").count();
    ensure!(completed == TOOLS && settled.len() == TOOLS, "results: {settled:#?}");
    sleep(Duration::from_secs(1)).await; // the last stopped worker is back
    oracle(api, world.model()).await?;
    cluster.stop(&world).await?;
    Ok(Rolled { restarts, took })
}
