//! Refuses requests that a page of another site made a browser send.
//!
//! A browser adds cookies, Basic passwords and its access to private networks to requests of any page. A request
//! comes from a browser if it has a cookie, `Origin`, `Sec-Fetch-Site` or `Sec-Fetch-Dest`; a page cannot leave those
//! out. Tools send none of these: they pass with their key. (Node's `fetch` sends only `Sec-Fetch-Mode`, so it counts
//! as a tool.)

use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use crate::error::ApiError;
use crate::origin::Origins;
use crate::site::Site;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns whether a browser sent the request.
pub(crate) fn is_browser(headers: &HeaderMap) -> bool {
    [COOKIE, ORIGIN, SITE, DEST].iter().any(|name| headers.contains_key(name))
}

/// Passes a request unless a page of another site sent it that is not one of `origins`.
///
/// # Errors
/// 403 for a page of another site, 415 for a body that a form could send.
pub(crate) fn check(
    method: &Method,
    headers: &HeaderMap,
    origins: &Origins,
    site: &Site,
) -> Result<(), ApiError> {
    if !is_browser(headers) {
        return Ok(());
    }
    let is_own = match text(headers, &SITE) {
        Some(site) => matches!(site, "same-origin" | "none"),
        None => text(headers, &ORIGIN).is_none_or(|origin| is_origin_of(origin, headers, site)),
    };
    let is_allowed = || text(headers, &ORIGIN).is_some_and(|origin| origins.allows(origin));
    if !is_own && !is_allowed() {
        return Err(ApiError::Barred {
            status: StatusCode::FORBIDDEN,
            code: "CROSS_SITE",
            message: "a page of another site has sent this: the service answers its own pages, tools, and the origins that \
                      its operator named with --cors-origin",
        });
    }
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || text(headers, &CONTENT_LENGTH).is_some_and(|length| length != "0");
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if changes && has_body && !is_json(headers) {
        return Err(ApiError::Barred {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code: "UNSUPPORTED_MEDIA_TYPE",
            message: "a browser sends bodies with `content-type: application/json`: a form could send others",
        });
    }
    Ok(())
}

/// Passes a request that shows a cookie if one of our own pages has sent it, to one of our own names.
///
/// # Errors
/// 403 for a page of another site, or none; 421 for another name.
pub(crate) fn own_page(method: &Method, headers: &HeaderMap, site: &Site) -> Result<(), ApiError> {
    let is_own = match (text(headers, &SITE), text(headers, &ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => is_origin_of(origin, headers, site),
        // Over plain http browsers say neither when a page reads. A cookie that is strict comes from no other site.
        (None, None) => matches!(*method, Method::GET | Method::HEAD),
    };
    if !is_own {
        return Err(ApiError::Barred {
            status: StatusCode::FORBIDDEN,
            code: "CROSS_SITE",
            message: "a login counts only in requests of the service's own pages; tools send an API key",
        });
    }
    if is_foreign_name(headers, site) { Err(misdirected()) } else { Ok(()) }
}

/// Returns the error for a request to a name that is not ours.
pub(crate) fn misdirected() -> ApiError {
    ApiError::Barred {
        status: StatusCode::MISDIRECTED_REQUEST,
        code: "MISDIRECTED",
        message: "the service is not called so: open it by its address, by localhost, or by a name that its operator gave \
                  with --public-url or --allowed-host",
    }
}

/// Returns whether a browser used a host name that an attacker may have pointed at us: any name except this
/// machine's and those of `site`. Addresses are safe. Only matters for a request without a valid key.
pub(crate) fn is_foreign_name(headers: &HeaderMap, site: &Site) -> bool {
    if !is_browser(headers) || site.is_named_by(headers) {
        return false;
    }
    let Some(host) = text(headers, &HOST) else { return true };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_own = name == "localhost" || name.ends_with(".localhost");
    !is_own && name.parse::<IpAddr>().is_err()
}

/// Compares origins for older browsers, which send nothing more. Another scheme of the same host is another site. A proxy
/// may write another `Host`, so the public URL counts too.
fn is_origin_of(origin: &str, headers: &HeaderMap, site: &Site) -> bool {
    if origin.eq_ignore_ascii_case(&site.url().to_string()) {
        return true;
    }
    let (Some(host), Some((scheme, authority))) = (text(headers, &HOST), origin.split_once("://"))
    else {
        return false;
    };
    authority.eq_ignore_ascii_case(host) && site.is_reached_by(scheme, host)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = text(headers, &CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn status(method: &Method, all: &[(&'static str, &'static str)]) -> u16 {
        let own = [("host", "127.0.0.1:4096")];
        let origins = Origins(vec!["https://code.example.com".parse().expect("an origin")]);
        let site = Site::new("http://127.0.0.1:4096".parse().expect("a URL"), Vec::new(), "x");
        let judged = check(method, &headers(&[&own[..], all].concat()), &origins, &site);
        judged.map_or_else(|error| error.failure().status.as_u16(), |()| 200)
    }

    // Finding security 14: a page of another site could submit forms with the password that the browser had stored.
    #[test]
    fn a_page_of_another_site_is_refused_and_a_tool_is_not() {
        let post = Method::POST;
        let form = ("content-type", "text/plain");
        let length = ("content-length", "9");
        for foreign in [
            &[("sec-fetch-site", "cross-site"), form][..],
            &[("sec-fetch-site", "same-site"), form],
            &[("origin", "https://evil.example"), form],
            &[("origin", "null"), form],
            &[("origin", "http://127.0.0.1:8000")],
            &[("origin", "https://127.0.0.1:4096")],
        ] {
            assert_eq!(status(&post, foreign), 403, "{foreign:?}");
        }
        for form in [form, ("content-type", "application/x-www-form-urlencoded")] {
            assert_eq!(status(&post, &[("sec-fetch-site", "same-origin"), form, length]), 415);
        }
        assert_eq!(status(&post, &[("cookie", "a=b"), length]), 415, "no content type");
        let json = ("content-type", "application/json; charset=utf-8");
        assert_eq!(status(&post, &[("sec-fetch-site", "same-origin"), json, length]), 200);
        assert_eq!(status(&post, &[("origin", "http://127.0.0.1:4096"), json, length]), 200);
        assert_eq!(status(&Method::GET, &[("sec-fetch-site", "none")]), 200);
        let listed = [("sec-fetch-site", "cross-site"), ("origin", "https://code.example.com")];
        assert_eq!(status(&post, &[&listed[..], &[json, length]].concat()), 200);
        assert_eq!(status(&post, &[&listed[..], &[form, length]].concat()), 415, "a form");
        // curl sends a form's content type with `-d`, or none; Node's fetch sends its mode.
        for tool in [
            &[("content-type", "application/x-www-form-urlencoded"), length][..],
            &[length],
            &[("sec-fetch-mode", "cors"), length],
        ] {
            assert_eq!(status(&post, tool), 200, "{tool:?}");
        }
    }

    #[test]
    fn a_name_that_leads_here_by_a_trick_is_told_apart() {
        let browser = ("sec-fetch-site", "same-origin");
        let site = Site::new("https://code.example".parse().expect("a URL"), Vec::new(), "x");
        let host =
            |host: &'static str| is_foreign_name(&headers(&[("host", host), browser]), &site);
        assert!(host("evil.example:4096") && host("localhost.evil.example"));
        for own in ["localhost:4096", "a.localhost", "127.0.0.1:4096", "[::1]:4096", "10.0.0.5"] {
            assert!(!host(own), "{own}");
        }
        assert!(!host("code.example"), "the public URL");
        assert!(!is_foreign_name(&headers(&[("host", "oc.corp.example")]), &site), "a tool");
    }

    // Attacks 29 and 30 of identity: a cookie that another page, another port or a rebound name made the browser send.
    #[test]
    fn a_cookie_counts_in_requests_of_our_own_pages_only() {
        let site = Site::new("http://127.0.0.1:4096".parse().expect("a URL"), Vec::new(), "x");
        let status = |method: Method, host: &'static str, all: &[(&'static str, &'static str)]| {
            let all = headers(&[&[("host", host), ("cookie", "a=b")][..], all].concat());
            own_page(&method, &all, &site)
                .map_or_else(|error| error.failure().status.as_u16(), |()| 200)
        };
        let own = "127.0.0.1:4096";
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(status(Method::POST, own, &[same]), 200);
        assert_eq!(status(Method::POST, own, &[("origin", "http://127.0.0.1:4096")]), 200);
        assert_eq!(status(Method::GET, own, &[]), 200);
        assert_eq!(status(Method::POST, own, &[]), 403, "no sign of where it comes from");
        for foreign in ["none", "same-site", "cross-site"] {
            assert_eq!(status(Method::GET, own, &[("sec-fetch-site", foreign)]), 403, "{foreign}");
        }
        assert_eq!(status(Method::POST, own, &[("origin", "http://127.0.0.1:8000")]), 403);
        // Finding security-3, low: a page by https of the host whose http is ours.
        assert_eq!(status(Method::POST, own, &[("origin", "https://127.0.0.1:4096")]), 403);
        assert_eq!(status(Method::POST, own, &[("origin", "oc://renderer")]), 403, "needs a key");
        assert_eq!(status(Method::GET, "evil.example:4096", &[same]), 421);
    }

    // Finding: report 30-c29 (Tr3kkR/Yuzu#2537).
    #[test]
    fn the_public_url_is_ours_behind_a_proxy_that_rewrites_host() {
        let site = Site::new("https://code.example.com".parse().expect("a URL"), Vec::new(), "x");
        let statuses = |host: &'static str, origin: &'static str| {
            let all = headers(&[("host", host), ("cookie", "a=b"), ("origin", origin)]);
            let status = |judged: Result<(), ApiError>| {
                judged.map_or_else(|error| error.failure().status.as_u16(), |()| 200)
            };
            let checked = check(&Method::POST, &all, &Origins(Vec::new()), &site);
            (status(checked), status(own_page(&Method::POST, &all, &site)))
        };
        let proxied = "127.0.0.1:4096";
        assert_eq!(statuses(proxied, "https://code.example.com"), (200, 200));
        for foreign in [
            "http://code.example.com",
            "https://code.example.com:8443",
            "https://code.example.com.evil.example",
            "https://evil.example",
            "null",
        ] {
            assert_eq!(statuses(proxied, foreign), (403, 403), "{foreign}");
        }
        assert_eq!(statuses("evil.example", "https://code.example.com"), (200, 421));
    }
}
