//! The service's HTTP interface as a typed client, for the commands of a person and the journeys.
//!
//! ```text
//! profile ─▶ ClientOptions ─▶ Client ─calls──▶ one answer each (views in `wire`)
//!                                └──LogFollower─▶ events and deltas, resumed across cuts
//! ```
//!
//! Invariant: every retried call is safe to repeat, because its id is minted here.
//! Absent on purpose: printing, terminals, and the service's own crates except `domain`. Of command lines it knows only
//! the two options that name a service and its key.

mod calls;
mod error;
mod item;
mod log;
mod options;
mod pace;
pub mod profile;
mod sse;
mod transfer;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};

use tokio::sync::OnceCell;

pub use calls::parsed;
pub use error::{ClientError, cause_text, certificate_fault, reason};
pub use item::{Delta, DeltaKind, LogEvent, LogItem};
pub use log::LogFollower;
pub use options::{ClientOptions, KeySource, ServiceAccess};
pub use pace::Pace;
pub use transfer::NamedRepository;
pub use wire::{
    AbortView, CachedTokensView, ExplainView, FaultView, ModelChoice, ProjectView,
    PromptPartRequest, PromptRequest, RebuildView, RepositoryView, RequestId, SessionModelView,
    SessionView, SessionsQuery, TimesView, TokensView, ViolationView,
};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The largest answer, in bytes. A model's request body fits.
const MAX_ANSWER: usize = 128 * 1024 * 1024;
/// The largest body of a refusal, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;

/// A connection to one service with one key. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    /// Without a trailing slash.
    url: String,
    key: KeySource,
    pace: Pace,
    /// The service's answer about its directories.
    shares_paths: OnceCell<bool>,
}

impl Client {
    /// Returns a client for the service in the options, otherwise in the client profile. Does not connect yet.
    ///
    /// # Errors
    /// [`ClientError::BadUrl`], [`ClientError::BadKey`] and [`ClientError::Profile`].
    pub fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        Self::with_pace(options, Pace::default())
    }

    /// Like [`Client::new`], with another pace.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub fn with_pace(options: &ClientOptions, pace: Pace) -> Result<Self, ClientError> {
        Self::of(options.resolve()?, pace)
    }

    /// Returns a client for a service that the user logs in to.
    ///
    /// # Errors
    /// [`ClientError::BadUrl`] and [`ClientError::BadKey`].
    pub fn at(url: &str, key: &str) -> Result<Self, ClientError> {
        let access = ServiceAccess {
            url: url.to_owned(),
            key: Some(key.to_owned()),
            source: KeySource::Login,
        };
        Self::of(access, Pace::default())
    }

    fn of(access: ServiceAccess, pace: Pace) -> Result<Self, ClientError> {
        let ServiceAccess { url, key, source } = access;
        let bad_url = |why: String| ClientError::BadUrl { url: url.clone(), why };
        let parsed = Url::parse(&url).map_err(|error| bad_url(error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad_url("it must start with http:// or https://".into()));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad_url("it must end with the host, the port or a path".into()));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad_url("it must not have a user or a password".into()));
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = &key {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| ClientError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("opencode-cloud/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT)
            .tcp_nodelay(true);
        if is_loopback(&url) {
            builder = builder.no_proxy(); // a proxy's loopback is another machine
        }
        let http = builder.build().map_err(|error| bad_url(error::reason(&error)))?;
        Ok(Self {
            inner: Arc::new(Inner { http, url, key: source, pace, shares_paths: OnceCell::new() }),
        })
    }

    /// Returns the service's URL without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Returns the pace of this client.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.inner.pace
    }

    /// Returns whether sessions of the service may work in directories of this machine. The service says so once, on
    /// loopback alone: elsewhere its paths are those of another machine.
    ///
    /// # Errors
    /// As for every call.
    pub async fn shares_paths(&self) -> Result<bool, ClientError> {
        if !is_loopback(&self.inner.url) {
            return Ok(false);
        }
        self.inner.shares_paths.get_or_try_init(|| self.ask_for_paths()).await.copied()
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.inner.http.request(method, format!("{}{path}", self.inner.url))
    }

    /// Sends a request and reads its answer within `limit`. `what` names the requested thing, for errors.
    async fn answer(
        &self,
        request: RequestBuilder,
        what: &str,
        limit: Duration,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        let response = self.send(request.timeout(limit), what, limit).await?;
        let headers = response.headers().clone();
        let body = self.read(response, MAX_ANSWER, limit).await?.ok_or_else(|| {
            let why = format!("it is larger than {} MiB", MAX_ANSWER >> 20);
            ClientError::Unreadable { what: what.to_owned(), why }
        })?;
        Ok((headers, body))
    }

    /// Sends a request, and turns an unsuccessful answer into an error.
    async fn send(
        &self,
        request: RequestBuilder,
        what: &str,
        limit: Duration,
    ) -> Result<Response, ClientError> {
        let lost = |error| ClientError::transport(&self.inner.url, limit, &error);
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = self.read(response, MAX_REFUSAL, limit).await?.unwrap_or_default();
        if status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::unauthorized(&self.inner.url, &self.inner.key));
        }
        let retry_after = retry_after.map(Duration::from_secs);
        Err(ClientError::refused(&self.inner.url, status, retry_after, what, &body))
    }

    /// Reads a body of at most `max` bytes; returns `None` if it is larger.
    async fn read(
        &self,
        response: Response,
        max: usize,
        limit: Duration,
    ) -> Result<Option<Bytes>, ClientError> {
        let mut body = BytesMut::new();
        let mut stream = response.bytes_stream();
        while let Some(piece) = stream.next().await {
            let lost = |error| ClientError::transport(&self.inner.url, limit, &error);
            let piece = piece.map_err(lost)?;
            if body.len() + piece.len() > max {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(body.freeze()))
    }

    /// Retries a call that is safe to repeat until it succeeds, is refused, or patience runs out.
    async fn persist<T>(
        &self,
        call: impl AsyncFnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.persist_while(ClientError::is_transient, call).await
    }

    /// Retries a command's first calls. A service that says "not now" is asked again. If no service is there, this
    /// fails at once, since somebody has to start it.
    async fn persist_opening<T>(
        &self,
        call: impl AsyncFnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let is_there = |error: &ClientError| !matches!(error, ClientError::Unreachable { .. });
        self.persist_while(|error| error.is_transient() && is_there(error), call).await
    }

    async fn persist_while<T>(
        &self,
        may_repeat: impl Fn(&ClientError) -> bool,
        mut call: impl AsyncFnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let pace = self.pace();
        let start = tokio::time::Instant::now();
        let mut failures = 0;
        loop {
            match call().await {
                Err(error) if may_repeat(&error) && start.elapsed() < pace.patience => {
                    failures += 1;
                    let asked = error.retry_after().unwrap_or_default().min(pace.patience);
                    tokio::time::sleep(pace.delay(failures).max(asked)).await;
                }
                other => return other,
            }
        }
    }
}

/// Returns whether a URL's host is this machine.
#[must_use]
pub fn is_loopback(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let Some(host) = url.as_ref().and_then(Url::host_str) else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str, key: Option<&str>) -> ClientOptions {
        ClientOptions { url: Some(url.into()), key: key.map(Into::into) }
    }

    #[test]
    fn a_url_or_key_that_cannot_work_is_refused_before_any_call() {
        for url in ["localhost:4096", "ftp://x", "http://x?y=1", "http://", "http://a:b@x"] {
            let refused = Client::at(url, "k").map(|_| ());
            assert!(matches!(refused, Err(ClientError::BadUrl { .. })), "{url}: {refused:?}");
        }
        let refused = Client::new(&options("work", Some("k"))).map(|_| ());
        assert!(matches!(refused, Err(ClientError::UnknownService { .. })), "{refused:?}");
        let refused = Client::new(&options("http://x", Some("a\nb"))).map(|_| ());
        assert!(matches!(refused, Err(ClientError::BadKey)));
        assert_eq!(
            Client::new(&options("http://[::1]:4096/", None)).map(|c| c.url().to_owned()).ok(),
            Some("http://[::1]:4096".to_owned())
        );
    }

    #[test]
    fn loopback_is_told_from_elsewhere() {
        for url in
            ["http://127.0.0.1:4096", "http://[::1]:1", "http://localhost", "http://127.9.9.9"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://10.0.0.1", "https://oc.example", "http://localhost.example", "nonsense"]
        {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn options_never_show_the_key() {
        let shown = format!("{:?}", options("http://x", Some("oc_secret")));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
