use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::KeySource;
use crate::profile::ProfileError;

/// The reason why a call to the service failed. Each prints as one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `--url` is not a usable URL.
    #[error(
        "`{url}` is not a usable URL ({why}); one looks like https://oc.example or http://127.0.0.1:4096"
    )]
    BadUrl {
        /// The given URL.
        url: String,
        /// The parser's reason.
        why: String,
    },
    /// `--key` cannot be sent as a header.
    #[error("the key holds characters that no key has; pass it with --key or OPENCODE_CLOUD_KEY")]
    BadKey,
    /// Nobody answers at the URL.
    #[error("cannot reach the service at {url} ({why}); {}", start_hint(.url))]
    Unreachable {
        /// The service's URL.
        url: String,
        /// The system's reason.
        why: String,
    },
    /// The certificate of the server at the URL is not trusted.
    #[error("the certificate of the service at {url} is not trusted: {fault}")]
    Untrusted {
        /// The service's URL.
        url: String,
        /// Its fault, and what helps.
        fault: String,
    },
    /// The service at the URL answers without TLS.
    #[error("the service at {url} speaks http, not https; use {}", plain_url(.url))]
    NotHttps {
        /// The service's URL, which begins with `https://`.
        url: String,
    },
    /// The service took the call and did not answer in time. The call may have had its effect.
    #[error("the service at {url} did not answer within {} s; try again", .limit.as_secs())]
    Silent {
        /// The service's URL.
        url: String,
        /// How long we waited.
        limit: Duration,
    },
    /// 401 for a key.
    #[error("the service at {url} refused the key{}", of_key(.source_of_key, .url))]
    Unauthorized {
        /// The service's URL.
        url: String,
        /// The origin of the key.
        source_of_key: KeySource,
    },
    /// 401 without a key.
    #[error("no API key for {url}: {}", without_key(.url, .profile.as_deref()))]
    NoKey {
        /// The service's URL.
        url: String,
        /// The path where the client profile would be.
        profile: Option<PathBuf>,
    },
    /// The client profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Something else than this service answers at the URL.
    #[error("{url} answers, but not as OpenCode Cloud does; check the URL and its port")]
    Foreign {
        /// The URL.
        url: String,
    },
    /// A sign-in at a provider did not succeed.
    #[error("the sign-in failed: {why}")]
    SignIn {
        /// The provider's or the service's reason.
        why: String,
    },
    /// `--url` names no known service.
    #[error(
        "--url `{name}` is neither a URL such as http://127.0.0.1:4096 nor the name of a known service; \
         `opencode-cloud services` lists those"
    )]
    UnknownService {
        /// The given name.
        name: String,
    },
    /// 403.
    #[error("this key may not do that{}; use one with the right scope", colon(.message))]
    Forbidden {
        /// The service's message, possibly empty.
        message: String,
    },
    /// 404.
    #[error("{what} was not found; {} shows what this key can see", listing(.what))]
    NotFound {
        /// The missing thing.
        what: String,
    },
    /// Any other refusal.
    #[error("the service answered {status}{}{}", colon(.message), request(.request_id))]
    Refused {
        /// Its status.
        status: StatusCode,
        /// The service's code, if it gave one.
        code: Option<String>,
        /// The service's message, possibly empty.
        message: String,
        /// The request's id in the service's log.
        request_id: Option<String>,
        /// How long the service asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The service's answer is not understood by this build.
    #[error(
        "cannot read the service's answer to {what} ({why}); is this build as new as the service?"
    )]
    Unreadable {
        /// The requested thing.
        what: String,
        /// The reader's reason.
        why: String,
    },
    /// The log's stream broke and could not be reopened.
    #[error("lost the session's log after event {last} and could not resume it for {} s ({why}); the session goes on: see `opencode-cloud session log`", .patience.as_secs())]
    LogLost {
        /// The last event that was received.
        last: domain::Seq,
        /// How long we tried.
        patience: Duration,
        /// The reason of the last failure.
        why: String,
    },
}

/// The standing of a call that has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The same call may work a moment later. It may have had its effect.
    Open,
    /// The service refused, so the call had no effect.
    Refused,
    /// Neither is known, or nothing was called.
    Other,
}

impl ClientError {
    fn standing(&self) -> Standing {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => Standing::Open,
            Self::Refused { status, .. } => match *status {
                StatusCode::TOO_MANY_REQUESTS => Standing::Open,
                status if status.is_server_error() => Standing::Open,
                status if status.is_client_error() => Standing::Refused,
                _ => Standing::Other,
            },
            Self::Forbidden { .. } => Standing::Refused,
            Self::BadUrl { .. }
            | Self::BadKey
            | Self::Untrusted { .. }
            | Self::NotHttps { .. }
            | Self::Unauthorized { .. }
            | Self::NoKey { .. }
            | Self::Profile(_)
            | Self::Foreign { .. }
            | Self::UnknownService { .. }
            | Self::SignIn { .. }
            | Self::NotFound { .. }
            | Self::Unreadable { .. }
            | Self::LogLost { .. } => Standing::Other,
        }
    }

    /// Returns whether the same call may work a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.standing() == Standing::Open
    }

    /// Returns whether the service answered 409: something else stands, or is no more.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::CONFLICT)
    }

    /// Returns whether the service refused, so that the call had no effect.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.standing() == Standing::Refused
    }

    /// Returns how long the service asked us to wait, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Refused { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Returns the error for a failure to send or to read.
    pub(crate) fn transport(url: &str, limit: Duration, error: &reqwest::Error) -> Self {
        if error.is_timeout() && !error.is_connect() {
            return Self::Silent { url: url.to_owned(), limit };
        }
        let (url, why) = (url.to_owned(), reason(error));
        if is_answer_without_tls(&url, &why) {
            return Self::NotHttps { url };
        }
        match certificate_fault(&why) {
            Some(fault) => Self::Untrusted { url, fault },
            None => Self::Unreachable { url, why },
        }
    }

    /// Returns the error for a missing or wrong key.
    #[must_use]
    pub fn unauthorized(url: &str, key: &KeySource) -> Self {
        let url = url.to_owned();
        match key {
            KeySource::None(profile) => Self::NoKey { url, profile: profile.clone() },
            source @ (KeySource::Given | KeySource::Login | KeySource::Profile(_)) => {
                Self::Unauthorized { url, source_of_key: source.clone() }
            }
        }
    }

    /// Returns the error for an unsuccessful answer. `what` names the requested thing.
    pub(crate) fn refused(
        url: &str,
        status: StatusCode,
        retry_after: Option<Duration>,
        what: &str,
        body: &[u8],
    ) -> Self {
        let answer = Refusal::read(body);
        match status {
            // The service says why in words of its own. Another server, or a page, does not.
            StatusCode::NOT_FOUND if answer.code.is_none() => Self::Foreign { url: url.to_owned() },
            StatusCode::FORBIDDEN => Self::Forbidden { message: answer.message },
            StatusCode::NOT_FOUND => Self::NotFound { what: what.to_owned() },
            _ => Self::Refused {
                status,
                code: answer.code,
                message: answer.message,
                request_id: answer.request_id,
                retry_after,
            },
        }
    }
}

/// The service's reason for a refusal, in either dialect.
struct Refusal {
    code: Option<String>,
    message: String,
    request_id: Option<String>,
}

impl Refusal {
    /// Reads a JSON body. Any other body, such as a proxy's page, has nothing worth showing.
    fn read(body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let text = |pointers: &[&str]| {
            pointers.iter().find_map(|at| body.pointer(at)?.as_str()).map(str::to_owned)
        };
        Self {
            code: text(&["/code", "/error/code", "/name"]),
            message: text(&["/message", "/error/message", "/data/message", "/error"])
                .unwrap_or_default(),
            request_id: text(&["/request_id", "/error/request_id", "/data/request_id"]),
        }
    }
}

fn of_key(source: &KeySource, url: &str) -> String {
    match source {
        KeySource::Profile(path) if super::is_loopback(url) => format!(
            " in {}: it is another data folder's, or was revoked; start that service again with `opencode-cloud up`, \
             which writes its own key there, or set OPENCODE_CLOUD_KEY",
            path.display()
        ),
        KeySource::Profile(path) => format!(
            " in {}: it was revoked or has expired; get another one and log in again with: opencode-cloud login {url}",
            path.display()
        ),
        KeySource::Login => "; nothing was stored. Whoever runs the service has its key: \
                             `opencode-cloud key` prints it there"
            .to_owned(),
        KeySource::Given | KeySource::None(_) => {
            " that was given: set OPENCODE_CLOUD_KEY (or --key) to one of its API keys, or unset it to use the key in \
             the client profile"
                .to_owned()
        }
    }
}

fn without_key(url: &str, profile: Option<&Path>) -> String {
    let profile =
        profile.map_or_else(|| "the client profile".into(), |path| path.display().to_string());
    if super::is_loopback(url) {
        format!(
            "`opencode-cloud up` writes one to {profile} when it starts; or set OPENCODE_CLOUD_KEY"
        )
    } else {
        format!("there is none in {profile}; log in with: opencode-cloud login {url}")
    }
}

/// Returns the command that lists things like `what`.
fn listing(what: &str) -> &'static str {
    match what.split([' ', '_']).next() {
        Some("crd") => "`opencode-cloud credential list`",
        Some("permission") => "`opencode-cloud permission list`",
        Some("ask") => "`opencode-cloud ask list`",
        _ => "`opencode-cloud session list`",
    }
}

fn start_hint(url: &str) -> &'static str {
    if super::is_loopback(url) {
        "start it with `opencode-cloud up`, or name another one with --url"
    } else {
        "check --url or OPENCODE_CLOUD_URL and the network"
    }
}

/// Returns the same URL with `http://`.
fn plain_url(url: &str) -> String {
    url.replacen("https://", "http://", 1)
}

/// Returns whether a connection by https failed since the server answered with something other than TLS, from the innermost
/// cause of the failure.
fn is_answer_without_tls(url: &str, cause: &str) -> bool {
    url.starts_with("https://") && cause.contains("InvalidContentType")
}

fn colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

fn request(id: &Option<String>) -> String {
    id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default()
}

/// Returns the innermost cause, which people can act on. The layers in between only repeat it.
#[must_use]
pub fn reason(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause_text(cause)
}

/// Returns what is wrong with a server's certificate and what helps, from the innermost cause of a failed connection. `None`
/// if no certificate is.
#[must_use]
pub fn certificate_fault(cause: &str) -> Option<String> {
    let (_, fault) = cause.split_once("invalid peer certificate: ")?;
    let has = |word: &str| fault.to_ascii_lowercase().contains(word);
    let helps = if has("unknownissuer") {
        "its issuer is unknown here; name the issuer's certificate, a file in PEM, in SSL_CERT_FILE"
    } else if has("causedasendentity") {
        "it is the certificate of an authority, which cannot be a server's too; the service needs one that is signed by it"
    } else if has("not valid for name") || has("notvalidforname") {
        "it is for another name; use the name in the certificate in --url"
    } else if has("expired") || has("not valid yet") {
        "its time is over or has not begun; whoever runs the service has to renew it, or a clock is wrong"
    } else {
        return Some(fault.to_owned());
    };
    Some(helps.to_owned())
}

/// Returns a cause without the system's number: `Permission denied`, not `… (os error 13)`.
#[must_use]
pub fn cause_text(cause: &(dyn Error + 'static)) -> String {
    let text = cause.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_in_both_dialects() {
        let flat =
            br#"{"code":"conflict","message":"another prompt has this id","request_id":"r1"}"#;
        let error =
            ClientError::refused("http://x", StatusCode::CONFLICT, None, "the prompt", flat);
        assert_eq!(
            error.to_string(),
            "the service answered 409 Conflict: another prompt has this id (request r1)"
        );
        let stock = br#"{"name":"BadRequest","data":{"message":"no parts"}}"#;
        let error =
            ClientError::refused("http://x", StatusCode::BAD_REQUEST, None, "the prompt", stock);
        assert_eq!(error.to_string(), "the service answered 400 Bad Request: no parts");
        let page = ClientError::refused(
            "http://x",
            StatusCode::BAD_GATEWAY,
            None,
            "the prompt",
            b"<html>",
        );
        assert_eq!(page.to_string(), "the service answered 502 Bad Gateway");
        assert!(page.is_transient() && !error.is_transient());
    }

    // Finding trial-3 polish: at something else, "the list of sessions was not found".
    #[test]
    fn what_another_server_does_not_have_is_no_missing_thing() {
        let missing = |body: &[u8]| {
            let refused = ClientError::refused("http://x", StatusCode::NOT_FOUND, None, "it", body);
            matches!(refused, ClientError::NotFound { .. })
        };
        assert!(missing(br#"{"code":"not_found","message":"no session with this id was found"}"#));
        assert!(missing(br#"{"error":{"code":"NOT_FOUND","message":"m"}}"#));
        assert!(missing(br#"{"name":"NotFoundError","data":{"message":"m"}}"#));
        for other in
            [&b""[..], b"<html>not here", b"404 page not found", br#"{"detail":"Not Found"}"#]
        {
            assert!(!missing(other), "{other:?}");
        }
    }

    #[test]
    fn each_error_says_what_to_do() {
        let local =
            ClientError::Unreachable { url: "http://localhost:4096".into(), why: "x".into() };
        assert!(local.to_string().contains("`opencode-cloud up`"), "{local}");
        let remote = ClientError::Unreachable { url: "https://oc.example".into(), why: "x".into() };
        assert!(!remote.to_string().contains("opencode-cloud up"), "{remote}");
    }

    // Finding reports 28: the advice was to start the service, with a command that a release does not have.
    #[test]
    fn a_certificate_that_is_not_trusted_is_named() {
        let cases = [
            ("UnknownIssuer", "SSL_CERT_FILE"),
            ("Other(OtherError(CaUsedAsEndEntity))", "of an authority"),
            (
                "certificate not valid for name \"a\"; certificate is only valid for b",
                "another name",
            ),
            ("certificate expired: verification time 9", "renew"),
            ("BadSignature", "BadSignature"),
        ];
        for (fault, words) in cases {
            let fault = certificate_fault(&format!("invalid peer certificate: {fault}"));
            let url = "https://oc.example".into();
            let told = ClientError::Untrusted { url, fault: fault.expect("a fault") };
            assert!(told.to_string().contains(words), "{told}");
            assert!(!told.is_transient(), "{told}");
        }
        assert_eq!(certificate_fault("Connection refused"), None);
    }

    // A newcomer was told `received corrupt message of type InvalidContentType`.
    #[test]
    fn a_service_without_tls_is_named_with_its_url() {
        let cause = "received corrupt message of type InvalidContentType";
        assert!(is_answer_without_tls("https://127.0.0.1:4096", cause));
        assert!(!is_answer_without_tls("http://127.0.0.1:4096", cause));
        assert!(!is_answer_without_tls("https://127.0.0.1:4096", "Connection refused"));
        let told = ClientError::NotHttps { url: "https://127.0.0.1:4096".into() };
        assert!(!told.is_transient());
        assert_eq!(
            told.to_string(),
            "the service at https://127.0.0.1:4096 speaks http, not https; use http://127.0.0.1:4096"
        );
    }

    // Finding trial 9: a command without any key said that the service refused the key.
    #[test]
    fn a_missing_key_is_told_from_a_refused_one() {
        let at = "http://127.0.0.1:4096";
        let profile = PathBuf::from("/home/me/profile.toml");
        let none = ClientError::unauthorized(at, &KeySource::None(Some(profile.clone())));
        let none = none.to_string();
        assert!(
            none.starts_with("no API key for http://127.0.0.1:4096: `opencode-cloud up`"),
            "{none}"
        );
        let elsewhere = ClientError::unauthorized("https://oc.example", &KeySource::None(None));
        let told = elsewhere.to_string();
        assert!(told.ends_with("log in with: opencode-cloud login https://oc.example"), "{told}");
        let stale = ClientError::unauthorized(at, &KeySource::Profile(profile)).to_string();
        assert!(stale.contains("refused the key in /home/me/profile.toml"), "{stale}");
        let given = ClientError::unauthorized(at, &KeySource::Given).to_string();
        assert!(given.contains("refused the key that was given"), "{given}");
    }

    // Finding trial 15: causes were shown as Rust's error kinds, such as "(uncategorized error)".
    #[test]
    fn a_cause_is_the_systems_own_words() {
        let error = std::io::Error::from_raw_os_error(30);
        assert_eq!(reason(&error), "Read-only file system");
    }
}
