//! A lean HTTP client with one connection and one request at a time, so that the driver takes little of the machine
//! that it measures.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection that stays open. Dropping it closes it.
pub(crate) struct Http {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    key: Option<String>,
    _connection: JoinSet<()>,
}

impl Http {
    /// Connects to `http://HOST:PORT`.
    pub(crate) async fn connect(url: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let host = url.strip_prefix("http://").context("only http:// is driven")?;
        let socket = TcpStream::connect(host).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(socket)).await?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The next request notices its end.
            let _ended = connection.await;
        });
        let key = key.map(|key| format!("Bearer {key}"));
        Ok(Self { sender, host: host.to_owned(), key, _connection: task })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let asked = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(PATIENCE, asked)
            .await
            .with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))?
    }

    /// Like [`call`](Self::call) for an answer that must succeed; returns its JSON.
    pub(crate) async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.call(method, path, body).await?;
        let shown = || String::from_utf8_lossy(answer.get(..400).unwrap_or(&answer)).into_owned();
        ensure!(status.is_success(), "{path} answered {status}: {}", shown());
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).with_context(|| format!("{path} answered {}", shown()))
    }
}
