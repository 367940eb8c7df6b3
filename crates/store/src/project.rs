use domain::{IdMint, LocationId, OrgId, ProjectId, Stamp, TimestampMs};

use crate::workspace::tree;
use crate::{Seed, Store, StoreError};

/// A project of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its id.
    pub id: ProjectId,
    /// The directory that clients know it by.
    pub worktree: String,
    /// When it was created.
    pub created_ms: TimestampMs,
}

/// Where a Location's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationKind {
    /// A path of the machine.
    Local,
    /// A folder that workers keep for it.
    Managed,
}

impl LocationKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Managed => "managed",
        }
    }
}

/// A Location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationRow {
    /// Its id.
    pub id: LocationId,
    /// Its project.
    pub project: ProjectId,
    /// Where its files are.
    pub kind: LocationKind,
    /// The directory, as clients and the model know it.
    pub directory: String,
    /// The highest fencing token that has acted here; 0 before the first.
    pub fence: i64,
    /// The files that it began with, when they are another Location's.
    pub seed: Option<Seed>,
}

impl Store {
    /// The project of a directory, created if there is none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ensure_project(
        &self,
        org: OrgId,
        worktree: String,
        now: TimestampMs,
    ) -> Result<ProjectRow, StoreError> {
        if let Some(row) = self.project_of(org, worktree.clone()).await? {
            return Ok(row);
        }
        let made = worktree.clone();
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let id = ProjectId::mint(&mut IdMint::after(Stamp::default(), now));
                sqlx::query!(
                    "INSERT INTO project (org_id, id, worktree, created_ms) VALUES ($1, $2, $3, $4)
                     ON CONFLICT (org_id, space, worktree) DO NOTHING",
                    org.0,
                    id.as_str(),
                    made,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await?;
        self.project_of(org, worktree).await?.ok_or(StoreError::NotFound)
    }

    /// The project of a directory.
    async fn project_of(
        &self,
        org: OrgId,
        worktree: String,
    ) -> Result<Option<ProjectRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, worktree, created_ms FROM project
                     WHERE org_id = $1 AND space = '' AND worktree = $2",
                    org.0,
                    worktree,
                )
                .fetch_optional(&mut *connection)
                .await?;
                row.map(|row| project(&row.id, row.worktree, row.created_ms)).transpose()
            })
        })
        .await
    }

    /// The organisation's projects, oldest first, at most 1,000.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn projects(&self, org: OrgId) -> Result<Vec<ProjectRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT id, worktree, created_ms FROM project WHERE org_id = $1
                     ORDER BY created_ms, id LIMIT 1000",
                    org.0,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter().map(|row| project(&row.id, row.worktree, row.created_ms)).collect()
            })
        })
        .await
    }

    /// One project.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it.
    pub async fn project(&self, org: OrgId, id: ProjectId) -> Result<ProjectRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, worktree, created_ms FROM project WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                project(&row.id, row.worktree, row.created_ms)
            })
        })
        .await
    }

    /// The Location of a directory in a project, created if there is none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the project; [`StoreError::Conflict`] when the directory is
    /// there as the other kind.
    pub async fn ensure_location(
        &self,
        org: OrgId,
        project: ProjectId,
        kind: LocationKind,
        directory: String,
        now: TimestampMs,
    ) -> Result<LocationRow, StoreError> {
        // Most often it is there and in use: then nothing is locked.
        let known = self.location_of(org, project.clone(), directory.clone()).await?;
        if let Some((row, true)) = known {
            return of_kind(row, kind);
        }
        let (of, made) = (project.clone(), directory.clone());
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let known = sqlx::query_scalar!(
                    "SELECT id FROM project WHERE org_id = $1 AND id = $2",
                    org.0,
                    of.as_str(),
                )
                .fetch_optional(&mut **tx)
                .await?;
                if known.is_none() {
                    return Err(StoreError::NotFound);
                }
                let id = LocationId::mint(&mut IdMint::after(Stamp::default(), now));
                // One that the collection has seen unused is locked, so that it is either made again or kept for another
                // retention.
                sqlx::query!(
                    "INSERT INTO location (org_id, id, project_id, kind, directory, created_ms)
                     VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT (org_id, project_id, directory) DO UPDATE SET unused_ms = NULL",
                    org.0,
                    id.as_str(),
                    of.as_str(),
                    kind.as_str(),
                    made,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await?;
        let row = self.location_of(org, project, directory).await?;
        row.map_or(Err(StoreError::NotFound), |(row, _)| of_kind(row, kind))
    }

    /// The Location of a directory in a project, and whether it is in use.
    async fn location_of(
        &self,
        org: OrgId,
        project: ProjectId,
        directory: String,
    ) -> Result<Option<(LocationRow, bool)>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT id, project_id, kind, directory, fence, seed_location, seed_tree,
                         unused_ms IS NULL AS "is_used!"
                     FROM location WHERE org_id = $1 AND project_id = $2 AND directory = $3"#,
                    org.0,
                    project.as_str(),
                    directory,
                )
                .fetch_optional(&mut *connection)
                .await?;
                let Some(row) = row else { return Ok(None) };
                let (seed, is_used) = (seed(row.seed_location, row.seed_tree)?, row.is_used);
                let row =
                    location(&row.id, &row.project_id, &row.kind, row.directory, row.fence, seed)?;
                Ok(Some((row, is_used)))
            })
        })
        .await
    }

    /// One Location.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it.
    pub async fn location(&self, org: OrgId, id: LocationId) -> Result<LocationRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, project_id, kind, directory, fence, seed_location, seed_tree FROM location
                     WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                let seed = seed(row.seed_location, row.seed_tree)?;
                location(&row.id, &row.project_id, &row.kind, row.directory, row.fence, seed)
            })
        })
        .await
    }
}

/// Returns the Location if it is of this kind.
fn of_kind(row: LocationRow, kind: LocationKind) -> Result<LocationRow, StoreError> {
    if row.kind == kind { Ok(row) } else { Err(StoreError::Conflict { what: "a Location there" }) }
}

fn project(id: &str, worktree: String, created_ms: TimestampMs) -> Result<ProjectRow, StoreError> {
    Ok(ProjectRow { id: id.parse()?, worktree, created_ms })
}

fn location(
    id: &str,
    project: &str,
    kind: &str,
    directory: String,
    fence: i64,
    seed: Option<Seed>,
) -> Result<LocationRow, StoreError> {
    let kind = match kind {
        "local" => LocationKind::Local,
        "managed" => LocationKind::Managed,
        other => return Err(StoreError::Unreadable(format!("Location kind {other}"))),
    };
    Ok(LocationRow { id: id.parse()?, project: project.parse()?, kind, directory, fence, seed })
}

fn seed(location: Option<String>, of: Option<String>) -> Result<Option<Seed>, StoreError> {
    let seed = location.zip(of);
    seed.map(|(location, of)| Ok(Seed { location: location.parse()?, tree: tree(&of)? }))
        .transpose()
}
