//! One Provider Turn while it streams: its attempts, its text, and its tools beside it.

use std::time::Duration;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CallId, MessageId, PartId,
    RetryScheduled, TextCheckpointed, ToolCalled, ToolIntent, ToolSettled, ToolState, TurnId,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use llm_client::LlmError;
use llm_protocol::{FinishReason, LlmEvent, Usage};
use rand::RngExt;
use signals::DeltaKind;
use store::DrainEnd;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::boundary::TurnPlan;
use crate::control::interrupted_after;
use crate::draft::{Draft, Verdict};
use crate::drain::{Drain, Next, Stop};
use crate::ending::{provider_error, token_usage};
use crate::reply::{Reply, storable};
use crate::stage::Stage;

/// The open turn: what it has said, and the bodies of its calls.
pub(crate) struct Turn<'r> {
    pub(crate) said: Said,
    /// The provider's name of the text or reasoning part that is open, and ours.
    part: Option<(String, PartId)>,
    intend_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    pub(crate) batch: Batch<'r>,
}

/// What has come of a turn, as far as rows do not hold it: its next write is made of this.
pub(crate) struct Said {
    pub(crate) turn: TurnId,
    pub(crate) message: MessageId,
    pub(crate) reply: Reply,
    /// Calls whose intent is not committed.
    unintended: Vec<ToolIntent>,
    /// Results that are not committed.
    pub(crate) done: Vec<ToolSettled>,
    pub(crate) finish: Option<FinishReason>,
    pub(crate) usage: Option<Usage>,
}

/// Bodies that run.
pub(crate) struct Batch<'r> {
    pub(crate) bodies: FuturesUnordered<BoxFuture<'r, ToolSettled>>,
    pub(crate) commit_at: Option<Instant>,
    pub(crate) cancel: CancellationToken,
}

enum Streamed {
    Whole,
    Failed(LlmError),
    Interrupted,
}

impl<'r> Turn<'r> {
    pub(crate) fn new(turn: TurnId, message: MessageId) -> Self {
        Self {
            said: Said::new(turn, message),
            part: None,
            intend_at: None,
            checkpoint_at: None,
            batch: Batch {
                bodies: FuturesUnordered::new(),
                commit_at: None,
                cancel: CancellationToken::new(),
            },
        }
    }

    /// Forgets calls that the model will not see, since no intent of them was committed.
    pub(crate) fn forget_unintended(&mut self) {
        self.said.unintended.clear();
        self.intend_at = None;
    }

    /// Forgets what an attempt without visible output left, before the next one; returns what it used.
    fn forget_attempt(&mut self) -> Option<Usage> {
        self.said.reply = Reply::default();
        self.part = None;
        self.forget_unintended();
        self.said.finish = None;
        self.said.usage.take()
    }

    /// Fires when its bodies are to stop.
    fn token(&self) -> CancellationToken {
        self.batch.cancel.child_token()
    }

    /// A body has ended; its result may wait for others no longer than `delay`.
    pub(crate) fn finished(&mut self, done: ToolSettled, delay: Duration) {
        self.said.done.push(done);
        self.batch.commit_at.get_or_insert_with(|| Instant::now() + delay);
    }
}

impl Said {
    fn new(turn: TurnId, message: MessageId) -> Self {
        Self {
            turn,
            message,
            reply: Reply::default(),
            unintended: Vec::new(),
            done: Vec::new(),
            finish: None,
            usage: None,
        }
    }

    /// Whether anyone may have seen something of the reply. A call without a durable intent is not seen.
    fn is_visible(&self) -> bool {
        let seen = |call: &CallId| self.unintended.iter().all(|intent| intent.call != *call);
        self.reply.is_visible(seen)
    }

    /// The results that are not committed.
    pub(crate) fn draft_done(&self, draft: &mut Draft<'_>) {
        for settled in &self.done {
            draft.push(settled.clone());
        }
    }
}

/// Waits for a time that may not be set.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl<'r> Drain<'r> {
    /// Runs the turn whose intent is committed, up to the next boundary.
    pub(crate) async fn turn(&mut self, mut plan: TurnPlan) -> Result<Next<'r>, Stop> {
        let mut turn = Turn::new(plan.turn.clone(), plan.message.clone());
        self.live.begin(plan.message.clone());
        loop {
            match Box::pin(self.stream(&plan, &mut turn)).await? {
                Streamed::Whole => return self.replied(&plan.started, turn).await,
                Streamed::Interrupted => return self.interrupt_turn(turn).await,
                Streamed::Failed(error) if turn.said.is_visible() => {
                    return self.cut(&plan.started, turn, &error).await;
                }
                Streamed::Failed(error) => {
                    let delay = self.next_delay(&error);
                    let Some(delay) = delay else {
                        let error = provider_error(&error);
                        return self.fail_turn(&plan.started.attempt, turn, error).await;
                    };
                    let usage = turn.forget_attempt();
                    plan.started = self.schedule_retry(&plan.started, usage, &error, delay).await?;
                    if self.finish_bodies(&mut turn, delay).await? {
                        return self.interrupt_turn(turn).await;
                    }
                }
            }
        }
    }

    pub(crate) fn next_delay(&mut self, error: &LlmError) -> Option<Duration> {
        self.failures += 1;
        let rand = rand::rng().random();
        self.stage.runtime.settings.retry.next_delay(self.failures, &error.reason, rand)
    }

    /// One wire request, until its stream ends.
    async fn stream(&mut self, plan: &TurnPlan, turn: &mut Turn<'r>) -> Result<Streamed, Stop> {
        let settings = self.stage.runtime.settings.clone();
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.stage.interrupts_before;
        let opening =
            self.stage.runtime.llm.stream(&plan.endpoint, plan.protocol, plan.body.clone());
        let opened = tokio::select! {
            biased;
            () = control.fenced.cancelled() => return Err(Stop::Fenced),
            () = interrupted_after(&mut interrupts, known) => return Ok(Streamed::Interrupted),
            opened = Box::pin(opening) => opened,
        };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => return Ok(Streamed::Failed(error)),
        };
        loop {
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(Streamed::Interrupted),
                Some(done) = turn.batch.bodies.next() => {
                    turn.finished(done, settings.result_delay);
                }
                // What is due comes first: a fast stream always has something.
                () = at(turn.intend_at) => self.commit_intents(turn).await?,
                () = at(turn.batch.commit_at) => self.commit_results(turn).await?,
                () = at(turn.checkpoint_at) => self.checkpoint(turn).await?,
                () = control.resync.notified() => self.live.resync(),
                event = stream.next() => match event {
                    Some(Ok(event)) => self.take(turn, event),
                    Some(Err(error)) => return Ok(Streamed::Failed(error)),
                    None => return Ok(Streamed::Whole),
                },
            }
            if turn.said.reply.unkept() >= settings.checkpoint_bytes {
                self.checkpoint(turn).await?;
            }
            if self.is_interrupted() {
                return Ok(Streamed::Interrupted);
            }
        }
    }

    /// Takes in one event of the stream.
    fn take(&mut self, turn: &mut Turn<'r>, event: LlmEvent) {
        match event {
            LlmEvent::TextStart { id } | LlmEvent::ReasoningStart { id } => {
                turn.part = Some((id, PartId::mint(&mut self.log.mint)));
            }
            LlmEvent::TextDelta { id, text } => {
                let part = self.part(turn, id);
                let text = storable(&text);
                turn.said.reply.text(&part, &text);
                self.live.push(&part, DeltaKind::Text, &text);
                let every = self.stage.runtime.settings.checkpoint_every;
                turn.checkpoint_at.get_or_insert_with(|| Instant::now() + every);
            }
            LlmEvent::ReasoningDelta { id, text } => {
                let part = self.part(turn, id);
                let text = storable(&text);
                turn.said.reply.reasoning(&part, &text);
                self.live.push(&part, DeltaKind::Reasoning, &text);
            }
            LlmEvent::ToolCall(call) => {
                let intent = ToolIntent {
                    call: CallId::mint(&mut self.log.mint),
                    part: PartId::mint(&mut self.log.mint),
                    provider_call: storable(&call.id).into_owned(),
                    tool: storable(&call.name).into_owned(),
                    arguments: storable(&call.arguments).into_owned(),
                };
                turn.said.reply.call(intent.call.clone());
                turn.said.unintended.push(intent);
                let delay = self.stage.runtime.settings.intent_delay;
                turn.intend_at.get_or_insert_with(|| Instant::now() + delay);
            }
            LlmEvent::StepFinish { reason, usage } | LlmEvent::Finish { reason, usage } => {
                turn.said.finish = Some(reason);
                turn.said.usage = usage.or(turn.said.usage);
            }
            LlmEvent::TextEnd { .. }
            | LlmEvent::ReasoningEnd { .. }
            | LlmEvent::ToolInputStart { .. }
            | LlmEvent::ToolInputDelta { .. }
            | LlmEvent::ToolInputEnd { .. } => {}
        }
    }

    fn part(&mut self, turn: &mut Turn<'r>, id: String) -> PartId {
        match &turn.part {
            Some((open, part)) if *open == id => part.clone(),
            _ => {
                let part = PartId::mint(&mut self.log.mint);
                turn.part = Some((id, part.clone()));
                part
            }
        }
    }

    /// Commits the intents that wait, then starts their bodies.
    async fn commit_intents(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        let interrupted = self
            .write(|stage, draft| {
                if stage.is_interrupted(draft.history()) {
                    return Verdict::Leave(true);
                }
                stage.draft_intents(draft, &turn.said);
                Verdict::Write(false, DrainEnd::Keep)
            })
            .await?;
        if !interrupted {
            self.start_intended(turn);
        }
        Ok(())
    }

    /// Starts the bodies of calls whose intents are committed now.
    pub(crate) fn start_intended(&self, turn: &mut Turn<'r>) {
        turn.intend_at = None;
        let intents = std::mem::take(&mut turn.said.unintended);
        self.start_bodies(turn, intents);
    }

    pub(crate) fn start_bodies(&self, turn: &mut Turn<'r>, intents: Vec<ToolIntent>) {
        for intent in intents {
            let cancel = turn.token();
            turn.batch.bodies.push(self.stage.toolbox.body(turn.said.turn.clone(), intent, cancel));
        }
    }

    /// Commits results that have waited long enough for their batch.
    pub(crate) async fn commit_results(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        self.write(|_, draft| {
            turn.said.draft_done(draft);
            draft.progress();
            Verdict::Write((), DrainEnd::Keep)
        })
        .await?;
        turn.batch.commit_at = None;
        turn.said.done.clear();
        Ok(())
    }

    /// Keeps the text of a long stream.
    async fn checkpoint(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        turn.checkpoint_at = None;
        let unkept = turn.said.reply.take_unkept();
        if unkept.is_empty() {
            return Ok(());
        }
        let id = turn.said.turn.clone();
        self.write(|_, draft| {
            for (part, offset, text) in &unkept {
                let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                let (turn, part, text) = (id.clone(), part.clone(), text.clone());
                draft.push(TextCheckpointed { turn, part, offset, text });
            }
            Verdict::Write((), DrainEnd::Keep)
        })
        .await
    }

    /// Commits the failure, the wait and the next attempt's intent at once.
    async fn schedule_retry(
        &mut self,
        failed: &AttemptStarted,
        usage: Option<Usage>,
        error: &LlmError,
        delay: Duration,
    ) -> Result<AttemptStarted, Stop> {
        let error = provider_error(error);
        let wait_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        self.write(|_, draft| {
            draft.push(AttemptEnded {
                attempt: failed.attempt.clone(),
                turn: failed.turn.clone(),
                outcome: AttemptOutcome::Failed,
                usage: usage.map(token_usage),
                error: Some(error.clone()),
            });
            let next = AttemptStarted {
                attempt: AttemptId::mint(draft.mint()),
                ordinal: failed.ordinal + 1,
                ..failed.clone()
            };
            draft.push(RetryScheduled {
                turn: failed.turn.clone(),
                ordinal: next.ordinal,
                at: draft.now().saturating_add(wait_ms),
                error: error.clone(),
            });
            draft.push(next.clone());
            Verdict::Write(next, DrainEnd::Keep)
        })
        .await
    }
}

impl Stage<'_> {
    /// The intents that wait, as *started*: a body may run once they are committed.
    pub(crate) fn draft_intents(&self, draft: &mut Draft<'_>, said: &Said) {
        for intent in &said.unintended {
            draft.push(ToolCalled {
                turn: said.turn.clone(),
                message: said.message.clone(),
                class: self.toolbox.class(&intent.tool),
                intent: intent.clone(),
                state: ToolState::Started,
            });
        }
    }
}
