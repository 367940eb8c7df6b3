//! Writes of a Session Drain: one statement per durable transition, the first of which starts it.

use std::sync::Arc;

use domain::{
    Claim, DrainEnd, EventId, FencingToken, IdMint, OrgId, RecordedEvent, Seq, SessionEvent,
    SessionIncarnation, SessionRef, Stamp, Taken, TimestampMs,
};

use tracing::debug;

use crate::cluster::feature;
use crate::connections::{Limit, bounded};
use crate::events::read_events;
use crate::look::{Look, Seen, Sight};
use crate::pool::Tx;
use crate::unanswered::UnansweredWrite;
use crate::write::{Write, WriteOutcome};
use crate::{Store, StoreError, movement};

/// Events that a look at the head brings with it at the most; what a session has beyond them is read in pages.
pub(crate) const PAGE: i64 = 1_000;

/// How sure a drain wants to be that its write is still right when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Looks without a lock, and reads one page: a log that has more is [`Started::Long`].
    Glance,
    /// Looks without a lock. The write is refused as [`Written::Stale`] if the head has moved since.
    Look,
    /// Locks the head until the write: for who has been refused.
    Lock,
}

/// The beginning of a session's log that a caller has read before, by its position: a number alone may be another log's,
/// of another session with the same id, or of a database that came back without some commits (docs/decisions/0092).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLog {
    /// The session that it is of: an earlier one with the same id had another log.
    pub incarnation: SessionIncarnation,
    /// The last number that was read.
    pub seq: Seq,
    /// The id of the event with this number; `None` compares no event.
    pub id: Option<EventId>,
}

impl KnownLog {
    /// Nothing was read.
    pub const NOTHING: Self = Self { incarnation: SessionIncarnation(0), seq: Seq(0), id: None };
}

/// The head that a drain's write is based on.
#[derive(Debug, Clone)]
pub struct Head {
    /// The number that the next event gets.
    pub next_seq: Seq,
    /// The id of the event before it, which the write proves too; `None` proves none.
    pub after: Option<EventId>,
    /// The highest id stamp of the session.
    pub last_id: Stamp,
    /// The newest interrupt; 0 without one.
    pub interrupt_seq: Seq,
}

/// How a look at a session that may want a drain went.
pub enum Started {
    /// It has work, and these events are new. Nothing is claimed before the write.
    Ready(Box<DrainWrite>, Taken, Vec<RecordedEvent>),
    /// It has work, and its new events, in the log of this claim, have so many bytes: they are more than a page.
    Long(Claim, usize),
    /// A higher token has acted at the Location: give it up.
    Superseded,
    /// There is nothing to do: a hint that was late, another drain was faster, or the session is not at this
    /// Location (any more).
    Idle,
}

/// The next write of a drain, not written yet: a head that was seen, or is locked. Dropped, it changes
/// nothing.
pub struct DrainWrite {
    pub(crate) store: Store,
    /// The transaction that holds the lock, if one does.
    pub(crate) locked: Option<Tx>,
    pub(crate) session: SessionRef,
    /// The token of a drain that starts with this write.
    pub(crate) starts: Option<FencingToken>,
    pub(crate) seen: Claim,
    pub(crate) head: Head,
}

/// The outcome of a drain's write.
pub enum Written {
    /// It is durable; the drain's next write can be based on this.
    Next(Box<DrainWrite>),
    /// The head has moved since the look, and nothing was written: look again, with [`Hold::Lock`].
    Stale,
    /// A higher token has acted at the Location, and nothing was written: give it up.
    Superseded,
    /// Components that it names are not stored any more, and nothing was written: look again, and bring them all.
    Unstored,
    /// Postgres did not answer, so that nobody knows whether it is written. The claim is ours until another's is
    /// durable: find out with [`UnansweredWrite::again`].
    Unanswered(Box<UnansweredWrite>, StoreError),
}

/// The additions of one write of a drain.
pub struct Append<'a> {
    /// The events, in order; they get the head's next numbers.
    pub events: &'a [SessionEvent],
    /// How many inputs it promotes.
    pub promoted: i32,
    /// A turn or a call was settled: the recovery counter starts over.
    pub progress: bool,
    /// Whether the drain goes on.
    pub end: DrainEnd,
    /// Components that its attempts name, by hash.
    pub components: &'a [(Vec<u8>, Vec<u8>)],
}

impl Store {
    /// Looks whether a session wants a drain, and at its events after `known`; from 1 on, if `known` is of an
    /// earlier session with the same id.
    ///
    /// The drain starts with the write: only then the token is compared with the Location's fence under its
    /// lock, the claim raised and the session marked open, in one transaction with the events.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn start_drain(
        &self,
        session: SessionRef,
        token: FencingToken,
        known: KnownLog,
        hold: Hold,
    ) -> Result<Started, StoreError> {
        let store = self.clone();
        store.feature_level().await?; // for what this drain will write
        match hold {
            Hold::Glance | Hold::Look => store.look(session, token, known, hold, None).await,
            Hold::Lock => {
                let look = async move {
                    let tx = store.drain_tx(session.org).await?;
                    store.look(session, token, known, hold, Some(tx)).await
                };
                bounded(Limit::Short, look).await
            }
        }
    }

    /// The look itself, within a transaction that will hold its locks, or alone.
    async fn look(
        self,
        session: SessionRef,
        token: FencingToken,
        known: KnownLog,
        hold: Hold,
        mut locked: Option<Tx>,
    ) -> Result<Started, StoreError> {
        let store = self;
        let call = Look { session, token, known };
        let (call, seen) = match &mut locked {
            Some(tx) => {
                let seen = call.alone(true, tx).await?;
                (call, seen)
            }
            None => match store.looks().ask(call).await? {
                (call, Some(seen)) => (call, seen),
                (call, None) => {
                    let alone = store.drain_lane().run(move |connection| {
                        Box::pin(async move {
                            let seen = call.alone(false, connection).await?;
                            Ok((call, seen))
                        })
                    });
                    alone.await?
                }
            },
        };
        let Look { session, token, known } = call;
        let Sight { mut head, claim: seen, taken, after, mut events } = match seen {
            Seen::Ready(sight) => *sight,
            Seen::Superseded => return Ok(Started::Superseded),
            // Deleted, or it has moved: a hint that was late.
            Seen::Idle | Seen::Missing => return Ok(Started::Idle),
        };
        let last = |events: &[RecordedEvent]| events.last().map_or(after, |event| event.seq);
        if hold == Hold::Glance && last(&events).0 + 1 < head.next_seq.0 {
            drop(events);
            let bytes = store.log_bytes(session.org, seen, after).await?;
            return Ok(Started::Long(seen, bytes));
        }
        while last(&events).0 + 1 < head.next_seq.0 {
            let (org, id) = (session.org, session.session.clone());
            // Postgres may be another one than a page ago.
            let read = KnownLog {
                incarnation: seen.incarnation(),
                seq: last(&events),
                id: events.last().map(|event| event.id.clone()),
            };
            let page = match store.events_from(org, id, read, PAGE).await {
                Ok(page) if !page.items.is_empty() => page.items,
                Ok(_) | Err(StoreError::NotFound) => return Ok(Started::Idle), // deleted meanwhile
                Err(error) => return Err(error),
            };
            events.extend(page.into_iter().take_while(|event| event.seq < head.next_seq));
        }
        head.after = events.last().map_or(known.id, |event| Some(event.id.clone()));
        let write = DrainWrite { store, locked, session, starts: Some(token), seen, head };
        Ok(Started::Ready(Box::new(write), taken, events))
    }

    /// Returns the bytes of a log's events after `after`. Reads none of them: Postgres keeps the length of a long one
    /// beside it.
    async fn log_bytes(&self, org: OrgId, of: Claim, after: Seq) -> Result<usize, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let bytes = sqlx::query_scalar!(
                    r#"SELECT coalesce(sum(octet_length(payload)), 0)::bigint AS "bytes!" FROM session_event
                       WHERE org_id = $1 AND incarnation = $2::bigint AND seq > $3::bigint"#,
                    org.0,
                    of.incarnation().0,
                    after.0,
                )
                .fetch_one(connection)
                .await?;
                Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
            })
        })
        .await
    }

    /// Locks the head for a drain's next write, and reads the events after `known`.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the claim has passed on: stop at once. [`StoreError::WentBack`] when the log is not
    /// the one that is known: stop, and forget it.
    pub async fn resume_drain(
        &self,
        session: SessionRef,
        claim: Claim,
        known: KnownLog,
    ) -> Result<(DrainWrite, Vec<RecordedEvent>), StoreError> {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.drain_tx(session.org).await?;
            let row = sqlx::query!(
                r#"SELECT next_seq AS "next_seq!", last_id AS "last_id!", interrupt_seq AS "interrupt_seq!",
                       is_known AS "is_known!"
                   FROM prove_claim($1, $2, $3, $4, $5)"#,
                session.org.0,
                session.session.as_str(),
                claim.0,
                known.seq.0,
                known.id.as_ref().map(EventId::as_str),
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some(row) = row else {
                return Err(StoreError::Fenced { session: session.session, held: claim });
            };
            if !row.is_known {
                return Err(StoreError::WentBack { session: session.session });
            }
            let mut head = Head {
                next_seq: Seq(row.next_seq),
                after: known.id,
                last_id: Stamp(row.last_id),
                interrupt_seq: Seq(row.interrupt_seq),
            };
            let mut new: Vec<RecordedEvent> = Vec::new();
            loop {
                let last = new.last().map_or(known.seq, |event| event.seq);
                if last.0 + 1 >= head.next_seq.0 {
                    break;
                }
                let page = read_events(&mut tx, session.org, &session.session, last, PAGE).await?;
                if page.items.is_empty() {
                    let hole = format!("the log has no event {}", last.0 + 1);
                    return Err(StoreError::Unreadable(hole));
                }
                new.extend(page.items);
            }
            if let Some(last) = new.last() {
                head.after = Some(last.id.clone());
            }
            let locked = Some(tx);
            Ok((DrainWrite { store, locked, session, starts: None, seen: claim, head }, new))
        })
        .await
    }
}

impl DrainWrite {
    /// The claim that its events are written under.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim(self.seen.0 + i64::from(self.starts.is_some()))
    }

    /// The head, as seen or locked.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Ids above everything that the session has seen.
    #[must_use]
    pub fn mint(&self, now: TimestampMs) -> IdMint {
        IdMint::after(self.head.last_id, now)
    }

    /// Writes and commits; the events' ids come from `mint`.
    ///
    /// A write that ends as [`DrainEnd::Moved`] or [`DrainEnd::MovedOpen`] takes the session to the Location that
    /// its `session.moved` names. That wants locks which come before the head's, so a head that was locked is let
    /// go first: even then the answer may be [`Written::Stale`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the claim has passed on: stop at once. [`StoreError::NotFound`] when there is no
    /// Location to move to. [`StoreError::Feature`]. Those of a database that fails for good; one that may come back
    /// leaves the write [`Written::Unanswered`].
    pub async fn commit(
        self,
        mint: &mut IdMint,
        now: TimestampMs,
        append: Append<'_>,
    ) -> Result<Written, StoreError> {
        if let Some(newest) = append.events.iter().filter_map(feature).max() {
            self.store.require(newest).await?;
        }
        let ids: Vec<EventId> = append.events.iter().map(|_| EventId::mint(mint)).collect();
        let write = Arc::new(Write {
            session: self.session.clone(),
            starts: self.starts,
            seen: self.seen,
            first: self.head.next_seq,
            after: self.head.after.clone(),
            last: ids.last().or(self.head.after.as_ref()).cloned(),
            ids: ids.into_iter().map(String::from).collect(),
            stamp: mint.last(),
            now,
            kinds: append.events.iter().map(|event| event.kind().to_owned()).collect(),
            versions: append.events.iter().map(SessionEvent::version).collect(),
            payloads: append.events.iter().map(SessionEvent::payload).collect(),
            components: append.components.to_vec(),
            promoted: append.promoted,
            end: append.end,
            progress: append.progress,
        });
        if matches!(append.end, DrainEnd::Moved | DrainEnd::MovedOpen) {
            let moved = movement::of(&append)?;
            // Locations are locked before heads.
            let Self { store, head, .. } = self.release().await?;
            return UnansweredWrite { store, head, write, moved: Some(moved) }.make().await;
        }
        let Self { store, locked, head, .. } = self;
        let unanswered = UnansweredWrite { store, head, write, moved: None };
        let Some(mut tx) = locked else { return unanswered.make().await };
        let write = unanswered.write.clone();
        // A dropped caller must not leave its transaction open.
        let outcome = bounded(Limit::Short, async move {
            let outcome = write.alone(&mut tx).await?;
            if outcome == WriteOutcome::Written {
                tx.commit().await?;
            }
            Ok(outcome)
        });
        unanswered.told(outcome.await)
    }

    /// Lets the head go without a change; what was seen of it is good for a later write.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn release(mut self) -> Result<Self, StoreError> {
        if let Some(tx) = self.locked.take() {
            match tx.rollback().await {
                // Its connection is closed, and that lets the head go as well.
                Err(error) if error.may_pass() => {
                    debug!(%error, "a lock was let go by its connection's end")
                }
                done => done?,
            }
        }
        Ok(self)
    }
}
