//! Runs the simulation for a time and prints one line of figures.

#![expect(clippy::print_stdout, reason = "the line is what it is for")]

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::{Map, json};
use sim::{Fault, Story, When};

/// Simulates the cluster: as many histories as fit into a time, each of another seed.
#[derive(Parser)]
struct Args {
    /// How long, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Only the history of the first seed: the logs of its sessions, its hash and what it found.
    #[arg(long)]
    one: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.one {
        return show(&sim::history(args.seed, None));
    }
    let time = Duration::from_secs(args.seconds);
    let report = sim::run(args.seed, args.threads.max(1), |_, elapsed| elapsed < time);
    let count = |fault: &Fault| report.faults.kinds.get(fault).copied().unwrap_or(0);
    let kinds: Map<_, _> =
        Fault::ALL.iter().map(|fault| (fault.name().to_owned(), json!(count(fault)))).collect();
    let sites: Map<_, _> = session_rules::Site::ALL
        .iter()
        .filter(|site| !sim::NOT_SIMULATED.contains(site))
        .map(|site| {
            let hits =
                When::ALL.map(|when| report.faults.sites.get(&(*site, when)).copied().unwrap_or(0));
            (site.name().to_owned(), json!(hits))
        })
        .collect();
    let missing: Vec<_> = report.faults.missing();
    let line = json!({
        "histories": report.histories,
        "short": report.short,
        "steps": report.steps,
        "events": report.events,
        "seconds": report.elapsed.as_secs_f64(),
        "histories_per_hour": report.per_hour(),
        "faults": kinds,
        "sites_before_after_answer_lost": sites,
        "sites_missed": missing.len(),
        "sites_not_simulated": sim::NOT_SIMULATED.map(session_rules::Site::name),
        "violations": report.violations,
    });
    println!("{line}");
    if let Some((seed, violation)) = report.violations.first() {
        bail!("seed {seed}: {violation}; see it again with --one --seed {seed}");
    }
    if !missing.is_empty() {
        bail!(
            "{missing:?} were never met: run it for longer, or give the simulation a way to them"
        );
    }
    Ok(())
}

fn show(story: &Story) -> Result<()> {
    for (session, log) in story.logs.iter().enumerate() {
        for recorded in log {
            let claim = recorded.claim.map_or(String::new(), |claim| format!(" claim {}", claim.0));
            let (kind, payload) = (recorded.event.kind(), recorded.event.payload());
            println!("session {session} {}{claim} {kind} {payload}", recorded.seq.0);
        }
    }
    let Story { seed, steps, events, hash, faults, violation, .. } = story;
    println!("seed {seed}: {steps} steps, {events} events, hash {hash:016x}, {faults:?}");
    println!("{}", violation.as_deref().unwrap_or("every invariant holds"));
    Ok(())
}
