//! What the parts of a run tell each other.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use simulated_model::Handle;

use super::coverage::{Coverage, Sight};
use super::reborn::Life;
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
    /// The project in which sessions are made.
    pub(crate) project: String,
    /// The sessions' ids.
    pub(crate) sessions: Vec<String>,
    /// By session, as `sessions`.
    pub(crate) followed: Vec<Mutex<Followed>>,
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    /// Of the sessions that were made anew, those that are left.
    pub(crate) lives: Mutex<Vec<Life>>,
    coverage: Mutex<Coverage>,
    violations: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn new(
        gateways: Vec<Api>,
        model: Handle,
        project: String,
        sessions: Vec<String>,
    ) -> Self {
        let followed = sessions.iter().map(|_| Mutex::default()).collect();
        let (acknowledged, lives, coverage, violations) = Default::default();
        Self {
            gateways,
            model,
            project,
            sessions,
            followed,
            acknowledged,
            lives,
            coverage,
            violations,
        }
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
