use std::collections::{BTreeMap, VecDeque};

use domain::{FencingToken, Incarnation, LocationRef, SessionId, SessionRef};
use placement_api::{Lease, Placed, PlacementError};
use signals::{Hint, Topic, WorkerHint};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Host;
use super::job::{Job, MAX_WAITING, Reply, Waiter};
use super::last::LastNodes;
use super::leader::Leading;
use super::watch::Said;
use crate::rules::{Batch, Command, Effect, Load, MAX_COMMANDS, choose};

/// The most tries to place one Location before its caller has to ask again.
const MAX_TRIES: u8 = 3;

/// The leader's only writer: combines the waiting jobs into one entry, and answers the callers.
///
/// Only one write is under way at a time, so calls for the same Location coalesce: calls that arrive together
/// share a command, and later ones find the holder in the state. The writer ends when a write fails, because
/// leadership moved.
pub(crate) struct Writer<'a> {
    host: &'a Host,
    leading: &'a Leading,
    queue: VecDeque<Job>,
    /// Locations whose holder died or drains, waiting for a new one.
    freed: VecDeque<LocationRef>,
    last: LastNodes,
}

/// The purpose of a command.
enum Purpose {
    Place { location: LocationRef, waiters: Vec<Waiter> },
    Register { reply: Reply<()> },
    Release { leases: Vec<Lease>, reassign: bool, reply: Reply<()> },
    Retire { incarnation: Incarnation },
    Drain { reply: Reply<()> },
}

#[derive(Default)]
struct Plan {
    commands: Vec<Command>,
    purposes: Vec<Purpose>,
    /// The index in `purposes` for each Location that is being placed.
    placing: BTreeMap<LocationRef, usize>,
    load: Load,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(host: &'a Host, leading: &'a Leading) -> Self {
        let (queue, freed) = (VecDeque::new(), VecDeque::new());
        Self { host, leading, queue, freed, last: LastNodes::default() }
    }

    /// Runs until a write fails or all senders are gone.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        loop {
            if self.queue.is_empty() && self.freed.is_empty() {
                match jobs.recv().await {
                    Some(job) => self.queue.push_back(job),
                    None => return,
                }
            }
            while self.queue.len() < MAX_WAITING
                && let Ok(job) = jobs.try_recv()
            {
                self.queue.push_back(job);
            }
            let plan = self.plan();
            if plan.commands.is_empty() {
                continue;
            }
            let batch = Batch::new(self.host.generation(), plan.commands);
            match self.host.raft.client_write(batch).await {
                Ok(written) => self.settle(plan.purposes, written.data),
                Err(error) => {
                    tracing::warn!(%error, "placement could not write; it no longer leads");
                    return;
                }
            }
        }
    }

    /// Makes the next entry, of at most [`MAX_COMMANDS`] commands. Jobs that need no entry are answered here.
    fn plan(&mut self) -> Plan {
        let load = self.leading.load(self.host);
        let mut plan = Plan { load, ..Plan::default() };
        // Waiting callers get half an entry, so that a dead worker's many Locations do not hold them up.
        while let Some(job) = self.queue.front() {
            let limit = if self.freed.is_empty() { MAX_COMMANDS } else { MAX_COMMANDS / 2 };
            if plan.commands.len() + job.commands() > limit {
                break;
            }
            if let Some(job) = self.queue.pop_front() {
                self.plan_job(&mut plan, job);
            }
        }
        while plan.commands.len() < MAX_COMMANDS
            && let Some(location) = self.freed.pop_front()
        {
            if !self.plan_place(&mut plan, location, None) {
                let left = self.freed.len() + 1;
                tracing::info!(
                    left,
                    "no worker takes the Locations that were freed; they wait for one"
                );
                self.freed.clear();
            }
        }
        plan
    }

    fn plan_job(&mut self, plan: &mut Plan, job: Job) {
        match job {
            Job::Place { location, waiter } => {
                self.plan_place(plan, location, Some(waiter));
            }
            Job::Register { worker, reply } => {
                plan.commands.push(Command::Register { worker });
                plan.purposes.push(Purpose::Register { reply });
            }
            Job::Release { incarnation, leases, reassign, reply } => {
                let release = |lease: &Lease| Command::Release {
                    location: lease.location.clone(),
                    incarnation,
                    token: lease.token,
                };
                plan.commands.extend(leases.iter().map(release));
                plan.purposes.push(Purpose::Release { leases, reassign, reply });
            }
            Job::Retire { incarnation } => {
                // A heartbeat may have arrived while this job waited.
                if self.leading.is_silent(incarnation) {
                    plan.commands.push(Command::Retire { incarnation });
                    plan.purposes.push(Purpose::Retire { incarnation });
                }
            }
            Job::Drain { node, on, reply } => {
                plan.commands.push(if on {
                    Command::DrainNode { node }
                } else {
                    Command::UndrainNode { node }
                });
                plan.purposes.push(Purpose::Drain { reply });
            }
        }
    }

    /// Plans a placement. Returns whether a worker was available.
    fn plan_place(&self, plan: &mut Plan, location: LocationRef, waiter: Option<Waiter>) -> bool {
        if let Some(Purpose::Place { waiters, .. }) =
            plan.placing.get(&location).and_then(|at| plan.purposes.get_mut(*at))
        {
            waiters.extend(waiter);
            return true;
        }
        if let Some(placed) = self.host.held(&location) {
            if let Some(waiter) = waiter {
                self.wake(&placed, waiter.session.as_ref());
                answer(waiter.reply, Ok(placed));
            }
            return true;
        }
        let (load, last) = (&plan.load, self.last.of(&location));
        let chosen = self.host.state.read(|state| choose(state, load, &location, last));
        let Some(incarnation) = chosen else {
            answer(waiter.and_then(|waiter| waiter.reply), Err(PlacementError::NoWorker));
            return false;
        };
        *plan.load.planned.entry(incarnation).or_default() += 1;
        plan.commands.push(Command::Assign { location: location.clone(), incarnation });
        plan.placing.insert(location.clone(), plan.purposes.len());
        plan.purposes.push(Purpose::Place { location, waiters: waiter.into_iter().collect() });
        true
    }

    /// Passes the entry's effects on to the callers.
    fn settle(&mut self, purposes: Vec<Purpose>, effects: Vec<Effect>) {
        let mut effects = effects.into_iter();
        for purpose in purposes {
            match purpose {
                Purpose::Place { location, waiters } => {
                    let news = match effects.next() {
                        Some(Effect::Assigned { incarnation, token }) => Some((incarnation, token)),
                        _ => None,
                    };
                    self.settle_place(location, waiters, news);
                }
                Purpose::Register { reply } => {
                    let known = matches!(effects.next(), Some(Effect::Registered));
                    answer(
                        Some(reply),
                        if known { Ok(()) } else { Err(PlacementError::Superseded) },
                    );
                    self.leading.sweep_soon();
                }
                Purpose::Release { leases, reassign, reply } => {
                    for (lease, effect) in leases.into_iter().zip(effects.by_ref()) {
                        self.last.released(&lease.location, Instant::now());
                        if reassign && effect == (Effect::Released { ended: true }) {
                            self.freed.push_back(lease.location);
                        }
                    }
                    answer(Some(reply), Ok(()));
                }
                Purpose::Retire { incarnation } => {
                    if let Some(Effect::Retired { freed }) = effects.next() {
                        self.tell_end(incarnation, freed.len());
                        self.freed.extend(freed);
                        self.leading.sweep_soon();
                    }
                }
                Purpose::Drain { reply } => {
                    effects.next();
                    answer(Some(reply), Ok(()));
                    self.leading.sweep_soon();
                }
            }
        }
    }

    /// Logs a worker's end.
    fn tell_end(&self, incarnation: Incarnation, leases: usize) {
        if has_left(self.leading.seen(incarnation).1, leases) {
            tracing::info!(%incarnation, leases, "worker left");
        } else {
            tracing::warn!(%incarnation, leases, "worker declared dead; its Locations go to others");
        }
    }

    fn settle_place(
        &mut self,
        location: LocationRef,
        waiters: Vec<Waiter>,
        news: Option<(Incarnation, FencingToken)>,
    ) {
        let Some(placed) = self.host.held(&location) else {
            // The new holder was retired by the same entry or was already gone: choose again.
            if waiters.is_empty() {
                self.freed.push_back(location);
                return;
            }
            for waiter in waiters {
                self.try_again(location.clone(), waiter);
            }
            return;
        };
        let mut sessions = waiters.iter().filter_map(|waiter| waiter.session.as_ref());
        let mine = (placed.worker.incarnation, placed.lease.token);
        if news == Some(mine) {
            self.leading.note_assignment(placed.worker.incarnation);
            let node = placed.worker.node.clone();
            self.last.assigned(location.clone(), node, Instant::now());
            let assigned = WorkerHint::Assigned { location, session: sessions.next().cloned() };
            let topic = Topic::Worker(placed.worker.incarnation);
            self.host.signals.publish(&topic, Hint::Worker(assigned));
        }
        for session in sessions {
            self.wake(&placed, Some(session));
        }
        for waiter in waiters {
            answer(waiter.reply, Ok(placed.clone()));
        }
    }

    fn try_again(&mut self, location: LocationRef, mut waiter: Waiter) {
        waiter.tries += 1;
        if waiter.tries < MAX_TRIES {
            self.queue.push_back(Job::Place { location, waiter });
        } else {
            let reason = "workers die faster than they are chosen; ask again".to_owned();
            answer(waiter.reply, Err(PlacementError::Unreachable { reason }));
        }
    }

    fn wake(&self, placed: &Placed, session: Option<&SessionId>) {
        self.host.wake(placed, session);
    }
}

impl Host {
    /// Returns the current holder of a Location.
    pub(crate) fn held(&self, location: &LocationRef) -> Option<Placed> {
        self.state.read(|state| {
            let (worker, token) = state.holder(location)?;
            let lease = Lease { location: location.clone(), token };
            Some(Placed { worker: worker.clone(), lease })
        })
    }

    /// Forwards a session's wake to the holder of its Location.
    pub(crate) fn wake(&self, placed: &Placed, session: Option<&SessionId>) {
        if let Some(session) = session {
            let LocationRef { org, location } = placed.lease.location.clone();
            let session = SessionRef { org, location, session: session.clone() };
            let topic = Topic::Worker(placed.worker.incarnation);
            self.signals.publish(&topic, Hint::Worker(WorkerHint::Wake { session }));
        }
    }
}

/// Whether a worker of which nothing more is heard has left in order. It said that it takes nothing new and runs nothing, or
/// it had nothing to lose: after a restart its successor runs already, and a new leader does not know whether it was
/// draining. One that leaves when all do keeps what nobody else could take.
fn has_left(said: Said, leases: usize) -> bool {
    leases == 0 || (said.draining && said.busy == 0)
}

/// Answers the caller, if it is still there.
fn answer<T>(reply: Option<Reply<T>>, with: Result<T, PlacementError>) {
    if let Some(reply) = reply {
        let _ = reply.send(with);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding ops-3, polish: workers that were stopped all at once were declared dead.
    #[test]
    fn a_worker_that_said_so_has_left() {
        let says = |draining, busy| Said { draining, busy, ..Said::default() };
        for (said, leases, left) in [
            (says(true, 0), 3, true),
            (says(true, 2), 3, false),
            (says(false, 0), 3, false),
            (says(false, 0), 0, true),
            (says(true, 2), 0, true),
        ] {
            assert_eq!(has_left(said, leases), left, "{said:?} {leases}");
        }
    }
}
