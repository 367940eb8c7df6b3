//! The writes of a Provider Turn from its first call to its settlement: whole, cut, failed or interrupted.

use std::time::Duration;

use bytes::Bytes;
use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, DrainEnd, DrainOutcome, ErrorCode,
    Finish, NoticeKind, PartId, Permitted, RetryScheduled, SessionError, TextCheckpointed,
    ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolState, TurnId, TurnOutcome,
    TurnReplied,
};
use history::{History, hash_hex};
use llm_protocol::{FinishReason, Usage};

use crate::asks::settle_asked;
use crate::boundary::{Next, TurnPlan, end};
use crate::draft::{Draft, Verdict};
use crate::inbox::{Head, head, waits};
use crate::observed::Observation;
use crate::permission::Judged;
use crate::rules::Rules;
use crate::said::Said;
use crate::settle::{notice, push_done, settle_open_calls, settle_turn, turn_used, used};
use crate::site::Site;
use crate::texts;

/// A call that is the same as so many before it goes in circles.
const MAX_REPEATS: usize = 2;

/// The notice after the model's own reply was cut off.
const CONTINUE: &str = "<notice>The previous response was interrupted before it was complete. \
Continue from where it stopped; do not repeat what was already said or done.</notice>";

/// The notice after an answer without text and calls.
const SILENT: &str = "<notice>The previous response ended without text and without a tool call, so nobody has an answer. \
If work is left, go on with it; if it is done, say so in a sentence.</notice>";

/// The notice after an answer that ends with a call that is written as text.
const CALL_AS_TEXT: &str = "<notice>The previous response ended with a tool call that was written as text, so nothing was \
run. Call the tool itself if the call is meant.</notice>";

/// The notice after a takeover that left the outcome of a call unknown.
const RECOVERED: &str = "<notice>The worker that ran this session stopped, and another one took over. A call whose \
result says that its outcome is unknown may or may not have had its effect: check the workspace first.</notice>";

/// The decision of a reply's write.
#[derive(Debug)]
pub enum Replied {
    /// Nothing is written, because an interrupt must be applied.
    Interrupted,
    /// Nothing is written: input waits at the next boundary, and nobody has looked at the context yet.
    LookFirst,
    /// The provider ended its answer with this error. Nothing is written.
    Refused(SessionError),
    /// Its calls are committed as *started*.
    Calls,
    /// It had no calls: the turn is settled, and the boundary after it crossed.
    Crossed(Next),
}

/// The provider's reason as our word.
fn stored(finish: FinishReason) -> Finish {
    match finish {
        FinishReason::Stop => Finish::Stop,
        FinishReason::Length => Finish::Length,
        FinishReason::ToolCalls => Finish::ToolCalls,
        FinishReason::ContentFilter => Finish::ContentFilter,
        FinishReason::Error => Finish::Error,
        FinishReason::Unknown => Finish::Unknown,
    }
}

/// Returns the error for a complete stream without a usable answer.
fn refusal(finish: FinishReason) -> Option<SessionError> {
    let (code, message) = match finish {
        FinishReason::ContentFilter => (
            ErrorCode::ProviderContentFilter,
            "the provider withheld the answer because of its content policy; rephrase the prompt",
        ),
        FinishReason::Error => {
            (ErrorCode::ProviderUnknown, "the provider ended the answer with an error; try again")
        }
        FinishReason::Stop
        | FinishReason::Length
        | FinishReason::ToolCalls
        | FinishReason::Unknown => return None,
    };
    Some(SessionError { code: code.into(), message: message.into() })
}

/// Returns the error after a second answer in a row that says nothing.
fn silence() -> SessionError {
    SessionError {
        code: ErrorCode::ProviderInvalidOutput.into(),
        message: "the model gave no answer: twice it ended without text and without a call; send the prompt again, or \
                  choose another model"
            .into(),
    }
}

/// Returns the note at a whole answer whose counts cannot be true.
fn miscounted() -> SessionError {
    SessionError {
        code: ErrorCode::ProviderInvalidOutput.into(),
        message: "the provider's count of tokens cannot be true, so it is not believed: the answer is kept, and counts \
                  as no tokens and no cost"
            .into(),
    }
}

/// Drafts the failure of an attempt, and when the next one is sent: after `wait_ms` milliseconds.
fn push_failure(
    draft: &mut Draft<'_>,
    failed: &AttemptStarted,
    usage: Option<Usage>,
    error: &SessionError,
    wait_ms: i64,
) {
    draft.push(AttemptEnded {
        attempt: failed.attempt.clone(),
        turn: failed.turn.clone(),
        outcome: AttemptOutcome::Failed,
        usage: used(failed.pricing.as_ref(), usage),
        error: Some(error.clone()),
    });
    draft.push(RetryScheduled {
        turn: failed.turn.clone(),
        ordinal: failed.ordinal + 1,
        at: draft.now().saturating_add(wait_ms),
        error: error.clone(),
    });
}

impl Rules<'_> {
    /// Handles a complete stream: writes the reply, and without calls also the turn's end.
    pub fn replied(
        &self,
        draft: &mut Draft<'_>,
        attempt: &AttemptId,
        said: &Said,
        observed: &Observation,
    ) -> Verdict<Replied> {
        let finish = said.finish.unwrap_or(FinishReason::Unknown);
        if let Some(error) = refusal(finish) {
            return Verdict::Leave(Replied::Refused(error));
        }
        if self.is_interrupted(draft.history()) {
            return Verdict::Leave(Replied::Interrupted);
        }
        let last = self.is_last_step(draft.history()) && !mutated!(LastStepRuns);
        let is_silent = said.reply.is_silent();
        let writes_call = said.reply.writes_call();
        let asks_again =
            (is_silent || writes_call) && !last && draft.history().silent_replies() == 0;
        if is_silent && !asks_again {
            return Verdict::Leave(Replied::Refused(silence()));
        }
        if !observed.is_seen() && (asks_again || waits(draft.history())) {
            return Verdict::Leave(Replied::LookFirst);
        }
        draft.push(AttemptEnded {
            attempt: attempt.clone(),
            turn: said.turn.clone(),
            outcome: AttemptOutcome::Completed,
            usage: turn_used(draft, said.usage),
            error: said.is_miscounted.then(miscounted),
        });
        let state = if last { ToolState::Intended } else { ToolState::Started };
        if !mutated!(ReplyWithoutIntents) {
            self.push_intents(draft, said, state);
        }
        draft.push(TurnReplied {
            turn: said.turn.clone(),
            message: said.message.clone(),
            parts: self.parts(said, |_| true),
            finish: stored(finish).into(),
        });
        let calls = draft.history().open_turn().is_some_and(|open| !open.calls.is_empty());
        if calls && last {
            // Forbidden calls: no body runs, and the model is not asked again.
            settle_open_calls(draft, &said.turn, ToolOutcomeKind::Failed, texts::LAST_STEP);
        } else if calls {
            return Verdict::Write(Replied::Calls, DrainEnd::Keep, Site::Replied);
        }
        settle_turn(draft, said, TurnOutcome::Completed, None);
        if asks_again {
            let text = if is_silent { SILENT } else { CALL_AS_TEXT };
            notice(draft, NoticeKind::Continuation, text);
        }
        self.cross(draft, asks_again, observed).map(Replied::Crossed)
    }

    /// Settles the turn after every body has ended, and crosses the boundary after it. Returns `Leave(None)` without
    /// a write if an interrupt must be applied.
    pub fn settled(
        &self,
        draft: &mut Draft<'_>,
        said: &Said,
        outcome: TurnOutcome,
        observed: &Observation,
    ) -> Verdict<Option<Next>> {
        if self.is_interrupted(draft.history()) {
            return Verdict::Leave(None);
        }
        push_done(draft, said);
        let declined = settle_asked(draft, &said.turn) && !mutated!(DeclineGoesOn);
        if declined && !self.is_steered(draft.history()) {
            // Not even a reply that was cut is continued: that is over which somebody has refused to go on.
            settle_turn(draft, said, TurnOutcome::Completed, None);
            let next = end(draft, DrainOutcome::Interrupted, None);
            return Verdict::Write(Some(next), DrainEnd::Close, Site::Declined);
        }
        let unknown = draft.history().open_turn().is_some_and(has_unknown);
        settle_turn(draft, said, outcome, None);
        if unknown {
            notice(draft, NoticeKind::Recovery, RECOVERED);
        }
        if outcome == TurnOutcome::Cut && !mutated!(CutNotContinued) {
            notice(draft, NoticeKind::Continuation, CONTINUE);
        }
        self.cross(draft, true, observed).map(Some)
    }

    /// Returns whether a prompt joins the work at this boundary.
    fn is_steered(&self, history: &History) -> bool {
        matches!(head(history, true, self.settings.promotion), Head::Prompts(_))
    }

    /// Handles an interrupt of the turn: the stream is gone, its tools are stopped, and everything is settled.
    pub fn interrupted(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<Next> {
        self.end_attempt(draft, said, AttemptOutcome::Interrupted);
        self.close_reply(draft, said, Finish::Interrupted);
        push_done(draft, said);
        let interrupted = ToolOutcomeKind::Interrupted;
        settle_open_calls(draft, &said.turn, interrupted, "interrupted by the user");
        settle_turn(draft, said, TurnOutcome::Interrupted, None);
        let how = Self::interrupted_end(draft.history());
        let next = end(draft, DrainOutcome::Interrupted, None);
        Verdict::Write(next, how, Site::TurnInterrupted)
    }

    /// Handles an error that no retry helps. Tools that had started have run to their ends.
    pub fn failed(
        &self,
        draft: &mut Draft<'_>,
        attempt: &AttemptId,
        said: &Said,
        error: &SessionError,
    ) -> Verdict<Next> {
        draft.push(AttemptEnded {
            attempt: attempt.clone(),
            turn: said.turn.clone(),
            outcome: AttemptOutcome::Failed,
            usage: turn_used(draft, said.usage),
            error: Some(error.clone()),
        });
        self.close_reply(draft, said, Finish::Error);
        push_done(draft, said);
        settle_asked(draft, &said.turn);
        settle_turn(draft, said, TurnOutcome::Failed, Some(error.clone()));
        let next = end(draft, DrainOutcome::Failed, Some(error.clone()));
        let how = if mutated!(FailureParks) { DrainEnd::Park } else { DrainEnd::Close };
        Verdict::Write(next, how, Site::TurnFailed)
    }

    /// Handles a stream that broke after visible output: keeps the output and continues it durably.
    pub fn cut(
        &self,
        draft: &mut Draft<'_>,
        attempt: &AttemptId,
        said: &Said,
        error: &SessionError,
    ) -> Verdict<()> {
        draft.push(AttemptEnded {
            attempt: attempt.clone(),
            turn: said.turn.clone(),
            outcome: AttemptOutcome::Cut,
            usage: if mutated!(UsageForgotten) { None } else { turn_used(draft, said.usage) },
            error: Some(error.clone()),
        });
        self.close_reply(draft, said, Finish::Cut);
        Verdict::Write((), DrainEnd::Keep, Site::Cut)
    }

    /// Writes the failure, the wait and the next attempt's intent at once. `usage` is the failed attempt's.
    pub fn retry(
        &self,
        draft: &mut Draft<'_>,
        failed: &AttemptStarted,
        usage: Option<Usage>,
        error: &SessionError,
        wait: Duration,
    ) -> Verdict<AttemptStarted> {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        push_failure(draft, failed, usage, error, wait_ms);
        let next = AttemptStarted {
            attempt: AttemptId::mint(draft.mint()),
            ordinal: failed.ordinal + 1,
            ..failed.clone()
        };
        draft.push(next.clone());
        Verdict::Write(next, DrainEnd::Keep, Site::Retry)
    }

    /// Writes a refusal of the provider's own state, and the next attempt, whose body has none of the messages so far.
    /// Returns that attempt and its body; nothing if the refused request had no such state. `usage` is the failed
    /// attempt's.
    pub fn retry_without_state(
        &self,
        draft: &mut Draft<'_>,
        plan: &TurnPlan,
        usage: Option<Usage>,
        error: &SessionError,
    ) -> Verdict<Option<(AttemptStarted, Bytes)>> {
        if !draft.history().has_provider_state() {
            return Verdict::Leave(None);
        }
        let failed = &plan.started;
        push_failure(draft, failed, usage, error, 0);
        let through = draft.history().seq();
        let body = draft.history_mut().encode(&plan.components, &plan.turn);
        let next = AttemptStarted {
            attempt: AttemptId::mint(draft.mint()),
            ordinal: failed.ordinal + 1,
            body_hash: hash_hex(&body),
            through,
            ..failed.clone()
        };
        draft.push(next.clone());
        Verdict::Write(Some((next, body.into())), DrainEnd::Keep, Site::RetryWithoutState)
    }

    /// Writes the waiting intents. Returns `true` once bodies may start, and `false` without a write if an interrupt
    /// must be applied.
    pub fn intents(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<bool> {
        if self.is_interrupted(draft.history()) {
            return Verdict::Leave(false);
        }
        self.push_intents(draft, said, ToolState::Started);
        Verdict::Write(true, DrainEnd::Keep, Site::Intents)
    }

    /// Writes results that have waited long enough for their batch.
    pub fn results(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<()> {
        push_done(draft, said);
        draft.progress();
        Verdict::Write((), DrainEnd::Keep, Site::Results)
    }

    /// Writes text of a running stream, each piece with the number of bytes before it in its part.
    pub fn checkpoint(
        &self,
        draft: &mut Draft<'_>,
        turn: &TurnId,
        unkept: &[(PartId, usize, String)],
    ) -> Verdict<()> {
        for (part, offset, text) in unkept {
            let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
            let (turn, part, text) = (turn.clone(), part.clone(), text.clone());
            draft.push(TextCheckpointed { turn, part, offset, text });
        }
        if mutated!(CheckpointIsProgress) {
            draft.progress();
        }
        Verdict::Write((), DrainEnd::Keep, Site::TextKept)
    }

    /// Drafts the waiting intents. With the state *started*, a body may run once they are committed.
    fn push_intents(&self, draft: &mut Draft<'_>, said: &Said, state: ToolState) {
        for intent in &said.unintended {
            let metadata = intent.metadata.clone().filter(|_| self.settings.provider_state);
            let refused = self.refusal(draft.history(), intent).is_some();
            let asked = self.asked(draft.history(), intent);
            let asked = asked.filter(|_| state == ToolState::Started);
            draft.push(ToolCalled {
                turn: said.turn.clone(),
                message: said.message.clone(),
                // A refused call has no body.
                class: if refused { ToolClass::Pure } else { self.tools.class(&intent.tool) },
                intent: ToolIntent { metadata, ..intent.clone() },
                state: if asked.is_some() { ToolState::Asked } else { state },
            });
            if let Some(asked) = asked {
                self.ask(draft, &said.turn, &intent.call, asked);
            }
        }
    }
}

impl Rules<'_> {
    /// Returns the skills that calls of the open turn may load: those of its agent, which the turn keeps.
    #[must_use]
    pub fn loadable_skills(&self, history: &History) -> &Permitted {
        self.turn_agent(history).1.map_or(Permitted::NOTHING, |agent| &agent.skills)
    }

    /// Returns why a call of the open turn may not run: its agent, which the turn keeps, may not use the tool, or a rule
    /// of the session refuses the call. An unknown tool is not refused, because it has no body.
    #[must_use]
    pub fn refusal(&self, history: &History, intent: &ToolIntent) -> Option<String> {
        match self.judged(history, intent) {
            Judged::Refuse(why) => Some(why),
            Judged::Run | Judged::Ask(_) => None,
        }
    }

    /// Judges a call of the open turn by its agent and the rules, without what people have answered or saved.
    pub(crate) fn judged(&self, history: &History, intent: &ToolIntent) -> Judged {
        let ToolIntent { tool, arguments, .. } = intent;
        if !self.tools.classes.contains_key(tool) {
            return Judged::Run;
        }
        let (name, agent) = self.turn_agent(history);
        let may = agent.map_or(Permitted::NOTHING, |agent| &agent.tools);
        let rules = self.layers(history);
        if may.allows(tool) {
            let judged = rules.judge(tool, arguments, history.directory());
            if history.repeats(intent, MAX_REPEATS) < MAX_REPEATS {
                return judged;
            }
            return rules.judge_circle(tool, judged);
        }
        let tools: Vec<_> = self.tools.offered(may, rules).map(|tool| tool.name.as_str()).collect();
        let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
        Judged::Refuse(format!(
            "the agent {name} may not use {tool}; the tools that it may use: {tools}"
        ))
    }
}

/// Returns whether a takeover settled a call with an unknown outcome.
fn has_unknown(open: &history::OpenTurn) -> bool {
    open.calls.iter().any(|(_, call)| {
        call.settled.as_ref().is_some_and(|settled| settled.outcome == ToolOutcomeKind::Unknown)
    })
}
