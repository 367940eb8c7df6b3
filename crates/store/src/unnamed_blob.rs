//! Which blobs rows name, which none does, and what one process of the cluster does from time to time.
//!
//! A blob is stored before its row, and stays when its row is deleted: with a session, or because the worker that
//! stored it died. One that no row has named for longer than any backup is kept will not be needed.

use std::time::Duration;

use domain::OrgId;

use crate::connections::{Limit, bounded};
use crate::{Store, StoreError};

/// The use of a blob: it says which rows may name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobUse {
    /// A Managed Tool Output File: results of tools name it.
    ToolOutput,
    /// A pack of a Workspace Snapshot: the snapshots of a Location name it.
    Snapshot,
    /// A pack of a repository, with its commits: the repository names it.
    Repository,
    /// The index of such a pack, under the same name. Without it one is made from the pack.
    RepositoryIndex,
    /// A patch or a bundle that somebody has asked for.
    Out,
    /// A pack that somebody has sent.
    Upload,
}

impl BlobUse {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ToolOutput,
        Self::Snapshot,
        Self::Repository,
        Self::RepositoryIndex,
        Self::Out,
        Self::Upload,
    ];

    /// The kind that the blobs are stored as.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::ToolOutput => "tool-output",
            Self::Snapshot => "snapshot",
            Self::Repository => "repository",
            Self::RepositoryIndex => "repository-index",
            Self::Out => "out",
            Self::Upload => "upload",
        }
    }
}

/// A blob that a row names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBlob {
    /// The blob's name.
    pub name: String,
    /// Whose row it is: the id of a session, of the Location of a snapshot, of a repository, or of an upload.
    pub holder: String,
}

impl Store {
    /// The blobs that an organisation's rows name, in the order of their names beginning after `after`, at most
    /// `limit`; each once, with one of those that name it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn named_blobs(
        &self,
        org: OrgId,
        of: BlobUse,
        after: &str,
        limit: i64,
    ) -> Result<Vec<NamedBlob>, StoreError> {
        let (store, after) = (self.clone(), after.to_owned());
        bounded(Limit::Long, async move {
            let mut tx = store.long_tx(org).await?;
            let found = match of {
                BlobUse::ToolOutput => {
                    sqlx::query_as!(
                        NamedBlob,
                        r#"SELECT DISTINCT ON (r.managed_path)
                             substr(r.managed_path, length('/tool-output/') + 1) AS "name!", s.id AS holder
                         FROM tool_result r JOIN session s ON s.org_id = $1 AND s.incarnation = r.incarnation
                         WHERE r.org_id = $1 AND r.managed_path > '/tool-output/' || $2
                         ORDER BY r.managed_path LIMIT $3"#,
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
                BlobUse::Snapshot => {
                    sqlx::query_as!(
                        NamedBlob,
                        r#"SELECT DISTINCT ON (pack) pack AS "name!", location_id AS holder
                         FROM workspace_pack WHERE org_id = $1 AND pack > $2 ORDER BY pack LIMIT $3"#,
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
                BlobUse::Repository | BlobUse::RepositoryIndex => {
                    sqlx::query_as!(
                        NamedBlob,
                        r#"SELECT r.name AS "name!", r.repository_id AS holder
                         FROM (SELECT (repository_id || '-' || pack) COLLATE "C" AS name, repository_id
                             FROM repository_pack WHERE org_id = $1) AS r
                         WHERE r.name > $2 ORDER BY r.name LIMIT $3"#,
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
                BlobUse::Out => {
                    sqlx::query_as!(
                        NamedBlob,
                        r#"SELECT blob AS "name!", session_id AS holder FROM session_out
                         WHERE org_id = $1 AND blob > $2 ORDER BY blob LIMIT $3"#,
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
                BlobUse::Upload => {
                    sqlx::query_as!(
                        NamedBlob,
                        "SELECT id AS name, id AS holder FROM upload
                         WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3",
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
            };
            tx.commit().await?;
            Ok(found)
        })
        .await
    }

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
            .run_within(Limit::Long, move |connection| {
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
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_scalar!(
                        r#"SELECT note_unnamed_blobs($1, $2, $3, $4) AS "name!""#,
                        org.0,
                        of.kind(),
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
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    sqlx::query!("SELECT forget_blobs($1, $2, $3)", org.0, of.kind(), &names)
                        .execute(&mut *connection)
                        .await?;
                    Ok(())
                })
            })
            .await
    }
}

pub(crate) fn milliseconds(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
