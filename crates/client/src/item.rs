use domain::{EventId, MessageId, PartId, Seq, SessionEvent, TimestampMs, UnknownEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ClientError;
use super::sse::Frame;
use crate::wire::RepositoryView;

/// A durable event as the service sends it: `{seq, id, time, type, data}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogEvent {
    /// Its number in the log.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// The time when it was written.
    pub time: TimestampMs,
    /// Its kind, such as `turn.started`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its payload, byte for byte.
    pub data: Box<RawValue>,
    /// The parsed payload; `None` for a kind from a newer service that this build does not know.
    #[serde(skip)]
    pub event: Option<SessionEvent>,
}

impl LogEvent {
    /// Parses the payload of the event.
    pub(crate) fn interpreted(self) -> Result<Self, ClientError> {
        let event = match SessionEvent::read(&self.kind, 1, self.data.get()) {
            Ok(known) => Some(known),
            Err(UnknownEvent::Kind { .. }) => None,
            Err(error @ UnknownEvent::Payload { .. }) => {
                let why = format!("event {}: {error}", self.seq);
                return Err(ClientError::Unreadable { what: "the log".into(), why });
            }
        };
        Ok(Self { event, ..self })
    }
}

/// The kind of text that a delta extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// Text of the answer.
    Text,
    /// Reasoning that the model shows.
    Reasoning,
    /// A kind of a newer service.
    #[serde(other)]
    Other,
}

/// A piece of an unsettled part. Not durable: pieces may be missing, or come twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The assistant message.
    pub message: MessageId,
    /// The part.
    pub part: PartId,
    /// The kind of the part.
    pub kind: DeltaKind,
    /// UTF-8 bytes of the part before `text`.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// An item of a log.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one at a time is on its way, and most are events")]
pub enum LogItem {
    /// A durable event.
    Event(LogEvent),
    /// Live text.
    Delta(Delta),
    /// How far the session's workspace is.
    Workspace(RepositoryView),
}

impl LogItem {
    /// Returns the item as one line of JSON, without a line feed: an event as the service sent it, a delta as
    /// `{"type":"delta", …}`.
    #[must_use]
    pub fn json_line(&self) -> String {
        #[derive(Serialize)]
        struct DeltaLine<'a> {
            #[serde(rename = "type")]
            tag: &'static str,
            message: &'a MessageId,
            part: &'a PartId,
            kind: DeltaKind,
            offset: u64,
            text: &'a str,
        }
        #[derive(Serialize)]
        struct WorkspaceLine<'a> {
            #[serde(rename = "type")]
            tag: &'static str,
            #[serde(flatten)]
            workspace: &'a RepositoryView,
        }
        let line = match self {
            Self::Workspace(workspace) => {
                serde_json::to_string(&WorkspaceLine { tag: "workspace", workspace })
            }
            Self::Event(event) => serde_json::to_string(event),
            Self::Delta(Delta { message, part, kind, offset, text }) => {
                let (tag, kind, offset) = ("delta", *kind, *offset);
                serde_json::to_string(&DeltaLine { tag, message, part, kind, offset, text })
            }
        };
        // Within JSON, a raw line feed can only be white space between tokens.
        line.expect("ids, numbers and strings serialise").replace('\n', " ")
    }
}

/// The text of a `resync`.
#[derive(Deserialize)]
struct Resync {
    after: Option<Seq>,
}

/// The meaning of one frame of the stream.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, taken apart at once")]
pub(crate) enum LogFrame {
    Item(LogItem),
    /// The gateway ends the stream on purpose (`resync`, `reconnect`). Open it again after the last event, or after an
    /// earlier number: then the log lacks events that were received.
    Reopen(String, Option<Seq>),
    /// The session was deleted.
    Gone,
    /// An unknown kind of frame from a newer service.
    Other,
}

impl LogFrame {
    pub(crate) fn read(frame: &Frame) -> Result<Self, ClientError> {
        let unreadable = |why: String| ClientError::Unreadable { what: "the log".into(), why };
        match frame.event.as_str() {
            "resync" | "reconnect" => {
                let why = format!("the service asked for a {}", frame.event);
                let named = serde_json::from_str::<Resync>(&frame.data).ok();
                return Ok(Self::Reopen(why, named.and_then(|named| named.after)));
            }
            "gone" => return Ok(Self::Gone),
            "delta" => {
                return serde_json::from_str(&frame.data)
                    .map(|delta| Self::Item(LogItem::Delta(delta)))
                    .map_err(|error| unreadable(format!("a delta: {error}")));
            }
            "workspace" => {
                return serde_json::from_str(&frame.data)
                    .map(|workspace| Self::Item(LogItem::Workspace(workspace)))
                    .map_err(|error| unreadable(format!("a workspace: {error}")));
            }
            _ => {}
        }
        let event: LogEvent = match serde_json::from_str(&frame.data) {
            Ok(event) => event,
            Err(error) if SessionEvent::KINDS.contains(&frame.event.as_str()) => {
                return Err(unreadable(format!("{}: {error}", frame.event)));
            }
            Err(_) => return Ok(Self::Other),
        };
        event.interpreted().map(|event| Self::Item(LogItem::Event(event)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &str, data: &str) -> Result<LogFrame, ClientError> {
        LogFrame::read(&Frame { event: event.into(), data: data.into() })
    }

    fn line(event: &str, data: &str) -> String {
        let LogFrame::Item(item) = read(event, data).expect("readable") else {
            panic!("no item: {event}");
        };
        item.json_line()
    }

    #[test]
    fn an_event_is_told_on_as_it_came() {
        let data = r#"{"seq":3,"id":"evt_1","time":5,"type":"drain.ended","data":{"outcome":"completed","more":1.50}}"#;
        assert_eq!(line("drain.ended", data), data);
        assert_eq!(line("", &data.replace(",\"more", ",\n\"more")).lines().count(), 1);
    }

    #[test]
    fn a_delta_says_that_it_is_one() {
        let data = r#"{"message":"msg_1","part":"prt_1","kind":"text","offset":2,"text":"a\nb"}"#;
        let expected = format!(r#"{{"type":"delta",{}"#, &data[1..]);
        assert_eq!(line("delta", data), expected);
    }

    #[test]
    fn a_workspace_says_that_it_is_one() {
        let data = r#"{"url":"u","commit":null,"branch":null,"state":"filling","stage":"fetching","bytes":2,"fault":null}"#;
        let expected = format!(r#"{{"type":"workspace",{}"#, &data[1..]);
        assert_eq!(line("workspace", data), expected);
    }

    #[test]
    fn what_is_newer_is_passed_on_or_skipped_but_never_guessed() {
        let newer = r#"{"seq":3,"id":"evt_1","time":5,"type":"moon.rose","data":{"full":true}}"#;
        assert_eq!(line("moon.rose", newer), newer);
        assert!(matches!(read("weather", r#"{"wind":3}"#), Ok(LogFrame::Other)));
        assert!(matches!(read("resync", ""), Ok(LogFrame::Reopen(_, None))));
        assert!(matches!(read("reconnect", "{}"), Ok(LogFrame::Reopen(_, None))));
        let back = r#"{"type":"resync","reason":"the log went back","after":0}"#;
        assert!(matches!(read("resync", back), Ok(LogFrame::Reopen(_, Some(Seq(0))))));
        assert!(matches!(read("gone", "{}"), Ok(LogFrame::Gone)));
        let broken = r#"{"seq":3,"id":"evt_1","time":5,"type":"drain.ended","data":{}}"#;
        assert!(matches!(read("drain.ended", broken), Err(ClientError::Unreadable { .. })));
        assert!(matches!(read("drain.ended", "{"), Err(ClientError::Unreadable { .. })));
    }
}
