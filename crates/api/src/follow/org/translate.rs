//! Translates our durable events into stock events, in the order that stock clients expect. Pure.

use std::collections::HashSet;

use domain::{
    CallId, CompactionEnded, CompactionReason, DrainOutcome, EventId, IdMint, MessageId, PartId,
    PromptPart, RecordedEvent, ReplyPart, Seq, SessionError, SessionEvent, SideOutcome, Stamp,
    TimestampMs, ToolCalled, ToolState, TurnOutcome, TurnSettled, TurnUsage,
};
use serde_json::{Value, json};
use signals::{Delta, DeltaKind};
use store::{CallRow, MessageRow, PartRow, SessionRow};

use crate::view::{
    DiffView, MessageInfo, PartBody, PartView, SessionContext, SessionView, SummaryView,
    all_as_stock, as_stock, called_row, error_view, message, settle,
};

/// An event in the stock shape.
pub(super) type StockEvent = Value;

/// The translator of one session's events.
pub(super) struct Translator {
    session: SessionRow,
    context: SessionContext,
    version: String,
    /// The assistant message that is being written.
    open: Option<MessageRow>,
    /// Its parts that clients know of.
    announced: HashSet<PartId>,
    busy: bool,
    /// A retry was announced, and its answer has not begun.
    retrying: bool,
    /// The reason of the running compaction.
    compacting: Option<CompactionReason>,
    /// The last failure sent, so that the drain's end does not repeat it.
    told: Option<SessionError>,
    /// Up to this number the log is a fork's copy, so nothing runs.
    copied: Seq,
    /// The summary of changed files.
    summary: SummaryView,
}

impl Translator {
    /// Starts with a session's current row and its `newest` messages.
    pub(super) fn new(
        session: SessionRow,
        context: SessionContext,
        version: String,
        newest: Vec<MessageRow>,
        summary: SummaryView,
    ) -> Self {
        let is_open = |row: &MessageRow| row.role == "assistant" && row.completed_ms.is_none();
        let open = newest.into_iter().rfind(is_open);
        Self {
            session,
            context,
            version,
            open,
            announced: HashSet::new(),
            busy: false,
            retrying: false,
            compacting: None,
            told: None,
            copied: Seq(0),
            summary,
        }
    }

    /// Returns the session as its translated events left it.
    pub(super) fn session(&self) -> &SessionRow {
        &self.session
    }

    /// Returns whether the event with this number is a fork's copy.
    pub(super) fn is_copy(&self, seq: Seq) -> bool {
        seq <= self.copied
    }

    pub(super) fn directory(&self) -> &str {
        &self.session.directory
    }

    pub(super) fn project(&self) -> &str {
        self.session.project.as_str()
    }

    /// Translates a durable event.
    pub(super) fn event(&mut self, event: &RecordedEvent) -> Vec<StockEvent> {
        let mut out = Out::at(self.context.session.to_string(), event.time);
        match &event.event {
            SessionEvent::SessionCreated(_) => {
                let info = self.session_view();
                out.push("session.created", json!({ "info": info }));
            }
            SessionEvent::PromptAdmitted(prompt) => {
                let mut row = user_row(event, &prompt.message, &prompt.parts);
                row.synthetic.clone_from(&prompt.synthetic);
                self.show_all(&mut out, &row);
            }
            SessionEvent::InputCancelled(cancelled) => {
                out.push("message.removed", json!({ "messageID": cancelled.message }));
            }
            SessionEvent::PromptPromoted(prompt) => {
                let copied = self.is_copy(event.seq);
                self.context.agent.clone_from(&prompt.agent);
                self.context.model = prompt.model.clone();
                self.session.agent.clone_from(&prompt.agent);
                self.session.model = Some(prompt.model.clone());
                let mut row = user_row(event, &prompt.message, &prompt.parts);
                row.created_ms = prompt.admitted;
                row.synthetic.clone_from(&prompt.synthetic);
                self.show_all(&mut out, &row);
                self.touch(&mut out, event.time);
                if !copied {
                    self.busy(&mut out);
                }
            }
            SessionEvent::TurnStarted(turn) => {
                if !self.is_copy(event.seq) {
                    self.busy(&mut out);
                }
                self.announced.clear();
                let row = MessageRow {
                    id: turn.message.clone(),
                    role: "assistant".into(),
                    parent: Some(turn.parent.clone()),
                    turn: Some(turn.turn.clone()),
                    agent: Some(turn.agent.clone()),
                    model: Some(turn.model.clone()),
                    ..blank(event, &turn.message)
                };
                self.show_all(&mut out, &row);
                self.open = Some(row);
                if let Some(notice) = turn.notice.as_ref().filter(|_| !self.is_copy(event.seq)) {
                    out.toast(notice);
                }
            }
            SessionEvent::RetryScheduled(retry) => {
                let status = json!({
                    "type": "retry",
                    "attempt": retry.ordinal - 1,
                    "message": retry.error.message,
                    "next": retry.at,
                });
                out.push("session.status", json!({ "status": status }));
                self.retrying = true;
            }
            SessionEvent::ToolCalled(called) => self.called(&mut out, called),
            SessionEvent::ToolStarted(started) => {
                self.update_call(&mut out, &started.call, |call| call.state = "started".into());
            }
            SessionEvent::ToolSettled(settled) => {
                self.update_call(&mut out, &settled.call, |call| settle(call, settled));
            }
            SessionEvent::TurnReplied(replied) => {
                self.replied(&mut out, &replied.parts, &replied.finish);
            }
            SessionEvent::TurnSettled(settled) => self.settled(&mut out, settled),
            SessionEvent::NoticeRecorded(notice) => {
                let part = PartId::PREFIX.to_owned() + &notice.message.as_str()[3..];
                let parts = part.parse().map(|id| text_part(id, "text", notice.text.clone()));
                let row = MessageRow {
                    role: "notice".into(),
                    parts: parts.into_iter().collect(),
                    ..blank(event, &notice.message)
                };
                self.show_all(&mut out, &row);
            }
            SessionEvent::DrainEnded(end) => {
                let untold = end.error.as_ref().filter(|error| self.told.as_ref() != Some(*error));
                if let (DrainOutcome::Failed, Some(error)) = (end.outcome, untold) {
                    let error = error_view(error, &self.context.model.provider);
                    out.push("session.error", json!({ "error": error }));
                }
                self.told = None;
                (self.busy, self.retrying) = (false, false);
                self.touch(&mut out, event.time);
                out.push("session.status", json!({ "status": { "type": "idle" } }));
                out.push("session.idle", json!({}));
            }
            SessionEvent::SessionRenamed(renamed) => {
                self.session.title.clone_from(&renamed.title);
                self.touch(&mut out, event.time);
            }
            SessionEvent::CompactionStarted(started) => {
                if !self.is_copy(event.seq) {
                    self.busy(&mut out);
                }
                self.session.compacting_ms = Some(event.time);
                self.compacting = Some(started.reason);
                self.touch(&mut out, event.time);
            }
            SessionEvent::CompactionEnded(ended) => self.compacted(&mut out, event, ended),
            SessionEvent::TitleEnded(ended) => {
                self.use_up(ended.usage);
                self.touch(&mut out, event.time);
            }
            SessionEvent::SessionForked(forked) => {
                self.copied = Seq(event.seq.0 + forked.copied);
            }
            SessionEvent::SessionMoved(moved) => {
                self.session.at.location = moved.to.clone();
                self.session.project = moved.project.clone();
                self.session.directory.clone_from(&moved.directory);
                self.context.directory.clone_from(&moved.directory);
                self.touch(&mut out, event.time);
            }
            SessionEvent::RevertStaged(staged) => {
                self.session.revert = Some(staged.clone());
                self.touch(&mut out, event.time);
            }
            SessionEvent::RevertCleared(_) | SessionEvent::RevertCommitted(_) => {
                self.session.revert = None;
                self.touch(&mut out, event.time);
            }
            // Clients get a checkpoint's text as deltas. The others have no stock event.
            SessionEvent::TextCheckpointed(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::EpochStarted(_)
            | SessionEvent::ContextUpdated(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::WorkspaceSnapshotted(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_) => {}
        }
        out.events
    }

    /// Announces the session's current changes of files.
    pub(super) fn changed(&mut self, diff: &DiffView, time: TimestampMs) -> Vec<StockEvent> {
        let mut out = Out::at(self.context.session.to_string(), time);
        self.summary = diff.summary();
        out.push("session.diff", json!({ "diff": diff.files }));
        self.touch(&mut out, time);
        out.events
    }

    /// Announces that these messages were removed.
    pub(super) fn removed(&self, messages: &[MessageId], time: TimestampMs) -> Vec<StockEvent> {
        let mut out = Out::at(self.context.session.to_string(), time);
        for message in messages {
            out.push("message.removed", json!({ "messageID": message }));
        }
        out.events
    }

    /// Announces that the session was deleted.
    pub(super) fn deleted(&self, now: TimestampMs) -> Vec<StockEvent> {
        let mut out = Out::at(self.context.session.to_string(), now);
        out.push("session.deleted", json!({ "info": self.session_view() }));
        out.events
    }

    /// Translates live text.
    pub(super) fn delta(&mut self, delta: &Delta, now: TimestampMs) -> Vec<StockEvent> {
        let mut out = Out::at(self.context.session.to_string(), now);
        if self.open.as_ref().is_none_or(|open| open.id != delta.message) {
            return out.events; // its turn has ended, or its start was not seen
        }
        self.answering(&mut out);
        let Some(open) = self.open.as_mut() else { return out.events };
        if self.announced.insert(delta.part.clone()) {
            let kind = match delta.kind {
                DeltaKind::Text => "text",
                DeltaKind::Reasoning => "reasoning",
            };
            let part = text_part(delta.part.clone(), kind, String::new());
            let alone = MessageRow { parts: vec![part.clone()], ..open.clone() };
            if !open.parts.iter().any(|known| known.id == part.id) {
                open.parts.push(part);
            }
            let view = as_stock(&self.context, message(&self.context, &alone));
            for part in view.parts.iter().filter(|part| part.id == delta.part.as_str()) {
                out.part(part);
            }
        }
        out.push(
            "message.part.delta",
            json!({
                "messageID": delta.message,
                "partID": delta.part,
                "field": "text",
                "delta": delta.text,
            }),
        );
        out.events
    }

    fn replied(&mut self, out: &mut Out, parts: &[ReplyPart], finish: &str) {
        self.answering(out);
        let Some(open) = self.open.as_mut() else { return };
        open.finish = Some(finish.to_owned());
        let mut known = std::mem::take(&mut open.parts);
        let mut hosted = HashSet::new();
        for part in parts {
            match part {
                ReplyPart::Text { id, text, .. } => {
                    open.parts.push(text_part(id.clone(), "text", text.clone()));
                }
                ReplyPart::Reasoning { id, text, .. } => {
                    open.parts.push(text_part(id.clone(), "reasoning", text.clone()));
                }
                ReplyPart::ToolCall { call } => {
                    let place = known
                        .iter()
                        .position(|part| part.call.as_ref().is_some_and(|known| known.id == *call));
                    open.parts.extend(place.map(|place| known.swap_remove(place)));
                }
                ReplyPart::HostedCall { id, call, name, input, .. } => {
                    let call = CallRow::hosted(id, open.created_ms, call, name, input).ok();
                    hosted.insert(id.to_string());
                    open.parts.push(PartRow {
                        id: id.clone(),
                        kind: "tool".into(),
                        text: None,
                        call,
                    });
                }
                ReplyPart::HostedResult { call, output, is_error, .. } => {
                    let mut calls = open.parts.iter_mut().filter_map(|part| part.call.as_mut());
                    calls.find_map(|row| row.told(call, output, *is_error).then_some(()));
                }
            }
        }
        let view = as_stock(&self.context, message(&self.context, open));
        for part in &view.parts {
            let is_said = matches!(part.body, PartBody::Text { .. } | PartBody::Reasoning { .. });
            if is_said || hosted.contains(&part.id) {
                out.part(part);
            }
        }
    }

    fn settled(&mut self, out: &mut Out, settled: &TurnSettled) {
        self.use_up(settled.usage);
        let Some(mut open) = self.open.take().filter(|open| open.id == settled.message) else {
            return;
        };
        if matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
            out.push("message.removed", json!({ "messageID": settled.message }));
            return;
        }
        open.completed_ms = Some(out.time);
        open.usage = settled.usage;
        open.error.clone_from(&settled.error);
        if settled.outcome == TurnOutcome::Interrupted && open.finish.is_none() {
            open.finish = Some("interrupted".into());
        }
        let view = as_stock(&self.context, message(&self.context, &open));
        let finish = view.parts.last().filter(|p| matches!(p.body, PartBody::StepFinish { .. }));
        if let Some(finish) = finish {
            out.part(finish);
        }
        if let MessageInfo::Assistant { error: Some(error), .. } = &view.info {
            out.push("session.error", json!({ "error": error }));
            self.told.clone_from(&settled.error);
        }
        out.push("message.updated", json!({ "info": view.info }));
        let time = out.time;
        self.touch(out, time);
    }

    fn compacted(&mut self, out: &mut Out, event: &RecordedEvent, ended: &CompactionEnded) {
        self.use_up(ended.usage);
        self.session.compacting_ms = None;
        let reason = self.compacting.take();
        if ended.outcome == SideOutcome::Completed {
            let part = PartId::PREFIX.to_owned() + &ended.message.as_str()[3..];
            let text = ended.checkpoint.clone().unwrap_or_default();
            let manual = reason.is_none_or(|reason| reason == CompactionReason::Manual);
            let row = MessageRow {
                role: "checkpoint".into(),
                finish: Some(if manual { "manual" } else { "auto" }.to_owned()),
                usage: ended.usage,
                parts: part.parse().map(|id| text_part(id, "text", text)).into_iter().collect(),
                ..blank(event, &ended.message)
            };
            self.show_all(out, &row);
            out.push("session.compacted", json!({}));
        }
        self.touch(out, event.time);
    }

    /// Adds up usage. Clients get it with the session's next update.
    fn use_up(&mut self, used: TurnUsage) {
        let usage = &mut self.session.usage;
        usage.input += used.input;
        usage.output += used.output;
        usage.reasoning += used.reasoning;
        usage.cache_read += used.cache_read;
        usage.cache_write += used.cache_write;
        usage.cost += used.cost;
    }

    /// Ends the announced retry: the client sees it until its answer begins, not only until it was sent.
    fn answering(&mut self, out: &mut Out) {
        if std::mem::take(&mut self.retrying) {
            out.push("session.status", json!({ "status": { "type": "busy" } }));
        }
    }

    fn called(&mut self, out: &mut Out, called: &ToolCalled) {
        self.answering(out);
        let Some(open) = self.open.as_mut().filter(|open| open.id == called.message) else {
            return;
        };
        let intent = &called.intent;
        let call = CallRow { state: "intended".into(), ..called_row(called, out.time) };
        open.parts.retain(|part| part.id != intent.part);
        let id = intent.part.clone();
        open.parts.push(PartRow { id, kind: "tool".into(), text: None, call: Some(call) });
        self.update_call(out, &intent.call, |_| {});
        match called.state {
            ToolState::Intended => {}
            ToolState::Started | ToolState::Settled => {
                self.update_call(out, &intent.call, |call| call.state = "started".into());
            }
        }
    }

    fn update_call(&mut self, out: &mut Out, id: &CallId, change: impl FnOnce(&mut CallRow)) {
        let Some(open) = self.open.as_mut() else { return };
        let is_it = |part: &&mut PartRow| part.call.as_ref().is_some_and(|call| call.id == *id);
        let Some(part) = open.parts.iter_mut().find(is_it) else { return };
        if let Some(call) = &mut part.call {
            change(call);
        }
        let id = part.id.to_string();
        let view = as_stock(&self.context, message(&self.context, open));
        for part in view.parts.iter().filter(|part| part.id == id) {
            out.part(part);
        }
    }

    fn show_all(&self, out: &mut Out, row: &MessageRow) {
        for view in all_as_stock(&self.context, message(&self.context, row)) {
            out.push("message.updated", json!({ "info": view.info }));
            for part in &view.parts {
                out.part(part);
            }
        }
    }

    fn busy(&mut self, out: &mut Out) {
        if !self.busy {
            self.busy = true;
            out.push("session.status", json!({ "status": { "type": "busy" } }));
        }
    }

    fn touch(&mut self, out: &mut Out, time: TimestampMs) {
        self.session.updated_ms = self.session.updated_ms.max(time);
        let info = self.session_view();
        out.push("session.updated", json!({ "info": info }));
    }

    fn session_view(&self) -> SessionView {
        SessionView::stock(self.session.clone(), &self.version).summed(self.summary)
    }
}

/// The stock events for one of ours.
struct Out {
    session: String,
    time: TimestampMs,
    mint: IdMint,
    events: Vec<StockEvent>,
}

impl Out {
    fn at(session: String, time: TimestampMs) -> Self {
        Self { session, time, mint: IdMint::after(Stamp::default(), time), events: Vec::new() }
    }

    fn push(&mut self, kind: &str, mut properties: Value) {
        properties["sessionID"] = self.session.clone().into();
        let id = EventId::mint(&mut self.mint);
        self.events.push(json!({ "id": id, "type": kind, "properties": properties }));
    }

    /// Adds a toast, which belongs to no session.
    fn toast(&mut self, message: &str) {
        self.events.push(toast(message, &mut self.mint));
    }

    fn part(&mut self, part: &PartView) {
        let time = self.time;
        self.push("message.part.updated", json!({ "part": part, "time": time }));
    }
}

/// A notice that clients show for some seconds.
pub(super) fn toast(message: &str, mint: &mut IdMint) -> StockEvent {
    let properties = json!({ "message": message, "variant": "warning" });
    json!({ "id": EventId::mint(mint), "type": "tui.toast.show", "properties": properties })
}

fn text_part(id: PartId, kind: &str, text: String) -> PartRow {
    PartRow { id, kind: kind.into(), text: Some(text), call: None }
}

fn blank(event: &RecordedEvent, id: &domain::MessageId) -> MessageRow {
    MessageRow {
        id: id.clone(),
        seq: event.seq,
        role: "user".into(),
        parent: None,
        turn: None,
        agent: None,
        model: None,
        created_ms: event.time,
        completed_ms: None,
        finish: None,
        error: None,
        usage: domain::TurnUsage::default(),
        synthetic: None,
        parts: Vec::new(),
    }
}

fn user_row(event: &RecordedEvent, id: &domain::MessageId, parts: &[PromptPart]) -> MessageRow {
    let part = |part: &PromptPart| match part {
        PromptPart::Text { id, text } => text_part(id.clone(), "text", text.clone()),
    };
    MessageRow { parts: parts.iter().map(part).collect(), ..blank(event, id) }
}
