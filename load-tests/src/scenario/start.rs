//! Measures the time from a prompt's request to the provider's request on the wire.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::model::Model;
use crate::run::probe::flush_p50_ms;
use crate::run::sessions::{Target, session_in};
use crate::run::up::Up;
use crate::stats::Samples;

/// Arguments of `start`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Prompts at the leased Location
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    leased: u32,
    /// Locations that nobody holds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    unleased: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    let probe = up.probe().await?;
    out.probed(probe);
    let flush = flush_p50_ms(up.folder())?;
    let (mut http, mut model) = (up.http().await?, up.model.http().await?);
    let target = up.target();

    note("a leased Location");
    let mut leased = Samples::default();
    let mut session = target.session(&mut http).await?;
    for number in 0..args.leased {
        if number % 20 == 0 {
            // A long history would change the measurement.
            session = target.session(&mut http).await?;
            target.prompt(&mut http, &session, "say 2 words").await?;
        }
        leased.push(one(&target, &mut http, &mut model, &session).await?);
    }
    let bound = 2.0 * probe.commit_p50_ms + 3.0;
    let figure = Figure::new("start.leased_p50", leased.ms(50), "ms")
        .mark(Mark::AtMost(bound))
        .with("p99_ms", leased.ms(99))
        .with("samples", leased.len() as f64);
    out.print(figure)?;

    note("Locations that nobody holds");
    let mut unleased = Samples::default();
    for number in 0..args.unleased {
        let directory = up.workspace.join(format!("l{number}"));
        std::fs::create_dir(&directory)?;
        let session = session_in(&mut http, &directory).await?;
        unleased.push(one(&target, &mut http, &mut model, &session).await?);
    }
    let bound = 2.0 * probe.commit_p50_ms + 2.0 * flush + 15.0;
    let figure = Figure::new("start.unleased_p50", unleased.ms(50), "ms")
        .mark(Mark::AtMost(bound))
        .with("p99_ms", unleased.ms(99))
        .with("flush_p50_ms", flush)
        .with("samples", unleased.len() as f64);
    out.print(figure)?;
    up.stop().await
}

/// Sends one prompt, and returns the time until its request is complete at the model. Both sides read the machine's
/// wall clock.
async fn one(
    target: &Target,
    http: &mut Http,
    model: &mut Http,
    session: &str,
) -> anyhow::Result<Duration> {
    Model::forget(model).await?;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let sent_us = now_us()?;
    target.prompt(http, session, "say 2 words").await?;
    let asked = Model::asked(model, 0).await?;
    ensure!(asked.len() == 1, "{} provider requests for one prompt", asked.len());
    let arrived_us = asked.first().context("no provider request")?.arrived_us;
    let took = arrived_us.checked_sub(sent_us).context("the wall clock was set back")?;
    Ok(Duration::from_micros(took))
}

/// Returns the wall clock, the only one that two processes share.
#[expect(clippy::disallowed_methods, reason = "it is compared with the log of another process")]
pub(super) fn now_us() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}
