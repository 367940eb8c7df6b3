//! Measures a turn's snapshot in a large workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use blobs::Blobs;
use domain::{FencingToken, LocationRef, OrgId, SystemClock};
use snapshots::{Captured, PackRef, Shadow, ShadowOptions, SnapshotLimits, Touched, Unsaved};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::up::Up;
use crate::stats::Samples;

/// Files in one directory.
const PER_DIRECTORY: u32 = 100;
/// Looks at all files.
const LOOKS: usize = 20;
/// Captures after calls that change nothing.
const IDLE: usize = 1_000;

/// Arguments of `snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files in the workspace, of 40 to 4,000 bytes, 100 in a directory
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(100..=190_000))]
    files: u32,
    /// Edits of one file each
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    edits: u32,
}

/// Measures captures alone first, from the settled call to the durable pack with its listed changes. The service is
/// only needed for the probe, because it uses the same disk. Then measures what captures add to whole turns.
pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let options = options(up.folder())?;
    note(&format!("making {} files", args.files));
    let bytes = fill(&options.root, args.files)?;
    let shadow = Shadow::open(options.clone()).await?;

    note("the first capture");
    let began = Instant::now();
    let first = capture(&shadow, &Touched::Anything).await?.context("all files are new")?;
    let figure = Figure::new("snapshot.first", began.elapsed().as_secs_f64(), "s")
        .with("files", f64::from(args.files))
        .with("files_mib", bytes as f64 / 1_048_576.0)
        .with("pack_mib", first.bytes as f64 / 1_048_576.0);
    out.print(figure)?;
    let mut rows = vec![first.pack_ref()];

    note("one edit a turn");
    let (mut edits, mut packed) = (Samples::default(), 0);
    for edit in 0..args.edits {
        let number = edit.wrapping_mul(7_919) % args.files;
        fs::write(options.root.join(path(number)), content(number, edit + 1))?;
        let touched = Touched::path(path(number));
        let began = Instant::now();
        let captured = capture(&shadow, &touched).await?.context("a file changed")?;
        edits.push(began.elapsed());
        ensure!(captured.changes.files.len() == 1, "{:?}", captured.changes);
        packed += captured.bytes;
        rows.push(captured.pack_ref());
    }
    let figure = Figure::new("snapshot.edit_p50", edits.ms(50), "ms")
        .mark(Mark::AtMost(10.0))
        .with("p99_ms", edits.ms(99))
        .with("files", f64::from(args.files))
        .with("edits", f64::from(args.edits))
        .with("pack_bytes", packed as f64 / f64::from(args.edits));
    out.print(figure)?;

    note("turns that edit nothing");
    let mut idle = Samples::default();
    for _ in 0..IDLE {
        let began = Instant::now();
        ensure!(capture(&shadow, &Touched::Nothing).await?.is_none(), "nothing was touched");
        idle.push(began.elapsed());
    }
    let figure = Figure::new("snapshot.idle_p50", idle.ms(50), "ms")
        .mark(Mark::AtMost(0.01))
        .with("p99_ms", idle.ms(99));
    out.print(figure)?;

    note("commands that edit one file: a look at all of them");
    let mut looks = Samples::default();
    for round in 0..LOOKS {
        let number = u32::try_from(round)? % args.files;
        fs::write(options.root.join(path(number)), content(number, args.edits + 1))?;
        let began = Instant::now();
        let captured = capture(&shadow, &Touched::Anything).await?.context("a file changed")?;
        looks.push(began.elapsed());
        rows.push(captured.pack_ref());
    }
    let figure = Figure::new("snapshot.look_p50", looks.ms(50), "ms")
        .with("p99_ms", looks.ms(99))
        .with("files", f64::from(args.files));
    out.print(figure)?;

    note("another worker takes the workspace over");
    takeover(options, rows, args, out).await?;
    up.stop().await?;
    super::snapshot_turns::run(bin, args.files, args.edits, out).await
}

/// Creates this many files, and returns their size in bytes.
pub(super) fn fill(root: &Path, files: u32) -> anyhow::Result<usize> {
    let mut bytes = 0;
    for number in 0..files {
        let content = content(number, 0);
        bytes += content.len();
        let path = root.join(path(number));
        fs::create_dir_all(path.parent().context("a directory")?)?;
        fs::write(path, content)?;
    }
    Ok(bytes)
}

/// Opens all packs and restores all files into a new directory.
async fn takeover(
    options: ShadowOptions,
    packs: Vec<PackRef>,
    args: &Args,
    out: &mut Reporter,
) -> anyhow::Result<()> {
    let newest = packs.last().context("there are rows")?.tree;
    let count = packs.len();
    let root = options.root.with_extension("other");
    fs::create_dir(&root)?;
    let cache = options.cache.with_extension("other");
    let token = FencingToken(options.token.0 + 1);
    let options = ShadowOptions { root: root.clone(), cache, packs, token, ..options };
    let began = Instant::now();
    let shadow = Shadow::open(options).await?;
    let opened = began.elapsed();
    let restored = shadow.restore(&newest, None, Unsaved::Overwrite).await?;
    let figure = Figure::new("snapshot.takeover", began.elapsed().as_secs_f64(), "s")
        .with("open_ms", opened.as_secs_f64() * 1_000.0)
        .with("packs", count as f64)
        .with("files", f64::from(args.files));
    ensure!(restored.left.is_empty(), "{:?} were left", restored.left);
    let edited: BTreeSet<u32> =
        (0..args.edits).map(|n| n.wrapping_mul(7_919) % args.files).collect();
    let untouched = (LOOKS as u32..args.files).find(|number| !edited.contains(number));
    if let Some(number) = untouched {
        ensure!(fs::read_to_string(root.join(path(number)))? == content(number, 0), "{number}");
    }
    out.print(figure)
}

async fn capture(shadow: &Shadow, touched: &Touched) -> anyhow::Result<Option<Captured>> {
    let captured = shadow.capture(touched).await?;
    if let Some(captured) = &captured {
        ensure!(captured.skipped.count == 0, "{:?}", captured.skipped);
        shadow.committed(captured).await;
    }
    Ok(captured)
}

fn options(folder: &Path) -> anyhow::Result<ShadowOptions> {
    let root = folder.join("large");
    fs::create_dir(&root)?;
    Ok(ShadowOptions {
        root,
        cache: folder.join("snapshot-cache"),
        blobs: Blobs::in_folder(&folder.join("snapshot-blobs"))?,
        at: LocationRef { org: OrgId::FIRST, location: "loc_load".parse()? },
        token: FencingToken(1),
        lock: None,
        packs: Vec::new(),
        seed: Vec::new(),
        git: true,
        hidden: Default::default(),
        limits: SnapshotLimits::default(),
        clock: Arc::new(SystemClock::new()),
    })
}

/// Returns a path with three levels of directories.
pub(super) fn path(number: u32) -> String {
    let directory = number / PER_DIRECTORY;
    let path: PathBuf = [
        format!("part{}", directory / 25),
        format!("module{directory}"),
        format!("file{number}.rs"),
    ]
    .iter()
    .collect();
    path.display().to_string()
}

/// Returns 1 to 100 lines that differ between files. `edit` changes one of them.
fn content(number: u32, edit: u32) -> String {
    let lines = number.wrapping_mul(2_654_435_761) % 100 + 1;
    let line = |at: u32| {
        let edited = if at == lines / 2 { edit } else { 0 };
        format!("fn f{at}() -> u32 {{ {number} + {edited} }} // text\n")
    };
    (0..lines).map(line).collect()
}
