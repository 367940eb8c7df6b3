//! The outcomes of tasks.

use std::any::Any;
use std::error::Error;

use thiserror::Error as ThisError;

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned without an error.
    Finished,
    /// It returned this error, including its causes.
    Failed(String),
    /// It panicked with this message.
    Panicked(String),
    /// It was dropped because its group stopped, as its kind allows.
    Cancelled,
    /// It was dropped because the grace period was over.
    Overran,
}

/// A task that ended while its group was shutting down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTask {
    /// The name of its kind.
    pub name: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The reason why a role stopped: the first failed task with [`OnError::StopRole`](crate::OnError::StopRole).
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("{task} failed: {reason}")]
pub struct TaskFailure {
    /// The name of the task's kind.
    pub task: &'static str,
    /// The error with its causes, or the panic's message.
    pub reason: String,
}

/// Returns an error and its causes on one line.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Returns a panic's message, if it has text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
