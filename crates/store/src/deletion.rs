//! Deletions. The request takes the sessions away from all readers; what they leave goes in pages.
//!
//! ```text
//! delete_session ─▶ nobody finds them ─▶ clear_gone_session: what they used is counted ─▶ rows go, 5,000 a page
//!    one commit                             each page a commit, by whoever comes
//! ```
//!
//! A deletion of few events is done at once. See docs/decisions/0102.

use domain::{OrgId, SessionId};

use crate::connections::Limit;
use crate::pool::Tx;
use crate::session::TRIES;
use crate::{Store, StoreError};

/// The most rows of a page: some 20 ms.
const PAGE: i64 = 5_000;

impl Store {
    /// Deletes a session and all below it. Nobody finds them from then on, and a drain that has one of them is fenced by it.
    /// Of more than a thousand events, and where somebody is at the sums of usage, rows are left for
    /// [`Store::clear_gone_session`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it; [`StoreError::Conflict`] while children are being made faster
    /// than they are found.
    pub async fn delete_session(&self, org: OrgId, id: SessionId) -> Result<(), StoreError> {
        // A queue of its own: what is for the session goes on while a deletion waits for the rest of a tree.
        self.at_head(org, &format!("delete {id}"), move |connection| {
            Box::pin(async move {
                for _ in 0..TRIES {
                    let deleted =
                        sqlx::query_scalar!("SELECT delete_session($1, $2)", org.0, id.as_str())
                            .fetch_one(&mut *connection)
                            .await?;
                    match deleted {
                        Some(0) => return Err(StoreError::NotFound),
                        Some(_) => return Ok(()),
                        None => {} // a child was made meanwhile
                    }
                }
                Err(StoreError::Conflict { what: "a newer child" })
            })
        })
        .await
    }

    /// The organisations that have deleted sessions of which rows are left.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn organisations_with_gone_sessions(&self) -> Result<Vec<OrgId>, StoreError> {
        self.sched()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let found = sqlx::query_scalar!("SELECT DISTINCT org_id FROM gone_session")
                        .fetch_all(&mut *connection)
                        .await?;
                    Ok(found.into_iter().map(OrgId).collect())
                })
            })
            .await
    }

    /// Removes a page of what a deleted session has left: counts some of what it used, or deletes 5,000 rows. Returns
    /// whether more is left that nobody else is at. Whoever ends between two pages leaves the rest to the next.
    ///
    /// # Errors
    /// When the database fails; then nothing of the page is done, or all of it.
    pub async fn clear_gone_session(&self, org: OrgId) -> Result<bool, StoreError> {
        // Who has the sums of an organisation may be a while at them.
        self.long_at_head(org, "usage", move |connection| {
            Box::pin(async move {
                let is_more = sqlx::query_scalar!(
                    r#"SELECT clear_gone_session($1, $2) AS "is_more!""#,
                    org.0,
                    PAGE
                )
                .fetch_one(&mut *connection)
                .await?;
                Ok(is_more)
            })
        })
        .await
    }
}

/// Whether rows of a deleted session with this id are left.
pub(crate) async fn is_being_removed(
    tx: &mut Tx,
    org: OrgId,
    id: &SessionId,
) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM gone_session WHERE org_id = $1 AND session_id = $2) AS "found!""#,
        org.0,
        id.as_str(),
    );
    Ok(found.fetch_one(&mut **tx).await?)
}
