//! A drain's write of which nobody knows whether it was made.
//!
//! It is made again as it was: the same ids, after the same number, under the same claim. So at most one of the tries
//! is written. The others find that the head has moved, as they would after another's write; which of the two it was,
//! the log says: our last event's id stands at our last number, or it does not.

use std::sync::Arc;

use domain::{Claim, Seq, SessionMoved};

use crate::drain::{DrainWrite, Head, Written};
use crate::write::{Write, WriteOutcome};
use crate::{Store, StoreError, movement};

/// A write on its way. Dropped, it may have been made.
pub struct UnansweredWrite {
    pub(crate) store: Store,
    pub(crate) head: Head,
    pub(crate) write: Arc<Write>,
    /// Where it takes the session.
    pub(crate) moved: Option<SessionMoved>,
}

impl UnansweredWrite {
    /// Makes the write again, unless it was made.
    ///
    /// # Errors
    /// As [`crate::DrainWrite::commit`].
    pub async fn again(self) -> Result<Written, StoreError> {
        let refused = match self.ask().await {
            Ok(
                refused @ (WriteOutcome::Stale | WriteOutcome::Fenced | WriteOutcome::Superseded),
            ) => refused,
            answer => return self.told(answer),
        };
        // Whatever refuses it now refuses it for ever: if it is not there, it will never be.
        match self.is_in_the_log().await {
            Ok(true) => self.told(Ok(WriteOutcome::Written)),
            Ok(false) => self.told(Ok(refused)),
            Err(error) => self.told(Err(error)),
        }
    }

    /// Makes it for the first time.
    pub(crate) async fn make(self) -> Result<Written, StoreError> {
        let answer = self.ask().await;
        self.told(answer)
    }

    async fn ask(&self) -> Result<WriteOutcome, StoreError> {
        let lane = self.store.drain_lane();
        if let Some(moved) = self.moved.clone() {
            let write = self.write.clone();
            return lane
                .run(move |connection| {
                    Box::pin(async move { movement::write(&write, &moved, connection).await })
                })
                .await;
        }
        match self.store.writes().ask(self.write.clone()).await? {
            (_, Some(())) => Ok(WriteOutcome::Written),
            (write, None) => {
                lane.run(move |connection| Box::pin(async move { write.alone(connection).await }))
                    .await
            }
        }
    }

    async fn is_in_the_log(&self) -> Result<bool, StoreError> {
        let Write { session, ids, first, .. } = &*self.write;
        let Some(id) = ids.last() else { return Ok(false) };
        let last = first.0 + i64::try_from(ids.len()).unwrap_or(i64::MAX) - 1;
        let (org, session) = (session.org, session.session.clone());
        match self.store.events(org, session, Seq(last - 1), 1).await {
            Ok(page) => Ok(page
                .items
                .first()
                .is_some_and(|event| event.seq == Seq(last) && event.id.as_str() == id)),
            Err(StoreError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells the drain of `answer`.
    pub(crate) fn told(
        self,
        answer: Result<WriteOutcome, StoreError>,
    ) -> Result<Written, StoreError> {
        match answer {
            Ok(WriteOutcome::Written) => {}
            Ok(WriteOutcome::Stale) => return Ok(Written::Stale),
            Ok(WriteOutcome::Superseded) => return Ok(Written::Superseded),
            // The head had not moved, so no earlier try was written.
            Ok(WriteOutcome::Unstored) => return Ok(Written::Unstored),
            Ok(WriteOutcome::Fenced) => {
                let (session, held) = (self.write.session.session.clone(), self.write.seen);
                return Err(StoreError::Fenced { session, held });
            }
            Err(error) if error.may_pass() => {
                return Ok(Written::Unanswered(Box::new(self), error));
            }
            Err(error) => return Err(error),
        }
        let Self { store, head, write, .. } = self;
        let count = i64::try_from(write.ids.len()).unwrap_or(i64::MAX);
        let head = Head {
            next_seq: Seq(head.next_seq.0 + count),
            after: write.last.clone(),
            last_id: head.last_id.max(write.stamp),
            interrupt_seq: head.interrupt_seq,
        };
        // Of a session that has moved, it is worth nothing: the claim has passed on.
        let starts = write.starts.is_some() && self.moved.is_none();
        let seen = Claim(write.seen.0 + i64::from(starts));
        let session = write.session.clone();
        Ok(Written::Next(Box::new(DrainWrite {
            store,
            locked: None,
            session,
            starts: None,
            seen,
            head,
        })))
    }
}
