use std::borrow::Cow;
use std::error::Error;

use domain::{Claim, Feature, FeatureLevel, SessionId};
use sqlx::error::{DatabaseError, ErrorKind};

/// Why a store call did not do what was asked. A variant says what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such row for this tenant.
    #[error("not found")]
    NotFound,
    /// The id is already used for something else. Choose another, or ask for what is there.
    #[error("{what} already exists and differs")]
    Conflict {
        /// The thing that the id names.
        what: &'static str,
    },
    /// The session has work, and what was asked for wants it idle. Interrupt it, or ask again later.
    #[error("session {session} is busy")]
    Busy {
        /// The session.
        session: SessionId,
    },
    /// The session's inbox has as many inputs, or as many bytes, as it may have: nothing was admitted.
    #[error("the inbox of session {session} is full")]
    InboxFull {
        /// The session.
        session: SessionId,
    },
    /// A role has changed since the change was allowed: nothing was changed. Look at the roles again, and decide again.
    #[error("a role has changed since the change was allowed")]
    RolesChanged,
    /// Not every build that runs understands what this would write: finish the upgrade, then raise the level.
    #[error(
        "this needs the cluster's feature level {wants}, and it is {level}: finish the upgrade", wants = feature.level()
    )]
    Feature {
        /// The feature of it that older builds do not read.
        feature: Feature,
        /// The cluster's level.
        level: FeatureLevel,
    },
    /// The claim has passed to another drain: stop at once, nothing was written.
    #[error("session {session} is no longer claimed by {held:?}")]
    Fenced {
        /// The session.
        session: SessionId,
        /// The claim that was not good any more.
        held: Claim,
    },
    /// The log is not the one that the caller knows: the database is another one, or came back without some commits.
    /// Nothing was written. Forget what is known of the log, and begin with its first event.
    #[error(
        "session {session} lacks events that were read before: the database is another one, or came back without some commits"
    )]
    WentBack {
        /// The session.
        session: SessionId,
    },
    /// A higher fencing token has acted at the Location: give it up.
    #[error("the Location has passed to another worker")]
    Superseded,
    /// The database is not at the schema that this build needs.
    #[error("{0}")]
    Schema(String),
    /// A stored row cannot be read by this build.
    #[error("a stored row cannot be read: {0}")]
    Unreadable(String),
    /// The database did not answer or refused. Ask again later.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

/// `cannot_connect_now`: Postgres is starting, recovering or stopping.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// `query_canceled`: a statement took longer than it may, or an operator has ended it.
const QUERY_CANCELED: &str = "57014";

/// `lock_not_available`: another has had the lock for as long as the call may wait with a connection.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// `disk_full` and `too_many_connections`.
const DISK_FULL: &str = "53100";
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Answers that say "not now": lost connections, a statement that was rolled back for others' sake, too little of
/// something, and what an operator or a time-out has ended.
const PASSING_CLASSES: [&str; 4] = ["08", "40", "53", "57"];
/// Of others, an idle transaction that was ended, a Postgres that has become a standby, and a lock that another has.
const PASSING_CODES: [&str; 3] = ["25P03", "25006", LOCK_NOT_AVAILABLE];
/// Classes of answers about what a statement would write: data exceptions, and broken constraints.
const OF_DATA: [&str; 2] = ["22", "23"];

impl StoreError {
    /// Whether the database did not answer, or cannot answer for now: asked again it may. After a write nobody knows
    /// what came of it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use sqlx::Error::{Io, PoolTimedOut, Protocol, Tls};
        match self {
            Self::Database(error) => match error.as_database_error() {
                Some(answer) => answer.code().is_some_and(|code| {
                    PASSING_CLASSES.iter().any(|class| code.starts_with(class))
                        || PASSING_CODES.contains(&&*code)
                }),
                None => matches!(error, Io(_) | PoolTimedOut | Protocol(_) | Tls(_)),
            },
            Self::NotFound
            | Self::Conflict { .. }
            | Self::Busy { .. }
            | Self::InboxFull { .. }
            | Self::RolesChanged
            | Self::Feature { .. }
            | Self::Fenced { .. }
            | Self::WentBack { .. }
            | Self::Superseded
            | Self::Schema(_)
            | Self::Unreadable(_) => false,
        }
    }

    /// Whether Postgres has answered with this code.
    fn has_code(&self, code: &str) -> bool {
        let Self::Database(error) = self else { return false };
        error.as_database_error().and_then(|answer| answer.code()).as_deref() == Some(code)
    }

    /// Whether Postgres has answered, with a refusal.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        matches!(self, Self::Database(error) if error.as_database_error().is_some())
    }

    /// Whether Postgres has ended the statement, since it took too long or an operator said so.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.has_code(QUERY_CANCELED)
    }

    /// Whether Postgres has no space left on its disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_code(DISK_FULL)
    }

    /// Whether Postgres has as many connections as it allows.
    #[must_use]
    pub fn has_too_many_clients(&self) -> bool {
        self.has_code(TOO_MANY_CONNECTIONS)
    }

    /// Returns what failed, for people: Postgres's own sentence with its detail and hint, and not the place in its source.
    #[must_use]
    pub fn make_sentence(&self) -> String {
        if let Self::Database(error) = self { read_sentence(error) } else { self.to_string() }
    }

    /// Returns Postgres's sentence if it has refused a write for what is in it: a number out of range, a broken
    /// constraint. The same write is refused again however often it is made.
    #[must_use]
    pub fn refused_data(&self) -> Option<&str> {
        let Self::Database(error) = self else { return None };
        let answer = error.as_database_error()?;
        let code = answer.code()?;
        OF_DATA.iter().any(|class| code.starts_with(class)).then(|| answer.message())
    }

    /// Whether another had the lock for as long as the call may wait: nothing was changed.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.has_code(LOCK_NOT_AVAILABLE)
    }

    /// Whether this process has so much to ask of the database that the call's turn did not come: nothing was changed.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::PoolTimedOut))
    }

    /// Whether Postgres has refused a key that is already there.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Database(error) if is_unique_violation(error))
    }

    /// Whether Postgres says that it is there and takes no connections yet: wait, it is no mistake of
    /// whoever gave its URL.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        match self {
            Self::Database(error) => error
                .as_database_error()
                .is_some_and(|error| error.code().as_deref() == Some(CANNOT_CONNECT_NOW)),
            Self::NotFound
            | Self::Conflict { .. }
            | Self::Busy { .. }
            | Self::InboxFull { .. }
            | Self::RolesChanged
            | Self::Feature { .. }
            | Self::Fenced { .. }
            | Self::WentBack { .. }
            | Self::Superseded
            | Self::Schema(_)
            | Self::Unreadable(_) => false,
        }
    }
}

impl From<domain::UnknownEvent> for StoreError {
    fn from(error: domain::UnknownEvent) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<domain::IdError> for StoreError {
    fn from(error: domain::IdError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Another has locked what a call needs, for all the time that the call may wait.
pub(crate) fn locked() -> StoreError {
    StoreError::Database(sqlx::Error::Database(Box::new(Copied {
        message: "another call has locked it for too long".into(),
        code: Some(LOCK_NOT_AVAILABLE.into()),
    })))
}

/// Returns what [`StoreError::sentence`] says of Postgres's answer.
pub(crate) fn read_sentence(error: &sqlx::Error) -> String {
    let Some(answer) = error.as_database_error() else { return error.to_string() };
    let postgres = answer.try_downcast_ref::<sqlx::postgres::PgDatabaseError>();
    let more = postgres.map(|answer| [answer.detail(), answer.hint()]);
    let more = more.into_iter().flatten().flatten();
    std::iter::once(answer.message()).chain(more).collect::<Vec<_>>().join("; ")
}

/// Whether the error is a violated unique key, by its code.
pub(crate) fn is_unique_violation(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// The error of one statement for another of its callers: the same to whoever decides on it.
pub(crate) fn copied(error: &sqlx::Error) -> StoreError {
    use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Protocol};
    StoreError::Database(if let Database(answer) = error {
        Database(Box::new(Copied {
            message: answer.message().to_owned(),
            code: answer.code().map(Cow::into_owned),
        }))
    } else if matches!(error, PoolTimedOut) {
        PoolTimedOut
    } else if matches!(error, PoolClosed) {
        PoolClosed
    } else if let Io(cause) = error {
        Io(std::io::Error::new(cause.kind(), cause.to_string()))
    } else {
        Protocol(error.to_string())
    })
}

/// An answer of Postgres, as much of it as anybody asks for.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Copied {
    message: String,
    code: Option<String>,
}

impl DatabaseError for Copied {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.code.as_deref().map(Cow::Borrowed)
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_as_well_as_the_first_that_postgres_is_starting() {
        let starting = Copied {
            message: "the database system is starting up".into(),
            code: Some(CANNOT_CONNECT_NOW.into()),
        };
        let first = sqlx::Error::Database(Box::new(starting));
        let copy = copied(&first);
        assert!(copy.is_starting(), "{copy:?}");
        assert_eq!(copy.to_string(), StoreError::from(first).to_string());
        assert!(!copied(&sqlx::Error::PoolTimedOut).is_starting());
    }
}
