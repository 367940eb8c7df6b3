//! Whether a secret that somebody shows is known at all: asked for many together, before one of them is looked up. So a
//! flood of made-up secrets costs a few statements, and nobody waits behind it.

use domain::{KeyId, LoginId, OrgId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::batch::{Answers, Call};
use crate::{Store, StoreError};

/// A secret that somebody has shown, and that nothing has proved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownSecret {
    /// A key that names its id, by its SHA-256.
    Key(KeyId, Vec<u8>),
    /// A key of before keys had ids in their texts.
    OldKey(Vec<u8>),
    /// The cookie of a login: the one now, or the one before.
    Cookie(OrgId, LoginId, Vec<u8>),
    /// A login link that names its id, by the SHA-256 of its token.
    Link(OrgId, String, Vec<u8>),
    /// A recovery code.
    Code(Vec<u8>),
}

impl ShownSecret {
    /// Returns it as the statement reads it: kind, organisation, id and hash.
    fn columns(&self) -> (&'static str, Uuid, &str, &[u8]) {
        match self {
            Self::Key(id, hash) => ("key", Uuid::nil(), id.as_str(), hash),
            Self::OldKey(hash) => ("old-key", Uuid::nil(), "", hash),
            Self::Cookie(org, id, hash) => ("cookie", org.0, id.as_str(), hash),
            Self::Link(org, id, hash) => ("link", org.0, id, hash),
            Self::Code(hash) => ("code", Uuid::nil(), "", hash),
        }
    }
}

impl Store {
    /// Returns whether a row has a secret, be it valid or not. Secrets that are asked for together share a statement.
    ///
    /// # Errors
    /// When the database fails, or too many wait.
    pub async fn knows_secret(&self, secret: ShownSecret) -> Result<bool, StoreError> {
        let (_, is_known) = self.secrets().ask(secret).await?;
        is_known.ok_or_else(|| sqlx::Error::PoolTimedOut.into())
    }
}

impl Call for ShownSecret {
    type Answer = bool;

    const MAY_REPEAT: bool = true;
    /// Lookups and sweeps have the other connections.
    const FLIGHTS: usize = 1;

    fn organisation(&self) -> Option<OrgId> {
        None
    }

    fn goes_with(&self, _: &Self) -> bool {
        true
    }

    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, bool> {
        Box::pin(async move {
            let columns = || calls.iter().map(Self::columns);
            let kinds: Vec<String> = columns().map(|(kind, ..)| kind.to_owned()).collect();
            let orgs: Vec<Uuid> = columns().map(|(_, org, ..)| org).collect();
            let ids: Vec<String> = columns().map(|(.., id, _)| id.to_owned()).collect();
            let hashes: Vec<Vec<u8>> = columns().map(|(.., hash)| hash.to_vec()).collect();
            let known = sqlx::query_scalar!(
                r#"SELECT CASE w.kind
                        WHEN 'key' THEN EXISTS (SELECT FROM key_secret s WHERE s.key_id = w.id AND s.hash = w.hash)
                        WHEN 'old-key' THEN EXISTS (SELECT FROM api_key k WHERE k.hash = w.hash)
                        WHEN 'cookie' THEN EXISTS (SELECT FROM login l WHERE l.org_id = w.org_id AND l.id = w.id
                            AND (l.hash = w.hash OR l.former_hash = w.hash))
                        WHEN 'link' THEN EXISTS (SELECT FROM login_link k WHERE k.org_id = w.org_id AND k.id = w.id
                            AND k.hash = w.hash)
                        WHEN 'code' THEN EXISTS (SELECT FROM recovery_code c WHERE c.hash = w.hash)
                        ELSE false
                    END AS "known!"
                FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) WITH ORDINALITY
                    AS w (kind, org_id, id, hash, n) ORDER BY w.n"#,
                &kinds,
                &orgs,
                &ids,
                &hashes,
            )
            .fetch_all(connection)
            .await?;
            Ok(known.into_iter().map(Some).collect())
        })
    }
}
