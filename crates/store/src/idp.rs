//! Connections of organisations to identity providers.

use domain::{IdpId, OrgId, TimestampMs};
use uuid::Uuid;

use crate::alert::{NewAlert, tell_owners};
use crate::login::end_begun_by;
use crate::pool::Tx;
use crate::{Sealed, Store, StoreError};

/// The most connections of an organisation.
pub const MAX_IDPS: i64 = 10;

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdpRow {
    /// Its id.
    pub id: IdpId,
    /// Its name, for people; unique in the organisation.
    pub name: String,
    /// The provider's issuer. It never changes.
    pub issuer: String,
    /// Our client there.
    pub client_id: String,
    /// The client's secret, bound to the connection and `version`; `None` for a public client.
    pub sealed: Option<Sealed>,
    /// Counts up with the secret.
    pub version: i64,
    /// JSON, which the store does not read.
    pub rules: String,
    /// Whether people may sign in by it.
    pub is_active: bool,
    /// The algorithm of the token that the last test saw.
    pub algorithm: Option<String>,
    /// JSON: what the last test saw.
    pub report: Option<String>,
    /// When a test last succeeded with the connection as it is.
    pub tested_ms: Option<TimestampMs>,
    /// When it was made.
    pub created_ms: TimestampMs,
}

/// A change of a connection. What is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct IdpChange {
    /// Another name.
    pub name: Option<String>,
    /// Another client. The connection has to be tested again.
    pub client_id: Option<String>,
    /// Another secret, sealed for the version after the present one; `Some(None)` for a client without one.
    pub secret: Option<Option<Sealed>>,
    /// Other rules.
    pub rules: Option<String>,
}

/// The reason why a change of connections is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdpRefused {
    /// Another connection has the name.
    #[error("another connection has this name; choose another")]
    NameTaken,
    /// There are too many.
    #[error("an organisation has at most {MAX_IDPS} connections; delete one first")]
    TooMany,
    /// The client of an active connection would change.
    #[error(
        "the client of an active connection does not change, since providers name people by client; make another \
         connection, test and activate it, and delete this one"
    )]
    ClientOfActive,
    /// Somebody else has changed the secret meanwhile.
    #[error("somebody has just set another secret; look at the connection and try again")]
    SecretChanged,
    /// It was not tested.
    #[error("no test has succeeded with this connection; test it first")]
    Untested,
}

/// A connection as somebody may see it who has not signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdpOffer {
    /// Its id.
    pub id: IdpId,
    /// Its name.
    pub name: String,
}

struct Row {
    id: String,
    name: String,
    issuer: String,
    client_id: String,
    sealed: Option<Vec<u8>>,
    secret_id: Option<i32>,
    version: i64,
    rules: String,
    is_active: bool,
    algorithm: Option<String>,
    report: Option<String>,
    tested_ms: Option<TimestampMs>,
    created_ms: TimestampMs,
}

impl TryFrom<Row> for IdpRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let sealed = row.sealed.zip(row.secret_id);
        Ok(Self {
            id: row.id.parse()?,
            name: row.name,
            issuer: row.issuer,
            client_id: row.client_id,
            sealed: sealed.map(|(bytes, secret)| Sealed { secret, bytes }),
            version: row.version,
            rules: row.rules,
            is_active: row.is_active,
            algorithm: row.algorithm,
            report: row.report,
            tested_ms: row.tested_ms,
            created_ms: row.created_ms,
        })
    }
}

impl Store {
    /// Returns the organisation of a connection; a look-up without a tenant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such connection.
    pub async fn organisation_of_idp(&self, id: IdpId) -> Result<OrgId, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let org =
                        sqlx::query_scalar!("SELECT org_id FROM idp WHERE id = $1", id.as_str())
                            .fetch_optional(&mut *connection)
                            .await?;
                    org.map(OrgId).ok_or(StoreError::NotFound)
                })
            })
            .await
    }

    /// Returns the active connections of an organisation, or, without one, those of the only organisation that the
    /// service has. With several, a stranger is not told who they are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn offered_idps(&self, org: Option<OrgId>) -> Result<Vec<IdpOffer>, StoreError> {
        let org: Option<Uuid> = org.map(|org| org.0);
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "SELECT id, name FROM idp WHERE is_active AND (org_id = $1
                            OR $1::uuid IS NULL AND (SELECT count(*) FROM (SELECT FROM organisation LIMIT 2) o) = 1)
                        ORDER BY name LIMIT $2",
                        org,
                        MAX_IDPS,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let offers = rows.into_iter().map(|row| Ok(IdpOffer { id: row.id.parse()?, name: row.name }));
                    offers.collect()
                })
            })
            .await
    }

    /// Adds a connection, which is not active.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_idp(
        &self,
        org: OrgId,
        new: IdpRow,
    ) -> Result<Result<IdpRow, IdpRefused>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let many = sqlx::query_scalar!(
                    r#"SELECT count(*) AS "count!" FROM idp WHERE org_id = $1"#,
                    org.0
                )
                .fetch_one(&mut **tx)
                .await?;
                if many >= MAX_IDPS {
                    return Ok(Err(IdpRefused::TooMany));
                }
                if is_taken(tx, org, &new.name, &new.id).await? {
                    return Ok(Err(IdpRefused::NameTaken));
                }
                sqlx::query!(
                    "INSERT INTO idp (org_id, id, name, issuer, client_id, sealed, secret_id, version, rules, is_active,
                        created_ms)
                    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false, $10)",
                    org.0,
                    new.id.as_str(),
                    new.name,
                    new.issuer,
                    new.client_id,
                    new.sealed.as_ref().map(|sealed| sealed.bytes.as_slice()),
                    new.sealed.as_ref().map(|sealed| sealed.secret),
                    new.version,
                    new.rules,
                    new.created_ms,
                )
                .execute(&mut **tx)
                .await?;
                Ok(Ok(new))
            })
        })
        .await
    }

    /// Returns an organisation's connections by name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn idps(&self, org: OrgId) -> Result<Vec<IdpRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    Row,
                    "SELECT id, name, issuer, client_id, sealed, secret_id, version, rules, is_active, algorithm, report,
                        tested_ms, created_ms FROM idp WHERE org_id = $1 ORDER BY name LIMIT $2",
                    org.0,
                    MAX_IDPS,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter().map(IdpRow::try_from).collect()
            })
        })
        .await
    }

    /// Returns a connection.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn idp(&self, org: OrgId, id: IdpId) -> Result<IdpRow, StoreError> {
        self.in_tenant(org, move |tx| Box::pin(async move { find(tx, org, &id).await })).await
    }

    /// Changes a connection, whose secret has the number `version`. Another client, or another secret of one that is not
    /// active, has to be tested again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn change_idp(
        &self,
        org: OrgId,
        id: IdpId,
        version: i64,
        change: IdpChange,
    ) -> Result<Result<IdpRow, IdpRefused>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org, &id).await?;
                let before = find(tx, org, &id).await?;
                if let Some(name) = &change.name
                    && is_taken(tx, org, name, &id).await?
                {
                    return Ok(Err(IdpRefused::NameTaken));
                }
                let other_client = change.client_id.as_ref().is_some_and(|client| *client != before.client_id);
                if before.is_active && other_client {
                    return Ok(Err(IdpRefused::ClientOfActive));
                }
                if change.secret.is_some() && before.version != version {
                    return Ok(Err(IdpRefused::SecretChanged));
                }
                let untested = !before.is_active && (other_client || change.secret.is_some());
                let has_secret = change.secret.is_some();
                let sealed = change.secret.unwrap_or(before.sealed);
                sqlx::query!(
                    "UPDATE idp SET name = $3, client_id = $4, sealed = $5, secret_id = $6, rules = $7,
                        version = version + CASE WHEN $8 THEN 1 ELSE 0 END,
                        tested_ms = CASE WHEN $9 THEN NULL ELSE tested_ms END,
                        algorithm = CASE WHEN $9 THEN NULL ELSE algorithm END
                    WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    change.name.unwrap_or(before.name),
                    change.client_id.unwrap_or(before.client_id),
                    sealed.as_ref().map(|sealed| sealed.bytes.as_slice()),
                    sealed.as_ref().map(|sealed| sealed.secret),
                    change.rules.unwrap_or(before.rules),
                    has_secret,
                    untested,
                )
                .execute(&mut **tx)
                .await?;
                Ok(Ok(find(tx, org, &id).await?))
            })
        })
        .await
    }

    /// Keeps what a test saw. `algorithm`: the test succeeded, with a token that this algorithm signed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_idp_report(
        &self,
        org: OrgId,
        id: IdpId,
        version: i64,
        report: String,
        algorithm: Option<&'static str>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                // A test of another secret than the present one proves nothing about it.
                sqlx::query!(
                    "UPDATE idp SET report = $3,
                        tested_ms = CASE WHEN $4::text IS NULL OR version <> $6 THEN tested_ms ELSE $5 END,
                        algorithm = CASE WHEN is_active OR version <> $6 THEN algorithm ELSE coalesce($4, algorithm) END
                    WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    report,
                    algorithm,
                    now,
                    version,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Lets people sign in by a connection that was tested, from now on with the algorithm of the test alone, and tells
    /// all owners. One that is active stays so, and nobody is told again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn activate_idp(
        &self,
        org: OrgId,
        id: IdpId,
        alert: NewAlert,
        now: TimestampMs,
    ) -> Result<Result<IdpRow, IdpRefused>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let activated = sqlx::query!(
                    "UPDATE idp SET is_active = true
                    WHERE org_id = $1 AND id = $2 AND tested_ms IS NOT NULL AND algorithm IS NOT NULL AND NOT is_active",
                    org.0,
                    id.as_str(),
                )
                .execute(&mut **tx)
                .await?;
                let row = find(tx, org, &id).await?;
                if activated.rows_affected() == 1 {
                    tell_owners(tx, org, &alert, now).await?;
                }
                Ok(if row.is_active { Ok(row) } else { Err(IdpRefused::Untested) })
            })
        })
        .await
    }

    /// Deletes a connection, with whom it vouches for. The logins that began there end; the people stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn delete_idp(
        &self,
        org: OrgId,
        id: IdpId,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org, &id).await?;
                let ended = sqlx::query_scalar!(
                    "UPDATE login l SET ended_ms = $3 FROM idp_login i
                    WHERE i.org_id = $1 AND i.idp_id = $2 AND l.org_id = $1 AND l.id = i.login_id AND l.ended_ms IS NULL
                    RETURNING l.id",
                    org.0,
                    id.as_str(),
                    now,
                )
                .fetch_all(&mut **tx)
                .await?;
                end_begun_by(tx, org, ended, None, now).await?;
                sqlx::query!("DELETE FROM idp WHERE org_id = $1 AND id = $2", org.0, id.as_str())
                    .execute(&mut **tx)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Keeps the hash of the ticket that begins the next test. An older ticket ends.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such connection.
    pub async fn set_idp_ticket(
        &self,
        org: OrgId,
        id: IdpId,
        hash: Vec<u8>,
        until: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let set = sqlx::query!(
                    "UPDATE idp SET ticket_hash = $3, ticket_until_ms = $4, report = NULL WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    hash,
                    until,
                )
                .execute(&mut **tx)
                .await?;
                if set.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }

    /// Uses a ticket up. Returns whether it was good.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_idp_ticket(
        &self,
        org: OrgId,
        id: IdpId,
        hash: Vec<u8>,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let taken = sqlx::query!(
                    "UPDATE idp SET ticket_hash = NULL, ticket_until_ms = NULL
                    WHERE org_id = $1 AND id = $2 AND ticket_hash = $3 AND ticket_until_ms > $4",
                    org.0,
                    id.as_str(),
                    hash,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(taken.rows_affected() == 1)
            })
        })
        .await
    }
}

async fn lock(tx: &mut Tx, org: OrgId, id: &IdpId) -> Result<(), StoreError> {
    let found = sqlx::query_scalar!(
        r#"SELECT 1 AS "one!" FROM idp WHERE org_id = $1 AND id = $2 FOR UPDATE"#,
        org.0,
        id.as_str(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    found.map(drop).ok_or(StoreError::NotFound)
}

async fn find(tx: &mut Tx, org: OrgId, id: &IdpId) -> Result<IdpRow, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, name, issuer, client_id, sealed, secret_id, version, rules, is_active, algorithm, report, tested_ms,
            created_ms FROM idp WHERE org_id = $1 AND id = $2",
        org.0,
        id.as_str(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    row.ok_or(StoreError::NotFound)?.try_into()
}

async fn is_taken(tx: &mut Tx, org: OrgId, name: &str, own: &IdpId) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM idp WHERE org_id = $1 AND name = $2 AND id <> $3) AS "taken!""#,
        org.0,
        name,
        own.as_str(),
    )
    .fetch_one(&mut **tx)
    .await?)
}
