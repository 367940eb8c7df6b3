//! The driven processes, and the observation of them.

pub(crate) mod cluster;
pub(crate) mod cpu;
pub(crate) mod drive;
pub(crate) mod http;
pub(crate) mod idle_events;
pub(crate) mod model;
pub(crate) mod peer;
pub(crate) mod postgres;
pub(crate) mod probe;
pub(crate) mod sessions;
pub(crate) mod up;

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use boot::{GuardedChild, GuardedCommand, StopSignal};
use hyper::Method;
use tempfile::TempDir;

use self::http::Http;

/// The key of every service that is started here.
pub(crate) const KEY: &str = "load-tests-only-key-0123456789";
/// How long a server may take until it first answers.
const START: Duration = Duration::from_secs(90);
/// How long a server may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// Returns the executable as an absolute path.
pub(crate) fn executable(bin: &Path) -> anyhow::Result<PathBuf> {
    bin.canonicalize().with_context(|| {
        format!(
            "{} is not there: build it with `cargo build --release -p opencode-cloud` and name it with \
             --bin or OC_BIN",
            bin.display()
        )
    })
}

/// Creates a folder that Postgres can enter, even as another user.
pub(crate) fn folder() -> anyhow::Result<TempDir> {
    let passable = std::fs::Permissions::from_mode(0o711);
    Ok(tempfile::Builder::new().prefix("oc-load-").permissions(passable).tempdir()?)
}

/// A server that stops with us, however we end.
pub(crate) struct Server {
    child: GuardedChild,
    pub(crate) pid: u32,
}

impl Server {
    /// Starts the server. Its output goes to `log`.
    pub(crate) fn start(
        program: &Path,
        log: &Path,
        prepare: impl FnOnce(&mut std::process::Command),
    ) -> anyhow::Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = GuardedCommand::new(program, StopSignal::Terminate);
        command.command().stdout(out.try_clone()?).stderr(out);
        prepare(command.command());
        let child = command.spawn()?;
        let pid = child.pid().context("a server ended at once")?;
        Ok(Self { child, pid })
    }

    /// Waits until a GET of `url` succeeds.
    pub(crate) async fn ready(&mut self, url: &str, path: &str, log: &Path) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let ended = tokio::time::timeout(Duration::ZERO, self.child.wait()).await.is_ok();
            if ended || began.elapsed() > START {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{url} did not become ready; it said:\n{said}");
            }
            let asked = async {
                let mut http = Http::connect(url, Some(KEY)).await?;
                http.call(Method::GET, path, String::new()).await
            };
            let answer = tokio::time::timeout(Duration::from_secs(2), asked).await;
            if matches!(answer, Ok(Ok((status, _))) if status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the server has ended by itself.
    pub(crate) async fn ended(mut self, patience: Duration) -> anyhow::Result<()> {
        let Ok(status) = tokio::time::timeout(patience, self.child.wait()).await else {
            self.stop().await?;
            bail!("it did not end within {} s", patience.as_secs());
        };
        let status = status?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.stop(STOP).await?;
        Ok(())
    }
}
