//! Connections for calls of one statement.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Error, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};

use crate::StoreError;

/// A connection is closed after this, since a backend's caches only grow.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// How soon a connection is tried again that Postgres does not take yet.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// What is done with a connection.
pub(crate) type OnConnection<'c, T> =
    Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'c>>;

/// Connections for calls of one statement. Cheap to clone.
///
/// A pool asks every connection that comes back whether it is well: a second round trip for each statement,
/// in a task of its own. Here it need not be asked: a connection comes back only from a call that has read
/// its answer to the end, and is closed after any other.
#[derive(Clone)]
pub(crate) struct Lane {
    shared: Arc<Shared>,
}

struct Shared {
    connect: PgConnectOptions,
    idle: Mutex<Vec<Idle>>,
    permits: Arc<Semaphore>,
    /// How long a call waits for its turn and its connection.
    patience: Duration,
}

struct Idle {
    connection: PgConnection,
    opened: Instant,
}

/// A connection in use.
pub(crate) struct Taken {
    lane: Lane,
    idle: Idle,
    _turn: OwnedSemaphorePermit,
}

impl Taken {
    /// Gives the connection back after `done`, what was made of its one statement's answer.
    pub(crate) fn back_after<T>(self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match &done {
            Err(StoreError::Database(error)) => self.give_back_after(error),
            _ => self.give_back(),
        }
        done
    }

    /// For the next call, unless the connection cannot be used after `error`.
    fn give_back_after(self, error: &Error) {
        if is_broken(error) {
            // As the others probably are: a Postgres that went away took them all.
            self.lane.idle().clear();
        } else {
            self.give_back();
        }
    }

    /// For the next call: every answer was read to its end.
    pub(crate) fn give_back(self) {
        let Self { lane, idle, _turn } = self;
        if idle.opened.elapsed() < MAX_AGE && !lane.shared.permits.is_closed() {
            lane.idle().push(idle); // before another's turn comes
        }
    }
}

impl Deref for Taken {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.idle.connection
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.idle.connection
    }
}

impl Lane {
    /// At most `connections`, opened when they are needed.
    pub(crate) fn new(connect: PgConnectOptions, connections: u32, patience: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(1).max(1)));
        let idle = Mutex::default();
        Self { shared: Arc::new(Shared { connect, idle, permits, patience }) }
    }

    /// Runs `work`, one statement of its own, to its end, whoever waits for it.
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Database`] when there is no connection in time.
    pub(crate) async fn run<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Send + 'static,
    {
        let lane = self.clone();
        tasks::detached(async move {
            let mut taken = lane.take().await?;
            let done = work(&mut taken).await;
            taken.back_after(done)
        })
        .await
    }

    /// A connection, for who runs to the end by itself. Without [`Taken::give_back`] it is closed.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn take(&self) -> Result<Taken, Error> {
        let until = Instant::now() + self.shared.patience;
        let turn = timeout_at(until, self.shared.permits.clone().acquire_owned())
            .await
            .map_err(|_| Error::PoolTimedOut)?
            .map_err(|_| Error::PoolClosed)?;
        let known = self.idle().pop();
        let idle = match known {
            Some(idle) => idle,
            None => self.open(until).await?,
        };
        Ok(Taken { lane: self.clone(), idle, _turn: turn })
    }

    /// Opens a connection; waits for a Postgres that is starting.
    async fn open(&self, until: Instant) -> Result<Idle, Error> {
        loop {
            let opening = PgConnection::connect_with(&self.shared.connect);
            match timeout_at(until, opening).await {
                Err(_) => return Err(Error::PoolTimedOut),
                Ok(Ok(connection)) => return Ok(Idle { connection, opened: Instant::now() }),
                Ok(Err(error)) if may_pass(&error) && Instant::now() + TRY_AGAIN < until => {
                    sleep(TRY_AGAIN).await;
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    /// Closes every connection: idle ones now, others when their calls end. No call begins any more.
    pub(crate) async fn close(&self) {
        self.shared.permits.close();
        let idle = std::mem::take(&mut *self.idle());
        for Idle { connection, .. } in idle {
            // It goes away with this process at the latest.
            let _ = connection.close().await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // No code of others runs under this lock.
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is Postgres's answer to a statement, which has changed nothing: not a lost connection, after
/// which nobody knows.
pub(crate) fn is_refusal(error: &Error) -> bool {
    !is_broken(error)
}

/// Whether a connection cannot be used after this: the error is not Postgres's answer to a statement, or
/// says that the backend ends (class 57P, such as `admin_shutdown`).
fn is_broken(error: &Error) -> bool {
    let code = error.as_database_error().map(sqlx::error::DatabaseError::code);
    code.is_none_or(|code| code.is_some_and(|code| code.starts_with("57P")))
}

/// Whether a connection that failed like this may succeed soon: Postgres starts, or is full.
fn may_pass(error: &Error) -> bool {
    match error.as_database_error() {
        Some(error) => error.is_transient_in_connect_phase(),
        None => {
            matches!(error, Error::Io(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused)
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("idle", &self.idle().len()).finish_non_exhaustive()
    }
}
