//! Checks that a Mid-Conversation System Message takes no transaction id of its own.

use std::fs;
use std::path::Path;

use anyhow::ensure;

use super::commits::NEXT;
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::sessions::Target;
use crate::run::up::Up;

/// Counts the messages so far.
const TOLD: &str = "SELECT count(*) FROM session_event WHERE kind = 'context.updated'";

/// Arguments of `context-commits`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Drains of one turn with a change of context, and as many without
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    drains: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    up.postgres.no_autovacuum().await?;
    let (mut http, target): (_, Target) = (up.http().await?, up.target());
    let session = target.session(&mut http).await?;
    let instructions = up.workspace.join("AGENTS.md");
    fs::write(&instructions, "As agreed in meeting 0.\n")?;
    // Leases the Location, stores the components, and starts the epoch.
    target.prompt(&mut http, &session, "say 3 words").await?;

    let mut each = Vec::new();
    for changes in [false, true] {
        note(if changes { "the instructions change" } else { "nothing changes" });
        let (before, told) = (up.postgres.number(NEXT).await?, up.postgres.number(TOLD).await?);
        for drain in 1..=args.drains {
            if changes {
                fs::write(&instructions, format!("As agreed in meeting {drain}.\n"))?;
            }
            target.prompt(&mut http, &session, "say 3 words").await?;
        }
        let taken = up.postgres.number(NEXT).await? - before;
        let told = up.postgres.number(TOLD).await? - told;
        let expected = if changes { i64::from(args.drains) } else { 0 };
        ensure!(told == expected, "{told} messages were told for {expected} changes");
        each.push(taken as f64 / f64::from(args.drains));
    }
    let figure = Figure::new("commits.of_a_context_message", each[1] - each[0], "transaction ids")
        .mark(Mark::AtMost(0.0))
        .with("drain", each[0])
        .with("drain_with_one", each[1])
        .with("drains", f64::from(args.drains));
    out.print(figure)?;
    up.stop().await
}
