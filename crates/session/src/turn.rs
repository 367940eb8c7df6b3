//! One Provider Turn: the call, its tools beside the stream, and its settlement.

use std::time::Duration;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CallId, DrainOutcome, MessageId,
    NoticeKind, NoticeRecorded, PartId, RetryScheduled, SessionError, TextCheckpointed, ToolCalled,
    ToolIntent, ToolOutcomeKind, ToolSettled, ToolState, TurnId, TurnOutcome, TurnReplied,
    TurnSettled, TurnUsage,
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
use crate::draft::Draft;
use crate::drain::{Drain, Next, Stop};
use crate::reply::{Reply, storable};
use crate::toolbox::settled_as;

/// What the model is told after its own reply was cut off.
pub(crate) const CONTINUE: &str = "<notice>The previous response was interrupted before it was complete. \
Continue from where it stopped; do not repeat what was already said or done.</notice>";

/// The open turn, as far as rows do not hold it.
pub(crate) struct Turn<'r> {
    pub(crate) turn: TurnId,
    pub(crate) message: MessageId,
    reply: Reply,
    /// The provider's name of the text or reasoning part that is open, and ours.
    part: Option<(String, PartId)>,
    /// Calls whose intent is not committed.
    unintended: Vec<ToolIntent>,
    intend_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    pub(crate) batch: Batch<'r>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

/// Bodies that run, and results that are not committed.
pub(crate) struct Batch<'r> {
    bodies: FuturesUnordered<BoxFuture<'r, ToolSettled>>,
    done: Vec<ToolSettled>,
    commit_at: Option<Instant>,
    cancel: CancellationToken,
}

enum Streamed {
    Whole,
    Failed(LlmError),
    Interrupted,
}

impl<'r> Turn<'r> {
    pub(crate) fn new(turn: TurnId, message: MessageId) -> Self {
        Self {
            turn,
            message,
            reply: Reply::default(),
            part: None,
            unintended: Vec::new(),
            intend_at: None,
            checkpoint_at: None,
            batch: Batch {
                bodies: FuturesUnordered::new(),
                done: Vec::new(),
                commit_at: None,
                cancel: CancellationToken::new(),
            },
            finish: None,
            usage: None,
        }
    }
}

impl<'r> Batch<'r> {
    /// Fires when the batch's bodies are to stop.
    pub(crate) fn token(&self) -> CancellationToken {
        self.cancel.child_token()
    }

    pub(crate) fn start(&mut self, body: BoxFuture<'r, ToolSettled>) {
        self.bodies.push(body);
    }

    pub(crate) fn finished(&mut self, done: ToolSettled, delay: Duration) {
        self.done.push(done);
        self.commit_at.get_or_insert_with(|| Instant::now() + delay);
    }

    fn take_done(&mut self) -> Vec<ToolSettled> {
        self.commit_at = None;
        std::mem::take(&mut self.done)
    }
}

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

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl<'r> Drain<'r> {
    /// Runs the turn whose intent is committed, up to the next boundary.
    pub(crate) async fn turn(&mut self, mut plan: TurnPlan) -> Result<Next, Stop> {
        let mut turn = Turn::new(plan.turn.clone(), plan.message.clone());
        self.live.begin(plan.message.clone());
        loop {
            match Box::pin(self.stream(&plan, &mut turn)).await? {
                Streamed::Whole => return self.replied(&plan.started, turn).await,
                Streamed::Interrupted => return self.interrupt_turn(turn).await,
                Streamed::Failed(error) if turn.reply.is_visible() => {
                    return self.cut(&plan.started, turn, &error).await;
                }
                Streamed::Failed(error) => {
                    let delay = self.next_delay(&error);
                    let Some(delay) = delay else {
                        let error = provider_error(&error);
                        return self.fail_turn(&plan.started.attempt, turn, error).await;
                    };
                    plan.started = self.schedule_retry(&plan.started, &error, delay).await?;
                    if self.wait(&mut turn, delay).await? {
                        return self.interrupt_turn(turn).await;
                    }
                }
            }
        }
    }

    fn next_delay(&mut self, error: &LlmError) -> Option<Duration> {
        self.failures += 1;
        let rand = rand::rng().random();
        self.runtime.settings.retry.next_delay(self.failures, &error.reason, rand)
    }

    /// One wire request, until its stream ends.
    async fn stream(&mut self, plan: &TurnPlan, turn: &mut Turn<'r>) -> Result<Streamed, Stop> {
        let settings = self.runtime.settings.clone();
        let control = self.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.interrupts_before;
        let opening = self.runtime.llm.stream(&plan.endpoint, plan.protocol, plan.body.clone());
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
                    turn.batch.finished(done, settings.result_delay);
                }
                event = stream.next() => match event {
                    Some(Ok(event)) => self.take(turn, event),
                    Some(Err(error)) => return Ok(Streamed::Failed(error)),
                    None => return Ok(Streamed::Whole),
                },
                () = at(turn.intend_at) => self.commit_intents(turn).await?,
                () = at(turn.batch.commit_at) => self.commit_results(&mut turn.batch).await?,
                () = at(turn.checkpoint_at) => self.checkpoint(turn).await?,
                () = control.resync.notified() => self.live.resync(),
            }
            if turn.reply.unkept() >= settings.checkpoint_bytes {
                self.checkpoint(turn).await?;
            }
            if self.is_interrupted(&self.history) {
                return Ok(Streamed::Interrupted);
            }
        }
    }

    /// Takes in one event of the stream.
    fn take(&mut self, turn: &mut Turn<'r>, event: LlmEvent) {
        match event {
            LlmEvent::TextStart { id } | LlmEvent::ReasoningStart { id } => {
                turn.part = Some((id, PartId::mint(&mut self.mint)));
            }
            LlmEvent::TextDelta { id, text } => {
                let part = self.part(turn, id);
                let text = storable(&text);
                turn.reply.text(&part, &text);
                self.live.push(&part, DeltaKind::Text, &text);
                let every = self.runtime.settings.checkpoint_every;
                turn.checkpoint_at.get_or_insert_with(|| Instant::now() + every);
            }
            LlmEvent::ReasoningDelta { id, text } => {
                let part = self.part(turn, id);
                let text = storable(&text);
                turn.reply.reasoning(&part, &text);
                self.live.push(&part, DeltaKind::Reasoning, &text);
            }
            LlmEvent::ToolCall(call) => {
                let intent = ToolIntent {
                    call: CallId::mint(&mut self.mint),
                    part: PartId::mint(&mut self.mint),
                    provider_call: storable(&call.id).into_owned(),
                    tool: storable(&call.name).into_owned(),
                    arguments: storable(&call.arguments).into_owned(),
                };
                turn.reply.call(intent.call.clone());
                turn.unintended.push(intent);
                let delay = self.runtime.settings.intent_delay;
                turn.intend_at.get_or_insert_with(|| Instant::now() + delay);
            }
            LlmEvent::StepFinish { reason, usage } | LlmEvent::Finish { reason, usage } => {
                turn.finish = Some(reason);
                turn.usage = usage.or(turn.usage);
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
                let part = PartId::mint(&mut self.mint);
                turn.part = Some((id, part.clone()));
                part
            }
        }
    }

    /// Commits the intents that wait, then starts their bodies.
    async fn commit_intents(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        let mut draft = self.resume().await?;
        if self.is_interrupted(draft.history()) {
            self.history = draft.abandon().await?;
            return Ok(());
        }
        let intents = self.draft_intents(&mut draft, turn);
        self.commit(draft, DrainEnd::Keep).await?;
        self.start(turn, intents);
        Ok(())
    }

    fn draft_intents(&self, draft: &mut Draft, turn: &mut Turn<'r>) -> Vec<ToolIntent> {
        turn.intend_at = None;
        let intents = std::mem::take(&mut turn.unintended);
        for intent in &intents {
            draft.push(ToolCalled {
                turn: turn.turn.clone(),
                message: turn.message.clone(),
                class: self.toolbox.class(&intent.tool),
                intent: intent.clone(),
                state: ToolState::Started,
            });
        }
        intents
    }

    fn start(&self, turn: &mut Turn<'r>, intents: Vec<ToolIntent>) {
        for intent in intents {
            let cancel = turn.batch.token();
            turn.batch.start(self.toolbox.body(turn.turn.clone(), intent, cancel));
        }
    }

    /// Commits results that have waited long enough for their batch.
    async fn commit_results(&mut self, batch: &mut Batch<'r>) -> Result<(), Stop> {
        let mut draft = self.resume().await?;
        for settled in batch.take_done() {
            draft.push(settled);
        }
        draft.progress();
        self.commit(draft, DrainEnd::Keep).await
    }

    /// Keeps the text of a long stream.
    async fn checkpoint(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        turn.checkpoint_at = None;
        let unkept = turn.reply.take_unkept();
        if unkept.is_empty() {
            return Ok(());
        }
        let mut draft = self.resume().await?;
        for (part, offset, text) in unkept {
            let offset = i64::try_from(offset).unwrap_or(i64::MAX);
            draft.push(TextCheckpointed { turn: turn.turn.clone(), part, offset, text });
        }
        self.commit(draft, DrainEnd::Keep).await
    }

    /// The stream ended as it should: commits the reply, and without calls the turn's end with it.
    async fn replied(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
    ) -> Result<Next, Stop> {
        let finish = turn.finish.unwrap_or(FinishReason::Unknown);
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
        let mut draft = self.resume().await?;
        if self.is_interrupted(draft.history()) {
            self.history = draft.abandon().await?;
            return self.interrupt_turn(turn).await;
        }
        draft.push(AttemptEnded {
            attempt: started.attempt.clone(),
            turn: turn.turn.clone(),
            outcome: AttemptOutcome::Completed,
            usage: turn.usage.map(token_usage),
            error: None,
        });
        let intents = self.draft_intents(&mut draft, &mut turn);
        draft.push(TurnReplied {
            turn: turn.turn.clone(),
            message: turn.message.clone(),
            parts: std::mem::take(&mut turn.reply).into_parts(|_| true),
            finish: finish.as_str().to_owned(),
        });
        self.failures = 0;
        let calls = draft.history().open_turn().is_some_and(|open| !open.calls.is_empty());
        if !calls {
            settle_turn(&mut draft, &turn, TurnOutcome::Completed, None);
            return self.boundary(draft, false, observed).await;
        }
        self.commit(draft, DrainEnd::Keep).await?;
        self.start(&mut turn, intents);
        self.settle(turn, TurnOutcome::Completed).await
    }

    /// Waits for the turn's bodies, then settles it and goes on to the next boundary.
    pub(crate) async fn settle(
        &mut self,
        mut turn: Turn<'r>,
        outcome: TurnOutcome,
    ) -> Result<Next, Stop> {
        if self.finish_bodies(&mut turn).await? {
            return self.interrupt_turn(turn).await;
        }
        let observed = self.observe().await;
        let mut draft = self.resume().await?;
        if self.is_interrupted(draft.history()) {
            self.history = draft.abandon().await?;
            return self.interrupt_turn(turn).await;
        }
        for settled in turn.batch.take_done() {
            draft.push(settled);
        }
        settle_turn(&mut draft, &turn, outcome, None);
        if outcome == TurnOutcome::Cut {
            let message = MessageId::mint(draft.mint());
            let text = CONTINUE.to_owned();
            draft.push(NoticeRecorded { message, kind: NoticeKind::Continuation, text });
        }
        self.boundary(draft, true, observed).await
    }

    /// Runs the bodies to their ends, committing results that wait too long. True: interrupted.
    async fn finish_bodies(&mut self, turn: &mut Turn<'r>) -> Result<bool, Stop> {
        let delay = self.runtime.settings.result_delay;
        let control = self.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.interrupts_before;
        while !turn.batch.bodies.is_empty() {
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(true),
                Some(done) = turn.batch.bodies.next() => turn.batch.finished(done, delay),
                () = at(turn.batch.commit_at) => self.commit_results(&mut turn.batch).await?,
                () = control.resync.notified() => self.live.resync(),
            }
            if self.is_interrupted(&self.history) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the turn on an interrupt: the stream is gone, its tools are stopped, all is settled.
    pub(crate) async fn interrupt_turn(&mut self, mut turn: Turn<'r>) -> Result<Next, Stop> {
        self.stop_bodies(&mut turn).await?;
        let mut draft = self.resume().await?;
        end_attempt(&mut draft, &turn, AttemptOutcome::Interrupted, None);
        close_reply(&mut draft, &mut turn, "interrupted");
        for settled in turn.batch.take_done() {
            draft.push(settled);
        }
        settle_open_calls(
            &mut draft,
            &turn.turn,
            ToolOutcomeKind::Interrupted,
            "interrupted by the user",
        );
        settle_turn(&mut draft, &turn, TurnOutcome::Interrupted, None);
        self.end(draft, DrainOutcome::Interrupted, None, DrainEnd::Close).await
    }

    /// Ends the turn on an error that no retry will help. Tools that had started run to their ends.
    async fn fail_turn(
        &mut self,
        attempt: &AttemptId,
        mut turn: Turn<'r>,
        error: SessionError,
    ) -> Result<Next, Stop> {
        if self.finish_bodies(&mut turn).await? {
            return self.interrupt_turn(turn).await;
        }
        let mut draft = self.resume().await?;
        draft.push(AttemptEnded {
            attempt: attempt.clone(),
            turn: turn.turn.clone(),
            outcome: AttemptOutcome::Failed,
            usage: turn.usage.map(token_usage),
            error: Some(error.clone()),
        });
        close_reply(&mut draft, &mut turn, "error");
        for settled in turn.batch.take_done() {
            draft.push(settled);
        }
        settle_turn(&mut draft, &turn, TurnOutcome::Failed, Some(error.clone()));
        self.end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Close).await
    }

    /// The stream broke after visible output: keeps what came, and continues durably.
    async fn cut(
        &mut self,
        started: &AttemptStarted,
        mut turn: Turn<'r>,
        error: &LlmError,
    ) -> Result<Next, Stop> {
        let Some(delay) = self.next_delay(error) else {
            return self.fail_turn(&started.attempt, turn, provider_error(error)).await;
        };
        let mut draft = self.resume().await?;
        draft.push(AttemptEnded {
            attempt: started.attempt.clone(),
            turn: turn.turn.clone(),
            outcome: AttemptOutcome::Cut,
            usage: turn.usage.map(token_usage),
            error: Some(provider_error(error)),
        });
        close_reply(&mut draft, &mut turn, "cut");
        self.commit(draft, DrainEnd::Keep).await?;
        if self.wait(&mut turn, delay).await? {
            return self.interrupt_turn(turn).await;
        }
        self.settle(turn, TurnOutcome::Cut).await
    }

    /// Commits the failure, the wait and the next attempt's intent at once.
    async fn schedule_retry(
        &mut self,
        failed: &AttemptStarted,
        error: &LlmError,
        delay: Duration,
    ) -> Result<AttemptStarted, Stop> {
        let mut draft = self.resume().await?;
        let error = provider_error(error);
        draft.push(AttemptEnded {
            attempt: failed.attempt.clone(),
            turn: failed.turn.clone(),
            outcome: AttemptOutcome::Failed,
            usage: None,
            error: Some(error.clone()),
        });
        let wait_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let next = AttemptStarted {
            attempt: AttemptId::mint(draft.mint()),
            ordinal: failed.ordinal + 1,
            ..failed.clone()
        };
        let at = draft.now().saturating_add(wait_ms);
        draft.push(RetryScheduled { turn: failed.turn.clone(), ordinal: next.ordinal, at, error });
        draft.push(next.clone());
        self.commit(draft, DrainEnd::Keep).await?;
        Ok(next)
    }

    /// Waits out a back-off; bodies that run go on. True: interrupted.
    async fn wait(&mut self, turn: &mut Turn<'r>, delay: Duration) -> Result<bool, Stop> {
        let result_delay = self.runtime.settings.result_delay;
        let control = self.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.interrupts_before;
        let over = Instant::now() + delay;
        loop {
            if self.is_interrupted(&self.history) {
                return Ok(true);
            }
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(true),
                Some(done) = turn.batch.bodies.next() => turn.batch.finished(done, result_delay),
                () = at(turn.batch.commit_at) => self.commit_results(&mut turn.batch).await?,
                () = sleep_until(over) => return Ok(false),
            }
        }
    }

    /// Tells the bodies to stop and takes what they still say within the time for it.
    async fn stop_bodies(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        turn.batch.cancel.cancel();
        let deadline = Instant::now() + self.runtime.settings.stop_tools;
        while !turn.batch.bodies.is_empty() {
            tokio::select! {
                biased;
                () = self.control.fenced.cancelled() => return Err(Stop::Fenced),
                Some(done) = turn.batch.bodies.next() => turn.batch.done.push(done),
                () = sleep_until(deadline) => break,
            }
        }
        turn.batch.bodies.clear();
        Ok(())
    }
}

/// Ends the attempt that is open, if one is.
pub(crate) fn end_attempt(
    draft: &mut Draft,
    turn: &Turn<'_>,
    outcome: AttemptOutcome,
    error: Option<SessionError>,
) {
    let open = draft.history().open_turn().and_then(|open| open.attempt.clone());
    if let Some(attempt) = open {
        draft.push(AttemptEnded {
            attempt,
            turn: turn.turn.clone(),
            outcome,
            usage: turn.usage.map(token_usage),
            error,
        });
    }
}

/// Commits what came of a reply that is not whole, without the calls that have no intent.
fn close_reply(draft: &mut Draft, turn: &mut Turn<'_>, finish: &str) {
    turn.unintended.clear();
    turn.intend_at = None;
    let Some(open) = draft.history().open_turn() else { return };
    if open.reply.is_some() {
        return;
    }
    let known: Vec<CallId> = open.calls.iter().map(|(call, _)| call.clone()).collect();
    let parts = std::mem::take(&mut turn.reply).into_parts(|call| known.contains(call));
    if !parts.is_empty() {
        draft.push(TurnReplied {
            turn: turn.turn.clone(),
            message: turn.message.clone(),
            parts,
            finish: finish.to_owned(),
        });
    }
}

/// Settles every call that has no result.
pub(crate) fn settle_open_calls(
    draft: &mut Draft,
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
    draft: &mut Draft,
    turn: &Turn<'_>,
    outcome: TurnOutcome,
    error: Option<SessionError>,
) {
    debug_assert!(draft.history().open_turn().is_none_or(history::OpenTurn::is_settled));
    let usage = draft.history().open_turn().map(|open| open.usage).unwrap_or_default();
    draft.push(TurnSettled {
        turn: turn.turn.clone(),
        message: turn.message.clone(),
        outcome,
        usage,
        error,
    });
    draft.progress();
}
