//! Connections to Postgres with one role: opened when they are needed, proved before they are used again, and
//! closed together when one of them is lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Error, PgConnection};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::StoreError;

/// A connection is closed after this, since a backend's caches only grow.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// A connection that stood idle for longer is asked whether it is still there before a call begins on it. Postgres
/// takes longer to come back after a restart, so no call begins on a connection of the Postgres before.
const TRUSTED: Duration = Duration::from_millis(100);
/// How long that question may take.
const PROBE: Duration = Duration::from_secs(2);
/// How long one try to open a connection may take: the next one comes by another port of ours, so that a flow that
/// the network has lost does not use up the caller's patience.
const OPENING: Duration = Duration::from_secs(2);
/// How soon a connection is tried again that Postgres does not take yet.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// How long a statement, or a transaction of a few, may take, seen from here. Postgres ends a statement after 30 s,
/// but it cannot tell us when the network has lost the flow, and sqlx sets no options on its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Reads, admissions, looks and writes: they take milliseconds.
    Short,
    /// Statements whose work grows with what is stored: those of forks, rebuilds and the oracle. Postgres's own
    /// limit ends them first.
    Long,
    /// A statement of the oracle, which has a limit of its own.
    Check,
}

impl Limit {
    /// Postgres's limit for a statement of [`Limit::Check`].
    pub(crate) const CHECK_STATEMENT: &str = "120s";

    pub(crate) const fn length(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(5),
            Self::Long => Duration::from_secs(32),
            Self::Check => Duration::from_secs(122),
        }
    }

    /// Gives `work` up when it takes longer. Nobody knows what came of it then.
    pub(crate) async fn hold<T>(
        self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(self.length(), work).await {
            Ok(done) => done,
            Err(_) => Err(no_answer(self.length()).into()),
        }
    }
}

/// Runs a transaction to its end, whoever waits for it, or gives it up after `limit`.
pub(crate) fn bounded<T>(
    limit: Limit,
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> + Send
where
    T: Send + 'static,
{
    tasks::detached(limit.hold(work))
}

fn no_answer(limit: Duration) -> Error {
    let said = format!("Postgres did not answer within {} s", limit.as_secs());
    Error::Io(io::Error::new(io::ErrorKind::TimedOut, said))
}

/// No connection was opened in time.
pub(crate) fn unreached() -> Error {
    Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no connection to Postgres in time"))
}

/// The idle connections of one role.
pub(crate) struct Connections {
    connect: PgConnectOptions,
    /// Whether a pooler gives each transaction another backend: see [`crate::pooler`].
    is_pooled: bool,
    /// Settings of each connection, such as `lock_timeout = '200ms'`.
    settings: &'static [&'static str],
    idle: Mutex<Vec<Open>>,
    is_closed: AtomicBool,
    /// Whether none could be opened the last time.
    is_failing: AtomicBool,
}

/// A connection that is not in the middle of anything.
pub(crate) struct Open {
    pub(crate) connection: PgConnection,
    opened: Instant,
    used: Instant,
}

impl Connections {
    pub(crate) fn new(
        connect: PgConnectOptions,
        is_pooled: bool,
        settings: &'static [&'static str],
    ) -> Self {
        let (is_closed, is_failing) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { connect, is_pooled, settings, idle: Mutex::default(), is_closed, is_failing }
    }

    /// The settings as statements that follow a `BEGIN`: behind a pooler the next transaction has another backend.
    pub(crate) fn local_settings(&self) -> String {
        self.settings.iter().map(|setting| format!("; SET LOCAL {setting}")).collect()
    }

    /// Whether no connection could be opened the last time.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// The connection that was used last, or a new one, and whether it was used before.
    pub(crate) async fn ready(&self, until: Instant) -> Result<(Open, bool), Error> {
        let known = self.idle().pop();
        if let Some(mut open) = known {
            if open.used.elapsed() < TRUSTED {
                return Ok((open, true));
            }
            let answered = timeout_at(until.min(Instant::now() + PROBE), open.connection.ping());
            if matches!(answered.await, Ok(Ok(()))) {
                return Ok((open, true));
            }
            self.forget_idle();
        }
        Ok((self.open(until).await?, false))
    }

    /// Opens a connection; waits for a Postgres that is starting, or was not reached.
    pub(crate) async fn open(&self, until: Instant) -> Result<Open, Error> {
        let opened = self.try_to_open(until).await;
        self.is_failing.store(opened.is_err(), Ordering::Relaxed);
        opened
    }

    async fn try_to_open(&self, until: Instant) -> Result<Open, Error> {
        loop {
            let opening = self.connect();
            let failed = match timeout_at(until.min(Instant::now() + OPENING), opening).await {
                Ok(Ok(connection)) => {
                    let now = Instant::now();
                    return Ok(Open { connection, opened: now, used: now });
                }
                Ok(Err(error)) if may_pass(&error) => error,
                Ok(Err(error)) => return Err(error),
                Err(_) => unreached(),
            };
            if Instant::now() + TRY_AGAIN >= until {
                return Err(failed);
            }
            sleep(TRY_AGAIN).await;
        }
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        let mut connection = PgConnection::connect_with(&self.connect).await?;
        if !self.is_pooled && !self.settings.is_empty() {
            let set = self.settings.iter().map(|setting| format!("SET {setting};")).collect();
            sqlx::raw_sql(AssertSqlSafe::<String>(set)).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    /// For the next call: every answer was read to its end.
    pub(crate) fn keep(&self, mut open: Open) {
        if open.opened.elapsed() < MAX_AGE && !self.is_closed.load(Ordering::Acquire) {
            open.used = Instant::now();
            // A buffer stays as large as the largest call has made it.
            open.connection.shrink_buffers();
            self.idle().push(open);
        }
    }

    /// Closes those that are idle: one was lost, and whatever took it probably took them all.
    pub(crate) fn forget_idle(&self) {
        self.idle().clear();
    }

    /// Closes those that are idle, and the others when their calls end.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let idle = std::mem::take(&mut *self.idle());
        for Open { connection, .. } in idle {
            // It goes away with this process at the latest.
            let _ = timeout(PROBE, connection.close()).await;
        }
    }

    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<Open>> {
        // No code of others runs under this lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection cannot be used after this: the error is not Postgres's answer to a statement, or
/// says that the backend ends (class 57P, such as `admin_shutdown`).
pub(crate) fn is_broken(error: &Error) -> bool {
    let code = error.as_database_error().map(sqlx::error::DatabaseError::code);
    code.is_none_or(|code| code.is_some_and(|code| code.starts_with("57P")))
}

/// Whether a connection that failed like this may succeed soon: Postgres starts, stops, or is full.
pub(crate) fn may_pass(error: &Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        NetworkUnreachable, TimedOut, UnexpectedEof,
    };
    const PASSING: [io::ErrorKind; 8] = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
        HostUnreachable,
        NetworkUnreachable,
        TimedOut,
        UnexpectedEof,
    ];
    match error.as_database_error() {
        Some(error) => error.is_transient_in_connect_phase(),
        None => matches!(error, Error::Io(cause) if PASSING.contains(&cause.kind())),
    }
}
