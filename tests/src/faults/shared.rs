//! What the parts of a run tell each other.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use simulated_model::Handle;

use super::coverage::{Coverage, Sight};
use crate::api::Api;

/// A prompt that a client has an acknowledgement for.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) session: usize,
    pub(crate) message: String,
}

/// What a follower has received of its session's log.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Whole frames' data, in order.
    pub(crate) events: Vec<Value>,
    pub(crate) promoted: HashSet<String>,
}

/// Shared by all tasks of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) gateways: Vec<Api>,
    pub(crate) model: Handle,
    /// The sessions' ids.
    pub(crate) sessions: Vec<String>,
    /// By session, as `sessions`.
    pub(crate) followed: Vec<Mutex<Followed>>,
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    coverage: Mutex<Coverage>,
    violations: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn new(gateways: Vec<Api>, model: Handle, sessions: Vec<String>) -> Self {
        let followed = sessions.iter().map(|_| Mutex::default()).collect();
        let (acknowledged, coverage, violations) = Default::default();
        Self { gateways, model, sessions, followed, acknowledged, coverage, violations }
    }

    pub(crate) fn saw(&self, sight: Sight) {
        locked(&self.coverage).note(sight);
    }

    pub(crate) fn coverage(&self) -> Coverage {
        locked(&self.coverage).clone()
    }

    /// Something that must not be. The run goes on, so that more is seen.
    pub(crate) fn violated(&self, what: String) {
        locked(&self.violations).push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.violations).clone()
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
