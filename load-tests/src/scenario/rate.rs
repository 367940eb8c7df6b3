//! Measures how many requests two workers send to a provider in any minute, under an organisation's limit.
//!
//! All prompts are admitted at once, in sessions of both workers; some ask the model twice. The times of arrival in
//! the model's log count.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cluster::Cluster;
use crate::run::model::{Asked, Model};
use crate::run::probe;
use crate::run::sessions::{admit, session_in};

const WORKERS: u16 = 2;
const SESSIONS_PER_LOCATION: usize = 5;
/// The provider of `dev-cluster` with a `--model-url`.
const PROVIDER: &str = "custom";
const MINUTE_US: u64 = 60_000_000;
/// The minutes' worth of requests, so that some request waits during the whole measurement.
const MINUTES: usize = 3;
/// How long after the last answer anything may still be open.
const SETTLED: Duration = Duration::from_secs(30);
/// The least share of the limit that must be used.
const USED: f64 = 52.0 / 60.0;

/// Arguments of `rate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests a minute
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(10..=1_000))]
    limit: u16,
    /// Prompts that are admitted at once, each in a session of its own
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(10..=2_000))]
    prompts: u16,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    note("starting a cluster");
    let cluster = Cluster::start(bin, WORKERS).await?;
    out.probed(probe::commits(&cluster.postgres).await?);
    let (limit, prompts) = (usize::from(args.limit), usize::from(args.prompts));
    let requests = (MINUTES * limit + limit / 2).max(prompts);
    ensure!(requests <= 2 * prompts, "too few prompts: {requests} requests are wanted of them");
    let mut http = cluster.http().await?;
    let settings = json!({ "overrides": { "limits": { "requestsPerMinute": limit } } });
    http.json(Method::PUT, &format!("/platform/provider/{PROVIDER}"), &settings).await?;

    let mut sessions = Vec::new();
    for number in 0..prompts {
        let directory = cluster.folder().join(format!("w{}", number / SESSIONS_PER_LOCATION));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("a.txt"), "a line\n")?;
        sessions.push(session_in(&mut http, &directory).await?);
    }
    note(&format!("{prompts} prompts, {requests} requests, {limit} a minute"));
    let began = Instant::now();
    for (number, session) in sessions.iter().enumerate() {
        admit(&mut http, session, &prompt(number, number < requests - prompts), true).await?;
    }
    let admitted = began.elapsed();
    let mut model = cluster.model.http().await?;
    let patience = Duration::from_mins((requests / limit) as u64 + 2);
    Model::wait_for(&mut model, "answered", requests as u64, patience).await?;
    let holders = holders(&cluster).await?;
    ensure!(holders == usize::from(WORKERS), "only {holders} workers had Locations");
    let mut asked = Model::all_asked(&mut model, 0).await?;
    asked.sort_by_key(|asked| asked.arrived_us);
    ensure!(asked.len() == requests, "{} requests for {requests}", asked.len());
    settled(&cluster, prompts).await?;

    let times: Vec<u64> = asked.iter().map(|asked| asked.arrived_us).collect();
    let highest = Figure::new("rate.highest_window", highest(&times) as f64, "requests in 60 s")
        .mark(Mark::AtMost(f64::from(args.limit)))
        .with("prompts", f64::from(args.prompts))
        .with("requests", requests as f64)
        .with("workers", f64::from(WORKERS))
        .with("admitted_s", admitted.as_secs_f64());
    out.print(highest)?;
    let whole = requests / limit * limit;
    let whole = if whole == requests { whole - limit } else { whole };
    let span_us = times[whole] - times[0];
    let used = whole as f64 * MINUTE_US as f64 / span_us as f64;
    let used = Figure::new("rate.used", used, "requests in 60 s, on average")
        .mark(Mark::AtLeast(USED * f64::from(args.limit)))
        .with("requests", whole as f64)
        .with("seconds", span_us as f64 / 1e6);
    out.print(used)?;
    out.print(fairness(&asked, limit, prompts)?)?;
    cluster.stop().await
}

/// Returns a prompt that differs from all others; with `twice`, one that takes two requests.
fn prompt(number: usize, twice: bool) -> String {
    let say = format!("say {} words", number + 1);
    if twice { format!("read a.txt then {say}") } else { say }
}

/// Returns the number of workers that have Locations.
async fn holders(cluster: &Cluster) -> anyhow::Result<usize> {
    let members = cluster.processes("placement")?.into_iter().map(|member| member.url).collect();
    let status = cluster.admin(members)?.status().await?;
    Ok(status.workers.iter().filter(|worker| worker.leases > 0).count())
}

/// Returns the most of these ascending times in any 60 seconds.
fn highest(times: &[u64]) -> usize {
    let upto = |end: usize| {
        let from = times.partition_point(|time| time + MINUTE_US <= times[end]);
        end + 1 - from
    };
    (0..times.len()).map(upto).max().unwrap_or(0)
}

/// Measures how long sessions waited for their first request. A fair share of the limit would serve all of them
/// equally fast.
fn fairness(asked: &[Asked], limit: usize, prompts: usize) -> anyhow::Result<Figure> {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    for asked in asked {
        first.entry(&asked.prompt).or_insert(asked.arrived_us);
    }
    ensure!(first.len() == prompts, "{} prompts of {prompts} asked the model", first.len());
    let began = asked.first().context("no request")?.arrived_us;
    let mut waits: Vec<f64> =
        first.values().map(|arrived| (arrived - began) as f64 / 1e6).collect();
    waits.sort_by(f64::total_cmp);
    let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
    Ok(Figure::new("rate.last_first_request", at(100), "s")
        .with("p50_s", at(50))
        .with("p90_s", at(90))
        .with("in_order_s", ((prompts - 1) / limit) as f64 * 66.0))
}

/// Checks that nothing is open, nothing is lost, and each prompt has its answer.
async fn settled(cluster: &Cluster, prompts: usize) -> anyhow::Result<()> {
    let mut http = cluster.http().await?;
    let began = Instant::now();
    loop {
        let report = http.json(Method::GET, "/platform/check?settled=true", &Value::Null).await?;
        if report.as_array().context("the check answers no list")?.is_empty() {
            break;
        }
        ensure!(began.elapsed() < SETTLED, "not settled after {SETTLED:?}: {report}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let sql = "SELECT count(*) FROM session_event
               WHERE kind = 'drain.ended' AND payload::json ->> 'outcome' = 'completed'";
    let completed = cluster.postgres.number(sql).await?;
    ensure!(completed == i64::try_from(prompts)?, "{completed} of {prompts} prompts completed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_any_sixty_seconds() {
        let seconds = |times: &[u64]| times.iter().map(|time| time * 1_000_000).collect::<Vec<_>>();
        assert_eq!(highest(&seconds(&[0, 1, 59, 60, 61, 200])), 3);
        assert_eq!(highest(&seconds(&[0, 60, 120])), 1);
        assert_eq!(highest(&[]), 0);
    }
}
