//! Measures how long it takes until the sessions of a killed worker drain again.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::Value;

use super::start::now_us;
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cluster::{Cluster, kill};
use crate::run::http::Http;
use crate::run::model::Model;
use crate::run::probe;
use crate::run::sessions::{admit, session_in};
use crate::stats::Samples;

const WORKERS: u16 = 3;
const SESSIONS_PER_LOCATION: usize = 5;
/// How long the cluster may take to get all sessions into a turn.
const FILL: Duration = Duration::from_secs(60);
/// How long to wait for the takeover.
const HEAL: Duration = Duration::from_secs(40);

/// Arguments of `takeover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions of each worker
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(5..=500))]
    sessions: u16,
    /// Kill placement's leader at the same moment
    #[arg(long)]
    leader: bool,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    note("starting a cluster");
    let cluster = Cluster::start(bin, WORKERS).await?;
    out.probed(probe::commits(&cluster.postgres).await?);
    let mut model = cluster.model.http().await?;
    Model::hold(&mut model, "hold").await?;
    let all = usize::from(args.sessions) * usize::from(WORKERS);
    let mut http = cluster.http().await?;
    note(&format!("bringing {all} sessions into a turn"));
    for number in 0..all {
        let directory = cluster.folder().join(format!("w{}", number / SESSIONS_PER_LOCATION));
        std::fs::create_dir_all(&directory)?;
        let session = session_in(&mut http, &directory).await?;
        admit(&mut http, &session, &prompt(number), true).await?;
    }
    Model::wait_for(&mut model, "pending", all as u64, FILL).await?;

    let worker = cluster.processes("worker")?.into_iter().next().context("no worker")?;
    let leader = if args.leader { Some(cluster.leader().await?) } else { None };
    note("killing a worker");
    let killed_us = now_us()?;
    kill(&worker)?;
    if let Some(leader) = &leader {
        kill(leader)?;
    }
    let (lost, again) = healed(&mut model, killed_us).await?;
    ensure!(lost * 2 >= usize::from(args.sessions), "only {lost} sessions were that worker's");
    Model::open(&mut model).await?;
    settled(&mut http).await?;
    let (name, bound) = if args.leader {
        ("takeover.with_leader_p99", 10_000.0)
    } else {
        ("takeover.p99", 5_000.0)
    };
    let figure = Figure::new(name, again.ms(99), "ms")
        .mark(Mark::AtMost(bound))
        .with("p50_ms", again.ms(50))
        .with("max_ms", again.ms(100))
        .with("sessions", lost as f64)
        .with("mid_turn", all as f64);
    out.print(figure)?;
    cluster.stop().await
}

fn prompt(number: usize) -> String {
    format!("hold {number:05}.")
}

/// Waits until every session whose request was cut has asked the model again. Returns their number, and the times
/// since the kill.
async fn healed(model: &mut Http, killed_us: u64) -> anyhow::Result<(usize, Samples)> {
    let began = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let asked = Model::all_asked(model, 0).await?;
        let gone = asked.iter().filter(|asked| asked.outcome == "client_gone");
        let lost: BTreeSet<&String> = gone.map(|asked| &asked.prompt).collect();
        let mut again: HashMap<&String, u64> = HashMap::new();
        for asked in asked.iter().filter(|asked| asked.arrived_us > killed_us) {
            again.entry(&asked.prompt).or_insert(asked.arrived_us - killed_us);
        }
        let missing = lost.iter().filter(|prompt| !again.contains_key(*prompt)).count();
        if missing == 0 && !lost.is_empty() {
            let mut samples = Samples::default();
            for prompt in &lost {
                samples.push(Duration::from_micros(again[*prompt]));
            }
            return Ok((lost.len(), samples));
        }
        ensure!(
            began.elapsed() < HEAL,
            "{missing} of {} sessions do not drain again after {HEAL:?}",
            lost.len()
        );
    }
}

/// Waits until nothing is open, then lets the service check its rows.
async fn settled(http: &mut Http) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let report = http.json(Method::GET, "/platform/check?settled=true", &Value::Null).await?;
        let violations = report.as_array().context("the check answers no list")?;
        if violations.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < HEAL, "not settled after {HEAL:?}: {report}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
