use std::sync::Arc;

use bytes::Bytes;
use domain::{MessageId, Seq, SessionIncarnation, SessionRef};
use serde_json::Value;
use store::{Messages, Store, StoreError};

use crate::error::ApiError;
use crate::fold::{Change, Conversation};
use crate::follow::page::read_event;
use crate::follow::queue::Weighed;
use crate::render::StockEvent;
use crate::view::{SessionContext, all_as_stock, message};

/// The most bytes of an event's text that waits in a queue. The part of a larger one is read again.
const MAX_QUEUED_BYTES: usize = 64 * 1024;
/// The bytes of a place in a queue besides its text.
const PLACE_BYTES: usize = 512;
/// A frame is these, with the event's text between them.
const BEGIN: &str = "data: ";
const END: &str = "\n\n";

/// An event for stock clients, serialised once. It is shared, so that a place in a queue is small.
#[derive(Debug, Clone)]
pub(crate) struct StockFrame(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    source: FrameSource,
    content: Content,
}

/// The directory and the project of an event.
#[derive(Debug, Clone)]
pub(crate) struct FrameSource {
    /// `None` if nobody knows it any more: then listeners at all directories get the event.
    directory: Option<Arc<str>>,
    project: Option<Box<str>>,
}

impl FrameSource {
    pub(crate) fn new(directory: Arc<str>, project: &str) -> Self {
        Self { directory: Some(directory), project: Some(project.into()) }
    }

    /// Returns the source of an event whose session is gone and was not followed.
    pub(super) fn unknown() -> Self {
        Self { directory: None, project: None }
    }
}

#[derive(Debug)]
enum Content {
    /// The frames that `/event` sends.
    Whole(Bytes),
    /// An event with a large part of a message.
    Large(Box<LargePart>),
}

/// A part of a message that is too large to wait in a queue, by its place in the log.
#[derive(Debug)]
pub(super) struct LargePart {
    /// The event without its part.
    event: StockEvent,
    part: String,
    message: Option<MessageId>,
    place: EventPlace,
}

/// The place of an event in the log of a session, and what its messages need to be shown.
#[derive(Debug, Clone)]
pub(super) struct EventPlace {
    pub(super) session: SessionRef,
    pub(super) incarnation: SessionIncarnation,
    pub(super) seq: Seq,
    pub(super) context: SessionContext,
}

impl StockFrame {
    /// Makes the frame of an event that is in no log, or small.
    pub(crate) fn new(source: FrameSource, event: &StockEvent) -> Self {
        Self::with_whole_event(source, local(event))
    }

    /// Makes the frame of an event that one at `place` has caused.
    pub(super) fn from_log(source: FrameSource, mut event: StockEvent, place: &EventPlace) -> Self {
        let bytes = local(&event);
        if bytes.len() <= MAX_QUEUED_BYTES || !event["properties"]["part"]["id"].is_string() {
            return Self::with_whole_event(source, bytes);
        }
        let part = event["properties"]["part"].take();
        let id = |name: &str| part[name].as_str().unwrap_or_default().to_owned();
        let large = LargePart {
            part: id("id"),
            message: id("messageID").parse().ok(),
            event,
            place: place.clone(),
        };
        Self(Arc::new(Parts { source, content: Content::Large(large.into()) }))
    }

    fn with_whole_event(source: FrameSource, bytes: Bytes) -> Self {
        Self(Arc::new(Parts { source, content: Content::Whole(bytes) }))
    }

    /// Returns whether a listener at `directory` gets it.
    pub(crate) fn is_of(&self, directory: &str) -> bool {
        self.0.source.directory.as_deref().is_none_or(|own| own == directory)
    }

    /// Returns what `/event` sends, if that waits here. Otherwise [`read`](Self::read) has it.
    pub(crate) fn local(&self) -> Option<&Bytes> {
        match &self.0.content {
            Content::Whole(bytes) => Some(bytes),
            Content::Large(_) => None,
        }
    }

    /// Reads what `/event` sends. Returns `None` if its message is gone: an event says so.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn read(&self, store: &Store) -> Result<Option<Bytes>, ApiError> {
        match &self.0.content {
            Content::Whole(bytes) => Ok(Some(bytes.clone())),
            Content::Large(large) => large.read(store).await,
        }
    }

    /// Returns what `/global/event` sends for the same event.
    pub(crate) fn global(&self, local: &Bytes) -> Bytes {
        let event = local.strip_prefix(BEGIN.as_bytes()).unwrap_or(local);
        let event = event.strip_suffix(END.as_bytes()).unwrap_or(event);
        let FrameSource { directory, project } = &self.0.source;
        let mut frame = Vec::with_capacity(event.len() + 256);
        frame.extend_from_slice(b"data: {");
        for (name, value) in [("directory", directory.as_deref()), ("project", project.as_deref())]
        {
            if let Some(value) = value {
                frame.extend_from_slice(format!("\"{name}\":{},", Value::from(value)).as_bytes());
            }
        }
        frame.extend_from_slice(b"\"payload\":");
        frame.extend_from_slice(event);
        frame.extend_from_slice(b"}\n\n");
        Bytes::from(frame)
    }
}

impl Weighed for StockFrame {
    fn weight(&self) -> usize {
        PLACE_BYTES + self.local().map_or(0, Bytes::len)
    }
}

impl LargePart {
    /// Reads the part as it is now. What happened to it since then follows in later frames.
    async fn read(&self, store: &Store) -> Result<Option<Bytes>, ApiError> {
        let EventPlace { session, incarnation, seq, context } = &self.place;
        let row = match read_event(store, session, *incarnation, *seq).await {
            // A message that one event holds whole.
            Ok(event) => Conversation::default().apply(&event).into_iter().find_map(|change| {
                #[expect(clippy::wildcard_enum_match_arm, reason = "only these begin a message")]
                match change {
                    Change::Admitted(row) | Change::Message(row) => Some(row),
                    _ => None,
                }
            }),
            Err(StoreError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let row = match (row, &self.message) {
            (Some(row), _) => row,
            (None, None) => return Ok(None),
            (None, Some(id)) => {
                let which = Messages::One(id.clone());
                let found = store.transcript(session.org, session.session.clone(), which, 1).await;
                match found {
                    Ok(mut found) => match found.messages.pop() {
                        Some(row) => row.into(),
                        None => return Ok(None),
                    },
                    Err(StoreError::NotFound) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let views = all_as_stock(context, message(context, &row));
        let part = views.into_iter().flat_map(|view| view.parts).find(|part| part.id == self.part);
        Ok(part.map(|part| {
            let mut event = self.event.clone();
            event["properties"]["part"] = serde_json::to_value(part).unwrap_or_default();
            local(&event)
        }))
    }
}

fn local(event: &StockEvent) -> Bytes {
    Bytes::from(format!("{BEGIN}{event}{END}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_global_form_has_the_same_event() {
        let event = json!({ "type": "session.idle", "properties": { "sessionID": "ses_a" } });
        let global = |source| {
            let frame = StockFrame::new(source, &event);
            let bytes = frame.global(frame.local().expect("it is small"));
            let text = std::str::from_utf8(&bytes).expect("text").to_owned();
            let json = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n"));
            serde_json::from_str::<Value>(json.expect("a frame")).expect("JSON")
        };
        let known = FrameSource::new("/a \"b\"".into(), "prj_a");
        let expected = json!({ "directory": "/a \"b\"", "project": "prj_a", "payload": event });
        assert_eq!(global(known), expected);
        assert_eq!(global(FrameSource::unknown()), json!({ "payload": event }));
    }
}
