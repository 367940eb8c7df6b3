//! Who acts, as a row has proved it: the only place that makes a [`Principal`].

use std::sync::Arc;

use access::{Actor, OrgRole, Scopes, Standing};
use domain::{Author, KeyId, LoginId, OrgId, TimestampMs};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::{Store, StoreError};

/// How long the former cookie of a login is good after the new one was shown: requests that were under way have it. Until the
/// new one is shown, the answer that brought it may be lost.
pub const FORMER_COOKIE: TimestampMs = 30_000;
/// How long a login lives without being used. Its cookie is replaced while it is used.
pub const LOGIN_IDLE: TimestampMs = 12 * 60 * 60 * 1000;

/// Somebody who acts for an organisation. Only a row of the database makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    org: OrgId,
    via: Via,
    standing: Standing,
}

/// The key or login that was shown to prove it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Via {
    /// An API key.
    Key(KeyId),
    /// A login in a browser.
    Login(LoginId),
}

impl Via {
    /// Returns the id of the key or login.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Key(id) => id.as_str(),
            Self::Login(id) => id.as_str(),
        }
    }
}

impl Principal {
    /// Returns the organisation. Every call of the store takes it.
    #[must_use]
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// Returns the key or login that proved it.
    #[must_use]
    pub fn via(&self) -> &Via {
        &self.via
    }

    /// Returns who acts, and how far it may go.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns what is written beside what it does.
    #[must_use]
    pub fn author(&self) -> Author {
        let actor = Some(self.standing.actor.id().to_owned());
        Author { key: self.via.id().to_owned(), actor }
    }
}

/// A key or login, for [`Store::proofs_of`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialInUse {
    /// Whose it is.
    pub org: OrgId,
    /// Which one.
    pub via: Via,
}

/// A secret that proves a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvingSecret {
    /// SHA-256 of the text.
    pub hash: Vec<u8>,
    /// The end of its grace, if another has taken its place.
    pub until_ms: Option<TimestampMs>,
}

/// A valid key or login: whom it proves, by which secrets, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Whom it proves.
    pub principal: Arc<Principal>,
    /// The secrets that are good now.
    pub secrets: Vec<ProvingSecret>,
    /// When it stops working.
    pub expires_ms: Option<TimestampMs>,
    /// When its secret was made, for a login.
    pub rotated_ms: Option<TimestampMs>,
    /// When its person last proved who they are, for a login.
    pub auth_ms: Option<TimestampMs>,
    /// Secrets of a login whose time is over. Who shows one of them has a copy of an old cookie.
    pub stale: Vec<Vec<u8>>,
    /// The newest cookie of a login, while nobody has shown it.
    pub unshown: Option<Vec<u8>>,
}

impl Proof {
    /// Returns whether a text with this hash proves it.
    #[must_use]
    pub fn is_proved_by(&self, hash: &[u8]) -> bool {
        // All are compared: which of them is equal is not to be measured either.
        let equal = |secret: &ProvingSecret| bool::from(secret.hash.as_slice().ct_eq(hash));
        self.secrets.iter().fold(false, |found, secret| found | equal(secret))
    }
}

impl Proof {
    /// Lets the former cookie of a login end soon, now that somebody shows the newest.
    pub fn end_former_cookie(&mut self, now: TimestampMs) {
        let newest = self.unshown.take();
        let former = self.secrets.iter_mut().filter(|secret| newest.as_ref() != Some(&secret.hash));
        former.for_each(|secret| secret.until_ms = Some(now + FORMER_COOKIE));
    }
}

/// A row of a valid key with one of its secrets.
struct KeyRow {
    org_id: Uuid,
    id: String,
    scopes: Vec<String>,
    expires_ms: Option<TimestampMs>,
    principal_id: String,
    role: Option<String>,
    hash: Option<Vec<u8>>,
    until_ms: Option<TimestampMs>,
}

/// A row of a login that has not ended.
struct LoginRow {
    org_id: Uuid,
    id: String,
    user_id: String,
    role: String,
    hash: Vec<u8>,
    former_hash: Option<Vec<u8>>,
    dropped_hash: Option<Vec<u8>>,
    rotated_ms: TimestampMs,
    shown_ms: Option<TimestampMs>,
    auth_ms: TimestampMs,
    expires_ms: TimestampMs,
}

impl Store {
    /// Finds the key with this id that a text with this hash proves; a look-up without a tenant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no valid key has both.
    pub async fn key_by_id(
        &self,
        id: KeyId,
        hash: Vec<u8>,
        now: TimestampMs,
    ) -> Result<Proof, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query_as!(
                        KeyRow,
                        r#"SELECT k.org_id, k.id, k.scopes, k.expires_ms,
                            coalesce(k.principal_id, 'svc_first') AS "principal_id!", p.role AS "role?",
                            s.hash AS "hash?", s.until_ms AS "until_ms?"
                        FROM key_secret s
                        JOIN api_key k ON k.org_id = s.org_id AND k.id = s.key_id
                        LEFT JOIN principal p ON p.org_id = k.org_id AND p.id = coalesce(k.principal_id, 'svc_first')
                        WHERE s.key_id = $1 AND k.revoked_ms IS NULL AND (k.expires_ms IS NULL OR k.expires_ms > $2)
                            AND p.disabled_ms IS NULL AND (s.until_ms IS NULL OR s.until_ms > $2)"#,
                        id.as_str(),
                        now,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let proofs = proofs_of_keys(rows)?;
                    proofs.into_iter().find(|proof| proof.is_proved_by(&hash)).ok_or(StoreError::NotFound)
                })
            })
            .await
    }

    /// Finds the key of before keys had ids in their texts that has this hash; a look-up without a tenant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no valid key has it.
    pub async fn key_by_hash(&self, hash: Vec<u8>, now: TimestampMs) -> Result<Proof, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query_as!(
                        KeyRow,
                        r#"SELECT k.org_id, k.id, k.scopes, k.expires_ms,
                            coalesce(k.principal_id, 'svc_first') AS "principal_id!", p.role AS "role?",
                            k.hash AS "hash?", NULL::bigint AS "until_ms?"
                        FROM api_key k
                        LEFT JOIN principal p ON p.org_id = k.org_id AND p.id = coalesce(k.principal_id, 'svc_first')
                        WHERE k.hash = $1 AND k.revoked_ms IS NULL AND (k.expires_ms IS NULL OR k.expires_ms > $2)
                            AND p.disabled_ms IS NULL"#,
                        hash,
                        now,
                    )
                    .fetch_optional(&mut *connection)
                    .await?;
                    proofs_of_keys(row)?.pop().ok_or(StoreError::NotFound)
                })
            })
            .await
    }

    /// Finds a login of an organisation that has not ended. The caller compares its secrets.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none, or its person is disabled.
    pub async fn login_by_id(
        &self,
        org: OrgId,
        id: LoginId,
        now: TimestampMs,
    ) -> Result<Proof, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query_as!(
                    LoginRow,
                    r#"SELECT l.org_id, l.id, l.user_id, p.role, l.hash, l.former_hash, l.dropped_hash,
                        l.rotated_ms, l.shown_ms, coalesce(l.auth_ms, l.created_ms) AS "auth_ms!", l.expires_ms
                    FROM login l JOIN principal p ON p.org_id = l.org_id AND p.id = l.user_id
                    WHERE l.org_id = $1 AND l.id = $2 AND l.ended_ms IS NULL AND l.expires_ms > $3
                        AND l.rotated_ms > $4 AND p.disabled_ms IS NULL"#,
                    org.0,
                    id.as_str(),
                    now,
                    now - LOGIN_IDLE,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                proof_of_login(row, now)
            })
        })
        .await
    }

    /// Asks again for credentials that are in use: whom each proves now. Those that are not valid any more are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn proofs_of(
        &self,
        credentials: Vec<CredentialInUse>,
        now: TimestampMs,
    ) -> Result<Vec<Proof>, StoreError> {
        let orgs: Vec<Uuid> = credentials.iter().map(|one| one.org.0).collect();
        let ids: Vec<String> = credentials.iter().map(|one| one.via.id().to_owned()).collect();
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    // One statement: keys without a secret of their own have it in their row.
                    let rows = sqlx::query!(
                        r#"SELECT k.org_id AS "org_id!", k.id AS "id!", k.scopes AS "scopes!", k.expires_ms,
                            coalesce(k.principal_id, 'svc_first') AS "owner!", p.role AS "role?",
                            coalesce(s.hash, k.hash) AS "hash?", s.until_ms AS "until_ms?",
                            NULL::bytea AS former_hash, NULL::bytea AS dropped_hash, NULL::bigint AS rotated_ms,
                            NULL::bigint AS shown_ms, NULL::bigint AS auth_ms
                        FROM unnest($1::uuid[], $2::text[]) AS w (org_id, id)
                        JOIN api_key k ON k.org_id = w.org_id AND k.id = w.id
                        LEFT JOIN principal p ON p.org_id = k.org_id AND p.id = coalesce(k.principal_id, 'svc_first')
                        LEFT JOIN key_secret s ON s.org_id = k.org_id AND s.key_id = k.id
                            AND (s.until_ms IS NULL OR s.until_ms > $3)
                        WHERE k.revoked_ms IS NULL AND (k.expires_ms IS NULL OR k.expires_ms > $3)
                            AND p.disabled_ms IS NULL
                        UNION ALL
                        SELECT l.org_id, l.id, ARRAY['*'], l.expires_ms, l.user_id, p.role, l.hash, NULL,
                            l.former_hash, l.dropped_hash, l.rotated_ms, l.shown_ms, coalesce(l.auth_ms, l.created_ms)
                        FROM unnest($1::uuid[], $2::text[]) AS w (org_id, id)
                        JOIN login l ON l.org_id = w.org_id AND l.id = w.id
                        JOIN principal p ON p.org_id = l.org_id AND p.id = l.user_id
                        WHERE l.ended_ms IS NULL AND l.expires_ms > $3 AND l.rotated_ms > $4
                            AND p.disabled_ms IS NULL"#,
                        &orgs,
                        &ids,
                        now,
                        now - LOGIN_IDLE,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let (mut keys, mut proofs) = (Vec::new(), Vec::new());
                    for row in rows {
                        match (row.rotated_ms, row.role, row.hash, row.expires_ms) {
                            (Some(rotated_ms), Some(role), Some(hash), Some(expires_ms)) => {
                                proofs.push(proof_of_login(
                                    LoginRow {
                                        org_id: row.org_id,
                                        id: row.id,
                                        user_id: row.owner,
                                        role,
                                        hash,
                                        former_hash: row.former_hash,
                                        dropped_hash: row.dropped_hash,
                                        rotated_ms,
                                        shown_ms: row.shown_ms,
                                        auth_ms: row.auth_ms.unwrap_or_default(),
                                        expires_ms,
                                    },
                                    now,
                                )?);
                            }
                            (_, role, hash, expires_ms) => keys.push(KeyRow {
                                org_id: row.org_id,
                                id: row.id,
                                scopes: row.scopes,
                                expires_ms,
                                principal_id: row.owner,
                                role,
                                hash,
                                until_ms: row.until_ms,
                            }),
                        }
                    }
                    proofs.extend(proofs_of_keys(keys)?);
                    Ok(proofs)
                })
            })
            .await
    }
}

/// Returns one proof for each key, with all its secrets.
fn proofs_of_keys(rows: impl IntoIterator<Item = KeyRow>) -> Result<Vec<Proof>, StoreError> {
    let mut proofs: Vec<Proof> = Vec::new();
    for row in rows {
        let (org, via) = (OrgId(row.org_id), Via::Key(row.id.parse()?));
        let secret = row.hash.map(|hash| ProvingSecret { hash, until_ms: row.until_ms });
        let known = proofs
            .iter_mut()
            .find(|proof| proof.principal.org == org && proof.principal.via == via);
        if let Some(known) = known {
            known.secrets.extend(secret);
            continue;
        }
        // The first service account is there before it has a row.
        let role = row.role.map_or(Ok(OrgRole::Admin), |role| read_role(&role))?;
        let scopes = Scopes::read(row.scopes.iter().map(String::as_str));
        let standing = Standing { actor: read_actor(&row.principal_id)?, role, scopes };
        proofs.push(Proof {
            principal: Arc::new(Principal { org, via, standing }),
            secrets: secret.into_iter().collect(),
            expires_ms: row.expires_ms,
            rotated_ms: None,
            auth_ms: None,
            stale: Vec::new(),
            unshown: None,
        });
    }
    Ok(proofs)
}

fn proof_of_login(row: LoginRow, now: TimestampMs) -> Result<Proof, StoreError> {
    let standing = Standing {
        actor: read_actor(&row.user_id)?,
        role: read_role(&row.role)?,
        scopes: Scopes::all(),
    };
    // One that replaces none has been shown: it was the answer to a login.
    let shown_ms = row.shown_ms.filter(|at| *at >= row.rotated_ms);
    let is_unshown = row.former_hash.is_some() && shown_ms.is_none();
    let until_ms = shown_ms.map(|at| at + FORMER_COOKIE);
    let is_stale = until_ms.is_some_and(|until| until <= now);
    let (stale, former): (Vec<_>, Vec<_>) = row.former_hash.into_iter().partition(|_| is_stale);
    let newest = ProvingSecret { hash: row.hash.clone(), until_ms: None };
    let former = former.into_iter().map(|hash| ProvingSecret { hash, until_ms });
    let secrets = std::iter::once(newest).chain(former);
    Ok(Proof {
        principal: Arc::new(Principal {
            org: OrgId(row.org_id),
            via: Via::Login(row.id.parse()?),
            standing,
        }),
        secrets: secrets.collect(),
        expires_ms: Some(row.expires_ms.min(row.rotated_ms + LOGIN_IDLE)),
        rotated_ms: Some(row.rotated_ms),
        auth_ms: Some(row.auth_ms),
        stale: stale.into_iter().chain(row.dropped_hash).collect(),
        unshown: is_unshown.then_some(row.hash),
    })
}

pub(crate) fn read_role(text: &str) -> Result<OrgRole, StoreError> {
    text.parse().map_err(|error: access::UnknownRole| StoreError::Unreadable(error.to_string()))
}

pub(crate) fn read_actor(text: &str) -> Result<Actor, StoreError> {
    text.parse()
        .map_err(|error: access::ActorError| StoreError::Unreadable(format!("{text}: {error}")))
}
