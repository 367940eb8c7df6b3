//! The Safe Provider-Turn Boundary: one write that promotes input, admits context and commits the intent of the next
//! turn or Compaction, or ends the drain.

use bytes::Bytes;
use domain::{
    AttemptStarted, DrainEnd, DrainEnded, DrainOutcome, EpochReason, EpochStarted, LocationId,
    MessageId, ModelRef, PromptPromoted, SessionError, TurnId,
};
use history::{Components, PendingInput};

use crate::begin::boundary_failed;
use crate::controls::MovePlan;
use crate::draft::{Draft, Verdict};
use crate::files::tell_lost;
use crate::inbox::{Batch, Head, head, waits};
use crate::observed::{Observation, next_epoch};
use crate::recover::Recovery;
use crate::revert::{FilesPlan, commit_revert};
use crate::rules::Rules;
use crate::site::Site;
use crate::title::lose_title;

/// The drain's next step.
#[derive(Debug)]
pub enum Next {
    /// Run a turn whose intent is committed.
    Turn(Box<TurnPlan>),
    /// Cross the next boundary at once: part of the inbox is promoted, and the rest comes before a turn begins.
    Inbox,
    /// Continue a turn that an earlier owner left.
    Recover(Box<Recovery>),
    /// Request the summary of a Compaction whose intent is committed.
    Compact(Box<TurnPlan>),
    /// Capture or restore files for a Revert.
    Files(FilesPlan),
    /// Move to another Location. [`Rules::moved`] is a separate write.
    Move(MovePlan),
    /// The Move is committed: the session is now at this Location.
    Moved(LocationId),
    /// Wait, within bounds, for the title in progress: nothing else is left to do.
    Title,
    /// The end is committed.
    End(Closed),
}

/// The durable end of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It is over. If somebody has woken the session since, it is *ready* again.
    Ended(DrainOutcome),
    /// It stopped at a boundary on request, or for want of room. The next holder continues.
    HandedOver,
    /// It gave up its slot at a boundary because others wait for one. Its next drain continues.
    Yielded,
    /// The session sleeps until somebody answers. The next drain continues its turn.
    Waiting,
}

/// A turn whose intent and first attempt are committed; or a request beside the conversation, a Compaction's or a
/// title's.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    /// The turn.
    pub turn: TurnId,
    /// The message that it writes; for a title, the message that the title is for.
    pub message: MessageId,
    /// The attempt that may be sent.
    pub started: AttemptStarted,
    /// The model, sampled for this turn.
    pub model: ModelRef,
    /// The parts of the request besides history. Their model decides the protocol.
    pub components: Components,
    /// The exact bytes of every attempt. A reminder changes them for a Compaction, and a refusal of the provider's own
    /// state for any request.
    pub body: Bytes,
    /// The title to request beside it.
    pub title: Option<Box<TurnPlan>>,
}

impl Rules<'_> {
    /// Crosses the boundary, or ends the drain. `continuing`: the model must answer results.
    pub fn cross(
        &self,
        draft: &mut Draft<'_>,
        continuing: bool,
        observed: &Observation,
    ) -> Verdict<Next> {
        if self.is_interrupted(draft.history()) {
            let how = Self::interrupted_end(draft.history());
            let next = end(draft, DrainOutcome::Interrupted, None);
            return Verdict::Write(next, how, Site::Interrupted);
        }
        let waits = waits(draft.history());
        if (self.stopping || self.cramped) && (continuing || waits) {
            return hand_over(draft);
        }
        // Handed over, not closed: stored input is then taken up as if this drain had continued. Not beside a title,
        // which would be lost and requested again.
        let history = draft.history();
        let between = !continuing && !history.wants_turn() && history.titling().is_none();
        if self.crowded && waits && between {
            let next = Next::End(Closed::Yielded);
            return Verdict::Write(next, DrainEnd::HandOver, Site::Yielded);
        }
        let Batch { prompts, is_cut } = loop {
            match head(draft.history(), continuing, self.settings.promotion) {
                Head::Prompts(batch) => break batch,
                Head::Nothing if continuing => break Batch::default(),
                Head::Nothing if draft.history().titling().is_some() && !self.stopping => {
                    return Verdict::Write(Next::Title, DrainEnd::Keep, Site::TitleAwaited);
                }
                Head::Nothing => {
                    let next = end(draft, DrainOutcome::Completed, None);
                    return Verdict::Write(next, DrainEnd::Close, Site::Completed);
                }
                Head::Control(control) => {
                    if let Some(verdict) = self.act(draft, &control, continuing, observed) {
                        return verdict;
                    }
                }
            }
        };
        let written = prompts.iter().rev().find(|input| input.prompt.synthetic.is_none());
        let author =
            written.map_or(draft.history().author(), |input| input.prompt.by.as_ref()).cloned();
        if let Some(reached) = observed.stop(author.as_ref()) {
            // Nothing is promoted: the input waits for the next wake, after the limit was raised or the month is over.
            let next = end(draft, DrainOutcome::Failed, Some(reached.clone()));
            return Verdict::Write(next, DrainEnd::Park, Site::LimitReached);
        }
        if !prompts.is_empty() {
            commit_revert(draft);
        }
        let chosen = prompts.iter().rev().find_map(|input| input.prompt.agent.as_deref());
        let chosen = chosen.unwrap_or_else(|| draft.history().agent());
        let agent = self.settings.agents.get(chosen);
        let fresh = draft.history().epoch().is_none();
        if fresh {
            let skills = self.skills_of(agent.as_ref().ok().copied(), draft.history(), observed);
            let first = observed.initialize(draft.history(), &skills);
            match first.and_then(|first| Ok((first, next_epoch(draft.history())?))) {
                Ok((first, epoch)) => draft.push(EpochStarted {
                    epoch,
                    baseline: first.baseline,
                    snapshot: first.snapshot.text(),
                    reason: Some(match draft.history().last_epoch() {
                        0 => EpochReason::First,
                        _ => EpochReason::Move,
                    }),
                }),
                // Nothing is promoted: the input waits for the next wake.
                Err(error) => {
                    if mutated!(PromotionBeforeBaseline) {
                        prompts.iter().for_each(|input| self.promote(draft, input));
                    }
                    let next = end(draft, DrainOutcome::Failed, Some(error));
                    return Verdict::Write(next, DrainEnd::Park, Site::ContextBlocked);
                }
            }
        }
        tell_lost(draft);
        for input in prompts {
            self.promote(draft, &input);
        }
        if is_cut && !mutated!(RestNotPromoted) {
            // The boundary that promotes the last of them samples the agent and admits changed context.
            return Verdict::Write(Next::Inbox, DrainEnd::Keep, Site::InboxTaken);
        }
        let told = match agent {
            Ok(_) if fresh => Ok(()),
            Ok(agent) => {
                let skills = self.skills_of(Some(agent), draft.history(), observed);
                observed.reconcile(draft, &skills)
            }
            // An unknown agent gets no context, since nobody knows its permissions.
            Err(unknown) => Err(unknown),
        };
        match told {
            Ok(()) => self.go_on(draft, observed),
            Err(error) => boundary_failed(draft, error),
        }
    }

    fn promote(&self, draft: &mut Draft<'_>, input: &PendingInput) {
        let prompt = &input.prompt;
        let model = prompt
            .model
            .as_ref()
            .or_else(|| draft.history().model())
            .unwrap_or(&self.models.default)
            .clone();
        let agent = prompt.agent.as_deref().unwrap_or_else(|| draft.history().agent()).to_owned();
        draft.push(PromptPromoted {
            message: prompt.message.clone(),
            parts: prompt.parts.clone(),
            agent,
            model,
            admitted: input.admitted,
            synthetic: prompt.synthetic.clone(),
        });
        draft.taken();
    }
}

/// Ends the drain.
pub(crate) fn end(
    draft: &mut Draft<'_>,
    outcome: DrainOutcome,
    error: Option<SessionError>,
) -> Next {
    lose_title(draft);
    draft.push(DrainEnded { outcome, error });
    Next::End(Closed::Ended(outcome))
}

/// Stops at the boundary. The next holder continues with the same step.
pub(crate) fn hand_over(draft: &mut Draft<'_>) -> Verdict<Next> {
    lose_title(draft);
    let how = if mutated!(HandOverNotSaid) { DrainEnd::Keep } else { DrainEnd::HandOver };
    Verdict::Write(Next::End(Closed::HandedOver), how, Site::HandedOver)
}
