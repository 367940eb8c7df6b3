//! Shows changes as stock events, in the order that stock clients expect.

use std::borrow::Cow;

use domain::{
    Answer, AskId, Finish, ModelRef, PartId, PartKind, SessionId, TimestampMs, ToolState,
    TurnOutcome,
};
use serde_json::json;
use signals::{CallOutput, DeltaKind};
use store::{CallRow, MessageRow, PartRow};

use super::stock_event::{StockEvent, StockEvents, StockKind};
use crate::fold::{Change, LiveText, SessionState, Status};
use crate::view::{
    DiffView, MessageInfo, PartBody, SessionContext, SessionView, SummaryView, all_as_stock,
    as_stock, error_view, message, part, part_as_stock, todos_of,
};

/// Facts of a session's stock events that are not in its log.
#[derive(Debug)]
pub(crate) struct StockFacts {
    /// The version of the service.
    pub(crate) version: String,
    /// The model of sessions that have used none.
    pub(crate) default_model: ModelRef,
    /// The summary of changed files.
    pub(crate) summary: SummaryView,
}

/// When the changes happened that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Just now, in this session.
    Live,
    /// Earlier, in the session whose log this one has copied: what it left behind is shown, and nothing is announced again, such as
    /// an error or an ask.
    Copied,
}

/// Shows changes made at `time`, after which the session is in this state. [`Change::Files`] and [`Change::Reverted`]
/// show nothing: what they change has to be read.
pub(crate) fn events(
    facts: &StockFacts,
    state: &SessionState,
    changes: &[Change],
    time: TimestampMs,
    occasion: Occasion,
) -> Vec<StockEvent> {
    let mut renderer = Renderer { occasion, ..Renderer::new(facts, state, time) };
    for change in changes.iter().filter(|change| occasion == Occasion::Live || is_lasting(change)) {
        renderer.show(change);
    }
    renderer.out.into_events()
}

/// Returns whether a change leaves something behind, rather than to tell that something happens.
fn is_lasting(change: &Change) -> bool {
    match change {
        Change::Created
        | Change::Session
        | Change::Admitted(_)
        | Change::Message(_)
        | Change::Call(..)
        | Change::Parts(..)
        | Change::Settled(..)
        | Change::Removed(_)
        | Change::Checkpoint(_)
        | Change::Reverted(_)
        | Change::Files => true,
        Change::Asked(..)
        | Change::Answered(..)
        | Change::Text(_)
        | Change::Output(..)
        | Change::Status(_)
        | Change::Failed(_)
        | Change::Notice(_)
        | Change::Compacted => false,
    }
}

/// Shows the session's current changes of files.
pub(crate) fn files(
    facts: &StockFacts,
    state: &SessionState,
    diff: &DiffView,
    time: TimestampMs,
) -> Vec<StockEvent> {
    let mut renderer = Renderer::new(facts, state, time);
    renderer.out.push(StockKind::SessionDiff, json!({ "diff": diff.files }));
    renderer.session(StockKind::SessionUpdated);
    renderer.out.into_events()
}

/// An answer that changed files, and the prompt that it answers.
pub(crate) struct FilesOfAnswer {
    pub(crate) answer: MessageRow,
    pub(crate) prompt: MessageRow,
    /// The snapshot of the files before the answer.
    pub(crate) tree: String,
    /// The paths of the files that it changed.
    pub(crate) paths: Vec<String>,
    /// The changes of all answers to the prompt.
    pub(crate) diff: DiffView,
}

/// Shows which files an answer changed, and all that the work on its prompt changed.
pub(crate) fn changed_files(
    facts: &StockFacts,
    state: &SessionState,
    files: FilesOfAnswer,
    time: TimestampMs,
) -> Vec<StockEvent> {
    let FilesOfAnswer { answer, prompt, tree, paths, diff } = files;
    let mut renderer = Renderer::new(facts, state, time);
    let context = &renderer.context;
    let answer = message(context, &answer).with_patch(tree, &paths, &context.directory);
    let prompt = as_stock(context, message(context, &prompt).with_diff(diff));
    if let Some(patch) = answer.parts.last() {
        renderer.out.part(patch);
    }
    renderer.out.push(StockKind::MessageUpdated, json!({ "info": prompt.info }));
    renderer.out.into_events()
}

/// Shows that the session was deleted.
pub(crate) fn deleted(
    facts: &StockFacts,
    state: &SessionState,
    now: TimestampMs,
) -> Vec<StockEvent> {
    let mut renderer = Renderer::new(facts, state, now);
    renderer.session(StockKind::SessionDeleted);
    renderer.out.into_events()
}

/// Shows that a session was deleted of which only the place is known.
pub(crate) fn deleted_unseen(
    session: &SessionId,
    project: &str,
    directory: &str,
    version: &str,
    now: TimestampMs,
) -> StockEvent {
    let mut out = StockEvents::at(session.to_string(), now);
    let info = json!({
        "id": session,
        "slug": session,
        "projectID": project,
        "directory": directory,
        "title": "",
        "version": version,
        "time": { "created": now, "updated": now },
    });
    out.push(StockKind::SessionDeleted, json!({ "info": info }));
    out.into_events().swap_remove(0)
}

struct Renderer<'a> {
    facts: &'a StockFacts,
    state: &'a SessionState,
    context: SessionContext,
    out: StockEvents,
    occasion: Occasion,
}

impl<'a> Renderer<'a> {
    fn new(facts: &'a StockFacts, state: &'a SessionState, time: TimestampMs) -> Self {
        let context = SessionContext::of(state.session(), || facts.default_model.clone());
        let out = StockEvents::at(context.session.to_string(), time);
        Self { facts, state, context, out, occasion: Occasion::Live }
    }

    fn show(&mut self, change: &Change) {
        match change {
            Change::Created => self.session(StockKind::SessionCreated),
            Change::Session => self.session(StockKind::SessionUpdated),
            Change::Admitted(row) | Change::Message(row) => self.message(row),
            Change::Call(row, id) => self.call(row, id),
            Change::Asked(message, asked) => {
                let session = &self.state.session().at.session;
                self.out.asked(session, message, asked);
            }
            Change::Answered(ask, answer) => self.answered(ask, answer.as_ref()),
            Change::Parts(row, ids) => {
                for part in ids.iter().filter_map(|id| row.parts.iter().find(|p| p.id == *id)) {
                    self.part(row, part);
                }
            }
            Change::Text(text) => self.text(text),
            Change::Output(row, output) => self.output(row, output),
            Change::Settled(row, outcome) => self.settled(row, *outcome),
            Change::Removed(id) => {
                self.out.push(StockKind::MessageRemoved, json!({ "messageID": id }))
            }
            Change::Status(status) => self.status(status),
            Change::Failed(error) => {
                let error = error_view(error, &self.context.model.provider);
                self.out.push(StockKind::SessionError, json!({ "error": error }));
            }
            Change::Notice(notice) => self.out.toast(notice),
            Change::Compacted => self.out.push(StockKind::SessionCompacted, json!({})),
            // Clients have a checkpoint's text from deltas. The others take a read.
            Change::Checkpoint(_) | Change::Reverted(_) | Change::Files => {}
        }
    }

    fn session(&mut self, kind: StockKind) {
        let view = SessionView::stock(self.state.session().clone(), &self.facts.version);
        self.out.push(kind, json!({ "info": view.summed(self.facts.summary) }));
    }

    fn message(&mut self, row: &MessageRow) {
        for view in all_as_stock(&self.context, message(&self.context, row)) {
            self.out.push(StockKind::MessageUpdated, json!({ "info": view.info }));
            for part in &view.parts {
                self.out.part(part);
            }
        }
    }

    fn part(&mut self, row: &MessageRow, shown: &PartRow) {
        if let Some(view) = part(&self.context, row, shown) {
            self.out.part(&part_as_stock(view));
        }
        let call = shown.call.as_ref();
        let todos = call.and_then(|call| todos_of(&call.tool, call.structured.as_deref()));
        if let Some(todos) = todos {
            self.out.push(StockKind::TodoUpdated, json!({ "todos": todos }));
        }
    }

    /// Shows a new call: first as requested, then as started if it is.
    fn call(&mut self, row: &MessageRow, id: &PartId) {
        let Some(shown) = row.parts.iter().find(|part| part.id == *id) else { return };
        let Some(call) = &shown.call else { return };
        let intended = CallRow { state: ToolState::Intended.into(), ..call.clone() };
        self.part(row, &PartRow { call: Some(intended), ..shown.clone() });
        if call.state != ToolState::Intended {
            self.part(row, shown);
        }
    }

    /// Shows an answer, so that every client closes its dialog.
    fn answered(&mut self, ask: &AskId, answer: Option<&Answer>) {
        match (ask, answer) {
            (AskId::Permission(_), answer) => {
                let reply = match answer {
                    Some(Answer::Always { .. }) => "always",
                    Some(Answer::Once | Answer::Granted) => "once",
                    _ => "reject",
                };
                self.out.push(
                    StockKind::PermissionReplied,
                    json!({ "requestID": ask, "reply": reply }),
                );
            }
            (AskId::Question(_), Some(Answer::Answers { answers })) => {
                self.out.push(
                    StockKind::QuestionReplied,
                    json!({ "requestID": ask, "answers": answers }),
                );
            }
            (AskId::Question(_), _) => {
                self.out.push(StockKind::QuestionRejected, json!({ "requestID": ask }));
            }
        }
    }

    fn text(&mut self, LiveText { message, delta, is_first }: &LiveText) {
        if *is_first {
            let kind = match delta.kind {
                DeltaKind::Text => PartKind::Text,
                DeltaKind::Reasoning => PartKind::Reasoning,
            };
            let text = Some(String::new());
            let empty = PartRow { id: delta.part.clone(), kind: kind.into(), text, call: None };
            self.part(message, &empty);
        }
        self.out.push(
            StockKind::PartDelta,
            json!({
                "messageID": delta.message,
                "partID": delta.part,
                "field": "text",
                "delta": delta.text,
            }),
        );
    }

    /// Shows the end of a running call's output, where released clients look for it.
    fn output(&mut self, row: &MessageRow, output: &CallOutput) {
        let Some(shown) = row.parts.iter().find(|part| part.id == output.part) else { return };
        let Some(mut view) = part(&self.context, row, shown).map(part_as_stock) else { return };
        if let PartBody::Tool { state, .. } = &mut view.body {
            let before = if output.omitted == 0 { "" } else { "...\n\n" };
            state["metadata"] = json!({ "output": format!("{before}{}", output.text) });
            self.out.part(&view);
        }
    }

    fn settled(&mut self, row: &MessageRow, outcome: TurnOutcome) {
        let mut row = Cow::Borrowed(row);
        if outcome == TurnOutcome::Interrupted && row.finish.is_none() {
            // The model had said nothing, so the row has no reason why it stopped.
            row.to_mut().finish = Some(Finish::Interrupted.to_string());
        }
        let view = as_stock(&self.context, message(&self.context, &row));
        let finish = view.parts.last().filter(|p| matches!(p.body, PartBody::StepFinish { .. }));
        if let Some(finish) = finish {
            self.out.part(finish);
        }
        if let MessageInfo::Assistant { error: Some(error), .. } = &view.info
            && self.occasion == Occasion::Live
        {
            self.out.push(StockKind::SessionError, json!({ "error": error }));
        }
        self.out.push(StockKind::MessageUpdated, json!({ "info": view.info }));
    }

    fn status(&mut self, status: &Status) {
        let shown = match status {
            Status::Busy => json!({ "type": "busy" }),
            Status::Retry { attempt, message, next } => {
                json!({ "type": "retry", "attempt": attempt, "message": message, "next": next })
            }
            Status::Idle => json!({ "type": "idle" }),
        };
        self.out.push(StockKind::SessionStatus, json!({ "status": shown }));
        if *status == Status::Idle {
            self.out.push(StockKind::SessionIdle, json!({}));
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{RecordedEvent, TurnOutcome};
    use serde_json::{Value, json};

    use super::*;
    use crate::fold::tests::{call_settled, called, recorded, settled, state, turn};

    /// Returns the stock events of the last of these events: the type and the properties of each.
    fn shown(log: &[RecordedEvent]) -> Vec<(String, Value)> {
        let default_model = ModelRef::new("p", "default");
        let summary = SummaryView::default();
        let facts = StockFacts { version: "1".into(), default_model, summary };
        let mut state = state(0);
        let mut shown = Vec::new();
        for event in log {
            let changes = state.apply(event);
            shown = events(&facts, &state, &changes, event.time, Occasion::Live);
        }
        let kind = |event: &Value| event["type"].as_str().expect("a type").to_owned();
        shown.iter().map(|event| (kind(event), event["properties"].clone())).collect()
    }

    fn kinds(shown: &[(String, Value)]) -> Vec<&str> {
        shown.iter().map(|(kind, _)| kind.as_str()).collect()
    }

    #[test]
    fn a_call_that_started_at_once_is_shown_pending_first() {
        let shown = shown(&[recorded(1, turn()), recorded(2, called("call_a", "prt_a"))]);
        assert_eq!(kinds(&shown), ["message.part.updated", "message.part.updated"]);
        let status = |at: usize| shown[at].1["part"]["state"]["status"].clone();
        assert_eq!((status(0), status(1)), (json!("pending"), json!("running")));
    }

    // Check heldout-3: a running command showed nothing until it ended.
    #[test]
    fn a_running_command_shows_its_output_until_it_ends() {
        let default_model = ModelRef::new("p", "default");
        let summary = SummaryView::default();
        let facts = StockFacts { version: "1".into(), default_model, summary };
        let mut state = state(0);
        state.apply(&recorded(1, turn()));
        let output = |omitted, text: &str| CallOutput {
            message: "msg_1".parse().expect("an id"),
            part: "prt_a".parse().expect("an id"),
            call: "call_a".parse().expect("an id"),
            omitted,
            text: text.into(),
        };
        assert_eq!(state.show(&output(0, "early")), [], "the call is not known yet");
        state.apply(&recorded(2, called("call_a", "prt_a")));
        for (told, expected) in [
            (output(0, "1\n"), "1\n"),
            (output(0, "1\n2\n"), "1\n2\n"),
            (output(9, "3\n"), "...\n\n3\n"),
        ] {
            let shown = events(&facts, &state, &state.show(&told), 5, Occasion::Live);
            let [event] = shown.as_slice() else { panic!("{shown:?}") };
            assert_eq!(event["type"], "message.part.updated");
            let part = &event["properties"]["part"];
            assert_eq!(part["state"]["status"], "running");
            assert_eq!(part["state"]["metadata"], json!({ "output": expected }));
        }
        state.apply(&recorded(3, call_settled("call_a")));
        assert_eq!(state.show(&output(0, "late")), [], "its result is shown");
    }

    #[test]
    fn a_turn_interrupted_before_its_reply_says_so() {
        let end = settled(TurnOutcome::Interrupted, None);
        let shown = shown(&[recorded(1, turn()), recorded(2, end)]);
        let expected =
            ["message.part.updated", "session.error", "message.updated", "session.updated"];
        assert_eq!(kinds(&shown), expected);
        assert_eq!(shown[0].1["part"]["reason"], "interrupted");
        assert_eq!(shown[1].1["error"]["name"], "MessageAbortedError");
        assert_eq!(shown[2].1["info"]["finish"], "interrupted");
    }

    #[test]
    fn a_lost_turn_is_removed_and_nothing_else_is_said() {
        let shown = shown(&[recorded(1, turn()), recorded(2, settled(TurnOutcome::Lost, None))]);
        assert_eq!(kinds(&shown), ["message.removed"]);
        assert_eq!(shown[0].1["messageID"], "msg_1");
    }
}
