use domain::{
    Claim, EventId, OrgId, RecordedEvent, Seq, SessionEvent, SessionId, SessionIncarnation,
};

use sqlx::PgConnection;

use crate::batch::{Answers, Call};
use crate::drain::KnownLog;
use crate::page::{MAX_ROWS, PAGE_BYTES};
use crate::pool::Tx;
use crate::tenant::missing;
use crate::{Page, Store, StoreError};

/// An event from its row.
macro_rules! recorded {
    ($row:ident) => {
        Ok(RecordedEvent {
            seq: Seq($row.seq),
            id: $row.id.parse()?,
            time: $row.time_ms,
            claim: $row.claim.map(Claim),
            event: SessionEvent::read(&$row.kind, $row.version, &$row.payload)?,
        })
    };
}

/// Events from their rows, and how many bytes their payloads have.
macro_rules! page {
    ($rows:ident, $limit:expr, $most:expr) => {{
        let bytes = $rows.iter().map(|row| row.payload.len()).sum();
        let events: Result<Vec<RecordedEvent>, StoreError> =
            $rows.into_iter().map(|row| recorded!(row)).collect();
        Ok(Page::of(events?, $limit, bytes, $most))
    }};
}

/// The log of a session after `after`, in order: a page of at most `limit` events and about [`PAGE_BYTES`].
pub(crate) async fn read_events(
    tx: &mut Tx,
    org: OrgId,
    session: &SessionId,
    after: Seq,
    limit: i64,
) -> Result<Page<RecordedEvent>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT seq::bigint AS "seq!", id AS "id!", kind AS "kind!", version AS "version!",
               time_ms AS "time_ms!", claim, payload AS "payload!"
           FROM (SELECT w.*, sum(octet_length(w.payload)) OVER (ORDER BY w.seq
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
               FROM (SELECT * FROM session_event WHERE org_id = $1 AND seq > $3::bigint
                   AND incarnation = (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2)
                   ORDER BY seq LIMIT $4) AS w) AS e
           WHERE coalesce(e.bytes_before, 0) < page_bytes() ORDER BY e.seq"#,
        org.0,
        session.as_str(),
        after.0,
        limit,
    )
    .fetch_all(&mut **tx)
    .await?;
    page!(rows, limit, PAGE_BYTES)
}

impl Store {
    /// A page of a session's log, in order, of at most `limit` events (and 10,000) and about 8 MiB: one round trip, since
    /// gateways read on with every commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn events(
        &self,
        org: OrgId,
        session: SessionId,
        after: Seq,
        limit: i64,
    ) -> Result<Page<RecordedEvent>, StoreError> {
        self.events_of(org, session, SessionIncarnation::default(), after, limit).await
    }

    /// The same for a caller that follows one session: the log of a later session with the same id is not read.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session, also when another one has its id now.
    pub async fn events_of(
        &self,
        org: OrgId,
        session: SessionId,
        incarnation: SessionIncarnation,
        after: Seq,
        limit: i64,
    ) -> Result<Page<RecordedEvent>, StoreError> {
        self.events_from(org, session, KnownLog { incarnation, seq: after, id: None }, limit).await
    }

    /// The same for a caller that knows the event before the page by its id: another log is not read.
    ///
    /// # Errors
    /// Those of [`Store::events_of`]; [`StoreError::WentBack`] when another event has the number, or none.
    pub async fn events_from(
        &self,
        org: OrgId,
        session: SessionId,
        known: KnownLog,
        limit: i64,
    ) -> Result<Page<RecordedEvent>, StoreError> {
        let limit = limit.min(MAX_ROWS);
        let read = Read { org, session, known, limit };
        let (call, page) = self.readings().ask(read).await?;
        match page {
            Some(page) => Ok(page),
            None => self.events_alone(call).await,
        }
    }

    /// Reads a log that a batch leaves out: one without news, which may not exist at all.
    async fn events_alone(&self, call: Read) -> Result<Page<RecordedEvent>, StoreError> {
        self.lane(call.org)
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        r#"SELECT seq AS "seq!", id AS "id!", kind AS "kind!", version AS "version!",
                               time_ms AS "time_ms!", claim, payload AS "payload!"
                           FROM read_log($1, $2, $3, $4, $5, $6)"#,
                        call.org.0,
                        call.session.as_str(),
                        call.known.incarnation.0,
                        call.known.seq.0,
                        call.limit,
                        call.known.id.as_ref().map(EventId::as_str),
                    )
                    .fetch_all(&mut *connection)
                    .await
                    .map_err(|error| refused(error, &call.session))?;
                    page!(rows, call.limit, PAGE_BYTES)
                })
            })
            .await
    }
}

/// Raised by `read_log` for another log than the one that is known.
const ANOTHER_LOG: &str = "OC004";

fn refused(error: sqlx::Error, session: &SessionId) -> StoreError {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    if code.as_deref() == Some(ANOTHER_LOG) {
        return StoreError::WentBack { session: session.clone() };
    }
    missing(error)
}

/// Larger pages than this are read one at a time.
const SHARED_LIMIT: i64 = 256;

/// A reading of a page that can be made together with others.
pub(crate) struct Read {
    org: OrgId,
    session: SessionId,
    /// Whose log it must be (incarnation 0: that of the session with this id now), and the event before the page.
    known: KnownLog,
    limit: i64,
}

/// The events of one call so far and the bytes of their payloads, or why it cannot be read.
type ReadPage = Result<(Vec<RecordedEvent>, usize), StoreError>;

impl Call for Read {
    type Answer = Page<RecordedEvent>;

    const MAY_REPEAT: bool = true;

    fn organisation(&self) -> Option<OrgId> {
        Some(self.org)
    }

    fn goes_with(&self, other: &Self) -> bool {
        let small = self.limit == other.limit && self.limit <= SHARED_LIMIT;
        small && self.org == other.org && self.session != other.session
    }

    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, Self::Answer> {
        Box::pin(async move {
            let (org, limit) =
                calls.first().map_or((OrgId::FIRST, 0), |call| (call.org, call.limit));
            let rows = sqlx::query!(
                r#"SELECT place AS "place!", seq AS "seq!", id AS "id!", kind AS "kind!",
                       version AS "version!", time_ms AS "time_ms!", claim, payload AS "payload!"
                   FROM read_logs($1, $2, $3, $4, $5, $6)"#,
                org.0,
                &calls.iter().map(|call| call.session.as_str().to_owned()).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.known.incarnation.0).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.known.seq.0).collect::<Vec<_>>(),
                limit,
                &calls
                    .iter()
                    .map(|call| call.known.id.clone().map(String::from))
                    .collect::<Vec<_>>() as &[Option<String>],
            )
            .fetch_all(connection)
            .await?;
            // They share the bytes of one page.
            let most = PAGE_BYTES / calls.len().max(1);
            let mut pages: Vec<Option<ReadPage>> = calls.iter().map(|_| None).collect();
            for row in rows {
                let page = usize::try_from(row.place - 1).ok().and_then(|at| pages.get_mut(at));
                let page =
                    page.ok_or_else(|| StoreError::Unreadable("a page of no call".into()))?;
                let size = row.payload.len();
                let event: Result<RecordedEvent, StoreError> = recorded!(row);
                match (page.get_or_insert_with(|| Ok((Vec::new(), 0))), event) {
                    (Ok((events, bytes)), Ok(event)) => {
                        events.push(event);
                        *bytes += size;
                    }
                    (Ok(_), Err(error)) => *page = Some(Err(error)),
                    (Err(_), _) => {}
                }
            }
            // One that cannot be read is no matter of the others: it goes alone, and fails alone.
            let page = |(events, bytes)| Page::of(events, limit, bytes, most);
            Ok(pages.into_iter().map(|read| read.and_then(Result::ok).map(page)).collect())
        })
    }
}
