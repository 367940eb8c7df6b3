//! A staged Revert: what it holds back, and what commits it.

use domain::{IdMint, InputCancelled, MessageId, RevertCommitted, TimestampMs};

use super::{Change, Input, InputStatus, SimSession, SimStore};

impl Input {
    pub(super) fn is_control(&self) -> bool {
        !matches!(self.kind, "prompt" | "synthetic")
    }
}

impl SimSession {
    /// Whether a control of this kind is not admitted now.
    pub(super) fn refuses(&self, kind: &str) -> bool {
        let staged = self.head.staged_seq;
        // What waits without a wake would be promoted first; what the staged Revert holds is not.
        let holds =
            |input: &Input| input.kind == "synthetic" && staged > 0 && input.admitted_seq >= staged;
        let waits = |input: &Input| input.status == InputStatus::Admitted && !holds(input);
        match kind {
            "revert" | "unrevert" => self.head.ready() || self.inputs.iter().any(waits),
            _ => false,
        }
    }

    /// `held_inputs`.
    fn held(&self) -> Vec<MessageId> {
        let held = self.inputs.iter().filter(|input| {
            input.status == InputStatus::Admitted
                && input.kind == "synthetic"
                && input.admitted_seq > self.head.staged_seq
        });
        held.map(|input| input.id.clone()).collect()
    }
}

impl SimStore {
    /// `commit_revert`. [`Change::Gone`]: nothing is staged.
    pub fn commit_revert(&mut self, session: usize, mint: &mut IdMint, now: TimestampMs) -> Change {
        let head = &self.sessions[session].head;
        if head.ready() {
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
        let held = row.held();
        let (message, from, back) = (staged.message, staged.from, staged.back);
        self.log(session, RevertCommitted { message, from, back }.into(), mint, now);
        for message in held {
            self.sessions[session].head.pending -= 1;
            self.log(session, InputCancelled { message }.into(), mint, now);
        }
    }
}
