//! The places where a drain waits for the capture of the earlier state.

use domain::{ToolClass, ToolIntent};
use futures::StreamExt;
use session_rules::Verdict;
use snapshots::Touched;
use tokio::time::Instant;

use crate::control::{interrupted_after, moved_beyond};
use crate::drain::{Drain, Stop};
use crate::turn::{Turn, at};

/// Withholds a write that would end the drain before the files are captured, and returns `None` then. `owed`: whether
/// there is anything to capture.
pub(crate) fn unless_ends<T>(owed: bool, verdict: Verdict<T>) -> Verdict<Option<T>> {
    match verdict {
        Verdict::Write(_, end, _) if owed && end != domain::DrainEnd::Keep => Verdict::Leave(None),
        verdict @ (Verdict::Write(..) | Verdict::Leave(_)) => verdict.map(Some),
    }
}

impl<'r> Drain<'r> {
    /// Returns whether calls whose intents wait may change files.
    pub(crate) fn may_change_files(&self, turn: &Turn<'r>) -> bool {
        self.has_unintended(turn, |class| class != ToolClass::Pure)
    }

    /// Captures the state before a call that may change files, if that is needed.
    pub(crate) fn before_changes(&mut self, turn: &Turn<'r>) {
        if self.may_change_files(turn) {
            let any = self.has_unintended(turn, |class| class == ToolClass::Unsafe);
            let owed = self.log.history().changing_turn().cloned();
            self.files.before_changes(any, owed);
        }
    }

    fn has_unintended(&self, turn: &Turn<'r>, is: impl Fn(ToolClass) -> bool) -> bool {
        let (rules, history) = (self.stage.rules(), self.log.history());
        let runs = |intent: &ToolIntent| rules.refusal(history, intent).is_none();
        let mut intents = turn.said.unintended.iter();
        intents.any(|intent| is(rules.tools.class(&intent.tool)) && runs(intent))
    }

    /// Captures the possible changes of calls that an earlier drain has settled and that no capture has.
    pub(crate) fn capture_what_is_left(&mut self) {
        if let Some(unsaved) = self.log.history().unsaved().last() {
            self.files.after_changes(unsaved.turn.clone(), Touched::Anything);
        }
    }

    /// Captures the changes of a turn's settled calls, and earlier changes that no capture has.
    pub(crate) fn capture_after(&mut self, turn: &mut Turn<'r>) {
        self.files.after_changes(turn.said.turn.clone(), turn.take_touched());
        if let Some(unsaved) = self.log.history().unsaved().last() {
            self.files.make_up(unsaved.turn.clone());
        }
    }

    /// Waits until the running capture has finished, while the turn's bodies continue. Returns whether the turn was
    /// interrupted.
    pub(crate) async fn await_capture(&mut self, turn: &mut Turn<'r>) -> Result<bool, Stop> {
        let delay = self.stage.runtime.settings.result_delay;
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.stage.interrupts_before;
        self.files.hold();
        while self.files.is_running() {
            if self.is_interrupted() {
                return Ok(true);
            }
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(true),
                Some(ran) = turn.batch.bodies.next() => turn.finished(ran, delay),
                () = at(turn.batch.commit_at) => self.commit_results(turn).await?,
                () = self.files.advance() => {}
                () = control.resync.notified() => self.live.resync(),
                () = self.title.advance() => {}
            }
        }
        Ok(self.is_interrupted())
    }

    /// Waits until the running capture has finished, before the drain ends, and then longer for a late one. An interrupt or
    /// a stopping worker shortens the wait. New input ends the second: the next turn runs beside the capture.
    pub(crate) async fn finish_capture(&mut self) -> Result<(), Stop> {
        self.finish_running(false).await?;
        if self.is_interrupted() || self.stage.control.stopping.is_cancelled() {
            self.files.leave();
        }
        if self.files.continue_late(self.log.history().changing_turn().cloned()) {
            self.finish_running(true).await?;
        }
        Ok(())
    }

    async fn finish_running(&mut self, is_last: bool) -> Result<(), Stop> {
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let mut moves = control.moved.clone();
        let known = self.stage.interrupts_before;
        let seq = self.log.history().seq();
        let patience = self.stage.runtime.settings.stop_tools;
        let mut hurried = self.is_interrupted();
        self.files.hold();
        if hurried {
            self.files.hold_until(Instant::now() + patience);
        }
        while self.files.is_running() {
            let hurry = async {
                tokio::select! {
                    () = interrupted_after(&mut interrupts, known) => {}
                    () = control.stopping.cancelled() => {}
                }
            };
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = hurry, if !hurried => {
                    hurried = true;
                    self.files.hold_until(Instant::now() + patience);
                }
                () = moved_beyond(&mut moves, seq), if is_last => self.files.leave(),
                () = self.files.advance() => {}
                () = control.resync.notified() => self.live.resync(),
                () = self.title.advance() => {}
            }
        }
        Ok(())
    }

    /// Captures possible changes of the turn's calls, before a write that ends the drain with the turn. Writes the
    /// results first, so that the log has the calls before the capture.
    pub(crate) async fn capture_before_end(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        let touched = turn.take_touched();
        if touched == Touched::Nothing || !self.files.is_on() {
            return Ok(());
        }
        if !turn.said.done.is_empty() {
            self.commit_results(turn).await?;
        }
        self.files.after_changes(turn.said.turn.clone(), touched);
        self.finish_capture().await
    }
}
