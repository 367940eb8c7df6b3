//! A call, where it runs, and what it comes to.

use std::path::PathBuf;
use std::sync::Arc;

use domain::ToolOutcomeKind;
use sandbox::{LocationLock, Output};
use serde_json::Value;
use snapshots::Touched;
use tokio_util::sync::CancellationToken;

use crate::bound::Limits;
use crate::outputs::ManagedOutputs;
use crate::skill::SkillScope;

/// What a provider is told of a tool. The same bytes on every worker: it is part of the prompt's cached prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name that the model calls.
    pub name: &'static str,
    /// What it is for, to the model.
    pub description: &'static str,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Our id of the call.
    pub id: String,
    /// The tool's name; may be unknown.
    pub name: String,
    /// The arguments, valid JSON or not.
    pub arguments: String,
}

/// The Location in which a call runs, and its bounds.
#[derive(Clone)]
pub struct ToolContext {
    /// The Location's directory on this worker.
    pub root: PathBuf,
    /// What the model is told that directory is: `/workspace`, or the real path.
    pub shown_root: String,
    /// Ends the call; it then comes to *interrupted*.
    pub cancel: CancellationToken,
    /// Managed Tool Output Files that this session may read.
    pub outputs: Arc<dyn ManagedOutputs>,
    /// The Location's lock on a shared disk.
    pub lock: Option<LocationLock>,
    /// Of one settlement; tools shape their results to fit.
    pub limits: Limits,
    /// Skills that it may load, where those of the project count at all.
    pub skills: Option<SkillScope>,
}

/// The text of a result.
#[derive(Debug)]
pub enum Text {
    /// All of it.
    Whole(String),
    /// Its two ends, and a file.
    Spooled(Output),
}

/// How a call ended, before it is bounded: not yet to be shown or stored.
#[derive(Debug)]
pub struct ToolOutcome {
    /// Whether it worked.
    pub kind: ToolOutcomeKind,
    /// One line for people.
    pub title: String,
    /// For the model.
    pub text: Text,
    /// A few words that follow the text and are never cut, at most 512 bytes; or empty.
    pub footer: String,
    /// The validated structured result.
    pub structured: Option<Value>,
    /// Which files of the Location the call may have changed, whether it worked or not.
    pub touched: Touched,
}

impl ToolOutcome {
    pub(crate) fn completed(title: String, text: String, structured: Option<Value>) -> Self {
        let footer = String::new();
        Self {
            kind: ToolOutcomeKind::Completed,
            title,
            text: Text::Whole(text),
            footer,
            structured,
            touched: Touched::Nothing,
        }
    }

    pub(crate) fn touching(self, touched: Touched) -> Self {
        Self { touched, ..self }
    }
}

/// Why a tool has no result: what its body returns instead of an outcome.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Told to the model, which can do better. Nothing was changed.
    Failed(String),
    /// Told to the model too. It failed after it had begun, and may have changed something.
    Midway(String),
    /// Its context's token fired.
    Interrupted,
}

impl Stopped {
    pub(crate) fn because(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// What the model and people see of it.
    pub(crate) fn into_outcome(self, tool: &str) -> ToolOutcome {
        let (kind, text, touched) = match self {
            Self::Failed(message) => (ToolOutcomeKind::Failed, message, Touched::Nothing),
            Self::Midway(message) => (ToolOutcomeKind::Failed, message, Touched::Anything),
            Self::Interrupted => {
                (ToolOutcomeKind::Interrupted, "interrupted".to_owned(), Touched::Nothing)
            }
        };
        ToolOutcome {
            kind,
            title: tool.to_owned(),
            text: Text::Whole(text),
            footer: String::new(),
            structured: None,
            touched,
        }
    }

    /// The same, of a call that had begun to change something.
    pub(crate) fn midway(self) -> Self {
        match self {
            Self::Failed(message) | Self::Midway(message) => Self::Midway(message),
            Self::Interrupted => Self::Interrupted,
        }
    }
}

/// What can be seen of a call's effect after its worker has died (class *probe*).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a takeover makes one and reads it at once")]
pub enum Probe {
    /// The effect is there: the call is settled with this.
    Done(ToolOutcome),
    /// It is not: the call may run again.
    NotDone,
    /// It cannot be told: the outcome is unknown.
    Unclear,
}

/// A title for people: one line, at most 80 characters.
pub(crate) fn title(verb: &str, what: &str) -> String {
    let line: String = format!("{verb} {what}").chars().take(400).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(80) {
        Some((_, _)) => format!("{}…", line.chars().take(79).collect::<String>()),
        None => line,
    }
}
