use std::collections::HashSet;
use std::sync::Arc;

use domain::{
    CompactionStarted, MessageRole, PartId, RecordedEvent, SessionEvent, SideOutcome, TimestampMs,
    ToolAsked, ToolCalled, ToolSettled, ToolState, TurnId, TurnOutcome, TurnSettled,
};
use signals::{CallOutput, Delta};
use store::MessageRow;

use super::change::{Change, LiveText};
use super::row::{checkpoint_row, notice_row, promoted_row, user_row};
use super::turn::TurnMessage;

/// The messages of a session. Only that of the newest turn is kept, because no event changes an older one.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The message of the newest turn, unless it was removed.
    newest: Option<TurnMessage>,
    /// The asks of its calls that wait for answers.
    asks: Vec<ToolAsked>,
    /// Its parts of which followers have received live text.
    live: HashSet<PartId>,
    /// The running Compaction, and the time when it began.
    compaction: Option<(CompactionStarted, TimestampMs)>,
}

impl Conversation {
    /// Continues a conversation whose newest messages have these rows.
    pub(super) fn resume(newest: Vec<MessageRow>) -> Self {
        let is_open =
            |row: &MessageRow| row.role == MessageRole::Assistant && row.completed_ms.is_none();
        let open = newest.into_iter().rfind(is_open);
        Self { newest: open.map(TurnMessage::resume), ..Self::default() }
    }

    /// Continues with these asks that wait for answers.
    pub(super) fn wait_for(&mut self, asks: Vec<ToolAsked>) {
        self.asks = asks;
    }

    /// Drops the message of the newest turn if the turn has ended.
    pub(super) fn drop_settled(&mut self) {
        self.newest.take_if(|message| message.row().completed_ms.is_some());
    }

    /// Returns the message of the newest turn. A turn that was lost or whose request was too large has none.
    pub(crate) fn newest(&self) -> Option<&Arc<MessageRow>> {
        self.newest.as_ref().map(TurnMessage::row)
    }

    /// Applies the next event of the log. Returns the changes of messages.
    pub(crate) fn apply(&mut self, event: &RecordedEvent) -> Vec<Change> {
        let (seq, time) = (event.seq, event.time);
        let change = match &event.event {
            SessionEvent::PromptAdmitted(prompt) => {
                let synthetic = prompt.synthetic.as_ref();
                let row = user_row(&prompt.message, seq, time, &prompt.parts, synthetic);
                Some(Change::Admitted(row.into()))
            }
            SessionEvent::InputCancelled(cancelled) => {
                Some(Change::Removed(cancelled.message.clone()))
            }
            SessionEvent::PromptPromoted(prompt) => {
                Some(Change::Message(promoted_row(prompt, seq, time).into()))
            }
            SessionEvent::NoticeRecorded(notice) => {
                Some(Change::Message(notice_row(notice, seq, time).into()))
            }
            SessionEvent::TurnStarted(turn) => {
                self.live.clear();
                let begun = TurnMessage::begin(turn, seq, time);
                Some(Change::Message(self.newest.insert(begun).row().clone()))
            }
            SessionEvent::TextCheckpointed(checkpoint) => {
                self.of_turn(&checkpoint.turn).map(|message| {
                    message.checkpoint(checkpoint, seq);
                    Change::Checkpoint(message.row().clone())
                })
            }
            SessionEvent::ToolCalled(called) => self.called(called, event),
            SessionEvent::ToolStarted(started) => self
                .of_turn(&started.turn)
                .and_then(|message| Some((message.start_call(&started.call)?, message)))
                .map(|(part, message)| Change::Parts(message.row().clone(), vec![part])),
            SessionEvent::ToolAsked(asked) => self.asked(asked),
            SessionEvent::ToolAnswered(answered) => {
                self.asks.retain(|asked| asked.ask != answered.ask);
                Some(Change::Answered(answered.ask.clone(), Some(answered.answer.clone())))
            }
            SessionEvent::ToolSettled(settled) => return self.call_settled(settled),
            SessionEvent::TurnReplied(replied) => self.of_turn(&replied.turn).map(|message| {
                let parts = message.reply(replied, seq);
                Change::Parts(message.row().clone(), parts)
            }),
            SessionEvent::TurnSettled(settled) => self.settled(settled, time),
            SessionEvent::CompactionStarted(started) => {
                self.compaction = Some((started.clone(), time));
                None
            }
            SessionEvent::CompactionEnded(ended) => {
                let started =
                    self.compaction.take().filter(|(started, _)| started.turn == ended.turn);
                let is_done = ended.outcome == SideOutcome::Completed;
                is_done.then(|| Change::Message(checkpoint_row(started, ended, seq, time).into()))
            }
            SessionEvent::RevertCommitted(committed) => {
                self.newest.take_if(|message| message.row().seq >= committed.from);
                Some(Change::Reverted(committed.from))
            }
            SessionEvent::SessionCreated(_)
            | SessionEvent::EpochStarted(_)
            | SessionEvent::ContextUpdated(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::RetryScheduled(_)
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::DrainEnded(_)
            | SessionEvent::SessionRenamed(_)
            | SessionEvent::SessionArchived(_)
            | SessionEvent::SessionDescribed(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::TitleEnded(_)
            | SessionEvent::SessionMoved(_)
            | SessionEvent::SessionForked(_)
            | SessionEvent::WorkspaceSnapshotted(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_)
            | SessionEvent::RevertStaged(_)
            | SessionEvent::RevertCleared(_) => None,
        };
        change.into_iter().collect()
    }

    /// Takes live text. Returns nothing if the text's turn has ended, or its start is not known.
    pub(super) fn hear(&mut self, delta: &Delta) -> Option<Change> {
        let message = self.newest().filter(|row| row.id == delta.message)?.clone();
        if message.completed_ms.is_some() {
            return None;
        }
        let is_first = self.live.insert(delta.part.clone());
        Some(Change::Text(LiveText { message, delta: delta.clone(), is_first }))
    }

    /// Takes output of a call. Returns nothing if the call does not run.
    pub(super) fn show(&self, output: &CallOutput) -> Option<Change> {
        let message = self.newest().filter(|row| row.id == output.message)?;
        let part = message.parts.iter().find(|part| part.id == output.part)?;
        let runs = part.call.as_ref().is_some_and(|call| call.state == ToolState::Started);
        runs.then(|| Change::Output(message.clone(), output.clone()))
    }

    fn called(&mut self, called: &ToolCalled, event: &RecordedEvent) -> Option<Change> {
        let message = self.of_turn(&called.turn)?;
        message.call(called, event.seq, event.time);
        Some(Change::Call(message.row().clone(), called.intent.part.clone()))
    }

    fn asked(&mut self, asked: &ToolAsked) -> Option<Change> {
        let message = self.of_turn(&asked.turn)?.row().id.clone();
        self.asks.retain(|known| known.ask != asked.ask);
        self.asks.push(asked.clone());
        Some(Change::Asked(message, asked.clone()))
    }

    fn call_settled(&mut self, settled: &ToolSettled) -> Vec<Change> {
        let (over, open) = std::mem::take(&mut self.asks)
            .into_iter()
            .partition::<Vec<_>, _>(|asked| asked.call == settled.call);
        self.asks = open;
        let mut changes: Vec<_> =
            over.into_iter().map(|asked| Change::Answered(asked.ask, None)).collect();
        if let Some(message) = self.of_turn(&settled.turn)
            && let Some(part) = message.settle_call(settled)
        {
            changes.push(Change::Parts(message.row().clone(), vec![part]));
        }
        changes
    }

    fn settled(&mut self, settled: &TurnSettled, time: TimestampMs) -> Option<Change> {
        let message = self.of_turn(&settled.turn)?;
        match settled.outcome {
            // Nothing of it was durable: the next turn starts over with its own message.
            TurnOutcome::Lost | TurnOutcome::Overflowed => {
                self.newest = None;
                Some(Change::Removed(settled.message.clone()))
            }
            outcome @ (TurnOutcome::Completed
            | TurnOutcome::Cut
            | TurnOutcome::Failed
            | TurnOutcome::Interrupted) => {
                message.settle(settled, time);
                Some(Change::Settled(message.row().clone(), outcome))
            }
        }
    }

    fn of_turn(&mut self, turn: &TurnId) -> Option<&mut TurnMessage> {
        self.newest.as_mut().filter(|message| message.row().turn.as_ref() == Some(turn))
    }
}
