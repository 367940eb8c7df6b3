//! Blobs that no row names, and what one process of the cluster does from time to time.
//!
//! A blob is stored before its row, and stays when its row is deleted: with a session, or because the worker that
//! stored it died. One that no row has named for longer than any backup is kept will not be needed.

use std::time::Duration;

use domain::OrgId;

use crate::{Store, StoreError};

/// What a blob is for: which rows may name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobUse {
    /// A Managed Tool Output File: results of tools name it.
    ToolOutput,
    /// A pack of a Workspace Snapshot: the snapshots of a Location name it.
    Snapshot,
}

impl BlobUse {
    fn as_str(self) -> &'static str {
        match self {
            Self::ToolOutput => "tool-output",
            Self::Snapshot => "snapshot",
        }
    }
}

impl Store {
    /// Whether it is the caller who does the chore `name` now: true for one of all processes, and then for none until
    /// `every` has passed, whatever became of it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn claim_chore(
        &self,
        name: &'static str,
        every: Duration,
    ) -> Result<bool, StoreError> {
        let every = milliseconds(every);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let claimed = sqlx::query_scalar!(
                        r#"SELECT claim_chore($1, $2) AS "mine!""#,
                        name,
                        every
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(claimed)
                })
            })
            .await
    }

    /// Of blobs that are there, notes those that no row names; those that none has named for `retention`, by the
    /// database's clock, since that was noted first. A row that names one again has it forgotten.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_unnamed_blobs(
        &self,
        org: OrgId,
        of: BlobUse,
        names: Vec<String>,
        retention: Duration,
    ) -> Result<Vec<String>, StoreError> {
        let retention = milliseconds(retention);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_scalar!(
                        r#"SELECT note_unnamed_blobs($1, $2, $3, $4) AS "name!""#,
                        org.0,
                        of.as_str(),
                        &names,
                        retention,
                    )
                    .fetch_all(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Forgets blobs that are deleted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_blobs(
        &self,
        org: OrgId,
        of: BlobUse,
        names: Vec<String>,
    ) -> Result<(), StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    sqlx::query!("SELECT forget_blobs($1, $2, $3)", org.0, of.as_str(), &names)
                        .execute(&mut *connection)
                        .await?;
                    Ok(())
                })
            })
            .await
    }
}

fn milliseconds(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
