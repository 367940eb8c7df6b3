//! Transactions of several statements.

use std::ops::{Deref, DerefMut};

use futures::FutureExt;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::StoreError;
use crate::connections::Limit;
use crate::lane::{Lane, Taken};
use crate::pooler;

/// A transaction. Dropped, it is rolled back in the background, and its connection serves on.
///
/// It sets no limit to its statements: who holds it runs in [`crate::connections::bounded`].
pub(crate) struct Tx {
    /// `None` once it has ended.
    taken: Option<Taken>,
}

impl Tx {
    /// Begins one with `begin`, in one round trip. One that cannot begin since its connection was lost begins on another.
    ///
    /// # Errors
    /// [`StoreError::Database`] when there is no connection or no answer in time.
    pub(crate) async fn begin(lane: &Lane, begin: &str) -> Result<Self, StoreError> {
        let begin = lane.beginning(begin);
        let taken = lane.take().await?;
        let is_reused = taken.is_reused();
        match Self::begin_on(taken, begin.clone()).await {
            Err(_) if is_reused => Self::begin_on(lane.take_fresh().await?, begin).await,
            begun => begun,
        }
    }

    async fn begin_on(mut taken: Taken, begin: String) -> Result<Self, StoreError> {
        let asked = async {
            sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *taken).await?;
            Ok(())
        };
        match Limit::Short.hold(asked).await {
            Ok(()) => Ok(Self { taken: Some(taken) }),
            // It may have begun: the connection is closed with it.
            Err(StoreError::Database(error)) => {
                taken.lost();
                Err(error.into())
            }
            Err(other) => Err(other),
        }
    }

    /// Commits.
    ///
    /// # Errors
    /// When Postgres refuses, or nobody knows.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        match self.taken.take() {
            Some(taken) => end(taken, true).await,
            None => Ok(()),
        }
    }

    /// Takes back what it did.
    ///
    /// # Errors
    /// When nobody answers; Postgres takes it back itself then.
    pub(crate) async fn rollback(mut self) -> Result<(), StoreError> {
        match self.taken.take() {
            Some(taken) => end(taken, false).await,
            None => Ok(()),
        }
    }
}

/// Ends the transaction on `taken`, and gives the connection back.
async fn end(mut taken: Taken, commits: bool) -> Result<(), StoreError> {
    let ended = Limit::Short.hold(ask_to_end(&mut taken, commits)).await;
    taken.back_after(ended)
}

async fn ask_to_end(taken: &mut Taken, commits: bool) -> Result<(), StoreError> {
    if taken.is_pooled() {
        pooler::end(taken, commits).await?;
    } else {
        let sql = if commits { "COMMIT" } else { "ROLLBACK" };
        sqlx::raw_sql(sql).execute(&mut **taken).await?;
    }
    Ok(())
}

impl Drop for Tx {
    fn drop(&mut self) {
        // Without a runtime the connection is closed, which ends the transaction as well.
        let Some(taken) =
            self.taken.take().filter(|_| tokio::runtime::Handle::try_current().is_ok())
        else {
            return;
        };
        // It goes on in a task of its own after the first look at it. A statement that was under way is waited for.
        let _ = tasks::detached(end(taken, false)).now_or_never();
    }
}

/// The panic message of a transaction that is used after its end. Its end drops it, so nobody can.
const ENDED: &str = "a transaction is not used after its end";

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.taken.as_ref().expect(ENDED)
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.taken.as_mut().expect(ENDED)
    }
}
