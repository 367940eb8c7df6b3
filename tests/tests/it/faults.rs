//! The short fault run of CI. `cargo run -p journeys --bin fault-run` goes on for longer.

use anyhow::Result;
use journeys::faults::FaultRun;

/// A fixed seed, so that CI compares like with like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_every_promise_while_its_parts_are_killed() -> Result<()> {
    let run = FaultRun { seed: 1, rounds: 1, sessions: 6, locations: 3, keep: None };
    let report = run.run().await?;
    assert!(report.acknowledged >= 10, "{report}");
    Ok(())
}
