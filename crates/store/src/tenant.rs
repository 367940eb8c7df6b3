//! How a gateway reads and changes what one organisation has: a function of the database that names the tenant
//! itself (one round trip), or several statements in a transaction that does.

use std::pin::Pin;

use domain::{EventId, IdMint, OrgId, Stamp, TimestampMs};
use sqlx::PgConnection;

use crate::cluster::SINCE_2;
use crate::lane::OnConnection;
use crate::pool::Tx;
use crate::{Store, StoreError};

/// What happens in a transaction: it borrows it, and neither begins nor ends it.
pub(crate) type InTx<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

impl Store {
    /// Runs `work` to its end in a transaction that sees `org`; what it wrote is committed if it succeeds.
    pub(crate) async fn in_tenant<T, W>(&self, org: OrgId, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Tx) -> InTx<'t, T> + Send + 'static,
    {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.tenant(org).await?;
            let done = work(&mut tx).await?;
            tx.commit().await?;
            Ok(done)
        })
        .await
    }
}

/// What a gateway's one statement writes its event with.
pub(crate) struct Minted {
    /// The event's id.
    pub(crate) event: EventId,
    /// Its stamp.
    pub(crate) stamp: i64,
}

impl Store {
    /// Runs `work` to its end: one statement that writes one event, which builds of level 1 cannot read.
    pub(crate) async fn log_one<T, W>(&self, now: TimestampMs, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection, Minted) -> OnConnection<'c, T> + Send + 'static,
    {
        self.require(SINCE_2).await?;
        self.lane()
            .run(move |connection| {
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
