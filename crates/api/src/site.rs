use std::fmt;
use std::str::FromStr;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// The most attempts to sign in that a browser keeps: its cookies come in one header, which proxies bound.
const MAX_ATTEMPTS: usize = 5;
/// The end of the names of their cookies.
const SSO_END: &str = "-sso";
/// The letters of a state's hash in such a name.
const TAG_CHARS: usize = 16;

/// The URL at which people reach the service: `https://code.example.com`. Links and cookies are for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    /// Host, and port unless it is the scheme's own; in lower case.
    authority: String,
}

/// A text that is no public URL.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no public URL: write scheme, host and port as browsers reach the service, without a path, such as \
     https://code.example.com"
)]
pub struct PublicUrlError(String);

impl FromStr for PublicUrl {
    type Err = PublicUrlError;

    fn from_str(text: &str) -> Result<Self, PublicUrlError> {
        let wrong = || PublicUrlError(text.to_owned());
        let lower = text.trim_end_matches('/').to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://").ok_or_else(wrong)?;
        let (is_https, own_port) = match scheme {
            "https" => (true, ":443"),
            "http" => (false, ":80"),
            _ => return Err(wrong()),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        if authority.is_empty() || !authority.chars().all(is_plain) {
            return Err(wrong());
        }
        let authority = authority.strip_suffix(own_port).unwrap_or(authority).to_owned();
        Ok(Self { is_https, authority })
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_https { "https" } else { "http" }, self.authority)
    }
}

/// How browsers know this service: its URL, its other names, and the name of its cookie.
#[derive(Debug, Clone)]
pub struct Site {
    url: PublicUrl,
    /// Further hosts, with or without a port.
    hosts: Vec<String>,
    cookie: String,
}

impl Site {
    /// `instance` tells this service from others at the same URL at other times: browsers keep cookies of a machine for
    /// all its ports.
    #[must_use]
    pub fn new(url: PublicUrl, hosts: Vec<String>, instance: &str) -> Self {
        let cookie = if url.is_https {
            // A browser takes this prefix only from the host itself, over https and for all paths.
            "__Host-oc".to_owned()
        } else {
            let port = url.authority.rsplit_once(':').map_or("80", |(_, port)| port);
            let instance = hex::encode(Sha256::digest(instance.as_bytes()));
            format!("oc-{}-{}", port.trim_end_matches(']'), &instance[..8])
        };
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { url, hosts, cookie }
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &PublicUrl {
        &self.url
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    /// Returns the header that gives a browser its cookie for `seconds`.
    pub(crate) fn set_cookie(&self, text: &str, seconds: i64) -> Option<HeaderValue> {
        let secure = if self.url.is_https { "; Secure" } else { "" };
        let cookie = format!(
            "{}={text}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
            self.cookie
        );
        HeaderValue::try_from(cookie).ok()
    }

    /// Returns the header that takes the cookie away.
    pub(crate) fn no_cookie(&self) -> Option<HeaderValue> {
        self.set_cookie("", 0)
    }

    /// Returns the name of the cookie by which a browser is known again when it comes back from an identity provider with
    /// this state. Each of its tabs may be at one.
    pub(crate) fn sso_cookie(&self, state: &str) -> String {
        let tag = hex::encode(Sha256::digest(state.as_bytes()));
        format!("{}-{}{SSO_END}", self.cookie, &tag[..TAG_CHARS])
    }

    /// Returns the name of the one such cookie that a build before gave a browser.
    pub(crate) fn only_sso_cookie(&self) -> String {
        format!("{}{SSO_END}", self.cookie)
    }

    /// Returns the header that gives it to a browser. A provider's redirect is a navigation from another site, to which
    /// a strict cookie does not go.
    pub(crate) fn set_sso_cookie(
        &self,
        name: &str,
        text: &str,
        seconds: i64,
    ) -> Option<HeaderValue> {
        let secure = if self.url.is_https { "; Secure" } else { "" };
        let cookie =
            format!("{name}={text}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        HeaderValue::try_from(cookie).ok()
    }

    /// Returns the header that takes it away.
    pub(crate) fn no_sso_cookie(&self, name: &str) -> Option<HeaderValue> {
        self.set_sso_cookie(name, "", 0)
    }

    /// Returns the headers that take the oldest of a browser's attempts away, so that it may keep one more. A browser sends
    /// the oldest cookies first.
    pub(crate) fn drop_sso_cookies(&self, headers: &HeaderMap) -> Vec<Option<HeaderValue>> {
        let sent = headers.get_all(COOKIE).into_iter().filter_map(|header| header.to_str().ok());
        let names = sent.flat_map(|header| header.split(';'));
        let names = names.filter_map(|pair| pair.trim().split_once('=')).map(|(name, _)| name);
        let kept: Vec<&str> = names.filter(|name| self.is_of_attempt(name)).collect();
        let surplus = (kept.len() + 1).saturating_sub(MAX_ATTEMPTS);
        kept.into_iter().take(surplus).map(|name| self.no_sso_cookie(name)).collect()
    }

    /// Returns whether a cookie of this name holds an attempt with a state.
    fn is_of_attempt(&self, name: &str) -> bool {
        let tag = name.strip_prefix(self.cookie.as_str()).and_then(|rest| rest.strip_prefix('-'));
        let tag = tag.and_then(|rest| rest.strip_suffix(SSO_END));
        tag.is_some_and(|tag| {
            tag.len() == TAG_CHARS && tag.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    /// Returns whether a browser that asks to forget everything forgets nothing of others: on plain http, cookies of other
    /// ports would go too.
    pub(crate) fn may_clear_all(&self) -> bool {
        self.url.is_https
    }

    /// Returns whether the request's `Host` is one of the service's names.
    pub(crate) fn is_named_by(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
            return false;
        };
        let host = host.to_ascii_lowercase();
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        self.is_public(&host) || self.hosts.iter().any(|known| *known == host || *known == name)
    }

    /// Returns whether a host is that of the public URL. It is in lower case.
    fn is_public(&self, host: &str) -> bool {
        let own_port = if self.url.is_https { ":443" } else { ":80" };
        host.strip_suffix(own_port).unwrap_or(host) == self.url.authority
    }

    /// Returns whether a page of this scheme and host may be ours. By https nobody reaches a service whose public URL is
    /// http, and by http nobody its public host where that is https.
    pub(crate) fn is_reached_by(&self, scheme: &str, host: &str) -> bool {
        match scheme {
            "https" => self.url.is_https,
            "http" => !(self.url.is_https && self.is_public(&host.to_ascii_lowercase())),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> PublicUrl {
        text.parse().expect("a URL")
    }

    #[test]
    fn a_public_url_is_scheme_host_and_port() {
        assert_eq!(url("https://Code.example.com:443/").to_string(), "https://code.example.com");
        assert_eq!(url("http://127.0.0.1:4096").to_string(), "http://127.0.0.1:4096");
        for bad in ["code.example.com", "https://", "https://a/b", "ftp://a", "https://a b"] {
            assert!(bad.parse::<PublicUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cookie_has_the_prefix_behind_https_and_port_and_instance_elsewhere() {
        let https = Site::new(url("https://code.example.com"), Vec::new(), "x");
        let set = https.set_cookie("v", 60).expect("a header");
        let expected = "__Host-oc=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=60; Secure";
        assert_eq!(set.to_str().expect("text"), expected);
        let name = |url_of: &str, instance| {
            Site::new(url(url_of), Vec::new(), instance).cookie().to_owned()
        };
        let here = "http://127.0.0.1:4096";
        assert!(name(here, "x").starts_with("oc-4096-"));
        assert_ne!(name(here, "x"), name(here, "y"));
        assert_ne!(name(here, "x"), name("http://127.0.0.1:4097", "x"));
    }

    // Finding: report 30-d5 (auth0/express-openid-connect#43).
    #[test]
    fn a_browser_keeps_some_attempts_and_the_oldest_go() {
        let site = Site::new(url("https://code.example.com"), Vec::new(), "x");
        let names: Vec<String> = (0..6).map(|at| site.sso_cookie(&format!("state-{at}"))).collect();
        let dropped = |names: &[String]| -> Vec<String> {
            let sent: Vec<String> = names.iter().map(|name| format!("{name}=1.2.x")).collect();
            let sent = format!("__Host-oc=a; {}; __Host-oc-sso=b", sent.join("; "));
            let sent = [(COOKIE, HeaderValue::try_from(sent).expect("visible"))];
            let dropped = site.drop_sso_cookies(&sent.into_iter().collect());
            let text = |header: Option<HeaderValue>| {
                let header = header.expect("a header");
                let text = header.to_str().expect("ASCII");
                assert!(text.ends_with("=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0; Secure"));
                text.split('=').next().unwrap_or_default().to_owned()
            };
            dropped.into_iter().map(text).collect()
        };
        assert_eq!(dropped(&names[..4]), Vec::<String>::new());
        assert_eq!(dropped(&names[..5]), names[..1]);
        assert_eq!(dropped(&names[..]), names[..2]);
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn a_service_knows_its_own_names() {
        let site = Site::new(url("https://code.example.com"), vec!["oc.lan".into()], "x");
        let named = |host: &'static str| {
            let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
            site.is_named_by(&headers)
        };
        assert!(named("CODE.example.com") && named("code.example.com:443") && named("oc.lan:8080"));
        assert!(!named("code.example.com:444") && !named("evil.example") && !named("x.oc.lan"));
    }

    // Finding security-3, low: `Origin: https://host` was ours over http.
    #[test]
    fn another_scheme_is_another_site() {
        let site = |text: &str| Site::new(url(text), Vec::new(), "x");
        let (http, https) = (site("http://127.0.0.1:4096"), site("https://code.example.com"));
        assert!(http.is_reached_by("http", "127.0.0.1:4096"));
        assert!(!http.is_reached_by("https", "127.0.0.1:4096"));
        assert!(https.is_reached_by("https", "Code.example.com"));
        assert!(!https.is_reached_by("http", "Code.example.com"));
        assert!(https.is_reached_by("http", "10.0.0.5:4096"), "beside its proxy");
        assert!(!https.is_reached_by("ftp", "code.example.com"));
    }
}
