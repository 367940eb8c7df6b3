use std::collections::BTreeMap;

use domain::{AttemptEnded, AttemptId, AttemptStarted, TurnId, TurnUsage};

use super::{Violation, ensure};
use crate::provider::Provider;

/// Requests of one turn, Compaction or title.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) id: TurnId,
    sent: i32,
    pub(super) running: Option<AttemptId>,
    pub(super) last: Option<AttemptId>,
    pub(super) usage: TurnUsage,
}

impl Requests {
    pub(super) fn of(id: &TurnId) -> Self {
        let (running, last) = (None, None);
        Self { id: id.clone(), sent: 0, running, last, usage: TurnUsage::default() }
    }

    pub(super) fn began(
        &mut self,
        started: &AttemptStarted,
        provider: &Provider,
    ) -> Result<(), Violation> {
        let attempt = &started.attempt;
        let running = self.running.replace(attempt.clone());
        ensure!(running.is_none(), "I9: attempt {attempt} while another runs");
        self.sent += 1;
        ensure!(started.ordinal == self.sent, "I9: ordinal {}", started.ordinal);
        let again = self.last.replace(attempt.clone());
        let again = again.is_some_and(|last| provider.shown.contains(&last));
        ensure!(!again, "I9: {attempt} repeats what somebody has seen");
        Ok(())
    }

    pub(super) fn ended(&mut self, ended: &AttemptEnded) {
        self.running = None;
        if let Some(used) = ended.usage {
            self.usage.input += used.input;
            self.usage.output += used.output;
        }
    }

    /// Returns whether the requests have used as much as the log says.
    pub(super) fn have_used(&self, usage: TurnUsage) -> bool {
        tokens(self.usage) == tokens(usage)
    }
}

/// Returns the tokens that a usage counts.
pub(super) fn tokens(usage: TurnUsage) -> (i64, i64) {
    (usage.input, usage.output)
}

#[derive(Debug, Clone)]
struct AttemptView {
    body_hash: String,
    sent: bool,
    ended: bool,
}

/// Every wire request that rows name.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts {
    views: BTreeMap<AttemptId, AttemptView>,
}

impl Attempts {
    pub(super) fn began(&mut self, started: &AttemptStarted) -> Result<(), Violation> {
        let body_hash = started.body_hash.clone();
        let view = AttemptView { body_hash, sent: false, ended: false };
        let before = self.views.insert(started.attempt.clone(), view);
        ensure!(before.is_none(), "I9: attempt {} began twice", started.attempt);
        Ok(())
    }

    pub(super) fn ended(&mut self, attempt: &AttemptId) -> Result<(), Violation> {
        let Some(view) = self.views.get_mut(attempt) else {
            return Err(format!("I9: attempt {attempt} never began"));
        };
        ensure!(!view.ended, "I9: attempt {attempt} ended twice");
        view.ended = true;
        Ok(())
    }

    /// Takes in a request at the provider. Returns whether anybody still waits for its answer: nobody does if its
    /// worker stood still while others went on.
    pub(super) fn sent(&mut self, attempt: &AttemptId, hash: &str) -> Result<bool, Violation> {
        let Some(view) = self.views.get_mut(attempt) else {
            return Err(format!("I9: a request of {attempt}, which no row names"));
        };
        ensure!(!view.sent, "I9: a second request of {attempt}");
        ensure!(view.body_hash == hash, "I9: the request of {attempt} has another body");
        view.sent = true;
        Ok(!view.ended)
    }

    pub(super) fn have_ended(&self) -> Result<(), Violation> {
        let open = self.views.values().filter(|view| !view.ended).count();
        ensure!(open == 0, "I9: {open} attempts have not ended");
        Ok(())
    }
}
