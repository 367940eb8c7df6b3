//! Drives a release build of OpenCode Cloud and prints its measurements, one JSON line for each figure.
//!
//! ```text
//! load-tests ─HTTP→ opencode-cloud up | dev-cluster ─→ its Postgres
//! │                        └─HTTP→ opencode-cloud simulated-model (its own process)
//! └─ reads CPU time and memory of each from /proc, counts transactions and rows in Postgres
//! ```
//!
//! It starts everything in a temporary folder on free ports of loopback, and stops it all. Every run is bounded in
//! count and time. Each line has the commit probe of its run: the time that one client needs for a durable insert of
//! one row into the same Postgres.
//! The README of this folder has the marks and the measured figures.

mod output;
mod run;
mod scenario;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

use crate::output::Reporter;

/// The service's own allocator, so that `streams` and `decode` allocate like the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The measurement.
#[derive(Debug, Parser)]
#[command(name = "load-tests", max_term_width = 100)]
struct Cli {
    /// The executable to measure: a release build
    #[arg(
        long,
        value_name = "PATH",
        env = "OC_BIN",
        default_value = "target/release/opencode-cloud"
    )]
    bin: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prompts admitted a second and a CPU-second, and how long one takes at half the highest rate
    Admit(scenario::admit::Args),
    /// From a prompt to the provider's request on the wire, for a leased and an unleased Location
    Start(scenario::start::Args),
    /// Turns a second at 1, 8, 32 and 128 sessions, their CPU, and memory after a thousand
    Turns(scenario::turns::Args),
    /// Transaction ids that a drain takes
    Commits(scenario::commits::Args),
    /// Transaction ids that a change of context takes
    ContextCommits(scenario::context_commits::Args),
    /// The cost of a turn after a thousand messages, against ten
    History(scenario::history::Args),
    /// Postgres buffers that a turn touches after a thousand messages, against ten
    Buffers(scenario::buffers::Args),
    /// Bytes that a turn takes in each table and in the write-ahead log
    Bytes(scenario::bytes::Args),
    /// How long one organisation waits while another has a thousand prompts queued
    Fairness(scenario::fairness::Args),
    /// One organisation's turns while another locks, floods, deletes, imports and fills its disk
    Neighbours(scenario::neighbours::Args),
    /// Admission beside a million idle sessions, against a thousand
    Idle(scenario::idle::Args),
    /// The cost of a turn's snapshot in a workspace of 50,000 files
    Snapshot(scenario::snapshot::Args),
    /// How long until the sessions of a killed worker drain again
    Takeover(scenario::takeover::Args),
    /// How many requests two workers send to a provider in any minute, under a limit
    Rate(scenario::rate::Args),
    /// Our service and the released server beside each other: requests, turns, memory
    Compare(scenario::compare::Args),
    /// The cost of ten thousand sessions that sleep until somebody answers
    Sleepers(scenario::sleepers::Args),
    /// More CPU a turn of a service whose metrics are scraped and whose turns are traced
    Telemetry(scenario::telemetry::Args),
    /// The console's live view while an answer streams: long tasks, and script a frame
    Live(scenario::live::Args),
    /// Sessions with a repository of 40,000 files, beside the machine's git
    Repositories(scenario::repositories::Args),
    /// How long the lists take that clients open with: messages of a session, sessions of an organisation
    Lists(scenario::lists::Args),
    /// How long questions about usage take over 90 days and a million turns
    Usage(scenario::usage::Args),
    /// The cost of decoding a stream, against parsing its frames into `serde_json::Value`
    Decode(scenario::decode::Args),
    /// Memory of a process that reads a thousand streams at once through `llm-client`
    Streams(scenario::streams::Args),
    /// The server that `streams` reads from, as its own process
    #[command(hide = true)]
    StreamsServer(scenario::streams::server::Args),
    /// The process that `streams` measures
    #[command(hide = true)]
    StreamsClient(scenario::streams::client::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread: the driver is not measured, and several threads would take part of the machine to wake each other.
    let measured = matches!(cli.what, What::StreamsClient(_));
    let mut runtime =
        if measured { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let mut out = Reporter::new();
    let bin = || run::executable(&cli.bin);
    let ran = runtime.block_on(async {
        match &cli.what {
            What::Admit(args) => scenario::admit::run(&bin()?, args, &mut out).await,
            What::Start(args) => scenario::start::run(&bin()?, args, &mut out).await,
            What::Turns(args) => scenario::turns::run(&bin()?, args, &mut out).await,
            What::Commits(args) => scenario::commits::run(&bin()?, args, &mut out).await,
            What::ContextCommits(args) => {
                scenario::context_commits::run(&bin()?, args, &mut out).await
            }
            What::History(args) => scenario::history::run(&bin()?, args, &mut out).await,
            What::Buffers(args) => scenario::buffers::run(&bin()?, args, &mut out).await,
            What::Bytes(args) => scenario::bytes::run(&bin()?, args, &mut out).await,
            What::Fairness(args) => scenario::fairness::run(&bin()?, args, &mut out).await,
            What::Neighbours(args) => scenario::neighbours::run(&bin()?, args, &mut out).await,
            What::Idle(args) => scenario::idle::run(&bin()?, args, &mut out).await,
            What::Snapshot(args) => scenario::snapshot::run(&bin()?, args, &mut out).await,
            What::Takeover(args) => scenario::takeover::run(&bin()?, args, &mut out).await,
            What::Rate(args) => scenario::rate::run(&bin()?, args, &mut out).await,
            What::Compare(args) => scenario::compare::run(&bin()?, args, &mut out).await,
            What::Lists(args) => scenario::lists::run(&bin()?, args, &mut out).await,
            What::Usage(args) => scenario::usage::run(&bin()?, args, &mut out).await,
            What::Live(args) => scenario::live::run(&bin()?, args, &mut out).await,
            What::Repositories(args) => scenario::repositories::run(&bin()?, args, &mut out).await,
            What::Telemetry(args) => scenario::telemetry::run(&bin()?, args, &mut out).await,
            What::Sleepers(args) => scenario::sleepers::run(&bin()?, args, &mut out).await,
            What::Decode(args) => scenario::decode::run(args, &mut out),
            What::Streams(args) => scenario::streams::run(args, &mut out).await,
            What::StreamsServer(args) => scenario::streams::server::run(args).await,
            What::StreamsClient(args) => scenario::streams::client::run(args).await,
        }
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    output::note(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
