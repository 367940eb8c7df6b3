//! The in-process equivalent of the `/sim/…` routes.

use std::collections::BTreeMap;

use crate::complete::Model;
use crate::desk::WaitingScript;
use crate::limits::TokenLimits;
use crate::log::{Counts, RequestRecord};
use crate::script::{Script, ScriptError};

/// Scripts a running model and reads its log. Cheap to clone; outlives the server.
#[derive(Clone)]
pub struct Handle {
    model: Model,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(model: Model) -> Self {
        Self { model }
    }

    /// Adds a script after the waiting ones. A request uses the first script that matches it.
    pub fn script(&self, script: Script) -> Result<(), ScriptError> {
        self.model.desk.add(vec![script], false).map(drop)
    }

    /// Replaces all scripts. If one of them is wrong, nothing changes.
    pub fn set_scripts(&self, scripts: Vec<Script>) -> Result<(), ScriptError> {
        self.model.desk.add(scripts, true).map(drop)
    }

    /// Returns the waiting scripts, in the order in which they are tried.
    pub fn scripts(&self) -> Vec<WaitingScript> {
        self.model.desk.waiting()
    }

    /// Forgets all scripts. Requests that already use one do not change.
    pub fn clear_scripts(&self) {
        self.model.desk.clear();
    }

    /// Opens a gate: waiting requests continue, and later ones pass.
    pub fn open_gate(&self, name: &str) -> Result<(), ScriptError> {
        self.model.desk.set_gate(name, true)
    }

    /// Closes a gate again.
    pub fn close_gate(&self, name: &str) -> Result<(), ScriptError> {
        self.model.desk.set_gate(name, false)
    }

    /// Replaces the token limits of models, by model name or [`ALL_MODELS`](crate::ALL_MODELS).
    ///
    /// # Errors
    /// [`ScriptError::TooMany`] for more than [`MAX_LIMITED_MODELS`](crate::MAX_LIMITED_MODELS).
    pub fn set_limits(
        &self,
        limits: impl IntoIterator<Item = (impl Into<String>, TokenLimits)>,
    ) -> Result<(), ScriptError> {
        let limits = limits.into_iter().map(|(model, limits)| (model.into(), limits));
        self.model.limits.replace(limits.collect::<BTreeMap<_, _>>())
    }

    /// Returns all requests in the log, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.requests_after(0, "")
    }

    /// Returns the logged requests after number `after` whose body contains `matching`. If the body is not kept, the
    /// kept prompt is searched. An empty `matching` selects all.
    pub fn requests_after(&self, after: u64, matching: &str) -> Vec<RequestRecord> {
        self.model.log.records(after, matching, usize::MAX)
    }

    /// Returns the totals and the counts per body.
    pub fn counts(&self) -> Counts {
        self.model.log.counts()
    }

    /// Empties the log and its totals. Pending requests are no longer recorded.
    pub fn clear_requests(&self) {
        self.model.log.clear();
    }

    /// Waits until `done` holds for the totals, without the counts per body, and returns them. Looks after every
    /// change. Has no deadline, so give it one. Cancel safe.
    pub async fn wait_for(&self, mut done: impl FnMut(&Counts) -> bool) -> Counts {
        let mut changes = self.model.log.subscribe();
        loop {
            changes.borrow_and_update();
            let totals = self.model.log.totals();
            if done(&totals) {
                return totals;
            }
            // Cannot fail: the sender is in the log, which we hold.
            changes.changed().await.ok();
        }
    }
}
