use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::{FencingToken, Generation, Incarnation, LocationRef};
use placement_api::{Lease, LeaseChanges, Worker};

use super::command::{Batch, Command, Commands, Effect, VERSION};

/// The most retired incarnations that are remembered, to answer *superseded*. An older one that comes back
/// counts as a new worker without leases. Its old tokens stay outranked, so that does no harm.
pub const MAX_RETIRED: usize = 10_000;

/// The most ended leases that are remembered per worker, so that it can learn its losses without a whole
/// list.
pub const MAX_ENDED: usize = 256;

/// The reason why an entry cannot be applied. The member stops, because its state would differ from the
/// others'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A newer build wrote it.
    #[error(
        "entry {index} has commands of version {version}, this build reads {VERSION}; upgrade this member"
    )]
    UnknownVersion {
        /// The entry.
        index: u64,
        /// Its version.
        version: u32,
    },
    /// The version is known but the commands are not: damage, or a build that forgot to raise its version.
    #[error("the commands of entry {index} cannot be read by this build; upgrade this member")]
    Unreadable {
        /// The entry.
        index: u64,
    },
    /// The generation and index do not fit into a token.
    #[error("generation {generation} and index {index} make no token; found a new group")]
    OutOfTokens {
        /// The generation.
        generation: u32,
        /// The entry.
        index: u64,
    },
}

/// A worker that is not declared dead, with its leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The worker.
    pub worker: Worker,
    /// Grows with every change of its leases, across leaders and generations: the token of the entry that
    /// changed them.
    pub version: u64,
    pub(super) leases: BTreeMap<LocationRef, FencingToken>,
    /// The newest ended leases, each with the version that ended it.
    pub(super) ended: VecDeque<(u64, Lease)>,
    /// All leases that ended after this version are in `ended`.
    pub(super) ended_from: u64,
}

impl Standing {
    pub(super) fn new(worker: Worker, version: u64) -> Self {
        let (leases, ended) = (BTreeMap::new(), VecDeque::new());
        Self { worker, version, leases, ended, ended_from: version }
    }

    /// Returns the changes since `known`; `None` if they are no longer remembered and a whole list is needed.
    #[must_use]
    pub fn changes_since(&self, known: u64) -> Option<LeaseChanges> {
        if known < self.ended_from || known > self.version {
            return None;
        }
        let is_new = |token: FencingToken| token.0.cast_unsigned() > known;
        let mut gained = self.leases();
        gained.retain(|lease| is_new(lease.token));
        let lost = self.ended.iter().filter(|(version, _)| *version > known);
        Some(LeaseChanges { gained, lost: lost.map(|(_, lease)| lease.clone()).collect() })
    }

    fn end(&mut self, lease: Lease, version: u64) {
        self.version = version;
        self.ended.push_back((version, lease));
        while self.ended.len() > MAX_ENDED {
            if let Some((forgotten, _)) = self.ended.pop_front() {
                self.ended_from = forgotten;
            }
        }
    }

    /// Returns the number of Locations that it holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.leases.len()
    }

    /// Returns its leases.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let lease = |(location, token): (&LocationRef, &FencingToken)| Lease {
            location: location.clone(),
            token: *token,
        };
        self.leases.iter().map(lease).collect()
    }
}

/// The state that the members agree on. Small: a worker takes about 200 bytes, a lease about 150.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub(super) generation: Generation,
    pub(super) workers: BTreeMap<Incarnation, Standing>,
    pub(super) holders: BTreeMap<LocationRef, Incarnation>,
    pub(super) retired: VecDeque<Incarnation>,
    pub(super) gone: BTreeSet<Incarnation>,
    pub(super) drained: BTreeSet<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            generation: Generation(0),
            workers: BTreeMap::new(),
            holders: BTreeMap::new(),
            retired: VecDeque::new(),
            gone: BTreeSet::new(),
            drained: BTreeSet::new(),
        }
    }
}

impl State {
    /// Applies the entry at `index`: one effect per command, in order.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing has changed, and the member must stop.
    pub fn apply(&mut self, index: u64, batch: &Batch) -> Result<Vec<Effect>, ApplyError> {
        if batch.version != VERSION {
            return Err(ApplyError::UnknownVersion { index, version: batch.version });
        }
        let Commands::Known(commands) = &batch.commands else {
            return Err(ApplyError::Unreadable { index });
        };
        let generation = self.generation.max(batch.generation);
        let token = FencingToken::new(generation, index)
            .ok_or(ApplyError::OutOfTokens { generation: generation.0, index })?;
        self.generation = generation;
        let mut entry = Entry { state: self, token, given: BTreeSet::new() };
        Ok(commands.iter().map(|command| entry.command(command)).collect())
    }

    /// Returns the generation of new tokens.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the holder of a Location, with the lease's token.
    #[must_use]
    pub fn holder(&self, location: &LocationRef) -> Option<(&Worker, FencingToken)> {
        let standing = self.workers.get(self.holders.get(location)?)?;
        standing.leases.get(location).map(|token| (&standing.worker, *token))
    }

    /// Returns a worker, unless it was declared dead or never heard.
    #[must_use]
    pub fn worker(&self, incarnation: Incarnation) -> Option<&Standing> {
        self.workers.get(&incarnation)
    }

    /// Returns all workers that were not declared dead.
    pub fn workers(&self) -> impl Iterator<Item = &Standing> {
        self.workers.values()
    }

    /// Returns whether the group has had no worker yet, and so has given no token.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.workers.is_empty() && self.retired.is_empty()
    }

    /// Returns whether an incarnation was declared dead, as far as that is remembered.
    #[must_use]
    pub fn is_retired(&self, incarnation: Incarnation) -> bool {
        self.gone.contains(&incarnation)
    }

    /// Returns whether a node drains.
    #[must_use]
    pub fn is_drained(&self, node: &str) -> bool {
        self.drained.contains(node)
    }

    /// Returns the nodes that drain.
    pub fn drained(&self) -> impl Iterator<Item = &str> {
        self.drained.iter().map(String::as_str)
    }

    /// Returns the number of leased Locations.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.holders.len()
    }
}

/// One entry while it is applied.
struct Entry<'a> {
    state: &'a mut State,
    /// The token of every lease that this entry gives.
    token: FencingToken,
    /// Locations that this entry has given away. Each only once, or one token would have two owners.
    given: BTreeSet<LocationRef>,
}

impl Entry<'_> {
    fn command(&mut self, command: &Command) -> Effect {
        match command {
            Command::Register { worker } => self.register(worker),
            Command::Retire { incarnation } => self.retire(*incarnation),
            Command::Assign { location, incarnation } => self.assign(location, *incarnation),
            Command::Release { location, incarnation, token } => {
                self.release(location, *incarnation, *token)
            }
            Command::DrainNode { node } => {
                Effect::Drains { changed: self.state.drained.insert(node.clone()) }
            }
            Command::UndrainNode { node } => {
                Effect::Drains { changed: self.state.drained.remove(node) }
            }
        }
    }

    /// Returns the version for workers whose leases this entry changes.
    fn version(&self) -> u64 {
        self.token.0.cast_unsigned()
    }

    fn register(&mut self, worker: &Worker) -> Effect {
        if self.state.is_retired(worker.incarnation) {
            return Effect::Superseded;
        }
        let version = self.version();
        self.state
            .workers
            .entry(worker.incarnation)
            .and_modify(|standing| standing.worker = worker.clone())
            .or_insert_with(|| Standing::new(worker.clone(), version));
        Effect::Registered
    }

    fn retire(&mut self, incarnation: Incarnation) -> Effect {
        let state = &mut *self.state;
        let freed: Vec<LocationRef> = state
            .workers
            .remove(&incarnation)
            .map(|gone| gone.leases)
            .into_iter()
            .flatten()
            .map(|(location, _)| location)
            .collect();
        for location in &freed {
            state.holders.remove(location);
        }
        if state.gone.insert(incarnation) {
            state.retired.push_back(incarnation);
        }
        while state.retired.len() > MAX_RETIRED {
            if let Some(oldest) = state.retired.pop_front() {
                state.gone.remove(&oldest);
            }
        }
        Effect::Retired { freed }
    }

    fn assign(&mut self, location: &LocationRef, incarnation: Incarnation) -> Effect {
        if let Some((holder, token)) = self.state.holder(location) {
            return Effect::Held { incarnation: holder.incarnation, token };
        }
        if self.given.contains(location) {
            return Effect::SameEntry;
        }
        let (token, version) = (self.token, self.version());
        let Some(standing) = self.state.workers.get_mut(&incarnation) else {
            return Effect::NotLive;
        };
        standing.leases.insert(location.clone(), token);
        standing.version = version;
        self.state.holders.insert(location.clone(), incarnation);
        self.given.insert(location.clone());
        Effect::Assigned { incarnation, token }
    }

    fn release(
        &mut self,
        location: &LocationRef,
        incarnation: Incarnation,
        token: FencingToken,
    ) -> Effect {
        let version = self.version();
        let standing = self.state.workers.get_mut(&incarnation);
        let ended = standing.is_some_and(|standing| {
            let held = standing.leases.get(location) == Some(&token);
            if held {
                standing.leases.remove(location);
                standing.end(Lease { location: location.clone(), token }, version);
            }
            held
        });
        if ended {
            self.state.holders.remove(location);
        }
        Effect::Released { ended }
    }
}
