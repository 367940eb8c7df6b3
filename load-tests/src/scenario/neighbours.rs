//! Measures the turns of one organisation beside another that locks, floods, deletes, imports and fills its disk.
//!
//! ```text
//! quiet ──turns, a thread of its own──▶ serve ◀──all kinds of work at once── hostile
//!                                        └─▶ Postgres ◀── locks a session of the hostile one
//! ```
//!
//! Both share the machine, and the kernel alone divides its processors between them: what the hostile one's requests
//! cost is a part of what is measured.

mod caller;
mod copies;
mod hostile;
mod quiet;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::copies::Copies;
use self::hostile::{Hostile, Kind, Means};
use self::quiet::{Seen, measure_turns};
use super::fairness::{ORG, second_organisation};
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu::Used;
use crate::run::sessions::{Target, admit};
use crate::run::up::Up;

/// Room for all sessions of both, so that none waits for a slot, and a small workspace, so that it can be filled.
const FLAGS: [&str; 2] = ["--slots=64", "--workspace-size=64MiB"];
/// How long the quiet organisation prompts before anything is measured, and the hostile one works before the other is
/// measured beside it.
const WARM_UP: Duration = Duration::from_secs(3);
/// How long what the hostile one has left may take to be cleared.
const CLEARED: Duration = Duration::from_mins(10);
/// Connections that fill the session that is imported.
const FILLERS: u32 = 8;
/// The most that p99 may grow.
const GROWTH: f64 = 1.5;
/// The refusals that are shown.
const SHOWN: usize = 10;

/// Arguments of `neighbours`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each span, alone and beside the other organisation
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=600))]
    span: u16,
    /// Rounds, each with a span alone and one beside the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
    /// Sessions of the quiet organisation that prompt at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    sessions: u8,
    /// Connections of the hostile organisation for each kind of work; unknown keys have 64
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=4))]
    connections: u8,
    /// Prompts of the session that it imports and deletes; each is two events
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    prompts: u32,
    /// Have each full file written to the disk before it is removed: else the kernel seldom gets to it
    #[arg(long)]
    flushed: bool,
    /// The kinds of work, to tell apart which of them delays the other; all if none is given
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::with_flags(bin, &FLAGS).await?;
    out.probed(up.probe().await?);
    let (quiet, other) = (up.target(), second_organisation(&up).await?);
    note(&format!("exporting a session of {} prompts", args.prompts));
    let copies = Copies::of_export(&exported(&other, args.prompts).await?)?;
    let kinds = if args.only.is_empty() { Kind::ALL.to_vec() } else { args.only.clone() };
    let means = Means { connections: args.connections, is_flushed: args.flushed, kinds };
    let hostile = Hostile::new(other, up.postgres.pool.clone(), copies, means);
    let measure = |span| measure_turns(quiet.clone(), args.sessions, span);
    measure(WARM_UP).await?;

    let span = Duration::from_secs(args.span.into());
    let (mut alone, mut beside) = (Seen::default(), Seen::default());
    let mut cpu = Vec::new();
    // The two alternate, so that a change of the machine's speed affects both.
    for round in 1..=args.rounds {
        let seen = measure(span).await?;
        say_seen(round, "alone", &seen);
        alone.add(seen);
        let tasks = hostile.begin();
        tokio::time::sleep(WARM_UP).await;
        let before = up.used()?;
        let seen = measure(span).await?;
        cpu.push(up.used()?.since(before));
        hostile.end(tasks).await?;
        say_seen(round, "beside the other", &seen);
        beside.add(seen);
        clear_leavings(&up).await?;
    }
    report_hostile(&hostile, out)?;
    report_cpu(&cpu, out)?;
    report_quiet(args, &alone, &beside, out)?;
    up.stop().await
}

/// Fills a session with prompts, lets it answer them, and exports it.
async fn exported(target: &Target, prompts: u32) -> anyhow::Result<String> {
    let mut http = target.http().await?;
    let session = target.session(&mut http).await?;
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let (target, session) = (target.clone(), session.clone());
        fillers.spawn(async move {
            let mut http = target.http().await?;
            for _ in (filler..prompts - 1).step_by(FILLERS as usize) {
                admit(&mut http, &session, "say 2 words", false).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(filled) = fillers.join_next().await {
        filled??;
    }
    admit(&mut http, &session, "say 2 words", true).await?;
    let path = format!("/platform/session/{session}/wait");
    let waited = http.json(Method::POST, &path, &json!({ "seconds": 110 })).await?;
    ensure!(waited["busy"] == Value::Bool(false), "{session} did not finish: {waited}");
    let path = format!("/platform/session/{session}/export");
    let (status, export) = http.call(Method::GET, &path, String::new()).await?;
    ensure!(status == StatusCode::OK, "{path} answered {status}");
    Ok(String::from_utf8(export.to_vec())?)
}

/// Waits until what the hostile organisation has begun is done, and its deleted rows are gone: they would be a burden of
/// the next span, in which the other one is measured alone.
async fn clear_leavings(up: &Up) -> anyhow::Result<()> {
    let left = format!(
        "SELECT (SELECT count(*) FROM session_head WHERE org_id = '{ORG}' AND ready)
             + (SELECT count(*) FROM gone_session)"
    );
    let begun = Instant::now();
    while up.postgres.number(&left).await? > 0 {
        ensure!(begun.elapsed() < CLEARED, "what the hostile organisation left was not cleared");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    note(&format!("cleared after {:.1} s", begun.elapsed().as_secs_f64()));
    up.postgres.execute("VACUUM").await?;
    up.postgres.execute("CHECKPOINT").await?;
    tokio::time::sleep(WARM_UP).await;
    Ok(())
}

fn say_seen(round: u8, manner: &str, seen: &Seen) {
    let Seen { turns, refused } = seen;
    note(&format!(
        "round {round}, {manner}: {} turns, p50 {:.1} ms, p99 {:.1} ms, {} refused",
        turns.len(),
        turns.ms(50),
        turns.ms(99),
        refused.len()
    ));
}

/// Prints what was done of each kind. None may have done nothing: then nothing was measured.
fn report_hostile(hostile: &Hostile, out: &mut Reporter) -> anyhow::Result<()> {
    let mut idle = Vec::new();
    for (kind, tally) in hostile.tallies() {
        if !hostile.does(kind) {
            continue;
        }
        let [done, refused, effective] = tally.counts();
        let figure = Figure::new("neighbours.hostile", done as f64, "operations")
            .text("kind", kind.name())
            .with("refused", refused as f64)
            .with("effective", effective as f64);
        out.print(figure)?;
        if let Some(error) = tally.first_error() {
            note(&format!("{}: the first that was refused: {error}", kind.name()));
        }
        if effective == 0 {
            idle.push(kind.name());
        }
    }
    ensure!(idle.is_empty(), "the hostile organisation did nothing of this: {}", idle.join(", "));
    Ok(())
}

/// Prints the CPU time of each participant while both organisations worked. That of commands is not in it.
fn report_cpu(cpu: &[Used], out: &mut Reporter) -> anyhow::Result<()> {
    let sum = |part: fn(&Used) -> Duration| cpu.iter().map(part).sum::<Duration>().as_secs_f64();
    let (service, postgres) = (sum(|used| used.service), sum(|used| used.postgres));
    let (model, driver) = (sum(|used| used.model), sum(|used| used.driver));
    let figure = Figure::new("neighbours.cpu", service + postgres + model + driver, "s")
        .with("service_s", service)
        .with("postgres_s", postgres)
        .with("model_s", model)
        .with("driver_s", driver);
    out.print(figure)
}

fn report_quiet(
    args: &Args,
    alone: &Seen,
    beside: &Seen,
    out: &mut Reporter,
) -> anyhow::Result<()> {
    let least = alone.turns.len().min(beside.turns.len());
    ensure!(least > 0, "no turn of the quiet organisation was answered: take a longer --span");
    let growth = beside.turns.ms(99) / alone.turns.ms(99);
    let figure = Figure::new("neighbours.turn_p99", growth, "of that alone")
        .mark(Mark::AtMost(GROWTH))
        .with("p99_ms", beside.turns.ms(99))
        .with("p50_ms", beside.turns.ms(50))
        .with("turns", beside.turns.len() as f64)
        .with("alone_p99_ms", alone.turns.ms(99))
        .with("alone_p50_ms", alone.turns.ms(50))
        .with("alone_turns", alone.turns.len() as f64)
        .with("sessions", f64::from(args.sessions))
        .with("rounds", f64::from(args.rounds))
        .with("span_s", f64::from(args.span));
    out.print(figure)?;
    for refused in alone.refused.iter().chain(&beside.refused).take(SHOWN) {
        note(&format!("refused: {refused}"));
    }
    let (alone, beside) = (alone.refused.len() as f64, beside.refused.len() as f64);
    let figure = Figure::new("neighbours.refused", alone + beside, "requests")
        .mark(Mark::AtMost(0.0))
        .with("alone", alone)
        .with("beside", beside);
    out.print(figure)
}
