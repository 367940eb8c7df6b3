use std::sync::Arc;

use bytes::Bytes;

use crate::render::StockEvent;

/// An event for stock clients, serialised once. It is shared, so that a place in a queue is small.
#[derive(Debug, Clone)]
pub(crate) struct StockFrame(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    directory: Arc<str>,
    local: Bytes,
    global: Bytes,
}

impl StockFrame {
    pub(crate) fn new(directory: Arc<str>, local: Bytes, global: Bytes) -> Self {
        Self(Arc::new(Parts { directory, local, global }))
    }

    pub(crate) fn directory(&self) -> &str {
        &self.0.directory
    }

    /// Returns what `/event` sends.
    pub(crate) fn local(&self) -> &Bytes {
        &self.0.local
    }

    /// Returns what `/global/event` sends.
    pub(crate) fn global(&self) -> &Bytes {
        &self.0.global
    }
}

pub(super) fn frame(directory: &Arc<str>, project: &str, event: &StockEvent) -> StockFrame {
    let global =
        serde_json::json!({ "directory": &**directory, "project": project, "payload": event });
    StockFrame::new(
        directory.clone(),
        Bytes::from(format!("data: {event}\n\n")),
        Bytes::from(format!("data: {global}\n\n")),
    )
}
