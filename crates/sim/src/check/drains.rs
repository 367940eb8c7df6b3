use std::collections::BTreeMap;

use domain::{DrainOutcome, InterruptTarget};

use super::{MAX_RECOVERIES, Violation, ensure};
use crate::store::Head;

/// Under which claims drains write, how often they were taken over, and what tells them to stop.
#[derive(Debug, Clone, Default)]
pub(super) struct Drains {
    claim: i64,
    ended_claim: i64,
    moved_under: i64,
    /// The drain of each claim.
    owners: BTreeMap<i64, u64>,
    /// The head said so last.
    open: bool,
    handed_over: bool,
    /// In a row, since anything was settled.
    takeovers: i16,
    /// The interrupt that the drain has not met yet.
    stop_seq: Option<i64>,
    parked_interrupt: i64,
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

    /// These are of a session that has the id of one that was deleted.
    pub(super) fn come_after(&mut self, deleted: &Self) {
        self.deleted = deleted.deleted.max(deleted.head_claim).max(deleted.claim);
    }

    /// At the end of a history, so that what comes of it is told first.
    pub(super) fn outrank_the_deleted(&self) -> Result<(), Violation> {
        let (first, deleted) = (self.first_claim, self.deleted);
        let outranks = first.is_none_or(|first| first > deleted);
        ensure!(outranks, "I3: claim {first:?}, and a deleted session had claim {deleted}");
        Ok(())
    }

    /// Writes come: what the session has moved away from has none any more.
    pub(super) fn begin(&mut self) {
        self.ended_claim = self.ended_claim.max(self.moved_under);
    }

    /// A write of a drain. `seq`: its first number, or 0 if it says nothing. `last_wake`: the newest one.
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

    /// Something was settled.
    pub(super) fn progressed(&mut self) {
        self.takeovers = 0;
    }

    /// Only its end may follow, in the same write.
    pub(super) fn moved(&mut self, claim: i64) {
        self.moved_under = claim;
    }

    /// Nothing is begun once the drain has been told to stop.
    pub(super) fn goes_on(&self, seq: i64, what: &str) -> Result<(), Violation> {
        ensure!(self.stop_seq.is_none(), "I6: {what} after an interrupt, seq {seq}");
        Ok(())
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
        ensure!(stopped || !interrupted, "I6: a drain was interrupted by nobody, seq {seq}");
        self.ended_claim = claim.unwrap_or(self.ended_claim);
        self.takeovers = 0;
        Ok(())
    }

    /// After a write, whose head this is.
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
