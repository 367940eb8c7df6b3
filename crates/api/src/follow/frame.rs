use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use domain::{RecordedEvent, Seq, SessionIncarnation};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use signals::{CallOutput, Delta, DeltaKind};

use super::queue::Weighed;
use crate::view::RepositoryView;

/// A frame for a session's followers, shared by all of them.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    /// A durable event.
    Event(Arc<Framed<RecordedEvent>>),
    /// A durable event that is too large to wait in a queue: it is read again.
    Large(Seq),
    /// Live text.
    Delta(Arc<Framed<Delta>>),
    /// Output of a call that runs.
    Output(Arc<Framed<CallOutput>>),
    /// How far the session's workspace is.
    Workspace(Arc<Framed<RepositoryView>>),
    /// The session was deleted.
    Gone,
    /// The log lacks events that were sent: the database came back without some commits.
    WentBack,
}

/// The most bytes of an event that waits in a queue.
pub(super) const MAX_QUEUED_BYTES: usize = 64 * 1024;
/// The bytes of a place in a queue besides its text.
const PLACE_BYTES: usize = 512;

impl Frame {
    /// Returns the frame of an event: the event, or its number if it is large.
    pub(super) fn of_event(event: RecordedEvent) -> Self {
        let bytes = event.event.payload_bytes();
        if bytes > MAX_QUEUED_BYTES {
            return Self::Large(event.seq);
        }
        Self::Event(Arc::new(Framed::weighing(bytes, event)))
    }

    pub(super) fn of_delta(delta: Delta) -> Self {
        Self::Delta(Arc::new(Framed::weighing(delta.text.len(), delta)))
    }

    pub(super) fn of_output(output: CallOutput) -> Self {
        Self::Output(Arc::new(Framed::weighing(output.text.len(), output)))
    }
}

impl Weighed for Frame {
    /// Counts the value and its text for clients.
    fn weight(&self) -> usize {
        let bytes = match self {
            Self::Event(event) => event.weight,
            Self::Delta(delta) => delta.weight,
            Self::Output(output) => output.weight,
            Self::Large(_) | Self::Workspace(_) | Self::Gone | Self::WentBack => 0,
        };
        PLACE_BYTES + 2 * bytes
    }
}

/// A value with its text for clients, which is rendered once, when the first client needs it.
#[derive(Debug)]
pub(crate) struct Framed<T> {
    what: T,
    /// The bytes of the value's own text, about.
    weight: usize,
    bytes: OnceLock<Bytes>,
}

impl<T> Framed<T> {
    /// Makes one that waits in no queue.
    pub(crate) fn new(what: T) -> Self {
        Self::weighing(0, what)
    }

    fn weighing(weight: usize, what: T) -> Self {
        Self { what, weight, bytes: OnceLock::new() }
    }
}

impl<T> Deref for Framed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

/// A durable event in the clients' shape.
#[derive(Serialize)]
struct EventView<'a> {
    seq: i64,
    id: &'a str,
    time: i64,
    r#type: &'static str,
    data: Box<RawValue>,
}

/// A frame that is no event of the log: it has no number, and a stream that is opened again does not repeat it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum LiveFrame<'a> {
    /// Text of a reply that is not settled. A piece may be missing, or come twice.
    Delta {
        message: &'a str,
        part: &'a str,
        kind: DeltaKind,
        /// The UTF-8 bytes of the part before `text`.
        offset: u64,
        text: &'a str,
    },
    /// The end of the output of a call that runs. It replaces the one before, and the call's result replaces it.
    Output {
        message: &'a str,
        part: &'a str,
        call: &'a str,
        /// The UTF-8 bytes of the output before `text`.
        omitted: u64,
        text: &'a str,
    },
    /// How far the session's workspace is.
    Workspace(&'a RepositoryView),
    /// The session was deleted. The stream ends.
    Gone { reason: &'a str },
    /// The stream ends. Open it again after the last event.
    Reconnect { reason: &'a str },
    /// The stream ends, since an event could not be sent, or since the log is not the one that was sent. Open it again
    /// after the number `after`.
    Resync { reason: &'a str, after: Seq },
}

impl LiveFrame<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Delta { .. } => "delta",
            Self::Output { .. } => "output",
            Self::Workspace(_) => "workspace",
            Self::Gone { .. } => "gone",
            Self::Reconnect { .. } => "reconnect",
            Self::Resync { .. } => "resync",
        }
    }

    /// Renders a server-sent event without an id.
    pub(super) fn bytes(&self) -> Bytes {
        let data = serde_json::to_string(self).expect("strings and numbers");
        Bytes::from(format!("event: {}\ndata: {data}\n\n", self.kind()))
    }
}

/// Renders `{seq, id, time, type, data}`. `data` is the stored payload, byte for byte.
pub(crate) fn data_of(event: &RecordedEvent) -> String {
    let payload = RawValue::from_string(event.event.payload());
    let view = EventView {
        seq: event.seq.0,
        id: event.id.as_str(),
        time: event.time,
        r#type: event.event.kind(),
        data: payload.expect("a payload is JSON"),
    };
    serde_json::to_string(&view).expect("strings and numbers")
}

impl Framed<RecordedEvent> {
    /// Renders a server-sent event. Its id belongs to this incarnation, not to a later session with the same id.
    pub(crate) fn bytes(&self, incarnation: SessionIncarnation) -> Bytes {
        let frame = || {
            let (seq, kind) = (self.seq, self.event.kind());
            Bytes::from(format!(
                "id: {seq}.{:x}\nevent: {kind}\ndata: {}\n\n",
                incarnation.0,
                data_of(self)
            ))
        };
        self.bytes.get_or_init(frame).clone()
    }
}

impl Framed<RepositoryView> {
    /// Renders a server-sent event.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| LiveFrame::Workspace(self).bytes()).clone()
    }
}

impl Framed<CallOutput> {
    /// Renders a server-sent event.
    pub(super) fn bytes(&self) -> Bytes {
        let frame = || LiveFrame::Output {
            message: self.message.as_str(),
            part: self.part.as_str(),
            call: self.call.as_str(),
            omitted: self.omitted,
            text: &self.text,
        };
        self.bytes.get_or_init(|| frame().bytes()).clone()
    }
}

impl Framed<Delta> {
    /// Renders a server-sent event.
    pub(super) fn bytes(&self) -> Bytes {
        let frame = || LiveFrame::Delta {
            message: self.message.as_str(),
            part: self.part.as_str(),
            kind: self.kind,
            offset: self.offset,
            text: &self.text,
        };
        self.bytes.get_or_init(|| frame().bytes()).clone()
    }
}
