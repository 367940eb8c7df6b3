//! Writes the log of a session that another service exported.

use domain::{
    EventId, Feature, LocationId, OrgId, SessionEvent, SessionId, SnapshotTree, Stamp, TimestampMs,
};
use tokio::sync::mpsc::Receiver;

use crate::connections::{Limit, bounded};
use crate::deletion::is_being_removed;
use crate::error::is_unique_violation;
use crate::inbox::{MAX_INBOX_BYTES, MAX_INBOX_INPUTS};
use crate::oracle::violations_in;
use crate::pool::{LONG_PATIENCE, Tx};
use crate::{Store, StoreError};

/// A session whose log follows in pages.
#[derive(Debug, Clone)]
pub struct NewImport {
    /// Its id.
    pub id: SessionId,
    /// Its Location, which its first event names too.
    pub location: LocationId,
    /// The number of its events.
    pub events: i64,
    /// The highest stamp of its ids.
    pub last_id: Stamp,
    /// The components that its attempts name: the SHA-256 and the bytes of each.
    pub components: Vec<(Vec<u8>, Vec<u8>)>,
    /// The files that it comes with, whose pack is stored.
    pub files: Option<ImportedFiles>,
    /// The gateway's time.
    pub now: TimestampMs,
}

/// The files that a session comes with.
#[derive(Debug, Clone)]
pub struct ImportedFiles {
    /// The newest files. A managed Location begins with them.
    pub tree: SnapshotTree,
    /// Their place among the snapshots under token 0, or a later one where others are. The log's own snapshots have lower
    /// ones.
    pub ordinal: i64,
    /// The blob with the content of every snapshot of the log.
    pub pack: Option<String>,
    /// The size of that blob, in bytes.
    pub bytes: i64,
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedEvent {
    /// Its id.
    pub id: EventId,
    /// The time when it was written first.
    pub time: TimestampMs,
    /// The event.
    pub event: SessionEvent,
}

/// The log, in order, in pages that fit into memory.
pub type EventPages = Receiver<Vec<ImportedEvent>>;

/// How the import of a session went. Unless it arrived, nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The session is there, and idle.
    Arrived,
    /// The organisation has a session with this id, or something else with an id of the log.
    Exists,
    /// A session with this id was deleted a moment ago, and rows of it are left. Ask again.
    BeingRemoved,
    /// The Location is managed and has files of its own.
    LocationUsed,
    /// The log cannot be that of a session; the reason.
    Refused(String),
}

impl Store {
    /// Imports a session in one transaction: its head, what its log names, and its log, which the projector folds as it
    /// folds every other. The oracle judges the result before the commit. So a reader sees all of a session that obeys
    /// the invariants, or nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the Location; [`StoreError::Feature`]; [`StoreError::Unreadable`] when fewer
    /// or more events come than `new` says: their reader has failed.
    pub async fn import(
        &self,
        org: OrgId,
        new: NewImport,
        pages: EventPages,
    ) -> Result<Arrival, StoreError> {
        for feature in Feature::ALL {
            self.require(*feature).await?;
        }
        let store = self.clone();
        // Not a part of the limit, which is for the database.
        let work = self.import_rests().begin(org, LONG_PATIENCE).await?;
        bounded(Limit::Check, async move {
            let _work = work;
            let mut tx = store.import_tx(org).await?;
            let written = write(&mut tx, org, new, pages).await;
            let arrival = match written {
                Ok(arrival) => arrival,
                Err(error) => refusal(error)?,
            };
            if arrival == Arrival::Arrived {
                tx.commit().await?;
            } else {
                tx.rollback().await?;
            }
            Ok(arrival)
        })
        .await
    }
}

async fn write(
    tx: &mut Tx,
    org: OrgId,
    new: NewImport,
    mut pages: EventPages,
) -> Result<Arrival, StoreError> {
    let NewImport { id, location, events, last_id, components, files, now } = new;
    sqlx::query!(
        "SELECT set_config('statement_timeout', $1, true) AS limits",
        Limit::CHECK_STATEMENT,
    )
    .fetch_one(&mut **tx)
    .await?;
    if is_being_removed(tx, org, &id).await? {
        return Ok(Arrival::BeingRemoved);
    }
    let (hashes, bytes): (Vec<_>, Vec<_>) = components.into_iter().unzip();
    let made = sqlx::query!(
        r#"SELECT outcome AS "outcome!", number
           FROM import_session($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"#,
        org.0,
        id.as_str(),
        location.as_str(),
        events,
        last_id.0,
        &hashes,
        &bytes,
        files.as_ref().map(|files| files.tree.as_str()),
        files.as_ref().map(|files| files.ordinal),
        files.as_ref().and_then(|files| files.pack.as_deref()),
        files.as_ref().map(|files| files.bytes),
        now,
    )
    .fetch_one(&mut **tx)
    .await?;
    let number = match (made.outcome.as_str(), made.number) {
        ("created", Some(number)) => number,
        ("exists", _) => return Ok(Arrival::Exists),
        ("used", _) => return Ok(Arrival::LocationUsed),
        _ => return Err(StoreError::NotFound),
    };
    let mut written = 0;
    while let Some(page) = pages.recv().await {
        written = append(tx, org, (&id, number), written, page).await?;
    }
    if written != events {
        return Err(StoreError::Unreadable(format!("an import of {events} events with {written}")));
    }
    sqlx::query!("SELECT idle_head($1, $2, $3)", org.0, id.as_str(), number)
        .execute(&mut **tx)
        .await?;
    if let Some(refusal) = refuse_large_inbox(tx, org, number).await? {
        return Ok(refusal);
    }
    let broken = violations_in(tx, org, true, &[id.to_string()]).await?;
    Ok(broken.into_iter().next().map_or(Arrival::Arrived, |first| {
        Arrival::Refused(format!("{} is broken: {}", first.invariant, first.found))
    }))
}

/// Refuses a log whose inbox is larger than one of ours can become.
async fn refuse_large_inbox(
    tx: &mut Tx,
    org: OrgId,
    number: i64,
) -> Result<Option<Arrival>, StoreError> {
    let inbox = sqlx::query!(
        r#"SELECT inputs AS "inputs!", bytes AS "bytes!" FROM inbox_size($1, $2)"#,
        org.0,
        number,
    )
    .fetch_one(&mut **tx)
    .await?;
    let fits = inbox.inputs <= MAX_INBOX_INPUTS && inbox.bytes <= MAX_INBOX_BYTES;
    Ok((!fits).then(|| {
        Arrival::Refused(format!(
            "its inbox has {} inputs of {} bytes, and at most {MAX_INBOX_INPUTS} inputs of {MAX_INBOX_BYTES} bytes may \
             wait: cancel some of them where it comes from, and export it again",
            inbox.inputs, inbox.bytes
        ))
    }))
}

/// Appends a page after the event `written`; the number of its last event.
async fn append(
    tx: &mut Tx,
    org: OrgId,
    (session, number): (&SessionId, i64),
    written: i64,
    page: Vec<ImportedEvent>,
) -> Result<i64, StoreError> {
    let count = page.len();
    let last = written + i64::try_from(count).unwrap_or(i64::MAX);
    // No drain of ours wrote them: claims and tokens are another service's.
    let none: Vec<Option<i64>> = vec![None; count];
    let ids: Vec<String> = page.iter().map(|event| event.id.to_string()).collect();
    let kinds: Vec<String> = page.iter().map(|event| event.event.kind().to_owned()).collect();
    let versions: Vec<i32> = page.iter().map(|event| event.event.version()).collect();
    let times: Vec<i64> = page.iter().map(|event| event.time).collect();
    let payloads: Vec<String> = page.iter().map(|event| event.event.payload()).collect();
    sqlx::query!(
        "SELECT append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        org.0,
        &vec![session.as_str().to_owned(); count],
        &vec![number; count],
        &(written + 1..=last).collect::<Vec<_>>(),
        &times,
        &none as &[Option<i64>],
        &ids,
        &kinds,
        &versions,
        &payloads,
        &none as &[Option<i64>],
    )
    .execute(&mut **tx)
    .await?;
    Ok(last)
}

/// Classes of errors that Postgres has for values which no event of ours holds: data, keys, functions.
const OF_DATA: [&str; 4] = ["22", "23", "2F", "OC"];

/// Tells what is wrong with the log from what is wrong with the database.
fn refusal(error: StoreError) -> Result<Arrival, StoreError> {
    let StoreError::Database(error) = error else { return Err(error) };
    if is_unique_violation(&error) {
        return Ok(Arrival::Exists);
    }
    let answer = error.as_database_error();
    let is_of_data = answer
        .and_then(|answer| answer.code())
        .is_some_and(|code| OF_DATA.iter().any(|class| code.starts_with(class)));
    match answer {
        Some(answer) if is_of_data => Ok(Arrival::Refused(answer.message().to_owned())),
        _ => Err(error.into()),
    }
}
