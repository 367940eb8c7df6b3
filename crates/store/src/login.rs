//! Logins of people in browsers.

use domain::{KeyId, LoginId, OrgId, TimestampMs, UserId};

use crate::pool::Tx;
use crate::{FORMER_COOKIE, LOGIN_IDLE, Store, StoreError};

/// How a login began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeganBy {
    /// With a one-time link.
    Link,
    /// With a key.
    Key,
    /// At an identity provider.
    Provider,
    /// With a recovery code.
    Code,
}

impl BeganBy {
    /// Returns the stored form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Key => "key",
            Self::Provider => "provider",
            Self::Code => "code",
        }
    }
}

/// A login to be stored; only the hash of its cookie ever is.
#[derive(Debug, Clone)]
pub struct NewLogin {
    /// Its id, which is in the cookie.
    pub id: LoginId,
    /// Whose it is.
    pub user: UserId,
    /// SHA-256 of the cookie.
    pub hash: Vec<u8>,
    /// When it ends at the latest.
    pub expires_ms: TimestampMs,
    /// The key that it began with: it ends when that is revoked.
    pub key: Option<KeyId>,
    /// The login whose link it began with: it is ended with that.
    pub parent: Option<LoginId>,
    /// When its person proved who they are, if that was before it began.
    pub auth_ms: Option<TimestampMs>,
    /// How it begins.
    pub by: BeganBy,
    /// The address that it begins from.
    pub address: Option<String>,
    /// The browser's name for itself.
    pub agent: Option<String>,
}

/// A login in the list of its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRow {
    /// Its id.
    pub id: LoginId,
    /// When it began.
    pub created_ms: TimestampMs,
    /// Within a minute, when it was last used.
    pub seen_ms: TimestampMs,
    /// When it ends, if it is not used again.
    pub expires_ms: TimestampMs,
    /// The stored form of a [`BeganBy`]; none for a login of before.
    pub by: Option<String>,
    /// The address that it began from.
    pub address: Option<String>,
    /// The browser's name for itself.
    pub agent: Option<String>,
}

impl Store {
    /// Begins a login, and forgets the person's logins that ended long ago. The key and the login that it is begun with
    /// are locked meanwhile: whoever revokes them ends it too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when that key or login has ended.
    pub async fn create_login(
        &self,
        org: OrgId,
        login: NewLogin,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "DELETE FROM login WHERE org_id = $1 AND user_id = $2 AND expires_ms < $3",
                    org.0,
                    login.user.as_str(),
                    now - OVER_KEPT,
                )
                .execute(&mut **tx)
                .await?;
                if let Some(key) = &login.key {
                    sqlx::query_scalar!(
                        "SELECT id FROM api_key WHERE org_id = $1 AND id = $2 AND revoked_ms IS NULL FOR SHARE",
                        org.0,
                        key.as_str(),
                    )
                    .fetch_optional(&mut **tx)
                    .await?
                    .ok_or(StoreError::NotFound)?;
                }
                if let Some(parent) = &login.parent {
                    sqlx::query_scalar!(
                        "SELECT id FROM login WHERE org_id = $1 AND id = $2 AND ended_ms IS NULL FOR SHARE",
                        org.0,
                        parent.as_str(),
                    )
                    .fetch_optional(&mut **tx)
                    .await?
                    .ok_or(StoreError::NotFound)?;
                }
                sqlx::query!(
                    "INSERT INTO login (org_id, id, user_id, hash, created_ms, rotated_ms, expires_ms, key_id, auth_ms,
                        began_by, address, agent, parent_id)
                    VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, $11, $12)",
                    org.0,
                    login.id.as_str(),
                    login.user.as_str(),
                    login.hash,
                    now,
                    login.expires_ms,
                    login.key.as_ref().map(KeyId::as_str),
                    login.auth_ms,
                    login.by.as_str(),
                    login.address,
                    login.agent,
                    login.parent.as_ref().map(LoginId::as_str),
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Replaces a login's cookie, if `old` is its cookie still, or the one before while nobody has shown the newest: that one
    /// is lost then. Of requests that come together, one gets `true`; the cookie of the others is good until the new one was
    /// shown, and for some seconds more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn rotate_login(
        &self,
        org: OrgId,
        id: LoginId,
        old: Vec<u8>,
        new: Vec<u8>,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let rotated = sqlx::query!(
                    "UPDATE login SET former_hash = $3, hash = $4, rotated_ms = greatest($5, shown_ms + 1),
                        dropped_hash = CASE WHEN hash = $3 THEN dropped_hash ELSE hash END
                    WHERE org_id = $1 AND id = $2 AND ended_ms IS NULL AND (hash = $3 OR former_hash = $3
                        AND coalesce(shown_ms, 0) < rotated_ms AND rotated_ms <= $6)",
                    org.0,
                    id.as_str(),
                    old,
                    new,
                    now,
                    now - FORMER_COOKIE,
                )
                .execute(&mut **tx)
                .await?;
                Ok(rotated.rows_affected() > 0)
            })
        })
        .await
    }

    /// Notes that somebody shows the newest cookie of a login, if it is that still: from now on the former one has little
    /// time left.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_shown_cookie(
        &self,
        org: OrgId,
        id: LoginId,
        hash: Vec<u8>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE login SET shown_ms = greatest($4, rotated_ms)
                    WHERE org_id = $1 AND id = $2 AND hash = $3 AND coalesce(shown_ms, 0) < rotated_ms",
                    org.0,
                    id.as_str(),
                    hash,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Ends a login everywhere, with those that its links began. One that has ended stays so. Returns what has ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_login(
        &self,
        org: OrgId,
        id: LoginId,
        now: TimestampMs,
    ) -> Result<Vec<LoginId>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let ended = sqlx::query_scalar!(
                    "UPDATE login SET ended_ms = $3 WHERE org_id = $1 AND id = $2 AND ended_ms IS NULL RETURNING id",
                    org.0,
                    id.as_str(),
                    now,
                )
                .fetch_all(&mut **tx)
                .await?;
                end_begun_by(tx, org, ended, None, now).await
            })
        })
        .await
    }
}

/// Ends the logins that began with links of `ended`, and those that began with theirs, but `kept`. Returns all that
/// have ended. It runs after the statement that ended the first ones: a login that began meanwhile is seen by then.
pub(crate) async fn end_begun_by(
    tx: &mut Tx,
    org: OrgId,
    mut ended: Vec<String>,
    kept: Option<&LoginId>,
    now: TimestampMs,
) -> Result<Vec<LoginId>, StoreError> {
    let begun = sqlx::query_scalar!(
        "UPDATE login SET ended_ms = $3 WHERE org_id = $1 AND ended_ms IS NULL AND ($4::text IS NULL OR id <> $4)
            AND id IN (
                WITH RECURSIVE begun AS (
                    SELECT id FROM login WHERE org_id = $1 AND parent_id = ANY ($2)
                    UNION
                    SELECT l.id FROM login l JOIN begun b ON l.parent_id = b.id WHERE l.org_id = $1
                )
                SELECT id FROM begun
            )
        RETURNING id",
        org.0,
        &ended,
        now,
        kept.map(LoginId::as_str),
    )
    .fetch_all(&mut **tx)
    .await?;
    ended.extend(begun);
    ended.into_iter().map(|id| Ok(id.parse()?)).collect()
}

impl Store {
    /// Lets a login end soon, because another one has taken its place in its browser, whose requests that are under
    /// way still show the old cookie.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replace_login(
        &self,
        org: OrgId,
        id: LoginId,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE login SET expires_ms = least(expires_ms, $3) WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    now + FORMER_COOKIE,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Returns the logins of a person, the one that was used last first, at most 100. Those that another one has
    /// replaced are not among them.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn logins(
        &self,
        org: OrgId,
        user: UserId,
        now: TimestampMs,
    ) -> Result<Vec<LoginRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT id, created_ms, greatest(created_ms, seen_ms) AS "seen_ms!",
                        least(expires_ms, rotated_ms + $5) AS "expires_ms!", began_by, address, agent FROM login
                    WHERE org_id = $1 AND user_id = $2 AND ended_ms IS NULL AND expires_ms > $3 AND rotated_ms > $4
                    ORDER BY 3 DESC, id LIMIT $6"#,
                    org.0,
                    user.as_str(),
                    now + FORMER_COOKIE,
                    now - LOGIN_IDLE,
                    LOGIN_IDLE,
                    MOST,
                )
                .fetch_all(&mut *connection)
                .await?;
                let rows = rows.into_iter().map(|row| {
                    Ok(LoginRow {
                        id: row.id.parse()?,
                        created_ms: row.created_ms,
                        seen_ms: row.seen_ms,
                        expires_ms: row.expires_ms,
                        by: row.began_by,
                        address: row.address,
                        agent: row.agent,
                    })
                });
                rows.collect()
            })
        })
        .await
    }

    /// Ends logins of a person everywhere: one with those that its links began, or all but `kept`. Returns those that it
    /// has ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_logins_of(
        &self,
        org: OrgId,
        user: UserId,
        one: Option<LoginId>,
        kept: Option<LoginId>,
        now: TimestampMs,
    ) -> Result<Vec<LoginId>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let ended = sqlx::query_scalar!(
                    "UPDATE login SET ended_ms = $5 WHERE org_id = $1 AND user_id = $2 AND ended_ms IS NULL
                        AND ($3::text IS NULL OR id = $3) AND ($4::text IS NULL OR id <> $4) RETURNING id",
                    org.0,
                    user.as_str(),
                    one.as_ref().map(LoginId::as_str),
                    kept.as_ref().map(LoginId::as_str),
                    now,
                )
                .fetch_all(&mut **tx)
                .await?;
                end_begun_by(tx, org, ended, kept.as_ref(), now).await
            })
        })
        .await
    }
}

/// The most logins in one list.
const MOST: i64 = 100;

/// How long links and logins that are over are kept, so that who comes back is told why.
pub(crate) const OVER_KEPT: TimestampMs = 7 * 24 * 60 * 60 * 1000;
