//! A provider that exists only in metadata or in an organisation's settings works without new code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use catalog::{Access, Overrides, ingest, list, resolve};
use futures::TryStreamExt as _;
use llm_client::{Auth, Client, Options, Secret};
use llm_protocol::{LlmEvent, LlmRequest, Message};
use serde_json::{Value, json};

use axum::http::{HeaderMap, Uri};

/// Starts a server that answers with one word and reports its requests.
async fn serve() -> (String, tokio::sync::mpsc::UnboundedReceiver<(String, Value, Option<String>)>)
{
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let app = axum::Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: String| {
        let header = |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap().to_owned());
        tell.send((uri.to_string(), serde_json::from_str(&body).unwrap(), header("authorization"))).unwrap();
        let answer = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        std::future::ready(([("content-type", "text/event-stream")], answer))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "the test's own server ends with its runtime")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, told)
}

async fn ask(resolved: &catalog::Resolved, env: &dyn Fn(&str) -> Option<String>) -> Vec<LlmEvent> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let auth = Auth::Key(Secret::new("invented-key"));
    let route = resolved.route(&Access { base_url: None, env, auth: &auth }).unwrap();
    let mut request = LlmRequest::new(resolved.api_id(), vec![Message::user("hello")]);
    request.provider_options.clone_from(&resolved.domains.request_options);
    request.generation = resolved.generation(&request.generation);
    let client = Client::new(Options::default()).unwrap();
    let stream = client.on(route).stream(&request).await.unwrap();
    stream.try_collect().await.unwrap()
}

#[tokio::test]
async fn a_provider_that_appears_only_in_the_metadata_is_spoken_to() {
    let (url, mut told) = serve().await;
    let file = json!({ "zephyr": { "name": "Zephyr", "npm": "@ai-sdk/openai-compatible",
        "api": "${ZEPHYR_HOST}/winds/v7/", "env": ["ZEPHYR_HOST", "ZEPHYR_API_KEY"],
        "models": { "gale-1": { "id": "gale-1", "name": "Gale 1", "reasoning": true, "tool_call": true,
            "cost": { "input": 1, "output": 2 }, "limit": { "context": 1000, "output": 100 } } } } });
    let (catalog, _) = ingest(file.to_string().as_bytes()).unwrap();
    let resolved =
        resolve(&catalog, &Overrides::default(), ("zephyr", "gale-1", Some("high"))).unwrap();
    assert_eq!(resolved.key_names, ["ZEPHYR_API_KEY"]);
    assert_eq!(resolved.price_version, catalog.version);
    let env = move |name: &str| (name == "ZEPHYR_HOST").then(|| url.clone());
    let events = ask(&resolved, &env).await;
    assert!(matches!(events.last(), Some(LlmEvent::Finish { .. })), "{events:?}");
    let (path, body, key) = told.recv().await.unwrap();
    assert_eq!(path, "/winds/v7/chat/completions");
    assert_eq!(key.as_deref(), Some("Bearer invented-key"));
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("gale-1"), &json!("high")));
    let none = |_: &str| None;
    let error =
        resolved.route(&Access { base_url: None, env: &none, auth: &Auth::None }).unwrap_err();
    assert!(error.to_string().contains("`zephyr` needs `ZEPHYR_HOST`"), "{error}");
}

#[tokio::test]
async fn a_provider_of_an_organisation_s_own_takes_any_model_and_its_options() {
    let (url, mut told) = serve().await;
    let overrides: Overrides = serde_json::from_value(json!({ "providers": { "attic": {
        "api": url, "options": { "temperature": 0.5, "chat_template_kwargs": { "x": 1 } },
        "headers": { "x-team": "a" } } } }))
    .unwrap();
    let (catalog, _) = ingest(br#"{"p":{"models":{"m":{}}}}"#).unwrap();
    let resolved = resolve(&catalog, &overrides, ("attic", "whatever/model", None)).unwrap();
    let events = ask(&resolved, &|_| None).await;
    assert!(events.len() >= 4);
    let (path, body, _) = told.recv().await.unwrap();
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(
        (&body["temperature"], &body["chat_template_kwargs"]),
        (&json!(0.5), &json!({ "x": 1 }))
    );
    let listed: Vec<String> =
        list(&catalog, &overrides).into_iter().map(|entry| entry.id).collect();
    assert_eq!(listed, ["attic", "p"]);
}
