//! The invariants that rows alone can show, checked after every fault run and by `rebuild --check`.
//!
//! `oracle.sql` selects what must not be, each named by its invariant. Absent: I7, which
//! [`Store::rebuild`] proves, and I10, which only placement's log can show.

use domain::OrgId;

use crate::connections::{Limit, bounded};
use crate::{Store, StoreError};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one, such as `I5`.
    pub invariant: String,
    /// The session.
    pub session: String,
    /// What was found.
    pub found: String,
}

impl Store {
    /// Every violation that the rows of an organisation show, at most 100. `settled` adds what must
    /// hold once faults have stopped and nothing runs (I11).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn violations(
        &self,
        org: OrgId,
        settled: bool,
    ) -> Result<Vec<Violation>, StoreError> {
        let store = self.clone();
        bounded(Limit::Long, async move {
            let mut tx = store.tenant(org).await?;
            let rows =
                sqlx::query_file!("src/oracle.sql", org.0, settled).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(rows
                .into_iter()
                .map(|row| Violation {
                    invariant: row.invariant,
                    session: row.session,
                    found: row.found,
                })
                .collect())
        })
        .await
    }
}
