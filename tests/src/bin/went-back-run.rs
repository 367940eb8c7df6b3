//! A service whose database comes back without its last commits, hundreds of times.

use std::io::Write;

use anyhow::Result;
use clap::Parser;
use journeys::{WentBackRun, World};

/// Puts the database of a working service back to an earlier state, again and again, and proves what it does then.
#[derive(Debug, Parser)]
struct Args {
    /// How often the database is put back
    #[arg(long, default_value_t = 200)]
    repetitions: u32,
    /// The seed of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions that work
    #[arg(long, default_value_t = 4)]
    sessions: usize,
    /// With the roles of `dev-cluster` as processes instead of `up`
    #[arg(long)]
    cluster: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { repetitions, seed, sessions, cluster } = Args::parse();
    let run = WentBackRun { seed, repetitions, sessions };
    let world = World::new().await?;
    let report = if cluster {
        let cluster = world.cluster(&[]).await?;
        let report = run.run(&world, cluster.gateway(0)).await?;
        cluster.stop(&world).await?;
        report
    } else {
        let up = world.up().await?;
        let report = run.run(&world, up.api()).await?;
        up.stop(&world).await?;
        report
    };
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}
