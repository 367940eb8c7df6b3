use std::sync::Arc;

use bytes::Bytes;
use domain::RecordedEvent;
use serde::Serialize;
use serde_json::value::RawValue;
use signals::Delta;

/// What the followers of a session are sent: serialised once, shared by all of them.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    /// A durable event.
    Event(Arc<RecordedEvent>, Bytes),
    /// Live text.
    Delta(Arc<Delta>, Bytes),
    /// The session was deleted.
    Gone,
}

/// A durable event as clients see it.
#[derive(Serialize)]
struct EventView<'a> {
    seq: i64,
    id: &'a str,
    time: i64,
    r#type: &'static str,
    data: Box<RawValue>,
}

#[derive(Serialize)]
struct DeltaView<'a> {
    message: &'a str,
    part: &'a str,
    kind: signals::DeltaKind,
    offset: u64,
    text: &'a str,
}

/// `{seq, id, time, type, data}`, with the stored payload's own bytes as `data`.
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

impl Frame {
    pub(crate) fn event(event: RecordedEvent) -> Self {
        let kind = event.event.kind();
        let text = format!("id: {}\nevent: {kind}\ndata: {}\n\n", event.seq, data_of(&event));
        Self::Event(Arc::new(event), Bytes::from(text))
    }

    pub(crate) fn delta(delta: Delta) -> Self {
        let view = DeltaView {
            message: delta.message.as_str(),
            part: delta.part.as_str(),
            kind: delta.kind,
            offset: delta.offset,
            text: &delta.text,
        };
        let data = serde_json::to_string(&view).expect("strings and numbers");
        Self::Delta(Arc::new(delta), Bytes::from(format!("event: delta\ndata: {data}\n\n")))
    }
}
