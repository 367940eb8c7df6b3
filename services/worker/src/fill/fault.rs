use domain::{ErrorCode, SessionError};
use store::StoreError;

/// Why a fill came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The store failed, or a later token has acted there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It may work in a moment, here or at another worker.
    #[error("{0}")]
    Later(String),
    /// It fails until somebody does something.
    #[error("{text}")]
    Ends {
        /// One word.
        code: &'static str,
        /// Stage, host, cause, and a way out.
        text: String,
    },
}

impl Fault {
    pub(crate) fn later(text: impl Into<String>) -> Self {
        Self::Later(text.into())
    }

    pub(crate) fn ends(code: &'static str, text: impl Into<String>) -> Self {
        Self::Ends { code, text: text.into() }
    }

    /// Returns the error for sessions.
    pub(crate) fn for_sessions(message: String) -> SessionError {
        SessionError { code: ErrorCode::WorkspaceFillFailed.into(), message }
    }
}
