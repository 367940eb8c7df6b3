//! How a Provider Turn ends: whole, cut, failed or interrupted, with all its calls settled.

use std::time::Duration;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CallId, DrainOutcome, MessageId,
    NoticeKind, NoticeRecorded, SessionError, ToolOutcomeKind, TurnId, TurnOutcome, TurnReplied,
    TurnSettled, TurnUsage,
};
use futures::StreamExt;
use llm_client::LlmError;
use llm_protocol::{FinishReason, Usage};
use store::DrainEnd;
use tokio::time::{Instant, sleep_until};

use crate::boundary::end;
use crate::control::interrupted_after;
use crate::draft::{Draft, Verdict};
use crate::drain::{Drain, Next, Stop};
use crate::reply::storable;
use crate::toolbox::settled_as;
use crate::turn::{Said, Turn, at};

/// What the model is told after its own reply was cut off.
const CONTINUE: &str = "<notice>The previous response was interrupted before it was complete. \
Continue from where it stopped; do not repeat what was already said or done.</notice>";

pub(crate) fn token_usage(usage: Usage) -> TurnUsage {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    TurnUsage {
        input: count(usage.input_tokens),
        output: count(usage.output_tokens),
        reasoning: count(usage.reasoning_tokens),
        cache_read: count(usage.cache_read_tokens),
        cache_write: count(usage.cache_write_tokens),
    }
}

pub(crate) fn provider_error(error: &LlmError) -> SessionError {
    SessionError {
        code: error.reason.code().to_owned(),
        message: storable(&error.to_string()).into_owned(),
    }
}

/// What a reply's write decided.
enum Replied<'r> {
    Interrupted,
    /// Its calls are committed as *started*.
    Calls,
    /// It had none: the turn is settled, and the boundary behind it crossed.
    Crossed(Next<'r>),
}

impl<'r> Drain<'r> {
    /// The stream ended as it should: commits the reply, and without calls the turn's end with it.
    pub(crate) async fn replied(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
    ) -> Result<Next<'r>, Stop> {
        let finish = turn.said.finish.unwrap_or(FinishReason::Unknown);
        match finish {
            FinishReason::ContentFilter | FinishReason::Error => {
                let filtered = finish == FinishReason::ContentFilter;
                let error = SessionError {
                    code: if filtered { "provider.content-filter" } else { "provider.unknown" }.into(),
                    message: if filtered {
                        "the provider withheld the answer because of its content policy; rephrase the prompt"
                    } else {
                        "the provider ended the answer with an error; try again"
                    }
                    .into(),
                };
                return self.fail_turn(&started.attempt, turn, error).await;
            }
            FinishReason::Stop
            | FinishReason::Length
            | FinishReason::ToolCalls
            | FinishReason::Unknown => {}
        }
        let observed = self.observe().await;
        let replied = self
            .write(|stage, draft| {
                if stage.is_interrupted(draft.history()) {
                    return Verdict::Leave(Replied::Interrupted);
                }
                draft.push(AttemptEnded {
                    attempt: started.attempt.clone(),
                    turn: turn.said.turn.clone(),
                    outcome: AttemptOutcome::Completed,
                    usage: turn.said.usage.map(token_usage),
                    error: None,
                });
                stage.draft_intents(draft, &turn.said);
                draft.push(TurnReplied {
                    turn: turn.said.turn.clone(),
                    message: turn.said.message.clone(),
                    parts: turn.said.reply.parts(|_| true),
                    finish: finish.as_str().to_owned(),
                });
                if draft.history().open_turn().is_some_and(|open| !open.calls.is_empty()) {
                    return Verdict::Write(Replied::Calls, DrainEnd::Keep);
                }
                settle_turn(draft, &turn.said, TurnOutcome::Completed, None);
                stage.cross(draft, false, &observed).map(Replied::Crossed)
            })
            .await?;
        match replied {
            Replied::Interrupted => self.interrupt_turn(turn).await,
            Replied::Crossed(next) => {
                self.failures = 0;
                self.written(&next);
                Ok(next)
            }
            Replied::Calls => {
                self.failures = 0;
                self.start_intended(&mut turn);
                self.settle(turn, TurnOutcome::Completed).await
            }
        }
    }

    /// Waits for the turn's bodies, then settles it and goes on to the next boundary.
    pub(crate) async fn settle(
        &mut self,
        mut turn: Turn<'r>,
        outcome: TurnOutcome,
    ) -> Result<Next<'r>, Stop> {
        if self.finish_bodies(&mut turn, Duration::ZERO).await? {
            return self.interrupt_turn(turn).await;
        }
        let observed = self.observe().await;
        let next = self
            .write(|stage, draft| {
                if stage.is_interrupted(draft.history()) {
                    return Verdict::Leave(None);
                }
                turn.said.draft_done(draft);
                let unknown = draft.history().open_turn().is_some_and(has_unknown);
                settle_turn(draft, &turn.said, outcome, None);
                if unknown {
                    notice(draft, NoticeKind::Recovery, RECOVERED);
                }
                if outcome == TurnOutcome::Cut {
                    notice(draft, NoticeKind::Continuation, CONTINUE);
                }
                stage.cross(draft, true, &observed).map(Some)
            })
            .await?;
        let Some(next) = next else { return self.interrupt_turn(turn).await };
        self.written(&next);
        Ok(next)
    }

    /// Runs the bodies to their ends and lets `pause` pass, committing results that wait too long. True:
    /// interrupted.
    pub(crate) async fn finish_bodies(
        &mut self,
        turn: &mut Turn<'r>,
        pause: Duration,
    ) -> Result<bool, Stop> {
        let delay = self.stage.runtime.settings.result_delay;
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
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
                Some(done) = turn.batch.bodies.next() => turn.finished(done, delay),
                () = at(turn.batch.commit_at) => self.commit_results(turn).await?,
                () = at(pause) => pause = None,
                () = control.resync.notified() => self.live.resync(),
            }
        }
        Ok(self.is_interrupted())
    }

    /// Ends the turn on an interrupt: the stream is gone, its tools are stopped, all is settled.
    pub(crate) async fn interrupt_turn(&mut self, mut turn: Turn<'r>) -> Result<Next<'r>, Stop> {
        self.stop_bodies(&mut turn).await?;
        self.write(|_, draft| {
            end_attempt(draft, &turn.said, AttemptOutcome::Interrupted, None);
            close_reply(draft, &turn.said, "interrupted");
            turn.said.draft_done(draft);
            let interrupted = ToolOutcomeKind::Interrupted;
            settle_open_calls(draft, &turn.said.turn, interrupted, "interrupted by the user");
            settle_turn(draft, &turn.said, TurnOutcome::Interrupted, None);
            end(draft, DrainOutcome::Interrupted, None, DrainEnd::Close)
        })
        .await
    }

    /// Ends the turn on an error that no retry will help. Tools that had started run to their ends.
    pub(crate) async fn fail_turn(
        &mut self,
        attempt: &AttemptId,
        mut turn: Turn<'r>,
        error: SessionError,
    ) -> Result<Next<'r>, Stop> {
        if self.finish_bodies(&mut turn, Duration::ZERO).await? {
            return self.interrupt_turn(turn).await;
        }
        self.write(|_, draft| {
            draft.push(AttemptEnded {
                attempt: attempt.clone(),
                turn: turn.said.turn.clone(),
                outcome: AttemptOutcome::Failed,
                usage: turn.said.usage.map(token_usage),
                error: Some(error.clone()),
            });
            close_reply(draft, &turn.said, "error");
            turn.said.draft_done(draft);
            settle_turn(draft, &turn.said, TurnOutcome::Failed, Some(error.clone()));
            end(draft, DrainOutcome::Failed, Some(error.clone()), DrainEnd::Close)
        })
        .await
    }

    /// The stream broke after visible output: keeps what came, and continues durably.
    pub(crate) async fn cut(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
        error: &LlmError,
    ) -> Result<Next<'r>, Stop> {
        let Some(delay) = self.next_delay(error) else {
            return self.fail_turn(&started.attempt, turn, provider_error(error)).await;
        };
        self.write(|_, draft| {
            draft.push(AttemptEnded {
                attempt: started.attempt.clone(),
                turn: turn.said.turn.clone(),
                outcome: AttemptOutcome::Cut,
                usage: turn.said.usage.map(token_usage),
                error: Some(provider_error(error)),
            });
            close_reply(draft, &turn.said, "cut");
            Verdict::Write((), DrainEnd::Keep)
        })
        .await?;
        turn.forget_unintended();
        if self.finish_bodies(&mut turn, delay).await? {
            return self.interrupt_turn(turn).await;
        }
        self.settle(turn, TurnOutcome::Cut).await
    }

    /// Tells the bodies to stop and takes what they still say within the time for it.
    async fn stop_bodies(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        turn.batch.cancel.cancel();
        let deadline = Instant::now() + self.stage.runtime.settings.stop_tools;
        while !turn.batch.bodies.is_empty() {
            tokio::select! {
                biased;
                () = self.stage.control.fenced.cancelled() => return Err(Stop::Fenced),
                Some(done) = turn.batch.bodies.next() => turn.said.done.push(done),
                () = sleep_until(deadline) => break,
            }
        }
        turn.batch.bodies.clear();
        Ok(())
    }
}

/// What the model is told after a takeover that left the outcome of a call unknown.
const RECOVERED: &str = "<notice>The worker that ran this session stopped, and another one took over. A call whose \
result says that its outcome is unknown may or may not have had its effect: check the workspace first.</notice>";

/// Whether a takeover settled a call without knowing its outcome.
fn has_unknown(open: &history::OpenTurn) -> bool {
    open.calls.iter().any(|(_, call)| {
        call.settled.as_ref().is_some_and(|settled| settled.outcome == ToolOutcomeKind::Unknown)
    })
}

/// Adds a text of ours that the model will see.
fn notice(draft: &mut Draft<'_>, kind: NoticeKind, text: &str) {
    let message = MessageId::mint(draft.mint());
    draft.push(NoticeRecorded { message, kind, text: text.to_owned() });
}

/// Ends the attempt that is open, if one is.
pub(crate) fn end_attempt(
    draft: &mut Draft<'_>,
    said: &Said,
    outcome: AttemptOutcome,
    error: Option<SessionError>,
) {
    let open = draft.history().open_turn().and_then(|open| open.attempt.clone());
    if let Some(attempt) = open {
        draft.push(AttemptEnded {
            attempt,
            turn: said.turn.clone(),
            outcome,
            usage: said.usage.map(token_usage),
            error,
        });
    }
}

/// What came of a reply that is not whole, without the calls that have no intent.
fn close_reply(draft: &mut Draft<'_>, said: &Said, finish: &str) {
    let Some(open) = draft.history().open_turn() else { return };
    if open.reply.is_some() {
        return;
    }
    let parts = said.reply.parts(|call| open.call(call).is_some());
    if !parts.is_empty() {
        draft.push(TurnReplied {
            turn: said.turn.clone(),
            message: said.message.clone(),
            parts,
            finish: finish.to_owned(),
        });
    }
}

/// Settles every call that has no result.
pub(crate) fn settle_open_calls(
    draft: &mut Draft<'_>,
    turn: &TurnId,
    outcome: ToolOutcomeKind,
    output: &str,
) {
    let open: Vec<CallId> = draft
        .history()
        .open_turn()
        .map(|open| open.calls.iter())
        .into_iter()
        .flatten()
        .filter(|(_, call)| call.settled.is_none())
        .map(|(id, _)| id.clone())
        .collect();
    let now = draft.now();
    for call in open {
        draft.push(settled_as(turn.clone(), call, outcome, output, now));
    }
}

/// Settles the turn; every call of it has its result.
pub(crate) fn settle_turn(
    draft: &mut Draft<'_>,
    said: &Said,
    outcome: TurnOutcome,
    error: Option<SessionError>,
) {
    debug_assert!(draft.history().open_turn().is_none_or(history::OpenTurn::is_settled));
    let usage = draft.history().open_turn().map(|open| open.usage).unwrap_or_default();
    draft.push(TurnSettled {
        turn: said.turn.clone(),
        message: said.message.clone(),
        outcome,
        usage,
        error,
    });
    draft.progress();
}
