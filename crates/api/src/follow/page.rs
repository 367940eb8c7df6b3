//! Pages of a log that wait for a slow reader.

use domain::{RecordedEvent, Seq, SessionIncarnation, SessionRef};
use store::{KnownLog, Store, StoreError};

/// The most events in one read.
const MAX_ROWS: i64 = 256;
/// The bytes of a page that wait for their reader.
const KEPT_BYTES: usize = 256 * 1024;

/// Reads a log page by page, and keeps little of it: a page of the store has megabytes, and its reader may be slow.
#[derive(Debug)]
pub(super) struct LogPages {
    rows: i64,
}

impl Default for LogPages {
    fn default() -> Self {
        Self { rows: MAX_ROWS }
    }
}

impl LogPages {
    /// Reads on after `known`. Returns at least one event, unless the log ends there.
    ///
    /// # Errors
    /// Those of [`Store::events_from`].
    pub(super) async fn read(
        &mut self,
        store: &Store,
        session: &SessionRef,
        known: KnownLog,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let (org, id) = (session.org, session.session.clone());
        let page = store.events_from(org, id, known, self.rows).await?;
        Ok(self.cut(page.items))
    }

    /// Keeps the beginning of a page, and asks for about as much next time.
    fn cut(&mut self, mut page: Vec<RecordedEvent>) -> Vec<RecordedEvent> {
        let mut bytes = 0;
        let fits = |event: &&RecordedEvent| {
            bytes += event.event.payload_bytes();
            bytes <= KEPT_BYTES
        };
        let kept = page.iter().take_while(fits).count().max(1);
        if kept < page.len() {
            page.truncate(kept);
            page.shrink_to_fit();
            self.rows = i64::try_from(kept).unwrap_or(MAX_ROWS);
        } else {
            self.rows = (2 * self.rows).min(MAX_ROWS);
        }
        page
    }
}

/// Reads one event again, whose frame was too large for a queue.
///
/// # Errors
/// [`StoreError::NotFound`] when the session is gone, or its log does not have the event any more.
pub(super) async fn read_event(
    store: &Store,
    session: &SessionRef,
    incarnation: SessionIncarnation,
    seq: Seq,
) -> Result<RecordedEvent, StoreError> {
    let (org, id) = (session.org, session.session.clone());
    let page = store.events_of(org, id, incarnation, Seq(seq.0 - 1), 1).await?;
    page.items.into_iter().find(|event| event.seq == seq).ok_or(StoreError::NotFound)
}
