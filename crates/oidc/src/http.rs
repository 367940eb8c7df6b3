//! Carries the OpenID crate's requests over our outbound client: one try, no redirects, bounded answers.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use llm_client::{BodyError, ProviderTransport, TransportError, WireRequest};
use openidconnect::{HttpRequest, HttpResponse};
use url::Url;

/// The timeout of one request to a provider.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The most bytes of an answer.
const MAX_BYTES: usize = 512 * 1024;

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    Transport(#[from] TransportError),
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Slow,
    #[error("its answer has the status {0}")]
    Failed(http::StatusCode),
    #[error("its address cannot be read")]
    Address,
}

/// Makes the client that the OpenID crate calls.
pub(crate) fn caller(
    transport: Arc<dyn ProviderTransport>,
) -> impl Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> + Send + Sync {
    move |request| {
        let transport = transport.clone();
        let whole = async move { send(&*transport, request).await };
        async move { tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| HttpError::Slow)? }
            .boxed()
    }
}

async fn send(
    transport: &dyn ProviderTransport,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (parts, body) = request.into_parts();
    let url = Url::parse(&parts.uri.to_string()).map_err(|_| HttpError::Address)?;
    let request =
        WireRequest { method: parts.method, url, headers: parts.headers, body: body.into() };
    let mut answer = transport.send(request).await?;
    let (status, headers) = (answer.status, std::mem::take(&mut answer.headers));
    if status.is_server_error() || status == http::StatusCode::TOO_MANY_REQUESTS {
        return Err(HttpError::Failed(status));
    }
    let mut response = HttpResponse::new(answer.whole(MAX_BYTES).await?.into());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}
