use domain::{EventId, IdMint, MessageId, SessionId, Stamp, TimestampMs, ToolAsked};
use serde_json::{Value, json};

use crate::view::{PartView, is_permission, stock_ask};

/// An event in the stock shape.
pub(crate) type StockEvent = Value;

/// The stock events of one of ours, in order.
pub(super) struct StockEvents {
    session: String,
    time: TimestampMs,
    mint: IdMint,
    events: Vec<StockEvent>,
}

impl StockEvents {
    pub(super) fn at(session: String, time: TimestampMs) -> Self {
        Self { session, time, mint: IdMint::after(Stamp::default(), time), events: Vec::new() }
    }

    /// Adds an event of the session.
    pub(super) fn push(&mut self, kind: &str, mut properties: Value) {
        properties["sessionID"] = self.session.clone().into();
        let id = EventId::mint(&mut self.mint);
        self.events.push(json!({ "id": id, "type": kind, "properties": properties }));
    }

    /// Adds a toast, which belongs to no session.
    pub(super) fn toast(&mut self, message: &str) {
        self.events.push(toast(message, &mut self.mint));
    }

    pub(super) fn asked(&mut self, session: &SessionId, message: &MessageId, ask: &ToolAsked) {
        self.events.push(asked(session, message, ask, &mut self.mint));
    }

    pub(super) fn part(&mut self, part: &PartView) {
        let time = self.time;
        self.push("message.part.updated", json!({ "part": part, "time": time }));
    }

    pub(super) fn into_events(self) -> Vec<StockEvent> {
        self.events
    }
}

/// A notice that clients show for some seconds.
pub(crate) fn toast(message: &str, mint: &mut IdMint) -> StockEvent {
    let properties = json!({ "message": message, "variant": "warning" });
    json!({ "id": EventId::mint(mint), "type": "tui.toast.show", "properties": properties })
}

/// A failure of a session that is no event of its log.
pub(crate) fn failed(session: &SessionId, message: &str, mint: &mut IdMint) -> StockEvent {
    let error = json!({ "name": "UnknownError", "data": { "message": message } });
    let properties = json!({ "sessionID": session, "error": error });
    json!({ "id": EventId::mint(mint), "type": "session.error", "properties": properties })
}

/// A call that waits for somebody's answer.
pub(crate) fn asked(
    session: &SessionId,
    message: &MessageId,
    asked: &ToolAsked,
    mint: &mut IdMint,
) -> StockEvent {
    let kind = if is_permission(&asked.ask) { "permission.asked" } else { "question.asked" };
    let properties = stock_ask(session, message, asked);
    json!({ "id": EventId::mint(mint), "type": kind, "properties": properties })
}
