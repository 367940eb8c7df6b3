//! The end of work that no drain can do.
//!
//! A drain that cannot read its session's log, or cannot write what it decides, leaves the session *ready*, and the next
//! one fails as it did. Whoever has seen enough of that ends the work from outside: in one write that needs the head
//! and none of the log. A turn that is open stays open, and is recovered by the drain that comes after the next wake.

use domain::{
    DrainEnd, DrainEnded, DrainOutcome, FencingToken, Seq, SessionError, SessionEvent, SessionRef,
    TimestampMs,
};

use crate::drain::{Append, DrainWrite, KnownLog, Written};
use crate::look::{Look, Seen};
use crate::{Store, StoreError};

/// How often a write is made again that others are always faster than.
const TRIES: usize = 20;

/// How an attempt to give a session's work up went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// Pending input waits for a new wake, and the log says why at this number.
    Parked(Seq),
    /// A higher token has acted at the Location: give it up.
    Superseded,
    /// There was nothing to do any more.
    Idle,
}

impl Store {
    /// Ends a session's work with `error`, without a look at its log: what is pending waits for a new wake.
    ///
    /// # Errors
    /// When the database fails; the session may be given up then. [`StoreError::Busy`] when others always write first.
    pub async fn give_up(
        &self,
        session: SessionRef,
        token: FencingToken,
        error: SessionError,
        now: TimestampMs,
    ) -> Result<GivenUp, StoreError> {
        let ended = DrainEnded { outcome: DrainOutcome::Failed, error: Some(error) };
        let events = [SessionEvent::from(ended)];
        for _ in 0..TRIES {
            let look = Look { session: session.clone(), token, known: KnownLog::NOTHING };
            let seen = self
                .drain_lane()
                .run(move |connection| Box::pin(async move { look.head(connection).await }));
            let sight = match seen.await? {
                Seen::Ready(sight) => *sight,
                Seen::Superseded => return Ok(GivenUp::Superseded),
                Seen::Idle | Seen::Missing => return Ok(GivenUp::Idle),
            };
            let at = sight.head.next_seq;
            let write = DrainWrite {
                store: self.clone(),
                locked: None,
                session: session.clone(),
                starts: Some(token),
                seen: sight.claim,
                head: sight.head,
            };
            let append = Append {
                events: &events,
                promoted: 0,
                progress: false,
                end: DrainEnd::Park,
                components: &[],
            };
            let mut mint = write.mint(now);
            match write.commit(&mut mint, now, append).await? {
                Written::Next(_) => return Ok(GivenUp::Parked(at)),
                // It has no components.
                Written::Stale | Written::Unstored => {}
                Written::Superseded => return Ok(GivenUp::Superseded),
                Written::Unanswered(_, error) => return Err(error),
            }
        }
        Err(StoreError::Busy { session: session.session })
    }
}
