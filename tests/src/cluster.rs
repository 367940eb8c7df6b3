//! `opencode-cloud dev-cluster`: the roles as processes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use placement_api::{PlacementAdmin, Status};
use rustix::process::{Signal, kill_process};
use serde::Deserialize;

use crate::api::Api;
use crate::cli::Cli;
use crate::executable::executable;
use crate::faults::tool_processes::tools_below;
use crate::process::{Process, known};
use crate::settle::eventually;
use crate::world::{KEY, PROFILE_VARIABLE, World, kept_key, none_left};

/// How long a start may take: ten processes of a debug build, on two busy cores.
const START_SECONDS: u64 = 120;
/// How long an orderly stop may take.
const STOP: Duration = Duration::from_secs(90);

/// A process of the cluster in `cluster.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// `gateway`, `worker`, `placement`, `postgres` or `nats`.
    pub role: String,
    /// Its process id.
    pub pid: u32,
    /// Its URL.
    pub url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    processes: Vec<Member>,
}

/// A cluster that is ready. It restarts members that end, unless started with `--no-restart`.
#[derive(Debug)]
pub struct Cluster {
    process: Process,
    manifest: PathBuf,
    gateways: Vec<Api>,
}

impl Cluster {
    pub(crate) async fn start(world: &World, flags: &[&str]) -> Result<Self> {
        let port = boot::free_port()?;
        let flags =
            [&world.flags()[..], &flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>()]
                .concat();
        Self::launch(world, port, &flags, Some(KEY)).await
    }

    /// Starts a cluster with exactly these flags. Requests use `key`; `None` takes the key that its data folder keeps.
    pub(crate) async fn launch(
        world: &World,
        port: u16,
        flags: &[String],
        key: Option<&str>,
    ) -> Result<Self> {
        let mut args = vec!["dev-cluster".to_owned(), "--port".to_owned(), port.to_string()];
        args.extend(flags.iter().cloned());
        let profile = (PROFILE_VARIABLE.to_owned(), world.profile().display().to_string());
        let mut process =
            Process::start("cluster", &executable()?, &args, &[profile], &world.logs())?;
        let manifest = world.data().join("cluster.json");
        eventually("cluster.json is written", START_SECONDS, async || {
            if !process.is_running().await {
                bail!("`dev-cluster` ended: {}", process.stderr());
            }
            Ok(manifest.exists().then_some(()))
        })
        .await?;
        let key = match key {
            Some(key) => key.to_owned(),
            None => kept_key(world)?,
        };
        let mut cluster = Self { process, manifest, gateways: Vec::new() };
        for gateway in cluster.of("gateway")? {
            cluster.gateways.push(Api::new(&gateway.url, &key)?);
        }
        for gateway in &cluster.gateways {
            eventually("a gateway is ready", 60, async || {
                Ok(gateway.is_ready().await.then_some(()))
            })
            .await?;
        }
        Ok(cluster)
    }

    /// Reads its current processes from `cluster.json`.
    ///
    /// # Errors
    /// When the file cannot be read or has another shape.
    pub fn members(&self) -> Result<Vec<Member>> {
        let text = fs::read_to_string(&self.manifest)?;
        let manifest: Manifest = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(manifest.processes)
    }

    /// Returns the processes of one role.
    ///
    /// # Errors
    /// Those of [`Cluster::members`].
    pub fn of(&self, role: &str) -> Result<Vec<Member>> {
        Ok(self.members()?.into_iter().filter(|member| member.role == role).collect())
    }

    /// Returns a gateway by its number, from 0. Its URL survives a restart.
    #[must_use]
    pub fn gateway(&self, number: usize) -> &Api {
        &self.gateways[number]
    }

    /// Returns the command line for the first gateway.
    ///
    /// # Errors
    /// When there is no executable.
    pub fn cli(&self) -> Result<Cli> {
        Cli::new(self.gateways[0].url(), self.gateways[0].key())
    }

    /// Signals the first process of a role, and returns it.
    ///
    /// # Errors
    /// When there is none, or it has ended.
    pub fn kill(&self, role: &str, signal: Signal) -> Result<Member> {
        let member = self.of(role)?.into_iter().next().with_context(|| format!("no {role}"))?;
        self.signal(member.pid, signal)?;
        Ok(member)
    }

    /// Signals a process of the cluster.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        kill_process(known(pid)?, signal).with_context(|| format!("cannot signal {pid}"))
    }

    /// Stops all of Postgres and returns its processes: its connections stay open, and nobody answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop_postgres(&self) -> Result<Vec<u32>> {
        let postgres = self.of("postgres")?.into_iter().next().context("no postgres")?.pid;
        self.signal(postgres, Signal::STOP)?;
        // The postmaster is stopped before its backends, so that there come no more. One may have just ended.
        let backends = tools_below(&[postgres]).remove(&postgres).unwrap_or_default();
        let all: Vec<u32> =
            std::iter::once(postgres).chain(backends.iter().map(|it| it.pid)).collect();
        for backend in &all {
            let _ended = self.signal(*backend, Signal::STOP);
        }
        Ok(all)
    }

    /// Lets stopped processes go on.
    pub fn go_on(&self, stopped: &[u32]) {
        for pid in stopped {
            // One that was killed meanwhile has nothing to go on with.
            let _ended = self.signal(*pid, Signal::CONT);
        }
    }

    /// Returns the status that placement's leader reports.
    ///
    /// # Errors
    /// When there is no leader.
    pub async fn placement(&self) -> Result<Status> {
        let urls = self.of("placement")?.into_iter().map(|member| member.url).collect();
        let secret = fs::read_to_string(self.manifest.with_file_name("cluster.secret"))?;
        Ok(PlacementAdmin::new(urls, Some(secret)).status().await?)
    }

    /// Returns the member that leads placement.
    ///
    /// # Errors
    /// When none leads within a minute.
    pub async fn placement_leader(&self) -> Result<Member> {
        eventually("placement has a leader", 60, async || {
            let Ok(status) = self.placement().await else { return Ok(None) };
            let members = self.of("placement")?;
            Ok(members.into_iter().find(|member| Some(&member.url) == status.leader_url.as_ref()))
        })
        .await
    }

    /// Returns the process of `dev-cluster`, for its output.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Presses Ctrl-C and waits for a clean end, like [`Up::stop`](crate::Up::stop).
    ///
    /// # Errors
    /// When the end is not clean.
    pub async fn stop(mut self, world: &World) -> Result<()> {
        self.process.signal(Signal::INT)?;
        let status = self.process.wait(STOP).await?;
        ensure!(status.success(), "`dev-cluster` ended with {status}: {}", self.process.tail());
        none_left(world).await
    }
}

impl Drop for Cluster {
    /// Shows the roles' logs beside the cluster's own output when a test fails.
    fn drop(&mut self) {
        use std::io::Write;
        let Some(logs) = self.manifest.parent().map(|data| data.join("logs")) else { return };
        if !self.manifest.exists() {
            return; // it was stopped cleanly
        }
        for entry in fs::read_dir(logs).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n");
            let name = entry.file_name();
            let _stderr_is_gone =
                writeln!(std::io::stderr(), "--- {} ---\n{tail}", name.to_string_lossy());
        }
    }
}
