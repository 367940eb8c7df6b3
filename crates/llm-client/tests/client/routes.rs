//! The entry point: routes, credentials, and requests without a model.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::stream;
use llm_client::{Auth, AwsAccess, LlmError, Route, Secret, TokenSource};
use llm_protocol::{Delivery, Dialect, ErrorReason, LlmRequest, Message, Protocol};

use crate::answers::hello;
use crate::server::{END, HELLO, Server, client, collect, events, refuse};

const REFUSED: &str = r#"{"error":{"message":"token-number-0 is no longer valid"}}"#;

fn answer() -> axum::response::Response {
    let chunks = [HELLO, END].map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
    events(Body::from_stream(stream::iter(chunks)))
}

fn route(server: &Server) -> Route {
    Route::new(Protocol::OpenAiChat, "m", server.endpoint.clone())
}

#[tokio::test]
async fn a_request_is_encoded_as_the_route_says_and_sent_as_it_was_encoded() {
    let server = Server::start(answer).await;
    let state_key = Some("xai".to_owned());
    let llm = client().on(route(&server).with_dialect(Dialect { state_key, ..Dialect::default() }));
    let request = LlmRequest::new("", vec![Message::user("Hi")]);
    let body = llm.encode(&request);
    assert!(body.starts_with(br#"{"model":"m","messages":["#), "{body:?}");
    assert_eq!(collect(llm.stream(&request).await.unwrap()).await, (hello(), None));
    let odd = Bytes::from_static(b"{\"model\" : 1}");
    assert_eq!(collect(llm.send(odd.clone()).await.unwrap()).await, (hello(), None));
    let named = LlmRequest::new("other", vec![]);
    llm.stream(&named).await.unwrap();
    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [body, odd, llm.encode(&named)]);
    assert!(bodies[2].starts_with(br#"{"model":"other""#));
}

#[tokio::test]
async fn a_path_and_query_of_the_endpoint_are_used() {
    let mut server = Server::start(answer).await;
    let endpoint = server.endpoint.clone().with_path("deployments/{model}/chat");
    server.endpoint = endpoint.with_query("api-version", "1");
    client().on(route(&server)).send(Bytes::from_static(b"{}")).await.unwrap();
    assert_eq!(server.seen()[0].path, "/deployments/m/chat?api-version=1");
}

#[tokio::test]
async fn credentials_go_where_they_are_wanted_and_headers_of_the_endpoint_win() {
    let server = Server::start(answer).await;
    let header =
        |name: &str, value: &str| Auth::Header { name: name.into(), value: Secret::new(value) };
    let ways = [
        (Auth::None, None, "authorization", "Bearer of-the-endpoint"),
        (Auth::Key(Secret::new("key")), None, "authorization", "Bearer key"),
        (Auth::Bearer(Secret::new("token")), None, "authorization", "Bearer token"),
        (header("api-key", "key"), None, "api-key", "key"),
        (header("api-key", "key"), Some(("api-key", "mine")), "api-key", "mine"),
    ];
    for (at, (auth, extra, name, value)) in ways.into_iter().enumerate() {
        let mut endpoint = server.endpoint.clone().with_api_key(Secret::new("of-the-endpoint"));
        if let Some((name, value)) = extra {
            endpoint = endpoint.with_header(name, Secret::new(value));
        }
        let route = Route::new(Protocol::OpenAiChat, "m", endpoint).with_auth(auth);
        assert!(!format!("{route:?}").contains("of-the-endpoint"));
        client().on(route).send(Bytes::from_static(b"{}")).await.unwrap();
        let seen = server.seen();
        assert_eq!(seen[at].headers[name], value);
        let carries_key = seen[at].headers.contains_key("authorization");
        assert_eq!(carries_key, name == "authorization", "one way at a time");
    }
}

#[tokio::test]
async fn a_key_goes_where_the_protocols_owner_wants_it() {
    let server = Server::start(answer).await;
    let endpoint = server.endpoint.clone().with_api_key(Secret::new("key"));
    let route = |protocol| Route::new(protocol, "m", endpoint.clone());
    let send = async |route| client().on(route).send(Bytes::from_static(b"{}")).await.unwrap();
    send(route(Protocol::AnthropicMessages)).await;
    let oauth = Auth::Bearer(Secret::new("token"));
    send(route(Protocol::AnthropicMessages).with_auth(oauth)).await;
    send(route(Protocol::BedrockConverse)).await;
    let seen = server.seen();
    let header = |at: usize, name: &str| {
        seen[at].headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header(0, "x-api-key").as_deref(), Some("key"));
    assert_eq!((header(0, "authorization"), header(1, "x-api-key")), (None, None));
    assert_eq!(header(0, "anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(header(1, "authorization").as_deref(), Some("Bearer token"));
    assert_eq!(header(1, "anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(header(2, "authorization").as_deref(), Some("Bearer key"));
    assert_eq!(header(2, "accept").as_deref(), Some("application/vnd.amazon.eventstream"));
    assert_eq!(seen[2].path, "/model/m/converse-stream");
    assert!(header(2, "anthropic-version").is_none());
}

/// A token source that numbers its tokens. After a refusal it gives the next one.
#[derive(Debug, Default)]
struct Numbered(Mutex<usize>);

#[async_trait::async_trait]
impl TokenSource for Numbered {
    async fn token(&self) -> Result<Secret, LlmError> {
        let number = *self.0.lock().unwrap();
        if number == 2 {
            return Err(LlmError::unsent(ErrorReason::Authentication, "sign in again"));
        }
        Ok(Secret::new(&format!("token-number-{number}")))
    }

    fn refused(&self, token: &Secret) {
        let mut number = self.0.lock().unwrap();
        if token.expose() == format!("token-number-{number}") {
            *number += 1;
        }
    }
}

#[tokio::test]
async fn a_refused_token_is_given_back_and_another_try_is_advised_until_there_is_none() {
    let server = Server::start(|| refuse(401, &[], REFUSED)).await;
    let source = Arc::new(Numbered::default());
    let llm = client().on(route(&server).with_auth(Auth::Source(source)));
    let send = || llm.send(Bytes::from_static(b"{}"));
    let error = send().await.unwrap_err();
    assert_eq!((error.reason, error.is_retryable()), (ErrorReason::Authentication, true));
    assert_eq!(error.provider_message, "[redacted] is no longer valid");
    assert!(send().await.unwrap_err().is_retryable());
    let error = send().await.unwrap_err();
    assert_eq!((error.delivery, error.is_retryable()), (Delivery::NotSent, false));
    assert_eq!(error.provider_message, "sign in again");
    let tokens: Vec<_> =
        server.seen().iter().map(|seen| seen.headers["authorization"].clone()).collect();
    assert_eq!(tokens, ["Bearer token-number-0", "Bearer token-number-1"]);
}

#[tokio::test]
async fn an_error_has_its_event() {
    let server = Server::start(|| refuse(429, &[("retry-after", "7")], "slow down")).await;
    let error = client().on(route(&server)).send(Bytes::from_static(b"{}")).await.unwrap_err();
    let event = serde_json::to_value(error.event()).unwrap();
    let expected = serde_json::json!({
        "type": "error", "reason": "rate-limit", "retryable": true, "retryAfterMs": 7000,
        "delivery": "accepted", "status": 429, "message": error.reason.user_message(),
        "providerMessage": "slow down",
    });
    assert_eq!(event, expected);
}

#[tokio::test]
async fn a_request_is_signed_with_an_access_key_and_its_secrets_are_taken_out_of_errors() {
    const SAID: &str = r#"{"message":"the secret secret-key-1 or session-token-1 is wrong"}"#;
    let server = Server::start(|| refuse(403, &[], SAID)).await;
    let access = AwsAccess {
        access_key: "AKIDEXAMPLE".to_owned(),
        secret_key: Secret::new("secret-key-1"),
        session_token: Some(Secret::new("session-token-1")),
        region: "eu-central-1".to_owned(),
        service: "bedrock".to_owned(),
    };
    let llm = client().on(route(&server).with_auth(Auth::SigV4(access)));
    let error = llm.send(Bytes::from_static(b"{}")).await.unwrap_err();
    assert_eq!(error.provider_message, "the secret [redacted] or [redacted] is wrong");
    let headers = &server.seen()[0].headers;
    let signature = headers["authorization"].to_str().unwrap();
    assert!(signature.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{signature}");
    let signed = "/eu-central-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=";
    assert!(signature.contains(signed), "{signature}");
    assert_eq!(headers["x-amz-security-token"], "session-token-1");
}
