//! Counts the transaction ids that a drain takes, and those of a turn that waits for somebody.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::sessions::{Target, admit, cautious};
use crate::run::up::Up;

/// Long enough to notice sweeps, heartbeats and chores, if they took any.
const QUIET: Duration = Duration::from_secs(8);
/// Time in which the use of the last drain is counted.
const COUNTED: Duration = Duration::from_secs(6);
/// How long one drain may take to sleep or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Reads the next transaction id without taking one.
pub(super) const NEXT: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";

/// Arguments of `commits`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Drains of each length
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    drains: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    up.postgres.no_autovacuum().await?;
    for name in ["a.txt", "b.txt"] {
        std::fs::write(up.workspace.join(name), "a line\n")?;
    }
    let (mut http, target) = (up.http().await?, up.target());
    warm(&target, &mut http).await?;

    note("an idle service");
    tokio::time::sleep(COUNTED).await;
    let before = up.postgres.number(NEXT).await?;
    tokio::time::sleep(QUIET).await;
    let idle = up.postgres.number(NEXT).await? - before;
    ensure!(idle == 0, "{idle} transaction ids were taken while nothing was asked");
    // The use of drains is counted beside them, once in two seconds however many there are.
    up.postgres.no_chores().await?;

    for turns in [1_u32, 2, 3, 5] {
        let session = target.session(&mut http).await?;
        // The same call a third time in a row would wait for a person.
        let reads = ["read a.txt", "read b.txt"].into_iter().cycle();
        let mut steps: Vec<_> = reads.take(usize::try_from(turns)? - 1).collect();
        steps.push("say 3 words");
        let prompt = steps.join(" then ");
        let before = up.postgres.number(NEXT).await?;
        for _ in 0..args.drains {
            target.prompt(&mut http, &session, &prompt).await?;
        }
        // The answer comes after the drain's last commit.
        let taken = up.postgres.number(NEXT).await? - before;
        let each = taken as f64 / f64::from(args.drains);
        // No call closes 50 ms before its stream ends, nothing is checkpointed, and none waits: E = C = S = 0.
        let figure = Figure::new("commits.per_drain", each, "transaction ids")
            .mark(Mark::AtMost(f64::from(2 * turns + 1)))
            .with("turns", f64::from(turns))
            .with("drains", f64::from(args.drains));
        out.print(figure)?;
    }
    out.print(asked(&up, &mut http, args.drains).await?)?;
    up.stop().await
}

/// Counts turns with one call that somebody is asked about: it sleeps (W), is answered (A), and starts (S) with a claim.
async fn asked(up: &Up, http: &mut Http, drains: u32) -> anyhow::Result<Figure> {
    let target = up.target();
    let session = cautious(http, &target).await?;
    let before = up.postgres.number(NEXT).await?;
    for _ in 0..drains {
        admit(http, &session, "run `true`", true).await?;
        until(up, "SELECT count(*) FROM session_head WHERE asleep", 1).await?;
        let asks = http.json(Method::GET, "/platform/ask", &Value::Null).await?;
        let ask = asks[0]["id"].as_str().context("an ask has no id")?;
        let path = format!("/permission/{ask}/reply?directory={}", target.directory.display());
        http.json(Method::POST, &path, &json!({ "reply": "once" })).await?;
        until(up, "SELECT count(*) FROM session_head WHERE open", 0).await?;
    }
    let taken = up.postgres.number(NEXT).await? - before;
    let each = taken as f64 / f64::from(drains);
    let (turns, starts, answers, sleeps) = (2, 2, 1, 1);
    Ok(Figure::new("commits.per_asked_drain", each, "transaction ids")
        .mark(Mark::AtMost(f64::from(2 * turns + 1 + starts + answers + sleeps)))
        .with("turns", f64::from(turns))
        .with("drains", f64::from(drains)))
}

/// Waits until a query answers a number.
async fn until(up: &Up, query: &str, wanted: i64) -> anyhow::Result<()> {
    let waited = async {
        while up.postgres.number(query).await? != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, waited)
        .await
        .with_context(|| format!("{query}: not {wanted}"))?
}

/// Leases the Location and stores the components.
async fn warm(target: &Target, http: &mut Http) -> anyhow::Result<()> {
    let session = target.session(http).await?;
    target.prompt(http, &session, "read a.txt then say 3 words").await
}
