//! Measures what Workspace Snapshots add to turns: the same turns at a service with and at one without them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::snapshot::{fill, path};
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::sessions::Target;
use crate::run::up::Up;
use crate::stats::Samples;

/// Turns in one session, so that no history grows long.
const TURNS: u32 = 20;
/// How long a service may keep using a feature level that it has read.
const BELIEVED: Duration = Duration::from_secs(75);
const SNAPSHOTS: &str = "SELECT count(*) FROM session_event WHERE kind = 'workspace.snapshotted'";

/// A service with the workspace, and a session there.
struct Side {
    up: Up,
    target: Target,
    http: Http,
    session: String,
    asked: u32,
    edits: Samples,
    reads: Samples,
}

impl Side {
    async fn start(bin: &Path, files: u32) -> anyhow::Result<Self> {
        let up = Up::start(bin).await?;
        fill(&up.workspace, files)?;
        let (target, mut http) = (up.target(), up.http().await?);
        let session = target.session(&mut http).await?;
        let (edits, reads) = (Samples::default(), Samples::default());
        Ok(Self { up, target, http, session, asked: 0, edits, reads })
    }

    async fn snapshots(&self) -> anyhow::Result<i64> {
        self.up.postgres.number(SNAPSHOTS).await
    }

    /// Returns the time until a prompt's whole answer is there.
    async fn prompt(&mut self, text: &str) -> anyhow::Result<Duration> {
        if self.asked.is_multiple_of(TURNS) {
            self.session = self.target.session(&mut self.http).await?;
        }
        self.asked += 1;
        let began = Instant::now();
        self.target.prompt(&mut self.http, &self.session, text).await?;
        Ok(began.elapsed())
    }

    /// Runs two turns: one call that edits one file, and the answer to its result.
    async fn edit(&mut self, number: u32, edit: u32) -> anyhow::Result<Duration> {
        self.prompt(&format!("create {} containing edit {edit}", path(number))).await
    }

    async fn read(&mut self, number: u32) -> anyhow::Result<Duration> {
        self.prompt(&format!("read {}", path(number))).await
    }
}

/// Alternates between the two services. The model answers at once, so that no provider call hides a capture: the
/// prompt's time includes everything that a drain waits for.
pub(crate) async fn run(
    bin: &Path,
    files: u32,
    edits: u32,
    out: &mut Reporter,
) -> anyhow::Result<()> {
    note("turns with snapshots, and without");
    let mut with = Side::start(bin, files).await?;
    out.probed(with.up.probe().await?);
    let mut without = Side::start(bin, files).await?;
    switch_off(&mut without).await?;
    // The base snapshot looks at all files once.
    let base = with.edit(1, 0).await?;
    ensure!(with.snapshots().await? > 0, "this service takes no snapshots");

    let (before, off) = (with.snapshots().await?, without.snapshots().await?);
    for edit in 1..=edits {
        let number = edit.wrapping_mul(7_919) % files;
        let sample = with.edit(number, edit).await?;
        with.edits.push(sample);
        let sample = without.edit(number, edit).await?;
        without.edits.push(sample);
    }
    let taken = with.snapshots().await? - before;
    ensure!(taken == i64::from(edits), "{taken} snapshots of {edits} edits");
    for read in 1..=edits {
        let number = read.wrapping_mul(7_919) % files;
        let sample = with.read(number).await?;
        with.reads.push(sample);
        let sample = without.read(number).await?;
        without.reads.push(sample);
    }
    ensure!(with.snapshots().await? == before + taken, "a turn that edits nothing was captured");
    ensure!(without.snapshots().await? == off, "the other service takes snapshots again");

    for (name, mark, with, without) in [
        ("snapshot.turn_with_an_edit", 10.0, &with.edits, &without.edits),
        // Two services differ this much by chance.
        ("snapshot.turn_without", 0.05 * without.reads.ms(50), &with.reads, &without.reads),
    ] {
        let figure = Figure::new(name, with.ms(50) - without.ms(50), "ms added, p50")
            .mark(Mark::AtMost(mark))
            .with("with_p50_ms", with.ms(50))
            .with("without_p50_ms", without.ms(50))
            .with("with_p99_ms", with.ms(99))
            .with("without_p99_ms", without.ms(99))
            .with("files", f64::from(files))
            .with("turns", with.len() as f64)
            .with("base_ms", base.as_secs_f64() * 1_000.0);
        out.print(figure)?;
    }
    without.up.stop().await?;
    with.up.stop().await
}

/// Lowers the service's feature level to one without snapshots, and waits until it uses that.
async fn switch_off(side: &mut Side) -> anyhow::Result<()> {
    side.up.postgres.execute("UPDATE cluster SET feature_level = 1").await?;
    let deadline = Instant::now() + BELIEVED;
    let mut edit = 1_000_000;
    loop {
        let before = side.snapshots().await?;
        edit += 1;
        side.edit(0, edit).await.context("a turn at the lower level")?;
        if side.snapshots().await? == before {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the service takes snapshots at feature level 1");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
