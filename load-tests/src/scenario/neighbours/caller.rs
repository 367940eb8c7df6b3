//! A client that goes on after it was refused.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::run::http::Http;
use crate::run::sessions::Target;

/// The pause after a request without an answer, so that a service that is gone is not asked in a tight loop.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// One connection at a time of one organisation.
pub(super) struct Caller {
    target: Target,
    http: Option<Http>,
}

impl Caller {
    pub(super) fn new(target: Target) -> Self {
        Self { target, http: None }
    }

    /// Shows this key from the next request on.
    pub(super) fn show_key(&mut self, key: String) {
        if let Some(http) = &mut self.http {
            http.show_key(&key);
        }
        self.target.key = Some(key);
    }

    /// Sends a request. An answer of 400 or more is an error, and so is none; the next request then opens a new
    /// connection if it has to.
    pub(super) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Bytes> {
        let asked = async {
            let http = match &mut self.http {
                Some(http) => http,
                None => self.http.insert(self.target.http().await?),
            };
            http.call(method, path, body).await
        };
        match asked.await {
            Ok((status, body)) => {
                let shown =
                    || String::from_utf8_lossy(body.get(..300).unwrap_or(&body)).into_owned();
                ensure!(status.is_success(), "{path} answered {status}: {}", shown());
                Ok(body)
            }
            Err(error) => {
                self.http = None;
                tokio::time::sleep(AFTER_FAILURE).await;
                Err(error.context(format!("{path} was not answered")))
            }
        }
    }

    /// Creates a session in a directory.
    pub(super) async fn create_session(&mut self, directory: &Path) -> anyhow::Result<String> {
        let path = format!("/session?directory={}", directory.display());
        let body = json!({ "title": "neighbour" }).to_string();
        let session: Value = serde_json::from_slice(&self.call(Method::POST, &path, body).await?)?;
        session["id"].as_str().map(str::to_owned).context("the new session has no id")
    }

    /// Prompts a session in a directory and waits for the whole answer, which it returns. A turn that failed is an
    /// error.
    pub(super) async fn prompt_held(
        &mut self,
        directory: &Path,
        session: &str,
        text: &str,
    ) -> anyhow::Result<Bytes> {
        let path = format!("/session/{session}/message?directory={}", directory.display());
        let body = json!({ "parts": [{ "type": "text", "text": text }] }).to_string();
        let answer = self.call(Method::POST, &path, body).await?;
        let read: Value = serde_json::from_slice(&answer)?;
        let (error, completed) = (&read["info"]["error"], &read["info"]["time"]["completed"]);
        ensure!(error.is_null(), "the turn failed: {error}");
        ensure!(completed.is_number(), "the turn has no end");
        Ok(answer)
    }

    /// Admits a prompt, and wakes the session if `resume` says so.
    pub(super) async fn admit(
        &mut self,
        session: &str,
        text: &str,
        resume: bool,
    ) -> anyhow::Result<Bytes> {
        let path = format!("/platform/session/{session}/message");
        let body = json!({ "text": text, "resume": resume }).to_string();
        self.call(Method::POST, &path, body).await
    }

    /// Returns how a session stands, for people who ask why it did not answer.
    pub(super) async fn describe(&mut self, session: &str) -> anyhow::Result<String> {
        let path = format!("/platform/session/{session}");
        let read = self.call(Method::GET, &path, String::new()).await?;
        let read: Value = serde_json::from_slice(&read)?;
        let [busy, outcome, seq] = ["busy", "outcome", "seq"].map(|name| &read[name]);
        Ok(format!("now busy: {busy}, outcome: {outcome}, seq: {seq}"))
    }

    /// Deletes a session.
    pub(super) async fn delete(&mut self, session: &str) -> anyhow::Result<Bytes> {
        self.call(Method::DELETE, &format!("/platform/session/{session}"), String::new()).await
    }
}
