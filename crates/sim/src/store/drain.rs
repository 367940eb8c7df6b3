//! Statements of workers: fences, looks, writes.

use domain::{DrainEnd, IdMint, LocationId, RecordedEvent, Seq, SessionEvent, Taken, TimestampMs};

use super::{Append, Basis, Known, Look, Proof, SimSession, SimStore, Written};
use crate::mutant::StoreMutant;

impl SimStore {
    /// `raise_fence`.
    pub fn raise_fence(&mut self, location: usize, token: i64) -> bool {
        let known = if self.is(StoreMutant::FenceAcrossLocations) {
            self.fences.iter().copied().max().unwrap_or(0)
        } else {
            self.fences[location]
        };
        if known >= token && !self.is(StoreMutant::FenceFalls) {
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
    pub fn look(&self, session: usize, at: usize, token: i64, known: Known<'_>) -> Look {
        let row = &self.sessions[session];
        if !row.head.ready() || row.head.location != at {
            return Look::Idle;
        }
        if self.fences[at] != token && !self.is(StoreMutant::TokenNotChecked) {
            return Look::Superseded;
        }
        let taken = Taken {
            was_open: row.head.open,
            handed_over: row.head.handed_over,
            recoveries: row.head.recoveries + i16::from(row.head.open && !row.head.handed_over),
        };
        let is_known = self.is_known(session, known, StoreMutant::LookBelievesNumbers);
        let events = self.events_after(session, if is_known { known.seq } else { Seq(0) });
        Look::Ready(self.basis(session, at, Some(token)), taken, events)
    }

    /// `prove_claim`: the head, locked, for a drain's next write.
    #[must_use]
    pub fn prove(&self, session: usize, at: usize, claim: i64, known: Known<'_>) -> Proof {
        let head = &self.sessions[session].head;
        if head.claim != claim && !self.is(StoreMutant::ClaimNotChecked) {
            return Proof::Fenced;
        }
        let mutant = StoreMutant::ProofBelievesNumbers;
        if !self.is_known(session, known, mutant) && !self.is(mutant) {
            return Proof::WentBack;
        }
        let basis = Basis { seen: claim, ..self.basis(session, at, None) };
        Proof::Held(basis, self.events_after(session, known.seq))
    }

    fn basis(&self, session: usize, at: usize, starts: Option<i64>) -> Basis {
        let head = &self.sessions[session].head;
        Basis {
            at,
            seen: head.claim,
            first: head.next_seq,
            after: self.digest(session, head.next_seq - 1),
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
        if let Some(token) = basis.starts
            && self.fences[basis.at] != token
            && !self.is(StoreMutant::TokenNotChecked)
        {
            return Written::Superseded;
        }
        let moved = moved_to(&self.locations, append);
        let unclaimed = self.is(StoreMutant::ClaimNotChecked);
        let unnumbered = self.is(StoreMutant::NextSeqNotChecked)
            || (append.end == DrainEnd::Wait && self.is(StoreMutant::WaitProvesNoNumber));
        let unspent = self.is(StoreMutant::WakesNotSpent);
        let spends_all = self.is(StoreMutant::CloseSpendsAllWakes);
        let keeps = moved.is_some() && self.is(StoreMutant::MoveKeepsClaim);
        let starts = basis.starts.is_some();
        let follows = self.is(StoreMutant::WriteBelievesNumbers)
            || unnumbered
            || self.digest(session, basis.first - 1) == basis.after;
        let head = &mut self.sessions[session].head;
        let here = head.location == basis.at;
        let claimed = here && head.claim == basis.seen;
        if (!claimed && (!unclaimed || starts))
            || (head.next_seq != basis.first && !unnumbered)
            || !follows
        {
            return if starts || claimed { Written::Stale } else { Written::Fenced };
        }
        let claim = head.claim + i64::from(starts);
        let all_promoted = head.pending == append.promoted;
        let (open, closes) = match append.end {
            DrainEnd::Keep | DrainEnd::HandOver | DrainEnd::MovedOpen | DrainEnd::Wait => {
                (true, false)
            }
            DrainEnd::Close | DrainEnd::Moved => (false, true),
            DrainEnd::Park => (false, false),
        };
        head.recoveries = if append.progress || !open {
            0
        } else {
            head.recoveries + i16::from(starts && head.open && !head.handed_over)
        };
        head.pending -= append.promoted;
        head.open = open;
        head.handed_over =
            matches!(append.end, DrainEnd::HandOver | DrainEnd::MovedOpen | DrainEnd::Wait);
        head.asleep = append.end == DrainEnd::Wait;
        head.claim = claim + i64::from(append.end != DrainEnd::Keep && !keeps);
        head.location = moved.unwrap_or(head.location);
        if append.end == DrainEnd::Park || (closes && (all_promoted || spends_all)) {
            head.parked_seq = head.parked_seq.max(head.wake_seq);
        }
        let left_over = head.pending;
        for event in append.events {
            self.record(session, Some(claim), event.clone(), mint, now);
        }
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
        if closes && left_over > 0 && !unspent {
            self.spend_wakes(session);
        }
        let first = basis.first + i64::try_from(append.events.len()).unwrap_or(i64::MAX);
        let after = self.digest(session, first - 1);
        let head = &self.sessions[session].head;
        Written::Next(Basis {
            at: basis.at,
            // A claim of a session that has moved is worthless.
            seen: if moved.is_some() { basis.seen } else { claim },
            first,
            after,
            starts: None,
            interrupt_seq: head.interrupt_seq.min(basis.interrupt_seq),
            last_id: basis.last_id.max(mint.last()),
        })
    }
}

/// Where a write takes the session; `None` when it stays.
fn moved_to(locations: &[LocationId], append: &Append<'_>) -> Option<usize> {
    if !matches!(append.end, DrainEnd::Moved | DrainEnd::MovedOpen) {
        return None;
    }
    append.events.iter().rev().find_map(|event| {
        let SessionEvent::SessionMoved(moved) = event else { return None };
        locations.iter().position(|at| *at == moved.to)
    })
}
