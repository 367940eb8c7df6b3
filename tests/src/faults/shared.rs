//! The state that the parts of a run share.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use simulated_model::Handle;

use super::coverage::{Coverage, Sight};
use super::reborn::Life;
use crate::api::Api;

/// A prompt that was acknowledged to a client.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) session: usize,
    pub(crate) message: String,
}

/// The part of its session's log that a follower has received.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The data of whole frames, in order.
    pub(crate) events: Vec<Value>,
    pub(crate) promoted: HashSet<String>,
}

/// The state that all tasks of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) gateways: Vec<Api>,
    pub(crate) model: Handle,
    /// The project of the sessions.
    pub(crate) project: String,
    /// The sessions' ids.
    pub(crate) sessions: Vec<String>,
    /// By session, in the order of `sessions`.
    pub(crate) followed: Vec<Mutex<Followed>>,
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    /// The last lives of sessions that were created again.
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

    /// Records a violation. The run continues, so that it finds more.
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
