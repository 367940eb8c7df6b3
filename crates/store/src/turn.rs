use domain::{AttemptId, OrgId, Seq, SessionId, TurnId, TurnUsage};

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
    /// What it cost in nano-USD.
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
    /// What its requests are for.
    pub kind: TurnKind,
    /// What its attempts used.
    pub usage: TurnUsage,
}

/// What the requests of a turn are for.
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

impl Store {
    /// The attempt that `id` names, or the last attempt of the turn that it names.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it is neither.
    pub async fn attempt(&self, org: OrgId, id: String) -> Result<AttemptRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT * FROM provider_attempt WHERE org_id = $1 AND (id = $2 OR turn_id = $2)
                 ORDER BY ordinal DESC LIMIT 1",
                    org.0,
                    id,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                Ok(AttemptRow {
                    id: row.id.parse()?,
                    session: row.session_id.parse()?,
                    turn: row.turn_id.parse()?,
                    ordinal: row.ordinal,
                    seq: Seq(row.seq),
                    wire_version: row.wire_version,
                    body_hash: row.body_hash,
                    epoch: row.epoch,
                    through: Seq(row.through_seq),
                    components: row.components,
                    outcome: row.outcome,
                    estimate: row.price_version.zip(row.estimate_nanos),
                    tokens: row.input_tokens.zip(row.output_tokens),
                    cost: row.cost_nanos,
                })
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
                "SELECT id, seq, status, outcome, kind, input_tokens, output_tokens, reasoning_tokens,
                     cache_read_tokens, cache_write_tokens, cost_nanos FROM provider_turn
                 WHERE org_id = $1 AND session_id = $2 ORDER BY seq",
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
                            input: row.input_tokens,
                            output: row.output_tokens,
                            reasoning: row.reasoning_tokens,
                            cache_read: row.cache_read_tokens,
                            cache_write: row.cache_write_tokens,
                            cost: row.cost_nanos,
                        },
                    })
                })
                .collect()
            })
        })
        .await
    }
}
