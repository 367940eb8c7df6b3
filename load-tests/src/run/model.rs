//! The simulated model as its own process, and its log.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use boot::free_port;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Server;
use super::http::Http;

/// One request in its log.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Asked {
    pub(crate) seq: u64,
    pub(crate) arrived_us: u64,
    pub(crate) prompt: String,
    pub(crate) outcome: String,
    pub(crate) body: Option<String>,
}

/// The model's process.
pub(crate) struct Model {
    server: Server,
    pub(crate) url: String,
}

impl Model {
    pub(crate) async fn start(bin: &Path, folder: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let log = folder.join("model.log");
        let mut server = Server::start(bin, &log, |command| {
            command.arg("simulated-model").arg(format!("--port={port}"));
        })?;
        server.ready(&url, "/healthz", &log).await?;
        Ok(Self { server, url })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid
    }

    /// Opens a connection to it.
    pub(crate) async fn http(&self) -> anyhow::Result<Http> {
        Http::connect(&self.url, None).await
    }

    /// Returns the log after `seq`, at most 1,000 records.
    pub(crate) async fn asked(http: &mut Http, after: u64) -> anyhow::Result<Vec<Asked>> {
        let path = format!("/sim/requests?after={after}");
        let mut answer = http.json(Method::GET, &path, &Value::Null).await?;
        Ok(serde_json::from_value(answer["requests"].take())?)
    }

    /// Returns the logged requests that contain `text`, which needs no escaping except of its spaces.
    pub(crate) async fn asked_with(http: &mut Http, text: &str) -> anyhow::Result<Vec<Asked>> {
        let path = format!("/sim/requests?match={}", text.replace(' ', "%20"));
        let mut answer = http.json(Method::GET, &path, &Value::Null).await?;
        Ok(serde_json::from_value(answer["requests"].take())?)
    }

    /// Returns the whole log after `seq`.
    pub(crate) async fn all_asked(http: &mut Http, after: u64) -> anyhow::Result<Vec<Asked>> {
        let mut all: Vec<Asked> = Vec::new();
        loop {
            let from = all.last().map_or(after, |asked| asked.seq);
            let page = Self::asked(http, from).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Empties the log.
    pub(crate) async fn forget(http: &mut Http) -> anyhow::Result<()> {
        http.json(Method::DELETE, "/sim/requests", &Value::Null).await.map(drop)
    }

    /// Waits until one of its counts is at least `least`.
    pub(crate) async fn wait_for(
        http: &mut Http,
        count: &str,
        least: u64,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let began = std::time::Instant::now();
        loop {
            let counts = http.json(Method::GET, "/sim/counts", &Value::Null).await?;
            let now = counts[count].as_u64().with_context(|| format!("no count `{count}`"))?;
            if now >= least {
                return Ok(());
            }
            if began.elapsed() > patience {
                bail!("the model's count `{count}` is {now} after {patience:?}, not {least}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Holds prompts that contain `word` until the gate is opened.
    pub(crate) async fn hold(http: &mut Http, word: &str) -> anyhow::Result<()> {
        let scripts = json!([{ "match": word, "gate": "door" }]);
        http.json(Method::PUT, "/sim/scripts", &scripts).await.map(drop)
    }

    pub(crate) async fn open(http: &mut Http) -> anyhow::Result<()> {
        http.json(Method::POST, "/sim/gates/door", &Value::Null).await.map(drop)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}
