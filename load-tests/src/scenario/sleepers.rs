//! Measures the cost of sessions that sleep until somebody answers: memory, work of an idle service, turns beside them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu;
use crate::run::postgres::COUNTED;
use crate::run::sessions::{admit, cautious};
use crate::run::up::Up;
use crate::stats::Samples;

/// Sessions are put to sleep by this many connections at once.
const CLIENTS: u32 = 8;
/// How long an idle service is looked at.
const QUIET: Duration = Duration::from_secs(20);
/// How long the last sessions may take to fall asleep.
const PATIENCE: Duration = Duration::from_secs(300);
/// Turns beside the sleepers.
const TURNS: usize = 100;
const LISTS: usize = 20;

/// Arguments of `sleepers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions that sleep in the end; a tenth of them sleeps at first
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    sessions: u32,
}

/// The costs of a service beside some sleepers.
struct Costs {
    memory_mib: f64,
    cpu_ms_a_second: f64,
    buffers_a_second: f64,
    buffers_a_turn: f64,
    turns: Samples,
    lists: Samples,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let mut up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    up.postgres.no_autovacuum().await?;
    let few = args.sessions / 10;
    put_to_sleep(&up, few).await?;
    up = up.restarted(bin).await?;
    let before = costs(&up).await?;
    put_to_sleep(&up, args.sessions - few).await?;
    up = up.restarted(bin).await?;
    let after = costs(&up).await?;
    let more = f64::from(args.sessions - few);
    let of = |name, value, unit: &str| {
        Figure::new(name, value, unit).with("sleepers", f64::from(args.sessions))
    };
    let grown = (after.memory_mib - before.memory_mib) * 1024.0 / more;
    out.print(
        of("sleepers.memory", grown, "KiB a sleeper")
            .mark(Mark::AtMost(0.5))
            .with("mib_at_a_tenth", before.memory_mib)
            .with("mib", after.memory_mib),
    )?;
    out.print(
        of("sleepers.idle_buffers", after.buffers_a_second, "buffers a second")
            .mark(Mark::AtMost(before.buffers_a_second * 1.2))
            .with("at_a_tenth", before.buffers_a_second),
    )?;
    out.print(
        of("sleepers.idle_cpu", after.cpu_ms_a_second, "ms a second")
            .with("at_a_tenth", before.cpu_ms_a_second),
    )?;
    out.print(
        of("sleepers.turn_buffers", after.buffers_a_turn, "buffers a turn")
            .mark(Mark::AtMost(before.buffers_a_turn * 1.2))
            .with("at_a_tenth", before.buffers_a_turn),
    )?;
    out.print(
        of("sleepers.turn_p50", after.turns.ms(50), "ms")
            .mark(Mark::AtMost(before.turns.ms(50) * 1.15))
            .with("at_a_tenth", before.turns.ms(50)),
    )?;
    out.print(
        of("sleepers.list_p50", after.lists.ms(50), "ms").with("at_a_tenth", before.lists.ms(50)),
    )?;
    up.stop().await
}

/// Makes sessions and prompts each of them so that it waits for an answer. Returns once all do.
async fn put_to_sleep(up: &Up, sessions: u32) -> anyhow::Result<()> {
    note(&format!("putting {sessions} sessions more to sleep"));
    let asleep = "SELECT count(*) FROM session_head WHERE asleep";
    let wanted = up.postgres.number(asleep).await? + i64::from(sessions);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (mut http, target) = (up.http().await?, up.target());
        let mine = (client..sessions).step_by(CLIENTS as usize).count();
        clients.spawn(async move {
            for _ in 0..mine {
                let session = cautious(&mut http, &target).await?;
                admit(&mut http, &session, "run `true`", true).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    let began = Instant::now();
    while up.postgres.number(asleep).await? < wanted {
        ensure!(began.elapsed() < PATIENCE, "some sessions do not fall asleep");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    up.postgres.execute("VACUUM ANALYZE").await?;
    Ok(())
}

async fn costs(up: &Up) -> anyhow::Result<Costs> {
    note("measuring");
    let mut http = up.http().await?;
    let target = up.target();
    let (mut turns, mut lists) = (Samples::default(), Samples::default());
    let session = target.session(&mut http).await?;
    target.prompt(&mut http, &session, "say 2 words").await?;
    let buffers = up.postgres.touched().await?;
    let used = up.used()?.service;
    tokio::time::sleep(QUIET).await;
    let rested = up.postgres.touched().await?;
    let (buffers, began_turns) = (rested - buffers, Instant::now());
    let used = up.used()?.service.saturating_sub(used);
    let memory_mib = cpu::rss_mib(up.pid())?;
    let mut http = up.http().await?; // the service closes connections that are idle for as long
    for number in 0..TURNS {
        let session = target.session(&mut http).await?;
        let began = Instant::now();
        target.prompt(&mut http, &session, "say 2 words").await?;
        if number >= TURNS / 10 {
            turns.push(began.elapsed());
        }
    }
    let (touched, took) = (up.postgres.touched().await? - rested, began_turns.elapsed());
    let mut http = up.http().await?;
    for _ in 0..LISTS {
        let began = Instant::now();
        let asks = http.json(Method::GET, "/platform/ask", &Value::Null).await?;
        ensure!(asks.as_array().is_some_and(|asks| !asks.is_empty()), "nobody waits");
        lists.push(began.elapsed());
    }
    let seconds = (QUIET + COUNTED).as_secs_f64();
    let buffers_a_second = buffers as f64 / seconds;
    // What the service does by itself is no turn's.
    let meanwhile = buffers_a_second * took.as_secs_f64();
    Ok(Costs {
        memory_mib,
        cpu_ms_a_second: used.as_secs_f64() * 1000.0 / seconds,
        buffers_a_second,
        buffers_a_turn: (touched as f64 - meanwhile) / TURNS as f64,
        turns,
        lists,
    })
}
