//! The cluster in network namespaces, under partitions, lost flows, lost folders and full disks. Needs root.

use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use journeys::network::{HUB, Lab, run_all};

/// Cuts the roles of a cluster off from each other, and proves that nothing was lost and work went on.
#[derive(Debug, Parser)]
struct Args {
    /// Only scenarios whose names contain this
    #[arg(default_value = "")]
    filter: String,
    /// How often all of them run
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// This process is already inside of the lab
    #[arg(long, hide = true)]
    inside: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if args.inside {
        let mut out = std::io::stdout();
        let mut say = |text: &str| {
            let _stdout_is_gone = writeln!(out, "{text}");
        };
        run_all(&args.filter, &mut say).await?;
        return Ok(());
    }
    for _ in 0..args.rounds {
        let _lab = Lab::build()?;
        let this = std::env::current_exe().context("this executable cannot be found")?;
        let status = Command::new("ip")
            .args(["netns", "exec", HUB])
            .arg(this)
            .args(["--inside", &args.filter])
            .status()?;
        ensure!(status.success(), "the network run failed");
    }
    Ok(())
}
