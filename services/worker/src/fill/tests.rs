//! Fills on a real Postgres, each against one forge with a real git server.

mod fetched;
mod hostile;
mod sent;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use domain::SessionRef;
use egress::{EgressOptions, Rules};
use sandbox::{Command, End, Network, Outcome, Output, SandboxError};
use session::Workspace;
use store::BlobUse;
use testkit::{GitServer, git};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::WorkspaceDisk;
use crate::location::tests::World;

/// Runs commands as they are: these repositories are the tests' own.
struct Plain;

/// The same, with a count of the indexes that git makes.
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Sandbox for Counted {
    async fn run(
        &self,
        command: Command,
        stop: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        if command.args.iter().any(|word| word == "index-pack") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Plain.run(command, stop).await
    }
}

/// Commands that meet the limit of a cell's memory where `git index-pack` runs.
struct Small;

#[async_trait]
impl Sandbox for Small {
    async fn run(
        &self,
        command: Command,
        stop: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let checks = command.args.iter().any(|word| word == "index-pack");
        let ran = Plain.run(command, stop).await?;
        let limits = if checks { vec![sandbox::Limit::Memory(1 << 30)] } else { Vec::new() };
        let end = if checks { End::OverLimit } else { ran.end };
        Ok(Outcome { end, limits, ..ran })
    }
}

#[async_trait]
impl Sandbox for Plain {
    async fn run(&self, command: Command, _: &CancellationToken) -> Result<Outcome, SandboxError> {
        let begun = Instant::now();
        let ran = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .envs(command.env)
            .current_dir(&command.directory)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        let output = Output {
            total_bytes: text.len() as u64,
            line_breaks: 0,
            head: text.into_owned(),
            tail: String::new(),
            file: None,
            lost_bytes: 0,
            file_error: None,
        };
        let end = End::Exited(ran.status.code().unwrap_or(-1));
        let (duration, network) = (begun.elapsed(), Network::Shut);
        let (limits, refused) = (Vec::new(), Vec::new());
        let notes = Vec::new();
        Ok(Outcome { end, output, duration, leftovers: 0, limits, network, refused, notes })
    }
}

pub(crate) struct Forge {
    server: GitServer,
    repository: PathBuf,
    work: PathBuf,
    pub(crate) world: World,
}

impl Forge {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(GitServer::start()?).await
    }

    async fn with(server: GitServer) -> Result<Self> {
        let mut world = World::new().await?;
        let repository = server.repository("demo")?;
        let work = world.folder.path().join("work");
        git(world.folder.path(), &["clone", "-q", &repository.display().to_string(), "work"])?;
        let allowed = vec![server.host().parse()?];
        let options = EgressOptions {
            rules: Rules { allowed, ..Rules::default() },
            ca_bundle: Some(std::fs::read(server.authority())?),
            ..EgressOptions::default()
        };
        let folder = world.folder.path().join("repositories");
        world.fills = Some(Fills::new(Arc::new(Plain), Egress::new(&options)?, folder));
        let forge = Self { server, repository, work, world };
        forge.push("a", "one\n")?;
        Ok(forge)
    }

    /// Commits a file and pushes it; returns the commit.
    pub(crate) fn push(&self, name: &str, text: &str) -> Result<String> {
        std::fs::write(self.work.join(name), text)?;
        git(&self.work, &["add", "-A"])?;
        git(&self.work, &["commit", "-q", "-m", name])?;
        git(&self.work, &["push", "-q", "--force", "origin", "HEAD:main"])?;
        git(&self.work, &["rev-parse", "HEAD"])
    }

    pub(crate) async fn session(&self, wanted: Option<&str>) -> Result<SessionRef> {
        self.session_of("demo", wanted).await
    }

    async fn session_of(&self, path: &str, wanted: Option<&str>) -> Result<SessionRef> {
        let session = self.world.session().await?;
        let (store, org) = (&self.world.runtime.store, session.org);
        let repository = store.ensure_repository(org, self.server.host(), path.into(), 1).await?;
        let wanted = wanted.map(str::to_owned);
        store.begin_with_repository(session.location_ref(), repository.id, wanted).await?;
        Ok(session)
    }

    pub(crate) async fn take_over(
        &self,
        name: &str,
        session: &SessionRef,
        token: i64,
    ) -> Result<Workspace> {
        let worker = self.world.worker(name, WorkspaceDisk::Own);
        self.world.take_over(&worker, session, token).await
    }

    /// Takes over where that must fail for good, and returns the sentence.
    async fn refused(&self, session: &SessionRef, token: i64) -> Result<String> {
        let workspace = self.take_over("a", session, token).await?;
        let error = workspace.unavailable().context("it is refused")?;
        assert_eq!(error.code.to_string(), "workspace.fill_failed");
        Ok(error.message.clone())
    }
}

pub(crate) fn root(workspace: &Workspace) -> Result<&Path> {
    workspace.root().with_context(|| format!("{:?}", workspace.unavailable()))
}
