//! The listener of `/metrics`: one of its own, which has nothing else.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

use super::ServeError;

const METRICS: TaskKind = TaskKind::new("metrics listener", OnError::StopRole, OnCancel::Wait);

/// Where Prometheus finds the metrics of this process.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct MetricsArgs {
    /// Answer `GET /metrics` for Prometheus at this address, such as 127.0.0.1:9464 [default: no metrics are shown]
    #[arg(long, value_name = "ADDRESS:PORT", env = "OPENCODE_CLOUD_METRICS_BIND")]
    pub metrics_bind: Option<SocketAddr>,
    /// Token that Prometheus sends as `Authorization: Bearer`; required for an address beyond loopback. Without an address it is
    /// for other processes of the same environment
    #[arg(
        long,
        value_name = "TOKEN",
        env = "OPENCODE_CLOUD_METRICS_TOKEN",
        hide_env_values = true
    )]
    pub metrics_token: Option<String>,
}

impl MetricsArgs {
    /// Starts the listener, if one is wanted, and counts the process as `role`.
    ///
    /// # Errors
    /// When the address is taken, or others could read the metrics without a token.
    pub(crate) async fn serve(
        &self,
        name: &'static str,
        role: &TaskGroup,
    ) -> Result<(), ServeError> {
        telemetry::metrics().is(env!("CARGO_PKG_VERSION"), name);
        let Some(address) = self.metrics_bind else { return Ok(()) };
        let token = self.metrics_token.as_deref().filter(|token| !token.is_empty());
        if !address.ip().is_loopback() && token.is_none() {
            return Err(ServeError::Usage(format!(
                "--metrics-bind {address} is reached from elsewhere and needs --metrics-token; make one with `openssl \
                 rand -hex 24`, or bind 127.0.0.1"
            )));
        }
        let listener = boot::listen(address).await?;
        let address = listener
            .local_addr()
            .map_err(|error| ServeError::stopped("the metrics listener has no address", &error))?;
        tracing::info!("metrics are at http://{address}/metrics");
        let router = router(token);
        let closing = role.token();
        role.spawn(METRICS, async move {
            axum::serve(listener, router).with_graceful_shutdown(closing.cancelled_owned()).await
        });
        Ok(())
    }
}

fn router(token: Option<&str>) -> Router {
    // Hashes are compared, so that the time says nothing of the token.
    let expected = token.map(|token| auth::hash(&format!("Bearer {token}")));
    Router::new().route("/metrics", get(answer)).with_state(expected)
}

async fn answer(State(expected): State<Option<[u8; 32]>>, headers: HeaderMap) -> Response {
    if let Some(expected) = expected {
        let given = headers.get(AUTHORIZATION).and_then(|given| given.to_str().ok());
        if given.map(auth::hash) != Some(expected) {
            let challenge = [(WWW_AUTHENTICATE, "Bearer")];
            return (StatusCode::UNAUTHORIZED, challenge, "the token is missing or wrong\n")
                .into_response();
        }
    }
    ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], telemetry::exposition()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: SocketAddr, token: Option<&str>) -> (u16, String) {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = client.get(format!("http://{address}/metrics"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a text"))
    }

    #[tokio::test]
    async fn metrics_are_for_who_has_the_token() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let role = TaskGroup::root("test");
        role.spawn(METRICS, async move { axum::serve(listener, router(Some("right"))).await });
        assert_eq!(get(address, None).await.0, 401);
        assert_eq!(get(address, Some("wrong")).await.0, 401);
        let (status, text) = get(address, Some("right")).await;
        assert!(status == 200 && text.ends_with("# EOF\n"), "{status} {text}");
    }

    // Finding ops-3, polish: a token of the common environment stopped processes that show no metrics.
    #[test]
    fn a_token_without_a_listener_is_for_others() {
        #[derive(clap::Parser)]
        struct Probe {
            #[command(flatten)]
            metrics: MetricsArgs,
        }
        let parsed = <Probe as clap::Parser>::try_parse_from(["probe", "--metrics-token=t"]);
        let metrics = parsed.map(|probe| probe.metrics).expect("it is no mistake");
        assert_eq!((metrics.metrics_bind, metrics.metrics_token.as_deref()), (None, Some("t")));
    }

    #[tokio::test]
    async fn metrics_beyond_loopback_need_a_token() {
        let open = MetricsArgs { metrics_bind: "0.0.0.0:0".parse().ok(), metrics_token: None };
        let refused = open.serve("test", &TaskGroup::root("test")).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("--metrics-token")));
    }
}
