use serde::{Deserialize, Serialize};

/// The actions that a takeover may take with a call that had started when its worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolClass {
    /// Changes nothing: run again, at most 3 bodies.
    Pure,
    /// Deduplicated by a key: run again with the same key.
    Keyed,
    /// Looks first whether its effect is there.
    Probe,
    /// Never run again: settles as *interrupted, outcome unknown*.
    Unsafe,
}

/// The progress of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolState {
    /// Committed, but something must pass before its body may run.
    Intended,
    /// Its body may have run.
    Started,
    /// It has its one durable result.
    Settled,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolOutcomeKind {
    /// It succeeded.
    Completed,
    /// It failed, and the model gets the reason.
    Failed,
    /// It was stopped by an interrupt.
    Interrupted,
    /// Its worker died: whether the effect happened is not known.
    Unknown,
}
