//! A lean HTTP client with one connection and one request at a time, so that the driver takes little of the machine
//! that it measures.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
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

    /// Shows this key from the next request on.
    pub(crate) fn show_key(&mut self, key: &str) {
        self.key = Some(format!("Bearer {key}"));
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = self.request(method, path, body)?;
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

    fn request(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }

    /// Opens a stream of events, which takes the connection for itself.
    pub(crate) async fn events(mut self, path: &str) -> anyhow::Result<Stream> {
        let request = self.request(Method::GET, path, String::new())?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        ensure!(response.status().is_success(), "{path} answered {}", response.status());
        Ok(Stream { body: response.into_body(), rest: Vec::new(), _http: self })
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

/// An open stream of server-sent events.
pub(crate) struct Stream {
    body: Incoming,
    rest: Vec<u8>,
    _http: Http,
}

impl Stream {
    /// Returns the next line of data, without its name; `None` at the end.
    pub(crate) async fn data(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    return Ok(Some(data.trim_ascii().to_vec()));
                }
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => {
                    self.rest.extend(frame.data_ref().map_or(&[][..], |data| data.as_ref()));
                }
                None => return Ok(None),
            }
        }
    }
}
