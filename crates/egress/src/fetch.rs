//! Fetches a whole answer, with redirects, within bounds on bytes and time.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use llm_client::{BodyError, ProviderTransport, TransportError, WireRequest, WireResponse};
use llm_protocol::Delivery;
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderMap, LOCATION, PROXY_AUTHORIZATION};
use reqwest::{Method, StatusCode, Url};

use crate::client::{ChosenBy, Transport, failed};
use crate::error::EgressError;

/// The bounds of [`Transport::fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// The timeout for all requests together, to the last byte.
    pub time: Duration,
    /// The most bytes of the last answer's body.
    pub bytes: usize,
    /// The most redirects.
    pub redirects: usize,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The address after redirects.
    pub url: Url,
    /// Any status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Judges an address to which another redirects. Its error says in words why the fetch ends there.
pub type JudgeRedirect<'j> = &'j (dyn Fn(&Url) -> Result<(), String> + Send + Sync);

/// A [`ProviderTransport`] that gets whole answers and follows redirects.
#[derive(Clone, Debug)]
pub struct Following {
    transport: Transport,
    limits: FetchLimits,
}

#[async_trait::async_trait]
impl ProviderTransport for Following {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        if request.method != Method::GET {
            return self.transport.send(request).await; // a body is never sent to a second address
        }
        let fetched = self.transport.fetch(request.url, request.headers, self.limits).await;
        let Fetched { status, headers, body, .. } = fetched.map_err(|error| failed(&error))?;
        let body = futures::stream::iter([Ok(body)]).boxed();
        Ok(WireResponse { status, headers, body })
    }
}

impl Transport {
    /// Returns a transport whose `GET` follows redirects like [`Transport::fetch`].
    #[must_use]
    pub fn following(self, limits: FetchLimits) -> Following {
        Following { transport: self, limits }
    }

    /// Gets `url` whole. Every redirect is checked like an organisation's address, even if the operator chose
    /// the first address, because another party answers there. Authentication headers are dropped when a
    /// redirect leaves the origin.
    ///
    /// # Errors
    /// An address is refused, the network fails, or a bound is exceeded.
    pub async fn fetch(
        &self,
        url: Url,
        headers: HeaderMap,
        limits: FetchLimits,
    ) -> Result<Fetched, EgressError> {
        let follow_all = |_: &Url| -> Result<(), String> { Ok(()) };
        self.fetch_judged(url, headers, limits, &follow_all).await
    }

    /// Gets `url` whole, as [`Transport::fetch`] does, and follows only the redirects that `judge` lets it follow.
    ///
    /// # Errors
    /// An address is refused, the network fails, or a bound is exceeded.
    pub async fn fetch_judged(
        &self,
        url: Url,
        headers: HeaderMap,
        limits: FetchLimits,
        judge: JudgeRedirect<'_>,
    ) -> Result<Fetched, EgressError> {
        let whole = self.follow(url, headers, limits, judge);
        match tokio::time::timeout(limits.time, Box::pin(whole)).await {
            Ok(answer) => answer,
            Err(_) => Err(EgressError::Slow(limits.time)),
        }
    }

    async fn follow(
        &self,
        mut url: Url,
        mut headers: HeaderMap,
        limits: FetchLimits,
        judge: JudgeRedirect<'_>,
    ) -> Result<Fetched, EgressError> {
        let origin = url.origin();
        let mut chosen_by = self.chosen_by;
        for _ in 0..=limits.redirects {
            let (method, body) = (Method::GET, Bytes::new());
            let request = WireRequest { method, url: url.clone(), headers: headers.clone(), body };
            let answer = self.egress.send(request, chosen_by).await?;
            let Some(to) = redirect(&url, &answer)? else {
                return whole(url, answer, limits.bytes).await;
            };
            judge(&to).map_err(EgressError::Barred)?;
            if to.origin() != url.origin() {
                for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    headers.remove(name);
                }
            }
            if to.origin() != origin {
                chosen_by = ChosenBy::Organisation;
            }
            url = to;
        }
        Err(EgressError::Redirects(limits.redirects))
    }
}

/// Returns the target of a redirect, if the answer is one.
fn redirect(from: &Url, answer: &WireResponse) -> Result<Option<Url>, EgressError> {
    let follows = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(to) = answer.headers.get(LOCATION).filter(|_| follows) else { return Ok(None) };
    let to = to.to_str().map_err(|_| EgressError::BadRedirect)?;
    from.join(to).map(Some).map_err(|_| EgressError::BadRedirect)
}

async fn whole(url: Url, mut answer: WireResponse, most: usize) -> Result<Fetched, EgressError> {
    let (status, headers) = (answer.status, std::mem::take(&mut answer.headers));
    let body = answer.whole(most).await.map_err(|error| match error {
        BodyError::Network(TransportError { message, .. }) => {
            EgressError::Network { delivery: Delivery::Accepted, message }
        }
        BodyError::TooLarge(most) => EgressError::TooLarge(most),
    })?;
    Ok(Fetched { url, status, headers, body })
}
