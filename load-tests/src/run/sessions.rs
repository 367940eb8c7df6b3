//! Creates and prompts sessions over the routes of stock clients, so that the released server can be driven in the
//! same way.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use super::http::Http;

/// A driven server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) key: Option<String>,
    pub(crate) directory: PathBuf,
}

impl Target {
    pub(crate) async fn http(&self) -> anyhow::Result<Http> {
        Http::connect(&self.url, self.key.as_deref()).await
    }

    /// Creates a session in the target's directory.
    pub(crate) async fn session(&self, http: &mut Http) -> anyhow::Result<String> {
        session_in(http, &self.directory).await
    }

    /// Prompts and waits for the whole answer.
    pub(crate) async fn prompt(
        &self,
        http: &mut Http,
        session: &str,
        text: &str,
    ) -> anyhow::Result<()> {
        let directory = self.directory.display();
        let path = format!("/session/{session}/message?directory={directory}");
        let body = json!({ "parts": [{ "type": "text", "text": text }] });
        let answer = http.json(Method::POST, &path, &body).await?;
        let error = &answer["info"]["error"];
        anyhow::ensure!(error.is_null(), "the turn failed: {error}");
        Ok(())
    }

    /// Prompts without waiting for the answer.
    pub(crate) async fn begin(
        &self,
        http: &mut Http,
        session: &str,
        text: &str,
    ) -> anyhow::Result<()> {
        let directory = self.directory.display();
        let path = format!("/session/{session}/prompt_async?directory={directory}");
        let body = json!({ "parts": [{ "type": "text", "text": text }] });
        http.json(Method::POST, &path, &body).await.map(|_| ())
    }
}

/// Creates a session. We chose the directory's path, so it needs no escaping. The session has a title, so that no
/// request for one disturbs the measurement.
pub(crate) async fn session_in(http: &mut Http, directory: &Path) -> anyhow::Result<String> {
    let path = format!("/session?directory={}", directory.display());
    let made = http.json(Method::POST, &path, &json!({ "title": "measured" })).await?;
    made["id"].as_str().map(str::to_owned).context("the new session has no id")
}

/// Makes a session whose commands are asked about.
pub(crate) async fn cautious(http: &mut Http, target: &Target) -> anyhow::Result<String> {
    let path = format!("/session?directory={}", target.directory.display());
    let rule = json!({ "permission": "bash", "pattern": "*", "action": "ask" });
    let body = json!({ "title": "sleeper", "permission": [rule] });
    let made = http.json(Method::POST, &path, &body).await?;
    made["id"].as_str().map(str::to_owned).context("the new session has no id")
}

/// Admits a prompt without waiting for its work.
pub(crate) async fn admit(
    http: &mut Http,
    session: &str,
    text: &str,
    resume: bool,
) -> anyhow::Result<Value> {
    let path = format!("/platform/session/{session}/message");
    http.json(Method::POST, &path, &json!({ "text": text, "resume": resume })).await
}
