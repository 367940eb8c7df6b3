//! The web console: a page and its files, embedded in the executable.
//!
//! ```text
//! web/ ──./dev console──▶ site/dist ──build.rs──▶ the executable ──router──▶ a browser
//! ```
//!
//! Nothing here needs a key: the files are the same for everybody, and the page asks the API for all else as any other
//! client does. Only the paths of [`router`] answer HTML; every other path is the API's, which answers JSON.
//! Absent on purpose: who is signed in (`api`), and everything that the page shows.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rust_embed::{Embed, EmbeddedFile};

#[derive(Embed)]
#[folder = "$OUT_DIR/site"]
struct Site;

/// What the page may do. It runs our scripts and wears our styles, asks only this service, and stands in no frame.
/// Svelte makes the elements of a component through the first policy, and the second starts the worker that colours code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
                      connect-src 'self'; worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types svelte-trusted-html oc-worker";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Files whose name has their hash.
const HASHED: &str = "a/";
const FOREVER: &str = "public, max-age=31536000, immutable";
const SHORT: &str = "public, max-age=3600";
/// The page names the files of its build, so an old one must not be kept.
const NEVER: &str = "no-store";

/// Returns the routes of the console: its pages, and its files below `/_/`.
pub fn router() -> Router {
    Router::new()
        .route("/", get(page))
        .route("/login", get(page))
        .route("/first", get(page))
        .route("/o/{*page}", get(page))
        .route("/_/{*file}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    answer(&path, &headers)
}

fn answer(path: &str, asked: &HeaderMap) -> Response {
    let compressed = takes_brotli(asked).then(|| Site::get(&format!("{path}.br"))).flatten();
    let is_compressed = compressed.is_some();
    let found = compressed.or_else(|| Site::get(path)).filter(|_| !path.ends_with(".br"));
    let Some(found) = found else {
        return with_headers((StatusCode::NOT_FOUND, "no such file\n").into_response());
    };
    let tag = tag(&found);
    let is_known = asked.get(IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        found.data.into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(ETAG, tag);
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    let keep = match path {
        "index.html" => NEVER,
        _ if path.starts_with(HASHED) => FOREVER,
        _ => SHORT,
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    with_headers(response)
}

fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns whether the browser takes brotli. Every one that the console supports does, over https and on loopback.
fn takes_brotli(headers: &HeaderMap) -> bool {
    let values =
        headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(";q=").unwrap_or((coding, "1"));
        let is_refused = weight.trim().parse::<f32>().is_ok_and(|weight| weight == 0.0);
        name.trim().eq_ignore_ascii_case("br") && !is_refused
    })
}

/// Returns a name for the bytes of a file.
fn tag(file: &EmbeddedFile) -> HeaderValue {
    use std::fmt::Write as _;
    let hash = file.metadata.sha256_hash();
    let mut text = String::from("\"");
    for byte in &hash[..12] {
        write!(text, "{byte:02x}").expect("a text grows");
    }
    text.push('"');
    HeaderValue::from_str(&text).expect("hexadecimal digits")
}

/// Returns the media type of a file by its name. The console has no others.
fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(path: &str, headers: &[(HeaderName, &str)]) -> Response {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        router().oneshot(request).await.expect("it answers")
    }

    fn header(response: &Response, name: &HeaderName) -> String {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn every_page_of_the_console_is_the_same_page() {
        let mut pages = Vec::new();
        for path in ["/", "/login", "/first?step=model", "/o/org_1/session/ses_1"] {
            let response = ask(path, &[]).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert_eq!(header(&response, &CONTENT_TYPE), "text/html; charset=utf-8");
            assert_eq!(header(&response, &CACHE_CONTROL), "no-store");
            pages.push(response.into_body().collect().await.expect("a body").to_bytes());
        }
        assert!(pages.iter().all(|page| *page == pages[0] && page.starts_with(b"<!doctype html>")));
    }

    #[tokio::test]
    async fn a_policy_without_unsafe_words_is_on_every_answer() {
        for path in ["/", "/_/no-such-file.js"] {
            let policy = header(&ask(path, &[]).await, &CONTENT_SECURITY_POLICY);
            assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
            assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_404_and_no_page() {
        for path in ["/_/", "/_/a/gone.js", "/_/../Cargo.toml", "/_/index.html.br", "/p"] {
            let response = ask(path, &[]).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
            assert_ne!(header(&response, &CONTENT_TYPE), "text/html; charset=utf-8");
        }
    }

    #[tokio::test]
    async fn a_browser_that_has_the_file_gets_no_second_copy() {
        let tag = header(&ask("/", &[]).await, &ETAG);
        let response = ask("/", &[(IF_NONE_MATCH, &tag)]).await;
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(body.is_empty());
    }

    #[test]
    fn brotli_is_for_those_who_take_it() {
        let takes = |value| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            takes_brotli(&headers)
        };
        assert!(takes("gzip, deflate, br, zstd") && takes("br;q=0.5"));
        assert!(!takes("gzip") && !takes("br;q=0") && !takes_brotli(&HeaderMap::new()));
    }
}
