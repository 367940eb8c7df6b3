//! One write of a drain, as a statement of its own or together with others.

use std::sync::Arc;

use domain::{Claim, DrainEnd, EventId, FencingToken, OrgId, Seq, SessionRef, Stamp, TimestampMs};
use sqlx::PgConnection;

use crate::StoreError;
use crate::batch::{Answers, Call, in_place};

/// A write that can be made together with others.
pub(crate) struct Write {
    pub(crate) session: SessionRef,
    /// The token of a drain that starts with it.
    pub(crate) starts: Option<FencingToken>,
    /// The head's claim and next number that it is based on.
    pub(crate) seen: Claim,
    pub(crate) first: Seq,
    /// The id of the event before that number; `None` proves none.
    pub(crate) after: Option<EventId>,
    /// The id of the log's last event once it is written.
    pub(crate) last: Option<EventId>,
    pub(crate) promoted: i32,
    /// Above every id in it.
    pub(crate) stamp: Stamp,
    pub(crate) end: DrainEnd,
    pub(crate) progress: bool,
    pub(crate) now: TimestampMs,
    /// A column each of its events.
    pub(crate) ids: Vec<String>,
    pub(crate) kinds: Vec<String>,
    pub(crate) versions: Vec<i32>,
    pub(crate) payloads: Vec<String>,
    /// Components that it names, by hash.
    pub(crate) components: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Written,
    /// The head has moved.
    Stale,
    /// A higher token has acted at the Location.
    Superseded,
    /// The claim has passed on.
    Fenced,
    /// Components that it names are not stored.
    Unstored,
}

impl Write {
    /// Makes it alone.
    pub(crate) async fn alone(
        &self,
        connection: &mut PgConnection,
    ) -> Result<WriteOutcome, StoreError> {
        let (hashes, bytes): (Vec<Vec<u8>>, Vec<Vec<u8>>) = self.components.iter().cloned().unzip();
        let outcome = sqlx::query_scalar!(
            r#"SELECT write_drain($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                   $18) AS "outcome!""#,
            self.session.org.0,
            self.session.session.as_str(),
            self.session.location.as_str(),
            self.starts.map(|token| token.0),
            self.seen.0,
            self.first.0,
            self.promoted,
            self.stamp.0,
            self.end.as_str(),
            self.progress,
            self.now,
            &self.ids,
            &self.kinds,
            &self.versions,
            &self.payloads,
            &hashes,
            &bytes,
            self.after.as_ref().map(EventId::as_str),
        )
        .fetch_one(connection)
        .await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if is_unstored(&error) => return Ok(WriteOutcome::Unstored),
            Err(error) => return Err(error.into()),
        };
        match outcome.as_str() {
            "written" => Ok(WriteOutcome::Written),
            "stale" => Ok(WriteOutcome::Stale),
            "superseded" => Ok(WriteOutcome::Superseded),
            "fenced" => Ok(WriteOutcome::Fenced),
            other => Err(StoreError::Unreadable(format!("outcome {other}"))),
        }
    }
}

/// Whether Postgres has refused a write that names a component without a row.
fn is_unstored(error: &sqlx::Error) -> bool {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    constraint.is_some_and(|name| UNSTORED.contains(&name))
}

/// The foreign keys by which a component is named.
const UNSTORED: [&str; 2] = ["session_component_named", "component_member_named"];

impl Call for Arc<Write> {
    /// It is written. Why another was not, it finds out alone.
    type Answer = ();

    /// The second of two equal writes finds the head moved, as if it had been another's: see
    /// [`crate::UnansweredWrite`].
    const MAY_REPEAT: bool = false;

    fn organisation(&self) -> Option<OrgId> {
        Some(self.session.org)
    }

    fn bytes(&self) -> usize {
        let events: usize = self.payloads.iter().map(String::len).sum();
        events + self.components.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.session.org == other.session.org && self.session.session != other.session.session
    }

    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, Self::Answer> {
        Box::pin(async move {
            let Some(first) = calls.first() else { return Ok(Vec::new()) };
            let each =
                |number: fn(&Self) -> i64| -> Vec<i64> { calls.iter().map(number).collect() };
            let text = |text: fn(&Self) -> &str| -> Vec<String> {
                calls.iter().map(|call| text(call).to_owned()).collect()
            };
            let events = |column: fn(&Self) -> &Vec<String>| -> Vec<String> {
                calls.iter().flat_map(|call| column(call).iter().cloned()).collect()
            };
            let owners = (1..)
                .zip(calls)
                .flat_map(|(place, call): (i32, &Self)| call.ids.iter().map(move |_| place));
            let numbers =
                calls.iter().flat_map(|call| (call.first.0..).zip(&call.ids).map(|(seq, _)| seq));
            let components = calls.iter().flat_map(|call| call.components.iter().cloned());
            let (hashes, bytes): (Vec<Vec<u8>>, Vec<Vec<u8>>) = components.unzip();
            let written = sqlx::query_scalar!(
                r#"SELECT write_drains($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                       $17, $18, $19, $20, $21) AS "written!""#,
                first.session.org.0,
                &text(|call| call.session.session.as_str()),
                &text(|call| call.session.location.as_str()),
                &calls.iter().map(|call| call.starts.map(|token| token.0)).collect::<Vec<_>>()
                    as &[Option<i64>],
                &each(|call| call.seen.0),
                &each(|call| call.first.0),
                &calls
                    .iter()
                    .map(|call| i32::try_from(call.ids.len()).unwrap_or(i32::MAX))
                    .collect::<Vec<_>>(),
                &calls.iter().map(|call| call.promoted).collect::<Vec<_>>(),
                &each(|call| call.stamp.0),
                &text(|call| call.end.as_str()),
                &calls.iter().map(|call| call.progress).collect::<Vec<_>>(),
                &each(|call| call.now),
                &owners.collect::<Vec<_>>(),
                &numbers.collect::<Vec<_>>(),
                &events(|call| &call.ids),
                &events(|call| &call.kinds),
                &calls.iter().flat_map(|call| call.versions.iter().copied()).collect::<Vec<_>>(),
                &events(|call| &call.payloads),
                &hashes,
                &bytes,
                &calls.iter().map(|call| call.after.clone().map(String::from)).collect::<Vec<_>>()
                    as &[Option<String>],
            )
            .fetch_one(connection)
            .await?;
            in_place(calls.len(), written.into_iter().map(|place| Ok((i64::from(place), ()))))
        })
    }
}
