//! Measures how long one organisation waits for a slot while another has a thousand prompts queued.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::json;

use super::start::now_us;
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::model::{Asked, Model};
use crate::run::sessions::{Target, session_in};
use crate::run::up::Up;
use crate::stats::Samples;

const SLOTS: usize = 8;
const TURN: Duration = Duration::from_millis(100);
/// The crowd's prompt.
const CROWD: &str = "say 2 words";
/// The other organisation's prompt.
const OTHER: &str = "say 3 words";
/// The other organisation and its key.
pub(super) const ORG: &str = "00000000-0000-0000-0000-0000000000b0";
const ORG_KEY: &str = "load-tests-other-key-0123456789";
/// The number of the crowd's prompts that must be left after the last sample, as proof that it competed with a crowd.
const LEFT: i64 = 50;

/// Arguments of `fairness`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Prompts that the one organisation has queued
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(200..=10_000))]
    queued: u32,
    /// First prompts of the other one, each in a new session
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=200))]
    samples: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::with_slots(bin, SLOTS).await?;
    out.probed(up.probe().await?);
    let crowd = up.target();
    let other = second_organisation(&up).await?;
    let mut model = up.model.http().await?;
    let scripts = json!([
        { "match": CROWD, "delay_ms": TURN.as_millis() },
        { "match": OTHER, "delay_ms": TURN.as_millis() },
    ]);
    model.json(Method::PUT, "/sim/scripts", &scripts).await?;
    let mut http = other.http().await?;
    // Leases the Locations.
    first_start(&other, &mut http, &mut model).await?;

    note("alone");
    let mut alone = Samples::default();
    for _ in 0..args.samples {
        alone.push(first_start(&other, &mut http, &mut model).await?);
    }
    // Few sessions with long queues keep their slots; many with one prompt each compete for slots.
    for sessions in [u32::try_from(SLOTS)?, args.queued] {
        note(&format!("beside {} queued prompts in {sessions} sessions", args.queued));
        queue(&crowd, sessions, args.queued).await?;
        // The old connections may have idled for longer than a server keeps them.
        (http, model) = (other.http().await?, up.model.http().await?);
        let mut beside = Samples::default();
        for _ in 0..args.samples {
            beside.push(first_start(&other, &mut http, &mut model).await?);
        }
        let left = left(&up).await?;
        ensure!(left >= LEFT, "only {left} of the queued prompts were left: take fewer samples");
        let bound = 2.0 * alone.ms(50) + TURN.as_secs_f64() * 1e3;
        let figure = Figure::new("fairness.start_p50", beside.ms(50), "ms")
            .mark(Mark::AtMost(bound))
            .with("p99_ms", beside.ms(99))
            .with("alone_p50_ms", alone.ms(50))
            .with("queued", f64::from(args.queued))
            .with("in_sessions", f64::from(sessions))
            .with("left", left as f64)
            .with("slots", SLOTS as f64)
            .with("samples", beside.len() as f64);
        out.print(figure)?;
        finish(&up).await?;
    }
    up.stop().await
}

/// Creates a second organisation with its own key and directory.
pub(super) async fn second_organisation(up: &Up) -> anyhow::Result<Target> {
    let organisation =
        format!("INSERT INTO organisation (org_id, name, created_ms) VALUES ('{ORG}', 'other', 0)");
    let key = format!(
        "INSERT INTO api_key (org_id, id, hash, name, scopes, created_ms)
         VALUES ('{ORG}', 'key_other', sha256(convert_to('{ORG_KEY}', 'UTF8')), 'other', '{{*}}', 0)"
    );
    up.postgres.execute(&organisation).await?;
    up.postgres.execute(&key).await?;
    let directory = up.workspace.join("other");
    std::fs::create_dir(&directory)?;
    Ok(Target { url: up.url.clone(), key: Some(ORG_KEY.to_owned()), directory })
}

/// Returns the time from sending a new session's first prompt until its request is at the model.
async fn first_start(
    target: &Target,
    http: &mut Http,
    model: &mut Http,
) -> anyhow::Result<Duration> {
    let session = session_in(http, &target.directory).await?;
    let before = others(model).await?.len();
    let sent_us = now_us()?;
    target.prompt(http, &session, OTHER).await?;
    let asked = others(model).await?;
    ensure!(asked.len() == before + 1, "{} requests for one prompt", asked.len() - before);
    let arrived_us = asked.last().context("no provider request")?.arrived_us;
    let took = arrived_us.checked_sub(sent_us).context("the wall clock was set back")?;
    Ok(Duration::from_micros(took))
}

/// Returns the requests of the other organisation's turns so far. Requests for titles, which also contain its
/// prompts, are left out.
async fn others(model: &mut Http) -> anyhow::Result<Vec<Asked>> {
    let mut all = Model::asked_with(model, OTHER).await?;
    all.retain(|asked| asked.prompt == OTHER);
    all.sort_by_key(|asked| asked.arrived_us);
    Ok(all)
}

/// Queues this many prompts in this many new sessions. Only the last prompt of each wakes it, so that little runs
/// before all are there.
async fn queue(target: &Target, sessions: u32, prompts: u32) -> anyhow::Result<()> {
    let mut http = target.http().await?;
    let mut ids = Vec::new();
    for _ in 0..sessions {
        ids.push(target.session(&mut http).await?);
    }
    let each = prompts / sessions;
    for number in 1..=each {
        let body = json!({ "text": CROWD, "delivery": "queue", "resume": number == each });
        for session in &ids {
            let path = format!("/platform/session/{session}/message");
            http.json(Method::POST, &path, &body).await?;
        }
    }
    Ok(())
}

/// Returns the number of waiting prompts of all organisations.
async fn left(up: &Up) -> anyhow::Result<i64> {
    up.postgres.number("SELECT coalesce(sum(pending), 0)::bigint FROM session_head").await
}

/// Waits until everything queued has run.
async fn finish(up: &Up) -> anyhow::Result<()> {
    let busy = "SELECT count(*) FROM session_head WHERE ready";
    for _ in 0..1_200 {
        if up.postgres.number(busy).await? == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    anyhow::bail!("the queued prompts did not finish within five minutes")
}
