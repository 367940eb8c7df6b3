//! Carries the `oauth2` crate's requests over our own transport: one try, no redirects, bounded answers.

use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use llm_client::{BodyError, TransportError, WireRequest};
use oauth2::{HttpRequest, HttpResponse};
use serde_json::Value;
use url::Url;

use super::{HTTP_TIMEOUT, Transport};

/// The most bytes of an answer.
const MAX_BYTES: usize = 256 * 1024;

/// The reasons why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    Transport(#[from] TransportError),
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("it did not answer within {} s", HTTP_TIMEOUT.as_secs())]
    Slow,
    #[error("its answer has the status {0}")]
    Failed(StatusCode),
    #[error("its address cannot be read")]
    Address,
}

/// Sends one request.
pub(super) fn caller(
    transport: Transport,
) -> impl Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
    move |request| {
        let transport = transport.clone();
        async move {
            let (parts, body) = request.into_parts();
            let url = Url::parse(&parts.uri.to_string()).map_err(|_| HttpError::Address)?;
            let (method, headers) = (parts.method, parts.headers);
            let request = WireRequest { method, url, headers, body: body.into() };
            // The crate retries silently, so log the failure here.
            let (status, body) = send(&transport, request).await.inspect_err(|error| {
                tracing::debug!(%error, "an OAuth server could not be asked");
            })?;
            let status = as_the_standard_has_it(status, &body);
            let mut response = HttpResponse::new(body);
            *response.status_mut() = status;
            Ok(response)
        }
        .boxed()
    }
}

/// # Errors
/// No answer came, or one that reports a temporary failure (a status from 500 on, or 429).
pub(crate) async fn send(
    transport: &Transport,
    request: WireRequest,
) -> Result<(StatusCode, Vec<u8>), HttpError> {
    let whole = async {
        let answer = transport.send(request).await?;
        let status = answer.status;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(HttpError::Failed(status));
        }
        Ok((status, answer.whole(MAX_BYTES).await?.into()))
    };
    tokio::time::timeout(HTTP_TIMEOUT, whole).await.map_err(|_| HttpError::Slow)?
}

/// Corrects the status of GitHub's errors, which is 200.
/// <https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps#error-codes-for-the-device-flow>
fn as_the_standard_has_it(status: StatusCode, body: &[u8]) -> StatusCode {
    let is_error = status == StatusCode::OK
        && serde_json::from_slice::<Value>(body)
            .is_ok_and(|body| body["error"].is_string() && body["access_token"].is_null());
    if is_error { StatusCode::BAD_REQUEST } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_the_status_200_is_one() {
        let status = |body: &str| as_the_standard_has_it(StatusCode::OK, body.as_bytes());
        assert_eq!(status(r#"{"error":"authorization_pending"}"#), StatusCode::BAD_REQUEST);
        assert_eq!(status(r#"{"access_token":"t","token_type":"bearer"}"#), StatusCode::OK);
        assert_eq!(status("error"), StatusCode::OK);
    }
}
