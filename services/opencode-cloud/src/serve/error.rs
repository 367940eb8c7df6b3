use boot::BootError;
use store::StoreError;

/// The reason why a server did not start or had to stop. Printed as one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The machine lacks something.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The database failed or has another schema.
    #[error("{}", database(.0))]
    Store(#[from] StoreError),
    /// A wrong flag.
    #[error("{0}")]
    Usage(String),
    /// A part of the service stopped by itself.
    #[error("{0}")]
    Stopped(String),
}

fn database(error: &StoreError) -> String {
    match error {
        error @ StoreError::Database(_) => {
            let what = if error.is_full() {
                "the database has no space left; make room on its disk"
            } else if error.has_too_many_clients() {
                "the database has as many connections as it allows; raise its max_connections, or run fewer processes"
            } else if error.has_answered() {
                "the database refuses"
            } else {
                "the database does not answer"
            };
            format!("{what}: {}", error.make_sentence())
        }
        StoreError::NotFound
        | StoreError::Conflict { .. }
        | StoreError::Busy { .. }
        | StoreError::InboxFull { .. }
        | StoreError::RolesChanged
        | StoreError::Feature { .. }
        | StoreError::Fenced { .. }
        | StoreError::WentBack { .. }
        | StoreError::Superseded
        | StoreError::Schema(_)
        | StoreError::Unreadable(_) => error.to_string(),
    }
}

impl ServeError {
    /// Returns the exit code: 2 for wrong usage, 1 for a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Boot(_) | Self::Store(_) | Self::Stopped(_) => 1,
        }
    }

    /// Returns the error for a foreign error, with its causes.
    pub(crate) fn stopped(doing: &str, error: &dyn std::error::Error) -> Self {
        let mut text = format!("{doing}: {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self::Stopped(text)
    }
}
