use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Redirect;
use axum::routing::get;
use egress::{EgressError, FetchLimits, Fetched, Refused, Transport};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::world::{Names, egress, listener};

const LIMITS: FetchLimits =
    FetchLimits { time: Duration::from_secs(20), bytes: 1_000, redirects: 3 };

/// Starts a server that redirects `/away` to `to`, and has paths for other cases.
async fn server(to: String) -> String {
    let app = Router::new()
        .route("/away", get(|State(to): State<String>| async move { Redirect::temporary(&to) }))
        .route("/near", get(|| async { Redirect::temporary("/here") }))
        .route("/here", get(|headers: HeaderMap| async move { format!("{}", headers.len()) }))
        .route("/round", get(|| async { Redirect::permanent("/round") }))
        .route("/large", get(|| async { "x".repeat(2_000) }))
        .route("/never", get(std::future::pending::<String>))
        .with_state(to);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn fetch(transport: &Transport, url: String) -> Result<Fetched, EgressError> {
    transport.fetch(Url::parse(&url).unwrap(), HeaderMap::new(), LIMITS).await
}

// Finding security 4: each redirect is checked like the first address, even if the operator chose that.
#[tokio::test]
async fn a_redirect_that_leads_inside_is_not_followed() {
    let names = Arc::new(Names::default());
    let (port, mut came) = listener("").await;
    for inside in [
        format!("http://127.0.0.1:{port}/"),
        "https://169.254.169.254/latest/".to_owned(),
        "https://[64:ff9b::a9fe:a9fe]/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let url = server(inside.clone()).await;
        let operator = egress(&[], &names, None).for_operator();
        let error = fetch(&operator, format!("{url}/away")).await.unwrap_err();
        assert!(matches!(error, EgressError::Refused(_)), "{inside}: {error}");
    }
    assert!(came.try_recv().is_err(), "somebody connected");
    let operator = egress(&[], &names, None).for_operator();
    let url = server(String::new()).await;
    let answer = fetch(&operator, format!("{url}/near")).await.unwrap();
    assert_eq!(answer.url.path(), "/here");
    let organisation = egress(&[], &names, None).for_organisations();
    let error = fetch(&organisation, format!("{url}/near")).await.unwrap_err();
    assert!(matches!(error, EgressError::Refused(Refused::Inside(_))), "{error}");
}

#[tokio::test]
async fn headers_that_authenticate_stay_behind_a_redirect_elsewhere() {
    let names = Arc::new(Names::default());
    let (port, mut came) =
        listener("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let url = server(format!("http://127.0.0.1:{port}/there")).await;
    let transport = egress(&["127.0.0.0/8"], &names, None).for_organisations();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer key"))]);
    let away = Url::parse(&format!("{url}/away")).unwrap();
    transport.fetch(away, headers, LIMITS).await.unwrap();
    let sent = String::from_utf8(came.recv().await.unwrap()).unwrap();
    assert!(sent.starts_with("GET /there ") && !sent.contains("Bearer"), "{sent}");
}

#[tokio::test]
async fn a_fetch_has_bounds_in_redirects_bytes_and_time() {
    let names = Arc::new(Names::default());
    let operator = egress(&[], &names, None).for_operator();
    let url = server(String::new()).await;
    let error = fetch(&operator, format!("{url}/round")).await.unwrap_err();
    assert!(matches!(error, EgressError::Redirects(3)), "{error}");
    let error = fetch(&operator, format!("{url}/large")).await.unwrap_err();
    assert!(matches!(error, EgressError::TooLarge(1_000)), "{error}");
    let limits = FetchLimits { time: Duration::from_millis(50), ..LIMITS };
    let never = Url::parse(&format!("{url}/never")).unwrap();
    let error = operator.fetch(never, HeaderMap::new(), limits).await.unwrap_err();
    assert!(matches!(error, EgressError::Slow(_)), "{error}");
}
