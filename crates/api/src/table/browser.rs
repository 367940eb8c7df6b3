//! Layers for browsers: pages of other origins that may call us, and answers that are compressed.

use std::time::Duration;

use http::header::HeaderName;
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Version};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::origin::Origins;
use crate::surface::Trickle;

/// An answer of at most this many bytes is sent as it is: one packet takes it anyway.
const SMALL: u64 = 1024;

/// How long a browser remembers what we allow.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Answers preflights, which have no key, and tells browsers which pages may read an answer.
pub(super) fn cross_origin(origins: Origins) -> CorsLayer {
    let is_allowed =
        move |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| origins.allows(origin));
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, _| is_allowed(origin)))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(
            ["x-next-cursor", "x-opencode-cloud-ignored", "x-request-id", "link"]
                .map(HeaderName::from_static),
        )
        .max_age(REMEMBERED)
}

/// Compresses answers with gzip or brotli, as fast as they can: most are read once. Streams are left alone.
pub(super) fn compression() -> CompressionLayer<impl Predicate> {
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(SMALL).and(NotForContentType::SSE).and(is_whole))
}

/// Returns whether an answer comes at once. One that trickles would be held back until a block of it is full.
fn is_whole(_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions) -> bool {
    extensions.get::<Trickle>().is_none()
}
