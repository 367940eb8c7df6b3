//! The owner of the worker's state: it decides what runs, and gets its input as messages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{FencingToken, LocationRef, OrgId, SessionError, SessionRef};
use futures::future::join_all;
use history::History;
use placement_api::{Lease, PlaceRequest};
use session::{Crowd, DrainExit, DrainHandle, Files, FoldBudget, Workspace, drain, drain_control};
use signals::WorkerHint;
use store::{GivenUp, StoreError};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cache::HistoryCache;
use crate::fair::FairQueue;
use crate::heartbeat::{LeaseChange, Pulse};
use crate::location::{TakeoverError, take_over};
use crate::options::{WorkerOptions, WorkerParts};
use crate::setbacks::{Noted, Setbacks};
use crate::strikes::Strikes;
use crate::sweep::{Found, LookError};
use crate::told::Tells;
pub(crate) use crate::words::chain;
use crate::words::exit_word;

mod failing;
mod looks;
mod past;

/// One that reaches no boundary in the grace period, such as in a long answer or the pause before another attempt, is
/// dropped: the next owner recovers its turn.
const DRAIN: TaskKind = TaskKind::new("session drain", OnError::Log, OnCancel::HandOver);
const TAKE_OVER: TaskKind = TaskKind::new("take over a Location", OnError::Log, OnCancel::Abort);
const PLACE: TaskKind = TaskKind::new("place a moved session", OnError::Log, OnCancel::Abort);
const SAVE: TaskKind = TaskKind::new("save a Location's index", OnError::Log, OnCancel::Wait);

/// The most sessions that wait for a slot; the sweep finds the rest.
const QUEUE: usize = 10_000;
/// The most bytes of logs that the drains of a worker hold together. A request has them once or twice more.
const FOLDS: usize = if cfg!(test) { 1 << 20 } else { 128 << 20 };
/// The most sessions that hints have named before their Location's lease came. Bounded, because anybody can publish a
/// hint.
const EXPECTED: usize = 1_000;

/// The executor's input.
pub(crate) enum Message {
    Hint(WorkerHint),
    Leases(LeaseChange),
    TakenOver(LocationRef, FencingToken, Result<Workspace, TakeoverError>),
    /// A drain has ended; without an exit if it broke off.
    Ended(SessionRef, Option<DrainExit>, Option<Box<History>>),
    Looked(Look, Result<Found, LookError>),
    GivenUp(SessionRef, Result<GivenUp, StoreError>),
}

/// A request to look at the store.
pub(crate) struct Look {
    /// The (monotonic) time of the request.
    asked: Duration,
    /// Whether it is the sweep; otherwise it looks at one session.
    whole: bool,
}

/// A Location that this worker has leased.
struct Held {
    token: FencingToken,
    /// The workspace; `None` until the fence is raised.
    workspace: Option<Arc<Workspace>>,
    /// The (monotonic) time since which no drain runs there.
    idle_since: Duration,
    /// Sessions that wait for the fence.
    waiting: HashSet<SessionRef>,
    /// Whether the database has become another one since: it may not have all the rows that this worker knows of the
    /// files.
    outlived: bool,
}

/// A running drain.
struct Running {
    handle: DrainHandle,
    /// The drain's number on this worker.
    number: u64,
    /// Whether the session was woken since the drain began, so that its end must look again.
    again: bool,
}

pub(crate) struct Executor {
    options: Arc<WorkerOptions>,
    parts: WorkerParts,
    pulse: Arc<Pulse>,
    tasks: TaskGroup,
    drains: TaskGroup,
    /// Asks running drains to hand over. Replaced when a drained node may work again.
    stopping: CancellationToken,
    inbox: mpsc::UnboundedSender<Message>,
    held: HashMap<LocationRef, Held>,
    running: HashMap<SessionRef, Running>,
    /// Sessions that wait for a slot.
    queue: FairQueue<OrgId, SessionRef>,
    /// The (monotonic) times since which sessions wait for a slot, where there was none at once.
    since: HashMap<SessionRef, Duration>,
    /// Sessions that wait for room in the budget of folds, each with the bytes that it needs.
    cramped: VecDeque<(SessionRef, usize)>,
    folds: FoldBudget,
    /// Tells drains whether any session waits.
    crowd: Crowd,
    cache: HistoryCache,
    setbacks: Setbacks,
    strikes: Strikes,
    /// Sessions that hints have named at Locations that are not leased yet.
    expected: HashSet<SessionRef>,
    /// How often the database was another one, as of the last look.
    databases: u64,
    /// The number of drains started.
    started: u64,
    sweeping: bool,
}

impl Executor {
    pub(crate) fn new(
        options: Arc<WorkerOptions>,
        parts: WorkerParts,
        pulse: Arc<Pulse>,
        tasks: TaskGroup,
        drains: TaskGroup,
        inbox: mpsc::UnboundedSender<Message>,
    ) -> Self {
        let stopping = drains.token().child_token();
        Self {
            options,
            parts,
            pulse,
            tasks,
            drains,
            stopping,
            inbox,
            held: HashMap::new(),
            running: HashMap::new(),
            queue: FairQueue::new(QUEUE),
            since: HashMap::new(),
            cramped: VecDeque::new(),
            folds: FoldBudget::new(FOLDS),
            crowd: Crowd::default(),
            cache: HistoryCache::default(),
            setbacks: Setbacks::default(),
            strikes: Strikes::default(),
            expected: HashSet::new(),
            databases: 0,
            started: 0,
            sweeping: false,
        }
    }

    /// Runs until every sender is gone or the group stops.
    pub(crate) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let stop = self.tasks.token();
        let mut tick = tokio::time::interval(self.options.sweep);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.give_all_back().await,
                _ = tick.tick() => {
                    self.follow_drain();
                    self.sweep();
                }
                message = messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
            }
            let metrics = telemetry::metrics();
            metrics.drains.set(self.running.len());
            metrics.leases.set(self.held.len());
            metrics.queue.set(self.queue.len() + self.cramped.len());
            let busy = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
            self.pulse.busy.store(busy, Ordering::Relaxed);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Hint(WorkerHint::Wake { session }) => self.poke(session),
            Message::Hint(WorkerHint::Interrupt { session }) => self.look_at(&session),
            Message::Hint(WorkerHint::Resync { session }) => {
                if let Some(running) = self.running.get(&session) {
                    running.handle.resync();
                }
            }
            Message::Hint(WorkerHint::Assigned { location, session }) => {
                self.pulse.hurry();
                if let Some(session) = session {
                    let LocationRef { org, location } = location;
                    self.expect(SessionRef { org, location, session });
                }
            }
            Message::Leases(LeaseChange::All(leases)) => self.leases(leases),
            Message::Leases(LeaseChange::Some(changes)) => {
                for lost in changes.lost {
                    let held = self.held.get(&lost.location);
                    if held.is_some_and(|held| held.token <= lost.token) {
                        self.held.remove(&lost.location);
                    }
                }
                changes.gained.into_iter().for_each(|lease| self.gain(lease));
            }
            Message::Leases(LeaseChange::HandOver) => self.hand_over(),
            Message::Leases(LeaseChange::Reborn) => self.held.clear(),
            Message::TakenOver(at, token, result) => self.taken_over(&at, token, result),
            Message::Ended(session, exit, history) => {
                self.ended(session, exit.as_ref(), history.map(|history| *history));
            }
            Message::Looked(look, result) => self.looked(&look, result),
            Message::GivenUp(session, result) => self.given_up(&session, result),
        }
    }

    /// Replaces our leases with placement's whole list. Drains at a lost Location continue until they are fenced, but
    /// nothing new starts there.
    fn leases(&mut self, leases: Vec<Lease>) {
        let now: HashMap<&LocationRef, FencingToken> =
            leases.iter().map(|lease| (&lease.location, lease.token)).collect();
        self.held.retain(|at, held| now.get(at).is_some_and(|token| *token >= held.token));
        for lease in leases {
            self.gain(lease);
        }
    }

    fn gain(&mut self, lease: Lease) {
        let Lease { location, token } = lease;
        if self.held.get(&location).is_some_and(|held| held.token >= token) {
            return;
        }
        let now = self.parts.runtime.clock.monotonic();
        let pause = self.setbacks.pause(&location, now);
        let waiting = self.expected.extract_if(|session| session.location_ref() == location);
        let waiting = waiting.collect();
        let held = Held { token, workspace: None, idle_since: now, waiting, outlived: false };
        self.held.insert(location.clone(), held);
        let (runtime, options) = (self.parts.runtime.clone(), self.options.clone());
        let (inbox, fills) = (self.inbox.clone(), self.parts.fills.clone());
        self.tasks.spawn(TAKE_OVER, async move {
            tokio::time::sleep(pause).await;
            let result =
                Box::pin(take_over(&runtime, &options, fills.as_ref(), &location, token)).await;
            // The executor is gone only when the worker is.
            let _gone = inbox.send(Message::TakenOver(location, token, result));
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn taken_over(
        &mut self,
        at: &LocationRef,
        token: FencingToken,
        result: Result<Workspace, TakeoverError>,
    ) {
        if self.held.get(at).is_none_or(|held| held.token != token) {
            return;
        }
        match result {
            Ok(workspace) => {
                debug!(location.id = %at.location, %token, "the Location is ours");
                if self.setbacks.clear(at) && workspace.unavailable().is_none() {
                    // As loud as the line about its begin, so that who read that one reads this one.
                    warn!(location.id = %at.location, "the Location can be had again");
                }
                self.open(at, workspace);
            }
            Err(TakeoverError::Store(StoreError::Superseded)) => {
                info!(location.id = %at.location, %token, "a later token has acted here");
                self.give_back(at);
            }
            Err(TakeoverError::Away { shown, error, patience }) => {
                let SessionError { code, message } = &error;
                let now = self.parts.runtime.clock.monotonic();
                let Noted { told, is_news } = self.setbacks.note(at, now, patience);
                let location = &at.location;
                match (is_news, told) {
                    (true, false) => {
                        warn!(location.id = %location, %code, %message, "the Location cannot be had: it is tried again");
                    }
                    (true, true) => {
                        warn!(location.id = %location, %code, %message, "the Location cannot be had: its sessions are told, \
                            and the next prompt tries again");
                    }
                    (false, _) => {
                        debug!(location.id = %location, %code, %message, told, "the Location cannot be had");
                    }
                }
                if told {
                    self.open(at, Workspace::missing(shown, error));
                } else {
                    self.give_back(at);
                }
            }
            Err(TakeoverError::Store(error)) => {
                warn!(location.id = %at.location, error = %chain(&error), "the Location cannot be taken over yet");
                // Placement assigns it again, here or elsewhere.
                self.give_back(at);
            }
        }
    }

    /// Lets drains start at the Location.
    fn open(&mut self, at: &LocationRef, workspace: Workspace) {
        let Some(held) = self.held.get_mut(at) else { return };
        held.workspace = Some(Arc::new(workspace));
        let waiting = std::mem::take(&mut held.waiting);
        for session in waiting {
            self.poke(session);
        }
        self.sweep();
    }

    /// Gives the Location back if its files are missing, so that the next prompt looks for them again, here or
    /// elsewhere.
    fn look_for_files_again(&mut self, at: &LocationRef) {
        let workspace = self.held.get(at).and_then(|held| held.workspace.as_ref());
        if workspace.is_some_and(|workspace| workspace.unavailable().is_some()) {
            self.give_back(at);
        }
    }

    /// Notes a session whose Location's lease is on its way.
    fn expect(&mut self, session: SessionRef) {
        if self.held.contains_key(&session.location_ref()) {
            return self.poke(session);
        }
        if self.expected.len() >= EXPECTED {
            self.expected.clear(); // the sweep finds them
        }
        self.expected.insert(session);
    }

    /// Wakes the holder of a Location that a session drained here has moved to.
    fn moved(&mut self, to: SessionRef) {
        let location = to.location_ref();
        if self.held.contains_key(&location) {
            return self.poke(to);
        }
        let placement = self.parts.placement.clone();
        self.tasks.spawn(PLACE, async move {
            let request = PlaceRequest { location, session: Some(to.session) };
            if let Err(error) = placement.place(request).await {
                // The work is durable and *ready*, so placement's sweep finds it.
                warn!(%error, "the Location that a session moved to is not placed yet");
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn give_back(&mut self, at: &LocationRef) {
        let Some(held) = self.held.remove(at) else { return };
        if let Some(files) = held.workspace.as_ref().and_then(|workspace| workspace.files()) {
            let files = files.clone();
            self.tasks.spawn(SAVE, async move {
                files.save().await;
                Ok::<(), std::convert::Infallible>(())
            });
        }
        self.pulse.release(Lease { location: at.clone(), token: held.token });
    }

    /// Releases every Location. The drains have ended, so others may take over with the last heartbeat.
    async fn give_all_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        let workspaces: Vec<_> = held.values().filter_map(|held| held.workspace.clone()).collect();
        let saves = workspaces.iter().filter_map(|workspace| workspace.files()).map(Files::save);
        join_all(saves).await;
        for (location, held) in held {
            self.pulse.release(Lease { location, token: held.token });
        }
    }

    /// Follows placement's wish for the node: hand over at the next boundary, or take work again.
    fn follow_drain(&mut self) {
        let drained = self.pulse.is_drained();
        if drained && !self.stopping.is_cancelled() {
            info!("the node drains: sessions are handed over at their next boundary");
            self.stopping.cancel();
            self.queue.clear();
            self.cramped.clear();
            self.since.clear();
            self.crowd.set(false);
        } else if !drained && self.stopping.is_cancelled() && !self.drains.token().is_cancelled() {
            info!("the node takes work again");
            self.stopping = self.drains.token().child_token();
        }
    }

    /// Starts a session's drain if the session may have work, at once or when it gets a slot.
    fn poke(&mut self, session: SessionRef) {
        if let Some(running) = self.running.get_mut(&session) {
            running.again = true;
            return;
        }
        if self.cramped.iter().any(|(cramped, _)| *cramped == session) {
            return; // it starts once there is room
        }
        let Some(held) = self.held.get_mut(&session.location_ref()) else { return };
        if held.workspace.is_none() {
            held.waiting.insert(session);
            return;
        }
        let (org, now) = (session.org, self.parts.runtime.clock.monotonic());
        if self.running.len() >= self.options.slots && self.since.len() < QUEUE {
            self.since.entry(session.clone()).or_insert(now);
        }
        self.queue.push(&org, session);
        self.fill();
    }

    /// Gives free slots to waiting sessions. A later sweep finds a session that cannot start now.
    fn fill(&mut self) {
        while self.running.len() < self.options.slots {
            let Some(next) = self.queue.pop() else { break };
            let now = self.parts.runtime.clock.monotonic();
            let waited = self.since.remove(&next).map_or(Duration::ZERO, |since| now - since);
            telemetry::metrics().queue_seconds.took(waited);
            self.begin(next);
        }
        self.crowd.set(!self.queue.is_empty() || !self.cramped.is_empty());
    }

    /// Lets sessions that wait for room in the budget of folds wait for a slot instead, the oldest first.
    fn use_room(&mut self) {
        while let Some((_, bytes)) = self.cramped.front()
            && self.folds.has_room(*bytes)
            && let Some((session, _)) = self.cramped.pop_front()
        {
            self.poke(session);
        }
    }

    fn begin(&mut self, session: SessionRef) {
        if self.stopping.is_cancelled() || !self.pulse.may_start(&*self.parts.runtime.clock) {
            return;
        }
        let Some(held) = self.held.get_mut(&session.location_ref()) else { return };
        let token = held.token;
        match held.workspace.clone() {
            Some(workspace) => self.start(session, token, workspace),
            None => {
                held.waiting.insert(session);
            }
        }
    }

    fn start(&mut self, session: SessionRef, token: FencingToken, workspace: Arc<Workspace>) {
        let history = self.cache.take(&session);
        let (handle, control) = drain_control(self.stopping.clone());
        let control = control.within(&self.crowd).with_folds(&self.folds);
        let (runtime, inbox) = (self.parts.runtime.clone(), self.inbox.clone());
        self.started += 1;
        let number = self.started;
        self.running.insert(session.clone(), Running { handle, number, again: false });
        self.drains.spawn(DRAIN, async move {
            let tells = Tells::new(inbox, session.clone());
            let ran = drain(&runtime, &session, token, &workspace, control, history);
            let (exit, history) = Box::pin(ran).await;
            tells.end(exit, history);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn ended(&mut self, session: SessionRef, exit: Option<&DrainExit>, history: Option<History>) {
        let ran = self.running.remove(&session);
        let again = ran.as_ref().is_some_and(|ran| ran.again);
        let turns = ran.map_or(0, |ran| ran.handle.turns());
        self.queue.charge(&session.org, turns);
        self.count(&session, exit, turns);
        if let Some(history) = history {
            let now_at = if let Some(DrainExit::Moved(to)) = exit { to } else { &session };
            self.cache.put(now_at.clone(), history);
        }
        telemetry::metrics().drain_ended(exit_word(exit));
        let at = session.location_ref();
        if let Some(held) = self.held.get_mut(&at) {
            held.idle_since = self.parts.runtime.clock.monotonic();
        }
        self.give_back_outlived();
        match exit {
            // The task has logged a panic.
            None => debug!(session.id = %session.session, "the drain broke off"),
            Some(DrainExit::Idle | DrainExit::Ended(_) | DrainExit::Waiting) => {
                self.look_for_files_again(&at);
                if again {
                    self.poke(session);
                }
            }
            Some(DrainExit::Moved(to)) => self.moved(to.clone()),
            Some(DrainExit::NoRoom(bytes)) => {
                debug!(session.id = %session.session, bytes, "the session waits for memory for its log");
                // The next sweep finds what is beyond the bound.
                if self.cramped.len() < QUEUE {
                    self.cramped.push_back((session, *bytes));
                }
            }
            Some(DrainExit::Yielded) => self.poke(session),
            Some(DrainExit::HandedOver) => {}
            Some(DrainExit::Fenced) => {
                info!(session.id = %session.session, "the drain was fenced");
                // The session may have been deleted and created again under its id.
                if again {
                    self.poke(session);
                }
            }
            Some(DrainExit::WentBack) => self.went_back(&session),
            Some(DrainExit::Superseded) => self.give_back(&at),
            Some(DrainExit::Failed(_)) => {}
        }
        self.use_room();
        self.fill();
    }

    fn release_idle(&mut self) {
        let now = self.parts.runtime.clock.monotonic();
        let drained = self.pulse.is_drained();
        // Where a session rests, its failures are known here and nowhere else.
        let busy = self.running.keys().chain(self.strikes.resting(now));
        let busy: HashSet<LocationRef> = busy.map(SessionRef::location_ref).collect();
        let idle: Vec<LocationRef> = self
            .held
            .iter()
            .filter(|(at, held)| {
                held.workspace.is_some()
                    && !busy.contains(*at)
                    && (drained || held.idle_since + self.options.idle_release < now)
            })
            .map(|(at, _)| at.clone())
            .collect();
        for at in idle {
            self.give_back(&at);
        }
    }
}

#[cfg(test)]
mod outage;
#[cfg(test)]
mod tests;
