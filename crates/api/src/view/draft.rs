use domain::{
    CallId, PartId, RecordedEvent, ReplyPart, Seq, SessionEvent, TimestampMs, ToolCalled,
    ToolOutcomeKind, ToolSettled, ToolState, TurnUsage,
};
use store::{CallRow, MessageRow, PartRow};

/// The place of a call that no reply mentions.
const UNPLACED: usize = 1_000_000;

/// The assistant's message of one turn, built from events like the projector builds its rows. A reader that has seen
/// the whole turn need not query them. Pure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    row: MessageRow,
    parts: Vec<Placed>,
}

/// A part, with its order in the message before its id.
#[derive(Debug, PartialEq, Eq)]
struct Placed {
    place: usize,
    seq: Seq,
    part: PartRow,
}

impl Draft {
    /// Returns an empty message if this event starts a turn.
    pub(crate) fn begin(event: &RecordedEvent) -> Option<Self> {
        let SessionEvent::TurnStarted(turn) = &event.event else { return None };
        let row = MessageRow {
            id: turn.message.clone(),
            seq: event.seq,
            role: "assistant".into(),
            parent: Some(turn.parent.clone()),
            turn: Some(turn.turn.clone()),
            agent: Some(turn.agent.clone()),
            model: Some(turn.model.clone()),
            created_ms: event.time,
            completed_ms: None,
            finish: None,
            error: None,
            usage: TurnUsage::default(),
            synthetic: None,
            parts: Vec::new(),
        };
        Some(Self { row, parts: Vec::new() })
    }

    pub(crate) fn message(&self) -> &domain::MessageId {
        &self.row.id
    }

    /// Applies the next event of the log. Events of other turns change nothing.
    pub(crate) fn note(&mut self, event: &RecordedEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these are of a turn's message")]
        match &event.event {
            SessionEvent::TextCheckpointed(checkpoint)
                if self.row.turn.as_ref() == Some(&checkpoint.turn) =>
            {
                match self.part(&checkpoint.part) {
                    Some(Placed { part: PartRow { text: Some(text), .. }, .. }) => {
                        text.push_str(&checkpoint.text);
                    }
                    Some(_) => {}
                    None => {
                        let (id, text) = (checkpoint.part.clone(), checkpoint.text.clone());
                        self.add(0, event.seq, id, "text", Some(text), None);
                    }
                }
            }
            SessionEvent::ToolCalled(called) if called.message == self.row.id => {
                let (id, call) = (called.intent.part.clone(), called_row(called, event.time));
                self.add(UNPLACED, event.seq, id, "tool", None, Some(call));
            }
            SessionEvent::ToolStarted(started) => {
                if let Some(call) = self.call(&started.call) {
                    call.state = state(ToolState::Started).into();
                }
            }
            SessionEvent::ToolSettled(settled) => {
                if let Some(call) = self.call(&settled.call) {
                    settle(call, settled);
                }
            }
            SessionEvent::TurnReplied(replied) if replied.message == self.row.id => {
                self.row.finish = Some(replied.finish.clone());
                for (place, part) in (1..).zip(&replied.parts) {
                    self.place(place, event.seq, part);
                }
            }
            SessionEvent::TurnSettled(settled) if settled.message == self.row.id => {
                self.row.completed_ms = Some(event.time);
                self.row.usage = settled.usage;
                self.row.error.clone_from(&settled.error);
            }
            _ => {}
        }
    }

    fn place(&mut self, place: usize, seq: Seq, part: &ReplyPart) {
        let (id, kind, text) = match part {
            ReplyPart::Text { id, text, .. } => (id, "text", text),
            ReplyPart::Reasoning { id, text, .. } => (id, "reasoning", text),
            ReplyPart::ToolCall { call } => {
                let is_it = |placed: &&mut Placed| {
                    placed.part.call.as_ref().is_some_and(|known| known.id == *call)
                };
                if let Some(known) = self.parts.iter_mut().find(is_it) {
                    known.place = place;
                }
                return;
            }
            ReplyPart::HostedCall { id, call, name, input, .. } => {
                if let Ok(row) = CallRow::hosted(id, self.row.created_ms, call, name, input) {
                    self.add(place, seq, id.clone(), "tool", None, Some(row));
                }
                return;
            }
            ReplyPart::HostedResult { call, output, is_error, .. } => {
                let mut calls = self.parts.iter_mut().filter_map(|part| part.part.call.as_mut());
                calls.find_map(|row| row.told(call, output, *is_error).then_some(()));
                return;
            }
        };
        match self.part(id) {
            Some(known) => {
                known.place = place;
                known.part.text = Some(text.clone());
            }
            None => self.add(place, seq, id.clone(), kind, Some(text.clone()), None),
        }
    }

    fn add(
        &mut self,
        place: usize,
        seq: Seq,
        id: PartId,
        kind: &str,
        text: Option<String>,
        call: Option<CallRow>,
    ) {
        let part = PartRow { id, kind: kind.into(), text, call };
        self.parts.push(Placed { place, seq, part });
    }

    fn part(&mut self, id: &PartId) -> Option<&mut Placed> {
        self.parts.iter_mut().find(|placed| placed.part.id == *id)
    }

    fn call(&mut self, id: &CallId) -> Option<&mut CallRow> {
        self.parts.iter_mut().filter_map(|placed| placed.part.call.as_mut()).find(|c| c.id == *id)
    }

    /// Returns the message as its rows have it.
    pub(crate) fn into_row(mut self) -> MessageRow {
        self.parts.sort_by(|a, b| {
            (a.place, a.seq, a.part.id.as_str()).cmp(&(b.place, b.seq, b.part.id.as_str()))
        });
        self.row.parts = self.parts.into_iter().map(|placed| placed.part).collect();
        self.row
    }
}

/// Returns the row of a call made at `time`.
pub(crate) fn called_row(called: &ToolCalled, time: TimestampMs) -> CallRow {
    CallRow {
        id: called.intent.call.clone(),
        provider_call: called.intent.provider_call.clone(),
        tool: called.intent.tool.clone(),
        state: state(called.state).into(),
        arguments: called.intent.arguments.clone(),
        called_ms: time,
        outcome: None,
        title: None,
        output: None,
        structured: None,
        managed_path: None,
        truncated: None,
        started_ms: None,
        ended_ms: None,
        hosted: false,
    }
}

/// Marks a call as ended.
pub(crate) fn settle(call: &mut CallRow, settled: &ToolSettled) {
    call.state = state(ToolState::Settled).into();
    call.outcome = Some(outcome(settled.outcome).into());
    call.title = Some(settled.title.clone());
    call.output = Some(settled.output.clone());
    call.structured.clone_from(&settled.structured);
    call.managed_path.clone_from(&settled.managed_path);
    call.truncated = Some(settled.truncated);
    call.started_ms = Some(settled.started);
    call.ended_ms = Some(settled.ended);
}

fn state(state: ToolState) -> &'static str {
    match state {
        ToolState::Intended => "intended",
        ToolState::Started => "started",
        ToolState::Settled => "settled",
    }
}

fn outcome(outcome: ToolOutcomeKind) -> &'static str {
    match outcome {
        ToolOutcomeKind::Completed => "completed",
        ToolOutcomeKind::Failed => "failed",
        ToolOutcomeKind::Interrupted => "interrupted",
        ToolOutcomeKind::Unknown => "unknown",
    }
}
