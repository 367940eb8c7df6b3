use serde::{Deserialize, Serialize};

/// What may be done with a tool call that had started when its worker died.
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

/// How far a tool call has come.
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

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolOutcomeKind {
    /// It did what was asked.
    Completed,
    /// It failed, and the model is told why.
    Failed,
    /// It was stopped by an interrupt.
    Interrupted,
    /// Its worker died: whether the effect happened is not known.
    Unknown,
}
