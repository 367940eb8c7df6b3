use std::fmt;
use std::str::FromStr;

/// Origins that the released desktop apps have. A page of a web site cannot take one of these.
const DESKTOP: [&str; 4] =
    ["oc://renderer", "tauri://localhost", "http://tauri.localhost", "https://tauri.localhost"];

/// The origin of web pages that may call this service from a browser: `https://code.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// A text that is no origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no origin: write scheme and host, such as https://code.example.com, and a port if there is one"
)]
pub struct OriginError(String);

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let is_authority = |rest: &str| {
            !rest.is_empty()
                && rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c))
        };
        let lower = text.to_ascii_lowercase();
        match lower.split_once("://") {
            Some(("http" | "https", rest)) if is_authority(rest) => Ok(Self(lower)),
            _ => Err(OriginError(text.to_owned())),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The origins whose pages may call this service: those of the released desktop apps, and the operator's.
///
/// A page needs a key like everybody else: browsers add nothing of their own to what it sends, since no answer allows
/// them to.
#[derive(Debug, Clone, Default)]
pub struct Origins(pub Vec<Origin>);

impl Origins {
    pub(crate) fn allows(&self, origin: &str) -> bool {
        DESKTOP.contains(&origin)
            || self.0.iter().any(|allowed| allowed.0.eq_ignore_ascii_case(origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        let origins = Origins(vec!["https://Code.example.com:8443".parse().expect("an origin")]);
        assert!(origins.allows("https://code.example.com:8443") && origins.allows("oc://renderer"));
        for other in ["https://code.example.com", "http://code.example.com:8443", "null", ""] {
            assert!(!origins.allows(other), "{other}");
        }
        for bad in ["*", "code.example.com", "https://", "https://a/b", "file://x", "https://a b"] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
