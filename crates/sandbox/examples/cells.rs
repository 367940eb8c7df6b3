//! The cost of a command in a cell against a plain fork and exec, in one run and interleaved:
//! `cargo run --release -p sandbox --example cells [COUNT]`.
//!
//! Marks: a command in an existing cell ≤ 6 times a plain one, in a new cell ≤ 12 times.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use std::process::{Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use sandbox::{
    Cell, CellOptions, Command, DiskLimits, Environment, Limits, Tier, TierOptions, Toolchains,
    find_tier,
};
use tokio_util::sync::CancellationToken;

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "launch" => {
            sandbox::launcher::main();
        }
        Some(word) if word == "supervise" => {
            sandbox::supervisor::main(args);
        }
        count => {
            let count = count.and_then(|count| count.to_str()?.parse().ok()).unwrap_or(200);
            let runtime = tokio::runtime::Runtime::new().unwrap();
            for tier in [Tier::A, Tier::B, Tier::C] {
                runtime.block_on(measure(tier, count));
            }
        }
    }
}

async fn measure(tier: Tier, count: usize) {
    let this = std::path::PathBuf::from("/proc/self/exe");
    let folder = tempfile::tempdir().unwrap();
    let options = TierOptions {
        cells: CellOptions {
            launcher: this.clone(),
            prefix: vec!["launch".into()],
            started: None,
            environment: Environment::from_vars(std::env::vars_os()),
            toolchains: Toolchains::find(std::env::vars_os()),
            spool_directory: std::env::temp_dir(),
            uids: (300_000, 8192),
            limits: Limits::of_this_machine(),
            exits: None,
        },
        supervisor: this,
        supervisor_prefix: vec!["supervise".into()],
        probe_directory: folder.path().to_path_buf(),
        disk: DiskLimits::default(),
        open_git: false,
        at_most: tier,
        landlock_at_most: None,
    };
    let found = find_tier(&options).await;
    if found.tier != tier {
        println!("tier {tier}: skipped: {:?}", found.refused);
        return;
    }
    let command = |name: String| {
        let directory = folder.path().to_path_buf();
        let mut command = Command::shell("", directory, Duration::from_secs(60));
        (command.program, command.args) = ("/bin/true".into(), Vec::new());
        Command { cell: Cell { name, ..Cell::default() }, ..command }
    };
    let never = CancellationToken::new();
    let (mut plain, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        let begun = Instant::now();
        StdCommand::new("/bin/true").stdout(Stdio::null()).status().unwrap();
        plain.push(begun.elapsed());
        let begun = Instant::now();
        found.sandbox.run(command("kept".into()), &never).await.unwrap();
        old.push(begun.elapsed());
        let begun = Instant::now();
        found.sandbox.run(command(format!("cell {index}")), &never).await.unwrap();
        new.push(begun.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1000.0
    };
    let (plain, old, new) = (median(&mut plain), median(&mut old), median(&mut new));
    println!(
        "tier {tier}: plain {plain:.2} ms; existing cell {old:.2} ms, {:.1} times; new cell {new:.2} ms, {:.1} times",
        old / plain,
        new / plain
    );
}
