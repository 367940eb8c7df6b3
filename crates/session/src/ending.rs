//! Ends a Provider Turn: whole, cut, failed or interrupted, with all its calls settled.

use std::time::Duration;

use domain::{AttemptId, AttemptStarted, SessionError, TurnOutcome};
use futures::StreamExt;
use llm_client::LlmError;
use session_rules::{Answered, Next, Observation, Replied, storable};
use snapshots::Touched;
use tokio::time::{Instant, sleep_until};

use crate::control::{interrupted_after, moved_beyond};
use crate::drain::{Drain, Stop};
use crate::files::unless_ends;
use crate::turn::{Turn, at};

pub(crate) fn provider_error(error: &LlmError) -> SessionError {
    SessionError {
        code: error.reason.code().to_owned().into(),
        message: storable(&error.to_string()).into_owned(),
    }
}

impl<'r> Drain<'r> {
    /// Commits the reply of a complete stream, and without calls also the turn's end.
    pub(crate) async fn replied(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
    ) -> Result<Next, Stop> {
        if self.wants_saved(&turn) {
            self.look_at_saved().await?;
        }
        // Most replies need no context, because no input waits after them.
        let mut observed = Observation::unseen();
        if self.files.is_running()
            && self.may_change_files(&turn)
            && self.await_capture(&mut turn).await?
        {
            return self.interrupt_turn(turn).await;
        }
        loop {
            let (replied, ended) = self
                .write_beside(&mut turn, |rules, draft, said| {
                    rules.replied(draft, &started.attempt, said, &observed)
                })
                .await?;
            self.take_in(&mut turn, ended);
            match replied {
                Replied::LookFirst => observed = self.observe(&turn.said.done).await,
                Replied::Interrupted => return self.interrupt_turn(turn).await,
                Replied::Refused(error) => {
                    return self.fail_turn(&started.attempt, turn, error).await;
                }
                Replied::Crossed(next) => {
                    self.written(&next);
                    return Ok(next);
                }
                Replied::Calls => {
                    self.start_intended(&mut turn);
                    return self.settle(turn, TurnOutcome::Completed).await;
                }
            }
        }
    }

    /// Waits for the turn's bodies, then settles it and continues to the next boundary.
    pub(crate) async fn settle(
        &mut self,
        mut turn: Turn<'r>,
        outcome: TurnOutcome,
    ) -> Result<Next, Stop> {
        loop {
            if self.finish_bodies(&mut turn, Duration::ZERO).await? {
                return self.interrupt_turn(turn).await;
            }
            if !self.has_asked() {
                break;
            }
            match self.go_on(&mut turn).await? {
                Answered::Interrupted => return self.interrupt_turn(turn).await,
                Answered::Wait(next) => return Ok(next),
                Answered::Start(_) => {}
                Answered::Settle => break,
            }
        }
        let observed = self.observe(&turn.said.done).await;
        loop {
            let owed = self.files.is_on() && turn.has_touched();
            let settled = self
                .write(|rules, draft| {
                    unless_ends(owed, rules.settled(draft, &turn.said, outcome, &observed))
                })
                .await?;
            match settled {
                None => self.capture_before_end(&mut turn).await?,
                Some(None) => return self.interrupt_turn(turn).await,
                Some(Some(next)) => {
                    self.capture_after(&mut turn);
                    self.written(&next);
                    return Ok(next);
                }
            }
        }
    }

    /// Runs the bodies to their ends and waits for `pause`, and commits results that wait too long. Returns whether
    /// the turn was interrupted.
    pub(crate) async fn finish_bodies(
        &mut self,
        turn: &mut Turn<'r>,
        pause: Duration,
    ) -> Result<bool, Stop> {
        let delay = self.stage.runtime.settings.result_delay;
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let mut moves = control.moved.clone();
        let known = self.stage.interrupts_before;
        let mut pause = (!pause.is_zero()).then(|| Instant::now() + pause);
        while pause.is_some() || !turn.batch.bodies.is_empty() {
            if self.is_interrupted() {
                return Ok(true);
            }
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(true),
                Some(ran) = turn.batch.bodies.next() => turn.finished(ran, delay),
                () = at(turn.batch.commit_at) => self.commit_results(turn).await?,
                () = moved_beyond(&mut moves, self.log.history().seq()), if self.has_asked() => {
                    self.start_answered(turn).await?;
                }
                () = at(pause) => pause = None,
                () = self.files.advance() => {}
                () = control.resync.notified() => self.live.resync(),
                () = self.title.advance() => {}
            }
        }
        Ok(self.is_interrupted())
    }

    /// Ends the turn on an interrupt: the stream is gone, its tools are stopped, and everything is settled.
    pub(crate) async fn interrupt_turn(&mut self, mut turn: Turn<'r>) -> Result<Next, Stop> {
        self.stop_bodies(&mut turn).await?;
        self.capture_before_end(&mut turn).await?;
        self.write(|rules, draft| rules.interrupted(draft, &turn.said)).await
    }

    /// Ends the turn on an error that no retry helps. Tools that had started run to their ends.
    pub(crate) async fn fail_turn(
        &mut self,
        attempt: &AttemptId,
        mut turn: Turn<'r>,
        error: SessionError,
    ) -> Result<Next, Stop> {
        if self.finish_bodies(&mut turn, Duration::ZERO).await? {
            return self.interrupt_turn(turn).await;
        }
        self.capture_before_end(&mut turn).await?;
        self.write(|rules, draft| rules.failed(draft, attempt, &turn.said, &error)).await
    }

    /// Handles a stream that broke after visible output: keeps the output, and continues it durably.
    pub(crate) async fn cut(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
        error: &LlmError,
    ) -> Result<Next, Stop> {
        let Some(delay) = self.next_delay(error) else {
            return self.fail_turn(&started.attempt, turn, provider_error(error)).await;
        };
        let error = provider_error(error);
        self.write(|rules, draft| rules.cut(draft, &started.attempt, &turn.said, &error)).await?;
        turn.forget_unintended();
        if self.finish_bodies(&mut turn, delay).await? {
            return self.interrupt_turn(turn).await;
        }
        self.settle(turn, TurnOutcome::Cut).await
    }

    /// Tells the bodies to stop, and takes their results within the time limit.
    async fn stop_bodies(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        turn.batch.cancel.cancel();
        let deadline = Instant::now() + self.stage.runtime.settings.stop_tools;
        while !turn.batch.bodies.is_empty() {
            tokio::select! {
                biased;
                () = self.stage.control.fenced.cancelled() => return Err(Stop::Fenced),
                Some(ran) = turn.batch.bodies.next() => {
                    turn.touched(ran.touched);
                    turn.said.done.push(ran.settled);
                }
                () = sleep_until(deadline) => break,
            }
        }
        if !turn.batch.bodies.is_empty() {
            turn.touched(Touched::Anything);
            turn.batch.bodies.clear();
        }
        Ok(())
    }
}
