//! The JSON of the service, as far as the client reads it. Unknown fields are ignored, so that an older client can
//! talk to a newer service.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use domain::{AttemptId, Delivery, MessageId, ProjectId, SessionId, TimestampMs, TurnId};
use serde::{Deserialize, Serialize};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProjectView {
    /// Its id.
    pub id: ProjectId,
}

/// Tokens that providers reported. No part overlaps another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct TokensView {
    /// Input that no cache had.
    pub input: i64,
    /// Output without reasoning.
    pub output: i64,
    /// Reasoning.
    pub reasoning: i64,
    /// Input that a cache had, or was given.
    pub cache: CachedTokensView,
}

/// Input tokens of a provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct CachedTokensView {
    /// Read from it.
    pub read: i64,
    /// Written to it.
    pub write: i64,
}

impl TokensView {
    /// Returns all tokens that models read, from a cache or not.
    #[must_use]
    pub fn whole_input(&self) -> i64 {
        self.input.saturating_add(self.cache.read).saturating_add(self.cache.write)
    }

    /// Returns all tokens that models wrote, their reasoning too.
    #[must_use]
    pub fn whole_output(&self) -> i64 {
        self.output.saturating_add(self.reasoning)
    }
}

/// The times of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TimesView {
    /// The time of its creation.
    pub created: TimestampMs,
    /// The time of the last change by a turn.
    pub updated: Option<TimestampMs>,
    /// The time when it was archived.
    #[serde(default)]
    pub archived: Option<TimestampMs>,
}

/// A session's model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SessionModelView {
    /// Its name at its provider.
    pub id: String,
    /// The provider.
    #[serde(rename = "providerID")]
    pub provider: String,
    /// Its variant, if one was chosen.
    #[serde(default)]
    pub variant: Option<String>,
}

/// A notice for the user about a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NoticeView {
    /// The text, for people.
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
    /// The model used last, or chosen since.
    #[serde(default)]
    pub model: Option<SessionModelView>,
    /// Whether it has work.
    pub busy: bool,
    /// The outcome of its last Session Drain; `None` before the first.
    #[serde(default)]
    pub outcome: Option<String>,
    /// The highest number of its log.
    pub seq: domain::Seq,
    /// The times of its creation and last change.
    pub time: TimesView,
    /// The tokens that it has used.
    #[serde(default)]
    pub tokens: TokensView,
    /// The cost, in USD.
    #[serde(default)]
    pub cost: f64,
    /// The parent session, if there is one.
    #[serde(default, rename = "parentID")]
    pub parent: Option<SessionId>,
    /// Notices for the user about models that it has used.
    #[serde(default)]
    pub notices: Vec<NoticeView>,
}

/// Which sessions are asked for. The default asks for none.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SessionsQuery {
    /// Number of sessions at most.
    pub limit: u32,
    /// Archived sessions too.
    pub archived: bool,
    /// Only sessions with this text in their title.
    pub search: Option<String>,
    /// Only sessions that changed at this time or later.
    pub since: Option<TimestampMs>,
    /// Only sessions that work in this directory.
    pub directory: Option<String>,
    /// Only sessions without a parent.
    pub roots: bool,
    /// The place where the list begins.
    pub cursor: Option<String>,
}

impl SessionsQuery {
    /// The newest of all sessions that are not archived.
    #[must_use]
    pub fn newest(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// A model that a user chose: `PROVIDER/NAME`, or `NAME` at the service's default provider. A name may have slashes of its
/// own, as a path has: `acme//models/Qwen3` is `/models/Qwen3` of `acme`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice(String);

impl ModelChoice {
    /// Returns whether it names its provider.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.0.find('/').is_some_and(|at| at > 0)
    }

    /// Returns the same model at `provider`.
    #[must_use]
    pub fn at(&self, provider: &str) -> Self {
        Self(format!("{provider}/{}", self.0))
    }
}

impl FromStr for ModelChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (provider, name) = text.split_once('/').unwrap_or(("a", text));
        let is_named = |text: &str| text.contains(|c: char| c != '/' && !c.is_whitespace());
        let is_good = (provider.is_empty() || is_named(provider)) && is_named(name);
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

/// A prompt to admit. Sending it again is safe, because its id shows that it is a retry.
#[derive(Debug, Clone, Serialize)]
pub struct PromptRequest {
    /// The id of its message, minted by the client.
    #[serde(rename = "messageID")]
    pub message: MessageId,
    /// The content of the prompt.
    pub parts: Vec<PromptPartRequest>,
    /// The agent; `None` keeps the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model with its provider; `None` keeps the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// The model's variant; `None` means the plain model, or, without a model, the session's variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// How it joins running work; `None`: it steers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
}

/// One part of a prompt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PromptPartRequest {
    /// Plain text.
    Text {
        /// The user's text.
        text: String,
    },
}

impl PromptRequest {
    /// Returns a prompt of one text, for the session's agent.
    #[must_use]
    pub fn text(message: MessageId, text: String, model: Option<ModelChoice>) -> Self {
        let parts = vec![PromptPartRequest::Text { text }];
        Self { message, parts, agent: None, model, variant: None, delivery: None }
    }
}

/// The effect of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct AbortView {
    /// Whether there was something to interrupt.
    pub interrupted: bool,
}

/// The id of a wire request: its own, or its turn's, which stands for the turn's last attempt.
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

/// The components of a wire request, and whether its body can be rebuilt.
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
    /// The model as `provider/model`, if the service sends it.
    #[serde(default)]
    pub model: Option<String>,
    /// The model's variant, if one was chosen.
    #[serde(default)]
    pub variant: Option<String>,
    /// Its outcome, if it has ended.
    #[serde(default)]
    pub outcome: Option<String>,
    /// SHA-256 (hex) of the body that was sent.
    pub body_hash: String,
    /// SHA-256 (hex) of the body rebuilt from rows; `None` if it cannot be rebuilt.
    #[serde(default)]
    pub rebuilt_hash: Option<String>,
    /// Whether both are the same.
    #[serde(rename = "match")]
    pub matches: bool,
    /// The reason why it cannot be rebuilt.
    #[serde(default)]
    pub problem: Option<String>,
    /// The version of the encoder that made the body.
    pub wire_version: u32,
    /// The Context Epoch.
    pub epoch: i32,
    /// The last event whose fold is in the request.
    pub through: domain::Seq,
    /// Component name → SHA-256 (hex) of its bytes.
    pub components: BTreeMap<String, String>,
    /// The price, if the model has prices.
    #[serde(default)]
    pub price: Option<PriceView>,
}

/// The price of a wire request, in USD.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PriceView {
    /// The version of the price table.
    pub version: String,
    /// The highest expected cost, estimated before the request.
    pub estimate: f64,
    /// The actual cost, once the provider has reported usage.
    #[serde(default)]
    pub cost: Option<f64>,
}

/// The result of a rebuild of a session's projections.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RebuildView {
    /// The session.
    pub session: SessionId,
    /// Whether the live projections equal the rebuilt ones.
    pub exact: bool,
    /// The number of events.
    pub events: u64,
    /// Live rows that the rebuild does not have; the service sends the first.
    pub missing: Vec<String>,
    /// Rebuilt rows that were missing; the service sends the first.
    pub added: Vec<String>,
    /// Messages whose rows are not as clients were shown them from events; the service sends the first.
    #[serde(default)]
    pub differing: Vec<String>,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ViolationView {
    /// The invariant, such as `I5`.
    pub invariant: String,
    /// The session.
    pub session: String,
    /// The violation.
    pub found: String,
}

/// A session's repository, as the service shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryView {
    /// The address that it was cloned from.
    pub url: String,
    /// The commit of the workspace, once it is known.
    pub commit: Option<String>,
    /// The branch of the workspace, as a full reference.
    pub branch: Option<String>,
    /// `waiting`, `filling`, `filled` or `failed`.
    pub state: String,
    /// The step of the filling.
    pub stage: Option<String>,
    /// The bytes that were fetched.
    pub bytes: i64,
    /// Why the last try came to nothing.
    pub fault: Option<FaultView>,
}

/// Why a try came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultView {
    /// The reason as a word; `later` if the try is repeated.
    pub code: String,
    /// The reason for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    // The public report opencode#15668: servers name a model by the path of its file.
    #[test]
    fn a_model_may_have_any_name_of_its_own() {
        for (text, has_provider) in [
            ("m", false),
            ("qwen3:30b", false),
            ("acme/m", true),
            ("acme/org/name:free", true),
            ("synthetic/hf:Org/Model-1@v2", true),
            ("acme/@cf/qwen/q", true),
            ("acme//my/llms/Qwen3", true),
            ("/my/llms/Qwen3", false),
            ("acme/models/", true),
            ("acme/a b", true),
        ] {
            let choice: ModelChoice = text.parse().expect(text);
            assert_eq!((choice.to_string().as_str(), choice.has_provider()), (text, has_provider));
            if !has_provider {
                assert_eq!(choice.at("own").to_string(), format!("own/{text}"));
            }
        }
        for text in ["", " ", "/", "acme/", "acme//", "acme/ ", " /m"] {
            assert!(text.parse::<ModelChoice>().is_err(), "{text:?}");
        }
    }
}
