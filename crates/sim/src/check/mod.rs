//! Invariants of a log, checked after every action from its events alone.
//!
//! ```text
//! events    what each event means to these:
//! drains    claims, takeovers, interrupts                                    I3, I4, I6
//! inbox     inputs that wait, their order, their wakes                       I1, I2, I11
//! turns     turns, calls, steps, retries                                     I4, I8, I9
//! sides     Compactions and titles, which run beside the conversation        I9
//! requests  attempts, and requests at the provider                           I9
//! files     the order of captures, lost effects, files that are put back     snapshots
//! forks     the beginning of a Fork                                          Forks
//! told      epochs, updates of the context, requests that were sent          I7, prefix
//! ```

mod drains;
mod events;
mod files;
mod forks;
mod inbox;
mod requests;
mod sides;
mod told;
mod turns;

use std::collections::BTreeSet;

use domain::{AttemptId, CallId, MessageId, TurnId};

use self::drains::Drains;
use self::files::Files;
pub(crate) use self::forks::copies;
use self::inbox::Inbox;
pub(crate) use self::inbox::PROMOTION;
use self::requests::Attempts;
use self::sides::Sides;
use self::told::Told;
use self::turns::Turns;
use crate::provider::Provider;
use crate::store::SimSession;

/// Bodies of a call that may run again.
pub(crate) const MAX_BODIES: i32 = 2;
/// Takeovers in a row without progress.
pub(crate) const MAX_RECOVERIES: i16 = 2;
/// Requests that may be repeated between two whole replies.
pub(crate) const MAX_RETRIES: u32 = 3;

/// A broken invariant, with what was found.
pub type Violation = String;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
use ensure;

/// Everything that a session's log has said so far.
#[derive(Debug, Clone)]
pub(crate) struct Checker {
    seen: usize,
    limit: usize,
    drains: Drains,
    inbox: Inbox,
    turns: Turns,
    sides: Sides,
    told: Told,
    files: Files,
    attempts: Attempts,
    /// A wake without input that no drain has answered.
    resumed: bool,
}

impl Checker {
    /// `limit`: the most tokens of a request.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            seen: 0,
            limit,
            drains: Drains::default(),
            inbox: Inbox::default(),
            turns: Turns::default(),
            sides: Sides::new(limit),
            told: Told::default(),
            files: Files::default(),
            attempts: Attempts::default(),
            resumed: false,
        }
    }

    /// Makes the checker of a session that was made anew under its id. `deleted`: the prompts of the session before,
    /// which no request may show.
    pub(crate) fn made_anew(before: &Self, deleted: Vec<String>) -> Self {
        let mut anew = Self::new(before.limit);
        anew.drains.come_after(&before.drains);
        anew.told.come_after(&before.told, deleted);
        anew
    }

    /// Takes in new events. `writer`: the drain that wrote them.
    pub(crate) fn take(
        &mut self,
        session: &SimSession,
        writer: Option<u64>,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let asleep = !self.drains.is_open() && !self.inbox.is_awake();
        let mut opened_without_wake = false;
        let head = &session.head;
        let new = session.events.get(self.seen..).unwrap_or_default();
        if writer.is_some() && new.is_empty() && head.open && !head.handed_over {
            // A claim may begin with a write without events.
            self.claimed(head.claim, 0, writer)?;
        }
        self.drains.begin();
        for event in new {
            self.seen += 1;
            let seq = event.seq.0;
            ensure!(usize::try_from(seq) == Ok(self.seen), "I5: seq {seq} at place {}", self.seen);
            if let Some(claim) = event.claim {
                self.claimed(claim.0, seq, writer)?;
                opened_without_wake |= asleep;
            }
            self.event(event, provider, max_steps)?;
        }
        ensure!(!opened_without_wake, "I11: a drain started without a wake, seq {}", self.seen);
        turns::cuts_are_continued(new)?;
        self.told.is_whole()?;
        self.inbox.is_whole()?;
        if head.staged_seq == 0 {
            self.inbox.holds = false;
        }
        if head.handed_over || !head.open {
            self.sides.no_title("a drain has stopped")?;
        }
        let pending = self.inbox.pending();
        let counted = usize::try_from(head.pending) == Ok(pending);
        ensure!(counted, "I1: pending {} of {pending}", head.pending);
        let next = i64::try_from(self.seen).unwrap_or(0) + 1;
        ensure!(head.next_seq == next, "I5: head at {}", head.next_seq);
        ensure!(!head.asleep || self.turns.waits(), "I16: asleep and nothing is asked");
        self.drains.agree(head)
    }

    /// The next writer is a drain that was told of an interrupt whose row the database has forgotten, or is not.
    pub(crate) fn obeys_forgotten(&mut self, obeys: bool) {
        self.drains.obeys_forgotten = obeys;
    }

    fn claimed(&mut self, claim: i64, seq: i64, writer: Option<u64>) -> Result<(), Violation> {
        self.resumed = false;
        self.drains.claimed(claim, seq, writer, self.inbox.last_wake)
    }

    /// A request comes to the provider.
    pub(crate) fn request(
        &mut self,
        turn: &TurnId,
        attempt: &AttemptId,
        hash: &str,
        components: &str,
        body: &[u8],
    ) -> Result<(), Violation> {
        let awaited = self.attempts.sent(attempt, hash)?;
        let summary = self.sides.compacting() == Some(turn);
        if awaited && (summary || self.turns.open() == Some(turn)) {
            self.told.requested(attempt, components, body, summary, self.limit)?;
        }
        Ok(())
    }

    /// A capture has failed, or takes too long: calls that may change files go on without.
    /// Returns those whose effects they do not wait for.
    pub(crate) fn goes_on_uncaptured(&mut self) -> Vec<CallId> {
        self.files.awaited_no_longer()
    }

    /// The database has come back without some commits. No drain waits for a capture of the effects of `uncaptured`.
    pub(crate) fn went_back(&mut self, uncaptured: &BTreeSet<CallId>) {
        self.files.not_awaited(uncaptured);
    }

    /// Calls that ended well, and may have changed files where the session is.
    pub(crate) fn calls_with_effects(&self) -> impl Iterator<Item = &CallId> {
        self.files.done()
    }

    /// A shell starts a body.
    pub(crate) fn body(&mut self, call: &CallId) -> Result<(), Violation> {
        self.turns.body(call)
    }

    /// A body has its effect.
    pub(crate) fn effect(&self, call: &CallId) -> Result<(), Violation> {
        self.turns.effect(call)
    }

    /// Faults have stopped, and nothing is left to do.
    pub(crate) fn settled(&self, session: &SimSession) -> Result<(), Violation> {
        ensure!(!session.head.busy(), "I11: a session is still busy: {:?}", session.head);
        ensure!(!self.inbox.is_awake(), "I11: an input waits that somebody woke the session for");
        ensure!(!self.resumed, "I11: nobody came when the session was woken");
        ensure!(self.turns.open().is_none(), "I11: a turn is open");
        ensure!(self.sides.compacting().is_none(), "I11: a Compaction is open");
        self.attempts.have_ended()?;
        self.drains.outrank_the_deleted()?;
        self.turns.are_settled()
    }

    /// Returns whether an input was admitted that a client believes to be.
    pub(crate) fn knows(&self, message: &MessageId) -> bool {
        self.inbox.knows(message)
    }
}
