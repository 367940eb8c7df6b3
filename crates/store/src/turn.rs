use domain::{AttemptId, ComponentList, OrgId, Seq, SessionEvent, SessionId, TurnId, TurnUsage};

use sqlx::PgConnection;

use crate::{Store, StoreError};

/// A physical attempt, with all that rebuilds its request next to the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// Its id.
    pub id: AttemptId,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// 1 for the turn's first.
    pub ordinal: i32,
    /// Its place in the log.
    pub seq: Seq,
    /// The encoder that made the body.
    pub wire_version: i32,
    /// SHA-256 of the body, hex.
    pub body_hash: String,
    /// The Context Epoch.
    pub epoch: i32,
    /// The history is the fold of events up to here.
    pub through: Seq,
    /// Component name → hash, as JSON text.
    pub components: String,
    /// How it ended; `None` while it runs.
    pub outcome: Option<String>,
    /// The table of prices that it is paid with, and the most that it was expected to cost, in nano-USD; none of a
    /// model without prices.
    pub estimate: Option<(String, i64)>,
    /// Tokens of input and output, as far as the provider counted them.
    pub tokens: Option<(i64, i64)>,
    /// Its cost in nano-USD.
    pub cost: Option<i64>,
}

/// A Provider Turn as its projection holds it, or a compaction or a title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Its id.
    pub id: TurnId,
    /// Its place in the log.
    pub seq: Seq,
    /// `open`, `replied` or `settled`.
    pub status: String,
    /// How it ended.
    pub outcome: Option<String>,
    /// The purpose of its requests.
    pub kind: TurnKind,
    /// The usage of its attempts.
    pub usage: TurnUsage,
}

/// The purpose of a turn's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    /// A turn of the conversation.
    Turn,
    /// A summary that replaces the older part of it.
    Compaction,
    /// A title.
    Title,
}

fn kind(word: &str) -> Result<TurnKind, StoreError> {
    match word {
        "turn" => Ok(TurnKind::Turn),
        "compaction" => Ok(TurnKind::Compaction),
        "title" => Ok(TurnKind::Title),
        other => Err(StoreError::Unreadable(format!("turn kind {other}"))),
    }
}

/// A stored list of components, as JSON text.
async fn list(connection: &mut PgConnection, org: OrgId, hash: &str) -> Result<String, StoreError> {
    let unreadable =
        |why: &dyn std::fmt::Display| StoreError::Unreadable(format!("components {hash}: {why}"));
    let hash = hex::decode(hash).map_err(|error| unreadable(&error))?;
    let bytes = sqlx::query_scalar!(
        "SELECT bytes FROM request_component WHERE org_id = $1 AND hash = $2",
        org.0,
        hash,
    )
    .fetch_optional(connection)
    .await?;
    let bytes = bytes.ok_or_else(|| unreadable(&"they are not stored"))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

impl Store {
    /// The attempt that `id` names, or the last attempt of the turn that it names.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it is neither.
    pub async fn attempt(&self, org: OrgId, id: String) -> Result<AttemptRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT a.id, a.seq::bigint AS "seq!", a.price_version, a.estimate_nanos, s.id AS session_id,
                           began.kind, began.version, began.payload, ended.outcome AS "outcome?",
                           ended.input AS "input?", ended.output AS "output?", ended.cost AS "cost?"
                       FROM provider_attempt a
                       JOIN session s ON s.org_id = a.org_id AND s.incarnation = a.incarnation
                       JOIN session_event began ON began.incarnation = a.incarnation AND began.seq = a.seq
                       LEFT JOIN LATERAL (SELECT e.payload::json->>'outcome' AS outcome,
                               (e.payload::json#>>'{usage,input}')::bigint AS input,
                               (e.payload::json#>>'{usage,output}')::bigint AS output,
                               (e.payload::json#>>'{usage,cost}')::bigint AS cost
                           FROM session_event e
                           WHERE e.incarnation = a.incarnation AND e.seq > a.seq AND e.kind = 'attempt.ended'
                               AND e.payload::json->>'attempt' = a.id
                           ORDER BY e.seq LIMIT 1) AS ended ON true
                       WHERE a.org_id = $1 AND (a.id = $2 OR a.turn_id = $2 AND a.incarnation =
                           (SELECT t.incarnation FROM provider_turn t WHERE t.org_id = $1 AND t.id = $2))
                       ORDER BY a.seq DESC LIMIT 1"#,
                    org.0,
                    id,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                let event = SessionEvent::read(&row.kind, row.version, &row.payload)?;
                let SessionEvent::AttemptStarted(began) = event else {
                    return Err(StoreError::Unreadable(format!("the attempt {} is a {}", row.id, row.kind)));
                };
                let components = match &began.components {
                    ComponentList::Inline(names) => serde_json::to_string(names)
                        .map_err(|error| StoreError::Unreadable(error.to_string()))?,
                    ComponentList::Stored(hash) => list(&mut *connection, org, hash).await?,
                };
                Ok(AttemptRow {
                    id: began.attempt,
                    session: row.session_id.parse()?,
                    turn: began.turn,
                    ordinal: began.ordinal,
                    seq: Seq(row.seq),
                    wire_version: i32::try_from(began.wire_version).unwrap_or(i32::MAX),
                    body_hash: began.body_hash,
                    epoch: began.epoch,
                    through: began.through,
                    components,
                    outcome: row.outcome,
                    estimate: row.price_version.zip(row.estimate_nanos),
                    tokens: row.input.zip(row.output),
                    cost: row.cost,
                })
            })
        })
        .await
    }

    /// The newest request of a turn in each session that has one, of the sessions after `after` by id: at most `limit`
    /// sessions are looked at. Returns the last session that was, `None` at the end.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn newest_attempts(
        &self,
        org: OrgId,
        after: Option<SessionId>,
        limit: i64,
    ) -> Result<(Vec<(SessionId, AttemptId)>, Option<SessionId>), StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT h.id, (SELECT a.id FROM provider_attempt a
                           JOIN provider_turn t ON t.org_id = a.org_id AND t.id = a.turn_id AND t.kind = 'turn'
                           WHERE a.org_id = $1 AND a.incarnation = h.incarnation ORDER BY a.seq DESC LIMIT 1) AS attempt
                       FROM session_head h WHERE h.org_id = $1 AND h.id > $2 ORDER BY h.id LIMIT $3"#,
                    org.0,
                    after.as_ref().map_or("", SessionId::as_str),
                    limit,
                )
                .fetch_all(&mut *connection)
                .await?;
                let last = rows.last().map(|row| row.id.parse()).transpose()?;
                let mut newest = Vec::new();
                for row in rows {
                    if let Some(attempt) = row.attempt {
                        newest.push((row.id.parse()?, attempt.parse()?));
                    }
                }
                Ok((newest, last))
            })
        })
        .await
    }

    /// A session's turns, compactions and titles, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn turns(&self, org: OrgId, session: SessionId) -> Result<Vec<TurnRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
            let rows = sqlx::query!(
                r#"SELECT id, seq::bigint AS "seq!", status, outcome, kind, input_tokens, output_tokens, reasoning_tokens,
                     cache_read_tokens, cache_write_tokens, cost_nanos FROM provider_turn
                 WHERE org_id = $1
                     AND incarnation = (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2)
                 ORDER BY seq"#,
                org.0,
                session.as_str(),
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter()
                .map(|row| {
                    Ok(TurnRow {
                        id: row.id.parse()?,
                        seq: Seq(row.seq),
                        status: row.status,
                        outcome: row.outcome,
                        kind: kind(&row.kind)?,
                        usage: TurnUsage {
                            input: row.input_tokens.unwrap_or_default(),
                            output: row.output_tokens.unwrap_or_default(),
                            reasoning: row.reasoning_tokens.unwrap_or_default(),
                            cache_read: row.cache_read_tokens.unwrap_or_default(),
                            cache_write: row.cache_write_tokens.unwrap_or_default(),
                            cost: row.cost_nanos.unwrap_or_default(),
                        },
                    })
                })
                .collect()
            })
        })
        .await
    }
}
