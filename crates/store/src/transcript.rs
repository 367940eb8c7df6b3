use domain::{
    CallId, IdError, MessageId, MessageRole, ModelRef, OrgId, PartId, PartKind, Seq, SessionError,
    SessionId, Stored, TimestampMs, ToolOutcomeKind, ToolState, TurnId, TurnUsage,
};
use serde::Deserialize;

use crate::page::{MAX_ROWS, MESSAGE_PAGE_BYTES};
use crate::tenant::missing;
use crate::{Store, StoreError};

/// A message of a session as its projection holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Its place in the log.
    pub seq: Seq,
    /// Whose it is.
    pub role: Stored<MessageRole>,
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
    /// Its usage.
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
    /// Text, reasoning or a tool call.
    pub kind: Stored<PartKind>,
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
    /// How far it has come.
    pub state: Stored<ToolState>,
    /// The model's argument bytes.
    pub arguments: String,
    /// When it was called.
    pub called_ms: TimestampMs,
    /// How it ended.
    pub outcome: Option<Stored<ToolOutcomeKind>>,
    /// One line for people.
    pub title: Option<String>,
    /// The text for the model.
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
    /// Its provider ran it.
    pub hosted: bool,
}

impl CallRow {
    /// A call that the provider ran, shown by `part` of a message that began at `began`. Its outcome is not known.
    ///
    /// # Errors
    /// Never for the id of a part.
    pub fn hosted(
        part: &PartId,
        began: TimestampMs,
        call: &str,
        name: &str,
        input: &str,
    ) -> Result<Self, IdError> {
        let own = part.as_str().get(PartId::PREFIX.len()..).unwrap_or_default();
        Ok(Self {
            id: format!("{}{own}", CallId::PREFIX).parse()?,
            provider_call: call.to_owned(),
            tool: name.to_owned(),
            state: ToolState::Started.into(),
            arguments: input.to_owned(),
            called_ms: began,
            outcome: None,
            title: None,
            output: None,
            structured: None,
            managed_path: None,
            truncated: None,
            started_ms: None,
            ended_ms: None,
            hosted: true,
        })
    }

    /// Says what came of it, if the provider ran it under this id.
    pub fn told(&mut self, call: &str, output: &str, is_error: bool) -> bool {
        let is_it = self.hosted && self.provider_call == call && self.outcome.is_none();
        if is_it {
            let outcome =
                if is_error { ToolOutcomeKind::Failed } else { ToolOutcomeKind::Completed };
            self.state = ToolState::Settled.into();
            self.outcome = Some(outcome.into());
            self.output = Some(output.to_owned());
        }
        is_it
    }
}

/// A call that a provider ran, as the text of its part.
#[derive(Deserialize)]
struct HostedCall {
    call: String,
    name: String,
    input: String,
}

/// The outcome of one, as the text of its part.
#[derive(Deserialize)]
struct HostedResult {
    call: String,
    output: String,
    #[serde(default)]
    is_error: bool,
}

/// Which messages of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Messages {
    /// The newest.
    Newest,
    /// The newest of those before this one.
    Before(MessageId),
    /// This one.
    One(MessageId),
}

/// A session's messages, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The messages.
    pub messages: Vec<MessageRow>,
    /// There may be older ones.
    pub older: bool,
}

/// A message from a row of `read_messages`, without its parts.
macro_rules! message_row {
    ($row:ident) => {
        MessageRow {
            id: $row.id.parse()?,
            seq: Seq($row.seq),
            role: $row.role.into(),
            parent: $row.parent_id.map(|id| id.parse()).transpose()?,
            turn: $row.turn_id.map(|id| id.parse()).transpose()?,
            agent: $row.agent,
            model: $row.provider.zip($row.model).map(|(provider, model)| ModelRef {
                provider,
                model,
                variant: $row.variant,
            }),
            created_ms: $row.created_ms,
            completed_ms: $row.completed_ms,
            finish: $row.finish,
            error: $row
                .error_code
                .zip($row.error_message)
                .map(|(code, message)| SessionError { code: code.into(), message }),
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
                    state: state.into(),
                    arguments,
                    called_ms: $row.called_ms.unwrap_or_default(),
                    outcome: $row.outcome.map(Stored::from),
                    title: $row.title,
                    output: $row.bounded_text,
                    structured: $row.structured,
                    managed_path: $row.managed_path,
                    truncated: $row.truncated,
                    started_ms: $row.started_ms,
                    ended_ms: $row.ended_ms,
                    hosted: false,
                })
            }
            _ => None,
        }
    };
}

/// Adds a part. A call that the provider ran, and what came of it, are one.
fn add(message: &mut MessageRow, part: PartRow) -> Result<(), StoreError> {
    let text = part.text.as_deref().unwrap_or_default();
    let unreadable = |error| StoreError::Unreadable(format!("the part {}: {error}", part.id));
    match part.kind.known() {
        Some(PartKind::HostedCall) => {
            let HostedCall { call, name, input } =
                serde_json::from_str(text).map_err(unreadable)?;
            let call = CallRow::hosted(&part.id, message.created_ms, &call, &name, &input)?;
            let (kind, call) = (PartKind::Tool.into(), Some(call));
            message.parts.push(PartRow { kind, text: None, call, ..part });
        }
        Some(PartKind::HostedResult) => {
            let result: HostedResult = serde_json::from_str(text).map_err(unreadable)?;
            let calls = message.parts.iter_mut().filter_map(|part| part.call.as_mut());
            for call in calls {
                if call.told(&result.call, &result.output, result.is_error) {
                    break;
                }
            }
        }
        Some(PartKind::Text | PartKind::Reasoning | PartKind::Tool) | None => {
            message.parts.push(part);
        }
    }
    Ok(())
}

impl Store {
    /// The messages of a session that `which` names, oldest first: at most `limit` of them (and 10,000), and about
    /// 32 MiB of text. One round trip.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session, or without the message asked for.
    pub async fn transcript(
        &self,
        org: OrgId,
        session: SessionId,
        which: Messages,
        limit: i64,
    ) -> Result<Transcript, StoreError> {
        let limit = limit.min(MAX_ROWS);
        let (message, before) = match which {
            Messages::Newest => (None, None),
            Messages::Before(before) => (None, Some(before)),
            Messages::One(message) => (Some(message), None),
        };
        self.lane(org).run(move |connection| Box::pin(async move {
            let rows = sqlx::query!(
                r#"SELECT id AS "id!", seq AS "seq!", role AS "role!", parent_id, turn_id, agent, provider,
                       model, created_ms AS "created_ms!", completed_ms, finish, error_code, error_message,
                       input_tokens AS "input_tokens!", output_tokens AS "output_tokens!",
                       reasoning_tokens AS "reasoning_tokens!",
                       cache_read_tokens AS "cache_read_tokens!",
                       cache_write_tokens AS "cache_write_tokens!", part_id, kind, text, call_id,
                       provider_call, tool, state, arguments, called_ms, outcome, title, bounded_text,
                       structured, managed_path, truncated, started_ms, ended_ms,
                       cost_nanos AS "cost_nanos!", synthetic, variant
                   FROM read_message_page($1, $2, $3, $4, $5)"#,
                org.0,
                session.as_str(),
                message.as_ref().map(MessageId::as_str),
                before.as_ref().map(MessageId::as_str),
                limit,
            )
            .fetch_all(&mut *connection)
            .await
            .map_err(missing)?;
            let mut messages: Vec<MessageRow> = Vec::new();
            let mut bytes = 0;
            for row in rows {
                let texts = [&row.text, &row.arguments, &row.bounded_text, &row.structured];
                bytes += texts.into_iter().flatten().map(String::len).sum::<usize>();
                let part = match (row.part_id, row.kind) {
                    (Some(id), Some(kind)) => {
                        Some(PartRow { id: id.parse()?, kind: kind.into(), text: row.text, call: call_row!(row) })
                    }
                    _ => None,
                };
                if messages.last().is_none_or(|last| last.id.as_str() != row.id) {
                    messages.push(message_row!(row));
                }
                if let (Some(last), Some(part)) = (messages.last_mut(), part) {
                    add(last, part)?;
                }
            }
            let older = message.is_none() && {
                let is_full = i64::try_from(messages.len()).is_ok_and(|rows| rows >= limit);
                is_full || bytes >= MESSAGE_PAGE_BYTES
            };
            Ok(Transcript { messages, older })
        })).await
    }
}
