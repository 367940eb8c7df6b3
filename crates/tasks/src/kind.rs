//! What a task is called, and what its errors and its cancellation mean.

/// What happens to the rest when a task returns an error or panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is logged; everything else goes on.
    Log,
    /// It is logged and the task's role is stopped: see [`TaskGroup::failed`](crate::TaskGroup::failed).
    StopRole,
}

/// What a task does when its group is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// It watches the group's token itself and ends at a point of its own choice, within the grace
    /// period of the shutdown; after that it is dropped at its next await.
    Wait,
    /// It is dropped at its next await. Only for work that may be cut anywhere.
    Abort,
}

/// The kind of a task. Kinds are constants, so that a reader finds in one place what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskKind {
    /// The name under which the task is logged.
    pub name: &'static str,
    /// What an error or a panic of it means.
    pub on_error: OnError,
    /// What a stop of its group means to it.
    pub on_cancel: OnCancel,
}

impl TaskKind {
    /// A kind with all that it says.
    #[must_use]
    pub const fn new(name: &'static str, on_error: OnError, on_cancel: OnCancel) -> Self {
        Self { name, on_error, on_cancel }
    }
}
