//! What goes over the wire, as far as the client looks into it. Unknown fields are ignored, so that an
//! older client can talk to a newer service.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use domain::{AttemptId, MessageId, ProjectId, SessionId, TimestampMs, TurnId};
use serde::{Deserialize, Serialize};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProjectView {
    /// Its id.
    pub id: ProjectId,
}

/// Tokens, as providers reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct TokensView {
    /// Input.
    pub input: i64,
    /// Output.
    pub output: i64,
}

/// When something happened to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TimesView {
    /// When it was created.
    pub created: TimestampMs,
    /// When a turn last changed it.
    pub updated: Option<TimestampMs>,
}

/// A session's model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SessionModelView {
    /// Its name at its provider.
    pub id: String,
    /// The provider.
    #[serde(rename = "providerID")]
    pub provider: String,
    /// Its variant, where one was chosen.
    #[serde(default)]
    pub variant: Option<String>,
}

/// What the user of a model should know of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NoticeView {
    /// For people.
    pub message: String,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Its project.
    #[serde(rename = "projectID")]
    pub project: ProjectId,
    /// The directory that it works in.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// The model used last, or chosen.
    #[serde(default)]
    pub model: Option<SessionModelView>,
    /// Whether it has work.
    pub busy: bool,
    /// How its last Session Drain ended; `None` before the first.
    #[serde(default)]
    pub outcome: Option<String>,
    /// The highest number of its log.
    pub seq: domain::Seq,
    /// When it was created and changed.
    pub time: TimesView,
    /// What it has used.
    #[serde(default)]
    pub tokens: TokensView,
    /// What that cost, in USD.
    #[serde(default)]
    pub cost: f64,
    /// The session that it is a child of.
    #[serde(default, rename = "parentID")]
    pub parent: Option<SessionId>,
    /// What its user should know of the models that it has used.
    #[serde(default)]
    pub notices: Vec<NoticeView>,
}

/// The model that a user asked for: `PROVIDER/NAME`, or `NAME` at the service's default provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice(String);

impl ModelChoice {
    /// Whether it names its provider.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.0.contains('/')
    }

    /// The same model at `provider`.
    #[must_use]
    pub fn at(&self, provider: &str) -> Self {
        Self(format!("{provider}/{}", self.0))
    }
}

impl FromStr for ModelChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let is_good = text.split('/').all(|part| !part.trim().is_empty());
        if is_good { Ok(Self(text.to_owned())) } else { Err("a model is NAME or PROVIDER/NAME") }
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ModelChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A prompt to be admitted. Sending the same one again is safe: its id tells that it is a retry.
#[derive(Debug, Clone, Serialize)]
pub struct PromptRequest {
    /// The message that it becomes, minted by the client.
    #[serde(rename = "messageID")]
    pub message: MessageId,
    /// What the user says.
    pub parts: Vec<PromptPartRequest>,
    /// The agent for it; `None`: the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model for it, with its provider; `None`: the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// The model's variant; `None`: the model as it is, or, without a model, as the session has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// One part of a prompt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PromptPartRequest {
    /// Plain text.
    Text {
        /// What the user wrote.
        text: String,
    },
}

impl PromptRequest {
    /// A prompt of one text, for the session's agent.
    #[must_use]
    pub fn text(message: MessageId, text: String, model: Option<ModelChoice>) -> Self {
        let parts = vec![PromptPartRequest::Text { text }];
        Self { message, parts, agent: None, model, variant: None }
    }
}

/// What an interrupt did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct AbortView {
    /// Whether there was something to interrupt.
    pub interrupted: bool,
}

/// What explains a wire request: its own id, or its turn's, which means the turn's last attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestId {
    /// A Provider Turn.
    Turn(TurnId),
    /// A physical attempt.
    Attempt(AttemptId),
}

impl FromStr for RequestId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let attempt = text.parse().map(Self::Attempt).ok();
        let turn = || text.parse().map(Self::Turn).ok();
        attempt.or_else(turn).ok_or(
            "it is the id of a turn (trn_…) or of an attempt (att_…); `session log` shows both",
        )
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(id) => id.fmt(f),
            Self::Attempt(id) => id.fmt(f),
        }
    }
}

/// What a wire request was made of, and whether its body can be rebuilt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainView {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// Its session.
    pub session: SessionId,
    /// 1 for the turn's first attempt.
    pub ordinal: i32,
    /// The model, as `provider/model`, when the service says so.
    #[serde(default)]
    pub model: Option<String>,
    /// The model's variant, where one was chosen.
    #[serde(default)]
    pub variant: Option<String>,
    /// How it ended, if it has.
    #[serde(default)]
    pub outcome: Option<String>,
    /// SHA-256 (hex) of the body that was sent.
    pub body_hash: String,
    /// SHA-256 (hex) of the body rebuilt from rows; `None` when it could not be rebuilt.
    #[serde(default)]
    pub rebuilt_hash: Option<String>,
    /// Whether both are the same.
    #[serde(rename = "match")]
    pub matches: bool,
    /// Why it could not be rebuilt.
    #[serde(default)]
    pub problem: Option<String>,
    /// The encoder that made the body.
    pub wire_version: u32,
    /// The Context Epoch.
    pub epoch: i32,
    /// The history in the request is the fold of events up to here.
    pub through: domain::Seq,
    /// Component name → SHA-256 (hex) of its bytes.
    pub components: BTreeMap<String, String>,
    /// What it costs, where the model has prices.
    #[serde(default)]
    pub price: Option<PriceView>,
}

/// What a wire request costs, in USD.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PriceView {
    /// The table of prices.
    pub version: String,
    /// The most that was expected before it was sent.
    pub estimate: f64,
    /// What it was, once the provider has counted.
    #[serde(default)]
    pub cost: Option<f64>,
}

/// What a rebuild of a session's projections found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RebuildView {
    /// The session.
    pub session: SessionId,
    /// Whether the live projections were what the events give.
    pub exact: bool,
    /// Events folded.
    pub events: u64,
    /// Rows that were there and are not rebuilt; the service shows the first.
    pub missing: Vec<String>,
    /// Rows that are rebuilt and were not there; the service shows the first.
    pub added: Vec<String>,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ViolationView {
    /// Which one, such as `I5`.
    pub invariant: String,
    /// The session.
    pub session: String,
    /// What was found.
    pub found: String,
}
