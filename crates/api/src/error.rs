use std::error::Error;
use std::fmt;

use access::{Missing, Need};
use auth::{AuthError, PutOff};
use axum::response::{IntoResponse, Response};
use checkouts::LookError;
use credentials::CredentialsError;
use domain::{ErrorCode, IdError, SessionError, SessionId};
use http::StatusCode;
use store::{MAX_INBOX_BYTES, MAX_INBOX_INPUTS, StoreError};

type Cause = Box<dyn Error + Send + Sync>;

/// The sentence of every request while the database is away.
const NO_DATABASE: &str = "the database does not answer; ask again";

/// The reason why a request failed. Its message is for the client; a cause is only logged.
///
/// The middleware in `table/scope.rs` turns it into a body, because that knows the request id and the dialect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Malformed body, path, query or header. The message says what to do.
    #[error("{0}")]
    Invalid(String),
    /// No valid key.
    #[error("{0}")]
    Unauthenticated(String),
    /// Whoever asks may not do this: their role or their key's scopes do not have the need.
    #[error("this needs `{0}`: {1}")]
    Forbidden(Need, Missing),
    /// A login that cannot begin: the code says why.
    #[error("{message}")]
    NoLogin {
        /// `LINK_USED`, `LINK_EXPIRED`, `LINK_UNKNOWN`, or of a recovery code `CODE_USED`, `CODE_UNKNOWN`,
        /// `CODE_NO_OWNER`, `CODE_MISTYPED`.
        code: &'static str,
        /// The reason, and what to do.
        message: &'static str,
    },
    /// Does not exist, or belongs to another organisation.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The same, of a request for a permission or of questions, by its id.
    #[error("a request with this id was not found")]
    NoSuchAsk {
        /// The id of the request.
        request: String,
        /// Whether it would be a request for a permission.
        is_permission: bool,
    },
    /// An operation of the released contract that this service does not offer. The message says what to do instead.
    #[error("{0}")]
    NotOffered(&'static str),
    /// The path exists, but not with this method.
    #[error("this path does not take this method")]
    Method,
    /// The id belongs to something else.
    #[error("{0}")]
    Conflict(String),
    /// The session has work, and the request needs it to be idle.
    #[error(
        "the session has work: interrupt it, or wait until it is idle; prompts that wait in its inbox are work too, so resume it or cancel them"
    )]
    Busy(SessionId),
    /// The session's state does not allow it. The code has a page in `docs/errors/`.
    #[error("{}", .0.message)]
    Refused(SessionError),
    /// The session's inbox is full. The code has a page in `docs/errors/`.
    #[error("{}", .0.message)]
    Full(SessionError),
    /// The body names something that does not exist. The code has a page in `docs/errors/`.
    #[error("{}", .0.message)]
    NoSuch(SessionError),
    /// The body is too large.
    #[error("{0}")]
    TooLarge(String),
    /// Refused before it was authenticated or because of a limit.
    #[error("{message}")]
    Barred {
        /// 403, 415, 421 or 429.
        status: StatusCode,
        /// A code for programs.
        code: &'static str,
        /// The reason, and what to do.
        message: &'static str,
    },
    /// A temporary failure; the client should retry.
    #[error("{message}")]
    Unavailable {
        /// The reason, for the client.
        message: &'static str,
        /// The cause, for the log.
        cause: Option<Cause>,
    },
    /// A fault of the service.
    #[error("an internal error; tell the operator the request id")]
    Internal(Cause),
}

/// The content of an error response.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    /// The page in `docs/errors/` that says more.
    pub(crate) reason: Option<String>,
    /// The session that is busy.
    pub(crate) busy: Option<SessionId>,
    /// The ask that is not there.
    pub(crate) missing_ask: Option<MissingAsk>,
    pub(crate) message: String,
    /// The cause, for the log. It is logged once.
    pub(crate) cause: Option<String>,
}

/// An ask that is not there.
#[derive(Debug, Clone)]
pub(crate) struct MissingAsk {
    /// Its id.
    pub(crate) request: String,
    /// Whether it would be a request for a permission.
    pub(crate) is_permission: bool,
}

impl ApiError {
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::Invalid(message.to_string())
    }

    /// The error of a fork that needs a copy of files which no snapshot has.
    pub(crate) fn not_captured() -> Self {
        Self::Refused(SessionError {
            code: ErrorCode::WorkspaceNotCaptured.into(),
            message: "the session's files were never captured, so they cannot be copied: give it a prompt first, \
                      or share them"
                .to_owned(),
        })
    }

    /// The same error for files before the session's first snapshot.
    pub(crate) fn not_captured_then() -> Self {
        Self::Refused(SessionError {
            code: ErrorCode::WorkspaceNotCaptured.into(),
            message: "the files as they were at that message were never captured, so they cannot be copied: fork at a \
                      later message, or share them"
                .to_owned(),
        })
    }

    /// The error of an input that a full inbox does not take.
    fn inbox_full() -> Self {
        Self::Full(SessionError {
            code: ErrorCode::SessionInboxFull.into(),
            message: format!(
                "the session's inbox is full: at most {MAX_INBOX_INPUTS} inputs, of {} MiB together, wait for it; resume the \
                 session, or cancel inputs that wait, and send it again",
                MAX_INBOX_BYTES >> 20
            ),
        })
    }

    /// The error for a control that could not be carried out.
    pub(crate) fn refused(error: SessionError, session: &SessionId) -> Self {
        match error.code.known() {
            Some(ErrorCode::SessionBusy) => Self::Busy(session.clone()),
            Some(ErrorCode::SessionMessageUnknown) => Self::NotFound("a message with this id was"),
            _ => Self::Refused(error),
        }
    }

    /// The error of a request that wants a recent login.
    pub(crate) fn sign_in_again() -> Self {
        Self::Barred {
            status: StatusCode::FORBIDDEN,
            code: "SIGN_IN_AGAIN",
            message: "this needs a sign-in of less than 15 minutes ago, and yours is older: sign in again, then repeat it",
        }
    }

    pub(crate) fn internal(cause: impl Into<Cause>) -> Self {
        Self::Internal(cause.into())
    }

    pub(crate) fn failure(&self) -> Failure {
        let (status, code) = match self {
            Self::Invalid(_) | Self::NoSuch(_) => (StatusCode::BAD_REQUEST, "INVALID_INPUT"),
            Self::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
            Self::NoLogin { code, .. } => (StatusCode::UNAUTHORIZED, *code),
            Self::Forbidden(..) => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            Self::NotFound(_) | Self::NoSuchAsk { .. } => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            Self::NotOffered(_) => (StatusCode::BAD_REQUEST, "NOT_OFFERED"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"),
            Self::Conflict(_) | Self::Busy(_) | Self::Refused(_) => {
                (StatusCode::CONFLICT, "CONFLICT")
            }
            Self::Full(_) => (StatusCode::TOO_MANY_REQUESTS, "INBOX_FULL"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE"),
            Self::Barred { status, code, .. } => (*status, *code),
            Self::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        };
        let cause = match self {
            Self::Unavailable { cause: Some(cause), .. } | Self::Internal(cause) => {
                Some(with_causes(cause.as_ref()))
            }
            Self::Unavailable { cause: None, .. }
            | Self::Invalid(_)
            | Self::Unauthenticated(_)
            | Self::Forbidden(..)
            | Self::NoLogin { .. }
            | Self::NotFound(_)
            | Self::NoSuchAsk { .. }
            | Self::NotOffered(_)
            | Self::Method
            | Self::Conflict(_)
            | Self::Busy(_)
            | Self::Refused(_)
            | Self::NoSuch(_)
            | Self::Full(_)
            | Self::TooLarge(_)
            | Self::Barred { .. } => None,
        };
        let reason = match self {
            Self::Busy(_) => Some(ErrorCode::SessionBusy.to_string()),
            Self::Refused(error) | Self::NoSuch(error) | Self::Full(error) => {
                Some(error.code.to_string())
            }
            Self::Invalid(_)
            | Self::Unauthenticated(_)
            | Self::Forbidden(..)
            | Self::NoLogin { .. }
            | Self::NotFound(_)
            | Self::NoSuchAsk { .. }
            | Self::NotOffered(_)
            | Self::Method
            | Self::Conflict(_)
            | Self::TooLarge(_)
            | Self::Barred { .. }
            | Self::Unavailable { .. }
            | Self::Internal(_) => None,
        };
        let busy = if let Self::Busy(session) = self { Some(session.clone()) } else { None };
        let missing_ask = if let Self::NoSuchAsk { request, is_permission } = self {
            Some(MissingAsk { request: request.clone(), is_permission: *is_permission })
        } else {
            None
        };
        Failure { status, code, reason, busy, missing_ask, message: self.to_string(), cause }
    }
}

/// Returns an error and its causes in one line. Skips a cause whose text an outer error already contains.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

/// The answer to somebody who has seen events that are not in the database any more.
const WENT_BACK: &str = "the database lost the newest events of this session; read it again, and send again what is missing";

impl ApiError {
    /// Returns the error for a follower whose session's log lacks events that were read before. The session was not
    /// deleted.
    pub(crate) fn went_back() -> Self {
        Self::Unavailable { message: WENT_BACK, cause: None }
    }
}

impl From<StoreError> for ApiError {
    /// There is no wildcard arm, so a new store error does not compile until it has a status here.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::NotFound("the resource was"),
            StoreError::Conflict { what } => {
                Self::Conflict(format!("{what} already exists and differs; choose another id"))
            }
            StoreError::Busy { session } => Self::Busy(session),
            StoreError::InboxFull { .. } => Self::inbox_full(),
            StoreError::RolesChanged => Self::Conflict(
                "nothing was changed: a role changed while this request was decided; read the people again, then repeat it"
                    .to_owned(),
            ),
            error @ StoreError::Feature { .. } => Self::Conflict(error.to_string()),
            error @ (StoreError::Fenced { .. } | StoreError::Superseded) => Self::Unavailable {
                message: "the session is just changing its worker; ask again",
                cause: Some(error.into()),
            },
            error @ StoreError::WentBack { .. } => {
                Self::Unavailable { message: WENT_BACK, cause: Some(error.into()) }
            }
            error @ StoreError::Database(_) if error.is_cut_short() => Self::Unavailable {
                message: "the database is there, and ended a statement that took too long; ask again when it has less \
                          to do, or ask for less",
                cause: Some(error.into()),
            },
            error @ StoreError::Database(_) if error.is_crowded() => Self::Unavailable {
                message: "the service is busy: more is asked of it at once than it can do; ask again, with fewer \
                          requests at a time",
                cause: Some(error.into()),
            },
            error @ StoreError::Database(_) if error.is_locked() => Self::Unavailable {
                message: "another call is changing the same thing; ask again",
                cause: Some(error.into()),
            },
            error @ StoreError::Database(_) if error.is_full() => Self::Unavailable {
                message: "the database's disk is full; ask again once whoever runs the service has made room",
                cause: Some(error.into()),
            },
            error @ StoreError::Database(_) if error.has_too_many_clients() => Self::Unavailable {
                message: "the database has as many connections as it allows; ask again",
                cause: Some(error.into()),
            },
            error @ StoreError::Database(_) => {
                Self::Unavailable { message: NO_DATABASE, cause: Some(error.into()) }
            }
            error @ (StoreError::Schema(_) | StoreError::Unreadable(_)) => {
                Self::Internal(error.into())
            }
        }
    }
}

impl From<CredentialsError> for ApiError {
    fn from(error: CredentialsError) -> Self {
        match error {
            CredentialsError::NotFound(what) => Self::NotFound(what),
            CredentialsError::Invalid(message) => Self::Invalid(message),
            CredentialsError::Conflict(message) | CredentialsError::Full(message) => {
                Self::Conflict(message)
            }
            CredentialsError::Store(error) => error.into(),
            error @ CredentialsError::Unavailable(_) => Self::Unavailable {
                message: "the provider's sign-in does not answer; ask again",
                cause: Some(error.into()),
            },
            error @ (CredentialsError::NoSecretsKey
            | CredentialsError::Envelope(_)
            | CredentialsError::Unreadable { .. }
            | CredentialsError::CannotSeal { .. }
            | CredentialsError::NotConfigured { .. }
            | CredentialsError::SignIn(_)
            | CredentialsError::Ended(_)) => match error.code() {
                Some(code) => {
                    Self::Refused(SessionError { code: code.into(), message: error.to_string() })
                }
                None => Self::Internal(error.into()),
            },
        }
    }
}

impl From<LookError> for ApiError {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Hidden => Self::Invalid(error.to_string()),
            error @ (LookError::Slow | LookError::Unreadable(_)) => Self::Unavailable {
                message: "the directory's files cannot be read now; ask again",
                cause: Some(error.into()),
            },
        }
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Credential(_)
            | AuthError::Cookie(_)
            | AuthError::Form(_)
            | AuthError::Unknown
            | AuthError::LoginOver => Self::Unauthenticated(error.to_string()),
            AuthError::PutOff(why) => why.into(),
            AuthError::Unavailable(cause) => cause.into(),
        }
    }
}

impl From<PutOff> for ApiError {
    fn from(why: PutOff) -> Self {
        match why {
            PutOff::TooMany => Self::Barred {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: "TOO_MANY",
                message: "this address has sent too many unknown keys, codes or links; wait ten seconds, then try again",
            },
            PutOff::NoAnswer => Self::Unavailable { message: NO_DATABASE, cause: None },
            PutOff::Busy => Self::Unavailable {
                message: "too many keys, codes and links are being checked; try again",
                cause: None,
            },
        }
    }
}

impl From<IdError> for ApiError {
    fn from(error: IdError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let failure = self.failure();
        let mut response = failure.status.into_response();
        response.extensions_mut().insert(failure);
        response
    }
}
