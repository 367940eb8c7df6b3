//! The Safe Provider-Turn Boundary: one transaction that promotes input, admits context and commits the
//! next turn's intent, or ends the drain.

use std::collections::BTreeMap;

use bytes::Bytes;
use context::{ContextSnapshot, Reconciled};
use domain::{
    AttemptId, AttemptStarted, ContextUpdated, Delivery, DrainEnded, DrainOutcome, EpochStarted,
    MessageId, NoticeKind, NoticeRecorded, PromptAdmitted, PromptPromoted, Seq, SessionError,
    TimestampMs, TurnId, TurnStarted,
};
use history::{Components, hash_hex};
use llm_client::Endpoint;
use llm_protocol::{Generation, Protocol, ToolChoice};
use serde_json::Map;
use store::DrainEnd;

use crate::draft::Draft;
use crate::drain::{Drain, DrainExit, Next, Stop};
use crate::observe::Observation;

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
fn promotable(
    pending: Vec<(Seq, TimestampMs, PromptAdmitted)>,
    continuing: bool,
) -> Vec<(TimestampMs, PromptAdmitted)> {
    let (steers, queued): (Vec<_>, Vec<_>) =
        pending.into_iter().partition(|(.., prompt)| prompt.delivery == Delivery::Steer);
    let take = if continuing || !steers.is_empty() { usize::MAX } else { 1 };
    let from = if continuing || !steers.is_empty() { steers } else { queued };
    from.into_iter().take(take).map(|(_, admitted, prompt)| (admitted, prompt)).collect()
}

impl Drain<'_> {
    /// Crosses the boundary in `draft`'s transaction. `continuing`: the model has results to answer.
    pub(crate) async fn boundary(
        &mut self,
        mut draft: Draft,
        continuing: bool,
        observed: Observation,
    ) -> Result<Next, Stop> {
        if self.is_interrupted(draft.history()) {
            return self.end(draft, DrainOutcome::Interrupted, None, DrainEnd::Close).await;
        }
        let pending = draft.tx().pending_inputs().await?;
        if self.control.stopping.is_cancelled() && (continuing || !pending.is_empty()) {
            self.commit(draft, DrainEnd::HandOver).await?;
            return Ok(Next::End(DrainExit::HandedOver));
        }
        let prompts = promotable(pending, continuing);
        if prompts.is_empty() && !continuing {
            return self.end(draft, DrainOutcome::Completed, None, DrainEnd::Close).await;
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
                    return self
                        .end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Park)
                        .await;
                }
            }
        }
        for (admitted, prompt) in prompts {
            self.promote(&mut draft, admitted, prompt);
        }
        if !fresh && let Err(error) = reconcile(&mut draft, &observed) {
            return self.end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Close).await;
        }
        match self.begin_turn(&mut draft) {
            Ok(plan) => {
                self.commit(draft, DrainEnd::Keep).await?;
                let stored = plan.started.components.values().cloned();
                self.runtime.stored.note(self.session.org, stored);
                Ok(Next::Turn(Box::new(plan)))
            }
            Err(error) => self.end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Close).await,
        }
    }

    fn promote(&self, draft: &mut Draft, admitted: TimestampMs, prompt: PromptAdmitted) {
        let model = prompt
            .model
            .or_else(|| draft.history().model().cloned())
            .unwrap_or_else(|| self.runtime.models.default.clone());
        let agent = prompt.agent.unwrap_or_else(|| draft.history().agent().to_owned());
        draft.push(PromptPromoted {
            message: prompt.message,
            parts: prompt.parts,
            agent,
            model,
            admitted,
        });
        draft.promoted();
    }

    /// Samples agent and model, and drafts the turn and its first attempt.
    fn begin_turn(&self, draft: &mut Draft) -> Result<TurnPlan, SessionError> {
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

    /// Ends the drain in `draft`'s transaction.
    pub(crate) async fn end(
        &mut self,
        mut draft: Draft,
        outcome: DrainOutcome,
        error: Option<SessionError>,
        how: DrainEnd,
    ) -> Result<Next, Stop> {
        draft.push(DrainEnded { outcome, error });
        self.commit(draft, how).await?;
        Ok(Next::End(DrainExit::Ended(outcome)))
    }
}

/// At most one Mid-Conversation System Message, after what was promoted or settled.
fn reconcile(draft: &mut Draft, observed: &Observation) -> Result<(), SessionError> {
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
    use domain::{IdMint, Stamp};

    use super::*;

    fn input(mint: &mut IdMint, delivery: Delivery) -> (Seq, TimestampMs, PromptAdmitted) {
        let prompt = PromptAdmitted {
            message: MessageId::mint(mint),
            delivery,
            parts: Vec::new(),
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
        };
        (Seq(1), 1, prompt)
    }

    #[test]
    fn steers_join_work_that_continues_and_queued_input_waits() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let mut all = || {
            vec![
                input(&mut mint, Delivery::Queue),
                input(&mut mint, Delivery::Steer),
                input(&mut mint, Delivery::Queue),
                input(&mut mint, Delivery::Steer),
            ]
        };
        let deliveries = |promoted: Vec<(TimestampMs, PromptAdmitted)>| {
            promoted.into_iter().map(|(_, prompt)| prompt.delivery).collect::<Vec<_>>()
        };
        assert_eq!(deliveries(promotable(all(), true)), [Delivery::Steer; 2]);
        assert_eq!(deliveries(promotable(all(), false)), [Delivery::Steer; 2]);
        let queued: Vec<_> =
            all().into_iter().filter(|(.., prompt)| prompt.delivery == Delivery::Queue).collect();
        assert_eq!(deliveries(promotable(queued.clone(), false)), [Delivery::Queue]);
        assert!(promotable(queued, true).is_empty());
    }
}
