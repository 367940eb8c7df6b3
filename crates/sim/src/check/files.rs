use std::collections::BTreeSet;

use domain::{
    CallId, SnapshotTree, ToolCalled, ToolClass, ToolOutcomeKind, ToolSettled, ToolState, TurnId,
};

use super::{Violation, ensure};

/// Calls that may have changed files, and the captures of their changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    /// The turn that each such call belongs to, until it has its result.
    open: Vec<(CallId, TurnId)>,
    /// Calls that have a result, and their turns, as long as the next calls wait for a capture of their effects.
    awaited: Vec<(CallId, TurnId)>,
    /// Calls that ended well at the session's present Location.
    done: Vec<CallId>,
    /// Effects are gone, and the model does not know it yet.
    untold: bool,
    /// The files that a Revert goes back to, while it is staged.
    staging: Option<SnapshotTree>,
}

impl Files {
    pub(super) fn called(&mut self, called: &ToolCalled) -> Result<(), Violation> {
        if called.class == ToolClass::Pure || called.state != ToolState::Started {
            return Ok(());
        }
        let call = &called.intent.call;
        let earlier = self.awaited.iter().map(|(_, turn)| turn).find(|turn| **turn != called.turn);
        ensure!(earlier.is_none(), "files: {call} runs before what {earlier:?} did is captured");
        self.open.push((call.clone(), called.turn.clone()));
        Ok(())
    }

    pub(super) fn settled(&mut self, settled: &ToolSettled) {
        let Some(at) = self.open.iter().position(|(call, _)| *call == settled.call) else { return };
        let (call, turn) = self.open.swap_remove(at);
        if settled.outcome == ToolOutcomeKind::Completed {
            self.done.push(call.clone());
        }
        self.awaited.push((call, turn));
    }

    /// A capture has all changes so far.
    pub(super) fn saved(&mut self) {
        self.awaited.clear();
    }

    /// The next calls do not wait for a capture. If the effects are lost later, the model is told all the same. Returns the
    /// calls whose effects are awaited no longer.
    pub(super) fn awaited_no_longer(&mut self) -> Vec<CallId> {
        self.awaited.drain(..).map(|(call, _)| call).collect()
    }

    /// The next calls do not wait for a capture of these effects.
    pub(super) fn not_awaited(&mut self, calls: &BTreeSet<CallId>) {
        self.awaited.retain(|(call, _)| !calls.contains(call));
    }

    pub(super) fn restored(&mut self, lost: &[CallId]) {
        self.untold |= !lost.is_empty();
        self.saved();
    }

    pub(super) fn told(&mut self) {
        self.untold = false;
    }

    pub(super) fn turn_starts(&self) -> Result<(), Violation> {
        ensure!(!self.untold, "files: the model does not know which effects are gone");
        Ok(())
    }

    /// The session has other files now.
    pub(super) fn moved(&mut self) {
        self.saved();
        self.done.clear();
        self.untold = false;
    }

    pub(super) fn done(&self) -> impl Iterator<Item = &CallId> {
        self.done.iter()
    }

    pub(super) fn staging(&mut self, original: &SnapshotTree) -> Result<(), Violation> {
        ensure!(self.staging.is_none(), "revert: one is staged while another is");
        self.staging = Some(original.clone());
        Ok(())
    }

    /// `original`: the files as they were, if any were put back.
    pub(super) fn staged(&mut self, original: Option<&SnapshotTree>) -> Result<(), Violation> {
        if let Some(said) = self.staging.take() {
            ensure!(original == Some(&said), "revert: the original is another one");
        }
        Ok(())
    }

    pub(super) fn cleared(&mut self) {
        self.staging = None;
    }

    pub(super) fn nothing_is_staging(&self, when: &str) -> Result<(), Violation> {
        ensure!(self.staging.is_none(), "revert: {when} while files are put back");
        Ok(())
    }
}
