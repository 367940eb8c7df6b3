//! A staged Revert: the inputs that it holds back, and its commit.

use domain::{
    IdMint, InputCancelled, InputKind, MessageId, RevertCommitted, SessionEvent, TimestampMs,
};

use super::{Change, Input, InputStatus, SimSession, SimStore};
use crate::mutant::{Mutant, StoreMutant};

impl Input {
    pub(super) fn is_control(&self) -> bool {
        self.kind.is_control()
    }
}

impl SimSession {
    /// Whether a control of this kind is not admitted now.
    pub(super) fn refuses(&self, kind: InputKind) -> bool {
        // An input that waits without a wake would be promoted first, unless the staged Revert holds it.
        let waits = |input: &Input| input.status == InputStatus::Admitted && !self.holds(input);
        match kind {
            InputKind::Revert | InputKind::Unrevert => {
                self.head.busy() || self.inputs.iter().any(waits)
            }
            InputKind::Prompt | InputKind::Synthetic | InputKind::Compaction | InputKind::Move => {
                false
            }
        }
    }

    /// `held_inputs`.
    fn held(&self, mutant: Option<Mutant>) -> Vec<MessageId> {
        let forgets = mutant == Some(Mutant::Store(StoreMutant::RestagedForgetsHeld));
        let since = if forgets { self.head.staged_seq } else { 0 };
        let held = self.inputs.iter().filter(|input| {
            input.status == InputStatus::Admitted && self.holds(input) && input.admitted_seq > since
        });
        held.map(|input| input.id.clone()).collect()
    }

    /// Whether an input waits for the Revert that is staged, by `is_held`.
    fn holds(&self, input: &Input) -> bool {
        let staged = self.head.staged_seq;
        let at = input.admitted_seq;
        let is_synthetic = input.kind == InputKind::Synthetic && input.wake_seq == 0;
        is_synthetic && staged > 0 && (at > staged || self.was_held(at, staged))
    }

    /// Whether a Revert was staged at `at` that has become the one of `staged`.
    fn was_held(&self, at: i64, staged: i64) -> bool {
        let mut before = self.events.iter().rev().filter(|event| event.seq.0 < at);
        let last = before.find_map(|event| ends(&event.event));
        let since = self.events.iter().filter(|event| event.seq.0 > at && event.seq.0 < staged);
        last == Some(false) && !since.clone().any(|event| ends(&event.event) == Some(true))
    }
}

/// Whether a Revert ends with this, or is staged; `None` of anything else.
fn ends(event: &SessionEvent) -> Option<bool> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these say what is staged")]
    match event {
        SessionEvent::RevertStaged(_) => Some(false),
        SessionEvent::RevertCleared(_) | SessionEvent::RevertCommitted(_) => Some(true),
        _ => None,
    }
}

impl SimStore {
    /// `commit_revert`. [`Change::Gone`]: nothing is staged.
    pub fn commit_revert(&mut self, session: usize, mint: &mut IdMint, now: TimestampMs) -> Change {
        let head = &self.sessions[session].head;
        if head.busy() {
            return Change::Busy;
        }
        if head.staged_seq == 0 {
            return Change::Gone;
        }
        self.commit_staged(session, mint, now);
        Change::Done
    }

    /// `commit_staged`.
    pub(super) fn commit_staged(&mut self, session: usize, mint: &mut IdMint, now: TimestampMs) {
        let row = &self.sessions[session];
        let Some(staged) = row.revert.clone() else { return };
        let held = row.held(self.mutant);
        let (message, from, back) = (staged.message, staged.from, staged.back);
        self.log(session, RevertCommitted { message, from, back }.into(), mint, now);
        for message in held {
            self.sessions[session].head.pending -= 1;
            self.log(session, InputCancelled { message }.into(), mint, now);
        }
    }
}
