//! A service whose database comes back without its last commits, hundreds of times.

use std::io::Write;

use anyhow::Result;
use clap::Parser;
use clap::ValueEnum;
use journeys::{Commits, StandbyPair, WentBackRun, World};

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
    #[arg(long, conflicts_with = "standby")]
    cluster: bool,
    /// A standby takes over instead, which commits wait for or not
    #[arg(long, value_enum)]
    standby: Option<Standby>,
}

/// How a standby follows.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Standby {
    Asynchronous,
    Synchronous,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { repetitions, seed, sessions, cluster, standby } = Args::parse();
    let run = WentBackRun { seed, repetitions, sessions };
    let world = World::new().await?;
    let report = if let Some(standby) = standby {
        let mut pair = StandbyPair::start(match standby {
            Standby::Asynchronous => Commits::Asynchronous,
            Standby::Synchronous => Commits::Synchronous,
        })
        .await?;
        let up = world.up_with(&["--database-url", &pair.url()]).await?;
        let report = run.run_on(&world, up.api(), &mut pair).await?;
        up.stop(&world).await?;
        pair.stop().await?;
        report
    } else if cluster {
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
