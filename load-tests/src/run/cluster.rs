//! The service as separate processes, with a model beside them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use boot::free_port;
use placement_api::PlacementAdmin;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;

use super::http::Http;
use super::model::Model;
use super::postgres::Postgres;
use super::{KEY, Server, folder};

/// The most sessions at once on each worker: enough for those of a dead one too.
const SLOTS: usize = 2_000;

/// A process of the cluster.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Process {
    pub(crate) role: String,
    pub(crate) pid: u32,
    pub(crate) url: String,
}

#[derive(Deserialize)]
struct Manifest {
    processes: Vec<Process>,
}

/// A running cluster.
pub(crate) struct Cluster {
    server: Server,
    pub(crate) model: Model,
    pub(crate) postgres: Postgres,
    pub(crate) url: String,
    manifest: PathBuf,
    folder: TempDir,
}

impl Cluster {
    /// Starts a cluster. Processes that end are not restarted.
    pub(crate) async fn start(bin: &Path, workers: u16) -> anyhow::Result<Self> {
        Self::with_flags(bin, workers, &[]).await
    }

    /// Like [`start`](Self::start), with these flags.
    pub(crate) async fn with_flags(
        bin: &Path,
        workers: u16,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = folder()?;
        let model = Model::start(bin, folder.path()).await?;
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let (log, data) = (folder.path().join("cluster.log"), folder.path().join("data"));
        let mut server = Server::start(bin, &log, |command| {
            command.args(["dev-cluster", "--no-restart"]).arg(format!("--workers={workers}"));
            command.arg(format!("--port={port}")).arg(format!("--bootstrap-key={KEY}"));
            command.arg(format!("--data-dir={}", data.display()));
            command.arg(format!("--model-url={}/v1", model.url));
            command.args(flags).env("OPENCODE_CLOUD_SLOTS", SLOTS.to_string());
        })?;
        server.ready(&url, "/readyz", &log).await?;
        let manifest = data.join("cluster.json");
        for _ in 0..200 {
            if manifest.exists() {
                let postgres = Postgres::of(&data).await?;
                return Ok(Self { server, model, postgres, url, manifest, folder });
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        bail!("{} was not written", manifest.display())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn http(&self) -> anyhow::Result<Http> {
        Http::connect(&self.url, Some(KEY)).await
    }

    /// Returns the running processes of a role.
    pub(crate) fn processes(&self, role: &str) -> anyhow::Result<Vec<Process>> {
        let manifest: Manifest = serde_json::from_str(&std::fs::read_to_string(&self.manifest)?)?;
        Ok(manifest.processes.into_iter().filter(|process| process.role == role).collect())
    }

    /// Returns a client for the placement members at `urls`.
    pub(crate) fn admin(&self, urls: Vec<String>) -> anyhow::Result<PlacementAdmin> {
        let secret = std::fs::read_to_string(self.manifest.with_file_name("cluster.secret"))?;
        Ok(PlacementAdmin::new(urls, Some(secret)))
    }

    /// Returns a worker that has a Location.
    pub(crate) async fn holder(&self) -> anyhow::Result<Process> {
        let urls = self.processes("placement")?.into_iter().map(|member| member.url).collect();
        let workers = self.admin(urls)?.status().await?.workers;
        let holder = workers.into_iter().find(|worker| worker.leases > 0);
        let holder = holder.context("no worker has a Location")?.worker.url;
        let mut workers = self.processes("worker")?.into_iter();
        let found = workers.find(|worker| worker.url == holder);
        found.with_context(|| format!("the worker {holder} is not of this cluster"))
    }

    /// Returns the member that leads placement.
    pub(crate) async fn leader(&self) -> anyhow::Result<Process> {
        let members = self.processes("placement")?;
        let urls = members.iter().map(|member| member.url.clone()).collect();
        let leader = self.admin(urls)?.status().await?.leader_url;
        let leader = leader.context("placement has no leader")?;
        members
            .into_iter()
            .find(|member| member.url == leader)
            .with_context(|| format!("the leader {leader} is not of this cluster"))
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.postgres.pool.close().await;
        self.server.stop().await?;
        self.model.stop().await
    }
}

/// Sends SIGKILL to a process of the cluster.
pub(crate) fn kill(process: &Process) -> anyhow::Result<()> {
    signal(process, Signal::KILL)
}

/// Asks a process of the cluster to end.
pub(crate) fn end(process: &Process) -> anyhow::Result<()> {
    signal(process, Signal::TERM)
}

fn signal(process: &Process, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).context("no pid")?;
    kill_process(pid, signal)
        .with_context(|| format!("cannot signal the {} {}", process.role, process.pid))
}
