//! A server of catalogs, and the feed, which accepts only good ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use catalog::{
    Access, Feed, Freshness, MODELS_DEV, Overrides, Refresh, RefreshError, ingest, is_set_up,
    resolve,
};
use llm_client::{Auth, Options, ReqwestTransport, Secret};

type Answers = Arc<Mutex<Vec<(StatusCode, String)>>>;

async fn answer(State(answers): State<Answers>) -> (StatusCode, String) {
    answers.lock().unwrap().remove(0)
}

async fn serve(answers: Vec<(StatusCode, String)>) -> Refresh {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api.json", listener.local_addr().unwrap()).parse().unwrap();
    let app =
        Router::new().route("/api.json", get(answer)).with_state(Arc::new(Mutex::new(answers)));
    #[expect(clippy::disallowed_methods, reason = "the test's own server ends with its runtime")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    Refresh { url, every: Duration::from_millis(1), timeout: Duration::from_secs(5) }
}

/// Returns a catalog file with this many models.
fn file(models: usize, updated: &str) -> String {
    let models: Vec<String> =
        (0..models).map(|at| format!(r#""m{at}":{{"last_updated":"{updated}"}}"#)).collect();
    format!(r#"{{"p":{{"models":{{{}}}}}}}"#, models.join(","))
}

fn http() -> ReqwestTransport {
    // The process has no default provider: dependencies link both of rustls'.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    ReqwestTransport::new(&Options::default()).unwrap()
}

/// Makes a feed whose first catalog was seen at `from`.
async fn feed(models: usize, updated: &str, from: &Refresh) -> Feed {
    let feed = Feed::new(Arc::new(ingest(file(1, "2020-01-01").as_bytes()).unwrap().0));
    feed.adopt(file(models, updated).into_bytes(), from.url.as_str(), 7).await.unwrap();
    feed
}

#[tokio::test]
async fn a_good_catalog_is_published_and_returned_to_be_kept_and_the_same_one_is_seen_again() {
    let good = file(5, "2026-02-01");
    let from = serve(vec![(StatusCode::OK, good.clone()), (StatusCode::OK, good.clone())]).await;
    let feed = feed(10, "2026-01-01", &from).await;
    let fetched = feed.fetch(&http(), &from, 8).await.unwrap();
    assert!(fetched.is_new);
    assert_eq!(fetched.json, good.as_bytes());
    assert_eq!(feed.current(), fetched.catalog);
    assert_eq!(fetched.catalog.models(), 5);
    let again = feed.fetch(&http(), &from, 9).await.unwrap();
    assert!(!again.is_new && Arc::ptr_eq(&again.catalog, &fetched.catalog));
    let source = Some(from.url.to_string());
    assert_eq!(feed.freshness(), Freshness { source, seen_ms: Some(9), failure: None });
}

#[tokio::test]
async fn the_last_good_one_stays_whatever_comes_and_its_age_and_the_reason_are_told() {
    let ok = StatusCode::OK;
    let from = serve(vec![
        (StatusCode::BAD_GATEWAY, file(10, "2026-02-01")),
        (ok, "<html>".to_owned()),
        (ok, file(4, "2026-02-01")),
        (ok, file(20, "2025-12-31")),
        (ok, " ".repeat(catalog::MAX_BYTES + 1)),
    ])
    .await;
    let feed = feed(9, "2026-01-01", &from).await;
    let before = feed.current();
    let refused = || async { feed.fetch(&http(), &from, 8).await.unwrap_err() };
    assert!(matches!(refused().await, RefreshError::Status(502)));
    assert!(refused().await.to_string().contains("no JSON object"));
    assert!(matches!(refused().await, RefreshError::Shrunk { offered: 4, present: 9 }));
    assert!(matches!(refused().await, RefreshError::Older { .. }));
    assert!(refused().await.to_string().contains("at most"));
    let gone = "http://127.0.0.1:1/api.json?token=t".parse().unwrap();
    let gone = Refresh { url: gone, ..from.clone() };
    let error = feed.fetch(&http(), &gone, 8).await.unwrap_err();
    assert!(matches!(error, RefreshError::Fetch(_)));
    assert!(!error.to_string().contains("token"), "{error}");
    assert_eq!(feed.current(), before);
    let fresh = feed.freshness();
    assert_eq!((fresh.seen_ms, fresh.failure), (Some(7), Some(error.to_string())));
    // Another process succeeded.
    feed.seen(from.url.as_str(), 8);
    let fresh = feed.freshness();
    assert_eq!((fresh.seen_ms, fresh.failure), (Some(8), None));
}

#[tokio::test]
async fn one_from_elsewhere_is_not_compared() {
    let from = serve(vec![(StatusCode::OK, file(1, "")), (StatusCode::OK, file(1, ""))]).await;
    let feed = Feed::new(catalog::shipped());
    assert_eq!(feed.fetch(&http(), &from, 8).await.unwrap().catalog.models(), 1);
    let shipped = Feed::new(catalog::shipped());
    let other = serve(vec![(StatusCode::OK, file(1, "2026-12-01"))]).await;
    shipped.adopt(file(3, "").into_bytes(), MODELS_DEV, 1).await.unwrap();
    assert_eq!(shipped.fetch(&http(), &other, 8).await.unwrap().catalog.models(), 1);
}

#[test]
fn a_fetch_is_due_when_nobody_has_seen_the_catalog_for_so_long() {
    let every = Duration::from_secs(60);
    let from = Refresh { url: MODELS_DEV.parse().unwrap(), every, timeout: every };
    assert!(from.is_due(None, 0));
    assert!(!from.is_due(Some(1_000), 60_999) && from.is_due(Some(1_000), 61_000));
    // Another machine's clock is ahead: a little still counts as fresh, more does not.
    assert!(!from.is_due(Some(50_000), 0) && from.is_due(Some(60_000), 0));
}

// Finding conformance FEAT-0003 NFR-01: a provider that upstream adds can be called after a refresh, without
// new code.
#[tokio::test]
async fn a_refresh_adds_a_provider_that_can_be_called() {
    let file = r#"{"p":{"models":{"m0":{"last_updated":"2026-01-01"}}},
        "newcomer":{"id":"newcomer","name":"Newcomer","npm":"@ai-sdk/openai-compatible","api":"https://api.newcomer.example/v1",
            "env":["NEWCOMER_API_KEY"],"models":{"fast-1":{"id":"fast-1","name":"Fast","last_updated":"2026-02-01","tool_call":true,
            "limit":{"context":1000,"input":700,"output":100},"cost":{"input":1,"output":2,"reasoning":3}}}}}"#;
    let from = serve(vec![(StatusCode::OK, file.to_owned())]).await;
    let feed = feed(1, "2026-01-01", &from).await;
    let nobody = Overrides::default();
    let choice = ("newcomer", "fast-1", None);
    assert!(resolve(&feed.current(), &nobody, choice).is_err(), "nobody knows it");
    feed.fetch(&http(), &from, 8).await.unwrap();
    let found = resolve(&feed.current(), &nobody, choice).unwrap();
    assert_eq!((found.model.limits.input, found.model.tool_call), (Some(700), true));
    assert_eq!(found.prices.as_ref().unwrap().base.reasoning, Some(3_000_000));
    let env = |name: &str| (name == "NEWCOMER_API_KEY").then(|| "sk-newcomer".to_owned());
    assert!(is_set_up(&feed.current(), &nobody, "newcomer", &env));
    let auth = Auth::Key(Secret::new("sk-newcomer"));
    let route = found.route(&Access { base_url: None, env: &env, auth: &auth }).unwrap();
    let url = route.endpoint.request_url(route.protocol, &route.model).unwrap();
    assert_eq!(url.as_str(), "https://api.newcomer.example/v1/chat/completions");
}
