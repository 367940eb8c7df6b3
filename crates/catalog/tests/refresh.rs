//! A server of catalogs, and the feed that believes only good ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use catalog::{Feed, Refresh, RefreshError, ingest};

type Answers = Arc<Mutex<Vec<(StatusCode, String)>>>;

async fn answer(State(answers): State<Answers>) -> (StatusCode, String) {
    answers.lock().unwrap().remove(0)
}

async fn serve(answers: Vec<(StatusCode, String)>) -> Refresh {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api.json", listener.local_addr().unwrap());
    let app =
        Router::new().route("/api.json", get(answer)).with_state(Arc::new(Mutex::new(answers)));
    #[expect(clippy::disallowed_methods, reason = "the test's own server ends with its runtime")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    Refresh { url, every: Duration::from_millis(1), timeout: Duration::from_secs(5) }
}

/// A catalog of so many models.
fn file(models: usize, updated: &str) -> String {
    let models: Vec<String> =
        (0..models).map(|at| format!(r#""m{at}":{{"last_updated":"{updated}"}}"#)).collect();
    format!(r#"{{"p":{{"models":{{{}}}}}}}"#, models.join(","))
}

fn http() -> reqwest::Client {
    // The process has no default: both of rustls' are linked by others.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn feed(models: usize, updated: &str) -> Feed {
    Feed::new(Arc::new(ingest(file(models, updated).as_bytes()).unwrap().0))
}

#[tokio::test]
async fn a_good_catalog_is_published_and_returned_to_be_kept_and_the_same_one_is_not() {
    let good = file(5, "2026-02-01");
    let from = serve(vec![(StatusCode::OK, good.clone()), (StatusCode::OK, good.clone())]).await;
    let feed = feed(10, "2026-01-01");
    let mut follower = feed.follow();
    let (catalog, text) = feed.fetch(&http(), &from).await.unwrap().unwrap();
    assert_eq!(text, good.as_bytes());
    assert_eq!(feed.current(), catalog);
    assert!(follower.has_changed().unwrap());
    assert_eq!(follower.borrow_and_update().models(), 5);
    assert!(feed.fetch(&http(), &from).await.unwrap().is_none());
    assert!(!follower.has_changed().unwrap());
}

#[tokio::test]
async fn the_last_good_one_stays_whatever_comes() {
    let ok = StatusCode::OK;
    let from = serve(vec![
        (StatusCode::BAD_GATEWAY, file(10, "2026-02-01")),
        (ok, "<html>".to_owned()),
        (ok, file(4, "2026-02-01")),
        (ok, file(20, "2025-12-31")),
        (ok, " ".repeat(catalog::MAX_BYTES + 1)),
    ])
    .await;
    let feed = feed(9, "2026-01-01");
    let before = feed.current();
    let refused = || async { feed.fetch(&http(), &from).await.unwrap_err() };
    assert!(matches!(refused().await, RefreshError::Status(502)));
    assert!(refused().await.to_string().contains("no JSON object"));
    assert!(matches!(refused().await, RefreshError::Shrunk { offered: 4, present: 9 }));
    assert!(matches!(refused().await, RefreshError::Older { .. }));
    assert!(refused().await.to_string().contains("at most"));
    let gone = Refresh { url: "http://127.0.0.1:1/api.json".to_owned(), ..from.clone() };
    assert!(matches!(feed.fetch(&http(), &gone).await, Err(RefreshError::Fetch(_))));
    assert_eq!(feed.current(), before);
}

#[tokio::test]
async fn the_feed_goes_on_after_a_failure() {
    let answers =
        vec![(StatusCode::NOT_FOUND, String::new()), (StatusCode::OK, file(6, "2026-02-01"))];
    let from = serve(answers).await;
    let feed = feed(5, "2026-01-01");
    let (kept, mut told) = tokio::sync::mpsc::unbounded_channel();
    let http = http();
    let running = feed.run(&http, &from, |catalog, text| {
        kept.send((catalog.models(), text.len())).unwrap();
        std::future::ready(())
    });
    tokio::select! {
        () = running => unreachable!("it never ends"),
        got = told.recv() => assert_eq!(got, Some((6, file(6, "2026-02-01").len()))),
    }
}
