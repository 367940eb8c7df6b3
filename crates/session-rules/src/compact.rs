//! A Compaction: a request for a summary of the conversation, which then replaces the older part in a new epoch.
//!
//! Invariants: its request is the conversation's next one with a last message of ours, so that the provider's cache
//! serves it, or a smaller one if that would not fit; the summary and the epoch that it begins are one write; any
//! other outcome leaves the model's view unchanged.
//!
//! Long because the choice of a request, the judgement of its answer and the next smaller request decide on one
//! state.

use std::borrow::Cow;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CompactionEnded, CompactionReason,
    CompactionReminded, CompactionStarted, DrainEnd, DrainOutcome, EpochReason, EpochStarted,
    ErrorCode, MessageId, ModelRef, NoticeKind, Seq, SessionError, SideOutcome, SummaryScope,
    TurnId,
};
use history::{Components, History, OpenCompaction, PendingControl, checkpoint_text, hash_hex};
use llm_protocol::{FinishReason, ToolChoice};

use crate::agents::Agent;
use crate::begin::{Sampled, begin_compaction, boundary_failed, first_attempt, in_circles};
use crate::boundary::{Next, TurnPlan, end, hand_over};
use crate::controls::deliver;
use crate::draft::{Draft, Verdict};
use crate::estimate;
use crate::leave_out::wants_word;
use crate::limits::{LEAST_ANSWER, Limits, MetLimits};
use crate::models::ResolvedModel;
use crate::observed::{Observation, next_epoch};
use crate::revert::commit_revert;
use crate::rules::Rules;
use crate::said::Said;
use crate::scope::{Budget, scope};
use crate::settle::{notice, settle_overflowed, turn_used, used};
use crate::site::Site;
use crate::tail::{Tail, tail};
use crate::texts;

/// The fewest tokens of a summary, however small the model is.
const LEAST_SUMMARY: u64 = 64;
/// Tokens of the text around a summary in its checkpoint, and of the mark that it was cut.
const CHECKPOINT_TEXT: u64 = 64;

/// The result of an answer to the request for a summary.
#[derive(Debug)]
pub enum Compacted {
    /// Nothing is written, because an interrupt must be applied.
    Interrupted,
    /// It was no summary, and is requested once more.
    Again(Box<TurnPlan>),
    /// The Compaction has ended, and the boundary after it was crossed.
    Crossed(Next),
}

/// The reason and the history of a Compaction to begin.
pub(crate) struct Wanted {
    pub(crate) reason: CompactionReason,
    pub(crate) input: Option<MessageId>,
    pub(crate) continuing: bool,
    pub(crate) cause: Option<SessionError>,
    /// The estimated tokens of the refused request: the turn's, or the last one for the same summary.
    pub(crate) refused: Option<u64>,
    /// The number of refused requests for the same summary.
    pub(crate) refusals: u32,
}

impl Wanted {
    fn new(reason: CompactionReason, continuing: bool) -> Self {
        Self { reason, input: None, continuing, cause: None, refused: None, refusals: 0 }
    }

    /// Returns the reason that the next request would be too large.
    pub(crate) fn auto() -> Self {
        Self::new(CompactionReason::Auto, true)
    }

    /// Returns the same Compaction again, for the part that is not done.
    fn again(open: &OpenCompaction) -> Self {
        let started = &open.side.started;
        Self {
            input: started.input.clone(),
            cause: started.cause.clone(),
            ..Self::new(started.reason, started.continuing)
        }
    }
}

/// The most smaller requests for the same summary after refusals as too large. Each has half the tokens of the one
/// before.
const MAX_REFUSALS: u32 = 4;
/// The Compactions in a row that fail before the oldest exchanges leave the view without a summary.
const MAX_FAILED: u32 = 2;
/// The most Compactions for a turn whose request was refused as too large, with those that failed. Each time that request
/// must have become smaller.
const MAX_OVERFLOWS: u32 = 3;

/// The fewest tokens of messages of which a refusal in unknown words may mean that they are too many.
const LEAST_SUSPECT: u64 = 1_000;

/// The judgement of an answer to the request for a summary.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Summary,
    /// Something else, which is worth one reminder.
    Other,
    /// An answer that another request would not improve.
    Refused(SessionError),
}

fn judge(finish: FinishReason, text: &str) -> Answer {
    let why = match finish {
        FinishReason::Length if mutated!(CutSummaryTaken) => return Answer::Summary,
        FinishReason::Length => "it was cut at the model's limit of output",
        FinishReason::ContentFilter => "the provider withheld it",
        FinishReason::Error => "the provider ended it with an error",
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Unknown => {
            let is_summary = text.lines().any(|line| line.starts_with(texts::SUMMARY_HEADING));
            return if is_summary || mutated!(AnySummaryTaken) {
                Answer::Summary
            } else {
                Answer::Other
            };
        }
    };
    Answer::Refused(failed(why))
}

pub(crate) fn failed(why: &str) -> SessionError {
    SessionError {
        code: ErrorCode::SessionCompactionFailed.into(),
        message: format!(
            "the model did not summarise the conversation: {why}; try again, or choose another model"
        ),
    }
}

fn nothing_to_compact() -> SessionError {
    SessionError {
        code: ErrorCode::SessionNothingToCompact.into(),
        message: "there is nothing to compact yet: send a prompt first".into(),
    }
}

/// Returns the error of a Compaction that was interrupted or lost its worker.
fn interrupted(message: &str) -> SessionError {
    SessionError { code: ErrorCode::SessionCompactionInterrupted.into(), message: message.into() }
}

impl Rules<'_> {
    /// Returns the tail that a Compaction would keep. `working`: the model has something to answer.
    pub(crate) fn tail(&self, history: &History, limits: Limits, working: bool) -> Tail {
        let settings = &self.settings.compaction;
        let share = limits.share();
        let keep = settings.keep.min(share);
        let mut tail = tail(history.conversation(), history.view(), keep, working);
        if !settings.cuts || mutated!(PromptNotKept) {
            tail.summarised += tail.kept.len();
            tail.kept.clear();
        }
        // A summary made for a larger model may itself be too large.
        let is_large = |checkpoint| settings.cuts && estimate::text(checkpoint) > share;
        tail.summarised += usize::from(history.view().checkpoint().is_some_and(is_large));
        tail
    }

    /// Returns the limits of a model, with those that its session has met.
    pub(crate) fn limits(
        &self,
        history: &History,
        model: &ResolvedModel,
        refused: Option<u64>,
    ) -> Limits {
        let met = MetLimits::read_from(history, &model.entry, refused);
        Limits::choose_for(&self.settings.compaction, &model.entry, met)
    }

    /// Acts on a control for a Compaction. Returns `None` if the control is settled.
    pub(crate) fn compact(
        &self,
        draft: &mut Draft<'_>,
        control: &PendingControl,
        continuing: bool,
        observed: &Observation,
    ) -> Option<TurnPlan> {
        let message = control.message.clone();
        // It concerns the remaining conversation: reverted text must not come back in a summary.
        commit_revert(draft);
        deliver(draft, &message, None);
        let reason = CompactionReason::Manual;
        let wanted = Wanted { input: Some(message), ..Wanted::new(reason, continuing) };
        let history = draft.history();
        // Not requested if the result could not be used.
        let can = observed.replace(history, &self.skills(history, observed)).map(|_| ());
        let is_empty = || history.view().since(history.conversation(), 0).next().is_none();
        let refused = match can.and_then(|()| self.sample(history)) {
            Err(_) if is_empty() => nothing_to_compact(),
            Err(error) => error,
            Ok(sampled) => {
                let limits = self.limits(history, &sampled.model, None);
                if self.tail(history, limits, continuing).summarised > 0 {
                    return Some(self.start_compaction(draft, wanted, sampled));
                }
                nothing_to_compact()
            }
        };
        let model = draft.history().model().unwrap_or(&self.models.default).clone();
        let keep_from = Seq(draft.history().seq().0 + 1);
        let scope = SummaryScope::default();
        push_started(draft, wanted, model, String::new(), (keep_from, scope));
        end_compaction(draft, SideOutcome::Failed, None, Some(refused));
        None
    }

    /// Drafts a Compaction and its first request.
    pub(crate) fn start_compaction(
        &self,
        draft: &mut Draft<'_>,
        wanted: Wanted,
        sampled: Sampled<'_>,
    ) -> TurnPlan {
        let Sampled { agent, model: resolved } = sampled;
        let history = draft.history();
        let limits = self.limits(history, &resolved, wanted.refused);
        let earlier = history.view().checkpoint().is_some();
        let prompt = if earlier { texts::SUMMARY_UPDATE } else { texts::SUMMARY }.to_owned();
        let asks = estimate::text(&prompt);
        let (keep_from, scope) = self.scope(history, &wanted, limits, agent, asks);
        let (tokens, is_cut) = (scope.tokens, scope.cut.is_some());
        let scope = if self.settings.compaction.cuts { scope } else { SummaryScope::default() };
        let reference = resolved.reference.clone();
        let (turn, message) = push_started(draft, wanted, reference, prompt, (keep_from, scope));
        let pricing = resolved.pricing(|| tokens);
        let components = self.summary_components(draft.history(), agent, &resolved, limits, is_cut);
        let (started, body) = first_attempt(draft, &turn, &components, pricing);
        TurnPlan {
            turn,
            message,
            started,
            model: resolved.reference,
            components,
            body,
            title: None,
        }
    }

    /// Returns the part of the conversation that the request for its summary shows.
    fn scope(
        &self,
        history: &History,
        wanted: &Wanted,
        limits: Limits,
        agent: &Agent,
        asks: u64,
    ) -> (Seq, SummaryScope) {
        let cuts = self.settings.compaction.cuts && !mutated!(SummaryNotCut);
        let tail = self.tail(history, limits, wanted.continuing);
        let budget = Budget {
            whole: self.size(history, agent) + asks,
            asks,
            most: Some(limits.summary).filter(|_| cuts),
            is_refused: wanted.refused.is_some(),
        };
        let (keep_from, scope) = scope(history, &tail, budget);
        let Wanted { refused, refusals, .. } = *wanted;
        (keep_from, SummaryScope { refused, refusals, ..scope })
    }

    /// Returns the parts of a request for a summary besides the conversation. With `is_cut` it shows a transcript,
    /// which needs neither tools nor the agent's instructions.
    fn summary_components(
        &self,
        history: &History,
        agent: &Agent,
        model: &ResolvedModel,
        limits: Limits,
        is_cut: bool,
    ) -> Components {
        let mut components = self.components(history, agent, model, ToolChoice::Auto);
        // Providers count the allowed answer as part of the request.
        let free = limits.hard - limits.summary.min(limits.hard);
        let most = &mut components.generation.max_tokens;
        *most = most.map(|most| most.min(free.max(LEAST_ANSWER)));
        if is_cut {
            components.tools.clear();
            texts::SUMMARY_SYSTEM.clone_into(&mut components.agent);
        }
        components
    }

    /// Returns whether a request of so many tokens, which `model` refused in words that nobody knows, may have been too
    /// large for it: it is near the largest that the model completed, or larger.
    fn may_be_too_large(&self, history: &History, model: &ModelRef, tokens: u64) -> bool {
        let accepted = history.accepted(&model.provider, &model.model);
        self.settings.compaction.cuts
            && tokens >= accepted - accepted / 5
            && estimate::messages(history) >= LEAST_SUSPECT
    }

    /// Handles a turn's request that the provider refused, without visible output: settles the turn and begins a
    /// Compaction. Returns `Leave(None)` without a write if the turn must fail. `error` says that the request is too
    /// large, or is a refusal in other words, which may hide that: then one Compaction is tried.
    pub fn overflowed(
        &self,
        draft: &mut Draft<'_>,
        attempt: &AttemptId,
        said: &Said,
        error: &SessionError,
        observed: &Observation,
    ) -> Verdict<Option<Next>> {
        let history = draft.history();
        let Ok(sampled) = self.sample(history) else { return Verdict::Leave(None) };
        let settings = &self.settings.compaction;
        let squeeze = history.squeeze();
        let size = self.size(history, sampled.agent);
        let limits = self.limits(history, &sampled.model, Some(size));
        let rests = settings.cuts && history.failed_summaries().rest(size);
        let is_said = error.code == ErrorCode::ProviderContextOverflow;
        let is_guess_good = || {
            squeeze.overflows == 0
                && squeeze.refused.is_none()
                && !rests
                && self.may_be_too_large(history, &sampled.model.reference, size)
        };
        let called = history.open_turn().is_some_and(|open| !open.calls.is_empty());
        let most = if settings.cuts { MAX_OVERFLOWS } else { 1 };
        let shrinks = squeeze.overflows < most && squeeze.refused.is_none_or(|last| size < last);
        let helps = settings.auto
            && (is_said || is_guess_good())
            && (shrinks || mutated!(OverflowForEver))
            && self.tail(history, limits, true).summarised > 0
            && !called
            && !said.is_visible()
            && !self.is_interrupted(history)
            && observed.replace(history, &self.skills(history, observed)).is_ok();
        if !helps {
            return Verdict::Leave(None);
        }
        draft.push(AttemptEnded {
            attempt: attempt.clone(),
            turn: said.turn.clone(),
            outcome: AttemptOutcome::Failed,
            usage: turn_used(draft, said.usage),
            error: Some(error.clone()),
        });
        settle_overflowed(draft, said, error.clone());
        if let Some(circle) = squeeze.circle().filter(|_| !mutated!(CirclesGoOn)) {
            return boundary_failed(draft, in_circles(circle, limits)).map(Some);
        }
        if rests && self.leave_out(draft, Some(size), observed).is_ok() {
            return self.go_on(draft, observed).map(Some);
        }
        let reason = CompactionReason::Overflow;
        let wanted = Wanted {
            cause: Some(error.clone()),
            refused: Some(size).filter(|_| settings.cuts),
            ..Wanted::new(reason, true)
        };
        let plan = self.start_compaction(draft, wanted, sampled);
        Verdict::Write(Some(Next::Compact(Box::new(plan))), DrainEnd::Keep, Site::Overflowed)
    }

    /// Handles a complete answer: writes the summary and its epoch, or a reminder, or a failure.
    pub fn summarised(
        &self,
        draft: &mut Draft<'_>,
        plan: &TurnPlan,
        said: &Said,
        observed: &Observation,
    ) -> Verdict<Compacted> {
        if self.is_interrupted(draft.history()) {
            return Verdict::Leave(Compacted::Interrupted);
        }
        let Some(open) = draft.history().compacting().cloned() else {
            return self.cross(draft, true, observed).map(Compacted::Crossed);
        };
        let text = said.reply.text_so_far();
        let answer = judge(said.finish.unwrap_or(FinishReason::Unknown), &text);
        let refused = match answer {
            Answer::Summary => None,
            Answer::Other
                if open.reminded.is_none() && is_fresh(draft.history(), &open)
                    || mutated!(RemindedAgain) =>
            {
                let agent = self.settings.agents.get(&open.side.started.agent);
                let model = self.models.resolve(Some(&plan.model));
                match agent.and_then(|agent| Ok((agent, model?))) {
                    Ok((agent, model)) => {
                        let next = self.remind(draft, plan, said, agent, &model, text);
                        let next = Compacted::Again(Box::new(next));
                        return Verdict::Write(next, DrainEnd::Keep, Site::CompactionReminded);
                    }
                    Err(error) => Some(error),
                }
            }
            Answer::Other => Some(failed("its answer is none, even after a reminder")),
            Answer::Refused(error) => Some(error),
        };
        let (outcome, error) = match &refused {
            None => (AttemptOutcome::Completed, None),
            Some(error) => (AttemptOutcome::Failed, Some(error.clone())),
        };
        draft.push(AttemptEnded {
            attempt: plan.started.attempt.clone(),
            turn: plan.turn.clone(),
            outcome,
            usage: used(plan.started.pricing.as_ref(), said.usage),
            error,
        });
        let fresh = match refused {
            None => observed
                .replace(draft.history(), &self.skills(draft.history(), observed))
                .and_then(|first| Ok((first, next_epoch(draft.history())?))),
            Some(error) => Err(error),
        };
        let next = match fresh {
            Ok((first, epoch)) => {
                let sampled = self.sample(draft.history());
                let limits =
                    sampled.as_ref().ok().map(|of| self.limits(draft.history(), &of.model, None));
                let text = bounded_summary(&text, limits);
                let checkpoint = checkpoint_text(&text);
                end_compaction(draft, SideOutcome::Completed, Some(checkpoint), None);
                if mutated!(SummaryWithoutEpoch) {
                    return self.cross(draft, true, observed).map(Compacted::Crossed);
                }
                let snapshot = first.snapshot.text();
                draft.push(EpochStarted {
                    epoch,
                    baseline: first.baseline,
                    snapshot,
                    reason: Some(EpochReason::Compaction),
                });
                draft.progress();
                let scope = &open.side.started.scope;
                if wants_word(draft.history(), scope) && !mutated!(NotToldToGoOn) {
                    notice(draft, NoticeKind::Continuation, texts::GO_ON);
                }
                match open.side.started.reason {
                    CompactionReason::Manual if scope.is_piece && !self.stopping => match sampled {
                        Ok(sampled) => {
                            let wanted = Wanted::again(&open);
                            begin_compaction(self.start_compaction(draft, wanted, sampled))
                        }
                        Err(_) => self.cross(draft, open.side.started.continuing, observed),
                    },
                    CompactionReason::Manual => {
                        let forgets = mutated!(ContinuingForgotten);
                        self.cross(draft, open.side.started.continuing && !forgets, observed)
                    }
                    // The turn that needed it continues, and no input joins it.
                    CompactionReason::Auto | CompactionReason::Overflow if self.stopping => {
                        hand_over(draft)
                    }
                    CompactionReason::Auto | CompactionReason::Overflow => {
                        self.go_on(draft, observed)
                    }
                }
            }
            Err(error) => self.end_failed(draft, &open, error, observed),
        };
        next.map(Compacted::Crossed)
    }

    /// Handles an error of the request for a summary that no retry helps.
    pub fn compaction_failed(
        &self,
        draft: &mut Draft<'_>,
        plan: &TurnPlan,
        said: &Said,
        error: &SessionError,
        observed: &Observation,
    ) -> Verdict<Next> {
        let Some(open) = draft.history().compacting().cloned() else {
            return self.cross(draft, true, observed);
        };
        draft.push(AttemptEnded {
            attempt: plan.started.attempt.clone(),
            turn: plan.turn.clone(),
            outcome: AttemptOutcome::Failed,
            usage: used(plan.started.pricing.as_ref(), said.usage),
            error: Some(error.clone()),
        });
        let refused = &open.side.started;
        // The turn was refused in such words too, or the summary is as large as what was.
        let is_guess = refused.cause.is_some()
            || self.may_be_too_large(draft.history(), &refused.model, refused.scope.tokens);
        let is_too_large = error.code == ErrorCode::ProviderContextOverflow
            || error.code == ErrorCode::ContextTooLarge
            || (error.code == ErrorCode::ProviderInvalidRequest && is_guess);
        let error = of_summary(error, said);
        if is_too_large && let Some(plan) = self.shrink(draft, &open, &error) {
            return Verdict::Write(plan, DrainEnd::Keep, Site::CompactionShrunk);
        }
        self.end_failed(draft, &open, error, observed)
    }

    /// Follows a refused request for a summary with a smaller one, within bounds.
    fn shrink(
        &self,
        draft: &mut Draft<'_>,
        open: &OpenCompaction,
        error: &SessionError,
    ) -> Option<Next> {
        let before = &open.side.started.scope;
        let may = self.settings.compaction.cuts
            && before.tokens > 0
            && (before.refusals < MAX_REFUSALS || mutated!(ShrunkForEver))
            && (before.refusals > 0 || is_fresh(draft.history(), open))
            && !self.stopping
            && !self.is_interrupted(draft.history());
        let sampled = self.sample(draft.history()).ok().filter(|_| may)?;
        end_compaction(draft, SideOutcome::Failed, None, Some(error.clone()));
        let (refused, refusals) = (Some(before.tokens), before.refusals + 1);
        let wanted = Wanted { refused, refusals, ..Wanted::again(open) };
        Some(Next::Compact(Box::new(self.start_compaction(draft, wanted, sampled))))
    }

    /// Handles an interrupt of the Compaction, whose stream is gone.
    pub fn compaction_cancelled(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<Next> {
        let error = interrupted("Compaction cancelled");
        self.close_compaction(draft, Some(said), SideOutcome::Cancelled, Some(error));
        let how = Self::interrupted_end(draft.history());
        let next = end(draft, DrainOutcome::Interrupted, None);
        Verdict::Write(next, how, Site::CompactionCancelled)
    }

    /// Settles a Compaction that an earlier owner left. Returns whether the model must answer results after it.
    pub(crate) fn lose_compaction(&self, draft: &mut Draft<'_>) -> Option<bool> {
        if mutated!(CompactionLeftOpen) {
            return None;
        }
        let continuing = draft.history().compacting()?.side.started.continuing;
        let error = interrupted("the worker that compacted the conversation stopped");
        self.close_compaction(draft, None, SideOutcome::Lost, Some(error));
        Some(continuing)
    }

    /// Handles a failed Compaction. A requested one just fails. For one that came by itself, what still fits goes on;
    /// what does not is tried once more, within the Compactions that a refused turn gets. After the second failure in a
    /// row the oldest exchanges leave the view.
    fn end_failed(
        &self,
        draft: &mut Draft<'_>,
        open: &OpenCompaction,
        error: SessionError,
        observed: &Observation,
    ) -> Verdict<Next> {
        end_compaction(draft, SideOutcome::Failed, None, Some(error.clone()));
        let started = &open.side.started;
        if mutated!(EpochAfterFailure) {
            let (epoch, snapshot) = (started.epoch + 1, "{}".to_owned());
            draft.push(EpochStarted { epoch, baseline: String::new(), snapshot, reason: None });
        }
        if started.reason == CompactionReason::Manual {
            return self.cross(draft, started.continuing, observed);
        }
        let ends = self.stopping || self.is_interrupted(draft.history());
        let failed = draft.history().failed_summaries().in_a_row;
        // A refusal that only may have meant the size stands as it is, and nothing leaves the view because of it.
        let guessed = started.cause.clone();
        let guessed = guessed.filter(|cause| cause.code != ErrorCode::ProviderContextOverflow);
        let may =
            self.settings.compaction.cuts && !ends && is_of_summary(&error) && guessed.is_none();
        if may && failed >= MAX_FAILED && self.leave_out(draft, None, observed).is_ok() {
            return self.go_on(draft, observed);
        }
        if started.reason == CompactionReason::Auto
            && self.fits(draft.history())
            && !mutated!(FailureBlocksWhatFits)
        {
            if ends {
                return self.cross(draft, true, observed);
            }
            return self.go_on(draft, observed);
        }
        let tries = draft.history().squeeze().overflows;
        let is_last = started.reason == CompactionReason::Overflow && tries >= MAX_OVERFLOWS;
        if may
            && failed < MAX_FAILED
            && (!is_last || mutated!(OverflowForEver))
            && let Ok(sampled) = self.sample(draft.history())
        {
            let refused = draft.history().squeeze().refused;
            let wanted = Wanted { refused, ..Wanted::again(open) };
            return begin_compaction(self.start_compaction(draft, wanted, sampled));
        }
        let next = end(draft, DrainOutcome::Failed, Some(guessed.unwrap_or(error)));
        Verdict::Write(next, DrainEnd::Close, Site::CompactionFailed)
    }

    /// Ends its open attempt, if there is one, and the Compaction.
    fn close_compaction(
        &self,
        draft: &mut Draft<'_>,
        said: Option<&Said>,
        outcome: SideOutcome,
        error: Option<SessionError>,
    ) {
        let Some(open) = draft.history().compacting().cloned() else { return };
        if let Some(attempt) = open.side.attempt {
            let cancelled = outcome == SideOutcome::Cancelled;
            draft.push(AttemptEnded {
                attempt,
                turn: open.side.started.turn.clone(),
                outcome: if cancelled { AttemptOutcome::Interrupted } else { AttemptOutcome::Lost },
                usage: used(open.side.pricing.as_deref(), said.and_then(|said| said.usage)),
                error: None,
            });
        }
        end_compaction(draft, outcome, None, error);
    }

    /// Writes the answer, the reminder, and the next request.
    fn remind(
        &self,
        draft: &mut Draft<'_>,
        plan: &TurnPlan,
        said: &Said,
        agent: &Agent,
        model: &ResolvedModel,
        text: String,
    ) -> TurnPlan {
        draft.push(AttemptEnded {
            attempt: plan.started.attempt.clone(),
            turn: plan.turn.clone(),
            outcome: AttemptOutcome::Completed,
            usage: used(plan.started.pricing.as_ref(), said.usage),
            error: None,
        });
        let answer = if text.trim().is_empty() { texts::NO_TEXT.to_owned() } else { text };
        let (turn, reminder) = (plan.turn.clone(), texts::REMINDER.to_owned());
        draft.push(CompactionReminded { turn, draft: answer, reminder });
        let (limits, is_cut) = {
            let scope = draft.history().compacting().map(|open| &open.side.started.scope);
            let limits = self.limits(draft.history(), model, None);
            (limits, scope.is_some_and(|scope| scope.cut.is_some()))
        };
        let components = self.summary_components(draft.history(), agent, model, limits, is_cut);
        let through = draft.history().seq();
        let body = draft.history_mut().encode(&components, &plan.turn);
        let started = AttemptStarted {
            attempt: AttemptId::mint(draft.mint()),
            ordinal: plan.started.ordinal + 1,
            body_hash: hash_hex(&body),
            through,
            ..plan.started.clone()
        };
        draft.push(started.clone());
        TurnPlan { started, body: body.into(), ..plan.clone() }
    }
}

/// Returns whether no Compaction that came by itself has failed before this one, so that a second request is worth it.
fn is_fresh(history: &History, open: &OpenCompaction) -> bool {
    open.side.started.reason == CompactionReason::Manual || history.failed_summaries().in_a_row == 0
}

/// Returns whether a Compaction failed because of its summary or its request, and not because the provider could not be
/// reached, for example.
fn is_of_summary(error: &SessionError) -> bool {
    error.code == ErrorCode::SessionCompactionFailed
}

/// Returns the error of a Compaction whose request failed: one code for all that is about the summary, with the provider's
/// sentence. So is an answer that began and broke off in each try: the provider is there. What would end any request
/// stays as it is.
fn of_summary(error: &SessionError, said: &Said) -> SessionError {
    let about = [
        ErrorCode::ProviderInvalidRequest,
        ErrorCode::ProviderContextOverflow,
        ErrorCode::ProviderContentFilter,
        ErrorCode::ProviderStateRefused,
        ErrorCode::ProviderInvalidOutput,
        ErrorCode::ContextTooLarge,
    ];
    let broke_off = error.code == ErrorCode::ProviderTransport && !said.reply.is_silent();
    if broke_off || about.iter().any(|code| error.code == *code) {
        return SessionError {
            code: ErrorCode::SessionCompactionFailed.into(),
            message: format!("the conversation could not be summarised: {}", error.message),
        };
    }
    error.clone()
}

pub(crate) fn push_started(
    draft: &mut Draft<'_>,
    wanted: Wanted,
    model: ModelRef,
    prompt: String,
    (keep_from, scope): (Seq, SummaryScope),
) -> (TurnId, MessageId) {
    let (turn, message) = (TurnId::mint(draft.mint()), MessageId::mint(draft.mint()));
    let agent = draft.history().agent().to_owned();
    let epoch = draft.history().epoch().map_or(0, |epoch| epoch.number);
    draft.push(CompactionStarted {
        turn: turn.clone(),
        message: message.clone(),
        reason: wanted.reason,
        input: wanted.input,
        continuing: wanted.continuing,
        agent,
        model,
        epoch,
        prompt,
        keep_from,
        cause: wanted.cause,
        scope,
    });
    (turn, message)
}

/// Returns the part of the summary that fits a checkpoint, because a summary that fills the context makes no room.
pub(crate) fn bounded_summary(text: &str, limits: Option<Limits>) -> Cow<'_, str> {
    let share = limits.map_or(u64::MAX, Limits::share);
    let most = estimate::bytes_of(share.saturating_sub(CHECKPOINT_TEXT).max(LEAST_SUMMARY));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let text = text.trim();
    if text.len() <= most || mutated!(LongSummaryTaken) {
        return Cow::Borrowed(text);
    }
    let head = &text[..text.floor_char_boundary(most)];
    Cow::Owned(format!("{head}\n{}", texts::SUMMARY_TOO_LONG))
}

/// Ends the Compaction, whose attempts have ended.
pub(crate) fn end_compaction(
    draft: &mut Draft<'_>,
    outcome: SideOutcome,
    checkpoint: Option<String>,
    error: Option<SessionError>,
) {
    let Some(open) = draft.history().compacting() else { return };
    let (turn, message) = (open.side.started.turn.clone(), open.side.started.message.clone());
    let usage = open.side.usage;
    draft.push(CompactionEnded { turn, message, outcome, checkpoint, usage, error });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_first_heading_on_a_line_of_its_own() {
        let stop = |text| judge(FinishReason::Stop, text);
        assert_eq!(stop("Here it is:\n\n## Objective\nx"), Answer::Summary);
        assert_eq!(stop("the heading `## Objective` is missing"), Answer::Other);
        assert_eq!(stop(""), Answer::Other);
        assert_eq!(judge(FinishReason::ToolCalls, ""), Answer::Other, "calls are ignored");
        assert_eq!(judge(FinishReason::ToolCalls, "## Objective"), Answer::Summary);
        let cut = judge(FinishReason::Length, "## Objective\nx");
        assert!(
            matches!(cut, Answer::Refused(error) if error.code == ErrorCode::SessionCompactionFailed)
        );
    }
}
