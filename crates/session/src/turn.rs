//! One Provider Turn while it streams: its attempts, its text, and its tools beside it.

use std::pin::pin;
use std::time::Duration;

use domain::{
    AttemptStarted, ModelRef, SessionId, SessionRef, TimestampMs, ToolIntent, ToolState, TurnId,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use llm_client::{LlmError, Route, Secret};
use llm_protocol::{ErrorReason, LlmEvent, Usage};
use rand::RngExt;
use session_rules::{Draft, Heard, Next, Rules, Said, TurnPlan, Verdict};
use signals::DeltaKind;
use snapshots::Touched;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tools::Limits;
use tracing::{Instrument, info_span, warn};

use crate::ahead::{Ahead, read_on};
use crate::control::interrupted_after;
use crate::drain::{Drain, Stop};
use crate::ending::provider_error;
use crate::patience::patiently;
use crate::providers::{Blocked, Way};
use crate::rate::Asks;
use crate::spending::Allowed;
use crate::toolbox::Ran;
use crate::traced::Within;

/// The open turn: what it has said, and the bodies of its calls.
pub(crate) struct Turn<'r> {
    pub(crate) said: Said,
    intend_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    /// Of a request beside the conversation: what comes is told to nobody, and no call runs.
    beside: bool,
    /// The provider's answer, as it arrives.
    ahead: Option<Ahead>,
    pub(crate) batch: Batch<'r>,
}

/// Bodies that run.
pub(crate) struct Batch<'r> {
    pub(crate) bodies: FuturesUnordered<BoxFuture<'r, Ran>>,
    /// The files that ended calls may have changed and that no capture has.
    touched: Touched,
    pub(crate) commit_at: Option<Instant>,
    pub(crate) cancel: CancellationToken,
}

pub(crate) enum Streamed {
    Whole,
    Failed(LlmError),
    Interrupted,
}

impl<'r> Turn<'r> {
    pub(crate) fn of(said: Said) -> Self {
        Self {
            said,
            intend_at: None,
            checkpoint_at: None,
            beside: false,
            ahead: None,
            batch: Batch {
                bodies: FuturesUnordered::new(),
                touched: Touched::Nothing,
                commit_at: None,
                cancel: CancellationToken::new(),
            },
        }
    }

    /// A request beside the conversation.
    pub(crate) fn beside(said: Said) -> Self {
        Self { beside: true, ..Self::of(said) }
    }

    /// Forgets calls that the model will not see, since no intent of them was committed.
    pub(crate) fn forget_unintended(&mut self) {
        self.said.unintended.clear();
        self.intend_at = None;
    }

    /// Forgets what an attempt without visible output left, before the next one; returns what it used.
    fn forget_attempt(&mut self) -> Option<Usage> {
        self.intend_at = None;
        self.said.forget_attempt()
    }

    /// Fires when its bodies are to stop.
    fn token(&self) -> CancellationToken {
        self.batch.cancel.child_token()
    }

    /// Something may have changed files.
    pub(crate) fn touched(&mut self, touched: Touched) {
        self.batch.touched = std::mem::take(&mut self.batch.touched).and(touched);
    }

    /// Whether its calls may have changed files, and that is not captured.
    pub(crate) fn has_touched(&self) -> bool {
        self.batch.touched != Touched::Nothing
    }

    /// Takes the note of which files its calls may have changed.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.batch.touched)
    }

    /// The results so far are durable.
    pub(crate) fn results_written(&mut self) {
        self.batch.commit_at = None;
        self.said.done.clear();
    }

    /// A body has ended; its result may wait for others no longer than `delay`.
    pub(crate) fn finished(&mut self, ran: Ran, delay: Duration) {
        self.touched(ran.touched);
        self.said.done.push(ran.settled);
        self.batch.commit_at.get_or_insert_with(|| Instant::now() + delay);
    }
}

/// The time of a turn, for the operators.
struct Timed {
    begun: Instant,
    since: TimestampMs,
    traced: Option<Within>,
}

impl Timed {
    fn begin(traced: Option<Within>, since: TimestampMs) -> Self {
        Self { begun: Instant::now(), since, traced }
    }

    /// Notes that the model has said what it says in this turn.
    fn end(&self, turn: &TurnId, outcome: &'static str) {
        let took = self.begun.elapsed();
        telemetry::metrics().turn(outcome, took);
        if let Some(traced) = self.traced {
            let until = self.since + i64::try_from(took.as_millis()).unwrap_or(0);
            let error = Some(outcome).filter(|outcome| *outcome != "completed");
            traced.turn(turn, (self.since, until), error);
        }
    }
}

/// The warning about counts of a provider that are not believed.
pub(crate) const MISCOUNTED: &str = "the provider's count of tokens cannot be true, so it is not believed: the answer \
    is kept, and counts as no tokens and no cost";

/// Counts an attempt for the operators.
fn count(provider: &str, outcome: &'static str, usage: Option<&Usage>, took: Duration) {
    telemetry::metrics().attempt(provider, outcome, took);
    if let Some(usage) = usage {
        let tokens = [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ];
        telemetry::metrics().used(provider, tokens);
    }
}

/// The end of an attempt in a word.
const fn outcome(streamed: &Result<Streamed, Stop>) -> &'static str {
    match streamed {
        Ok(Streamed::Whole) => "completed",
        Ok(Streamed::Interrupted) => "interrupted",
        Ok(Streamed::Failed(error)) => word(&error.reason),
        Err(_) => "broken_off",
    }
}

/// The reason of a failure in a word, without its numbers.
const fn word(reason: &ErrorReason) -> &'static str {
    match reason {
        ErrorReason::Authentication => "authentication",
        ErrorReason::RateLimit { .. } => "rate_limit",
        ErrorReason::Quota => "quota",
        ErrorReason::ContextOverflow => "context_overflow",
        ErrorReason::ContentPolicy => "content_policy",
        ErrorReason::StateRefused => "state_refused",
        ErrorReason::InvalidRequest => "invalid_request",
        ErrorReason::Transport { .. } => "transport",
        ErrorReason::ProviderInternal { .. } => "provider_internal",
        ErrorReason::InvalidOutput { .. } => "invalid_output",
        ErrorReason::Unknown => "unknown",
    }
}

/// Scales the limits of a tool's result to the model that reads it next.
fn result_limits(limits: Limits, bytes: u64) -> Limits {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Limits::new(limits.max_lines(), limits.max_bytes().min(bytes))
}

/// Waits for a time that may not be set.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The stream's next event; `None` without a stream.
async fn next_of(ahead: &mut Option<Ahead>) -> Option<Result<LlmEvent, LlmError>> {
    match ahead {
        Some(ahead) => ahead.next().await,
        None => None,
    }
}

impl<'r> Drain<'r> {
    /// Runs the turn whose intent is committed, up to the next boundary.
    pub(crate) async fn turn(&mut self, mut plan: TurnPlan) -> Result<Next, Stop> {
        let mut turn = Turn::of(Said::new(plan.turn.clone(), plan.message.clone()));
        self.live.begin(plan.message.clone());
        let timed = Timed::begin(self.stage.toolbox.traced, self.stage.runtime.clock.now_ms());
        loop {
            let counted = match self.allowed(&plan, &mut turn).await? {
                Allowed::Go(counted) => counted,
                Allowed::Wait | Allowed::Interrupted => return self.interrupt_turn(turn).await,
                Allowed::Stop(reached) => {
                    return self.fail_turn(&plan.started.attempt, turn, reached).await;
                }
            };
            match self.stream(&plan, &mut turn).await? {
                Streamed::Whole => {
                    self.paid_failures = 0;
                    timed.end(&plan.turn, "completed");
                    return self.replied(&plan.started, turn).await;
                }
                Streamed::Interrupted => {
                    timed.end(&plan.turn, "interrupted");
                    return self.interrupt_turn(turn).await;
                }
                Streamed::Failed(error) if turn.said.is_visible() => {
                    timed.end(&plan.turn, "cut");
                    return self.cut(&plan.started, turn, &error).await;
                }
                Streamed::Failed(error) => {
                    if error.may_be_overflow()
                        && let Some(next) = self.overflow(&plan.started, &turn.said, &error).await?
                    {
                        return Ok(next);
                    }
                    let usage = turn.said.usage;
                    if self.leave_out_state(&mut plan, usage, &error).await? {
                        let _counted_above = turn.forget_attempt();
                        continue;
                    }
                    let delay = self.next_delay(&error);
                    let Some(delay) = delay else {
                        timed.end(&plan.turn, "failed");
                        let error = provider_error(&error);
                        return self.fail_turn(&plan.started.attempt, turn, error).await;
                    };
                    // The next attempt counts as a request of its own.
                    drop(counted);
                    let usage = turn.forget_attempt();
                    plan.started = self.schedule_retry(&plan.started, usage, &error, delay).await?;
                    if self.finish_bodies(&mut turn, delay).await? {
                        timed.end(&plan.turn, "interrupted");
                        return self.interrupt_turn(turn).await;
                    }
                }
            }
        }
    }

    pub(crate) fn next_delay(&mut self, error: &LlmError) -> Option<Duration> {
        let retry = self.stage.rules().settings.retry;
        if error.may_be_charged() {
            self.paid_failures += 1;
            if !retry.allows_paid(self.paid_failures) {
                return None;
            }
        }
        // All failures between two whole replies share one budget, whoever met them.
        let failed = self.log.history().failures() + 1;
        let rand = rand::rng().random();
        error.next_delay(&retry, failed, rand)
    }

    /// One wire request, until its stream ends.
    pub(crate) async fn stream(
        &mut self,
        plan: &TurnPlan,
        turn: &mut Turn<'r>,
    ) -> Result<Streamed, Stop> {
        let AttemptStarted { attempt, ordinal, .. } = &plan.started;
        let span = info_span!("session.attempt", attempt.id = %attempt, ordinal);
        let (begun, clock) = (Instant::now(), self.stage.runtime.clock.clone());
        let since = clock.now_ms();
        let streamed = Box::pin(self.attempt(plan, turn)).instrument(span).await;
        let (outcome, usage) = (outcome(&streamed), turn.said.usage.as_ref());
        count(&plan.model.provider, outcome, usage, begun.elapsed());
        if turn.said.is_miscounted {
            let ModelRef { provider, model, .. } = &plan.model;
            warn!(turn.id = %plan.turn, provider, model, "{MISCOUNTED}");
        }
        if let Some(traced) = self.stage.toolbox.traced {
            let error = Some(outcome).filter(|outcome| *outcome != "completed");
            traced.attempt(plan, usage, (since, clock.now_ms()), error);
        }
        turn.ahead = None;
        streamed
    }

    async fn attempt(&mut self, plan: &TurnPlan, turn: &mut Turn<'r>) -> Result<Streamed, Stop> {
        let settings = self.stage.runtime.settings.clone();
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.stage.interrupts_before;
        let runtime = self.stage.runtime;
        let limit = self.stage.models.limit(&plan.model.provider);
        let asks = Asks::of(self.stage.session.org, plan, limit);
        if let Some(asks) = &asks
            && self.await_rate(asks, turn).await?
        {
            return Ok(Streamed::Interrupted);
        }
        // After the wait, which may be long: a credential that was removed meanwhile is not used.
        let models = &self.stage.models;
        let way = patiently(|| async {
            match models.way(plan).await {
                Ok(way) => Ok(Ok(way)),
                Err(Blocked::Refused(error)) => Ok(Err(error)),
                Err(Blocked::Store(error)) => Err(error),
            }
        });
        let Way { route, as_whom, client } = match way.await? {
            Ok(way) => way,
            Err(error) => return Ok(Streamed::Failed(error)),
        };
        let client = client.as_ref().unwrap_or(&runtime.llm);
        let llm = client.on(of_session(route, self.stage.session, self.log.history().parent()));
        let mut opening = Box::pin(llm.send(plan.body.clone()));
        let opened = loop {
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(Streamed::Interrupted),
                opened = &mut opening => break opened,
                () = self.files.advance() => {}
                () = self.title.advance() => {}
            }
        };
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => {
                if let Some(asks) = &asks {
                    asks.refused(runtime, &error).await;
                }
                return Ok(Streamed::Failed(as_whom.told(error)));
            }
        };
        turn.ahead = Some(Ahead::of(stream));
        loop {
            // Calls that may change files start once what was before them is durable.
            let held =
                turn.intend_at.is_some() && self.files.is_running() && self.may_change_files(turn);
            if held {
                self.files.hold();
            }
            tokio::select! {
                biased;
                () = control.fenced.cancelled() => return Err(Stop::Fenced),
                () = interrupted_after(&mut interrupts, known) => return Ok(Streamed::Interrupted),
                Some(ran) = turn.batch.bodies.next() => {
                    turn.finished(ran, settings.result_delay);
                }
                // Due work comes first: a fast stream always has a frame.
                () = self.files.advance() => {}
                () = at(turn.intend_at), if !held => self.commit_intents(turn).await?,
                () = at(turn.batch.commit_at) => self.commit_results(turn).await?,
                () = at(turn.checkpoint_at) => self.checkpoint(turn).await?,
                () = control.resync.notified() => self.live.resync(),
                () = self.title.advance() => {}
                event = next_of(&mut turn.ahead) => match event {
                    Some(Ok(event)) => self.take(turn, event),
                    Some(Err(error)) => return Ok(Streamed::Failed(error)),
                    None => return Ok(Streamed::Whole),
                },
                // Only when the stream has nothing more at once.
                () = std::future::ready(()), if self.live.has_untold() => self.live.flush(),
            }
            if !turn.beside && turn.said.reply.unkept() >= settings.checkpoint_bytes {
                self.checkpoint(turn).await?;
            }
            if self.is_interrupted() {
                return Ok(Streamed::Interrupted);
            }
        }
    }

    /// Takes in one event of the stream.
    fn take(&mut self, turn: &mut Turn<'r>, event: LlmEvent) {
        let event = self.stage.rules().tools.name_tool_of(event);
        let heard = turn.said.take(event, &mut self.log.mint);
        if turn.beside {
            return;
        }
        match heard {
            Heard::Text(part, text) => {
                self.live.push(&part, DeltaKind::Text, &text);
                let every = self.stage.runtime.settings.checkpoint_every;
                turn.checkpoint_at.get_or_insert_with(|| Instant::now() + every);
            }
            Heard::Reasoning(part, text) => self.live.push(&part, DeltaKind::Reasoning, &text),
            // A call of the last allowed turn never runs.
            Heard::Call if self.stage.rules().is_last_step(self.log.history()) => {}
            Heard::Call => {
                self.before_changes(turn);
                let delay = self.stage.runtime.settings.intent_delay;
                turn.intend_at.get_or_insert_with(|| Instant::now() + delay);
            }
            Heard::Nothing => {}
        }
    }

    /// Commits the intents that wait, then starts their bodies.
    async fn commit_intents(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        if self.wants_saved(turn) {
            self.look_at_saved().await?;
        }
        let (starts, ended) =
            self.write_beside(turn, |rules, draft, said| rules.intents(draft, said)).await?;
        if starts {
            self.start_intended(turn);
        }
        self.take_in(turn, ended);
        Ok(())
    }

    /// Starts the bodies of calls whose intents are committed now.
    pub(crate) fn start_intended(&self, turn: &mut Turn<'r>) {
        turn.intend_at = None;
        let intents = std::mem::take(&mut turn.said.unintended);
        self.start_bodies(turn, intents);
    }

    pub(crate) fn start_bodies(&self, turn: &mut Turn<'r>, intents: Vec<ToolIntent>) {
        let (toolbox, history) = (&self.stage.toolbox, self.log.history());
        let rules = self.stage.rules();
        let open = history.open_turn();
        // Those that somebody is asked about start when their answers have come, and some are settled already.
        let has_started = |intent: &ToolIntent| {
            let call = open.and_then(|open| open.call(&intent.call));
            call.is_some_and(|call| call.state == ToolState::Started)
        };
        for intent in intents.into_iter().filter(has_started) {
            let (id, cancel) = (turn.said.turn.clone(), turn.token());
            let body = match rules.refusal(history, &intent) {
                Some(why) => toolbox.refused(id, intent.call, &why),
                None => {
                    let limits = result_limits(toolbox.limits(), rules.result_bytes(history));
                    let (skills, reads) =
                        (rules.loadable_skills(history), rules.read_scope(history));
                    let of = (id, turn.said.message.clone());
                    toolbox.body(of, intent, skills, reads, limits, cancel)
                }
            };
            turn.batch.bodies.push(body);
        }
    }

    /// Commits results that have waited long enough for their batch.
    pub(crate) async fn commit_results(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        let ((), ended) =
            self.write_beside(turn, |rules, draft, said| rules.results(draft, said)).await?;
        turn.results_written();
        self.take_in(turn, ended);
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
        let ((), ended) = self
            .write_beside(turn, |rules, draft, _| rules.checkpoint(draft, &id, &unkept))
            .await?;
        self.take_in(turn, ended);
        Ok(())
    }

    /// Writes while the bodies run on and the stream is read on: a Postgres that is away for a while stops neither.
    /// With it come the bodies that have ended meanwhile, which no decision has seen.
    pub(crate) async fn write_beside<T>(
        &mut self,
        turn: &mut Turn<'r>,
        mut decide: impl FnMut(&Rules<'_>, &mut Draft<'_>, &Said) -> Verdict<T>,
    ) -> Result<(T, Vec<Ran>), Stop> {
        let Turn { said, batch, ahead, .. } = turn;
        let said = &*said;
        let mut ended = Vec::new();
        let mut writing = pin!(self.write(|rules, draft| decide(rules, draft, said)));
        loop {
            tokio::select! {
                biased;
                written = &mut writing => return Ok((written?, ended)),
                Some(ran) = batch.bodies.next() => ended.push(ran),
                () = read_on(ahead) => {}
            }
        }
    }

    /// Takes in the bodies that ended during a write.
    pub(crate) fn take_in(&self, turn: &mut Turn<'r>, ended: Vec<Ran>) {
        for ran in ended {
            turn.finished(ran, self.stage.runtime.settings.result_delay);
        }
    }

    /// The provider refused the request as too large, or in words that may hide it: what comes next, if a Compaction may
    /// help.
    async fn overflow(
        &mut self,
        started: &AttemptStarted,
        said: &Said,
        error: &LlmError,
    ) -> Result<Option<Next>, Stop> {
        let observed = self.observe(&[]).await;
        let error = provider_error(error);
        let next = self
            .write(|rules, draft| {
                rules.overflowed(draft, &started.attempt, said, &error, &observed)
            })
            .await?;
        if let Some(next) = &next {
            self.written(next);
        }
        Ok(next)
    }

    /// If the provider refused its own state, commits the next attempt without it. Returns whether there is one.
    pub(crate) async fn leave_out_state(
        &mut self,
        plan: &mut TurnPlan,
        usage: Option<Usage>,
        error: &LlmError,
    ) -> Result<bool, Stop> {
        if error.reason != ErrorReason::StateRefused {
            return Ok(false);
        }
        let (error, sent) = (provider_error(error), &*plan);
        let next = self
            .write(|rules, draft| rules.retry_without_state(draft, sent, usage, &error))
            .await?;
        let Some((started, body)) = next else { return Ok(false) };
        (plan.started, plan.body) = (started, body);
        Ok(true)
    }

    /// Commits the failure, the wait and the next attempt's intent at once.
    pub(crate) async fn schedule_retry(
        &mut self,
        failed: &AttemptStarted,
        usage: Option<Usage>,
        error: &LlmError,
        delay: Duration,
    ) -> Result<AttemptStarted, Stop> {
        let error = provider_error(error);
        self.write(|rules, draft| rules.retry(draft, failed, usage, &error, delay)).await
    }
}

/// The route with the session in its headers. Gateways and hosts with several machines keep a conversation where its
/// beginning is cached: `x-session-affinity` is what OpenCode sends, and `x-parent-session-id` of a child; `x-grok-conv-id` is
/// xAI's own.
fn of_session(mut route: Route, session: &SessionRef, parent: Option<&SessionId>) -> Route {
    let id = session.session.to_string();
    if let Some(parent) = parent {
        let parent = Secret::new(parent.as_str());
        route.endpoint = route.endpoint.with_header("x-parent-session-id", parent);
    }
    let names = ["x-session-affinity", "x-grok-conv-id"];
    let is_xai = route.dialect.state_key.as_deref() == Some("xai");
    for name in names.into_iter().take(if is_xai { 2 } else { 1 }) {
        route.endpoint = route.endpoint.with_header(name, Secret::new(&id));
    }
    route
}
