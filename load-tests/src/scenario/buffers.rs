//! Measures the buffers of Postgres that a turn touches after a thousand messages, against ten.

use std::path::Path;

use super::history::{LONG, SHORT, filled};
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::up::Up;

const PROMPT: &str = "say 20 words";

/// Arguments of `buffers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Turns that are measured at each length
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    turns: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    up.postgres.no_autovacuum().await?;
    let mut http = up.http().await?;
    note("filling a long session and many short ones");
    let long = filled(&up, &mut http, LONG).await?;
    let mut short = Vec::new();
    // Two turns in each session, so that short ones stay short.
    for _ in 0..args.turns / 2 {
        short.push(filled(&up, &mut http, SHORT).await?);
    }
    let short: Vec<&String> = short.iter().flat_map(|session| [session, session]).collect();
    let idle = touched_by(&up, &mut http, &[]).await?;
    let few = (touched_by(&up, &mut http, &short).await? - idle) / short.len() as f64;
    let many =
        (touched_by(&up, &mut http, &vec![&long; short.len()]).await? - idle) / short.len() as f64;
    let figure = Figure::new("buffers.per_turn", many, "buffers")
        .mark(Mark::AtMost(few * 1.2))
        .with("at_10", few)
        .with("turns", short.len() as f64)
        .with("idle", idle);
    out.print(figure)?;
    up.stop().await
}

/// Returns the buffers that one prompt in each of these sessions touches, including those of the service's sweeps
/// meanwhile.
async fn touched_by(up: &Up, http: &mut Http, sessions: &[&String]) -> anyhow::Result<f64> {
    let before = up.postgres.touched().await?;
    for session in sessions {
        up.target().prompt(http, session, PROMPT).await?;
    }
    Ok((up.postgres.touched().await? - before) as f64)
}
