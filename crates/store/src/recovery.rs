//! Recovery codes: with each of them an owner who cannot sign in otherwise begins one login.

use access::Actor;
use domain::{OrgId, TimestampMs, UserId};

use crate::alert::{AlertKind, NewAlert, tell_owners};
use crate::{Store, StoreError};

/// The codes of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryCodes {
    /// When they were made.
    pub made_ms: TimestampMs,
    /// How many of them were used.
    pub used: i64,
    /// How many still work.
    pub left: i64,
}

/// The fate of a code that somebody shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeTaken {
    /// It logs this owner in. It does so once.
    Good {
        /// Its owner.
        user: UserId,
        /// How many codes they have left.
        left: i64,
    },
    /// Somebody has used it before.
    Used,
    /// Its person is disabled, or no owner any more.
    NoOwner,
    /// There is no such code: it never was one, or a newer set has taken its place.
    Unknown,
}

impl Store {
    /// Gives an owner new codes in place of all before, and tells all owners. Only the hashes of codes are stored.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the person is no owner, or disabled.
    pub async fn set_recovery_codes(
        &self,
        org: OrgId,
        owner: UserId,
        hashes: Vec<Vec<u8>>,
        about: String,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                // Sets of one owner are made one after the other, so that one of them stays whole.
                sqlx::query_scalar!(
                    "SELECT id FROM principal WHERE org_id = $1 AND id = $2 AND role = 'owner' AND disabled_ms IS NULL
                        FOR UPDATE",
                    org.0,
                    owner.as_str(),
                )
                .fetch_optional(&mut **tx)
                .await?
                .ok_or(StoreError::NotFound)?;
                sqlx::query!(
                    "DELETE FROM recovery_code WHERE org_id = $1 AND user_id = $2",
                    org.0,
                    owner.as_str(),
                )
                .execute(&mut **tx)
                .await?;
                sqlx::query!(
                    "INSERT INTO recovery_code (org_id, user_id, hash, created_ms)
                    SELECT $1, $2, code.hash, $4 FROM unnest($3::bytea[]) AS code (hash)",
                    org.0,
                    owner.as_str(),
                    &hashes,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                let (kind, by) = (AlertKind::RecoveryMade, Actor::User(owner));
                tell_owners(tx, org, &NewAlert { kind, by, about }, now).await
            })
        })
        .await
    }

    /// Returns the codes that an owner has; `None` before they make some.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn recovery_codes(
        &self,
        org: OrgId,
        owner: UserId,
    ) -> Result<Option<RecoveryCodes>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT max(created_ms) AS made_ms, count(used_ms) AS "used!",
                        count(*) - count(used_ms) AS "left!" FROM recovery_code WHERE org_id = $1 AND user_id = $2"#,
                    org.0,
                    owner.as_str(),
                )
                .fetch_one(&mut *connection)
                .await?;
                let made = row.made_ms;
                Ok(made.map(|made_ms| RecoveryCodes { made_ms, used: row.used, left: row.left }))
            })
        })
        .await
    }

    /// Returns the organisation of the code with this hash; a look-up without a tenant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such code.
    pub async fn organisation_of_code(&self, hash: Vec<u8>) -> Result<OrgId, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let org = sqlx::query_scalar!(
                        "SELECT org_id FROM recovery_code WHERE hash = $1",
                        hash
                    )
                    .fetch_optional(&mut *connection)
                    .await?;
                    org.map(OrgId).ok_or(StoreError::NotFound)
                })
            })
            .await
    }

    /// Uses a code up, and tells all owners. Of requests that come together, one gets the person. `about` writes the
    /// alert's JSON from the number of codes that are left.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_recovery_code(
        &self,
        org: OrgId,
        hash: Vec<u8>,
        about: impl FnOnce(i64) -> String + Send + 'static,
        now: TimestampMs,
    ) -> Result<CodeTaken, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT c.user_id, c.used_ms, p.role = 'owner' AND p.disabled_ms IS NULL AS "is_owner!"
                    FROM recovery_code c JOIN principal p ON p.org_id = c.org_id AND p.id = c.user_id
                    WHERE c.org_id = $1 AND c.hash = $2 FOR UPDATE OF c"#,
                    org.0,
                    hash,
                )
                .fetch_optional(&mut **tx)
                .await?;
                let Some(row) = row else { return Ok(CodeTaken::Unknown) };
                if row.used_ms.is_some() {
                    return Ok(CodeTaken::Used);
                }
                if !row.is_owner {
                    return Ok(CodeTaken::NoOwner);
                }
                let user: UserId = row.user_id.parse()?;
                sqlx::query!(
                    "UPDATE recovery_code SET used_ms = $4 WHERE org_id = $1 AND user_id = $2 AND hash = $3",
                    org.0,
                    user.as_str(),
                    hash,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                let left = sqlx::query_scalar!(
                    r#"SELECT count(*) AS "count!" FROM recovery_code
                    WHERE org_id = $1 AND user_id = $2 AND used_ms IS NULL"#,
                    org.0,
                    user.as_str(),
                )
                .fetch_one(&mut **tx)
                .await?;
                let (kind, by) = (AlertKind::RecoveryUsed, Actor::User(user.clone()));
                tell_owners(tx, org, &NewAlert { kind, by, about: about(left) }, now).await?;
                Ok(CodeTaken::Good { user, left })
            })
        })
        .await
    }
}
