//! The Safe Provider-Turn Boundary: one write that promotes input, admits context and commits the
//! next turn's intent, or ends the drain.

use std::collections::BTreeMap;

use bytes::Bytes;
use domain::{
    AttemptId, AttemptStarted, Delivery, DrainEnd, DrainEnded, DrainOutcome, EpochStarted,
    MessageId, ModelRef, NoticeKind, NoticeRecorded, PromptPromoted, SessionError, TurnId,
    TurnStarted,
};
use history::{Components, PendingInput, hash_hex};
use llm_protocol::{Generation, Protocol, ToolChoice};
use serde_json::Map;

use crate::draft::{Draft, Verdict};
use crate::observed::Observation;
use crate::recover::Recovery;
use crate::rules::Rules;
use crate::site::Site;

/// What the drain does next.
#[derive(Debug)]
pub enum Next {
    /// Run a turn whose intent is committed.
    Turn(Box<TurnPlan>),
    /// Go on with a turn that an earlier owner left.
    Recover(Box<Recovery>),
    /// The end is committed.
    End(Closed),
}

/// How a drain ended durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It is over. If someone woke the session since, it is *ready* again.
    Ended(DrainOutcome),
    /// It stopped at a boundary on request; the next holder goes on.
    HandedOver,
    /// It gave up its slot at a boundary because others wait for one; its next drain goes on.
    Yielded,
}

/// A turn whose intent and first attempt are committed.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// Its attempt that may be sent.
    pub started: AttemptStarted,
    /// The model, sampled for this turn.
    pub model: ModelRef,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The exact bytes of every attempt.
    pub body: Bytes,
}

const STEP_LIMIT: &str = "<notice>This is the last step that is allowed without new input. Do not call \
tools. Say what was done, what is left, and what you recommend to do next.</notice>";

/// Which of the pending inputs a boundary promotes. While the turn's work continues only steers join it;
/// otherwise all steers, or else the oldest queued one.
fn promotable(pending: &[PendingInput], continuing: bool) -> Vec<PendingInput> {
    let of = |delivery| pending.iter().filter(move |input| input.delivery == delivery);
    let steers: Vec<_> = of(Delivery::Steer).cloned().collect();
    if continuing || !steers.is_empty() {
        return steers;
    }
    of(Delivery::Queue).take(1).cloned().collect()
}

impl Rules<'_> {
    /// Crosses the boundary, or ends the drain. `continuing`: the model has results to answer.
    pub fn cross(
        &self,
        draft: &mut Draft<'_>,
        continuing: bool,
        observed: &Observation,
    ) -> Verdict<Next> {
        if self.is_interrupted(draft.history()) {
            let next = end(draft, DrainOutcome::Interrupted, None);
            return Verdict::Write(next, DrainEnd::Close, Site::Interrupted);
        }
        let waits = !draft.history().pending().is_empty();
        if self.stopping && (continuing || waits) {
            let next = Next::End(Closed::HandedOver);
            return Verdict::Write(next, DrainEnd::HandOver, Site::HandedOver);
        }
        // Handed over, not closed: what was only stored is taken up as it would have been by going on.
        if self.crowded && waits && !continuing && !draft.history().wants_turn() {
            let next = Next::End(Closed::Yielded);
            return Verdict::Write(next, DrainEnd::HandOver, Site::Yielded);
        }
        let prompts = promotable(draft.history().pending(), continuing);
        if prompts.is_empty() && !continuing {
            let next = end(draft, DrainOutcome::Completed, None);
            return Verdict::Write(next, DrainEnd::Close, Site::Completed);
        }
        let fresh = draft.history().epoch().is_none();
        if fresh {
            match observed.initialize(draft.history()) {
                Ok(first) => draft.push(EpochStarted {
                    epoch: 1,
                    baseline: first.baseline,
                    snapshot: first.snapshot.text(),
                }),
                // Nothing is promoted: the input stays pending for the next wake.
                Err(error) => {
                    let next = end(draft, DrainOutcome::Failed, Some(error));
                    return Verdict::Write(next, DrainEnd::Park, Site::ContextBlocked);
                }
            }
        }
        for input in prompts {
            self.promote(draft, &input);
        }
        let told = if fresh { Ok(()) } else { observed.reconcile(draft) };
        match told.and_then(|()| self.begin_turn(draft)) {
            Ok(plan) => {
                Verdict::Write(Next::Turn(Box::new(plan)), DrainEnd::Keep, Site::TurnStarted)
            }
            Err(error) => {
                let next = end(draft, DrainOutcome::Failed, Some(error));
                Verdict::Write(next, DrainEnd::Close, Site::BoundaryFailed)
            }
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
        draft.promoted();
    }

    /// Samples agent and model, and drafts the turn and its first attempt.
    fn begin_turn(&self, draft: &mut Draft<'_>) -> Result<TurnPlan, SessionError> {
        let resolved = self.models.resolve(draft.history().model())?;
        let parent = draft.history().last_prompt().cloned().ok_or_else(|| SessionError {
            code: "session.no_prompt".into(),
            message: "the session has no prompt to answer; send one".into(),
        })?;
        let step = draft.history().steps() + 1;
        if step > self.settings.max_steps {
            return Err(SessionError {
                code: "turn.step_limit".into(),
                message: format!(
                    "the model went on for {} steps without new input; send a prompt to let it continue",
                    self.settings.max_steps
                ),
            });
        }
        let last = step == self.settings.max_steps;
        if last {
            let message = MessageId::mint(draft.mint());
            let text = STEP_LIMIT.to_owned();
            draft.push(NoticeRecorded { message, kind: NoticeKind::StepLimit, text });
        }
        let epoch = draft.history().epoch().map_or(0, |epoch| epoch.number);
        let turn = TurnId::mint(draft.mint());
        let message = MessageId::mint(draft.mint());
        let agent = draft.history().agent().to_owned();
        draft.push(TurnStarted {
            turn: turn.clone(),
            message: message.clone(),
            parent,
            agent,
            model: resolved.reference.clone(),
            epoch,
            step,
        });
        let components = Components {
            agent: self.settings.agent.clone(),
            tools: self.tools.definitions.clone(),
            tool_choice: if last { ToolChoice::None } else { ToolChoice::Auto },
            generation: Generation::default(),
            options: Map::new(),
            model: resolved.entry,
        };
        let through = draft.history().seq();
        let body = draft.history_mut().encode(&components, &turn);
        let mut names = BTreeMap::new();
        let mut rows = Vec::new();
        for (name, bytes) in components.bytes() {
            let hash = hash_hex(&bytes);
            rows.push((hash.clone(), bytes));
            names.insert(name, hash);
        }
        draft.components(rows);
        let started = AttemptStarted {
            attempt: AttemptId::mint(draft.mint()),
            turn: turn.clone(),
            ordinal: 1,
            body_hash: hash_hex(&body),
            wire_version: components.model.protocol.wire_version(),
            epoch,
            through,
            components: names,
        };
        draft.push(started.clone());
        Ok(TurnPlan {
            turn,
            message,
            started,
            model: resolved.reference,
            protocol: components.model.protocol,
            body: body.into(),
        })
    }
}

/// Ends the drain.
pub(crate) fn end(
    draft: &mut Draft<'_>,
    outcome: DrainOutcome,
    error: Option<SessionError>,
) -> Next {
    draft.push(DrainEnded { outcome, error });
    Next::End(Closed::Ended(outcome))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::{IdMint, PromptAdmitted, Seq, Stamp};

    use super::*;

    fn input(mint: &mut IdMint, delivery: Delivery) -> PendingInput {
        let prompt = PromptAdmitted {
            message: MessageId::mint(mint),
            delivery,
            parts: Vec::new(),
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
            synthetic: None,
        };
        PendingInput { seq: Seq(1), admitted: 1, delivery, prompt: Arc::new(prompt) }
    }

    #[test]
    fn steers_join_work_that_continues_and_queued_input_waits() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let all = [Delivery::Queue, Delivery::Steer, Delivery::Queue, Delivery::Steer]
            .map(|delivery| input(&mut mint, delivery));
        let deliveries = |promoted: Vec<PendingInput>| {
            promoted.into_iter().map(|input| input.delivery).collect::<Vec<_>>()
        };
        assert_eq!(deliveries(promotable(&all, true)), [Delivery::Steer; 2]);
        assert_eq!(deliveries(promotable(&all, false)), [Delivery::Steer; 2]);
        let queued = [all[0].clone(), all[2].clone()];
        assert_eq!(promotable(&queued, false), [queued[0].clone()]);
        assert!(promotable(&queued, true).is_empty());
    }
}
