//! How a gateway reads and changes what one organisation has: a function of the database that names the tenant
//! itself (one round trip), or statements in a transaction that does; one that only reads may be slow.

use std::pin::Pin;

use domain::{EventId, Feature, IdMint, OrgId, SessionId, Stamp, TimestampMs};
use sqlx::PgConnection;

use crate::connections::{Limit, bounded};
use crate::lane::OnConnection;
use crate::pool::Tx;
use crate::{Store, StoreError};

/// Work in a transaction: it borrows it, and neither begins nor ends it.
pub(crate) type InTx<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

impl Store {
    /// Runs `work` to its end in a transaction that sees `org`; what it wrote is committed if it succeeds.
    pub(crate) async fn in_tenant<T, W>(&self, org: OrgId, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Tx) -> InTx<'t, T> + Send + 'static,
    {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.tenant(org).await?;
            let done = work(&mut tx).await?;
            tx.commit().await?;
            Ok(done)
        })
        .await
    }
}

impl Store {
    /// Runs `work`, which only reads, to its end in a transaction that sees `org`: a round trip more than its
    /// statements before them, and one after. Nobody waits for such a transaction, so it may be idle for longer than
    /// others: a machine that is busy elsewhere is no reason to fail.
    pub(crate) async fn read<T, W>(&self, org: OrgId, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Send + 'static,
    {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.reading_tx(org).await?;
            let done = work(&mut tx).await?;
            tx.rollback().await?;
            Ok(done)
        })
        .await
    }
}

/// The id and the stamp with which a gateway's one statement writes its event.
pub(crate) struct Minted {
    /// The event's id.
    pub(crate) event: EventId,
    /// Its stamp.
    pub(crate) stamp: i64,
}

impl Store {
    /// Runs `work` to its end: one statement that writes one event, which builds of level 1 cannot read.
    pub(crate) async fn log_one<T, W>(
        &self,
        (org, session): (OrgId, &SessionId),
        now: TimestampMs,
        work: W,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection, Minted) -> OnConnection<'c, T>
            + Clone
            + Send
            + 'static,
    {
        self.require(Feature::Controls).await?;
        self.at_head(org, session.as_str(), move |connection| {
            let mut mint = IdMint::after(Stamp::default(), now);
            let event = EventId::mint(&mut mint);
            work(connection, Minted { event, stamp: mint.last().0 })
        })
        .await
    }
}

/// Our reading functions raise this for what is not there.
const MISSING: &str = "OC003";

/// The error of a reading function.
pub(crate) fn missing(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    if code.as_deref() == Some(MISSING) { StoreError::NotFound } else { error.into() }
}
