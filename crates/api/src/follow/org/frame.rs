use std::sync::Arc;

use bytes::Bytes;

use crate::render::StockEvent;

/// An event for stock clients, serialised once.
#[derive(Debug, Clone)]
pub(crate) struct StockFrame {
    pub(crate) directory: Arc<str>,
    /// The frame for `/event`.
    pub(crate) local: Bytes,
    /// The frame for `/global/event`.
    pub(crate) global: Bytes,
}

pub(super) fn frame(directory: &Arc<str>, project: &str, event: &StockEvent) -> StockFrame {
    let global =
        serde_json::json!({ "directory": &**directory, "project": project, "payload": event });
    StockFrame {
        directory: directory.clone(),
        local: Bytes::from(format!("data: {event}\n\n")),
        global: Bytes::from(format!("data: {global}\n\n")),
    }
}
