//! What workers do: fences, looks, writes.

use domain::{DrainEnd, IdMint, RecordedEvent, Seq, Taken, TimestampMs};

use super::{Append, Basis, Look, SimSession, SimStore, Written};
use crate::mutant::StoreMutant;

impl SimStore {
    /// `raise_fence`.
    pub fn raise_fence(&mut self, location: usize, token: i64) -> bool {
        let known = if self.is(StoreMutant::FenceAcrossLocations) {
            self.fences.iter().copied().max().unwrap_or(0)
        } else {
            self.fences[location]
        };
        if known >= token {
            return known == token;
        }
        self.fences[location] = token;
        if !self.is(StoreMutant::FenceKeepsClaims) {
            let here = |row: &&mut SimSession| {
                row.head.location == location && (row.head.open || row.head.pending > 0)
            };
            self.sessions.iter_mut().filter(here).for_each(|row| row.head.claim += 1);
        }
        true
    }

    /// `look_at_drain`, and the pages after it.
    #[must_use]
    pub fn look(&self, session: usize, token: i64, known: Seq) -> Look {
        let row = &self.sessions[session];
        if !row.head.ready() {
            return Look::Idle;
        }
        if self.fences[row.head.location] != token && !self.is(StoreMutant::TokenNotChecked) {
            return Look::Superseded;
        }
        let taken = Taken {
            was_open: row.head.open,
            handed_over: row.head.handed_over,
            recoveries: row.head.recoveries + i16::from(row.head.open && !row.head.handed_over),
        };
        let events = self.events_after(session, known);
        Look::Ready(self.basis(session, Some(token)), taken, events)
    }

    /// `prove_claim`: the head, locked, for a drain's next write. `None`: fenced.
    #[must_use]
    pub fn prove(
        &self,
        session: usize,
        claim: i64,
        known: Seq,
    ) -> Option<(Basis, Vec<RecordedEvent>)> {
        let head = &self.sessions[session].head;
        if head.claim != claim && !self.is(StoreMutant::ClaimNotChecked) {
            return None;
        }
        let basis = Basis { seen: claim, ..self.basis(session, None) };
        Some((basis, self.events_after(session, known)))
    }

    fn basis(&self, session: usize, starts: Option<i64>) -> Basis {
        let head = &self.sessions[session].head;
        Basis {
            seen: head.claim,
            first: head.next_seq,
            starts,
            interrupt_seq: head.interrupt_seq,
            last_id: head.last_id,
        }
    }

    fn events_after(&self, session: usize, known: Seq) -> Vec<RecordedEvent> {
        let from = usize::try_from(known.0).unwrap_or(0);
        self.sessions[session].events.get(from..).unwrap_or_default().to_vec()
    }

    /// `write_drain`.
    pub fn write(
        &mut self,
        session: usize,
        basis: Basis,
        append: &Append<'_>,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Written {
        let location = self.sessions[session].head.location;
        if let Some(token) = basis.starts
            && self.fences[location] != token
            && !self.is(StoreMutant::TokenNotChecked)
        {
            return Written::Superseded;
        }
        let unclaimed = self.is(StoreMutant::ClaimNotChecked);
        let unnumbered = self.is(StoreMutant::NextSeqNotChecked);
        let count = i64::try_from(append.events.len()).unwrap_or(i64::MAX);
        let unspent = self.is(StoreMutant::WakesNotSpent);
        let spends_all = self.is(StoreMutant::CloseSpendsAllWakes);
        let head = &mut self.sessions[session].head;
        let claimed = head.claim == basis.seen || (unclaimed && basis.starts.is_none());
        if !claimed || (head.next_seq != basis.first && !unnumbered) {
            let starts = basis.starts.is_some();
            return if starts || head.claim == basis.seen {
                Written::Stale
            } else {
                Written::Fenced
            };
        }
        let starts = basis.starts.is_some();
        let ends = append.end != DrainEnd::Keep;
        let claim = head.claim + i64::from(starts);
        let all_promoted = head.pending == append.promoted;
        head.recoveries = match (append.progress, append.end) {
            (true, _) | (_, DrainEnd::Close | DrainEnd::Park | DrainEnd::Moved) => 0,
            (false, DrainEnd::Keep | DrainEnd::HandOver | DrainEnd::MovedOpen) => {
                head.recoveries + i16::from(starts && head.open && !head.handed_over)
            }
        };
        head.pending -= append.promoted;
        head.open = matches!(append.end, DrainEnd::Keep | DrainEnd::HandOver);
        head.handed_over = append.end == DrainEnd::HandOver;
        head.claim = claim + i64::from(ends);
        if append.end == DrainEnd::Park
            || (append.end == DrainEnd::Close && (all_promoted || spends_all))
        {
            head.parked_seq = head.parked_seq.max(head.wake_seq);
        }
        let left_over = head.pending;
        for event in append.events {
            self.record(session, Some(claim), event.clone(), mint, now);
        }
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
        if append.end == DrainEnd::Close && left_over > 0 && !unspent {
            self.spend_wakes(session);
        }
        let head = &self.sessions[session].head;
        Written::Next(Basis {
            seen: claim,
            first: basis.first + count,
            starts: None,
            interrupt_seq: head.interrupt_seq.min(basis.interrupt_seq),
            last_id: basis.last_id.max(mint.last()),
        })
    }
}
