//! Keeps a log in an unnamed file until all of it is proved.

use std::io;

use domain::{EventId, SessionEvent, Stamp, TimestampMs};
use serde::{Deserialize, Serialize};
use store::ImportedEvent;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::mpsc::Sender;

use crate::act::transfer::{MAX_EVENTS, MAX_LOG_BYTES};
use crate::error::ApiError;
use crate::spools::SpoolRoom;

/// The most events, and about the most bytes, of a page.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Nothing was written further in the future, and ids from there do not move a session's own on.
const FUTURE_MS: TimestampMs = 24 * 60 * 60 * 1_000;
/// The beginning of the year 2000: no session is older.
const EARLIEST_MS: TimestampMs = 946_684_800_000;

/// The events of a log, in order. The file goes with this value.
pub(super) struct Spool {
    file: BufWriter<File>,
    room: SpoolRoom,
    now: TimestampMs,
    pub(super) events: i64,
    bytes: u64,
    /// The highest stamp of the events' ids.
    pub(super) last_id: Stamp,
}

/// An event as a line of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    id: EventId,
    time: TimestampMs,
    kind: String,
    version: i32,
    payload: String,
}

impl Spool {
    pub(super) async fn new(room: SpoolRoom, now: TimestampMs) -> Result<Self, ApiError> {
        let file = BufWriter::new(room.make_file().await?);
        Ok(Self { file, room, now, events: 0, bytes: 0, last_id: Stamp::at(now) })
    }

    /// Keeps the next event.
    ///
    /// # Errors
    /// 400 when it has a number or a time that no service writes; 413 beyond the bounds of a log; 429 or 503 without room on
    /// the disk.
    pub(super) async fn add(&mut self, event: &ImportedEvent) -> Result<(), ApiError> {
        self.events += 1;
        let times = EARLIEST_MS..=self.now + FUTURE_MS;
        if !times.contains(&event.time) {
            return Err(ApiError::Invalid(format!(
                "event {} has the time {}: an event is of the year 2000 or later, and of at most 24 hours from now; \
                 correct the clock of the service that exported it",
                self.events, event.time
            )));
        }
        if let Some(found) = event.event.out_of_bounds(&times) {
            return Err(ApiError::Invalid(format!(
                "event {} (`{}`): {found}",
                self.events,
                event.event.kind()
            )));
        }
        if let Some(stamp) = event.id.stamp(self.now)
            && stamp.millis() < self.now + FUTURE_MS
        {
            self.last_id = self.last_id.max(stamp);
        }
        let kept = Kept {
            id: event.id.clone(),
            time: event.time,
            kind: event.event.kind().to_owned(),
            version: event.event.version(),
            payload: event.event.payload(),
        };
        let mut line = serde_json::to_vec(&kept).map_err(ApiError::internal)?;
        line.push(b'\n');
        self.bytes += line.len() as u64;
        if self.events > MAX_EVENTS || self.bytes > MAX_LOG_BYTES {
            return Err(ApiError::TooLarge(format!(
                "a session of more than {MAX_EVENTS} events or {MAX_LOG_BYTES} bytes of them cannot be imported"
            )));
        }
        self.room.take_bytes(line.len() as u64).await?;
        self.file.write_all(&line).await.map_err(ApiError::internal)
    }

    /// Sends the events in pages, until all are sent or nobody takes them.
    ///
    /// # Errors
    /// When the file cannot be read. The receiver then gets fewer events than there are.
    pub(super) async fn send(self, pages: Sender<Vec<ImportedEvent>>) -> io::Result<()> {
        let Self { mut file, room: _room, .. } = self;
        file.flush().await?;
        let mut file = file.into_inner();
        file.rewind().await?;
        let mut lines = BufReader::new(file).lines();
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some(line) = lines.next_line().await? {
            tokio::task::coop::consume_budget().await;
            bytes += line.len();
            page.push(read(&line)?);
            if page.len() == PAGE || bytes >= PAGE_BYTES {
                bytes = 0;
                if pages.send(std::mem::take(&mut page)).await.is_err() {
                    return Ok(());
                }
            }
        }
        let _nobody_takes_it = pages.send(page).await;
        Ok(())
    }
}

fn read(line: &str) -> io::Result<ImportedEvent> {
    let Kept { id, time, kind, version, payload } = serde_json::from_str(line)?;
    let event = SessionEvent::read(&kind, version, &payload).map_err(io::Error::other)?;
    Ok(ImportedEvent { id, time, event })
}
