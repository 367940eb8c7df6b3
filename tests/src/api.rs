//! The service's HTTP interface, as plain JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::{Clock, IdMint, MessageId, Stamp, SystemClock};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::settle::within;
use crate::sse::Follow;

/// How long an answer may take, streams aside.
const ANSWER: Duration = Duration::from_secs(60);

/// A service, and a key for it.
#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    url: String,
    key: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body as JSON, or its text as a JSON string.
    pub body: Value,
}

impl Answer {
    /// Returns the body of a successful answer.
    ///
    /// # Errors
    /// Any other status, with the body.
    pub fn ok(self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.body);
        Ok(self.body)
    }
}

impl Api {
    /// Returns a client for the service at `url` with `key`.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn new(url: &str, key: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(10));
        Ok(Self { http: http.build()?, url: url.to_owned(), key: key.to_owned() })
    }

    /// Returns the service's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Starts a request with the key as bearer, for what no other method does.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// Sends a `GET`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends JSON with `POST`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(&self, request: RequestBuilder) -> Result<Answer> {
        self.send_within(ANSWER, request).await
    }

    /// Like [`Api::send`], for an answer that may take this long.
    ///
    /// # Errors
    /// When there is no answer within that time.
    pub async fn send_within(&self, limit: Duration, request: RequestBuilder) -> Result<Answer> {
        let response = request.timeout(limit).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }

    /// Finds or creates the project of a directory, and returns its id.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn project(&self, directory: &Path) -> Result<String> {
        let directory = json!({ "directory": directory });
        let project = self.post("/project/init", &directory).await?.ok()?;
        Ok(project["id"].as_str().context("a project has an id")?.to_owned())
    }

    /// Creates a session in a directory, and returns its id.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn session(&self, directory: &Path) -> Result<String> {
        let project = self.project(directory).await?;
        let directory = json!({ "directory": directory });
        // With a title, because a request for one would disturb journeys that count requests.
        let new = json!({ "directory": directory["directory"], "title": "a journey" });
        let session = self.post(&format!("/project/{project}/session"), &new).await?.ok()?;
        Ok(session["id"].as_str().context("a session has an id")?.to_owned())
    }

    /// Admits a prompt, and returns its message's id.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn admit(&self, session: &str, text: &str) -> Result<String> {
        let body =
            json!({ "messageID": message_id(0), "parts": [{ "type": "text", "text": text }] });
        self.post(&format!("/platform/session/{session}/message"), &body).await?.ok()?;
        Ok(body["messageID"].as_str().unwrap_or_default().to_owned())
    }

    /// Admits a prompt, waits at most `seconds` for the end of the drain that ran it, and returns the drain's
    /// outcome.
    ///
    /// # Errors
    /// When the service refuses, or the time is up.
    pub async fn prompt(&self, session: &str, text: &str, seconds: u64) -> Result<String> {
        let message = self.admit(session, text).await?;
        self.outcome(session, &message, seconds).await
    }

    /// Waits for the end of the drain that ran a message, and returns its outcome.
    ///
    /// # Errors
    /// When it does not end within `seconds`.
    pub async fn outcome(&self, session: &str, message: &str, seconds: u64) -> Result<String> {
        let wait = async {
            let mut promoted = false;
            let mut after = 0;
            loop {
                // A gateway that stops ends its streams. The next stream resumes.
                let mut follow = self.follow(session, after).await?;
                while let Some(frame) = follow.next().await? {
                    after = frame.id.unwrap_or(after);
                    let data = &frame.data["data"];
                    promoted |= frame.event == "prompt.promoted" && data["message"] == message;
                    if promoted && frame.event == "drain.ended" {
                        return Ok(data["outcome"].as_str().unwrap_or_default().to_owned());
                    }
                }
            }
        };
        within(&format!("the drain of {message}"), seconds, wait).await
    }

    /// Follows a session's log after a sequence number.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn follow(&self, session: &str, after: i64) -> Result<Follow> {
        let path = format!("/platform/session/{session}/log?follow=true");
        self.stream(self.request(Method::GET, &path).header("last-event-id", after)).await
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// When the service refuses, or does not answer in time.
    pub async fn stream(&self, request: RequestBuilder) -> Result<Follow> {
        let sent = tokio::time::timeout(ANSWER, request.send());
        let response = sent.await.context("the stream does not open")??;
        if response.status() != StatusCode::OK {
            bail!("status {}: {}", response.status(), response.text().await.unwrap_or_default());
        }
        Ok(Follow::new(response))
    }

    /// Returns the whole log of a session.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn log(&self, session: &str) -> Result<Vec<Value>> {
        let mut log: Vec<Value> = Vec::new();
        loop {
            let after = log.last().map_or(0, |event| event["seq"].as_i64().unwrap_or(0));
            let page = self.get(&format!("/platform/session/{session}/log?after={after}")).await?;
            let page = page.ok()?;
            let page = page.as_array().context("a page of a log is a list")?;
            if page.is_empty() {
                return Ok(log);
            }
            log.extend(page.iter().cloned());
        }
    }

    /// Returns all sessions.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn sessions(&self) -> Result<Vec<Value>> {
        let answer = self.get("/platform/session?limit=1000").await?.ok()?;
        answer.as_array().cloned().context("a list")
    }

    /// Returns whether the service says that it is ready.
    pub async fn is_ready(&self) -> bool {
        let asked = self.http.get(format!("{}/readyz", self.url)).timeout(Duration::from_secs(10));
        asked.send().await.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }
}

/// Returns the message id that a client whose clock is `ahead_ms` ahead would mint now.
#[must_use]
pub fn message_id(ahead_ms: i64) -> String {
    let now = SystemClock::new().now_ms() + ahead_ms;
    MessageId::mint(&mut IdMint::after(Stamp::default(), now)).to_string()
}
