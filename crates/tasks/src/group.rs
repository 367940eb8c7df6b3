//! The tree of task groups.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, error, info, warn};

use crate::kind::{OnCancel, OnError, TaskKind};
use crate::outcome::{EndedTask, Outcome, TaskFailure, describe, panic_message};

/// The time that a dropped task has to reach an await before it is reported as stuck.
const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// An owner of tasks: a process, a role, or a piece of work with its own tasks. Cheap to clone; clones are
/// the same group. Dropping it stops nothing.
#[derive(Clone)]
pub struct TaskGroup {
    node: Arc<Node>,
}

struct Node {
    name: String,
    parent: Option<TaskGroup>,
    /// Failures of tasks below with [`OnError::StopRole`] stop at this group.
    is_role: bool,
    cancel: CancellationToken,
    /// Cancelled when the grace period is over: the remaining tasks are dropped.
    overrun: CancellationToken,
    tracker: TaskTracker,
    failure: watch::Sender<Option<TaskFailure>>,
    roster: Mutex<Roster>,
}

/// The live tasks of a group and of groups below it, by an id that is unique in the process.
#[derive(Default)]
struct Roster {
    live: BTreeMap<u64, TaskKind>,
    /// The tasks that ended since the shutdown began. Bounded by the number of tasks that were live then or
    /// started during it.
    ended: Option<Vec<EndedTask>>,
}

/// The result of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Every task that ended since the shutdown began, in order.
    pub ended: Vec<EndedTask>,
    /// The tasks that did not even reach an await after they were dropped. They end with the process.
    pub stuck: Vec<&'static str>,
}

impl ShutdownReport {
    /// Returns whether every task ended by itself, in time and without an error.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.stuck.is_empty()
            && self.ended.iter().all(|task| match &task.outcome {
                Outcome::Finished | Outcome::Cancelled => true,
                Outcome::Failed(_) | Outcome::Panicked(_) | Outcome::Overran => false,
            })
    }
}

/// A handle to wait for one task. Dropping it does not stop the task.
#[derive(Debug)]
pub struct TaskHandle {
    join: JoinHandle<Outcome>,
}

impl TaskHandle {
    /// Waits for the task's end. Cancel safe: the task continues if this future is dropped.
    pub async fn ended(self) -> Outcome {
        // The wrapper catches panics and nothing aborts it, so an error means that the runtime is ending.
        self.join.await.unwrap_or(Outcome::Cancelled)
    }

    /// Returns whether the task has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.join.is_finished()
    }
}

impl TaskGroup {
    /// Makes the group of a process, the root of a tree.
    #[must_use]
    pub fn root(name: impl Into<String>) -> Self {
        Self::node(name.into(), None, true)
    }

    /// Makes a role below this group. A failure with [`OnError::StopRole`] stops only that role.
    #[must_use]
    pub fn role(&self, name: impl Into<String>) -> Self {
        Self::node(name.into(), Some(self.clone()), true)
    }

    /// Makes a group below this one, in the same role.
    #[must_use]
    pub fn child(&self, name: impl Into<String>) -> Self {
        Self::node(name.into(), Some(self.clone()), false)
    }

    fn node(name: String, parent: Option<Self>, is_role: bool) -> Self {
        let below = |pick: fn(&Node) -> &CancellationToken| {
            parent.as_ref().map_or_else(CancellationToken::new, |p| pick(&p.node).child_token())
        };
        let node = Node {
            name,
            is_role,
            cancel: below(|node| &node.cancel),
            overrun: below(|node| &node.overrun),
            tracker: TaskTracker::new(),
            failure: watch::Sender::new(None),
            roster: Mutex::default(),
            parent,
        };
        Self { node: Arc::new(node) }
    }

    /// Returns the group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Returns the stop token. Cancelling it asks the tasks of this group and those below to end, without
    /// waiting for them.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.node.cancel.clone()
    }

    /// Starts `future` as a task of this group. A group that was shut down drops it at once.
    ///
    /// Its error (anything that converts to a boxed error, including [`std::convert::Infallible`]) or its
    /// panic is logged here, once.
    pub fn spawn<F, E>(&self, kind: TaskKind, future: F) -> TaskHandle
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let group = self.clone();
        let id = group.enlist(kind);
        // Held until the end, so that every group above waits for this task.
        let held: Vec<_> = group.upwards().map(|node| node.tracker.token()).collect();
        let span = tracing::info_span!("task", task = kind.name, group = group.name());
        let body = async move {
            let outcome = group.run(kind, future).await;
            group.settle(id, kind, &outcome);
            drop(held);
            outcome
        };
        #[expect(clippy::disallowed_methods, reason = "the tasks crate is where tasks are spawned")]
        let join = tokio::spawn(body.instrument(span));
        TaskHandle { join }
    }

    async fn run<F, E>(&self, kind: TaskKind, future: F) -> Outcome
    where
        F: Future<Output = Result<(), E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let guarded = AssertUnwindSafe(future).catch_unwind();
        let result = tokio::select! {
            biased;
            () = self.node.overrun.cancelled() => return Outcome::Overran,
            () = self.node.cancel.cancelled(), if kind.on_cancel == OnCancel::Abort => {
                return Outcome::Cancelled;
            }
            result = guarded => result,
        };
        match result {
            Ok(Ok(())) => Outcome::Finished,
            Ok(Err(error)) => {
                let error: Box<dyn Error + Send + Sync> = error.into();
                Outcome::Failed(describe(error.as_ref()))
            }
            Err(payload) => Outcome::Panicked(panic_message(payload.as_ref())),
        }
    }

    /// Logs the end of a task once and reports it to every group above.
    fn settle(&self, id: u64, kind: TaskKind, outcome: &Outcome) {
        let reason = match outcome {
            Outcome::Finished | Outcome::Cancelled => {
                debug!(task = kind.name, ?outcome, "task ended");
                None
            }
            Outcome::Overran if kind.on_cancel == OnCancel::HandOver => {
                debug!(task = kind.name, "task was dropped: others continue its work");
                None
            }
            Outcome::Overran => {
                warn!(task = kind.name, "task was dropped: its time to stop had passed");
                None
            }
            Outcome::Failed(reason) => {
                error!(task = kind.name, error = %reason, "task failed");
                Some(reason.clone())
            }
            Outcome::Panicked(message) => {
                error!(task = kind.name, panic = %message, "task panicked");
                Some(format!("panicked: {message}"))
            }
        };
        for node in self.upwards() {
            let mut roster = node.lock_roster();
            roster.live.remove(&id);
            if let Some(ended) = roster.ended.as_mut() {
                ended.push(EndedTask { name: kind.name, outcome: outcome.clone() });
            }
        }
        if let (Some(reason), OnError::StopRole) = (reason, kind.on_error) {
            self.stop_role(TaskFailure { task: kind.name, reason });
        }
    }

    fn stop_role(&self, failure: TaskFailure) {
        let role = self.upwards().find(|node| node.is_role).expect("the root of a tree is a role");
        role.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
        role.cancel.cancel();
    }

    /// Waits until a task with [`OnError::StopRole`] has failed in this role; for a [`child`](Self::child),
    /// in its role. The role's token is cancelled by then.
    pub async fn failed(&self) -> TaskFailure {
        let role = self.upwards().find(|node| node.is_role).expect("the root of a tree is a role");
        let mut failure = role.failure.subscribe();
        let seen = failure.wait_for(Option::is_some).await;
        seen.ok().and_then(|first| first.clone()).expect("the sender lives in the node we hold")
    }

    /// Stops the group: cancels its token, waits up to `grace` for all tasks below, then drops the rest.
    /// Returns at most a second after `grace`.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        self.node.lock_roster().ended.get_or_insert_default();
        self.node.cancel.cancel();
        self.node.tracker.close();
        if timeout(grace, self.node.tracker.wait()).await.is_err() {
            self.log_late();
            self.node.overrun.cancel();
            if timeout(DROP_PATIENCE, self.node.tracker.wait()).await.is_err() {
                warn!(group = self.name(), "tasks are stuck between two awaits");
            }
        }
        self.node.overrun.cancel();
        let mut roster = self.node.lock_roster();
        let ended = roster.ended.take().unwrap_or_default();
        ShutdownReport { ended, stuck: roster.live.values().map(|kind| kind.name).collect() }
    }

    /// Logs the tasks that are dropped because the grace period is over.
    fn log_late(&self) {
        let late: Vec<TaskKind> = self.node.lock_roster().live.values().copied().collect();
        let (handed, late): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|kind| kind.on_cancel == OnCancel::HandOver);
        if !handed.is_empty() {
            let tasks = handed.len();
            info!(
                group = self.name(),
                tasks,
                "tasks are dropped in the middle, as they may be: others continue their work"
            );
        }
        if !late.is_empty() {
            let names: Vec<_> = late.iter().map(|kind| kind.name).collect();
            warn!(group = self.name(), tasks = ?names, "tasks did not stop in time");
        }
    }

    /// Returns the number of live tasks of this group and those below.
    #[must_use]
    pub fn live(&self) -> usize {
        self.node.lock_roster().live.len()
    }

    fn enlist(&self, kind: TaskKind) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        for node in self.upwards() {
            node.lock_roster().live.insert(id, kind);
        }
        id
    }

    /// Returns this group's node and those above it.
    fn upwards(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(Some(&*self.node), |node| node.parent.as_ref().map(|p| &*p.node))
    }
}

impl Node {
    fn lock_roster(&self) -> MutexGuard<'_, Roster> {
        // No foreign code runs under this lock, so even a poisoned roster is consistent.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup").field("name", &self.node.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
