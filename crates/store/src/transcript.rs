use domain::{
    CallId, MessageId, ModelRef, OrgId, PartId, Seq, SessionError, SessionId, TimestampMs, TurnId,
    TurnUsage,
};

use crate::tenant::missing;
use crate::{Store, StoreError};

/// A message of a session as its projection holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Its place in the log.
    pub seq: Seq,
    /// `user`, `assistant`, `notice` or `checkpoint`.
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
    /// Why the model stopped, the notice's kind, or why a checkpoint was made.
    pub finish: Option<String>,
    /// Why it failed.
    pub error: Option<SessionError>,
    /// What it used.
    pub usage: TurnUsage,
    /// Set when no user wrote it: what it is, for people.
    pub synthetic: Option<String>,
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

/// A message from a row of `read_messages`, without its parts.
macro_rules! message_row {
    ($row:ident) => {
        MessageRow {
            id: $row.id.parse()?,
            seq: Seq($row.seq),
            role: $row.role,
            parent: $row.parent_id.map(|id| id.parse()).transpose()?,
            turn: $row.turn_id.map(|id| id.parse()).transpose()?,
            agent: $row.agent,
            model: $row
                .provider
                .zip($row.model)
                .map(|(provider, model)| ModelRef::new(provider, model)),
            created_ms: $row.created_ms,
            completed_ms: $row.completed_ms,
            finish: $row.finish,
            error: $row
                .error_code
                .zip($row.error_message)
                .map(|(code, message)| SessionError { code, message }),
            usage: TurnUsage {
                input: $row.input_tokens,
                output: $row.output_tokens,
                reasoning: $row.reasoning_tokens,
                cache_read: $row.cache_read_tokens,
                cache_write: $row.cache_write_tokens,
                cost: $row.cost_nanos,
            },
            synthetic: $row.synthetic,
            parts: Vec::new(),
        }
    };
}

/// The call of a row of `read_messages`, if it has one.
macro_rules! call_row {
    ($row:ident) => {
        match ($row.call_id, $row.provider_call, $row.tool, $row.state, $row.arguments) {
            (Some(id), Some(provider_call), Some(tool), Some(state), Some(arguments)) => {
                Some(CallRow {
                    id: id.parse()?,
                    provider_call,
                    tool,
                    state,
                    arguments,
                    called_ms: $row.called_ms.unwrap_or_default(),
                    outcome: $row.outcome,
                    title: $row.title,
                    output: $row.bounded_text,
                    structured: $row.structured,
                    managed_path: $row.managed_path,
                    truncated: $row.truncated,
                    started_ms: $row.started_ms,
                    ended_ms: $row.ended_ms,
                })
            }
            _ => None,
        }
    };
}

impl Store {
    /// The newest `limit` messages of a session, oldest first; with `message`, only that one. One round
    /// trip.
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
        self.lane().run(move |connection| Box::pin(async move {
            let rows = sqlx::query!(
                r#"SELECT id AS "id!", seq AS "seq!", role AS "role!", parent_id, turn_id, agent, provider,
                       model, created_ms AS "created_ms!", completed_ms, finish, error_code, error_message,
                       input_tokens AS "input_tokens!", output_tokens AS "output_tokens!",
                       reasoning_tokens AS "reasoning_tokens!",
                       cache_read_tokens AS "cache_read_tokens!",
                       cache_write_tokens AS "cache_write_tokens!", part_id, kind, text, call_id,
                       provider_call, tool, state, arguments, called_ms, outcome, title, bounded_text,
                       structured, managed_path, truncated, started_ms, ended_ms,
                       cost_nanos AS "cost_nanos!", synthetic
                   FROM read_messages($1, $2, $3, $4)"#,
                org.0,
                session.as_str(),
                message.as_ref().map(MessageId::as_str),
                limit,
            )
            .fetch_all(&mut *connection)
            .await
            .map_err(missing)?;
            let mut messages: Vec<MessageRow> = Vec::new();
            for row in rows {
                let part = match (row.part_id, row.kind) {
                    (Some(id), Some(kind)) => {
                        Some(PartRow { id: id.parse()?, kind, text: row.text, call: call_row!(row) })
                    }
                    _ => None,
                };
                if messages.last().is_none_or(|last| last.id.as_str() != row.id) {
                    messages.push(message_row!(row));
                }
                if let Some(last) = messages.last_mut() {
                    last.parts.extend(part);
                }
            }
            Ok(Transcript { messages })
        })).await
    }
}
