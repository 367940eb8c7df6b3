//! The way out for commands in a sandbox: a proxy that they speak to on a listener of their own, by HTTP's CONNECT and
//! by whole addresses in requests.
//!
//! A host is judged like an organisation's address: by its text, then every address of its name, once, and the connection goes
//! to exactly those. Addresses that the operator has opened for the service itself (`allow_private`) are not open for commands.
//!
//! Absent: TLS of our own (what is in a tunnel stays between its ends), name service, other protocols.

mod judge;
mod tunnel;

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use llm_protocol::Delivery;
use reqwest::{Body, Url};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::client::{Egress, EgressOptions, failure};
use crate::error::{EgressError, SetupError};
use crate::lookup::{Lookup, SystemLookup};
use crate::rules::{Hosts, Rules, Verdict};
use judge::{Target, Turned};
use tunnel::Tunnel;

/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(20);
/// The most bytes of a request's head.
const HEAD_BYTES: usize = 16 * 1024;
/// The most fields of a request's head.
const HEAD_FIELDS: usize = 100;

/// The bounds of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitBounds {
    /// Connections at once. Others wait in the kernel's queue.
    pub connections: usize,
    /// A connection over which nothing goes for this long is ended.
    pub idle: Duration,
}

impl Default for ExitBounds {
    fn default() -> Self {
        Self { connections: 64, idle: Duration::from_mins(2) }
    }
}

/// The end of one try to reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The host as it was asked for, at most 253 characters.
    pub host: String,
    /// The port; 0 if there was none.
    pub port: u16,
    /// The end.
    pub passage: Passage,
    /// Bytes that came from the command.
    pub sent: u64,
    /// Bytes that went to it.
    pub received: u64,
}

/// The verdict about a try to reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It was let through.
    Passed,
    /// It was refused; one sentence for whoever tried.
    Refused(String),
    /// It was allowed, and nobody was reached, for this reason.
    Failed(String),
}

/// Takes note of attempts, each when it is over.
pub type Record = Arc<dyn Fn(Attempt) + Send + Sync>;

/// The proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exit {
    egress: Egress,
    /// The word for its hosts in sentences.
    name: Arc<str>,
    bounds: ExitBounds,
}

impl Exit {
    /// Makes a proxy to `hosts`, which sentences call `name`. [`Rules::allow_private`] has no effect on it.
    ///
    /// # Errors
    /// Those of [`Egress::new`].
    pub fn new(options: &EgressOptions, hosts: Hosts, name: &str) -> Result<Self, SetupError> {
        Self::with_lookup(options, hosts, name, Arc::new(SystemLookup))
    }

    /// Makes a proxy with another way to look names up.
    ///
    /// # Errors
    /// Those of [`Egress::new`].
    pub fn with_lookup(
        options: &EgressOptions,
        hosts: Hosts,
        name: &str,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, SetupError> {
        let rules = Rules { allow_private: false, hosts, ..options.rules.clone() };
        let options = EgressOptions { rules, ..options.clone() };
        let egress = Egress::with_lookup(&options, lookup)?;
        Ok(Self { egress, name: name.into(), bounds: ExitBounds::default() })
    }

    /// Gives it other bounds.
    #[must_use]
    pub fn within(self, bounds: ExitBounds) -> Self {
        Self { bounds, ..self }
    }

    /// Serves everybody who connects to `listener`, until it fails. Dropping the future ends all connections.
    pub async fn serve(&self, listener: TcpListener, record: Record) {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(()) = running.next(), if !running.is_empty() => {}
                accepted = listener.accept(), if running.len() < self.bounds.connections => match accepted {
                    Ok((stream, _)) => running.push(self.connection(stream, record.clone())),
                    Err(error) => {
                        tracing::warn!(%error, "a command's way out cannot accept");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn connection(&self, stream: TcpStream, record: Record) {
        let seen = Seen { attempt: Mutex::default(), traffic: Arc::default(), record };
        let (sent, received) = (seen.traffic.clone(), seen.traffic.clone());
        let stream = InspectReader::new(stream, move |bytes| sent.add(&sent.sent, bytes));
        let stream =
            InspectWriter::new(stream, move |bytes| received.add(&received.received, bytes));
        let service =
            service_fn(|request| async { Ok::<_, Infallible>(self.answer(request, &seen).await) });
        let serving = async {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_headers(HEAD_FIELDS)
                .max_header_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a command's request was torn");
            }
            let tunnel = seen.lock().tunnel.take();
            if let Some(tunnel) = tunnel
                && let Err(turned) = tunnel.run().await
            {
                seen.lock().passage = Some(turned.passage(&seen.place()));
            }
        };
        tokio::select! {
            () = Box::pin(serving) => {}
            () = seen.traffic.idle(self.bounds.idle) => {}
        }
    }

    async fn answer(&self, request: Request<Incoming>, seen: &Seen) -> Response<Body> {
        let target = match Target::of(&request) {
            Ok(target) => target,
            Err(sentence) => return refusal(StatusCode::BAD_REQUEST, sentence.to_owned()),
        };
        {
            let mut attempt = seen.lock();
            (attempt.host, attempt.port) = (target.host.clone(), target.port);
        }
        let passed = match target.url {
            Ok(url) => self.pass(request, &url, seen).await,
            Err(turned) => Err(turned),
        };
        match passed {
            Ok(response) => {
                seen.lock().passage = Some(Passage::Passed);
                response
            }
            Err(turned) => {
                let place = seen.place();
                let response = refusal(turned.status(), turned.sentence(&place));
                seen.lock().passage = Some(turned.passage(&place));
                response
            }
        }
    }

    async fn pass(
        &self,
        request: Request<Incoming>,
        url: &Url,
        seen: &Seen,
    ) -> Result<Response<Body>, Turned> {
        let rules = self.egress.rules();
        let verdict = judge::verdict(rules, &self.name, url)?;
        if request.method() == Method::CONNECT {
            let upstream = self.egress.connect(url, verdict).await?;
            // Where hosts are listed, one that shares its addresses with others is not the way to those.
            let is_bound = matches!(rules.hosts, Hosts::Listed(_)) && verdict == Verdict::Checked;
            let name = url.domain().filter(|_| is_bound).map(str::to_owned);
            let client = hyper::upgrade::on(request);
            seen.lock().tunnel = Some(Tunnel { client, upstream, name });
            return Ok(Response::new(Body::default()));
        }
        Ok(self.forward(request, url, verdict).await?)
    }

    /// Sends a request on, and its answer back.
    async fn forward(
        &self,
        request: Request<Incoming>,
        url: &Url,
        verdict: Verdict,
    ) -> Result<Response<Body>, EgressError> {
        let client = self.egress.client_by(url, verdict).await?;
        let (mut parts, body) = request.into_parts();
        strip(&mut parts.headers);
        // The address decides, whatever else the request says.
        parts.headers.remove(HOST);
        let mut forwarded = reqwest::Request::new(parts.method, url.clone());
        *forwarded.headers_mut() = parts.headers;
        if !body.is_end_stream() {
            *forwarded.body_mut() = Some(Body::wrap(body));
        }
        let sent = client.execute(forwarded).await;
        let answer = sent.map_err(|error| failure(error, Delivery::Ambiguous))?;
        let mut response = Response::<Body>::from(answer);
        *response.version_mut() = Version::HTTP_11;
        strip(response.headers_mut());
        // One request for each connection: what goes over it is all of one host.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(response)
    }
}

/// Removes the header fields that are about one connection only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    const OF_A_CONNECTION: [&str; 9] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    for name in named.iter().map(HeaderName::as_str).chain(OF_A_CONNECTION) {
        headers.remove(name);
    }
}

fn refusal(status: StatusCode, mut sentence: String) -> Response<Body> {
    sentence.push('\n');
    let mut response = Response::new(Body::from(sentence));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// One connection: what was asked for, how much went over it. Told when it is over, however that comes.
struct Seen {
    attempt: Mutex<Asked>,
    traffic: Arc<Traffic>,
    record: Record,
}

#[derive(Default)]
struct Asked {
    host: String,
    port: u16,
    passage: Option<Passage>,
    tunnel: Option<Tunnel>,
}

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> Place {
        let attempt = self.lock();
        Place { host: attempt.host.clone(), port: attempt.port }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let mut asked = self.lock();
        let Some(passage) = asked.passage.take() else { return };
        let (host, port) = (std::mem::take(&mut asked.host), asked.port);
        drop(asked);
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (sent, received) = (of(&self.traffic.sent), of(&self.traffic.received));
        (self.record)(Attempt { host, port, passage, sent, received });
    }
}

/// A host and its port, as sentences name them.
struct Place {
    host: String,
    port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The bytes of one connection, and when the last of them went.
struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
    last: Mutex<Instant>,
}

impl Default for Traffic {
    fn default() -> Self {
        let last = Mutex::new(Instant::now());
        Self { sent: AtomicU64::new(0), received: AtomicU64::new(0), last }
    }
}

impl Traffic {
    fn add(&self, count: &AtomicU64, bytes: &[u8]) {
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when nothing has gone for so long.
    async fn idle(&self, long: Duration) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= long {
                return;
            }
            tokio::time::sleep_until(last + long).await;
        }
    }
}
