//! The simulated model as a process of its own, and its log.

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

    /// A connection to it.
    pub(crate) async fn http(&self) -> anyhow::Result<Http> {
        Http::connect(&self.url, None).await
    }

    /// The log after `seq`, at most 1,000 records.
    pub(crate) async fn asked(http: &mut Http, after: u64) -> anyhow::Result<Vec<Asked>> {
        let path = format!("/sim/requests?after={after}");
        let mut answer = http.json(Method::GET, &path, &Value::Null).await?;
        Ok(serde_json::from_value(answer["requests"].take())?)
    }

    /// The log of requests with `text` in them, which needs no escaping but of its spaces.
    pub(crate) async fn asked_with(http: &mut Http, text: &str) -> anyhow::Result<Vec<Asked>> {
        let path = format!("/sim/requests?match={}", text.replace(' ', "%20"));
        let mut answer = http.json(Method::GET, &path, &Value::Null).await?;
        Ok(serde_json::from_value(answer["requests"].take())?)
    }

    /// The whole log after `seq`.
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

    /// Forgets the log.
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

    /// Prompts with `word` in them wait until the gate is opened.
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
