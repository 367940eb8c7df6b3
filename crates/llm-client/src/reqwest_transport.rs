//! The real network, through reqwest.

use std::error::Error as _;
use std::time::Duration;

use futures::StreamExt;
use llm_protocol::Delivery;
use reqwest::{ClientBuilder, Url, redirect, retry};

use crate::certificate::certificate_fault;
use crate::client::ClientError;
use crate::options::Options;
use crate::transport::{ProviderTransport, TransportError, WireRequest, WireResponse};

/// The longest time that an unused connection is kept. Load balancers close theirs after a minute, and a
/// request on a connection that is just closing fails as *ambiguous*.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The most unused connections kept per host.
const POOL_MAX_IDLE: usize = 128;

/// Sends requests through reqwest, with pooled connections. Cheap to clone.
///
/// - Retries and redirects are off. The library below (hyper-util) repeats one case: if a pooled connection
///   turns out to be closed and no byte of the request was written, it uses another connection. There is
///   still only one request on the wire.
/// - The system's proxy settings (`HTTPS_PROXY`, …) apply to all hosts except loopback ones, because a local
///   model server is never behind a proxy.
/// - TLS uses the process's default crypto provider, or aws-lc-rs if none is installed. On a machine without
///   CA certificates, plain HTTP works and HTTPS fails with that reason.
#[derive(Clone, Debug)]
pub struct ReqwestTransport {
    proxied: reqwest::Client,
    direct: reqwest::Client,
}

impl ReqwestTransport {
    /// Builds the connection pools. Does not connect yet.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(options: &Options) -> Result<Self, ClientError> {
        let proxied = build(|| builder(options))?;
        let direct = build(|| builder(options).no_proxy())?;
        Ok(Self { proxied, direct })
    }

    fn client_for(&self, url: &Url) -> &reqwest::Client {
        if is_loopback(url) { &self.direct } else { &self.proxied }
    }
}

fn builder(options: &Options) -> ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(options.connect_timeout)
        .user_agent(&options.user_agent)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(POOL_MAX_IDLE)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(retry::never())
}

/// Builds a client. Without platform certificates (a slim container) the platform's verifier cannot be built,
/// so the fallback trusts none.
fn build(builder: impl Fn() -> ClientBuilder) -> Result<reqwest::Client, ClientError> {
    builder().build().or_else(|error| {
        let client = builder().tls_certs_only([]).build().map_err(ClientError::Tls)?;
        let reason = chain(&error);
        tracing::warn!(%reason, "no CA certificates: https model providers cannot be reached (install ca-certificates)");
        Ok(client)
    })
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|ip| ip.is_loopback())
}

#[async_trait::async_trait]
impl ProviderTransport for ReqwestTransport {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        let WireRequest { method, url, headers, body } = request;
        let client = self.client_for(&url);
        let mut request = client.request(method, url).headers(headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        let response = request.send().await.map_err(|error| {
            let unsent = error.is_builder() || error.is_connect() || is_refused_unseen(&error);
            failure(error, if unsent { Delivery::NotSent } else { Delivery::Ambiguous })
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes_stream();
        let body = body.map(|chunk| chunk.map_err(|error| failure(error, Delivery::Accepted)));
        Ok(WireResponse { status, headers, body: body.boxed() })
    }
}

/// Returns whether HTTP/2 reports that the server has not processed the request (RFC 9113 §8.7).
pub fn is_refused_unseen(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        cause = error.source();
    }
    false
}

fn failure(error: reqwest::Error, delivery: Delivery) -> TransportError {
    let causes = chain(&error.without_url());
    TransportError { delivery, message: certificate_fault(&causes).unwrap_or(causes) }
}

/// Returns the error with its causes: reqwest's own text ("error sending request") says nothing alone.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_recognised() {
        let loopback = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(loopback("http://127.0.0.1:80/v1"));
        assert!(loopback("http://127.8.0.1"));
        assert!(loopback("http://[::1]:11434"));
        assert!(loopback("https://localhost"));
        assert!(!loopback("https://api.openai.com"));
        assert!(!loopback("http://10.0.0.1"));
        assert!(!loopback("http://localhost.example"));
    }

    #[test]
    fn a_client_is_built_whether_or_not_a_crypto_provider_is_installed() {
        ReqwestTransport::new(&Options::default()).unwrap();
        rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
        ReqwestTransport::new(&Options::default()).unwrap();
    }

    // Finding llm 8: a stream that the server refuses was not processed, so a retry costs nothing.
    #[test]
    fn a_refused_stream_was_not_sent() {
        #[derive(Debug, thiserror::Error)]
        #[error("error sending request")]
        struct Wrapped(#[source] h2::Error);
        let of = |reason: h2::Reason| is_refused_unseen(&Wrapped(reason.into()));
        assert!(of(h2::Reason::REFUSED_STREAM));
        assert!(!of(h2::Reason::INTERNAL_ERROR));
        assert!(!is_refused_unseen(&std::io::Error::other("closed")));
    }

    #[test]
    fn a_client_is_built_without_any_certificate() {
        let client = build(|| reqwest::Client::builder().tls_certs_only([]));
        assert!(client.is_ok());
    }
}
