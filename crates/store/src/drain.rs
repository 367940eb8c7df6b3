//! What a Session Drain writes: one statement per durable transition, the first of which starts it.

use domain::{
    Claim, DrainEnd, EventId, FencingToken, IdMint, RecordedEvent, Seq, SessionEvent, SessionRef,
    Stamp, Taken, TimestampMs,
};

use crate::cluster::level;
use crate::events::read_events;
use crate::pool::Tx;
use crate::{FEATURES, Store, StoreError};

/// Events that a look at the head brings with it; what a session has beyond it is read in pages.
const PAGE: i64 = 1_000;

/// How sure a drain wants to be that its write is still right when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Looks without a lock. The write is refused as [`Written::Stale`] if the head has moved since.
    Look,
    /// Locks the head until the write: for who has been refused.
    Lock,
}

/// What a drain's write is based on.
#[derive(Debug, Clone)]
pub struct Head {
    /// The number that the next event gets.
    pub next_seq: Seq,
    /// The highest id stamp of the session.
    pub last_id: Stamp,
    /// The newest interrupt; 0 without one.
    pub interrupt_seq: Seq,
}

/// How a look at a session that may want a drain went.
pub enum Started {
    /// It has work, and these events are new. Nothing is claimed before the write.
    Ready(Box<DrainWrite>, Taken, Vec<RecordedEvent>),
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

/// What came of a drain's write.
pub enum Written {
    /// It is durable; the drain's next write can be based on this.
    Next(Box<DrainWrite>),
    /// The head has moved since the look, and nothing was written: look again, with [`Hold::Lock`].
    Stale,
    /// A higher token has acted at the Location, and nothing was written: give it up.
    Superseded,
}

/// What one write of a drain adds.
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
    /// Looks whether a session wants a drain, and at its events after `known`. From 1 on, if the log no
    /// longer reaches to `known`: the session was deleted and made again under its id.
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
        known: Seq,
        hold: Hold,
    ) -> Result<Started, StoreError> {
        let store = self.clone();
        store.feature_level().await?; // for what this drain will write
        match hold {
            Hold::Look => store.look(session, token, known, None).await,
            // sqlx leaves a pooled connection inside a transaction when its begin is dropped.
            Hold::Lock => {
                tasks::detached(async move {
                    let tx = store.drain_tx(session.org).await?;
                    store.look(session, token, known, Some(tx)).await
                })
                .await
            }
        }
    }

    /// The look itself, within a transaction that will hold its locks, or alone.
    async fn look(
        self,
        session: SessionRef,
        token: FencingToken,
        known: Seq,
        mut locked: Option<Tx>,
    ) -> Result<Started, StoreError> {
        let store = self;
        let look = sqlx::query!(
            r#"SELECT outcome AS "outcome!", claim, next_seq, last_id, interrupt_seq, was_open, handed_over,
                       recoveries, after, ids, kinds, versions, times, claims AS "claims: Vec<Option<i64>>", payloads
                   FROM look_at_drain($1, $2, $3, $4, $5, $6, $7)"#,
            session.org.0,
            session.session.as_str(),
            session.location.as_str(),
            token.0,
            known.0,
            PAGE,
            locked.is_some(),
        );
        let row = match &mut locked {
            Some(tx) => look.fetch_one(&mut **tx).await?,
            None => {
                let mut connection = store.drain_lane().take().await?;
                let row = look.fetch_one(&mut *connection).await;
                connection.done_with(row)?
            }
        };
        match row.outcome.as_str() {
            "ready" => {}
            "superseded" => return Ok(Started::Superseded),
            "idle" => return Ok(Started::Idle),
            // Deleted, or it has moved: a hint that was late.
            "missing" => return Ok(Started::Idle),
            other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
        }
        let missing = || StoreError::Unreadable("a look without its head".into());
        let head = Head {
            next_seq: Seq(row.next_seq.ok_or_else(missing)?),
            last_id: Stamp(row.last_id.ok_or_else(missing)?),
            interrupt_seq: Seq(row.interrupt_seq.ok_or_else(missing)?),
        };
        let (was_open, handed_over) =
            (row.was_open.ok_or_else(missing)?, row.handed_over.ok_or_else(missing)?);
        let earlier = row.recoveries.ok_or_else(missing)?;
        let taken = Taken {
            was_open,
            handed_over,
            recoveries: earlier + i16::from(was_open && !handed_over),
        };
        let seen = Claim(row.claim.ok_or_else(missing)?);
        let after = Seq(row.after.ok_or_else(missing)?);
        let page = Page {
            ids: row.ids.unwrap_or_default(),
            kinds: row.kinds.unwrap_or_default(),
            versions: row.versions.unwrap_or_default(),
            times: row.times.unwrap_or_default(),
            claims: row.claims.unwrap_or_default(),
            payloads: row.payloads.unwrap_or_default(),
        };
        let mut events = page.events(after)?;
        let last = |events: &[RecordedEvent]| events.last().map_or(after, |event| event.seq);
        while last(&events).0 + 1 < head.next_seq.0 {
            let (org, id) = (session.org, session.session.clone());
            let page = match store.events(org, id, last(&events), PAGE).await {
                Ok(page) if !page.is_empty() => page,
                Ok(_) | Err(StoreError::NotFound) => return Ok(Started::Idle), // deleted meanwhile
                Err(error) => return Err(error),
            };
            events.extend(page.into_iter().take_while(|event| event.seq < head.next_seq));
        }
        let write = DrainWrite { store, locked, session, starts: Some(token), seen, head };
        Ok(Started::Ready(Box::new(write), taken, events))
    }

    /// Locks the head for a drain's next write, and reads the events after `known`.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the claim has passed on: stop at once.
    pub async fn resume_drain(
        &self,
        session: SessionRef,
        claim: Claim,
        known: Seq,
    ) -> Result<(DrainWrite, Vec<RecordedEvent>), StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.drain_tx(session.org).await?;
            let row = sqlx::query!(
                r#"SELECT next_seq AS "next_seq!", last_id AS "last_id!", interrupt_seq AS "interrupt_seq!"
                   FROM prove_claim($1, $2, $3)"#,
                session.org.0,
                session.session.as_str(),
                claim.0,
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some(row) = row else {
                return Err(StoreError::Fenced { session: session.session, held: claim });
            };
            let head = Head {
                next_seq: Seq(row.next_seq),
                last_id: Stamp(row.last_id),
                interrupt_seq: Seq(row.interrupt_seq),
            };
            let new = if known.0 + 1 < head.next_seq.0 {
                read_events(&mut tx, session.org, &session.session, known, i64::MAX).await?
            } else {
                Vec::new()
            };
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
    /// Location to move to. [`StoreError::Feature`].
    pub async fn commit(
        self,
        mint: &mut IdMint,
        now: TimestampMs,
        append: Append<'_>,
    ) -> Result<Written, StoreError> {
        if append.events.iter().any(|event| level(event) > 1) {
            self.store.require(FEATURES).await?;
        }
        if matches!(append.end, DrainEnd::Moved | DrainEnd::MovedOpen) {
            return self.commit_move(mint, now, append).await;
        }
        let ids: Vec<String> =
            append.events.iter().map(|_| EventId::mint(mint).to_string()).collect();
        let kinds: Vec<String> =
            append.events.iter().map(|event| event.kind().to_owned()).collect();
        let versions: Vec<i32> = append.events.iter().map(SessionEvent::version).collect();
        let payloads: Vec<String> = append.events.iter().map(SessionEvent::payload).collect();
        let (hashes, bytes): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            append.components.iter().cloned().unzip();
        let (promoted, end, progress) = (append.promoted, append.end, append.progress);
        let stamp = mint.last();
        let is_locked = self.locked.is_some();
        let write = async move {
            let Self { store, mut locked, session, starts, seen, head } = self;
            let write = sqlx::query_scalar!(
                r#"SELECT write_drain($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
                   AS "outcome!""#,
                session.org.0,
                session.session.as_str(),
                session.location.as_str(),
                starts.map(|token| token.0),
                seen.0,
                head.next_seq.0,
                promoted,
                stamp.0,
                end.as_str(),
                progress,
                now,
                &ids,
                &kinds,
                &versions,
                &payloads,
                &hashes,
                &bytes,
            );
            let outcome = match &mut locked {
                Some(tx) => write.fetch_one(&mut **tx).await?,
                None => {
                    let mut connection = store.drain_lane().take().await?;
                    let outcome = write.fetch_one(&mut *connection).await;
                    connection.done_with(outcome)?
                }
            };
            match outcome.as_str() {
                "written" => {}
                "stale" => return Ok(Written::Stale),
                "superseded" => return Ok(Written::Superseded),
                "fenced" => {
                    return Err(StoreError::Fenced { session: session.session, held: seen });
                }
                other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
            }
            if let Some(tx) = locked {
                tx.commit().await?;
            }
            let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
            let head = Head {
                next_seq: Seq(head.next_seq.0 + count),
                last_id: head.last_id.max(stamp),
                interrupt_seq: head.interrupt_seq,
            };
            let seen = Claim(seen.0 + i64::from(starts.is_some()));
            Ok(Written::Next(Box::new(Self {
                store,
                locked: None,
                session,
                starts: None,
                seen,
                head,
            })))
        };
        // Without a transaction there is nothing that a dropped caller could leave open.
        if is_locked { tasks::detached(write).await } else { write.await }
    }

    /// Lets the head go without a change; what was seen of it is good for a later write.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn release(mut self) -> Result<Self, StoreError> {
        if let Some(tx) = self.locked.take() {
            tx.rollback().await?;
        }
        Ok(self)
    }
}

/// Events as a look brings them: a column each, in the order of the log.
struct Page {
    ids: Vec<String>,
    kinds: Vec<String>,
    versions: Vec<i32>,
    times: Vec<i64>,
    claims: Vec<Option<i64>>,
    payloads: Vec<String>,
}

impl Page {
    fn events(self, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        let rows = self.ids.into_iter().zip(self.kinds).zip(self.versions).zip(self.times);
        rows.zip(self.claims)
            .zip(self.payloads)
            .zip(after.0 + 1..)
            .map(|((((((id, kind), version), time), claim), payload), seq)| {
                Ok(RecordedEvent {
                    seq: Seq(seq),
                    id: id.parse()?,
                    time,
                    claim: claim.map(Claim),
                    event: SessionEvent::read(&kind, version, &payload)?,
                })
            })
            .collect()
    }
}
