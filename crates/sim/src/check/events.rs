//! The meaning of each event to the parts of a [`Checker`].

use domain::{
    AttemptEnded, AttemptStarted, CompactionStarted, ControlAdmitted, DrainEnded, ErrorCode,
    InterruptTarget, NoticeKind, PromptAdmitted, PromptPart, PromptPromoted, RecordedEvent,
    SessionEvent, SideOutcome, TurnId, TurnOutcome, TurnStarted,
};

use super::requests::Requests;
use super::{Checker, Violation, ensure};
use crate::provider::Provider;

impl Checker {
    pub(super) fn event(
        &mut self,
        recorded: &RecordedEvent,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let seq = recorded.seq.0;
        let claim = recorded.claim.map(|claim| claim.0);
        self.told.before(&recorded.event, seq)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing is said of the others")]
        match &recorded.event {
            SessionEvent::SessionCreated(created) => {
                self.sides.created(created.named, created.parent.is_some());
            }
            SessionEvent::PromptAdmitted(prompt) => self.prompt_admitted(prompt, seq)?,
            SessionEvent::ControlAdmitted(control) => {
                let ControlAdmitted { message, delivery, control, wake, .. } = control;
                self.inbox.admitted(message, seq, *delivery, *wake, Some(control))?;
            }
            SessionEvent::PromptPromoted(promoted) => self.promoted(promoted, seq)?,
            SessionEvent::ControlDelivered(delivered) => {
                if !self.inbox.is_unrevert(&delivered.message) {
                    // Its files have been put back already, so an interrupt that came since does not stop it.
                    self.drains.goes_on(seq, "a control")?;
                }
                self.inbox.taken(&delivered.message, seq, true)?;
            }
            SessionEvent::InputCancelled(cancelled) => {
                self.inbox.cancelled(&cancelled.message)?;
                self.resumed = false; // it may have been all that was woken for
            }
            SessionEvent::DeliveryChanged(changed) => self.inbox.changed(changed, seq)?,
            SessionEvent::WakeRequested(wake) => {
                self.inbox.woken(wake.scope, seq);
                self.resumed = true;
            }
            SessionEvent::EpochStarted(epoch) => self.told.epoch_started(epoch)?,
            SessionEvent::ContextUpdated(update) => self.told.updated(update, seq)?,
            SessionEvent::TurnStarted(started) => self.turn_started(started, seq, max_steps)?,
            SessionEvent::AttemptStarted(started) => self.attempt_started(started, provider)?,
            SessionEvent::AttemptEnded(ended) => self.attempt_ended(ended, provider)?,
            SessionEvent::RetryScheduled(_) => self.turns.retried()?,
            SessionEvent::ToolCalled(called) => {
                self.files.called(called)?;
                self.turns.called(called, max_steps, provider)?;
            }
            SessionEvent::ToolAsked(asked) => self.turns.asked(asked)?,
            SessionEvent::ToolAnswered(answered) => {
                if let Some(spoken) = self.turns.answered(answered)? {
                    self.drains.refused(spoken);
                }
            }
            SessionEvent::ToolStarted(started) => self.turns.body_started(started)?,
            SessionEvent::ToolSettled(settled) => {
                self.turns.call_settled(&settled.call)?;
                self.files.settled(settled);
                self.drains.progressed();
            }
            SessionEvent::TurnReplied(replied) => self.turns.replied(replied, provider)?,
            SessionEvent::TurnSettled(settled) => {
                self.inbox.continues = self.turns.settled(settled, max_steps)?;
                self.sides.turn_settled(settled.outcome);
                self.told.turn_settled(settled.outcome);
                if !matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
                    self.drains.progressed();
                }
            }
            SessionEvent::CompactionStarted(started) => self.compaction_started(started, seq)?,
            SessionEvent::CompactionReminded(reminded) => self.sides.reminded(&reminded.turn)?,
            SessionEvent::CompactionEnded(ended) => {
                let summary = self.sides.compaction_ended(ended, provider)?;
                if ended.outcome == SideOutcome::Completed {
                    self.drains.progressed();
                    self.told.summarised(summary, seq);
                }
            }
            SessionEvent::TitleStarted(started) => self.sides.title_started(&started.turn)?,
            SessionEvent::TitleEnded(ended) => self.sides.title_ended(ended)?,
            SessionEvent::SessionRenamed(renamed) => self.sides.renamed(renamed.by)?,
            SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::FilesLost => {
                self.files.told();
            }
            SessionEvent::WorkspaceSnapshotted(_) => self.files.saved(),
            SessionEvent::WorkspaceRestored(restored) => self.files.restored(&restored.lost),
            SessionEvent::RevertStaging(staging) => {
                self.drains.goes_on(seq, "a Revert")?;
                ensure!(self.turns.open().is_none(), "revert: within a turn");
                self.files.staging(&staging.original)?;
            }
            SessionEvent::RevertStaged(staged) => {
                self.inbox.holds = true;
                self.files.staged(staged.original.as_ref())?;
            }
            SessionEvent::RevertCleared(_) => {
                self.inbox.cleared();
                self.files.cleared();
            }
            SessionEvent::RevertCommitted(committed) => {
                ensure!(self.turns.open().is_none(), "revert: committed within a turn");
                self.files.nothing_is_staging("it is committed")?;
                self.inbox.committed();
                self.told.reverted(committed.from.0, committed.back.epoch);
                self.sides.reverted();
            }
            SessionEvent::SessionMoved(_) => self.moved(claim, seq)?,
            SessionEvent::InterruptRequested(requested) => {
                self.interrupted(&requested.target, seq)?;
            }
            SessionEvent::DrainEnded(ended) => self.drain_ended(ended, claim, seq)?,
            _ => {}
        }
        Ok(())
    }

    fn prompt_admitted(&mut self, prompt: &PromptAdmitted, seq: i64) -> Result<(), Violation> {
        let PromptAdmitted { message, delivery, wake, synthetic, .. } = prompt;
        let held = self.inbox.holds && synthetic.is_some();
        ensure!(!held || !wake, "revert: {message} wakes what waits with a Revert");
        self.inbox.admitted(message, seq, *delivery, *wake, None)?;
        if held {
            self.inbox.held(message);
        }
        Ok(())
    }

    fn promoted(&mut self, promoted: &PromptPromoted, seq: i64) -> Result<(), Violation> {
        let message = &promoted.message;
        ensure!(self.told.is_active(), "I7: {message} was promoted without a baseline");
        self.drains.goes_on(seq, "a promotion")?;
        self.drains.wants_again();
        self.files.nothing_is_staging("a promotion")?;
        self.told.promoted(promoted, seq);
        self.inbox.taken(message, seq, false)?;
        let texts = promoted.parts.iter().map(|PromptPart::Text { text, .. }| text.len());
        self.inbox.promotes(texts.sum());
        self.inbox.continues = true;
        self.turns.steps = 0;
        self.sides.promoted();
        Ok(())
    }

    fn turn_started(
        &mut self,
        started: &TurnStarted,
        seq: i64,
        max_steps: i32,
    ) -> Result<(), Violation> {
        self.drains.goes_on(seq, "a turn")?;
        self.drains.was_wanted(seq)?;
        ensure!(self.told.is_active(), "I7: {} has no baseline", started.turn);
        self.files.turn_starts()?;
        self.sides.turn_starts()?;
        self.inbox.turn_begins();
        self.turns.started(started, max_steps)
    }

    fn attempt_started(
        &mut self,
        started: &AttemptStarted,
        provider: &Provider,
    ) -> Result<(), Violation> {
        let Some(requests) = self.requests(&started.turn) else {
            return Err(format!("I9: attempt {} of nothing open", started.attempt));
        };
        requests.began(started, provider)?;
        self.attempts.began(started)
    }

    fn attempt_ended(
        &mut self,
        ended: &AttemptEnded,
        provider: &Provider,
    ) -> Result<(), Violation> {
        self.attempts.ended(&ended.attempt)?;
        self.turns.attempt_ended(ended, provider)?;
        if let Some(requests) = self.requests(&ended.turn) {
            requests.ended(ended);
        }
        Ok(())
    }

    fn compaction_started(
        &mut self,
        started: &CompactionStarted,
        seq: i64,
    ) -> Result<(), Violation> {
        self.drains.goes_on(seq, "a Compaction")?;
        ensure!(self.turns.open().is_none(), "I4: a Compaction began within a turn");
        let epoch = self.told.epoch();
        ensure!(started.epoch == epoch, "I7: it ends epoch {}", started.epoch);
        let forgets = self.inbox.continues && !started.continuing;
        ensure!(!forgets, "I2: a Compaction forgets that work continues, seq {seq}");
        self.inbox.continues |= started.continuing;
        self.told.compaction_starts(started.reason);
        self.sides.compaction_started(started, self.inbox.last_control.as_ref())
    }

    fn moved(&mut self, claim: Option<i64>, seq: i64) -> Result<(), Violation> {
        self.drains.goes_on(seq, "a Move")?;
        ensure!(self.turns.open().is_none(), "I4: a Move within a turn");
        self.files.nothing_is_staging("it moves")?;
        self.sides.no_title("a session moved")?;
        self.told.moved();
        self.files.moved();
        if let Some(claim) = claim {
            self.drains.moved(claim);
        }
        Ok(())
    }

    fn interrupted(&mut self, target: &InterruptTarget, seq: i64) -> Result<(), Violation> {
        self.inbox.interrupt(seq, *target != InterruptTarget::Parked);
        self.resumed = false;
        if let InterruptTarget::Turn { turn } = target {
            let open = self.turns.open().or(self.sides.compacting());
            ensure!(open == Some(turn), "I6: {turn} was interrupted and not open");
        }
        self.drains.interrupted(target, seq);
        Ok(())
    }

    fn drain_ended(
        &mut self,
        ended: &DrainEnded,
        claim: Option<i64>,
        seq: i64,
    ) -> Result<(), Violation> {
        ensure!(self.turns.open().is_none(), "I4: a drain ended with an open turn");
        ensure!(self.sides.compacting().is_none(), "I4: a drain ended with an open Compaction");
        self.sides.no_title("a drain ended")?;
        self.sides.drain_ends(ended.error.as_ref())?;
        let parks = match ended.error.as_ref().and_then(|error| error.code.known()) {
            Some(ErrorCode::WorkspaceUnavailable | ErrorCode::SessionRecoveryExhausted) => true,
            // Behind an epoch it only means that no Compaction can begin.
            Some(ErrorCode::ContextUnavailable) => !self.told.is_active(),
            _ => false,
        };
        if parks {
            self.inbox.parked = self.inbox.parked.max(seq);
        }
        self.inbox.end_drain();
        self.turns.failures = 0;
        self.drains.ended(ended.outcome, claim, seq)
    }

    /// Returns the requests of an attempt's turn, Compaction or title.
    fn requests(&mut self, id: &TurnId) -> Option<&mut Requests> {
        let mut open = self.turns.requests().into_iter().chain(self.sides.requests());
        open.find(|requests| requests.id == *id)
    }
}
