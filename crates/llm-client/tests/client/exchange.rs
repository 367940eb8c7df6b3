//! Credentials that are exchanged for a token before a call: GitLab's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt as _;
use llm_client::providers::{self, Model, Setup};
use llm_client::{Auth, Llm, LlmError, Secret};
use llm_protocol::{Delivery, ErrorReason, LlmEvent, LlmRequest, Message};
use serde_json::{Value, json};

use crate::server::client;

const ANSWER: &str = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":3}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hi"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// The requests so far, and the answers to give before all others succeed.
#[derive(Clone, Default)]
struct GitLab {
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
}

impl GitLab {
    async fn start() -> (Self, Llm) {
        let gitlab = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(gitlab.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test's own server ends with its runtime"
        )]
        tokio::spawn(async move { axum::serve(listener, app).await });
        let env = |name: &str| match name {
            "GITLAB_INSTANCE_URL" | "GITLAB_AI_GATEWAY_URL" => Some(format!("{host}/")),
            _ => None,
        };
        let auth = Auth::Key(Secret::new("glpat-0123456789"));
        let model = Model { id: "duo-chat-opus-4-5", ..Model::default() };
        let setup = Setup::new(model, &env, &auth);
        let route = providers::of("gitlab").unwrap().route(&setup).unwrap();
        (gitlab, client().on(route))
    }

    fn then(&self, status: u16, body: Value) {
        self.answers.lock().unwrap().push_back((status, body));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn answer(State(gitlab): State<GitLab>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let header = |name: &str| {
        let value = parts.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or("-").to_owned()
    };
    let model = body["model"].as_str().unwrap_or("-");
    let told = [header("authorization"), header("x-gitlab-realm"), header("x-api-key")].join(" ");
    let asked = format!("{} {} {told} {model}", parts.method, parts.uri.path());
    gitlab.asked.lock().unwrap().push(asked);
    if let Some((status, body)) = gitlab.answers.lock().unwrap().pop_front() {
        let status = axum::http::StatusCode::from_u16(status).unwrap();
        return (status, axum::Json(body)).into_response();
    }
    ([("content-type", "text/event-stream")], ANSWER).into_response()
}

async fn ask(llm: &Llm) -> Result<Vec<LlmEvent>, LlmError> {
    let request = LlmRequest::new("", vec![Message::user("hello")]);
    llm.stream(&request).await?.try_collect().await
}

fn token(token: &str) -> Value {
    json!({"token": token, "headers": {"X-Gitlab-Realm": "saas", "X-Api-Key": "not-ours"}})
}

const EXCHANGE: &str =
    "POST /api/v4/ai/third_party_agents/direct_access Bearer glpat-0123456789 - - -";

fn message(token: &str) -> String {
    format!(
        "POST /ai/v1/proxy/anthropic/v1/messages Bearer {token} saas - claude-opus-4-5-20251101"
    )
}

#[tokio::test]
async fn one_token_serves_many_requests_until_it_is_refused() {
    let (gitlab, llm) = GitLab::start().await;
    gitlab.then(201, token("gateway-token-1"));
    for _ in 0..2 {
        let events = ask(&llm).await.unwrap();
        assert!(matches!(events.last(), Some(LlmEvent::Finish { .. })), "{events:?}");
    }
    assert_eq!(
        gitlab.asked(),
        [EXCHANGE, &message("gateway-token-1"), &message("gateway-token-1")]
    );

    let error = json!({"type": "error", "error": {"type": "authentication_error",
        "message": "gateway-token-1 is over"}});
    gitlab.then(401, error);
    let error = ask(&llm).await.unwrap_err();
    assert!(error.is_retryable(), "another try gets another token: {error:?}");
    assert_eq!(error.provider_message, "[redacted] is over");
    gitlab.then(201, token("gateway-token-2"));
    ask(&llm).await.unwrap();
    let expected = [message("gateway-token-1"), EXCHANGE.to_owned(), message("gateway-token-2")];
    assert_eq!(gitlab.asked(), expected);
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_to_a_model() {
    let (gitlab, llm) = GitLab::start().await;
    gitlab.then(403, json!({"message": "glpat-0123456789 has no scope ai_features"}));
    let error = ask(&llm).await.unwrap_err();
    assert_eq!((&error.reason, error.delivery), (&ErrorReason::Authentication, Delivery::NotSent));
    assert!(!error.is_retryable() && !error.to_string().contains("glpat"), "{error}");
    gitlab.then(200, json!({"message": "welcome"}));
    let error = ask(&llm).await.unwrap_err();
    assert_eq!(error.delivery, Delivery::NotSent);
    assert!(error.to_string().contains("no token for its models"), "{error}");
    gitlab.then(503, json!({}));
    assert!(ask(&llm).await.unwrap_err().is_retryable());
    assert_eq!(gitlab.asked(), [EXCHANGE; 3]);
}
