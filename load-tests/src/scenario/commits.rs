//! Counts the transaction ids that a drain takes.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::sessions::Target;
use crate::run::up::Up;

/// Long enough to notice sweeps and heartbeats, if they took any.
const QUIET: Duration = Duration::from_secs(4);
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
    let before = up.postgres.number(NEXT).await?;
    tokio::time::sleep(QUIET).await;
    let idle = up.postgres.number(NEXT).await? - before;
    ensure!(idle == 0, "{idle} transaction ids were taken while nothing was asked");

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
    up.stop().await
}

/// Leases the Location and stores the components.
async fn warm(target: &Target, http: &mut Http) -> anyhow::Result<()> {
    let session = target.session(http).await?;
    target.prompt(http, &session, "read a.txt then say 3 words").await
}
