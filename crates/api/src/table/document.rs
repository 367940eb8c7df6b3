//! The documents of both dialects, as JSON and as pages.

use std::sync::LazyLock;

use axum::Json;
use axum::response::{Html, IntoResponse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use sha2::{Digest, Sha256};

use super::openapi::openapi;
use super::policy::Policy::{self, Open};
use super::reference::{self, Frame, STYLE, TABS};
use super::route::Route;
use super::stock_document::stock_openapi;

/// The routes of the documents. They do not have them themselves.
pub(super) fn routes() -> [Route; 4] {
    const WHY: Policy = Open("it is the same for everybody, and in the repository");
    [
        Route::get("/platform/openapi.json", WHY, async || Json(openapi())),
        Route::get("/doc", WHY, async || Json(stock_openapi())),
        Route::get(TABS[0].0, WHY, own_page),
        Route::get(TABS[1].0, WHY, stock_page),
    ]
}

async fn own_page() -> impl IntoResponse {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let frame =
            Frame { title: "Own interface", json: "/platform/openapi.json", here: TABS[0].0 };
        reference::page(&frame, openapi())
    });
    guarded(&PAGE)
}

async fn stock_page() -> impl IntoResponse {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let frame = Frame { title: "Released contract", json: "/doc", here: TABS[1].0 };
        reference::page(&frame, stock_openapi())
    });
    guarded(&PAGE)
}

/// Answers with a page that loads nothing, runs nothing, and has the one style that it brings.
fn guarded(page: &'static str) -> impl IntoResponse {
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
    (headers, Html(page))
}
