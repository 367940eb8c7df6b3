//! The service in one process, with its Postgres and a model beside it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use boot::free_port;
use tempfile::TempDir;

use super::cpu::{self, Used};
use super::http::Http;
use super::model::Model;
use super::postgres::Postgres;
use super::probe::{self, Probe};
use super::sessions::Target;
use super::{KEY, Server, folder};

/// Everything that one run drives.
pub(crate) struct Up {
    server: Server,
    pub(crate) model: Model,
    pub(crate) postgres: Postgres,
    pub(crate) url: String,
    /// The sessions' directory.
    pub(crate) workspace: PathBuf,
    folder: TempDir,
}

impl Up {
    /// Starts the service and waits until it is ready.
    pub(crate) async fn start(bin: &Path) -> anyhow::Result<Self> {
        Self::prepared(bin, |_| ()).await
    }

    /// Like [`start`](Self::start), with this many slots for sessions.
    pub(crate) async fn with_slots(bin: &Path, slots: usize) -> anyhow::Result<Self> {
        Self::prepared(bin, |command| {
            command.arg(format!("--slots={slots}"));
        })
        .await
    }

    /// Like [`start`](Self::start), with these flags.
    pub(crate) async fn with_flags(bin: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        Self::prepared(bin, |command| {
            command.args(flags);
        })
        .await
    }

    async fn prepared(
        bin: &Path,
        more: impl FnOnce(&mut std::process::Command),
    ) -> anyhow::Result<Self> {
        let folder = folder()?;
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        let model = Model::start(bin, folder.path()).await?;
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let data = folder.path().join("data");
        let server = served(bin, &folder, &model, port, more).await?;
        let postgres = Postgres::of(&data).await?;
        Ok(Self { server, model, postgres, url, workspace, folder })
    }

    /// Stops the service and its Postgres, and starts both again with what they have stored.
    pub(crate) async fn restarted(self, bin: &Path) -> anyhow::Result<Self> {
        let Self { server, model, postgres, url, workspace, folder } = self;
        postgres.pool.close().await;
        server.stop().await?;
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.context("the URL has no port")?;
        let server = served(bin, &folder, &model, port, |_| ()).await?;
        let postgres = Postgres::of(&folder.path().join("data")).await?;
        Ok(Self { server, model, postgres, url, workspace, folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a connection to the service, with the key.
    pub(crate) async fn http(&self) -> anyhow::Result<Http> {
        Http::connect(&self.url, Some(KEY)).await
    }

    pub(crate) fn target(&self) -> Target {
        Target { url: self.url.clone(), key: Some(KEY.into()), directory: self.workspace.clone() }
    }

    pub(crate) async fn probe(&self) -> anyhow::Result<Probe> {
        probe::commits(&self.postgres).await
    }

    /// Returns what every participant has used so far.
    pub(crate) fn used(&self) -> anyhow::Result<Used> {
        Ok(Used {
            service: cpu::of(self.pid())?,
            postgres: cpu::of_tree(self.postgres.pid)?,
            model: cpu::of(self.model.pid())?,
            driver: cpu::of(std::process::id())?,
        })
    }

    /// Stops everything and removes the folder.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.ended().await.map(drop)
    }

    /// Stops everything and returns the folder, which goes when it is dropped.
    pub(crate) async fn ended(self) -> anyhow::Result<TempDir> {
        self.postgres.pool.close().await;
        self.server.stop().await?;
        self.model.stop().await?;
        Ok(self.folder)
    }
}

/// Starts the service in its folder, and waits until it is ready.
async fn served(
    bin: &Path,
    folder: &TempDir,
    model: &Model,
    port: u16,
    more: impl FnOnce(&mut std::process::Command),
) -> anyhow::Result<Server> {
    let log = folder.path().join("up.log");
    let mut server = Server::start(bin, &log, |command| {
        command.arg("serve");
        command.arg(format!("--port={port}")).arg(format!("--bootstrap-key={KEY}"));
        command.arg(format!("--data-dir={}", folder.path().join("data").display()));
        command.arg(format!("--model-url={}/v1", model.url));
        command.current_dir(folder.path().join("workspace"));
        more(command);
    })?;
    server.ready(&format!("http://127.0.0.1:{port}"), "/readyz", &log).await?;
    Ok(server)
}
