use std::sync::Arc;

use domain::{
    CallId, PartId, PartKind, ReplyPart, Seq, TextCheckpointed, TimestampMs, ToolCalled,
    ToolSettled, ToolState, TurnReplied, TurnSettled, TurnStarted,
};
use store::{CallRow, MessageRow, PartRow};

use super::row::{call_part, call_row, text_part, turn_row};

/// The place of a call that no reply mentions.
const UNPLACED: usize = 1_000_000;
/// The place of text that was checkpointed before its reply.
const FIRST: usize = 0;

/// A part's place in its message. Parts with the same place are in the order of their events.
type Place = (usize, Seq);

/// The assistant's message of one turn, as far as events have told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnMessage {
    row: Arc<MessageRow>,
    /// The place of each part of the row, in the same order.
    places: Vec<Place>,
}

impl TurnMessage {
    /// Begins with an empty message.
    pub(super) fn begin(turn: &TurnStarted, seq: Seq, time: TimestampMs) -> Self {
        Self { row: turn_row(turn, seq, time).into(), places: Vec::new() }
    }

    /// Continues a message from its row.
    pub(super) fn resume(row: MessageRow) -> Self {
        let places = (1..=row.parts.len()).map(|place| (place, row.seq)).collect();
        Self { row: row.into(), places }
    }

    pub(super) fn row(&self) -> &Arc<MessageRow> {
        &self.row
    }

    /// Adds checkpointed text. Text that the part has already is not added again.
    pub(super) fn checkpoint(&mut self, checkpoint: &TextCheckpointed, seq: Seq) {
        match self.part(&checkpoint.part) {
            None => {
                let (id, text) = (checkpoint.part.clone(), checkpoint.text.clone());
                self.put((FIRST, seq), text_part(id, PartKind::Text, text));
            }
            Some(PartRow { text: Some(known), .. }) => {
                if i64::try_from(known.len()).is_ok_and(|bytes| bytes <= checkpoint.offset) {
                    known.push_str(&checkpoint.text);
                }
            }
            Some(_) => {}
        }
    }

    /// Adds a call.
    pub(super) fn call(&mut self, called: &ToolCalled, seq: Seq, time: TimestampMs) {
        let part = call_part(called.intent.part.clone(), call_row(called, time));
        self.put((UNPLACED, seq), part);
    }

    /// Marks a call as started. Returns its part, if it is one of this message.
    pub(super) fn start_call(&mut self, id: &CallId) -> Option<PartId> {
        let (part, call) = self.call_mut(id)?;
        call.state = ToolState::Started.into();
        Some(part)
    }

    /// Gives a call its result. Returns its part, if it is one of this message.
    pub(super) fn settle_call(&mut self, settled: &ToolSettled) -> Option<PartId> {
        let (part, call) = self.call_mut(&settled.call)?;
        call.state = ToolState::Settled.into();
        call.outcome = Some(settled.outcome.into());
        call.title = Some(settled.title.clone());
        call.output = Some(settled.output.clone());
        call.structured.clone_from(&settled.structured);
        call.managed_path.clone_from(&settled.managed_path);
        call.truncated = Some(settled.truncated);
        call.started_ms = Some(settled.started);
        call.ended_ms = Some(settled.ended);
        Some(part)
    }

    /// Gives the message its reply. Returns the parts with text or a hosted call, in order: the others only have a
    /// place now.
    pub(super) fn reply(&mut self, replied: &TurnReplied, seq: Seq) -> Vec<PartId> {
        let mut told = Vec::new();
        let began = self.row.created_ms;
        for (place, part) in (1..).zip(&replied.parts) {
            let part = match part {
                ReplyPart::Text { id, text, .. } => {
                    text_part(id.clone(), PartKind::Text, text.clone())
                }
                ReplyPart::Reasoning { id, text, .. } => {
                    text_part(id.clone(), PartKind::Reasoning, text.clone())
                }
                ReplyPart::ToolCall { call } => {
                    if let Some(part) = self.call_mut(call).map(|(id, _)| id)
                        && let Some(part) = self.part(&part).cloned()
                    {
                        self.put((place, seq), part);
                    }
                    continue;
                }
                ReplyPart::HostedCall { id, call, name, input, .. } => {
                    match CallRow::hosted(id, began, call, name, input) {
                        Ok(call) => call_part(id.clone(), call),
                        Err(_not_the_id_of_a_part) => continue,
                    }
                }
                ReplyPart::HostedResult { call, output, is_error, .. } => {
                    let parts = Arc::make_mut(&mut self.row).parts.iter_mut();
                    let mut calls = parts.filter_map(|part| part.call.as_mut());
                    calls.find_map(|row| row.told(call, output, *is_error).then_some(()));
                    continue;
                }
            };
            told.push(part.id.clone());
            self.put((place, seq), part);
        }
        Arc::make_mut(&mut self.row).finish = Some(replied.finish.to_string());
        told
    }

    /// Completes the message.
    pub(super) fn settle(&mut self, settled: &TurnSettled, time: TimestampMs) {
        let row = Arc::make_mut(&mut self.row);
        row.completed_ms = Some(time);
        row.usage = settled.usage;
        row.error.clone_from(&settled.error);
    }

    /// Puts a part at its place. A part that is there already keeps the number of its first event.
    fn put(&mut self, (place, seq): Place, part: PartRow) {
        let parts = &mut Arc::make_mut(&mut self.row).parts;
        let known = parts.iter().position(|known| known.id == part.id);
        let seq = known.map_or(seq, |at| {
            parts.remove(at);
            self.places.remove(at).1
        });
        let before = |(other, known): (&Place, &PartRow)| {
            (*other, known.id.as_str()) < ((place, seq), part.id.as_str())
        };
        let at = self.places.iter().zip(parts.iter()).take_while(|it| before(*it)).count();
        self.places.insert(at, (place, seq));
        parts.insert(at, part);
    }

    fn part(&mut self, id: &PartId) -> Option<&mut PartRow> {
        Arc::make_mut(&mut self.row).parts.iter_mut().find(|part| part.id == *id)
    }

    fn call_mut(&mut self, id: &CallId) -> Option<(PartId, &mut CallRow)> {
        let parts = Arc::make_mut(&mut self.row).parts.iter_mut();
        let mut calls = parts.filter_map(|part| Some((&part.id, part.call.as_mut()?)));
        calls.find(|(_, call)| call.id == *id).map(|(part, call)| (part.clone(), call))
    }
}
