//! The in-process twin of the `/sim/…` routes.

use std::collections::BTreeMap;

use crate::complete::Model;
use crate::desk::WaitingScript;
use crate::limits::TokenLimits;
use crate::log::{Counts, RequestRecord};
use crate::script::{Script, ScriptError};

/// Scripts a running model and tells what it was asked. Cheap to clone; outlives the server.
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

    /// Adds a script after those that wait. The first that matches a request is used.
    pub fn script(&self, script: Script) -> Result<(), ScriptError> {
        self.model.desk.add(vec![script], false).map(drop)
    }

    /// Replaces all scripts; if one of them is wrong, nothing changes.
    pub fn set_scripts(&self, scripts: Vec<Script>) -> Result<(), ScriptError> {
        self.model.desk.add(scripts, true).map(drop)
    }

    /// The scripts that wait, in the order in which they are tried.
    pub fn scripts(&self) -> Vec<WaitingScript> {
        self.model.desk.waiting()
    }

    /// Forgets all scripts. Requests that already use one are not changed.
    pub fn clear_scripts(&self) {
        self.model.desk.clear();
    }

    /// Opens a gate: who waits at it goes on, and who comes later passes.
    pub fn open_gate(&self, name: &str) -> Result<(), ScriptError> {
        self.model.desk.set_gate(name, true)
    }

    /// Closes a gate again.
    pub fn close_gate(&self, name: &str) -> Result<(), ScriptError> {
        self.model.desk.set_gate(name, false)
    }

    /// Replaces what is known of how many tokens models take, by their names or [`ALL_MODELS`](crate::ALL_MODELS).
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

    /// All requests in the log, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.requests_after(0, "")
    }

    /// The requests in the log after sequence number `after` whose body contains `matching` (the kept
    /// prompt, where the body is not kept). An empty `matching` fits all.
    pub fn requests_after(&self, after: u64, matching: &str) -> Vec<RequestRecord> {
        self.model.log.records(after, matching, usize::MAX)
    }

    /// The totals and the counts per body.
    pub fn counts(&self) -> Counts {
        self.model.log.counts()
    }

    /// Empties the log and its totals. What is pending is not recorded any more.
    pub fn clear_requests(&self) {
        self.model.log.clear();
    }

    /// Waits until `done` holds of the totals (without the counts per body), and returns them. It looks
    /// after every change, and has no deadline: give it one. Cancel safe.
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
