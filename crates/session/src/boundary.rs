//! The Safe Provider-Turn Boundary: one write that promotes input, admits context and commits the
//! next turn's intent, or ends the drain.

use std::collections::BTreeMap;

use bytes::Bytes;
use context::{ContextSnapshot, Reconciled};
use domain::{
    AttemptId, AttemptStarted, ContextUpdated, Delivery, DrainEnded, DrainOutcome, EpochStarted,
    MessageId, NoticeKind, NoticeRecorded, PromptPromoted, SessionError, TurnId, TurnStarted,
};
use history::{Components, PendingInput, hash_hex};
use llm_client::Endpoint;
use llm_protocol::{Generation, Protocol, ToolChoice};
use serde_json::Map;
use store::DrainEnd;

use crate::draft::{Draft, Verdict};
use crate::drain::{DrainExit, Next};
use crate::observe::Observation;
use crate::stage::Stage;

/// A turn whose intent and first attempt are committed.
pub(crate) struct TurnPlan {
    pub(crate) turn: TurnId,
    pub(crate) message: MessageId,
    pub(crate) started: AttemptStarted,
    pub(crate) endpoint: Endpoint,
    pub(crate) protocol: Protocol,
    /// The exact bytes of every attempt.
    pub(crate) body: Bytes,
}

const STEP_LIMIT: &str = "<notice>This is the last step that is allowed without new input. Do not call \
tools. Say what was done, what is left, and what you recommend to do next.</notice>";

/// Which of the pending inputs a boundary promotes. While the turn's work continues only steers join it;
/// otherwise all steers, or else the oldest queued one.
fn promotable(pending: &[PendingInput], continuing: bool) -> Vec<PendingInput> {
    let of = |delivery| pending.iter().filter(move |input| input.prompt.delivery == delivery);
    let steers: Vec<_> = of(Delivery::Steer).cloned().collect();
    if continuing || !steers.is_empty() {
        return steers;
    }
    of(Delivery::Queue).take(1).cloned().collect()
}

impl<'r> Stage<'r> {
    /// Crosses the boundary, or ends the drain. `continuing`: the model has results to answer.
    pub(crate) fn cross(
        &self,
        draft: &mut Draft<'_>,
        continuing: bool,
        observed: &Observation,
    ) -> Verdict<Next<'r>> {
        if self.is_interrupted(draft.history()) {
            return end(draft, DrainOutcome::Interrupted, None, DrainEnd::Close);
        }
        let waits = !draft.history().pending().is_empty();
        if self.control.stopping.is_cancelled() && (continuing || waits) {
            return Verdict::Write(Next::End(DrainExit::HandedOver), DrainEnd::HandOver);
        }
        let prompts = promotable(draft.history().pending(), continuing);
        if prompts.is_empty() && !continuing {
            return end(draft, DrainOutcome::Completed, None, DrainEnd::Close);
        }
        let fresh = draft.history().epoch().is_none();
        if fresh {
            match observed.context(None).initialize() {
                Ok(first) => draft.push(EpochStarted {
                    epoch: 1,
                    baseline: first.baseline,
                    snapshot: first.snapshot.text(),
                }),
                // Nothing is promoted: the input stays pending for the next wake.
                Err(blocked) => {
                    let error = SessionError {
                        code: "context.unavailable".into(),
                        message: format!("{blocked}; send another prompt to try again"),
                    };
                    return end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Park);
                }
            }
        }
        for input in prompts {
            self.promote(draft, &input);
        }
        if !fresh && let Err(error) = reconcile(draft, observed) {
            return end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Close);
        }
        match self.begin_turn(draft) {
            Ok(plan) => Verdict::Write(Next::Turn(Box::new(plan)), DrainEnd::Keep),
            Err(error) => end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Close),
        }
    }

    fn promote(&self, draft: &mut Draft<'_>, input: &PendingInput) {
        let prompt = &input.prompt;
        let model = prompt
            .model
            .as_ref()
            .or_else(|| draft.history().model())
            .unwrap_or(&self.runtime.models.default)
            .clone();
        let agent = prompt.agent.as_deref().unwrap_or_else(|| draft.history().agent()).to_owned();
        draft.push(PromptPromoted {
            message: prompt.message.clone(),
            parts: prompt.parts.clone(),
            agent,
            model,
            admitted: input.admitted,
        });
        draft.promoted();
    }

    /// Samples agent and model, and drafts the turn and its first attempt.
    fn begin_turn(&self, draft: &mut Draft<'_>) -> Result<TurnPlan, SessionError> {
        let settings = &self.runtime.settings;
        let resolved = self.runtime.models.resolve(draft.history().model())?;
        let parent = draft.history().last_prompt().cloned().ok_or_else(|| SessionError {
            code: "session.no_prompt".into(),
            message: "the session has no prompt to answer; send one".into(),
        })?;
        let step = draft.history().steps() + 1;
        if step > settings.max_steps {
            return Err(SessionError {
                code: "turn.step_limit".into(),
                message: format!(
                    "the model went on for {} steps without new input; send a prompt to let it continue",
                    settings.max_steps
                ),
            });
        }
        let last = step == settings.max_steps;
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
            model: resolved.reference,
            epoch,
            step,
        });
        let components = Components {
            agent: settings.agent.clone(),
            tools: self.toolbox.definitions(),
            tool_choice: if last { ToolChoice::None } else { ToolChoice::Auto },
            generation: Generation::default(),
            options: Map::new(),
            model: resolved.entry,
        };
        let through = draft.history().seq();
        let body = draft.history_mut().encode(&components);
        let mut names = BTreeMap::new();
        let mut rows = Vec::new();
        for (name, bytes) in components.bytes() {
            let hash = hash_hex(&bytes);
            rows.push((hash.clone(), bytes));
            names.insert(name, hash);
        }
        draft.components(self.runtime.new_components(self.session.org, rows));
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
            endpoint: resolved.endpoint,
            protocol: components.model.protocol,
            body: body.into(),
        })
    }
}

/// Ends the drain.
pub(crate) fn end<'r>(
    draft: &mut Draft<'_>,
    outcome: DrainOutcome,
    error: Option<SessionError>,
    how: DrainEnd,
) -> Verdict<Next<'r>> {
    draft.push(DrainEnded { outcome, error });
    Verdict::Write(Next::End(DrainExit::Ended(outcome)), how)
}

/// At most one Mid-Conversation System Message, after what was promoted or settled.
fn reconcile(draft: &mut Draft<'_>, observed: &Observation) -> Result<(), SessionError> {
    let Some(epoch) = draft.history().epoch() else { return Ok(()) };
    let told = ContextSnapshot::read(&epoch.snapshot).map_err(|error| SessionError {
        code: "context.unreadable".into(),
        message: format!("the session's Context Snapshot cannot be read: {error}"),
    })?;
    match observed.context(Some(&told)).reconcile(&told) {
        Reconciled::Unchanged => {}
        Reconciled::Updated { rendered, snapshot } => {
            let message = MessageId::mint(draft.mint());
            draft.push(ContextUpdated { message, rendered, snapshot: snapshot.text() });
        }
    }
    Ok(())
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
        };
        PendingInput { seq: Seq(1), admitted: 1, prompt: Arc::new(prompt) }
    }

    #[test]
    fn steers_join_work_that_continues_and_queued_input_waits() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let all = [Delivery::Queue, Delivery::Steer, Delivery::Queue, Delivery::Steer]
            .map(|delivery| input(&mut mint, delivery));
        let deliveries = |promoted: Vec<PendingInput>| {
            promoted.into_iter().map(|input| input.prompt.delivery).collect::<Vec<_>>()
        };
        assert_eq!(deliveries(promotable(&all, true)), [Delivery::Steer; 2]);
        assert_eq!(deliveries(promotable(&all, false)), [Delivery::Steer; 2]);
        let queued = [all[0].clone(), all[2].clone()];
        assert_eq!(promotable(&queued, false), [queued[0].clone()]);
        assert!(promotable(&queued, true).is_empty());
    }
}
