//! Measures sessions with a repository beside git on the same machine: each figure is a ratio of one run.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use blobs::Blobs;
use domain::{FencingToken, LocationRef, OrgId, SystemClock};
use hyper::Method;
use serde_json::{Value, json};
use snapshots::{Shadow, ShadowOptions, SnapshotLimits, Touched};
use sqlx::AssertSqlSafe;
use testkit::{GitServer, git};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::KEY;
use crate::run::cluster::{Cluster, end};
use crate::run::http::Http;
use crate::run::sessions::admit;
use crate::run::up::Up;

/// Files in one directory.
const PER_DIRECTORY: u32 = 100;
/// Commits after the first.
const COMMITS: u32 = 50;
/// The longest time for one step.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Changed files of `run --here`.
const CHANGED: u32 = 100;

/// Arguments of `repositories`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files in the repository, 100 in a directory
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(200..=190_000))]
    files: u32,
    /// Bytes of a file
    #[arg(long, default_value_t = 12_500, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    bytes: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let server = GitServer::start()?;
    let large = server.repository("large")?;
    note(&format!("making a repository of {} files", args.files));
    generate(&large, args)?;

    note("the machine's git");
    let folder = tempfile::tempdir()?;
    let ca = format!("http.sslCAInfo={}", server.authority().display());
    let url = format!("https://{}/large", server.host());
    let clone = timed(|| {
        let words = ["-c", &ca, "-c", "transfer.fsckObjects=true", "clone", "-q", &url, "clone"];
        git(folder.path(), &words)
    })?;
    let from = large.display().to_string();
    git(folder.path(), &["clone", "-q", "--shared", "--no-checkout", &from, "checkout"])?;
    let checkout = timed(|| git(&folder.path().join("checkout"), &["reset", "-q", "--hard"]))?;

    let allow = format!("--egress-allow={}", server.host());
    let authority = format!("--egress-ca={}", server.authority().display());
    let up = Up::with_flags(bin, &[&allow, &authority]).await?;
    out.probed(up.probe().await?);
    let mut http = up.http().await?;
    let directory = format!("/{}/large", server.host());
    note("the first session");
    let (first, cold) = filled(&mut http, &directory).await?;
    ended(&mut http, &first).await?;
    note("the second session");
    let (second, warm) = filled(&mut http, &directory).await?;
    ended(&mut http, &second).await?;
    let ratio = |name: &str, ours: Duration, theirs: Duration, most: f64| {
        Figure::new(name, ours.as_secs_f64() / theirs.as_secs_f64(), "x")
            .mark(Mark::AtMost(most))
            .with("ours_s", ours.as_secs_f64())
            .with("git_s", theirs.as_secs_f64())
            .with("files", f64::from(args.files))
    };
    out.print(ratio("repositories.cold", cold, clone, 1.3))?;
    out.print(ratio("repositories.mirror", warm, checkout, 1.3))?;
    let stored = [stored(&up, &first).await?, stored(&up, &second).await?];
    let figure = Figure::new("repositories.second_stores", stored[1] / 1e6, "MB")
        .mark(Mark::AtMost(2.0))
        .with("first_mb", stored[0] / 1e6);
    out.print(figure)?;

    note("a capture after a commit");
    let clone = folder.path().join("clone");
    let captured = after_commit(&clone, folder.path()).await?;
    let figure =
        Figure::new("repositories.capture_after_commit", captured.as_secs_f64() * 1e3, "ms");
    out.print(figure.mark(Mark::AtMost(300.0)))?;

    note("run --here");
    let first = here(bin, &up, &clone)?;
    for number in 0..CHANGED {
        std::fs::write(clone.join(path(number * 37 % args.files)), format!("changed {number}\n"))?;
    }
    let again = here(bin, &up, &clone)?;
    let figure = Figure::new("repositories.here", again.as_secs_f64(), "s")
        .mark(Mark::AtMost(2.0))
        .with("changed", f64::from(CHANGED))
        .with("first_s", first.as_secs_f64());
    out.print(figure)?;
    // Not removed before the last measurement: ext4 makes files slowly where many have just gone.
    let _kept = up.ended().await?;

    note("a takeover on another disk");
    let flags = ["--workspace-disk=own", &allow, &authority];
    let cluster = Cluster::with_flags(bin, 2, &flags).await?;
    let took = takeover(&cluster, &directory).await?;
    let bound = 1.5 * checkout.as_secs_f64() + 3.0;
    let figure = Figure::new("repositories.takeover", took.as_secs_f64(), "s")
        .mark(Mark::AtMost(bound))
        .with("git_s", checkout.as_secs_f64());
    out.print(figure)?;
    cluster.stop().await
}

/// Ends the worker that has a session of the repository, and returns how long the next prompt takes at the other one.
async fn takeover(cluster: &Cluster, directory: &str) -> anyhow::Result<Duration> {
    let mut http = cluster.http().await?;
    let (session, _) = filled(&mut http, directory).await?;
    ended(&mut http, &session).await?;
    let holder = cluster.holder().await?;
    end(&holder)?;
    let began = Instant::now();
    while Path::new(&format!("/proc/{}/cmdline", holder.pid)).exists() {
        ensure!(began.elapsed() < PATIENCE, "the worker does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    admit(&mut http, &session, "run true", true).await?;
    ended(&mut http, &session).await?;
    Ok(began.elapsed())
}

fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn path(number: u32) -> String {
    format!("d{}/f{number}.txt", number / PER_DIRECTORY)
}

/// A text that compresses to about a third.
fn content(number: u32, bytes: u32) -> Vec<u8> {
    let (mut text, mut state) = (Vec::new(), u64::from(number) + 1);
    while text.len() < bytes as usize {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let line = format!("    let value_{:x} = compute(&items[{}]);\n", state >> 40, state >> 60);
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(bytes as usize);
    text
}

/// Fills a bare repository.
fn generate(to: &Path, args: &Args) -> anyhow::Result<()> {
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(to)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut feed = std::io::BufWriter::new(import.stdin.take().context("a pipe")?);
    for commit in 0..=COMMITS {
        let time = 1_700_000_000 + commit;
        write!(feed, "commit refs/heads/main\ncommitter A <a@b> {time} +0000\ndata 1\nx\n")?;
        let files: Vec<u32> = match commit {
            0 => (0..args.files).collect(),
            _ => (0..6).map(|file| (commit * 101 + file * 17) % args.files).collect(),
        };
        for file in files {
            let text = content(file + commit * args.files, args.bytes);
            write!(feed, "M 100644 inline {}\ndata {}\n", path(file), text.len())?;
            feed.write_all(&text)?;
            writeln!(feed)?;
        }
    }
    feed.flush()?;
    drop(feed);
    ensure!(import.wait()?.success(), "git fast-import failed");
    Ok(())
}

/// Makes a session of a repository and returns it, with the time from its prompt until the workspace is there.
async fn filled(http: &mut Http, directory: &str) -> anyhow::Result<(String, Duration)> {
    let body = json!({ "directory": directory });
    let project = http.json(Method::POST, "/project/init", &body).await?;
    let project = project["id"].as_str().context("a project")?.to_owned();
    let new = json!({ "title": "measured" });
    let made = http.json(Method::POST, &format!("/project/{project}/session"), &new).await?;
    let session = made["id"].as_str().context("a session")?.to_owned();
    let began = Instant::now();
    admit(http, &session, "run true", true).await?;
    let path = format!("/platform/session/{session}/repository");
    loop {
        let shown = http.json(Method::GET, &path, &Value::Null).await?;
        if shown["state"] == "filled" {
            return Ok((session, began.elapsed()));
        }
        if began.elapsed() > PATIENCE || shown["state"] == "failed" {
            bail!("not filled: {shown}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a session has done its work, which its last capture is part of.
async fn ended(http: &mut Http, session: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let shown =
            http.json(Method::GET, &format!("/platform/session/{session}"), &Value::Null).await?;
        if shown["busy"] == json!(false) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "still busy: {shown}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the bytes that a session's snapshots have stored.
async fn stored(up: &Up, session: &str) -> anyhow::Result<f64> {
    let sql = format!(
        "SELECT coalesce(sum(p.bytes), 0)::float8 FROM workspace_pack p JOIN session s
             ON s.org_id = p.org_id AND s.location_id = p.location_id WHERE s.id = '{session}'"
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&up.postgres.pool).await?)
}

/// Captures a clone, commits a change there, and returns the time of the next capture.
async fn after_commit(clone: &Path, folder: &Path) -> anyhow::Result<Duration> {
    let shadow = Shadow::open(ShadowOptions {
        root: clone.to_owned(),
        cache: folder.join("cache"),
        blobs: Blobs::in_folder(&folder.join("blobs"))?,
        at: LocationRef { org: OrgId::FIRST, location: "loc_1".parse()? },
        token: FencingToken(1),
        lock: None,
        packs: Vec::new(),
        seed: Vec::new(),
        git: true,
        hidden: Default::default(),
        limits: SnapshotLimits {
            git_file_bytes: 1 << 30,
            lists_large: true,
            ..SnapshotLimits::default()
        },
        clock: Arc::new(SystemClock::new()),
    })
    .await?;
    let first = shadow.capture(&Touched::Anything).await?.context("a first capture")?;
    shadow.committed(&first).await;
    std::fs::write(clone.join(path(1)), "changed\n")?;
    git(clone, &["commit", "-q", "-am", "one file"])?;
    let began = Instant::now();
    shadow.capture(&Touched::Anything).await?.context("a change")?;
    Ok(began.elapsed())
}

/// Runs `run --here` and returns the time until its session is there.
fn here(bin: &Path, up: &Up, clone: &Path) -> anyhow::Result<Duration> {
    use std::io::BufRead as _;
    let began = Instant::now();
    let mut ran = Command::new(bin)
        .args(["run", "--here", "say 1 word"])
        .current_dir(clone)
        .envs([("OPENCODE_CLOUD_URL", up.url.as_str()), ("OPENCODE_CLOUD_KEY", KEY)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let told = std::io::BufReader::new(ran.stderr.take().context("a pipe")?);
    let mut took = None;
    for line in told.lines() {
        let line = line?;
        if line.starts_with("session ses_") && took.is_none() {
            took = Some(began.elapsed());
        }
    }
    ran.wait()?;
    took.context("no session was made")
}
