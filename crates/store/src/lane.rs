//! Turns at the connections of one role, for one kind of work.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Error, PgConnection};
use tokio::time::Instant;
use tracing::warn;

use domain::OrgId;

use crate::StoreError;
use crate::connections::{Connections, Limit, Open, is_broken, unreached};
use crate::pooler;
use crate::turns::{Turn, Turns};

/// A statement that takes longer is named in the log.
const SLOW: Duration = Duration::from_secs(1);

/// Work on a connection.
pub(crate) type OnConnection<'c, T> =
    Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'c>>;

/// Turns for one kind of work, so that a burst of it cannot starve the others. Cheap to clone.
///
/// The connections are shared by the lanes of one role: the one that was used last is used next, with its plans and
/// caches. A library's pool asks every connection that comes back whether it is well: a second round trip for each
/// statement. Here it need not be asked: a connection comes back only from a call that has read its answer to the
/// end, and is closed after any other.
#[derive(Clone)]
pub(crate) struct Lane {
    connections: Arc<Connections>,
    turns: Arc<Turns>,
    /// Whose calls these are; it may have half of the turns. Nobody's: sweeps, and what serves several at once.
    org: Option<OrgId>,
    /// How long a call waits for its turn and its connection.
    patience: Duration,
}

/// A connection in use.
pub(crate) struct Taken {
    lane: Lane,
    open: Open,
    is_reused: bool,
    _turn: Turn,
    _busy: telemetry::Holding,
}

impl Taken {
    /// Whether another call used the connection before: it may have been lost since.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Begins the connection's one statement: a pooler is told that it stands alone.
    pub(crate) async fn enter(&mut self) -> Result<(), StoreError> {
        if self.lane.connections.is_pooled() {
            let begin = format!("BEGIN{}", self.lane.connections.local_settings());
            sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut **self).await?;
        }
        Ok(())
    }

    /// Ends what [`Taken::enter`] began, after what was made of the statement's answer.
    pub(crate) async fn leave<T>(&mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if !self.lane.connections.is_pooled() {
            return done;
        }
        let is_refused = matches!(done, Err(StoreError::Database(_)));
        match pooler::end(self, !is_refused).await {
            Ok(()) => done,
            Err(error) => Err(done.err().unwrap_or_else(|| error.into())),
        }
    }

    /// Gives the connection back after `done`, what was made of its one statement's answer.
    pub(crate) fn back_after<T>(self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match &done {
            Err(StoreError::Database(error)) => self.give_back_after(error),
            _ => self.give_back(),
        }
        done
    }

    /// For the next call, unless the connection cannot be used after `error`.
    pub(crate) fn give_back_after(self, error: &Error) {
        if is_broken(error) {
            self.lane.connections.forget_idle();
        } else {
            self.give_back();
        }
    }

    /// For the next call: every answer was read to its end.
    pub(crate) fn give_back(self) {
        let Self { lane, open, _turn, _busy, .. } = self;
        lane.connections.keep(open); // before another's turn comes
    }

    /// Closes it after it did not answer, and with it those that are idle.
    pub(crate) fn lost(self) {
        self.lane.connections.forget_idle();
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.lane.connections.is_pooled()
    }
}

impl Deref for Taken {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.open.connection
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.open.connection
    }
}

impl Lane {
    /// At most `turns` calls at a time.
    pub(crate) fn new(connections: Arc<Connections>, turns: u32, patience: Duration) -> Self {
        Self { connections, turns: Arc::new(Turns::new(turns)), org: None, patience }
    }

    /// The same for calls of one organisation.
    pub(crate) fn for_organisation(&self, org: OrgId) -> Self {
        Self { org: Some(org), ..self.clone() }
    }

    /// `begin`, which begins a transaction, with the settings that each transaction behind a pooler needs.
    pub(crate) fn beginning(&self, begin: &str) -> String {
        if !self.connections.is_pooled() {
            return begin.to_owned();
        }
        let (first, rest) = begin.split_once(';').unwrap_or((begin, ""));
        format!("{first}{};{rest}", self.connections.local_settings())
    }

    /// Runs `work`, one short statement of its own, to its end, whoever waits for it.
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Database`] when there is no connection or no answer in time.
    #[track_caller]
    pub(crate) fn run<T, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + use<T, W>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Send + 'static,
    {
        self.run_at(Limit::Short, Location::caller(), work)
    }

    /// The same for a statement that may take as long as `limit`.
    ///
    /// # Errors
    /// As [`Lane::run`].
    #[track_caller]
    pub(crate) fn run_within<T, W>(
        &self,
        limit: Limit,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + use<T, W>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Send + 'static,
    {
        self.run_at(limit, Location::caller(), work)
    }

    /// The same for a call that is named in the log by its own caller.
    ///
    /// # Errors
    /// As [`Lane::run`].
    pub(crate) fn run_at<T, W>(
        &self,
        limit: Limit,
        caller: &'static Location<'static>,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + use<T, W>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Send + 'static,
    {
        let lane = self.clone();
        tasks::detached(async move {
            let mut taken = lane.take().await?;
            let begun = Instant::now();
            let using = async {
                taken.enter().await?;
                let done = work(&mut taken).await;
                taken.leave(done).await
            };
            let done = limit.hold(using).await;
            note(begun, caller, done.as_ref().err());
            taken.back_after(done)
        })
    }

    /// A connection, for who runs to the end by itself. Without [`Taken::give_back`] it is closed.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn take(&self) -> Result<Taken, Error> {
        let begun = Instant::now();
        let until = begun + self.patience;
        let turn = self.turn(until).await?;
        let (open, is_reused) = self.connections.ready(until).await?;
        let busy = telemetry::metrics().db_connections.held();
        telemetry::metrics().db_waits.took(begun.elapsed());
        Ok(Taken { lane: self.clone(), open, is_reused, _turn: turn, _busy: busy })
    }

    /// The same with a connection that nobody has used yet.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn take_fresh(&self) -> Result<Taken, Error> {
        let until = Instant::now() + self.patience;
        let turn = self.turn(until).await?;
        let open = self.connections.open(until).await?;
        let busy = telemetry::metrics().db_connections.held();
        Ok(Taken { lane: self.clone(), open, is_reused: false, _turn: turn, _busy: busy })
    }

    async fn turn(&self, until: Instant) -> Result<Turn, Error> {
        match self.turns.take(self.org, until).await {
            // Calls wait for turns too while no connection can be opened.
            Err(Error::PoolTimedOut) if self.connections.is_failing() => Err(unreached()),
            turn => turn,
        }
    }

    /// Whether calls of this kind are answered: a turn, a connection and a round trip.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.run(|connection| {
            Box::pin(async move {
                sqlx::raw_sql("SELECT 1").execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    /// No call begins any more, and its connections are closed when those under way end.
    pub(crate) async fn close(&self) {
        self.turns.close();
        self.connections.close().await;
    }
}

/// Counts a statement, and names one that was slow, by the place in the code that ran it: its text may be long.
pub(crate) fn note(begun: Instant, at: impl fmt::Display, error: Option<&StoreError>) {
    let took = begun.elapsed();
    telemetry::metrics().statement(!matches!(error, Some(StoreError::Database(_))), took);
    if took > SLOW {
        warn!(took_ms = took.as_millis(), %at, "a statement was slow");
    }
}

/// Whether this is Postgres's answer to a statement, which has changed nothing: not a lost connection, after
/// which nobody knows.
pub(crate) fn is_refusal(error: &Error) -> bool {
    !is_broken(error)
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.connections.idle().len();
        f.debug_struct("Lane").field("idle", &idle).finish_non_exhaustive()
    }
}
