//! People and service accounts of an organisation.

use access::{Actor, OrgRole};
use domain::{OrgId, TimestampMs, UserId};

use crate::pool::Tx;
use crate::principal::{read_actor, read_role};
use crate::seen_roles::lock_role;
use crate::{SeenRoles, Store, StoreError, revocation};

/// A person or service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalRow {
    /// Who it is.
    pub actor: Actor,
    /// Its role.
    pub role: OrgRole,
    /// Its name; people give themselves one at their first login.
    pub name: Option<String>,
    /// For people to read.
    pub email: Option<String>,
    /// When it was made.
    pub created_ms: TimestampMs,
    /// Since when it is disabled.
    pub disabled_ms: Option<TimestampMs>,
    /// Within a minute, when it last did something.
    pub seen_ms: Option<TimestampMs>,
}

/// A change of a person or service account. A field that is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct PrincipalChange {
    /// The new role.
    pub role: Option<OrgRole>,
    /// Whether it is disabled.
    pub disabled: Option<bool>,
    /// Its name.
    pub name: Option<String>,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalChanged {
    /// It is so now.
    Done(PrincipalRow),
    /// It would have left the organisation without an owner.
    LastOwner,
}

/// An organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrganisationRow {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_ms: TimestampMs,
}

struct Row {
    id: String,
    role: String,
    name: Option<String>,
    email: Option<String>,
    created_ms: TimestampMs,
    disabled_ms: Option<TimestampMs>,
    seen_ms: Option<TimestampMs>,
}

impl TryFrom<Row> for PrincipalRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            actor: read_actor(&row.id)?,
            role: read_role(&row.role)?,
            name: row.name,
            email: row.email,
            created_ms: row.created_ms,
            disabled_ms: row.disabled_ms,
            seen_ms: row.seen_ms,
        })
    }
}

/// The most people and service accounts of an organisation in one list.
const MOST: i64 = 1_000;

impl Store {
    /// Returns an organisation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn organisation(&self, org: OrgId) -> Result<OrganisationRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                sqlx::query_as!(
                    OrganisationRow,
                    "SELECT name, created_ms FROM organisation WHERE org_id = $1",
                    org.0,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)
            })
        })
        .await
    }

    /// Returns the organisation's first owner that is not disabled. Makes `new` one if there is none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ensure_owner(
        &self,
        org: OrgId,
        new: UserId,
        now: TimestampMs,
    ) -> Result<UserId, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org).await?;
                let known = sqlx::query_scalar!(
                    "SELECT id FROM principal WHERE org_id = $1 AND role = 'owner' AND disabled_ms IS NULL
                        AND starts_with(id, 'usr_') ORDER BY created_ms, id LIMIT 1",
                    org.0,
                )
                .fetch_optional(&mut **tx)
                .await?;
                if let Some(known) = known {
                    return Ok(known.parse()?);
                }
                insert(tx, org, &Actor::User(new.clone()), OrgRole::Owner, None, now).await?;
                Ok(new)
            })
        })
        .await
    }

    /// Adds a person or service account.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id is taken.
    pub async fn create_principal(
        &self,
        org: OrgId,
        actor: Actor,
        role: OrgRole,
        name: Option<String>,
        now: TimestampMs,
    ) -> Result<PrincipalRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                insert(tx, org, &actor, role, name, now).await?;
                find(tx, org, &actor).await
            })
        })
        .await
    }

    /// Returns a person or service account.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn principal(&self, org: OrgId, actor: Actor) -> Result<PrincipalRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query_as!(
                    Row,
                    "SELECT id, role, name, email, created_ms, disabled_ms, seen_ms FROM principal
                    WHERE org_id = $1 AND id = $2",
                    org.0,
                    actor.id(),
                )
                .fetch_optional(&mut *connection)
                .await?;
                row.ok_or(StoreError::NotFound)?.try_into()
            })
        })
        .await
    }

    /// Returns the people and service accounts of an organisation by their age, at most 1,000.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn principals(&self, org: OrgId) -> Result<Vec<PrincipalRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    Row,
                    "SELECT id, role, name, email, created_ms, disabled_ms, seen_ms FROM principal
                    WHERE org_id = $1 ORDER BY created_ms, id LIMIT $2",
                    org.0,
                    MOST,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter().map(PrincipalRow::try_from).collect()
            })
        })
        .await
    }

    /// Changes a person or service account. An organisation that has an owner keeps one: changes wait for each other.
    /// Who is disabled loses its logins in the same transaction, and what it admitted is stopped. `seen` are the roles on
    /// which the change was allowed; `None` for a change that everybody may make, such as one's own name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none; [`StoreError::RolesChanged`] when `seen` does not hold any more.
    pub async fn change_principal(
        &self,
        org: OrgId,
        actor: Actor,
        change: PrincipalChange,
        seen: Option<SeenRoles>,
        now: TimestampMs,
    ) -> Result<PrincipalChanged, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                lock(tx, org).await?;
                // A sign-in by a connection gives roles too, and locks the person alone.
                lock_role(tx, org, &actor).await?;
                if let Some(seen) = seen {
                    seen.prove_maker(tx, org).await?;
                    seen.prove_target(tx, org, &actor).await?;
                }
                let before = find(tx, org, &actor).await?;
                let was_owner = before.role == OrgRole::Owner && before.disabled_ms.is_none();
                let loses_role = change.role.is_some_and(|role| role != OrgRole::Owner);
                if was_owner && (loses_role || change.disabled == Some(true)) && owners(tx, org).await? <= 1 {
                    return Ok(PrincipalChanged::LastOwner);
                }
                let role = change.role.unwrap_or(before.role);
                let disabled_ms = match change.disabled {
                    None => before.disabled_ms,
                    Some(false) => None,
                    Some(true) => Some(before.disabled_ms.unwrap_or(now)),
                };
                sqlx::query!(
                    "UPDATE principal SET role = $3, disabled_ms = $4, name = coalesce($5, name)
                    WHERE org_id = $1 AND id = $2",
                    org.0,
                    actor.id(),
                    role.as_str(),
                    disabled_ms,
                    change.name,
                )
                .execute(&mut **tx)
                .await?;
                if disabled_ms.is_some() {
                    sqlx::query!(
                        "UPDATE login SET ended_ms = $3 WHERE org_id = $1 AND user_id = $2 AND ended_ms IS NULL",
                        org.0,
                        actor.id(),
                        now,
                    )
                    .execute(&mut **tx)
                    .await?;
                }
                match change.disabled {
                    Some(true) => revocation::ask(tx, org, actor.id(), now).await?,
                    Some(false) => revocation::forget(tx, org, actor.id()).await?,
                    None => {}
                }
                Ok(PrincipalChanged::Done(find(tx, org, &actor).await?))
            })
        })
        .await
    }
}

/// Makes changes of an organisation's people wait for each other: two owners cannot remove one another.
async fn lock(tx: &mut Tx, org: OrgId) -> Result<(), StoreError> {
    let found = sqlx::query_scalar!(
        r#"SELECT 1 AS "one!" FROM organisation WHERE org_id = $1 FOR UPDATE"#,
        org.0,
    )
    .fetch_optional(&mut **tx)
    .await?;
    found.map(drop).ok_or(StoreError::NotFound)
}

async fn owners(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM principal
        WHERE org_id = $1 AND role = 'owner' AND disabled_ms IS NULL AND starts_with(id, 'usr_')"#,
        org.0,
    )
    .fetch_one(&mut **tx)
    .await?)
}

async fn insert(
    tx: &mut Tx,
    org: OrgId,
    actor: &Actor,
    role: OrgRole,
    name: Option<String>,
    now: TimestampMs,
) -> Result<(), StoreError> {
    let added = sqlx::query!(
        "INSERT INTO principal (org_id, id, role, name, created_ms) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT DO NOTHING",
        org.0,
        actor.id(),
        role.as_str(),
        name,
        now,
    )
    .execute(&mut **tx)
    .await?;
    if added.rows_affected() == 0 {
        return Err(StoreError::Conflict { what: "a person or service account with this id" });
    }
    Ok(())
}

async fn find(tx: &mut Tx, org: OrgId, actor: &Actor) -> Result<PrincipalRow, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, role, name, email, created_ms, disabled_ms, seen_ms FROM principal
        WHERE org_id = $1 AND id = $2",
        org.0,
        actor.id(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    row.ok_or(StoreError::NotFound)?.try_into()
}
