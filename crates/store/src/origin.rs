//! The origin of a Location, and how far its fill is.

use domain::{Feature, FencingToken, LocationRef, OrgId, RepositoryId, SessionId};

use crate::pool::Tx;
use crate::{RepositoryRow, SentChanges, SentRow, Store, StoreError};

/// The beginning of a Location: a commit of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRow {
    /// The repository.
    pub repository: RepositoryRow,
    /// The branch, tag or commit that was asked for; `None` for the default branch.
    pub wanted: Option<String>,
    /// The commit, once it was found out. It never changes then.
    pub commit: Option<String>,
    /// The branch that is checked out, by its full name.
    pub branch: Option<String>,
    /// The number of the newest pack of the repository that the Location has.
    pub packs_through: Option<i64>,
    /// Whether the Location was ever filled.
    pub is_filled: bool,
    /// The parts that somebody has sent; `None` for a repository that its server has.
    pub sent: Option<SentRow>,
    /// Whether the Location's seed only spares storage, and is not where its files come from.
    pub shares_base: bool,
    /// How far the fill is: a stage, and bytes.
    pub stage: Option<(String, i64)>,
    /// Why the last try came to nothing.
    pub fault: Option<OriginFault>,
}

/// The kind of an origin that a server has.
const AT_SERVER: &str = "repository";
/// The kind of an origin that somebody has sent.
pub(crate) const SENT: &str = "sent";
/// Why a fill came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginFault {
    /// The error's code.
    pub code: String,
    /// A sentence for people.
    pub text: String,
}

/// A step of a fill that the holder of the Location notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillNote {
    /// It is at a stage, and has so many bytes.
    Stage(String, i64),
    /// The try came to nothing.
    Fault(OriginFault),
    /// Its files are there, with the packs up to this number.
    Filled(i64),
}

/// Proves that `token` is the Location's fence, until the transaction ends.
pub(crate) async fn prove(
    tx: &mut Tx,
    at: &LocationRef,
    token: FencingToken,
) -> Result<(), StoreError> {
    let held = sqlx::query_scalar!(
        "SELECT id FROM location WHERE org_id = $1 AND id = $2 AND fence = $3 FOR SHARE",
        at.org.0,
        at.location.as_str(),
        token.0,
    )
    .fetch_optional(&mut **tx)
    .await?;
    held.map(drop).ok_or(StoreError::Superseded)
}

impl Store {
    /// Says that a Location begins with a repository. Saying so again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Feature`] while builds may run that would take its empty directory for a whole one;
    /// [`StoreError::Conflict`] if it begins with something else, or has been used.
    pub async fn begin_with_repository(
        &self,
        at: LocationRef,
        repository: RepositoryId,
        wanted: Option<String>,
    ) -> Result<(), StoreError> {
        self.require(Feature::Repositories).await?;
        self.in_tenant(at.org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "INSERT INTO location_origin (org_id, location_id, kind, repository_id, wanted)
                     SELECT org_id, id, $5, $3, $4 FROM location
                     WHERE org_id = $1 AND id = $2 AND fence = 0
                     ON CONFLICT (org_id, location_id) DO NOTHING",
                    at.org.0,
                    at.location.as_str(),
                    repository.as_str(),
                    wanted,
                    AT_SERVER,
                )
                .execute(&mut **tx)
                .await?;
                let is_so = sqlx::query_scalar!(
                    r#"SELECT true AS "is_so!" FROM location_origin
                       WHERE org_id = $1 AND location_id = $2 AND repository_id = $3 AND wanted IS NOT DISTINCT FROM $4"#,
                    at.org.0,
                    at.location.as_str(),
                    repository.as_str(),
                    wanted,
                )
                .fetch_optional(&mut **tx)
                .await?;
                let other = StoreError::Conflict { what: "a workspace that begins with something else" };
                is_so.map(drop).ok_or(other)
            })
        })
        .await
    }

    /// The origin of a Location; `None` if it begins with nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn origin(&self, at: LocationRef) -> Result<Option<OriginRow>, StoreError> {
        self.read(at.org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT r.id, r.host, r.path, r.default_branch, o.wanted, o.commit, o.branch, o.packs_through,
                           o.filled_token IS NOT NULL AS "is_filled!", o.stage, o.stage_bytes, o.fault_code, o.fault,
                           o.kind, o.commits_upload, o.changes_upload, o.staged, o.wip, o.shares_base
                       FROM location_origin o JOIN repository r ON r.org_id = o.org_id AND r.id = o.repository_id
                       WHERE o.org_id = $1 AND o.location_id = $2"#,
                    at.org.0,
                    at.location.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?;
                let Some(row) = row else { return Ok(None) };
                let upload = |id: Option<String>| id.map(|id| id.parse()).transpose();
                let sent = SentRow {
                    commits: upload(row.commits_upload)?,
                    changes: upload(row.changes_upload)?,
                    wip: row.staged.zip(row.wip).map(|(staged, wip)| SentChanges { staged, wip }),
                };
                Ok(Some(OriginRow {
                    sent: (row.kind == SENT).then_some(sent),
                    shares_base: row.shares_base,
                    repository: RepositoryRow {
                        id: row.id.parse()?,
                        host: row.host,
                        path: row.path,
                        default_branch: row.default_branch,
                    },
                    wanted: row.wanted,
                    commit: row.commit,
                    branch: row.branch,
                    packs_through: row.packs_through,
                    is_filled: row.is_filled,
                    stage: row.stage.map(|stage| (stage, row.stage_bytes)),
                    fault: row.fault_code.zip(row.fault).map(|(code, text)| OriginFault { code, text }),
                }))
            })
        })
        .await
    }

    /// Pins the commit of a Location, unless one is, and returns the pinned one with its branch.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if the token is not the fence; [`StoreError::NotFound`] without an origin.
    pub async fn pin_origin(
        &self,
        at: LocationRef,
        token: FencingToken,
        commit: String,
        branch: Option<String>,
    ) -> Result<(String, Option<String>), StoreError> {
        self.in_tenant(at.org, move |tx| {
            Box::pin(async move {
                prove(tx, &at, token).await?;
                sqlx::query!(
                    "UPDATE location_origin SET commit = $3, branch = $4
                     WHERE org_id = $1 AND location_id = $2 AND commit IS NULL",
                    at.org.0,
                    at.location.as_str(),
                    commit,
                    branch,
                )
                .execute(&mut **tx)
                .await?;
                let row = sqlx::query!(
                    r#"SELECT commit AS "commit!", branch FROM location_origin
                       WHERE org_id = $1 AND location_id = $2"#,
                    at.org.0,
                    at.location.as_str(),
                )
                .fetch_optional(&mut **tx)
                .await?
                .ok_or(StoreError::NotFound)?;
                Ok((row.commit, row.branch))
            })
        })
        .await
    }

    /// Notes how far a fill is.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if the token is not the fence.
    pub async fn note_fill(
        &self,
        at: LocationRef,
        token: FencingToken,
        note: FillNote,
    ) -> Result<(), StoreError> {
        self.in_tenant(at.org, move |tx| {
            Box::pin(async move {
                prove(tx, &at, token).await?;
                let (org, location) = (at.org.0, at.location.as_str());
                match note {
                    FillNote::Stage(stage, bytes) => {
                        sqlx::query!(
                            "UPDATE location_origin SET stage = $3, stage_bytes = $4, fault = NULL, fault_code = NULL
                             WHERE org_id = $1 AND location_id = $2",
                            org,
                            location,
                            stage,
                            bytes,
                        )
                        .execute(&mut **tx)
                        .await?
                    }
                    FillNote::Fault(OriginFault { code, text }) => {
                        sqlx::query!(
                            "UPDATE location_origin SET stage = NULL, fault_code = $3, fault = $4
                             WHERE org_id = $1 AND location_id = $2",
                            org,
                            location,
                            code,
                            text,
                        )
                        .execute(&mut **tx)
                        .await?
                    }
                    FillNote::Filled(through) => {
                        sqlx::query!(
                            "UPDATE location_origin SET stage = NULL, fault = NULL, fault_code = NULL,
                                 packs_through = coalesce(packs_through, $3), filled_token = coalesce(filled_token, $4)
                             WHERE org_id = $1 AND location_id = $2",
                            org,
                            location,
                            through,
                            token.0,
                        )
                        .execute(&mut **tx)
                        .await?
                    }
                };
                Ok(())
            })
        })
        .await
    }

    /// The newest sessions at a Location, at most 16.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions_at(&self, at: LocationRef) -> Result<Vec<SessionId>, StoreError> {
        self.read(at.org, move |connection| {
            Box::pin(async move {
                let ids = sqlx::query_scalar!(
                    "SELECT id FROM session WHERE org_id = $1 AND location_id = $2 ORDER BY id LIMIT 16",
                    at.org.0,
                    at.location.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                ids.iter().map(|id| Ok(id.parse()?)).collect()
            })
        })
        .await
    }

    /// The organisation's repositories, by host and path; at most 1,000.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn repositories(&self, org: OrgId) -> Result<Vec<RepositoryRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT id, host, path, default_branch FROM repository
                     WHERE org_id = $1 AND space = '' ORDER BY host, path LIMIT 1000",
                    org.0,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        let (host, path, default_branch) = (row.host, row.path, row.default_branch);
                        Ok(RepositoryRow { id: row.id.parse()?, host, path, default_branch })
                    })
                    .collect()
            })
        })
        .await
    }
}
