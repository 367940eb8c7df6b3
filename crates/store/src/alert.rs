//! Alerts: what all owners of an organisation are told of, in the transaction that does it.

use access::Actor;
use domain::{AlertId, IdMint, OrgId, Stamp, TimestampMs, UserId};

use crate::pool::Tx;
use crate::principal::read_actor;
use crate::{Store, StoreError};

/// The subject of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertKind {
    /// People can sign in by another identity provider from now on.
    SsoActivated,
    /// An owner has new recovery codes.
    RecoveryMade,
    /// Somebody has got in with a recovery code.
    RecoveryUsed,
}

impl AlertKind {
    /// Returns the stored form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SsoActivated => "sso.activated",
            Self::RecoveryMade => "recovery.made",
            Self::RecoveryUsed => "recovery.used",
        }
    }
}

/// An alert to be stored.
#[derive(Debug, Clone)]
pub struct NewAlert {
    /// Its subject.
    pub kind: AlertKind,
    /// The actor that did it.
    pub by: Actor,
    /// JSON, which the store does not read.
    pub about: String,
}

/// An alert of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRow {
    /// Its id.
    pub id: AlertId,
    /// When it happened.
    pub at_ms: TimestampMs,
    /// When the owner said that they have read it.
    pub read_ms: Option<TimestampMs>,
    /// The stored form of an [`AlertKind`]; a newer build has others.
    pub kind: String,
    /// The actor that did it.
    pub by: Actor,
    /// Their name.
    pub by_name: Option<String>,
    /// JSON.
    pub about: String,
}

/// The most alerts that an owner keeps. The oldest are forgotten.
pub const MAX_ALERTS: i64 = 100;

/// Tells all owners.
pub(crate) async fn tell_owners(
    tx: &mut Tx,
    org: OrgId,
    alert: &NewAlert,
    now: TimestampMs,
) -> Result<(), StoreError> {
    let id = AlertId::mint(&mut IdMint::after(Stamp::default(), now));
    sqlx::query!(
        "INSERT INTO alert (org_id, user_id, id, at_ms, kind, by_id, about)
        SELECT p.org_id, p.id, $2, $3, $4, $5, $6 FROM principal p
        WHERE p.org_id = $1 AND p.role = 'owner' AND p.disabled_ms IS NULL AND starts_with(p.id, 'usr_')",
        org.0,
        id.as_str(),
        now,
        alert.kind.as_str(),
        alert.by.id(),
        alert.about,
    )
    .execute(&mut **tx)
    .await?;
    sqlx::query!(
        "DELETE FROM alert a WHERE a.org_id = $1 AND a.id <= (SELECT b.id FROM alert b
            WHERE b.org_id = a.org_id AND b.user_id = a.user_id ORDER BY b.id DESC OFFSET $2 LIMIT 1)",
        org.0,
        MAX_ALERTS,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Returns a person's alerts, the newest first, at most [`MAX_ALERTS`].
    ///
    /// # Errors
    /// When the database fails.
    pub async fn alerts(&self, org: OrgId, user: UserId) -> Result<Vec<AlertRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT a.id, a.at_ms, a.read_ms, a.kind, a.by_id, p.name AS "name?", a.about FROM alert a
                    LEFT JOIN principal p ON p.org_id = a.org_id AND p.id = a.by_id
                    WHERE a.org_id = $1 AND a.user_id = $2 ORDER BY a.id DESC LIMIT $3"#,
                    org.0,
                    user.as_str(),
                    MAX_ALERTS,
                )
                .fetch_all(&mut *connection)
                .await?;
                let rows = rows.into_iter().map(|row| {
                    Ok(AlertRow {
                        id: row.id.parse()?,
                        at_ms: row.at_ms,
                        read_ms: row.read_ms,
                        kind: row.kind,
                        by: read_actor(&row.by_id)?,
                        by_name: row.name,
                        about: row.about,
                    })
                });
                rows.collect()
            })
        })
        .await
    }

    /// Notes that a person has read an alert of theirs. One that is read stays so.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when they have no such alert.
    pub async fn note_alert_read(
        &self,
        org: OrgId,
        user: UserId,
        id: AlertId,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let read = sqlx::query!(
                    "UPDATE alert SET read_ms = coalesce(read_ms, $4) WHERE org_id = $1 AND user_id = $2 AND id = $3",
                    org.0,
                    user.as_str(),
                    id.as_str(),
                    now,
                )
                .execute(&mut **tx)
                .await?;
                if read.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }
}
