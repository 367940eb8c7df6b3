use domain::{
    ErrorCode, Finish, MessageId, MessageRole, ModelRef, PartId, PartKind, SessionError, SessionId,
    Stamp, TimestampMs, Word,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use store::{MessageRow, PartRow, SessionRow};

use super::call::call_state;
use super::files::{DiffView, FileView};
use super::session::TimeView;
use super::tokens::{TokensView, Usd};

/// The session's facts that a message's view needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionContext {
    pub(crate) session: SessionId,
    pub(crate) directory: String,
    pub(crate) agent: String,
    pub(crate) model: ModelRef,
}

impl SessionContext {
    /// Returns the facts of a session. Its messages have the `default` model until it has used one.
    pub(crate) fn of(row: &SessionRow, default: impl FnOnce() -> ModelRef) -> Self {
        Self {
            session: row.at.session.clone(),
            directory: row.directory.clone(),
            agent: row.agent.clone(),
            model: row.model.clone().unwrap_or_else(default),
        }
    }
}

/// A message with its parts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MessageView {
    pub(crate) info: MessageInfo,
    pub(crate) parts: Vec<PartView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MessageModel")]
pub(crate) struct ModelView {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID")]
    model_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

impl From<&ModelRef> for ModelView {
    fn from(model: &ModelRef) -> Self {
        let ModelRef { provider, model, variant } = model.clone();
        Self { provider_id: provider, model_id: model, variant }
    }
}

/// The directory where a message's tools ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct PathView {
    cwd: String,
    root: String,
}

impl PathView {
    pub(super) fn of(directory: &str) -> Self {
        Self { cwd: directory.to_owned(), root: directory.to_owned() }
    }
}

/// The times when a message began and was complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RunView {
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<TimestampMs>,
    created: TimestampMs,
}

impl RunView {
    pub(super) fn at_once(time: TimestampMs) -> Self {
        Self { completed: Some(time), created: time }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completed.is_some()
    }
}

/// The times when a part began and ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SpanView {
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<TimestampMs>,
    start: TimestampMs,
}

/// The results of the work on a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct PromptSummaryView {
    diffs: Vec<FileView>,
}

/// The kind of a message, with its own fields.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(crate) enum MessageInfo {
    /// A prompt.
    User {
        id: String,
        #[serde(rename = "sessionID")]
        session_id: String,
        time: TimeView,
        agent: String,
        model: ModelView,
        /// The files that the work on it changed, where stock clients ask and some were.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<Box<PromptSummaryView>>,
    },
    /// The answer of one Provider Turn.
    Assistant {
        id: String,
        #[serde(rename = "sessionID")]
        session_id: String,
        #[serde(rename = "parentID")]
        parent_id: String,
        #[serde(rename = "modelID")]
        model_id: String,
        #[serde(rename = "providerID")]
        provider_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        variant: Option<String>,
        /// `true` for the text of a checkpoint, which stock clients know as an answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<bool>,
        mode: String,
        agent: String,
        path: Box<PathView>,
        cost: Usd,
        tokens: TokensView,
        time: RunView,
        #[serde(skip_serializing_if = "Option::is_none")]
        finish: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Value>,
    },
    /// A text of ours that the model saw.
    Notice {
        id: String,
        #[serde(rename = "sessionID")]
        session_id: String,
        kind: String,
        time: TimeView,
    },
    /// A summary that replaces an older part of the conversation.
    Checkpoint {
        id: String,
        #[serde(rename = "sessionID")]
        session_id: String,
        /// `manual`, `auto` or `overflow`.
        reason: String,
        cost: Usd,
        tokens: TokensView,
        time: TimeView,
    },
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PartView {
    pub(crate) id: String,
    #[serde(rename = "sessionID")]
    pub(crate) session_id: String,
    #[serde(rename = "messageID")]
    pub(crate) message_id: String,
    #[serde(flatten)]
    pub(crate) body: PartBody,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum PartBody {
    Text {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        synthetic: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        time: Option<SpanView>,
    },
    Reasoning {
        text: String,
        time: SpanView,
    },
    Tool {
        #[serde(rename = "callID")]
        call_id: String,
        tool: String,
        state: Value,
    },
    /// A compaction, in the stock shape.
    Compaction {
        auto: bool,
    },
    /// The files that an answer changed, in the stock shape.
    Patch {
        /// The snapshot of the files before.
        hash: String,
        /// Their paths.
        files: Vec<String>,
    },
    StepStart,
    StepFinish {
        reason: String,
        cost: Usd,
        tokens: TokensView,
    },
}

impl MessageView {
    /// Adds the files that the work on a prompt changed.
    pub(crate) fn with_diff(mut self, diff: DiffView) -> Self {
        if let MessageInfo::User { summary, .. } = &mut self.info
            && !diff.files.is_empty()
        {
            // The contract has no word for counts that were added up.
            let files = diff.files.into_iter();
            let diffs = files.map(|file| FileView { partial: false, ..file }).collect();
            *summary = Some(Box::new(PromptSummaryView { diffs }));
        }
        self
    }

    /// Adds the part that names the files which an answer changed, as its last. `directory` is the session's.
    pub(crate) fn with_patch(mut self, hash: String, files: &[String], directory: &str) -> Self {
        if let Some(last) = self.parts.last() {
            let directory = directory.trim_end_matches('/');
            let files = files.iter().map(|file| format!("{directory}/{file}")).collect();
            let id = patch_id(&last.message_id);
            self.parts.push(PartView { id, body: PartBody::Patch { hash, files }, ..last.clone() });
        }
        self
    }
}

/// Shows a message. An assistant's message gets a step-start part and, once it is complete, a step-finish part.
pub(crate) fn message(context: &SessionContext, row: &MessageRow) -> MessageView {
    MessageView { info: info(context, row), parts: parts(context, row) }
}

fn info(context: &SessionContext, row: &MessageRow) -> MessageInfo {
    let (id, session_id) = (row.id.to_string(), context.session.to_string());
    let agent = row.agent.clone().unwrap_or_else(|| context.agent.clone());
    let model = row.model.as_ref().unwrap_or(&context.model);
    let time = TimeView::created(row.created_ms);
    match row.role.known() {
        Some(MessageRole::Assistant) => {
            let time = RunView { completed: row.completed_ms, created: row.created_ms };
            MessageInfo::Assistant {
                id,
                session_id,
                parent_id: row.parent.as_ref().map(ToString::to_string).unwrap_or_default(),
                model_id: model.model.clone(),
                provider_id: model.provider.clone(),
                variant: model.variant.clone(),
                summary: None,
                mode: agent.clone(),
                agent,
                path: PathView::of(&context.directory).into(),
                cost: Usd(row.usage.cost),
                tokens: row.usage.into(),
                time,
                finish: row.finish.clone(),
                error: message_error(row, model),
            }
        }
        Some(MessageRole::Notice) => MessageInfo::Notice {
            id,
            session_id,
            kind: row.finish.clone().unwrap_or_default(),
            time,
        },
        Some(MessageRole::Checkpoint) => MessageInfo::Checkpoint {
            id,
            session_id,
            reason: row.finish.clone().unwrap_or_default(),
            cost: Usd(row.usage.cost),
            tokens: row.usage.into(),
            time,
        },
        Some(MessageRole::User) | None => {
            MessageInfo::User { id, session_id, time, agent, model: model.into(), summary: None }
        }
    }
}

fn message_error(row: &MessageRow, model: &ModelRef) -> Option<Value> {
    let finish = row.finish.as_deref().and_then(Finish::read);
    match &row.error {
        Some(error) => Some(error_view(error, &model.provider)),
        None => (finish == Some(Finish::Interrupted)).then(interrupted_view),
    }
}

/// Shows that somebody stopped a message.
pub(super) fn interrupted_view() -> Value {
    json!({ "name": StockError::Aborted.as_str(), "data": { "message": "Aborted" } })
}

/// Shows an error under the stock clients' names, with our code beside it.
pub(crate) fn error_view(error: &SessionError, provider: &str) -> Value {
    let SessionError { code, message } = error;
    let name = code.known().map_or(StockError::Unknown, stock_error);
    let data = match name {
        StockError::Auth => json!({ "providerID": provider, "message": message, "code": code }),
        StockError::Api => {
            json!({ "message": message, "isRetryable": false, "metadata": { "code": code } })
        }
        StockError::Aborted | StockError::Unknown => json!({ "message": message, "code": code }),
    };
    json!({ "name": name.as_str(), "data": data })
}

domain::words! {
    /// The stock clients' names of errors.
    enum StockError {
        /// Somebody stopped it.
        Aborted = "MessageAbortedError",
        /// The provider refused the credentials.
        Auth = "ProviderAuthError",
        /// Something else of the provider's.
        Api = "APIError",
        /// None of these.
        Unknown = "UnknownError",
    }
}

fn stock_error(code: ErrorCode) -> StockError {
    match code {
        ErrorCode::SessionCompactionInterrupted => StockError::Aborted,
        ErrorCode::ProviderAuthentication => StockError::Auth,
        ErrorCode::ProviderContentFilter
        | ErrorCode::ProviderContextOverflow
        | ErrorCode::ProviderCredentialOrigin
        | ErrorCode::ProviderInternal
        | ErrorCode::ProviderInvalidOutput
        | ErrorCode::ProviderInvalidRequest
        | ErrorCode::ProviderQuota
        | ErrorCode::ProviderRateLimit
        | ErrorCode::ProviderStateRefused
        | ErrorCode::ProviderSecretUnreadable
        | ErrorCode::ProviderSecretsKeyMissing
        | ErrorCode::ProviderSignInFailed
        | ErrorCode::ProviderSignInNotSetUp
        | ErrorCode::ProviderTransport
        | ErrorCode::ProviderUnknown => StockError::Api,
        ErrorCode::ContextDuplicateKey
        | ErrorCode::ContextTooLarge
        | ErrorCode::ContextUnavailable
        | ErrorCode::LimitSpending
        | ErrorCode::ModelNotAllowed
        | ErrorCode::ModelUnknown
        | ErrorCode::ModelVariantUnknown
        | ErrorCode::SessionAgentUnknown
        | ErrorCode::SessionBusy
        | ErrorCode::SessionCompactionFailed
        | ErrorCode::SessionDrainFailed
        | ErrorCode::SessionInboxFull
        | ErrorCode::SessionMessageUnknown
        | ErrorCode::SessionNoPrompt
        | ErrorCode::SessionNothingToCompact
        | ErrorCode::SessionRecoveryExhausted
        | ErrorCode::SessionRevertAcrossMove
        | ErrorCode::TurnStepLimit
        | ErrorCode::WorkspaceFillFailed
        | ErrorCode::WorkspaceLocked
        | ErrorCode::WorkspaceNotCaptured
        | ErrorCode::WorkspaceRestoreFailed
        | ErrorCode::WorkspaceSnapshotFailed
        | ErrorCode::WorkspaceUnavailable => StockError::Unknown,
    }
}

/// Shows one part of a message.
pub(crate) fn part(context: &SessionContext, row: &MessageRow, part: &PartRow) -> Option<PartView> {
    Some(part_with(context, row, part.id.to_string(), body(row, part)?))
}

fn part_with(context: &SessionContext, row: &MessageRow, id: String, body: PartBody) -> PartView {
    let (session_id, message_id) = (context.session.to_string(), row.id.to_string());
    PartView { id, session_id, message_id, body }
}

fn parts(context: &SessionContext, row: &MessageRow) -> Vec<PartView> {
    let shown = row.parts.iter().filter_map(|stored| part(context, row, stored));
    if row.role != MessageRole::Assistant {
        return shown.collect();
    }
    let start = part_with(context, row, step_start_id(&row.id), PartBody::StepStart);
    let mut all = vec![start];
    all.extend(shown);
    if let Some(completed) = row.completed_ms {
        let reason = row.finish.clone().unwrap_or_else(|| "error".to_owned());
        let finish =
            PartBody::StepFinish { reason, cost: Usd(row.usage.cost), tokens: row.usage.into() };
        all.push(part_with(context, row, step_finish_id(&row.id, completed), finish));
    }
    all
}

fn body(row: &MessageRow, part: &PartRow) -> Option<PartBody> {
    let is_done = row.finish.is_some() || row.completed_ms.is_some();
    let end = row.completed_ms.unwrap_or(row.created_ms);
    let time = || SpanView { end: is_done.then_some(end), start: row.created_ms };
    match (part.kind.known()?, &part.call) {
        (PartKind::Text, _) => Some(PartBody::Text {
            text: part.text.clone().unwrap_or_default(),
            synthetic: row.synthetic.is_some().then_some(true),
            time: (row.role == MessageRole::Assistant).then(time),
        }),
        (PartKind::Reasoning, _) => {
            let text = part.text.clone().unwrap_or_default();
            Some(PartBody::Reasoning { text, time: time() })
        }
        (PartKind::Tool, Some(call)) => Some(PartBody::Tool {
            call_id: call.id.to_string(),
            tool: call.tool.clone(),
            state: call_state(call),
        }),
        // `store` joins what a provider ran to tool parts.
        (PartKind::Tool, None) | (PartKind::HostedCall | PartKind::HostedResult, _) => None,
    }
}

fn tail(message: &MessageId) -> &str {
    let text = message.as_str();
    text.get(MessageId::PREFIX.len() + 1..).unwrap_or(text)
}

/// Returns an id that sorts before the message's other parts, which were minted after the message.
fn step_start_id(message: &MessageId) -> String {
    format!("{}_{}", PartId::PREFIX, tail(message))
}

/// Returns an id that sorts after all parts of a message, whether it is complete or not.
fn patch_id(message: &str) -> String {
    let tail = message.get(MessageId::PREFIX.len() + 1..).unwrap_or(message);
    let random = tail.get(12..).unwrap_or(tail);
    format!("{}_{:012x}{random}", PartId::PREFIX, 0xffff_ffff_ffff_u64)
}

/// Returns an id that sorts after the message's other parts. Events and rows give the same one.
fn step_finish_id(message: &MessageId, completed: TimestampMs) -> String {
    let last = Stamp::at(completed.saturating_add(1)).0 - 1;
    let tail = tail(message);
    let random = tail.get(12..).unwrap_or(tail);
    format!("{}_{:012x}{random}", PartId::PREFIX, last & 0xffff_ffff_ffff)
}
