//! Repositories of an organisation, and the packs that were fetched of them.

use domain::{IdMint, OrgId, RepositoryId, Stamp, TimestampMs};

use crate::{Store, StoreError};

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRow {
    /// Its id.
    pub id: RepositoryId,
    /// Its host, with its port unless that is 443.
    pub host: String,
    /// Its path there.
    pub path: String,
    /// The branch that HEAD named when it was last fetched.
    pub default_branch: Option<String>,
}

/// A pack of a repository, whose blob is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPack {
    /// Its number; the packs up to a number have everything that the refs of that pack lead to.
    pub ordinal: i64,
    /// The pack's own id.
    pub pack: String,
    /// Its bytes.
    pub bytes: i64,
    /// The commit that it was fetched for.
    pub commit: String,
    /// The branches and tags then, as text.
    pub refs: String,
}

/// A pack to be noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRepositoryPack {
    /// The pack's own id.
    pub pack: String,
    /// Its bytes.
    pub bytes: i64,
    /// The commit that it was fetched for.
    pub commit: String,
    /// The branches and tags, as text.
    pub refs: String,
    /// The branch that HEAD names.
    pub default_branch: Option<String>,
    /// The time.
    pub now: TimestampMs,
}

impl Store {
    /// The repository of a host and a path, created if there is none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ensure_repository(
        &self,
        org: OrgId,
        host: String,
        path: String,
        now: TimestampMs,
    ) -> Result<RepositoryRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let id = RepositoryId::mint(&mut IdMint::after(Stamp::default(), now));
                sqlx::query!(
                    "INSERT INTO repository (org_id, id, host, path, created_ms) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT (org_id, space, host, path) DO UPDATE SET seen_ms = excluded.created_ms",
                    org.0,
                    id.as_str(),
                    host,
                    path,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                let row = sqlx::query!(
                    "SELECT id, host, path, default_branch FROM repository
                     WHERE org_id = $1 AND space = '' AND host = $2 AND path = $3",
                    org.0,
                    host,
                    path,
                )
                .fetch_one(&mut **tx)
                .await?;
                let (host, path, default_branch) = (row.host, row.path, row.default_branch);
                Ok(RepositoryRow { id: row.id.parse()?, host, path, default_branch })
            })
        })
        .await
    }

    /// A repository by its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it.
    pub async fn repository(
        &self,
        org: OrgId,
        id: RepositoryId,
    ) -> Result<RepositoryRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT host, path, default_branch FROM repository WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                let (host, path, default_branch) = (row.host, row.path, row.default_branch);
                Ok(RepositoryRow { id, host, path, default_branch })
            })
        })
        .await
    }

    /// Of these repositories, those that there are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn known_repositories(
        &self,
        org: OrgId,
        of: &[RepositoryId],
    ) -> Result<Vec<RepositoryId>, StoreError> {
        let of: Vec<String> = of.iter().map(RepositoryId::to_string).collect();
        self.read(org, move |connection| {
            Box::pin(async move {
                let known = sqlx::query_scalar!(
                    "SELECT id FROM repository WHERE org_id = $1 AND id = ANY($2)",
                    org.0,
                    &of,
                )
                .fetch_all(&mut *connection)
                .await?;
                known.iter().map(|id| Ok(id.parse()?)).collect()
            })
        })
        .await
    }

    /// The packs of a repository, the oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn repository_packs(
        &self,
        org: OrgId,
        repository: RepositoryId,
    ) -> Result<Vec<RepositoryPack>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT ordinal, pack, bytes, commit, refs FROM repository_pack
                     WHERE org_id = $1 AND repository_id = $2 ORDER BY ordinal",
                    org.0,
                    repository.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                let pack = rows.into_iter().map(|row| RepositoryPack {
                    ordinal: row.ordinal,
                    pack: row.pack,
                    bytes: row.bytes,
                    commit: row.commit,
                    refs: row.refs,
                });
                Ok(pack.collect())
            })
        })
        .await
    }

    /// Notes a pack whose blob is stored, and returns its number. A pack that another worker has noted meanwhile keeps its
    /// number.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the repository.
    pub async fn add_repository_pack(
        &self,
        org: OrgId,
        repository: RepositoryId,
        new: NewRepositoryPack,
    ) -> Result<i64, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                // One after another, so that numbers are in the order of commits.
                let known = sqlx::query_scalar!(
                    "UPDATE repository SET default_branch = $3, fetched_ms = $4
                     WHERE org_id = $1 AND id = $2 RETURNING id",
                    org.0,
                    repository.as_str(),
                    new.default_branch,
                    new.now,
                )
                .fetch_optional(&mut **tx)
                .await?;
                if known.is_none() {
                    return Err(StoreError::NotFound);
                }
                let there = sqlx::query_scalar!(
                    "SELECT ordinal FROM repository_pack WHERE org_id = $1 AND repository_id = $2 AND pack = $3",
                    org.0,
                    repository.as_str(),
                    new.pack,
                )
                .fetch_optional(&mut **tx)
                .await?;
                if let Some(ordinal) = there {
                    return Ok(ordinal);
                }
                let ordinal = sqlx::query_scalar!(
                    r#"INSERT INTO repository_pack
                           (org_id, repository_id, ordinal, pack, bytes, commit, refs, created_ms)
                       SELECT $1, $2, coalesce(max(p.ordinal), 0) + 1, $3, $4::bigint, $5, $6, $7::bigint
                       FROM repository_pack p WHERE p.org_id = $1 AND p.repository_id = $2
                       RETURNING ordinal"#,
                    org.0,
                    repository.as_str(),
                    new.pack,
                    new.bytes,
                    new.commit,
                    new.refs,
                    new.now,
                )
                .fetch_one(&mut **tx)
                .await?;
                Ok(ordinal)
            })
        })
        .await
    }
}
