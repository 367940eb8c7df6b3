//! Measures whole turns: their rate, their cost, and the memory that they leave.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use tokio::task::JoinSet;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu::rss_mib;
use crate::run::drive::drive;
use crate::run::http::Http;
use crate::run::model::Model;
use crate::run::up::Up;

const SESSIONS: [usize; 4] = [1, 8, 32, 128];
const PROMPT: &str = "say 20 words";
/// The released server's turns a second at 128 sessions, measured on a machine with two cores.
const RELEASED: f64 = 25.2;
/// The CPU time of one of its turns.
const RELEASED_CPU_MS: f64 = 50.0;

/// Arguments of `turns`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds at each number of sessions
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Only this many sessions
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    sessions: Option<u16>,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let span = Duration::from_secs(args.seconds);
    let fresh = rss_mib(up.pid())?;
    note("warming up");
    drive(&up.target(), 8, Duration::from_secs(2), PROMPT).await?;
    let body = recorded_body(&up.model).await?;
    ceiling(&up.model, body, out).await?;

    let counts = args.sessions.map_or(SESSIONS.to_vec(), |only| vec![usize::from(only)]);
    let mut all = 0;
    for sessions in counts {
        note(&format!("{sessions} sessions"));
        let before = up.used()?;
        let ran = drive(&up.target(), sessions, span, PROMPT).await?;
        let used = up.used()?.since(before);
        let turns = ran.turns.len() as f64;
        all += ran.turns.len();
        let per_turn = |time: Duration| time.as_secs_f64() * 1e3 / turns;
        let rate = Figure::new("turns.rate", ran.rate(), "1/s")
            .with("sessions", sessions as f64)
            .with("p50_ms", ran.turns.ms(50))
            .with("p99_ms", ran.turns.ms(99))
            .with("seconds", ran.took.as_secs_f64());
        out.print(if sessions == 128 { rate.mark(Mark::AtLeast(20.0 * RELEASED)) } else { rate })?;
        let cpu = Figure::new("turns.cpu", per_turn(used.service + used.postgres), "ms")
            .mark(Mark::AtMost(RELEASED_CPU_MS / 15.0))
            .with("sessions", sessions as f64)
            .with("service_ms", per_turn(used.service))
            .with("postgres_ms", per_turn(used.postgres))
            .with("model_ms", per_turn(used.model))
            .with("driver_ms", per_turn(used.driver));
        out.print(cpu)?;
    }
    ensure!(all >= 1_000 || args.seconds < 30, "only {all} turns: too few for a figure of memory");
    let rss = Figure::new("turns.rss", rss_mib(up.pid())?, "MiB")
        .mark(Mark::AtMost(150.0))
        .with("turns", all as f64)
        .with("fresh_mib", fresh);
    out.print(rss)?;
    up.stop().await
}

/// Returns the body of a request that the service sent, to send the model the same.
async fn recorded_body(model: &Model) -> anyhow::Result<String> {
    let mut http = model.http().await?;
    let asked = Model::asked(&mut http, 0).await?;
    asked.into_iter().find_map(|asked| asked.body).context("the model kept no body")
}

/// Measures the answers per second of driver and model without a service between them.
async fn ceiling(model: &Model, body: String, out: &mut Reporter) -> anyhow::Result<()> {
    note("the driver's and the model's own ceiling");
    let (span, clients, body) = (Duration::from_secs(4), 32, Arc::new(body));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (mut http, body): (Http, _) = (model.http().await?, body.clone());
        tasks.spawn(async move {
            let mut answers = 0_u32;
            while began.elapsed() < span {
                let path = "/v1/chat/completions";
                let (status, _) = http.call(Method::POST, path, body.to_string()).await?;
                ensure!(status.is_success(), "the model answered {status}");
                answers += 1;
            }
            anyhow::Ok(answers)
        });
    }
    let mut answers = 0;
    while let Some(ended) = tasks.join_next().await {
        answers += ended??;
    }
    let rate = f64::from(answers) / began.elapsed().as_secs_f64();
    out.print(Figure::new("turns.driver_and_model_ceiling", rate, "1/s"))
}
