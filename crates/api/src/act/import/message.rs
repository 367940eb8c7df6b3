//! The released contract's session and messages, as `opencode export` writes them. Fields that nothing here needs are not
//! read.

use domain::{TimestampMs, ToolRule};
use serde::Deserialize;
use serde_json::Value;

use crate::text::plain;

/// A whole export.
#[derive(Debug, Deserialize)]
pub(super) struct Whole {
    pub(super) info: SessionInfo,
    pub(super) messages: Vec<Message>,
}

/// The session.
#[derive(Debug, Deserialize)]
pub(super) struct SessionInfo {
    pub(super) id: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default, rename = "parentID")]
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    pub(super) time: Option<Times>,
    #[serde(default)]
    pub(super) permission: Option<Vec<ToolRule>>,
    #[serde(default)]
    pub(super) revert: Option<Value>,
    #[serde(default)]
    pub(super) share: Option<Value>,
    #[serde(default)]
    pub(super) metadata: Option<Value>,
}

/// When something began and ended.
#[derive(Debug, Deserialize)]
pub(super) struct Times {
    pub(super) created: TimestampMs,
    #[serde(default)]
    pub(super) completed: Option<TimestampMs>,
    /// When a session was archived.
    #[serde(default)]
    pub(super) archived: Option<TimestampMs>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) info: Info,
    #[serde(default)]
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum Info {
    User {
        id: String,
        #[serde(default)]
        time: Option<Times>,
        #[serde(default)]
        agent: Option<String>,
        #[serde(default)]
        model: Option<Model>,
    },
    Assistant(Answer),
    #[serde(other)]
    Other,
}

impl Info {
    pub(super) fn agent(&self) -> Option<String> {
        match self {
            Self::User { agent, .. } => agent.as_deref().map(plain),
            Self::Assistant(answer) => Some(answer.agent()),
            Self::Other => None,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Model {
    #[serde(rename = "providerID")]
    pub(super) provider_id: String,
    #[serde(rename = "modelID")]
    pub(super) model_id: String,
    #[serde(default)]
    pub(super) variant: Option<String>,
}

/// The words of a model's message about itself.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    #[serde(default, rename = "parentID")]
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    pub(super) time: Option<Times>,
    #[serde(default, rename = "providerID")]
    pub(super) provider_id: String,
    #[serde(default, rename = "modelID")]
    pub(super) model_id: String,
    #[serde(default)]
    pub(super) variant: Option<String>,
    #[serde(default)]
    agent: Option<String>,
    /// The agent's name in older exports.
    #[serde(default)]
    mode: Option<String>,
    /// It is a summary of what came before.
    #[serde(default)]
    pub(super) summary: bool,
    #[serde(default)]
    pub(super) cost: f64,
    #[serde(default)]
    pub(super) tokens: Option<Value>,
    #[serde(default)]
    pub(super) finish: Option<String>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

impl Answer {
    pub(super) fn agent(&self) -> String {
        let named = self.agent.as_deref().or(self.mode.as_deref());
        plain(named.filter(|name| !name.is_empty()).unwrap_or("build"))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Part {
    Text {
        id: String,
        text: String,
        #[serde(default)]
        ignored: bool,
    },
    Reasoning {
        id: String,
        text: String,
    },
    Tool {
        id: String,
        #[serde(rename = "callID")]
        call_id: String,
        tool: String,
        state: ToolProgress,
    },
    File,
    Snapshot,
    Patch,
    Subtask,
    Agent,
    Retry,
    Compaction,
    StepStart,
    StepFinish,
    #[serde(other)]
    Other,
}

/// How far a call had come.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub(super) enum ToolProgress {
    Completed {
        #[serde(default)]
        input: Value,
        output: String,
        #[serde(default)]
        title: String,
        #[serde(default)]
        time: Option<Span>,
        #[serde(default)]
        attachments: Vec<Value>,
    },
    Error {
        #[serde(default)]
        input: Value,
        error: String,
        #[serde(default)]
        time: Option<Span>,
    },
    Pending {
        #[serde(default)]
        input: Value,
    },
    Running {
        #[serde(default)]
        input: Value,
    },
}

impl ToolProgress {
    /// Returns the model's arguments as JSON text.
    pub(super) fn arguments(&self) -> String {
        let (Self::Completed { input, .. }
        | Self::Error { input, .. }
        | Self::Pending { input }
        | Self::Running { input }) = self;
        if input.is_null() { "{}".to_owned() } else { input.to_string() }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Span {
    pub(super) start: TimestampMs,
    pub(super) end: TimestampMs,
}
