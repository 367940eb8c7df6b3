//! The bytes that wait for slow readers: bounds for a stream, an organisation and the gateway.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use domain::OrgId;

/// The most bytes that a gateway keeps for readers that are behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// For one reader.
    pub(crate) stream: usize,
    /// For all readers of one organisation.
    pub(crate) org: usize,
    /// For all readers.
    pub(crate) gateway: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self { stream: 4 * MIB, org: 32 * MIB, gateway: 128 * MIB }
    }
}

/// A queue whose slowest readers can be ended.
pub(super) trait Queued: Send + Sync {
    /// Returns the bytes that wait in the queue.
    fn waiting(&self) -> usize;
    /// Ends the slowest readers, and frees what only they had not read.
    fn end_slowest(&self);
}

#[derive(Default)]
struct OrgQueues {
    bytes: Arc<AtomicUsize>,
    queues: HashMap<u64, Weak<dyn Queued>>,
}

#[derive(Default)]
struct Registry {
    next: u64,
    orgs: HashMap<OrgId, OrgQueues>,
}

/// The accounts of all queues of a gateway.
#[derive(Default)]
pub(crate) struct QueueBudget {
    limits: QueueLimits,
    bytes: AtomicUsize,
    registry: Mutex<Registry>,
}

impl QueueBudget {
    #[cfg(test)]
    pub(crate) fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self { limits, ..Self::default() })
    }

    /// Opens the account of an organisation's queue.
    pub(super) fn open(self: &Arc<Self>, org: OrgId) -> QueueAccount {
        let mut registry = self.lock();
        registry.next += 1;
        let number = registry.next;
        let org_bytes = registry.orgs.entry(org).or_default().bytes.clone();
        QueueAccount { budget: self.clone(), org, org_bytes, number }
    }

    /// Returns the bytes that wait in all queues.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of organisations with an account.
    #[cfg(test)]
    pub(crate) fn organisations(&self) -> usize {
        self.lock().orgs.len()
    }

    /// Returns the fullest queue of `org`, or of the organisation with the most bytes.
    fn fullest(&self, org: Option<OrgId>) -> Option<Arc<dyn Queued>> {
        // A queue whose other owners are gone ends with this list, and its account then takes the lock.
        let queues: Vec<_> = {
            let registry = self.lock();
            let org = match org {
                Some(org) => registry.orgs.get(&org)?,
                None => {
                    registry.orgs.values().max_by_key(|org| org.bytes.load(Ordering::Relaxed))?
                }
            };
            org.queues.values().filter_map(Weak::upgrade).collect()
        };
        let queues = queues.into_iter();
        queues.filter(|queue| queue.waiting() > 0).max_by_key(|queue| queue.waiting())
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        // Nothing below panics under this lock.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of one queue.
pub(super) struct QueueAccount {
    budget: Arc<QueueBudget>,
    org: OrgId,
    org_bytes: Arc<AtomicUsize>,
    number: u64,
}

impl QueueAccount {
    /// Returns the most bytes that may wait for one reader.
    pub(super) fn stream_limit(&self) -> usize {
        self.budget.limits.stream
    }

    /// Names the queue, whose slowest readers are ended when too many bytes wait.
    pub(super) fn register(&self, queue: Weak<dyn Queued>) {
        self.budget.lock().orgs.entry(self.org).or_default().queues.insert(self.number, queue);
    }

    pub(super) fn add(&self, bytes: usize) {
        self.org_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, bytes: usize) {
        self.org_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Ends the slowest readers until the organisation and the gateway are within their limits. The caller holds no
    /// lock of a queue.
    pub(super) fn keep_limits(&self) {
        let limits = self.budget.limits;
        while self.org_bytes.load(Ordering::Relaxed) > limits.org {
            let Some(queue) = self.budget.fullest(Some(self.org)) else { break };
            queue.end_slowest();
        }
        while self.budget.bytes.load(Ordering::Relaxed) > limits.gateway {
            let Some(queue) = self.budget.fullest(None) else { break };
            queue.end_slowest();
        }
    }
}

impl Drop for QueueAccount {
    fn drop(&mut self) {
        let mut registry = self.budget.lock();
        if let Some(org) = registry.orgs.get_mut(&self.org) {
            org.queues.remove(&self.number);
            // An account that is opened and not registered yet has the counter too.
            if org.queues.is_empty() && Arc::strong_count(&org.bytes) <= 2 {
                registry.orgs.remove(&self.org);
            }
        }
    }
}
