//! The errors of blobs, with their causes in words that hold no credential.

use std::error::Error as StdError;
use std::io;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};

use crate::BlobKey;

/// The reason why a blob operation failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// An organisation, kind or name that is not a plain name: a bug in the caller.
    #[error(
        "`{0}` cannot be part of a blob's name: use 1 to 200 of A-Z a-z 0-9 . _ -, not beginning with a dot"
    )]
    BadName(String),
    /// The blob does not exist, or no longer.
    #[error("there is no blob {0}")]
    NotFound(BlobKey),
    /// The disk or its quota is full. Make room, then retry.
    #[error("no room is left to store blob {0}")]
    Full(BlobKey),
    /// The name has other content, which stays. Store under another name.
    #[error("blob {0} has other content, and a stored blob never changes")]
    Taken(BlobKey),
    /// The store failed or does not answer. A retry may succeed.
    #[error("cannot {action} blob {key} in {place}")]
    Store {
        /// `store`, `read` or `delete`.
        action: &'static str,
        /// The blob.
        key: BlobKey,
        /// The folder, or the bucket's URL.
        place: String,
        /// The reason, and the remedy where one is known.
        #[source]
        source: Cause,
    },
    /// The store could not list blobs. A retry may succeed.
    #[error("cannot list the blobs in {place}")]
    List {
        /// The folder or the bucket's URL, with the path.
        place: String,
        /// The reason, and the remedy where one is known.
        #[source]
        source: Cause,
    },
    /// The folder or bucket cannot be used as it is set up. A retry does not help.
    #[error("cannot keep blobs in {place}")]
    Setup {
        /// The folder, or the bucket's URL.
        place: String,
        /// The reason and the remedy.
        #[source]
        source: Cause,
    },
}

/// The reason of a failure in words: no header, no query of a URL, and so no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Cause {
    pub(crate) kind: CauseKind,
    text: String,
}

/// How far a failure tells of the store as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CauseKind {
    /// It does not answer, or fails: the next request will probably fail too.
    Away,
    /// The request was sent, and its answer was lost: it may have had its effect.
    AnswerLost,
    /// It refuses us: credentials, rights, or no such bucket.
    Refused,
    /// Something about this one blob, or this machine.
    Other,
}

impl Cause {
    pub(crate) fn new(kind: CauseKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Returns whether the store as a whole seems to be away.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.kind, CauseKind::Away | CauseKind::AnswerLost)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds of errors")]
    pub(crate) fn of(error: &StoreError) -> Self {
        let raw = deepest(error);
        let said = clean(&raw);
        match error {
            StoreError::PermissionDenied { .. } => Self::new(
                CauseKind::Refused,
                format!(
                    "the store denies it ({said}); give these credentials the rights to get, put, delete and list there"
                ),
            ),
            StoreError::Unauthenticated { .. } => Self::new(
                CauseKind::Refused,
                format!("the store does not accept the credentials ({said}); check them"),
            ),
            StoreError::NotFound { .. } if said.contains("NoSuchBucket") => Self::new(
                CauseKind::Refused,
                "there is no such bucket; create it, or correct --blob-url".to_owned(),
            ),
            StoreError::NotImplemented { .. } => {
                Self::new(CauseKind::Refused, format!("the store cannot do this ({said})"))
            }
            StoreError::Generic { .. } => Self::of_generic(error, &raw, said),
            _ => Self::new(CauseKind::Other, said),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds of errors")]
    fn of_generic(error: &StoreError, raw: &str, said: String) -> Self {
        let Some(http) = find::<HttpError>(error) else {
            // An answer with an error, or the file system.
            let failed =
                ["50", "429"].iter().any(|code| raw.contains(&format!("status code: {code}")));
            let kind = if failed { CauseKind::Away } else { CauseKind::Other };
            return Self::new(kind, said);
        };
        match http.kind() {
            HttpErrorKind::Connect => Self::new(
                CauseKind::Away,
                format!(
                    "it cannot be reached ({said}); check --blob-endpoint, DNS and the network"
                ),
            ),
            HttpErrorKind::Timeout => {
                Self::new(CauseKind::AnswerLost, "it did not answer in time".to_owned())
            }
            // Broken off, or of a kind that the library adds later.
            _ => Self::new(CauseKind::AnswerLost, format!("the connection broke ({said})")),
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::new(CauseKind::Other, error.to_string())
    }
}

/// Returns whether an error, or a cause of it, is a full disk.
pub(crate) fn is_full(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn find<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// The longest text of a store that is passed on, in bytes.
const LONGEST: usize = 400;

/// Returns the text of the deepest cause.
fn deepest(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// Returns a text on one line and without queries of URLs: those may hold signatures. Stores answer in XML, of which the
/// code and the message are kept.
fn clean(text: &str) -> String {
    let text = match (element(text, "Code"), element(text, "Message")) {
        (Some(code), Some(message)) => {
            let status = text.split(": ").nth(1).filter(|_| text.starts_with("Server returned"));
            format!("{}{code}: {message}", status.map(|it| format!("{it}, ")).unwrap_or_default())
        }
        _ => text.to_owned(),
    };
    let mut clean = String::with_capacity(text.len().min(LONGEST));
    let mut in_query = false;
    for letter in text.chars() {
        in_query = match letter {
            '?' => true,
            ' ' | ')' | '"' | '\n' => false,
            _ => in_query,
        };
        if !in_query {
            clean.push(if letter.is_control() { ' ' } else { letter });
        }
        if clean.len() >= LONGEST {
            clean.push('…');
            break;
        }
    }
    clean.trim().to_owned()
}

fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_cause_names_the_code_and_no_signature() {
        let xml = "Server returned non-2xx status code: 503 Service Unavailable: <?xml?><Error><Code>SlowDown</Code>\
                   <Message>Reduce your rate.</Message><RequestId>1</RequestId></Error>";
        let cause = Cause::of(&generic(xml));
        assert_eq!(cause.to_string(), "503 Service Unavailable, SlowDown: Reduce your rate.");
        assert!(cause.is_away());
        let signed = "Error performing GET http://h/b?sv=1&sig=SECRET in 3ms";
        assert_eq!(
            Cause::of(&generic(signed)).to_string(),
            "Error performing GET http://h/b in 3ms"
        );
        let long = Cause::of(&generic(&"x".repeat(5_000))).to_string();
        assert!(long.len() < 500, "{}", long.len());
    }

    #[test]
    fn a_full_disk_is_found_below_other_errors() {
        let full = || Box::new(io::Error::from(io::ErrorKind::StorageFull));
        let wrapped = StoreError::Generic { store: "LocalFileSystem", source: full() };
        assert!(is_full(&*full()) && is_full(&wrapped));
        assert!(!is_full(&generic("no")));
    }
}
