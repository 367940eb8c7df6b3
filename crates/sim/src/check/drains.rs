use std::collections::BTreeMap;

use domain::{DrainOutcome, InterruptTarget};

use super::{MAX_RECOVERIES, Violation, ensure};
use crate::store::Head;

/// The claims under which drains write, their takeovers, and the interrupts that stop them.
#[derive(Debug, Clone, Default)]
pub(super) struct Drains {
    claim: i64,
    ended_claim: i64,
    moved_under: i64,
    /// The drain of each claim.
    owners: BTreeMap<i64, u64>,
    /// As the head said last.
    open: bool,
    handed_over: bool,
    /// Takeovers in a row since the last settlement.
    takeovers: i16,
    /// The interrupt that the drain has not obeyed yet.
    stop_seq: Option<i64>,
    parked_interrupt: i64,
    /// The writer was told of an interrupt whose row is forgotten.
    pub(super) obeys_forgotten: bool,
    /// Somebody has refused a call of the drain without a word.
    declined: bool,
    /// Somebody has refused one with words, so the model goes on.
    spoken: bool,
    /// The head's claim, as it was last seen.
    head_claim: i64,
    /// The first claim, and the highest one of sessions with this id that were deleted.
    first_claim: Option<i64>,
    deleted: i64,
}

impl Drains {
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes over the claims of a deleted session with this id.
    pub(super) fn come_after(&mut self, deleted: &Self) {
        self.deleted = deleted.deleted.max(deleted.head_claim).max(deleted.claim);
    }

    /// Checks that the first claim is above those of deleted sessions. It runs at the end of a history, so that the
    /// consequences of a lower claim are reported first.
    pub(super) fn outrank_the_deleted(&self) -> Result<(), Violation> {
        let (first, deleted) = (self.first_claim, self.deleted);
        let outranks = first.is_none_or(|first| first > deleted);
        ensure!(outranks, "I3: claim {first:?}, and a deleted session had claim {deleted}");
        Ok(())
    }

    /// New writes come. The drain that moved the session away makes none of them.
    pub(super) fn begin(&mut self) {
        self.ended_claim = self.ended_claim.max(self.moved_under);
    }

    /// Checks a write of a drain. `seq`: its first number, or 0 without events. `last_wake`: the newest wake.
    pub(super) fn claimed(
        &mut self,
        claim: i64,
        seq: i64,
        writer: Option<u64>,
        last_wake: i64,
    ) -> Result<(), Violation> {
        ensure!(claim >= self.claim, "I3: claim {claim} after {} at seq {seq}", self.claim);
        ensure!(
            claim > self.ended_claim,
            "I4: claim {claim} wrote seq {seq} after its drain's end"
        );
        let writer = writer.unwrap_or(0);
        let owner = *self.owners.entry(claim).or_insert(writer);
        ensure!(owner == writer, "I4: drains {owner} and {writer} write under claim {claim}");
        ensure!(
            self.parked_interrupt <= last_wake,
            "I6: a drain wrote seq {seq} without a wake after the interrupt at {}",
            self.parked_interrupt
        );
        if claim > self.claim && self.open && !self.handed_over {
            self.takeovers += 1;
        }
        self.claim = claim;
        self.first_claim.get_or_insert(claim);
        Ok(())
    }

    /// A call, a turn or a Compaction was settled.
    pub(super) fn progressed(&mut self) {
        self.takeovers = 0;
    }

    /// Only the drain's end may follow a Move, in the same write.
    pub(super) fn moved(&mut self, claim: i64) {
        self.moved_under = claim;
    }

    /// Checks that no work continues after somebody has refused a call without a word.
    pub(super) fn was_wanted(&self, seq: i64) -> Result<(), Violation> {
        let wanted = !self.declined || self.spoken;
        ensure!(wanted, "I15: a turn at seq {seq} goes on after somebody refused a call");
        Ok(())
    }

    /// A prompt asks for something else now.
    pub(super) fn wants_again(&mut self) {
        (self.declined, self.spoken) = (false, false);
    }

    /// Checks that nothing begins after an interrupt.
    pub(super) fn goes_on(&self, seq: i64, what: &str) -> Result<(), Violation> {
        ensure!(self.stop_seq.is_none(), "I6: {what} after an interrupt, seq {seq}");
        Ok(())
    }

    /// Somebody has refused a call, with words or without.
    pub(super) fn refused(&mut self, spoken: bool) {
        self.spoken |= spoken;
        self.declined |= !spoken;
    }

    pub(super) fn interrupted(&mut self, target: &InterruptTarget, seq: i64) {
        match target {
            InterruptTarget::Turn { .. } | InterruptTarget::Drain => self.stop_seq = Some(seq),
            InterruptTarget::Parked => self.parked_interrupt = seq,
        }
    }

    pub(super) fn ended(
        &mut self,
        outcome: DrainOutcome,
        claim: Option<i64>,
        seq: i64,
    ) -> Result<(), Violation> {
        let stopped = self.stop_seq.take().is_some();
        let interrupted = outcome == DrainOutcome::Interrupted;
        let declined = std::mem::take(&mut self.declined);
        self.spoken = false;
        ensure!(
            stopped || declined || self.obeys_forgotten || !interrupted,
            "I6: a drain was interrupted by nobody, seq {seq}"
        );
        self.ended_claim = claim.unwrap_or(self.ended_claim);
        self.takeovers = 0;
        Ok(())
    }

    /// Compares everything so far with the head after a write.
    pub(super) fn agree(&mut self, head: &Head) -> Result<(), Violation> {
        (self.open, self.handed_over) = (head.open, head.handed_over);
        let takeovers = self.takeovers;
        ensure!(takeovers <= MAX_RECOVERIES, "recovery: {takeovers} takeovers without progress");
        let claim = self.claim;
        ensure!(head.claim >= claim, "I3: claim {claim} above the head's {}", head.claim);
        let known = self.head_claim;
        ensure!(head.claim >= known, "I3: the head's claim fell from {known} to {}", head.claim);
        self.head_claim = head.claim;
        let live = head.open && !head.handed_over;
        let ended = live || claim == 0 || head.claim > claim;
        ensure!(ended, "I3: claim {claim} outlives its drain");
        Ok(())
    }
}
