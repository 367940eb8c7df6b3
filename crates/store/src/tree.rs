//! Sessions below sessions: children, and what a whole tree has used.

use std::collections::BTreeSet;

use domain::{OrgId, SessionId, SessionRef, TurnUsage};

use crate::session::session_row;
use crate::tenant::missing;
use crate::{SessionRow, Store, StoreError};

/// Generations below a session without a parent.
pub const MAX_DEPTH: i32 = 5;
/// Children of one session.
pub const MAX_CHILDREN: i32 = 100;

/// The usage of a session and of the sessions below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeUsage {
    /// The session alone.
    pub session: TurnUsage,
    /// With all its descendants.
    pub tree: TurnUsage,
    /// How many sessions that are.
    pub sessions: i64,
    /// The expected costs of the session's own requests.
    pub session_expected: Expected,
    /// With those of all its descendants.
    pub tree_expected: Expected,
}

/// The most that requests were expected to cost before they were sent: those whose models have prices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    /// In nano-USD.
    pub nanos: i64,
    /// The tables of the prices, each once.
    pub price_versions: BTreeSet<String>,
}

impl Expected {
    fn add(&mut self, nanos: i64, version: &str) {
        self.nanos = self.nanos.saturating_add(nanos);
        self.price_versions.insert(version.to_owned());
    }
}

impl Store {
    /// A session's children, newest first. One round trip.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn children(
        &self,
        org: OrgId,
        session: SessionId,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.lane(org).run(move |connection| Box::pin(async move {
            let rows = sqlx::query!(
                r#"SELECT id AS "id!", location_id AS "location_id!", project_id AS "project_id!",
                       directory AS "directory!", title AS "title!", agent AS "agent!", provider, model,
                       created_ms AS "created_ms!", updated_ms AS "updated_ms!", outcome,
                       input_tokens AS "input_tokens!", output_tokens AS "output_tokens!",
                       reasoning_tokens AS "reasoning_tokens!",
                       cache_read_tokens AS "cache_read_tokens!",
                       cache_write_tokens AS "cache_write_tokens!", ready AS "ready!",
                       next_seq AS "next_seq!", cost_nanos AS "cost_nanos!", parent_id, compacting_ms,
                       fork_of, revert, variant, notices, archived_ms, metadata
                   FROM list_children($1, $2)"#,
                org.0,
                session.as_str(),
            )
            .fetch_all(&mut *connection)
            .await
            .map_err(missing)?;
            rows.into_iter().map(|row| session_row!(org, row.id.parse()?, row)).collect()
        })).await
    }

    /// A session and all below it, in no order; none when it is not there.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn session_tree(
        &self,
        org: OrgId,
        session: SessionId,
    ) -> Result<Vec<SessionRef>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT h.id, h.location_id FROM session_tree($1, $2) AS t
                     JOIN session_head h ON h.org_id = $1 AND h.id = t",
                    org.0,
                    session.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        let (location, session) = (row.location_id.parse()?, row.id.parse()?);
                        Ok(SessionRef { org, location, session })
                    })
                    .collect()
            })
        })
        .await
    }

    /// The usage of a session, alone and with all below it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn tree_usage(
        &self,
        org: OrgId,
        session: SessionId,
    ) -> Result<TreeUsage, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT s.id, s.input_tokens, s.output_tokens, s.reasoning_tokens,
                         s.cache_read_tokens, s.cache_write_tokens, s.cost_nanos
                     FROM session_tree($1, $2) AS t JOIN session s ON s.org_id = $1 AND s.id = t",
                    org.0,
                    session.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                let mut tree = TurnUsage::default();
                let mut own = None;
                let mut sessions = 0;
                for row in rows {
                    let used = TurnUsage {
                        input: row.input_tokens,
                        output: row.output_tokens,
                        reasoning: row.reasoning_tokens,
                        cache_read: row.cache_read_tokens,
                        cache_write: row.cache_write_tokens,
                        cost: row.cost_nanos,
                    };
                    if row.id == session.as_str() {
                        own = Some(used);
                    }
                    tree = tree.plus(used);
                    sessions += 1;
                }
                let own = own.ok_or(StoreError::NotFound)?;
                let rows = sqlx::query!(
                    r#"SELECT s.id AS session_id, a.price_version AS "price_version!",
                         least(sum(a.estimate_nanos), 9223372036854775807)::bigint AS "nanos!"
                     FROM session_tree($1, $2) AS t JOIN session s ON s.org_id = $1 AND s.id = t
                     JOIN provider_attempt a ON a.org_id = $1 AND a.incarnation = s.incarnation
                     WHERE a.price_version IS NOT NULL GROUP BY s.id, a.price_version"#,
                    org.0,
                    session.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                let (mut session_expected, mut tree_expected) =
                    (Expected::default(), Expected::default());
                for row in rows {
                    if row.session_id == session.as_str() {
                        session_expected.add(row.nanos, &row.price_version);
                    }
                    tree_expected.add(row.nanos, &row.price_version);
                }
                Ok(TreeUsage { session: own, tree, sessions, session_expected, tree_expected })
            })
        })
        .await
    }
}
