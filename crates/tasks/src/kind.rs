//! The kinds of tasks: name, and reaction to errors and cancellation.

/// The effect on other tasks when a task returns an error or panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The error is logged; everything else continues.
    Log,
    /// The error is logged and the task's role stops: see [`TaskGroup::failed`](crate::TaskGroup::failed).
    StopRole,
}

/// The reaction of a task when its group stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// It watches the group's token and ends at a point of its choice within the shutdown's grace period.
    /// After that, it is dropped at its next await.
    Wait,
    /// Like [`OnCancel::Wait`], for work that may not end in time by design: it is durable, and others continue what is
    /// dropped. So that is no warning.
    HandOver,
    /// It is dropped at its next await. Only for work that may stop anywhere.
    Abort,
}

/// The kind of a task. Kinds are constants, so that a reader finds each task's behaviour in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskKind {
    /// The task's name in logs.
    pub name: &'static str,
    /// The effect of its error or panic.
    pub on_error: OnError,
    /// Its reaction when its group stops.
    pub on_cancel: OnCancel,
}

impl TaskKind {
    /// Makes a kind.
    #[must_use]
    pub const fn new(name: &'static str, on_error: OnError, on_cancel: OnCancel) -> Self {
        Self { name, on_error, on_cancel }
    }
}
