//! The released OpenCode server, driven like ours for comparison.

use std::path::Path;

use boot::free_port;
use serde_json::json;

use super::model::Model;
use super::sessions::Target;
use super::{Server, cpu};

/// Its process.
pub(crate) struct Peer {
    server: Server,
    pub(crate) target: Target,
}

impl Peer {
    /// Starts `PATH serve` on loopback with the simulated model as its only provider. Workspace snapshots, on by
    /// default, are off: they make it 2 to 8 times slower.
    pub(crate) async fn start(path: &Path, folder: &Path, model: &Model) -> anyhow::Result<Self> {
        let home = folder.join("peer");
        let directory = home.join("workspace");
        std::fs::create_dir_all(&directory)?;
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible",
            "name": "mock",
            "options": { "baseURL": format!("{}/v1", model.url), "apiKey": "none" },
            "models": { "simulated": { "name": "simulated" } },
        });
        let config = json!({
            "provider": { "mock": provider },
            "enabled_providers": ["mock"],
            "model": "mock/simulated",
            "small_model": "mock/simulated",
            "autoupdate": false,
            "share": "disabled",
            "snapshot": false,
        });
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let log = folder.join("peer.log");
        let mut server = Server::start(path, &log, |command| {
            command.args(["serve", "--hostname=127.0.0.1"]).arg(format!("--port={port}"));
            command.current_dir(&directory).env("HOME", &home);
            for name in ["CONFIG", "DATA", "CACHE", "STATE"] {
                command.env(format!("XDG_{name}_HOME"), home.join(name.to_lowercase()));
            }
            for name in ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
                command.env(format!("OPENCODE_DISABLE_{name}"), "1");
            }
            command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
        })?;
        server.ready(&url, "/global/health", &log).await?;
        Ok(Self { server, target: Target { url, key: None, directory } })
    }

    pub(crate) fn cpu(&self) -> anyhow::Result<std::time::Duration> {
        cpu::of_tree(self.server.pid)
    }

    pub(crate) fn rss_mib(&self) -> anyhow::Result<f64> {
        cpu::rss_mib(self.server.pid)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}
