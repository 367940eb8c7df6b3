//! Locations that begin with what somebody has sent from a machine of their own.

use domain::{Feature, LocationRef, RepositoryId, TimestampMs, UploadId};

use crate::origin::SENT;
use crate::{Store, StoreError};

/// The parts of an origin that somebody has sent from a machine of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRow {
    /// The pack with the commits that the repository's packs lacked.
    pub commits: Option<UploadId>,
    /// The pack with the changes that were not committed.
    pub changes: Option<UploadId>,
    /// Those changes.
    pub wip: Option<SentChanges>,
}

/// Changes that were not committed, as two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentChanges {
    /// The commit of the index.
    pub staged: String,
    /// The commit of all files.
    pub wip: String,
}

/// What somebody sends for a new Location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSent {
    /// The repository, which has no server.
    pub repository: RepositoryId,
    /// The commit that is checked out.
    pub commit: String,
    /// The branch, by its full name.
    pub branch: Option<String>,
    /// The rest.
    pub sent: SentRow,
    /// The time.
    pub now: TimestampMs,
}

/// The age up to which a Location may begin with an upload. It is forgotten after a day.
const FRESH_MS: i64 = 20 * 60 * 60 * 1_000;

impl Store {
    /// Says that a Location begins with what somebody has sent. Saying so again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Feature`] while builds may run that would look for a server; [`StoreError::Conflict`] if the Location begins
    /// with something else, or has been used; [`StoreError::NotFound`] if one of the uploads is gone: it has to be sent again.
    pub async fn begin_with_sent(&self, at: LocationRef, new: NewSent) -> Result<(), StoreError> {
        self.require(Feature::Uploads).await?;
        self.in_tenant(at.org, move |tx| {
            Box::pin(async move {
                let NewSent { repository, commit, branch, sent: SentRow { commits, changes, wip }, now } = new;
                // One upload may have both.
                let mut named: Vec<String> =
                    commits.iter().chain(&changes).map(ToString::to_string).collect();
                named.dedup();
                let there = sqlx::query_scalar!(
                    "SELECT id FROM upload WHERE org_id = $1 AND id = ANY($2) AND created_ms > $3 FOR KEY SHARE",
                    at.org.0,
                    &named,
                    now - FRESH_MS,
                )
                .fetch_all(&mut **tx)
                .await?;
                let (staged, wip) = wip.map(|wip| (wip.staged, wip.wip)).unzip();
                let [commits, changes] = [commits, changes].map(|id| id.map(String::from));
                if there.len() == named.len() {
                    sqlx::query!(
                        "INSERT INTO location_origin (org_id, location_id, kind, repository_id, commit, branch,
                             commits_upload, changes_upload, staged, wip)
                         SELECT org_id, id, $3, $4, $5, $6, $7, $8, $9, $10 FROM location
                         WHERE org_id = $1 AND id = $2 AND fence = 0
                         ON CONFLICT (org_id, location_id) DO NOTHING",
                        at.org.0,
                        at.location.as_str(),
                        SENT,
                        repository.as_str(),
                        commit,
                        branch,
                        commits,
                        changes,
                        staged,
                        wip,
                    )
                    .execute(&mut **tx)
                    .await?;
                }
                let is_so = sqlx::query_scalar!(
                    r#"SELECT repository_id = $3 AND commit = $4 AND branch IS NOT DISTINCT FROM $5
                           AND wip IS NOT DISTINCT FROM $6 AND staged IS NOT DISTINCT FROM $7 AS "is_so!"
                       FROM location_origin WHERE org_id = $1 AND location_id = $2"#,
                    at.org.0,
                    at.location.as_str(),
                    repository.as_str(),
                    commit,
                    branch,
                    wip,
                    staged,
                )
                .fetch_optional(&mut **tx)
                .await?;
                match is_so {
                    Some(true) => Ok(()),
                    None if there.len() < named.len() => Err(StoreError::NotFound),
                    Some(false) | None => {
                        Err(StoreError::Conflict { what: "a workspace that begins with something else" })
                    }
                }
            })
        })
        .await
    }
}
