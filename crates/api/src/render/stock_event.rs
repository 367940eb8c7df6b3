use domain::{EventId, IdMint, MessageId, SessionId, Stamp, TimestampMs, ToolAsked, words};
use serde_json::{Value, json};

use crate::view::{PartView, is_permission, stock_ask};

/// An event in the stock shape.
pub(crate) type StockEvent = Value;

words! {
    /// The type of an event that stock clients are sent. The document of their dialect has each.
    pub(crate) enum StockKind {
        /// A stream begins.
        ServerConnected = "server.connected",
        /// Nothing happened for some seconds.
        ServerHeartbeat = "server.heartbeat",
        /// A session is new.
        SessionCreated = "session.created",
        /// A session has changed.
        SessionUpdated = "session.updated",
        /// A session was deleted.
        SessionDeleted = "session.deleted",
        /// A session is busy, waits for a retry, or is idle.
        SessionStatus = "session.status",
        /// A session has become idle.
        SessionIdle = "session.idle",
        /// A turn or a request has failed.
        SessionError = "session.error",
        /// The changes of files.
        SessionDiff = "session.diff",
        /// A summary replaces the conversation.
        SessionCompacted = "session.compacted",
        /// A message is new, or has changed.
        MessageUpdated = "message.updated",
        /// A message is gone.
        MessageRemoved = "message.removed",
        /// A part of a message is new, or has changed.
        PartUpdated = "message.part.updated",
        /// More text of a part.
        PartDelta = "message.part.delta",
        /// The list of what is to do.
        TodoUpdated = "todo.updated",
        /// A call waits for a permission.
        PermissionAsked = "permission.asked",
        /// Somebody has answered it.
        PermissionReplied = "permission.replied",
        /// The model asks people.
        QuestionAsked = "question.asked",
        /// Somebody has answered.
        QuestionReplied = "question.replied",
        /// Nobody answers.
        QuestionRejected = "question.rejected",
        /// A notice for the screen.
        ToastShow = "tui.toast.show",
    }
}

/// Makes an event.
pub(crate) fn event(kind: StockKind, properties: &Value, mint: &mut IdMint) -> StockEvent {
    json!({ "id": EventId::mint(mint), "type": kind, "properties": properties })
}

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
    pub(super) fn push(&mut self, kind: StockKind, mut properties: Value) {
        properties["sessionID"] = self.session.clone().into();
        self.events.push(event(kind, &properties, &mut self.mint));
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
        self.push(StockKind::PartUpdated, json!({ "part": part, "time": time }));
    }

    pub(super) fn into_events(self) -> Vec<StockEvent> {
        self.events
    }
}

/// A notice that clients show for some seconds.
pub(crate) fn toast(message: &str, mint: &mut IdMint) -> StockEvent {
    let properties = json!({ "message": message, "variant": "warning" });
    event(StockKind::ToastShow, &properties, mint)
}

/// A failure of a session that is no event of its log.
pub(crate) fn failed(session: &SessionId, message: &str, mint: &mut IdMint) -> StockEvent {
    let error = json!({ "name": "UnknownError", "data": { "message": message } });
    let properties = json!({ "sessionID": session, "error": error });
    event(StockKind::SessionError, &properties, mint)
}

/// A call that waits for somebody's answer.
pub(crate) fn asked(
    session: &SessionId,
    message: &MessageId,
    asked: &ToolAsked,
    mint: &mut IdMint,
) -> StockEvent {
    let is_permission = is_permission(&asked.ask);
    let kind = if is_permission { StockKind::PermissionAsked } else { StockKind::QuestionAsked };
    event(kind, &stock_ask(session, message, asked), mint)
}
