//! Sign-ins at providers that people have begun. Its secrets are sealed, and emptied at its end.

use std::str::FromStr;
use std::time::Duration;

use domain::{OrgId, TimestampMs};

use crate::credential::keep;
use crate::{Kept, NewCredential, Sealed, Store, StoreError};

/// The most sign-ins of an organisation that wait for their people.
pub const MAX_SIGN_INS: i64 = 100;
/// A sign-in, ended or not, is forgotten so long after it expired.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// How a sign-in goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInMethod {
    /// The browser comes back with a code (RFC 6749 4.1, with PKCE).
    Code,
    /// A code is typed in at the provider's page, and we ask until it was (RFC 8628).
    Device,
}

impl SignInMethod {
    /// As stored, and as clients see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Device => "device",
        }
    }
}

impl FromStr for SignInMethod {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "code" => Ok(Self::Code),
            "device" => Ok(Self::Device),
            other => Err(StoreError::Unreadable(format!("a sign-in by `{other}`"))),
        }
    }
}

/// How far a sign-in is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInStatus {
    /// It waits for its person.
    Pending,
    /// A credential came of it.
    Complete,
    /// The provider, or the person, said no.
    Failed,
}

impl SignInStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Failed => "failed",
        }
    }
}

impl FromStr for SignInStatus {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "pending" => Ok(Self::Pending),
            "complete" => Ok(Self::Complete),
            "failed" => Ok(Self::Failed),
            other => Err(StoreError::Unreadable(format!("a sign-in that is `{other}`"))),
        }
    }
}

/// A sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// Its id.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// Whose credential it makes; empty for the organisation's.
    pub owner: String,
    /// The label of the credential to come.
    pub label: String,
    /// How it goes.
    pub method: SignInMethod,
    /// How far it is.
    pub status: SignInStatus,
    /// The reason of its failure.
    pub message: Option<String>,
    /// The credential that came of it.
    pub credential: Option<String>,
    /// When the provider gives up.
    pub expires_ms: TimestampMs,
    /// The data that it needs to go on; empty once it has ended.
    pub sealed: Sealed,
}

/// A sign-in to be kept.
#[derive(Debug, Clone)]
pub struct NewSignIn {
    /// Its id.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// Whose credential it makes.
    pub owner: String,
    /// The label of the credential to come.
    pub label: String,
    /// How it goes.
    pub method: SignInMethod,
    /// The data that it needs to go on.
    pub sealed: Sealed,
    /// When the provider gives up.
    pub expires_ms: TimestampMs,
}

impl Store {
    /// Keeps a sign-in. `false`: [`MAX_SIGN_INS`] of the organisation wait already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn add_sign_in(
        &self,
        org: OrgId,
        new: NewSignIn,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "DELETE FROM oauth_attempt WHERE org_id = $1 AND expires_ms < $2",
                    org.0,
                    now - KEPT_MS,
                )
                .execute(&mut **tx)
                .await?;
                let added = sqlx::query!(
                    "INSERT INTO oauth_attempt (org_id, id, provider, owner, label, method, sealed, secret_id,
                         status, expires_ms, created_ms)
                     SELECT $1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $10
                     WHERE (SELECT count(*) FROM oauth_attempt
                         WHERE org_id = $1 AND expires_ms > $10 AND status = 'pending') < $11",
                    org.0,
                    new.id,
                    new.provider,
                    new.owner,
                    new.label,
                    new.method.as_str(),
                    new.sealed.bytes,
                    new.sealed.secret,
                    new.expires_ms,
                    now,
                    MAX_SIGN_INS,
                )
                .execute(&mut **tx)
                .await?;
                Ok(added.rows_affected() == 1)
            })
        })
        .await
    }

    /// A sign-in by its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none of this id.
    pub async fn sign_in(&self, org: OrgId, id: String) -> Result<SignIn, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, provider, owner, label, method, status, message, credential_id, expires_ms, sealed,
                         secret_id
                     FROM oauth_attempt WHERE org_id = $1 AND id = $2",
                    org.0,
                    id,
                )
                .fetch_optional(&mut **tx)
                .await?
                .ok_or(StoreError::NotFound)?;
                Ok(SignIn {
                    id: row.id,
                    provider: row.provider,
                    owner: row.owner,
                    label: row.label,
                    method: row.method.parse()?,
                    status: row.status.parse()?,
                    message: row.message,
                    credential: row.credential_id,
                    expires_ms: row.expires_ms,
                    sealed: Sealed { secret: row.secret_id, bytes: row.sealed },
                })
            })
        })
        .await
    }

    /// Asks to be the one that asks the provider about a sign-in, for `lease`: the device flow wants us to be patient,
    /// and a code is good once. `false`: another does, or it is not time yet, or the sign-in has ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_sign_in(
        &self,
        org: OrgId,
        id: String,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX / 2);
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let taken = sqlx::query!(
                    "UPDATE oauth_attempt SET ask_after_ms = clock_ms() + $3
                     WHERE org_id = $1 AND id = $2 AND status = 'pending' AND ask_after_ms <= clock_ms()",
                    org.0,
                    id,
                    lease,
                )
                .execute(&mut **tx)
                .await?;
                Ok(taken.rows_affected() == 1)
            })
        })
        .await
    }

    /// The provider is not asked about a sign-in again for `wait`. `sealed` replaces what it needs to go on.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn defer_sign_in(
        &self,
        org: OrgId,
        id: String,
        wait: Duration,
        sealed: Option<Sealed>,
    ) -> Result<(), StoreError> {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2);
        let (bytes, secret) = sealed.map(|sealed| (sealed.bytes, sealed.secret)).unzip();
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE oauth_attempt SET ask_after_ms = clock_ms() + $3, sealed = coalesce($4, sealed),
                         secret_id = coalesce($5, secret_id)
                     WHERE org_id = $1 AND id = $2 AND status = 'pending'",
                    org.0,
                    id,
                    wait,
                    bytes,
                    secret,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Ends a sign-in with the credential that came of it, both in one commit. Anything but [`Kept::Kept`] changed
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the sign-in has ended or is gone: nothing is kept.
    pub async fn complete_sign_in(
        &self,
        org: OrgId,
        id: String,
        new: NewCredential,
        now: TimestampMs,
    ) -> Result<Kept, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let kept = keep(tx, org, &new, now).await?;
                if kept == Kept::Kept {
                    let ended = sqlx::query!(
                        "UPDATE oauth_attempt SET status = $3, credential_id = $4, sealed = ''
                         WHERE org_id = $1 AND id = $2 AND status = 'pending'",
                        org.0,
                        id,
                        SignInStatus::Complete.as_str(),
                        new.id,
                    )
                    .execute(&mut **tx)
                    .await?;
                    if ended.rows_affected() == 0 {
                        return Err(StoreError::NotFound); // and the credential is not kept
                    }
                }
                Ok(kept)
            })
        })
        .await
    }

    /// Ends a sign-in that came to nothing; one that has ended stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fail_sign_in(
        &self,
        org: OrgId,
        id: String,
        message: String,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE oauth_attempt SET status = $3, message = $4, sealed = ''
                     WHERE org_id = $1 AND id = $2 AND status = 'pending'",
                    org.0,
                    id,
                    SignInStatus::Failed.as_str(),
                    message,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Forgets a sign-in.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none of this id.
    pub async fn remove_sign_in(&self, org: OrgId, id: String) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let removed = sqlx::query!(
                    "DELETE FROM oauth_attempt WHERE org_id = $1 AND id = $2",
                    org.0,
                    id
                )
                .execute(&mut **tx)
                .await?;
                if removed.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }
}
