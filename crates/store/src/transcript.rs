use std::collections::BTreeMap;

use domain::{
    CallId, MessageId, ModelRef, OrgId, PartId, Seq, SessionError, SessionId, TimestampMs, TurnId,
    TurnUsage,
};

use crate::{Store, StoreError};

/// A message of a session as its projection holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Its place in the log.
    pub seq: Seq,
    /// `user`, `assistant` or `notice`.
    pub role: String,
    /// The user message that an assistant's answers.
    pub parent: Option<MessageId>,
    /// The turn that wrote it.
    pub turn: Option<TurnId>,
    /// The agent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<ModelRef>,
    /// When it began; for a prompt, when it was admitted.
    pub created_ms: TimestampMs,
    /// When it was complete.
    pub completed_ms: Option<TimestampMs>,
    /// Why the model stopped, or the notice's kind.
    pub finish: Option<String>,
    /// Why it failed.
    pub error: Option<SessionError>,
    /// What it used.
    pub usage: TurnUsage,
    /// Its parts, in order.
    pub parts: Vec<PartRow>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRow {
    /// Its id.
    pub id: PartId,
    /// `text`, `reasoning` or `tool`.
    pub kind: String,
    /// Its text.
    pub text: Option<String>,
    /// Its call, for a tool part.
    pub call: Option<CallRow>,
}

/// A tool call as its projection holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    /// Its id.
    pub id: CallId,
    /// The model's id for it.
    pub provider_call: String,
    /// The tool.
    pub tool: String,
    /// `intended`, `started` or `settled`.
    pub state: String,
    /// The model's argument bytes.
    pub arguments: String,
    /// When it was called.
    pub called_ms: TimestampMs,
    /// How it ended.
    pub outcome: Option<String>,
    /// One line for people.
    pub title: Option<String>,
    /// What the model was told.
    pub output: Option<String>,
    /// The validated structured result, as JSON text.
    pub structured: Option<String>,
    /// Where the complete text is.
    pub managed_path: Option<String>,
    /// Whether `output` leaves something out.
    pub truncated: Option<bool>,
    /// When its body began.
    pub started_ms: Option<TimestampMs>,
    /// When it ended.
    pub ended_ms: Option<TimestampMs>,
}

/// A session's messages, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The messages.
    pub messages: Vec<MessageRow>,
}

impl Store {
    /// The newest `limit` messages of a session, oldest first; with `message`, only that one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session, or without the message asked for.
    pub async fn transcript(
        &self,
        org: OrgId,
        session: SessionId,
        message: Option<MessageId>,
        limit: i64,
    ) -> Result<Transcript, StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.tenant(org).await?;
            let ids: Vec<String> = match &message {
                Some(message) => vec![message.to_string()],
                None => {
                    sqlx::query_scalar!(
                        "SELECT id FROM message WHERE org_id = $1 AND session_id = $2
                         ORDER BY seq DESC LIMIT $3",
                        org.0,
                        session.as_str(),
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?
                }
            };
            // By their ids alone: with the session too, one message could cost a read of all of them.
            let mut rows = sqlx::query!(
                "SELECT * FROM message WHERE org_id = $1 AND id = ANY($2) ORDER BY seq",
                org.0,
                &ids,
            )
            .fetch_all(&mut *tx)
            .await?;
            rows.retain(|row| row.session_id == session.as_str());
            if rows.is_empty() {
                let there = sqlx::query_scalar!(
                    "SELECT 1 AS one FROM session_head WHERE org_id = $1 AND id = $2",
                    org.0,
                    session.as_str(),
                )
                .fetch_optional(&mut *tx)
                .await?;
                return match (there, &message) {
                    (None, _) | (_, Some(_)) => Err(StoreError::NotFound),
                    (Some(_), None) => Ok(Transcript { messages: Vec::new() }),
                };
            }
            let parts = sqlx::query!(
                r#"SELECT p.id, p.message_id, p.kind, p.text, c.id AS "call_id?",
                       c.provider_call AS "provider_call?", c.tool AS "tool?", c.state AS "state?",
                       c.arguments AS "arguments?", c.called_ms AS "called_ms?", c.outcome, c.title,
                       c.bounded_text, c.structured, c.managed_path, c.truncated, c.started_ms, c.ended_ms
                   FROM part p LEFT JOIN tool_result c ON c.org_id = p.org_id AND c.id = p.call_id
                   WHERE p.org_id = $1 AND p.session_id = $2 AND p.message_id = ANY($3)
                   ORDER BY p.message_id, p.place, p.seq, p.id"#,
                org.0,
                session.as_str(),
                &ids,
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            let mut by_message: BTreeMap<String, Vec<PartRow>> = BTreeMap::new();
            for row in parts {
                let call = match (row.call_id, row.provider_call, row.tool, row.state, row.arguments) {
                    (Some(id), Some(provider_call), Some(tool), Some(state), Some(arguments)) => {
                        Some(CallRow {
                            id: id.parse()?,
                            provider_call,
                            tool,
                            state,
                            arguments,
                            called_ms: row.called_ms.unwrap_or_default(),
                            outcome: row.outcome,
                            title: row.title,
                            output: row.bounded_text,
                            structured: row.structured,
                            managed_path: row.managed_path,
                            truncated: row.truncated,
                            started_ms: row.started_ms,
                            ended_ms: row.ended_ms,
                        })
                    }
                    _ => None,
                };
                let part = PartRow { id: row.id.parse()?, kind: row.kind, text: row.text, call };
                by_message.entry(row.message_id).or_default().push(part);
            }
            let messages = rows
                .into_iter()
                .map(|row| {
                    Ok(MessageRow {
                        parts: by_message.remove(&row.id).unwrap_or_default(),
                        id: row.id.parse()?,
                        seq: Seq(row.seq),
                        role: row.role,
                        parent: row.parent_id.map(|id| id.parse()).transpose()?,
                        turn: row.turn_id.map(|id| id.parse()).transpose()?,
                        agent: row.agent,
                        model: row
                            .provider
                            .zip(row.model)
                            .map(|(provider, model)| ModelRef { provider, model }),
                        created_ms: row.created_ms,
                        completed_ms: row.completed_ms,
                        finish: row.finish,
                        error: row
                            .error_code
                            .zip(row.error_message)
                            .map(|(code, message)| SessionError { code, message }),
                        usage: TurnUsage {
                            input: row.input_tokens,
                            output: row.output_tokens,
                            reasoning: row.reasoning_tokens,
                            cache_read: row.cache_read_tokens,
                            cache_write: row.cache_write_tokens,
                        },
                    })
                })
                .collect::<Result<Vec<_>, StoreError>>()?;
            Ok(Transcript { messages })
        })
        .await
    }
}
