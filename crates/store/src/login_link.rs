//! Links that log a person in once. A link carries what its maker showed: the login that it begins does no more and
//! lives no longer.

use domain::{KeyId, LoginId, OrgId, TimestampMs, UserId};
use subtle::ConstantTimeEq;

use crate::login::OVER_KEPT;
use crate::{LOGIN_IDLE, Store, StoreError};

/// Who makes a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkMaker {
    /// Whoever runs the service, at the database. Following the link is the proof.
    Operator,
    /// Somebody with this key.
    Key(KeyId),
    /// Somebody with this login.
    Login(LoginId),
}

/// A link that logs a person in once.
#[derive(Debug, Clone)]
pub struct NewLoginLink {
    /// Its id, which is in the token.
    pub id: String,
    /// Whom it logs in.
    pub user: UserId,
    /// SHA-256 of the token.
    pub hash: Vec<u8>,
    /// When it stops working.
    pub expires_ms: TimestampMs,
    /// Who makes it.
    pub maker: LinkMaker,
}

/// The facts of a followed link about the login that it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedLink {
    /// Who logs in.
    pub user: UserId,
    /// The login that made the link.
    pub parent: Option<LoginId>,
    /// The key that made it, or that its login began with.
    pub key: Option<KeyId>,
    /// When its maker proved who they are; `None`: now.
    pub auth_ms: Option<TimestampMs>,
    /// When the login ends at the latest.
    pub until_ms: Option<TimestampMs>,
}

/// The fate of a link that somebody followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTaken {
    /// It logs this person in. It does so once.
    Good(FollowedLink),
    /// Somebody has followed it before.
    Used,
    /// It was good until then.
    Expired,
    /// The key or login that made it has ended, and the link with it.
    MakerOver,
    /// There is no such link, or its person is disabled.
    Unknown,
}

impl Store {
    /// Stores a link, and forgets the person's links that are over.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when its maker has ended meanwhile.
    pub async fn create_login_link(
        &self,
        org: OrgId,
        link: NewLoginLink,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "DELETE FROM login_link WHERE org_id = $1 AND user_id = $2 AND expires_ms < $3",
                    org.0,
                    link.user.as_str(),
                    now - OVER_KEPT,
                )
                .execute(&mut **tx)
                .await?;
                let (key, login) = match &link.maker {
                    LinkMaker::Operator => (None, None),
                    LinkMaker::Key(key) => (Some(key.as_str()), None),
                    LinkMaker::Login(login) => (None, Some(login.as_str())),
                };
                let added = sqlx::query!(
                    "INSERT INTO login_link (org_id, id, user_id, hash, expires_ms, login_id, key_id, auth_ms, until_ms)
                    SELECT $1, $2, $3, $4, $5, m.login_id, m.key_id, m.auth_ms, m.until_ms FROM (
                        SELECT NULL::text AS login_id, NULL::text AS key_id, NULL::bigint AS auth_ms, NULL::bigint AS until_ms
                            WHERE $6::text IS NULL AND $7::text IS NULL
                        UNION ALL
                        SELECT NULL, k.id, $8, k.expires_ms FROM api_key k
                            WHERE k.org_id = $1 AND k.id = $6 AND k.revoked_ms IS NULL
                        UNION ALL
                        SELECT l.id, l.key_id, coalesce(l.auth_ms, l.created_ms), l.expires_ms FROM login l
                            WHERE l.org_id = $1 AND l.id = $7 AND l.user_id = $3 AND l.ended_ms IS NULL
                    ) m",
                    org.0,
                    link.id,
                    link.user.as_str(),
                    link.hash,
                    link.expires_ms,
                    key,
                    login,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                if added.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }

    /// Uses a link up. Of requests that come together, one gets the person.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_login_link(
        &self,
        org: OrgId,
        id: String,
        hash: Vec<u8>,
        now: TimestampMs,
    ) -> Result<LinkTaken, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT l.user_id, l.hash, l.expires_ms, l.used_ms, l.login_id, l.key_id, l.auth_ms, l.until_ms,
                        (l.login_id IS NULL OR EXISTS (SELECT FROM login m WHERE m.org_id = $1 AND m.id = l.login_id
                            AND m.ended_ms IS NULL AND m.expires_ms > $3 AND m.rotated_ms > $4))
                        AND (l.key_id IS NULL OR EXISTS (SELECT FROM api_key k WHERE k.org_id = $1 AND k.id = l.key_id
                            AND k.revoked_ms IS NULL AND (k.expires_ms IS NULL OR k.expires_ms > $3))) AS "is_backed!"
                    FROM login_link l
                    JOIN principal p ON p.org_id = l.org_id AND p.id = l.user_id
                    WHERE l.org_id = $1 AND l.id = $2 AND p.disabled_ms IS NULL FOR UPDATE OF l"#,
                    org.0,
                    id,
                    now,
                    now - LOGIN_IDLE,
                )
                .fetch_optional(&mut **tx)
                .await?;
                let Some(row) = row.filter(|row| bool::from(row.hash.ct_eq(&hash))) else {
                    return Ok(LinkTaken::Unknown);
                };
                if row.used_ms.is_some() {
                    return Ok(LinkTaken::Used);
                }
                if row.expires_ms <= now {
                    return Ok(LinkTaken::Expired);
                }
                if !row.is_backed {
                    return Ok(LinkTaken::MakerOver);
                }
                sqlx::query!(
                    "UPDATE login_link SET used_ms = $3 WHERE org_id = $1 AND id = $2",
                    org.0,
                    id,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(LinkTaken::Good(FollowedLink {
                    user: row.user_id.parse()?,
                    parent: row.login_id.map(|id| id.parse()).transpose()?,
                    key: row.key_id.map(|id| id.parse()).transpose()?,
                    auth_ms: row.auth_ms,
                    until_ms: row.until_ms,
                }))
            })
        })
        .await
    }
}
