//! The documents of both dialects, as JSON and as pages.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use sha2::{Digest, Sha256};

use super::kept_document::{Kept, KeptDocument};
use super::openapi::openapi;
use super::policy::Policy::{self, Open};
use super::reference::{self, Frame, STYLE, TABS};
use super::route::Route;
use super::stock_document::stock_openapi;

/// The routes of the documents. They do not have them themselves.
pub(super) fn routes() -> [Route; 4] {
    const WHY: Policy = Open("it is the same for everybody, and in the repository");
    [
        Route::get("/platform/openapi.json", WHY, own_document),
        Route::get("/doc", WHY, stock_document),
        Route::get(TABS[0].0, WHY, own_page),
        Route::get(TABS[1].0, WHY, stock_page),
    ]
}

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

async fn own_document(headers: HeaderMap) -> Response {
    static TEXT: Kept = Kept::new(|| KeptDocument::new(JSON, openapi().to_string()));
    TEXT.answer(&headers)
}

async fn stock_document(headers: HeaderMap) -> Response {
    static TEXT: Kept = Kept::new(|| KeptDocument::new(JSON, stock_openapi().to_string()));
    TEXT.answer(&headers)
}

async fn own_page(headers: HeaderMap) -> impl IntoResponse {
    static PAGE: Kept = Kept::new(|| {
        let frame =
            Frame { title: "Own interface", json: "/platform/openapi.json", here: TABS[0].0 };
        KeptDocument::new(HTML, reference::page(&frame, openapi()))
    });
    guarded(PAGE.answer(&headers))
}

async fn stock_page(headers: HeaderMap) -> impl IntoResponse {
    static PAGE: Kept = Kept::new(|| {
        let frame = Frame { title: "Released contract", json: "/doc", here: TABS[1].0 };
        KeptDocument::new(HTML, reference::page(&frame, stock_openapi()))
    });
    guarded(PAGE.answer(&headers))
}

/// Answers with a page that loads nothing, runs nothing, and has the one style that it brings.
fn guarded(page: Response) -> impl IntoResponse {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
        format!(
            "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    });
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, page)
}
