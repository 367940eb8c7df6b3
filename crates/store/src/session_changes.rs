//! The rows that say which sessions each commit has changed, for feeds of a whole organisation. The functions that write
//! the log write them too, and the sums of usage read them (docs/decisions/0058, 0085).

use crate::connections::Limit;
use crate::{Store, StoreError};

impl Store {
    /// Forgets the changes of sessions that are three hours old, of all organisations. Returns whether there were any.
    ///
    /// # Errors
    /// When the database fails, or a reader of them takes longer than a second.
    pub async fn forget_changes(&self) -> Result<bool, StoreError> {
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let forgot = sqlx::query_scalar!(r#"SELECT forget_changes() AS "forgot!""#)
                        .fetch_one(&mut *connection)
                        .await?;
                    Ok(forgot)
                })
            })
            .await
    }
}
