//! The clients: one for addresses that the operator configured, one for addresses of organisations.

use std::error::Error as _;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use llm_client::{ProviderTransport, TransportError, WireRequest, WireResponse, certificate_fault};
use llm_protocol::Delivery;
use reqwest::{Certificate, ClientBuilder, Proxy, Url, redirect, retry};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::error::{EgressError, Refused, SetupError};
use crate::lookup::{CheckedResolver, Lookup, SystemLookup, checked};
use crate::rules::{Rules, Verdict};

/// The longest time that an unused connection is kept. Load balancers close theirs after a minute, and a
/// request on a connection that is just closing fails as *ambiguous*.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The most unused connections kept per host.
const POOL_MAX_IDLE: usize = 128;

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct EgressOptions {
    /// The addresses that organisations may reach.
    pub rules: Rules,
    /// The proxy for everything but loopback and allowed hosts. `None`: the one in the environment
    /// (`HTTPS_PROXY`, `NO_PROXY`, …), if any.
    pub proxy: Option<Url>,
    /// Certificates in PEM to trust besides the system's.
    pub ca_bundle: Option<Vec<u8>>,
    /// The timeout for the TCP connection and the TLS handshake.
    pub connect_timeout: Duration,
    /// The value of `user-agent`.
    pub user_agent: String,
}

impl From<Rules> for EgressOptions {
    fn from(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }
}

impl Default for EgressOptions {
    fn default() -> Self {
        let llm_client::Options { connect_timeout, user_agent, .. } =
            llm_client::Options::default();
        Self { rules: Rules::default(), proxy: None, ca_bundle: None, connect_timeout, user_agent }
    }
}

/// The way out to the network. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Arc<Rules>,
    lookup: Arc<dyn Lookup>,
    /// Decides which requests go to the proxy.
    matcher: Matcher,
    proxied: reqwest::Client,
    checked: reqwest::Client,
    open: reqwest::Client,
    connect_timeout: Duration,
}

/// The party that chose a request's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Operator,
    Organisation,
}

impl Egress {
    /// Builds the connection pools. Does not connect yet.
    ///
    /// # Errors
    /// TLS, the CA bundle or the proxy cannot be used.
    pub fn new(options: &EgressOptions) -> Result<Self, SetupError> {
        Self::with_lookup(options, Arc::new(SystemLookup))
    }

    /// Builds an egress with another way to look names up.
    ///
    /// # Errors
    /// Those of [`Egress::new`].
    pub fn with_lookup(
        options: &EgressOptions,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, SetupError> {
        let rules = Arc::new(options.rules.clone());
        let certificates = certificates(options.ca_bundle.as_deref())?;
        let base = || builder(options).tls_certs_merge(certificates.iter().cloned());
        let proxied = match &options.proxy {
            Some(url) => Some(Proxy::all(url.as_str()).map_err(SetupError::Proxy)?),
            None => None,
        };
        let proxied = build(|| match &proxied {
            Some(proxy) => base().proxy(proxy.clone()),
            None => base(),
        })?;
        let matcher = match &options.proxy {
            Some(url) => Matcher::builder().all(url.as_str()).build(),
            None => Matcher::from_env(),
        };
        let resolver = Arc::new(CheckedResolver { lookup: lookup.clone(), rules: rules.clone() });
        let checked = build(|| base().no_proxy().dns_resolver(resolver.clone()))?;
        let open = build(|| base().no_proxy())?;
        let connect_timeout = options.connect_timeout;
        let shared = Shared { rules, lookup, matcher, proxied, checked, open, connect_timeout };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the rules for organisations.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// Returns a transport for addresses that organisations influence.
    #[must_use]
    pub fn for_organisations(&self) -> Transport {
        Transport { egress: self.clone(), chosen_by: ChosenBy::Organisation }
    }

    /// Returns a transport for addresses that the operator configured, anywhere.
    #[must_use]
    pub fn for_operator(&self) -> Transport {
        Transport { egress: self.clone(), chosen_by: ChosenBy::Operator }
    }

    /// Sends one request. Follows no redirect.
    pub(crate) async fn send(
        &self,
        request: WireRequest,
        chosen_by: ChosenBy,
    ) -> Result<WireResponse, EgressError> {
        let client = self.client_for(&request.url, chosen_by).await?;
        let WireRequest { method, url, headers, body } = request;
        let mut request = client.request(method, url).headers(headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        let response = request.send().await.map_err(|error| {
            let unsent =
                error.is_builder() || error.is_connect() || llm_client::is_refused_unseen(&error);
            failure(error, if unsent { Delivery::NotSent } else { Delivery::Ambiguous })
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes_stream();
        let body =
            body.map(|chunk| chunk.map_err(|error| failed(&failure(error, Delivery::Accepted))));
        Ok(WireResponse { status, headers, body: body.boxed() })
    }

    async fn client_for(
        &self,
        url: &Url,
        chosen_by: ChosenBy,
    ) -> Result<&reqwest::Client, EgressError> {
        let verdict = match chosen_by {
            ChosenBy::Operator => Verdict::Open,
            ChosenBy::Organisation => self.shared.rules.check(url)?,
        };
        self.client_by(url, verdict).await
    }

    /// Returns the client for a URL that was judged.
    pub(crate) async fn client_by(
        &self,
        url: &Url,
        verdict: Verdict,
    ) -> Result<&reqwest::Client, EgressError> {
        let shared = &*self.shared;
        if self.proxy_for(url).is_some() {
            if verdict == Verdict::Checked {
                self.check_behind_proxy(url).await?;
            }
            return Ok(&shared.proxied);
        }
        Ok(match verdict {
            Verdict::Open => &shared.open,
            Verdict::Checked => &shared.checked,
        })
    }

    /// Returns the operator's proxy for a URL. Hosts on this machine, and hosts allowed by name or network, are
    /// reached without it.
    fn proxy_for(&self, url: &Url) -> Option<Intercept> {
        let shared = &*self.shared;
        if is_loopback(url) || shared.rules.lists(url) {
            return None;
        }
        shared.matcher.intercept(&url.as_str().parse().ok()?)
    }

    /// Connects to the host of a URL that was judged, for bytes that are not ours: looks its name up once, checks every
    /// address, and connects to exactly those, or to the operator's proxy.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        verdict: Verdict,
    ) -> Result<TcpStream, EgressError> {
        let connected = async {
            if let Some(proxy) = self.proxy_for(url) {
                if verdict == Verdict::Checked {
                    self.check_behind_proxy(url).await?;
                }
                return through(&proxy, url).await;
            }
            let shared = &*self.shared;
            let port = url.port_or_known_default().ok_or(Refused::NoHost)?;
            let addresses = match url.host().ok_or(Refused::NoHost)? {
                url::Host::Ipv4(ip) => vec![ip.into()],
                url::Host::Ipv6(ip) => vec![ip.into()],
                url::Host::Domain(name) => match verdict {
                    Verdict::Open => shared.lookup.lookup(name).await.map_err(unconnected)?,
                    Verdict::Checked => checked(&*shared.lookup, &shared.rules, name)
                        .await
                        .map_err(|error| match error.downcast::<Refused>() {
                            Ok(refused) => (*refused).into(),
                            Err(unknown) => unconnected(unknown),
                        })?,
                },
            };
            let addresses: Vec<SocketAddr> =
                addresses.into_iter().map(|ip: IpAddr| (ip, port).into()).collect();
            TcpStream::connect(&addresses[..]).await.map_err(unconnected)
        };
        let patience = self.shared.connect_timeout;
        match tokio::time::timeout(patience, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(unconnected(format!("nobody answered within {} s", patience.as_secs()))),
        }
    }

    /// Checks a name before it goes to the proxy. The proxy looks it up itself and enforces its own rules.
    /// Still, a name that this machine resolves to an inside address is refused; a name that it cannot
    /// resolve is left to the proxy.
    async fn check_behind_proxy(&self, url: &Url) -> Result<(), EgressError> {
        let Some(url::Host::Domain(name)) = url.host() else { return Ok(()) };
        match checked(&*self.shared.lookup, &self.shared.rules, name).await {
            Ok(_) => Ok(()),
            Err(error) => match error.downcast::<Refused>() {
                Ok(refused) => Err((*refused).into()),
                Err(unknown) => {
                    tracing::debug!(error = %unknown, "a host behind the proxy is not known here");
                    Ok(())
                }
            },
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("rules", &self.shared.rules).finish_non_exhaustive()
    }
}

/// Sends requests through an [`Egress`], one per call.
#[derive(Clone, Debug)]
pub struct Transport {
    pub(crate) egress: Egress,
    pub(crate) chosen_by: ChosenBy,
}

#[async_trait::async_trait]
impl ProviderTransport for Transport {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        self.egress.send(request, self.chosen_by).await.map_err(|error| failed(&error))
    }
}

fn builder(options: &EgressOptions) -> ClientBuilder {
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

fn certificates(bundle: Option<&[u8]>) -> Result<Vec<Certificate>, SetupError> {
    let Some(bundle) = bundle else { return Ok(Vec::new()) };
    let found = Certificate::from_pem_bundle(bundle).map_err(SetupError::Certificates)?;
    if found.is_empty() { Err(SetupError::NoCertificates) } else { Ok(found) }
}

/// Builds a client. Without platform certificates (a slim container) the platform's verifier cannot be built,
/// so the fallback trusts none.
fn build(builder: impl Fn() -> ClientBuilder) -> Result<reqwest::Client, SetupError> {
    builder().build().or_else(|error| {
        let client = builder().tls_certs_only([]).build().map_err(SetupError::Client)?;
        let reason = chain(&error);
        tracing::warn!(%reason, "no CA certificates: https hosts cannot be reached (install ca-certificates)");
        Ok(client)
    })
}

/// Opens a tunnel through the operator's proxy.
async fn through(proxy: &Intercept, url: &Url) -> Result<TcpStream, EgressError> {
    if proxy.uri().scheme_str() != Some("http") {
        return Err(unconnected(
            "the operator's proxy is reached by http:// only, for commands".to_owned(),
        ));
    }
    let host = url.host_str().ok_or(Refused::NoHost)?;
    let port = url.port_or_known_default().ok_or(Refused::NoHost)?;
    let target = http::Uri::builder().scheme("https").authority(format!("{host}:{port}"));
    let target = target.path_and_query("/").build().map_err(|_| Refused::NoHost)?;
    let connector = tower::service_fn(|to: http::Uri| async move {
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        TcpStream::connect((host, to.port_u16().unwrap_or(80))).await.map(TokioIo::new)
    });
    let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
    if let Some(auth) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(auth.clone());
    }
    let connected = tunnel.oneshot(target).await;
    connected.map(TokioIo::into_inner).map_err(|error| unconnected(format!("the proxy: {error}")))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
fn unconnected(error: impl ToString) -> EgressError {
    EgressError::Network { delivery: Delivery::NotSent, message: error.to_string() }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

pub(crate) fn failure(error: reqwest::Error, delivery: Delivery) -> EgressError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return refused.clone().into();
        }
        source = cause.source();
    }
    let causes = chain(&error.without_url());
    EgressError::Network { delivery, message: certificate_fault(&causes).unwrap_or(causes) }
}

/// Converts an error for the client of providers.
pub(crate) fn failed(error: &EgressError) -> TransportError {
    let message = error.to_string();
    let delivery = match error {
        EgressError::Network { delivery, .. } => *delivery,
        EgressError::Refused(_) => Delivery::NotSent,
        EgressError::Slow(_)
        | EgressError::TooLarge(_)
        | EgressError::Redirects(_)
        | EgressError::BadRedirect
        | EgressError::Barred(_) => Delivery::Accepted,
    };
    TransportError { delivery, message }
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
