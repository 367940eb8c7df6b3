//! Texts that are the same for everybody, made and compressed once: nobody without a key makes us work for them.

use std::io::Write;
use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue};

use crate::surface::Trickle;

/// A text, as it is and compressed.
pub(super) struct KeptDocument {
    kind: &'static str,
    plain: Bytes,
    gzip: Bytes,
}

/// A text that is made when somebody first asks for it.
pub(super) type Kept = LazyLock<KeptDocument>;

impl KeptDocument {
    pub(super) fn new(kind: &'static str, text: impl Into<Vec<u8>>) -> Self {
        let plain: Vec<u8> = text.into();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&plain).expect("memory takes it");
        let gzip = gzip.finish().expect("memory takes it");
        Self { kind, plain: plain.into(), gzip: gzip.into() }
    }

    /// Answers with the text, compressed if the client reads gzip.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response {
        let is_packed = reads_gzip(headers);
        let body = if is_packed { self.gzip.clone() } else { self.plain.clone() };
        let mut response = body.into_response();
        // Nobody compresses it again: that would be the work of each request.
        response.extensions_mut().insert(Trickle);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Returns whether a client names gzip, and not with the weight 0.
fn reads_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut codings = lines.flat_map(|line| line.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|text| text.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    // Finding security-3, low: two documents were serialised and compressed for each request without a key.
    #[tokio::test]
    async fn a_document_is_compressed_once_and_for_nobody_else() {
        let text = "a text that is long enough. ".repeat(100);
        let document = KeptDocument::new("application/json", text.clone());
        let asked = async |accepts: &'static str| {
            let headers =
                [(ACCEPT_ENCODING, HeaderValue::from_static(accepts))].into_iter().collect();
            let response = document.answer(&headers);
            assert!(response.extensions().get::<Trickle>().is_some(), "left alone by the layer");
            let packed = response.headers().get(CONTENT_ENCODING).cloned();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            (packed, body.expect("it is in memory"))
        };
        for accepts in ["gzip, deflate, br", "br;q=1.0, GZIP;q=0.5"] {
            let (packed, body) = asked(accepts).await;
            assert_eq!(packed, Some(HeaderValue::from_static("gzip")), "{accepts}");
            assert_eq!(body.as_ptr(), document.gzip.as_ptr(), "the same bytes each time");
            let mut read = String::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut read).expect("gzip");
            assert_eq!(read, text);
        }
        for accepts in ["", "br", "gzip;q=0", "identity"] {
            let (packed, body) = asked(accepts).await;
            assert_eq!((packed, body.as_ptr()), (None, document.plain.as_ptr()), "{accepts}");
        }
    }
}
