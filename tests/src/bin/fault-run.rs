//! Long fault runs: one after the other with growing seeds until the time is up, then rolling restarts.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use journeys::faults::{FaultRun, rolling_restarts};
use tokio::time::Instant;

/// Kills, stops and cuts off parts of a cluster under load, and proves that nothing was lost or done twice.
#[derive(Debug, Parser)]
struct Args {
    /// How long to go on starting runs
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first run's seed; each later one has the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds of faults in a run, each some 25 s
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Sessions, each with a client and a follower
    #[arg(long, default_value_t = 8)]
    sessions: usize,
    /// Locations that the sessions share
    #[arg(long, default_value_t = 4)]
    locations: usize,
    /// Where logs and rows of failed runs are kept
    #[arg(long)]
    keep: Option<PathBuf>,
    /// SIGTERMs in the rolling restarts at the end; 0 leaves them out
    #[arg(long, default_value_t = 20)]
    restarts: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut out = std::io::stdout();
    let over = Instant::now() + Duration::from_secs(args.minutes * 60);
    let (mut seed, mut failed) = (args.seed, 0_u32);
    while Instant::now() < over {
        let run = FaultRun {
            seed,
            rounds: args.rounds,
            sessions: args.sessions,
            locations: args.locations,
            keep: args.keep.clone(),
        };
        match run.run().await {
            Ok(report) => writeln!(out, "{report}")?,
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED {error:#}")?;
            }
        }
        seed += 1;
    }
    if args.restarts > 0 {
        let rolled = rolling_restarts(args.restarts).await?;
        writeln!(out, "{} rolling restarts, {:.1} s", rolled.restarts, rolled.took.as_secs_f64())?;
    }
    anyhow::ensure!(failed == 0, "{failed} runs failed");
    Ok(())
}
