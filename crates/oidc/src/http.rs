//! Carries the OpenID crate's requests over our outbound client: one try, no redirects, bounded answers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use llm_client::{ProviderTransport, TransportError, WireRequest, WireResponse};
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
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Slow,
    #[error("its answer has more than {MAX_BYTES} bytes")]
    TooLarge,
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
    let WireResponse { status, headers, mut body } = transport.send(request).await?;
    if status.is_server_error() || status == http::StatusCode::TOO_MANY_REQUESTS {
        return Err(HttpError::Failed(status));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(HttpError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    let mut response = HttpResponse::new(bytes);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}
