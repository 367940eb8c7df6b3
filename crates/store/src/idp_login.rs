//! Sign-ins at identity providers, and the people whom these vouch for.

use access::OrgRole;
use domain::{IdpId, LoginId, OrgId, TimestampMs, UserId};

use crate::pool::Tx;
use crate::principal::read_role;
use crate::{Sealed, Store, StoreError};

/// The most used sign-ins of a connection that are remembered.
const MAX_ATTEMPTS: i64 = 5_000;

/// The purpose of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// It begins a login.
    Login,
    /// This person, who is logged in, will also be known by the connection.
    Link(UserId),
    /// It only shows what would happen.
    Test,
}

impl Purpose {
    fn read(purpose: &str, user: Option<String>) -> Result<Self, StoreError> {
        match (purpose, user) {
            ("login", None) => Ok(Self::Login),
            ("test", None) => Ok(Self::Test),
            ("link", Some(user)) => Ok(Self::Link(user.parse()?)),
            (other, _) => Err(StoreError::Unreadable(format!("a sign-in for `{other}`"))),
        }
    }
}

/// A sign-in whose browser is at the provider, as a gateway of the build before keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginAttempt {
    /// The connection.
    pub idp: IdpId,
    /// SHA-256 of the state that comes back.
    pub state: Vec<u8>,
    /// SHA-256 of the cookie of the browser that began.
    pub browser: Vec<u8>,
    /// The purpose.
    pub purpose: Purpose,
    /// The page to come back to.
    pub return_to: String,
    /// Its secrets.
    pub sealed: Sealed,
    /// When it is too late to come back.
    pub expires_ms: TimestampMs,
    /// The login that the browser had when it began.
    pub former: Option<LoginId>,
}

/// A person whom a provider has signed in.
#[derive(Debug, Clone)]
pub struct VouchedPerson {
    /// The provider's name for them, which never changes.
    pub subject: String,
    /// For people to read.
    pub name: Option<String>,
    /// For people to read. Nobody is found by it.
    pub email: Option<String>,
    /// The role that the connection gives; less than an owner's.
    pub role: OrgRole,
    /// The role counts at every sign-in, not only at the first.
    pub is_mapped: bool,
}

/// A person whom a connection knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPerson {
    /// Who it is.
    pub user: UserId,
    /// Their role.
    pub role: OrgRole,
    /// Whether they may sign in.
    pub is_disabled: bool,
}

/// The outcome of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// The person is known, or has just joined.
    Good {
        /// Who it is.
        user: UserId,
        /// Whether they have just joined.
        is_new: bool,
    },
    /// The person is known and disabled.
    Disabled,
}

/// The outcome of linking a connection's person to somebody who is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// It is so now.
    Good,
    /// The connection's person is somebody else already.
    Other,
    /// Whoever is logged in is disabled.
    Disabled,
}

impl Store {
    /// Uses a sign-in up that its browser carries: of requests that bring the same state back, one gets `true`. Until it is
    /// too late for that state, a row says that it was used. Rows that are over are forgotten, and of more than 5,000 the
    /// oldest: nobody waits for another's rows, and whoever repeats a sign-in that is forgotten meets the provider.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn use_login_attempt(
        &self,
        org: OrgId,
        idp: IdpId,
        state: Vec<u8>,
        secret: i32,
        expires_ms: TimestampMs,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "DELETE FROM login_attempt d WHERE d.org_id = $1 AND d.idp_id = $2 AND d.state_hash IN (
                        SELECT a.state_hash FROM login_attempt a WHERE a.org_id = $1 AND a.idp_id = $2
                            AND (a.expires_ms <= $3 OR a.expires_ms <= (
                                SELECT b.expires_ms FROM login_attempt b WHERE b.org_id = $1 AND b.idp_id = $2
                                ORDER BY b.expires_ms DESC OFFSET $4 LIMIT 1))
                        ORDER BY a.expires_ms LIMIT 100 FOR UPDATE SKIP LOCKED)",
                    org.0,
                    idp.as_str(),
                    now,
                    MAX_ATTEMPTS,
                )
                .execute(&mut **tx)
                .await?;
                let used = sqlx::query!(
                    "INSERT INTO login_attempt (org_id, idp_id, state_hash, browser_hash, purpose, return_to, sealed,
                        secret_id, expires_ms)
                    SELECT $1, i.id, $3, '', 'login', '', '', $4, $5 FROM idp i WHERE i.org_id = $1 AND i.id = $2
                    ON CONFLICT DO NOTHING",
                    org.0,
                    idp.as_str(),
                    state,
                    secret,
                    expires_ms,
                )
                .execute(&mut **tx)
                .await?;
                Ok(used.rows_affected() > 0)
            })
        })
        .await
    }

    /// Uses a sign-in up that a gateway of the build before keeps: of browsers that bring the same state back, one gets it. `None`: there is none of this
    /// connection, state and browser, or it is too late.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_login_attempt(
        &self,
        org: OrgId,
        idp: IdpId,
        state: Vec<u8>,
        browser: Vec<u8>,
        now: TimestampMs,
    ) -> Result<Option<LoginAttempt>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "DELETE FROM login_attempt WHERE org_id = $1 AND idp_id = $2 AND state_hash = $3
                        AND browser_hash = $4 AND expires_ms > $5
                    RETURNING purpose, user_id, return_to, sealed, secret_id, expires_ms, former_id",
                    org.0,
                    idp.as_str(),
                    state,
                    browser,
                    now,
                )
                .fetch_optional(&mut **tx)
                .await?;
                let Some(row) = row else { return Ok(None) };
                Ok(Some(LoginAttempt {
                    idp,
                    state,
                    browser,
                    purpose: Purpose::read(&row.purpose, row.user_id)?,
                    return_to: row.return_to,
                    sealed: Sealed { secret: row.secret_id, bytes: row.sealed },
                    expires_ms: row.expires_ms,
                    former: row.former_id.map(|id| id.parse()).transpose()?,
                }))
            })
        })
        .await
    }

    /// Returns the person whom a connection names so. Changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn known_person(
        &self,
        org: OrgId,
        idp: IdpId,
        subject: String,
    ) -> Result<Option<KnownPerson>, StoreError> {
        self.in_tenant(org, move |tx| Box::pin(async move { known(tx, org, &idp, &subject).await }))
            .await
    }

    /// Finds the person whom a connection has signed in, or makes them with the id `new`. A mapped role is given to
    /// everybody but owners. Sign-ins of one organisation wait for each other, so one person joins once.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the connection was deleted meanwhile.
    pub async fn join_by_idp(
        &self,
        org: OrgId,
        idp: IdpId,
        person: VouchedPerson,
        new: UserId,
        now: TimestampMs,
    ) -> Result<Joined, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org, &idp).await?;
                // A mapping can name no owner; nobody else may here either.
                let role = person.role.min(OrgRole::Admin);
                let Some(before) = known(tx, org, &idp, &person.subject).await? else {
                    sqlx::query!(
                        "INSERT INTO principal (org_id, id, role, name, email, created_ms)
                        VALUES ($1, $2, $3, $4, $5, $6)",
                        org.0,
                        new.as_str(),
                        role.as_str(),
                        person.name,
                        person.email,
                        now,
                    )
                    .execute(&mut **tx)
                    .await?;
                    identify(tx, org, &idp, &person.subject, &new, now).await?;
                    return Ok(Joined::Good { user: new, is_new: true });
                };
                if before.is_disabled {
                    return Ok(Joined::Disabled);
                }
                let role = if person.is_mapped && before.role != OrgRole::Owner { role } else { before.role };
                sqlx::query!(
                    "UPDATE principal SET role = $3, name = coalesce(name, $4), email = coalesce($5, email)
                    WHERE org_id = $1 AND id = $2",
                    org.0,
                    before.user.as_str(),
                    role.as_str(),
                    person.name,
                    person.email,
                )
                .execute(&mut **tx)
                .await?;
                identify(tx, org, &idp, &person.subject, &before.user, now).await?;
                Ok(Joined::Good { user: before.user, is_new: false })
            })
        })
        .await
    }

    /// Makes a connection's person somebody who is logged in.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the connection was deleted meanwhile.
    pub async fn link_by_idp(
        &self,
        org: OrgId,
        idp: IdpId,
        subject: String,
        user: UserId,
        now: TimestampMs,
    ) -> Result<Linked, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org, &idp).await?;
                if let Some(before) = known(tx, org, &idp, &subject).await? {
                    return Ok(if before.user == user { Linked::Good } else { Linked::Other });
                }
                let enabled = sqlx::query_scalar!(
                    r#"SELECT EXISTS (SELECT FROM principal WHERE org_id = $1 AND id = $2 AND disabled_ms IS NULL)
                        AS "enabled!""#,
                    org.0,
                    user.as_str(),
                )
                .fetch_one(&mut **tx)
                .await?;
                if !enabled {
                    return Ok(Linked::Disabled);
                }
                identify(tx, org, &idp, &subject, &user, now).await?;
                Ok(Linked::Good)
            })
        })
        .await
    }

    /// Notes that a login began at a connection, with the provider's token.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_idp_login(
        &self,
        org: OrgId,
        idp: IdpId,
        login: LoginId,
        sealed: Sealed,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                // Whoever has deleted the connection meanwhile has not seen this login.
                lock(tx, org, &idp).await?;
                sqlx::query!(
                    "INSERT INTO idp_login (org_id, login_id, idp_id, sealed, secret_id) VALUES ($1, $2, $3, $4, $5)",
                    org.0,
                    login.as_str(),
                    idp.as_str(),
                    sealed.bytes,
                    sealed.secret,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Returns the connection at which a login began, with the provider's token.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn idp_of_login(
        &self,
        org: OrgId,
        login: LoginId,
    ) -> Result<Option<(IdpId, Sealed)>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT idp_id, sealed, secret_id FROM idp_login WHERE org_id = $1 AND login_id = $2",
                    org.0,
                    login.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?;
                let Some(row) = row else { return Ok(None) };
                Ok(Some((row.idp_id.parse()?, Sealed { secret: row.secret_id, bytes: row.sealed })))
            })
        })
        .await
    }
}

/// Makes sign-ins at a connection wait for each other, and for its deletion.
async fn lock(tx: &mut Tx, org: OrgId, idp: &IdpId) -> Result<(), StoreError> {
    let found = sqlx::query_scalar!(
        r#"SELECT 1 AS "one!" FROM idp WHERE org_id = $1 AND id = $2 FOR UPDATE"#,
        org.0,
        idp.as_str(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    found.map(drop).ok_or(StoreError::NotFound)
}

async fn known(
    tx: &mut Tx,
    org: OrgId,
    idp: &IdpId,
    subject: &str,
) -> Result<Option<KnownPerson>, StoreError> {
    let row = sqlx::query!(
        "SELECT p.id, p.role, p.disabled_ms FROM idp_identity i
        JOIN principal p ON p.org_id = i.org_id AND p.id = i.user_id
        WHERE i.org_id = $1 AND i.idp_id = $2 AND i.subject = $3 FOR UPDATE OF p",
        org.0,
        idp.as_str(),
        subject,
    )
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let (user, role) = (row.id.parse()?, read_role(&row.role)?);
    Ok(Some(KnownPerson { user, role, is_disabled: row.disabled_ms.is_some() }))
}

async fn identify(
    tx: &mut Tx,
    org: OrgId,
    idp: &IdpId,
    subject: &str,
    user: &UserId,
    now: TimestampMs,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO idp_identity (org_id, idp_id, subject, user_id, created_ms, seen_ms)
        VALUES ($1, $2, $3, $4, $5, $5)
        ON CONFLICT (org_id, idp_id, subject) DO UPDATE SET seen_ms = excluded.seen_ms",
        org.0,
        idp.as_str(),
        subject,
        user.as_str(),
        now,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}
