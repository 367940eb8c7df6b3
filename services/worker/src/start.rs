use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use domain::{Clock, Incarnation};
use placement_api::Worker;
use signals::{Hint, Received, Signals, Topic};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::collect::{COLLECTION, Collector};
use crate::deletions::{self, DELETIONS};
use crate::errands::{self, ERRANDS};
use crate::executor::{Executor, Message};
use crate::fill::{OUTS, make_outs};
use crate::heartbeat::{self, Pulse};
use crate::options::{WorkerOptions, WorkerParts};
use crate::usage::{self, USAGE};

const EXECUTOR: TaskKind = TaskKind::new("worker executor", OnError::StopRole, OnCancel::Wait);
const HINTS: TaskKind = TaskKind::new("worker hints", OnError::StopRole, OnCancel::Abort);
const LEASES: TaskKind = TaskKind::new("worker leases", OnError::StopRole, OnCancel::Abort);

/// How long the worker's own tasks, which hold nothing durable, may take to stop.
const STOP: Duration = Duration::from_secs(1);

/// A running worker.
pub struct RunningWorker {
    pulse: Arc<Pulse>,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    drains: TaskGroup,
    heartbeat: JoinHandle<()>,
    stop_heartbeat: CancellationToken,
}

/// Starts a worker in the role's group.
///
/// # Errors
/// When the heartbeat's thread cannot be started.
pub fn start(
    options: WorkerOptions,
    parts: WorkerParts,
    role: &TaskGroup,
) -> std::io::Result<RunningWorker> {
    let worker = Worker {
        incarnation: Incarnation::random(),
        node: options.node.clone(),
        url: options.url.clone(),
        slots: u32::try_from(options.slots).unwrap_or(u32::MAX),
    };
    let pulse = Pulse::new(worker, &*parts.runtime.clock);
    // Not in the role's group, so that drains can end while everything else still works.
    let drains = TaskGroup::root("drains");
    let tasks = role.child("worker");
    let (inbox, messages) = mpsc::unbounded_channel();
    let (changes, mut changed) = mpsc::unbounded_channel();
    let stop_heartbeat = CancellationToken::new();
    let clock = parts.runtime.clock.clone();
    let heartbeat = heartbeat::spawn(
        pulse.clone(),
        parts.placement.clone(),
        clock.clone(),
        changes,
        stop_heartbeat.clone(),
    )?;
    let signals = parts.runtime.signals.clone();
    let options = Arc::new(options);
    let repositories = parts.fills.as_ref().map(|fills| fills.folder.clone());
    let collector =
        Collector { runtime: parts.runtime.clone(), options: options.clone(), repositories };
    tasks.spawn(COLLECTION, collector.run());
    tasks.spawn(ERRANDS, errands::run(parts.runtime.clone()));
    tasks.spawn(USAGE, usage::run(parts.runtime.store.clone()));
    tasks.spawn(DELETIONS, deletions::run(parts.runtime.store.clone()));
    if let Some(fills) = parts.fills.clone() {
        tasks.spawn(OUTS, make_outs(parts.runtime.clone(), fills));
    }
    let executor =
        Executor::new(options, parts, pulse.clone(), tasks.clone(), drains.clone(), inbox.clone());
    tasks.spawn(EXECUTOR, async move {
        executor.run(messages).await;
        Ok::<(), std::convert::Infallible>(())
    });
    let leases = inbox.clone();
    tasks.spawn(LEASES, async move {
        while let Some(change) = changed.recv().await {
            if leases.send(Message::Leases(change)).is_err() {
                break;
            }
        }
        Ok::<(), std::convert::Infallible>(())
    });
    let incarnation = pulse.incarnation.subscribe();
    tasks.spawn(HINTS, async move {
        listen(signals, incarnation, inbox).await;
        Ok::<(), std::convert::Infallible>(())
    });
    Ok(RunningWorker { pulse, clock, tasks, drains, heartbeat, stop_heartbeat })
}

/// Receives hints as long as the worker lives, under its current incarnation.
async fn listen(
    signals: Arc<dyn Signals>,
    mut incarnation: watch::Receiver<Incarnation>,
    inbox: mpsc::UnboundedSender<Message>,
) {
    loop {
        let me = *incarnation.borrow_and_update();
        let mut hints = signals.subscribe(Topic::Worker(me)).await;
        loop {
            tokio::select! {
                changed = incarnation.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                received = hints.next() => match received {
                    Some(Received::Hint(Hint::Worker(hint))) => {
                        if inbox.send(Message::Hint(hint)).is_err() {
                            return;
                        }
                    }
                    // The sweep finds what was lost.
                    Some(Received::Lagged | Received::Hint(Hint::Session(_))) => {}
                    None => return,
                },
            }
        }
    }
}

/// A worker's answer to probes. Cheap to clone.
#[derive(Clone)]
pub struct WorkerReadiness {
    pulse: Arc<Pulse>,
    clock: Arc<dyn Clock>,
}

impl WorkerReadiness {
    /// Returns what keeps the worker from being of use: it stops, the database does not answer it, or placement has
    /// accepted no heartbeat for ten seconds. `None` when nothing does.
    #[must_use]
    pub fn why_unready(&self) -> Option<String> {
        self.pulse.why_unready(self.clock.monotonic())
    }
}

impl RunningWorker {
    /// Returns this worker's answer to probes.
    #[must_use]
    pub fn readiness(&self) -> WorkerReadiness {
        WorkerReadiness { pulse: self.pulse.clone(), clock: self.clock.clone() }
    }

    /// Returns the worker's current incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        *self.pulse.incarnation.borrow()
    }

    /// Returns the number of running drains.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.drains.live()
    }

    /// Shuts down: starts no new drains, lets running turns reach their next boundary and hand over within the grace
    /// period, and gives leases back. The next owner recovers interrupted turns.
    pub async fn shutdown(self, grace: Duration) {
        self.pulse.leaving.store(true, Ordering::Relaxed);
        self.drains.shutdown(grace).await;
        self.tasks.shutdown(STOP).await;
        self.stop_heartbeat.cancel();
        // The thread sends its last heartbeat, within the client's own deadline.
        let ended = tokio::task::spawn_blocking(move || self.heartbeat.join()).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the heartbeat did not end cleanly");
        }
    }
}
