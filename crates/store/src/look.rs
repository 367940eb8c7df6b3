//! The look that a drain's first write is based on.

use domain::{
    Claim, EventId, FencingToken, OrgId, RecordedEvent, Seq, SessionEvent, SessionRef, Stamp, Taken,
};
use sqlx::PgConnection;

use crate::StoreError;
use crate::batch::{Answers, Call, in_place};
use crate::drain::{Head, KnownLog, PAGE};

/// A look that can be made together with others.
pub(crate) struct Look {
    pub(crate) session: SessionRef,
    pub(crate) token: FencingToken,
    /// The part of its log that is known.
    pub(crate) known: KnownLog,
}

/// The result of a look.
pub(crate) enum Seen {
    Ready(Box<Sight>),
    /// A higher token has acted at the Location.
    Superseded,
    Idle,
    /// The session is not at this Location.
    Missing,
}

/// A head with work, and the first page of what is new.
pub(crate) struct Sight {
    pub(crate) head: Head,
    pub(crate) claim: Claim,
    pub(crate) taken: Taken,
    /// The events begin after this.
    pub(crate) after: Seq,
    pub(crate) events: Vec<RecordedEvent>,
}

/// A row of `look_at_drain` or `look_at_drains`.
struct Row {
    outcome: String,
    claim: Option<i64>,
    next_seq: Option<i64>,
    last_id: Option<i64>,
    interrupt_seq: Option<i64>,
    was_open: Option<bool>,
    handed_over: Option<bool>,
    recoveries: Option<i16>,
    after: Option<i64>,
    ids: Option<Vec<String>>,
    kinds: Option<Vec<String>>,
    versions: Option<Vec<i32>>,
    times: Option<Vec<i64>>,
    claims: Option<Vec<Option<i64>>>,
    payloads: Option<Vec<String>>,
}

impl Look {
    /// Looks at one session; with `lock`, takes its Location's lock shared and then the head's.
    pub(crate) async fn alone(
        &self,
        lock: bool,
        connection: &mut PgConnection,
    ) -> Result<Seen, StoreError> {
        self.ask(PAGE, lock, connection).await
    }

    /// Looks at one session's head and at none of its events.
    pub(crate) async fn head(&self, connection: &mut PgConnection) -> Result<Seen, StoreError> {
        self.ask(0, false, connection).await
    }

    async fn ask(
        &self,
        limit: i64,
        lock: bool,
        connection: &mut PgConnection,
    ) -> Result<Seen, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"SELECT outcome AS "outcome!", claim, next_seq, last_id, interrupt_seq, was_open, handed_over,
                   recoveries, after, ids, kinds, versions, times, claims AS "claims: Vec<Option<i64>>",
                   payloads
               FROM look_at_drain($1, $2, $3, $4, $5, $6, $7, $8, $9)"#,
            self.session.org.0,
            self.session.session.as_str(),
            self.session.location.as_str(),
            self.token.0,
            self.known.incarnation.0,
            self.known.seq.0,
            limit,
            lock,
            self.known.id.as_ref().map(EventId::as_str),
        )
        .fetch_one(connection)
        .await?;
        row.read()
    }
}

impl Call for Look {
    type Answer = Seen;

    const MAY_REPEAT: bool = true;

    fn organisation(&self) -> Option<OrgId> {
        Some(self.session.org)
    }

    fn goes_with(&self, other: &Self) -> bool {
        // A log that is read from its beginning may be long: not many of those at once.
        let warm = self.known.seq.0 > 0 && other.known.seq.0 > 0;
        warm && self.session.org == other.session.org
            && self.session.session != other.session.session
    }

    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, Self::Answer> {
        Box::pin(async move {
            let Some(first) = calls.first() else { return Ok(Vec::new()) };
            let ids = |id: fn(&SessionRef) -> &str| -> Vec<String> {
                calls.iter().map(|call| id(&call.session).to_owned()).collect()
            };
            let rows = sqlx::query!(
                r#"SELECT place AS "place!", outcome AS "outcome!", claim, next_seq, last_id, interrupt_seq,
                       was_open, handed_over, recoveries, after, ids, kinds, versions, times,
                       claims AS "claims: Vec<Option<i64>>", payloads
                   FROM look_at_drains($1, $2, $3, $4, $5, $6, $7, $8)"#,
                first.session.org.0,
                &ids(|session| session.session.as_str()),
                &ids(|session| session.location.as_str()),
                &calls.iter().map(|call| call.token.0).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.known.incarnation.0).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.known.seq.0).collect::<Vec<_>>(),
                PAGE,
                &calls.iter().map(|call| call.known.id.clone().map(String::from)).collect::<Vec<_>>()
                    as &[Option<String>],
            )
            .fetch_all(connection)
            .await?;
            let seen = rows.into_iter().filter_map(|row| {
                let seen = Row {
                    outcome: row.outcome,
                    claim: row.claim,
                    next_seq: row.next_seq,
                    last_id: row.last_id,
                    interrupt_seq: row.interrupt_seq,
                    was_open: row.was_open,
                    handed_over: row.handed_over,
                    recoveries: row.recoveries,
                    after: row.after,
                    ids: row.ids,
                    kinds: row.kinds,
                    versions: row.versions,
                    times: row.times,
                    claims: row.claims,
                    payloads: row.payloads,
                };
                // A log that cannot be read is no matter of the others: it is looked at alone, and fails alone.
                seen.read().ok().map(|seen| Ok((row.place, seen)))
            });
            in_place(calls.len(), seen)
        })
    }
}

impl Row {
    fn read(self) -> Result<Seen, StoreError> {
        match self.outcome.as_str() {
            "ready" => {}
            "superseded" => return Ok(Seen::Superseded),
            "idle" => return Ok(Seen::Idle),
            "missing" => return Ok(Seen::Missing),
            other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
        }
        let missing = || StoreError::Unreadable("a look without its head".into());
        let was_open = self.was_open.ok_or_else(missing)?;
        let handed_over = self.handed_over.ok_or_else(missing)?;
        let earlier = self.recoveries.ok_or_else(missing)?;
        let recoveries = earlier + i16::from(was_open && !handed_over);
        let head = Head {
            next_seq: Seq(self.next_seq.ok_or_else(missing)?),
            after: None, // whoever reads the log to its end knows it
            last_id: Stamp(self.last_id.ok_or_else(missing)?),
            interrupt_seq: Seq(self.interrupt_seq.ok_or_else(missing)?),
        };
        let claim = Claim(self.claim.ok_or_else(missing)?);
        let after = Seq(self.after.ok_or_else(missing)?);
        let rows = self.ids.unwrap_or_default().into_iter().zip(self.kinds.unwrap_or_default());
        let rows = rows.zip(self.versions.unwrap_or_default()).zip(self.times.unwrap_or_default());
        let events = rows
            .zip(self.claims.unwrap_or_default())
            .zip(self.payloads.unwrap_or_default())
            .zip(after.0 + 1..)
            .map(|((((((id, kind), version), time), claim), payload), seq)| {
                Ok(RecordedEvent {
                    seq: Seq(seq),
                    id: id.parse::<EventId>()?,
                    time,
                    claim: claim.map(Claim),
                    event: SessionEvent::read(&kind, version, &payload)?,
                })
            })
            .collect::<Result<_, StoreError>>()?;
        let taken = Taken { was_open, handed_over, recoveries };
        Ok(Seen::Ready(Box::new(Sight { head, claim, taken, after, events })))
    }
}
