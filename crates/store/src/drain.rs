//! What a Session Drain writes: its start, and one transaction per durable transition after it.

use domain::{
    Claim, EventId, FencingToken, IdMint, OrgId, PromptAdmitted, RecordedEvent, Seq, SessionEvent,
    SessionId, SessionRef, Stamp, TimestampMs,
};

use crate::component::insert_components;
use crate::events::read_events;
use crate::pool::Tx;
use crate::{Store, StoreError};

/// What a drain knows of its head while it holds the lock.
#[derive(Debug, Clone)]
pub struct Head {
    /// The number that the next event gets.
    pub next_seq: Seq,
    /// The highest id stamp of the session.
    pub last_id: Stamp,
    /// The newest interrupt; 0 without one.
    pub interrupt_seq: Seq,
    /// The newest wake.
    pub wake_seq: Seq,
    /// Wakes up to here are spent or parked.
    pub parked_seq: Seq,
    /// Admitted inputs that are not promoted.
    pub pending: i32,
}

impl Head {
    /// Whether a promotable input waits that someone wants run.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.pending > 0 && self.wake_seq > self.parked_seq
    }
}

/// How a drain's start went.
pub enum Started {
    /// The session is ours; the transaction is open and holds the head's lock.
    Claimed(Box<DrainTx>, Taken),
    /// A higher token has acted at the Location: give it up.
    Superseded,
    /// There is nothing to do: a hint that was late, or another drain was faster.
    Idle,
}

/// What a drain's start found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// An earlier drain had not ended.
    pub was_open: bool,
    /// It had stopped on purpose, at a boundary.
    pub handed_over: bool,
    /// Takeovers in a row without progress, this one included.
    pub recoveries: i16,
}

/// A drain's transaction: the head is locked and the claim proved. Dropped without
/// [`commit`](Self::commit), it changes nothing.
pub struct DrainTx {
    tx: Tx,
    session: SessionRef,
    claim: Claim,
    head: Head,
}

/// Whether the drain goes on after an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainEnd {
    /// It goes on.
    Keep,
    /// It ends. Inputs that someone woke the session for, and that are still pending, start another.
    Close,
    /// It ends, and what is pending waits for a new wake: it could not be started.
    Park,
    /// It stops at a boundary on purpose, and the next holder goes on.
    HandOver,
}

impl DrainEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Close => "close",
            Self::Park => "park",
            Self::HandOver => "hand-over",
        }
    }
}

/// What one transaction of a drain adds.
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
    /// Starts a drain: takes the Location's lock shared, finds `token` still its fence, raises the claim
    /// and marks the session open, all in the transaction that is returned open.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the session is not at this Location.
    pub async fn start_drain(
        &self,
        session: SessionRef,
        token: FencingToken,
    ) -> Result<Started, StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.drain_tx(session.org).await?;
            let row = sqlx::query!(
                r#"SELECT outcome AS "outcome!", claim, next_seq, last_id, interrupt_seq, wake_seq, parked_seq,
                      pending, was_open, handed_over, recoveries
               FROM start_drain($1, $2, $3, $4)"#,
                session.org.0,
                session.session.as_str(),
                session.location.as_str(),
                token.0,
            )
            .fetch_one(&mut *tx)
            .await?;
            match row.outcome.as_str() {
                "claimed" => {}
                "superseded" => return Ok(Started::Superseded),
                "idle" => return Ok(Started::Idle),
                "missing" => return Err(StoreError::NotFound),
                other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
            }
            let missing = || StoreError::Unreadable("a claim without its head".into());
            let head = Head {
                next_seq: Seq(row.next_seq.ok_or_else(missing)?),
                last_id: Stamp(row.last_id.ok_or_else(missing)?),
                interrupt_seq: Seq(row.interrupt_seq.ok_or_else(missing)?),
                wake_seq: Seq(row.wake_seq.ok_or_else(missing)?),
                parked_seq: Seq(row.parked_seq.ok_or_else(missing)?),
                pending: row.pending.ok_or_else(missing)?,
            };
            let taken = Taken {
                was_open: row.was_open.ok_or_else(missing)?,
                handed_over: row.handed_over.ok_or_else(missing)?,
                recoveries: row.recoveries.ok_or_else(missing)?,
            };
            let claim = Claim(row.claim.ok_or_else(missing)?);
            Ok(Started::Claimed(Box::new(DrainTx { tx, session, claim, head }), taken))
        })
        .await
    }

    /// Begins a drain's next transaction: locks the head and proves the claim.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the claim has passed on: stop at once.
    pub async fn resume_drain(
        &self,
        session: SessionRef,
        claim: Claim,
    ) -> Result<DrainTx, StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.drain_tx(session.org).await?;
            let row = sqlx::query!(
                r#"SELECT next_seq AS "next_seq!", last_id AS "last_id!", interrupt_seq AS "interrupt_seq!",
                      wake_seq AS "wake_seq!", parked_seq AS "parked_seq!", pending AS "pending!"
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
                wake_seq: Seq(row.wake_seq),
                parked_seq: Seq(row.parked_seq),
                pending: row.pending,
            };
            Ok(DrainTx { tx, session, claim, head })
        })
        .await
    }
}

impl DrainTx {
    /// The claim that this drain holds.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The head, as locked.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Ids above everything that the session has seen.
    #[must_use]
    pub fn mint(&self, now: TimestampMs) -> IdMint {
        IdMint::after(self.head.last_id, now)
    }

    /// Everything in the log after `known`, in order.
    ///
    /// # Errors
    /// When the database fails or a row cannot be read.
    pub async fn events_after(&mut self, known: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        if known.0 + 1 >= self.head.next_seq.0 {
            return Ok(Vec::new());
        }
        read_events(&mut self.tx, self.session.org, &self.session.session, known, i64::MAX).await
    }

    /// The inputs that wait, in the order of their admission.
    ///
    /// # Errors
    /// When the database fails or a row cannot be read.
    pub async fn pending_inputs(
        &mut self,
    ) -> Result<Vec<(Seq, TimestampMs, PromptAdmitted)>, StoreError> {
        if self.head.pending == 0 {
            return Ok(Vec::new());
        }
        let rows = sqlx::query!(
            "SELECT admitted_seq, admitted_ms, payload FROM session_input
             WHERE org_id = $1 AND session_id = $2 AND status = 'admitted' ORDER BY admitted_seq",
            self.session.org.0,
            self.session.session.as_str(),
        )
        .fetch_all(&mut *self.tx)
        .await?;
        rows.into_iter()
            .map(|row| {
                let prompt = serde_json::from_str(&row.payload)
                    .map_err(|error| StoreError::Unreadable(error.to_string()))?;
                Ok((Seq(row.admitted_seq), row.admitted_ms, prompt))
            })
            .collect()
    }

    /// Appends and commits; the events' ids come from `mint`.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] cannot happen while the head's lock is held, but is answered as such if the
    /// row is not as it was locked.
    pub async fn commit(
        mut self,
        mint: &mut IdMint,
        now: TimestampMs,
        append: Append<'_>,
    ) -> Result<(), StoreError> {
        insert_components(&mut self.tx, self.session.org, append.components).await?;
        let ids: Vec<String> =
            append.events.iter().map(|_| EventId::mint(mint).to_string()).collect();
        let kinds: Vec<String> =
            append.events.iter().map(|event| event.kind().to_owned()).collect();
        let versions: Vec<i32> = append.events.iter().map(SessionEvent::version).collect();
        let payloads: Vec<String> = append.events.iter().map(SessionEvent::payload).collect();
        let last = sqlx::query_scalar!(
            "SELECT append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            self.session.org.0,
            self.session.session.as_str(),
            self.claim.0,
            self.head.next_seq.0,
            append.promoted,
            mint.last().0,
            append.end.as_str(),
            append.progress,
            now,
            &ids,
            &kinds,
            &versions,
            &payloads,
        )
        .fetch_one(&mut *self.tx)
        .await?;
        if last.is_none() {
            return Err(StoreError::Fenced { session: self.session.session, held: self.claim });
        }
        self.tx.commit().await?;
        Ok(())
    }

    /// Ends the transaction without a change; a claim that it made is undone with it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn rollback(self) -> Result<(), StoreError> {
        Ok(self.tx.rollback().await?)
    }

    /// The organisation and session that it is about.
    #[must_use]
    pub fn session(&self) -> (OrgId, &SessionId) {
        (self.session.org, &self.session.session)
    }
}
