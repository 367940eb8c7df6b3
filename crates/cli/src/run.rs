//! `opencode-cloud run`: one prompt, from its admission to the end of its work.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use client::{
    Client, ClientError, ClientOptions, LogEvent, LogFollower, LogItem, ModelChoice,
    PromptPartRequest, PromptRequest, RepositoryView,
};
use domain::{
    Clock, Delivery, ErrorCode, IdMint, MessageId, SessionId, Stamp, SystemClock, TurnId,
};
use futures::future::LocalBoxFuture;
use futures::stream::{BoxStream, poll_fn};
use futures::{FutureExt, StreamExt};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use workspaces::{Address, AddressError};

use crate::output::Screen;
use crate::program;
use crate::prompt_input::{attached, prompt_text, unread_warning};
use crate::render::printable;
use crate::run_ask::{AskPolicy, Asks, Reply, Step};
use crate::run_end::RunEnd;
use crate::run_filling::{Filling, Told};
use crate::run_session::{Opened, check_variant, open_session, wide_directory_warning};
use crate::run_state::{RunOutcome, RunState};
use crate::run_view::{FRAME, View};
use crate::{CliError, ask_cmd, here};

/// How often a run checks whether something takes long.
const LOOK: Duration = Duration::from_millis(500);

/// How often it asks how far the workspace is. The stream says it too; its frames may be lost.
const FILLING: Duration = Duration::from_secs(5);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The prompt; nothing, or a `-` at its end, reads (the rest of) it from standard input
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,
    /// Add a text file to the prompt; may be repeated
    #[arg(long, short = 'f', value_name = "PATH")]
    pub file: Vec<PathBuf>,
    /// Directory to work in [default: this one; with --session, the session's]
    #[arg(long, value_name = "PATH")]
    pub directory: Option<PathBuf>,
    /// Work in a clone of this public repository (https), at a branch, a tag or a commit
    #[arg(long, value_name = "URL[@REF]", value_parser = repository, conflicts_with_all = ["directory", "session", "continue_last"])]
    pub repo: Option<Address>,
    /// Work in a copy of the git repository here, with what is not committed; shows what it sends
    #[arg(long, conflicts_with_all = ["repo", "session", "continue_last"])]
    pub here: bool,
    /// With --here: also send this file or folder, although it looks like a secret; may be repeated
    #[arg(long, value_name = "PATH", requires = "here")]
    pub include: Vec<PathBuf>,
    /// With --here: only show what would be sent
    #[arg(long, requires = "here")]
    pub dry_run: bool,
    /// Continue this session, in its own directory; the beginning of its id will do
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// Continue the last session of the directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["session", "title"])]
    pub continue_last: bool,
    /// Model to use: NAME or PROVIDER/NAME
    #[arg(long, value_name = "NAME")]
    pub model: Option<ModelChoice>,
    /// Variant of the model, such as `high` for how much it reasons; `--model` without it chooses the plain model again
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Agent, from this prompt on: `build`, which may do everything, or `plan`, which only reads
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Wait for the session's running work to end (delivery `queue`); without it the prompt joins that work at its next
    /// step (delivery `steer`)
    #[arg(long)]
    pub queue: bool,
    /// Title of a new session [default: the prompt's first line]
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    pub title: Option<String>,
    /// How to answer a call that waits for a person [default: ask here in a terminal, else `reject`]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub ask: Option<AskPolicy>,
    /// Print the session's events as JSON, one a line, and the outcome as the last line
    #[arg(long)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The last line of `run --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The session.
    pub session: SessionId,
    /// The turns that answered the prompt, in order.
    pub turns: Vec<TurnId>,
    /// The end of the run.
    pub outcome: RunOutcome,
    /// The calls that were refused because nobody could answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// A prompt on its way through a session.
pub struct Run<'a> {
    client: Client,
    session: SessionId,
    state: RunState,
    view: View<'a>,
    asks: Asks,
    /// How far the clone of its repository is, until its first turn.
    filling: Option<Filling>,
}

/// Runs the subcommand and returns its exit code.
///
/// # Errors
/// [`CliError`] when there is no outcome to report.
pub async fn execute(args: RunArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let text = prompt_text(&args.prompt)?;
    let files = attached(&args.file, text.len())?;
    let client = Client::new(&args.client)?;
    let mut mint = IdMint::after(Stamp::default(), SystemClock::new().now_ms());
    let fresh = SessionId::mint(&mut mint);
    let sent = if args.here {
        let directory = args.directory.as_deref().unwrap_or(Path::new("."));
        let sent = here::send(&client, directory, &args.include, args.dry_run, screen).await?;
        let Some(sent) = sent else { return Ok(0) };
        Some(sent)
    } else {
        None
    };
    let sent_nothing = sent.is_none();
    let opened = async {
        let model = model(&client, args.model.as_ref()).await?;
        let opened =
            open_session(&client, &args, fresh, model.as_ref(), &text, sent.as_ref()).await?;
        let log = LogFollower::open(&client, opened.session.clone(), opened.after).await?;
        Ok::<_, CliError>((model, opened, log))
    };
    let (model, opened, log) = patiently(screen, opened).await?;
    let variant = check_variant(&client, &args, model.as_ref(), &opened, screen).await?;
    let Opened { session, is_new, .. } = opened;
    let is_plain = is_new && sent_nothing && args.repo.is_none();
    if is_plain && client.shares_paths().await? {
        let directory = args.directory.as_deref().unwrap_or(Path::new("."));
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        if let Some(warning) = wide_directory_warning(&directory) {
            screen.err.say(&printable::line(&warning, 2_000))?;
        }
    } else if is_plain && args.directory.is_none() && !args.json {
        screen.err.say(NOT_HERE)?;
    }
    // Only now, so that a program before the pipe has had time to write.
    if let Some(warning) = unread_warning(&args.prompt) {
        screen.err.say(warning)?;
    }
    let mut prompt = request(&args, MessageId::mint(&mut mint), text, model);
    prompt.variant = variant;
    prompt.parts.extend(files.into_iter().map(|text| PromptPartRequest::Text { text }));
    if !args.json {
        screen.err.say(&format!("session {session}"))?;
    }
    // Until here Ctrl-C just ends the process, since the session has not got the prompt yet.
    let interrupts = interrupts()?;
    let mut run =
        Run::new(client.clone(), session.clone(), prompt.message.clone(), args.json, screen);
    run.deals_with_asks(args.ask);
    run.filling = (args.repo.is_some() || args.here).then(Filling::default);
    let ended = run.follow(log, &prompt, interrupts).await;
    let report = run.report(ended.as_ref().copied().unwrap_or(RunOutcome::Failed));
    let is_void = is_new && run.is_void(&ended);
    let needs_model = run.needs_model();
    let is_waiting = run.has_ended_waiting();
    let unfilled = run.unfilled().await;
    if let Some(why) = unfilled {
        screen.err.say(&printable::line(&why, 2_000))?;
    }
    let is_removed = !args.json && is_void && client.delete_session(&session).await.is_ok();
    let end = RunEnd {
        report: &report,
        is_json: args.json,
        is_removed,
        is_waiting: is_waiting && !is_removed,
        has_repository: args.repo.is_some() || args.here,
        is_here: args.here,
        needs_model,
    };
    end.tell(&program(), screen)?;
    let outcome = ended?;
    let is_refused = outcome == RunOutcome::Completed && !report.refused.is_empty();
    Ok(if is_refused { 1 } else { outcome.exit_code() })
}

fn request(
    args: &RunArgs,
    message: MessageId,
    text: String,
    model: Option<ModelChoice>,
) -> PromptRequest {
    PromptRequest {
        agent: args.agent.clone(),
        delivery: args.queue.then_some(Delivery::Queue),
        ..PromptRequest::text(message, text, model)
    }
}

/// The notice for a person who may expect the files of the directory that they are in.
const NOT_HERE: &str = "the session works in an empty workspace of the service, not in this directory; \
    `run --here` takes this repository along";

/// How long the start may take before a message appears.
const SILENCE: Duration = Duration::from_secs(2);

/// Makes the calls before a prompt, which are retried while the service is not ready. Prints a message if that takes
/// long.
async fn patiently<T>(
    screen: &mut Screen,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = sleep(SILENCE) => {}
    }
    screen.err.say("the service is not ready; still trying")?;
    work.await
}

impl<'a> Run<'a> {
    /// Runs the prompt with the id `message`, and shows it on `screen`.
    #[must_use]
    pub fn new(
        client: Client,
        session: SessionId,
        message: MessageId,
        json: bool,
        screen: &'a mut Screen,
    ) -> Self {
        let (view, asks) = (View::new(json, screen), Asks::new(Some(AskPolicy::Reject)));
        Self { client, session, state: RunState::new(message), view, asks, filling: None }
    }

    /// Says what to do about calls that wait for a person. Without a policy a person at the terminal is asked.
    pub(crate) fn deals_with_asks(&mut self, policy: Option<AskPolicy>) {
        let nobody = (!self.view.has_person()).then_some(AskPolicy::Reject);
        self.asks = Asks::new(policy.or(nobody));
    }

    /// Sends the prompt and shows the events until its work has ended. The first of `interrupts` interrupts the
    /// session, which then settles; the second ends this function at once.
    ///
    /// # Errors
    /// When the prompt is refused, the log is lost, or nothing can be printed.
    pub async fn follow(
        &mut self,
        log: LogFollower,
        prompt: &PromptRequest,
        interrupts: BoxStream<'static, ()>,
    ) -> Result<RunOutcome, CliError> {
        let ended = self.follow_log(log, prompt, interrupts).await;
        self.view.finish()?;
        ended
    }

    async fn follow_log(
        &mut self,
        mut log: LogFollower,
        prompt: &PromptRequest,
        mut interrupts: BoxStream<'static, ()>,
    ) -> Result<RunOutcome, CliError> {
        let (client, session) = (self.client.clone(), self.session.clone());
        let mut admission = pin!(client.prompt(&session, prompt));
        let mut is_admitted = false;
        let mut asked_to_stop = false;
        let mut abort: Option<LocalBoxFuture<'_, Result<(), ClientError>>> = None;
        let mut is_aborted = false;
        let mut is_told_lost = false;
        let mut looked = None;
        let begun = Instant::now();
        let mut waits_for_admission = true;
        let mut looks = interval_at(begun + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut frames = interval_at(begun + FRAME, FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(()) = interrupts.next() => {
                    if asked_to_stop {
                        self.note("left; the session may still be busy")?;
                        return Ok(RunOutcome::Interrupted);
                    }
                    asked_to_stop = true;
                    self.note("interrupting; Ctrl-C again leaves at once")?;
                }
                admitted = &mut admission, if !is_admitted => {
                    admitted?;
                    is_admitted = true;
                }
                aborted = pending_unless(&mut abort), if !is_aborted => {
                    aborted?;
                    is_aborted = true; // the log says how it settles
                }
                item = log.next() => {
                    let item = item?;
                    self.show(&item)?;
                    if let LogItem::Workspace(workspace) = &item {
                        self.tell_workspace(workspace)?;
                    }
                    if let Some(outcome) = self.state.doubt()
                        && !client.session(&session).await?.busy
                    {
                        self.state.end(outcome);
                    }
                    if let Some(outcome) = self.state.outcome() {
                        self.conclude()?;
                        return Ok(outcome);
                    }
                }
                line = self.asks.line(), if self.asks.is_shown() => {
                    let step = self.asks.take(&line);
                    self.deal(step).await?;
                }
                _ = frames.tick(), if self.view.is_moving() && !self.asks.is_shown() => {
                    self.view.spin()?;
                }
                _ = looks.tick() => {
                    self.view.announce()?;
                    if looked.is_none_or(|at: Instant| at.elapsed() > FILLING) {
                        looked = Some(Instant::now());
                        self.tell_filling().await?;
                    }
                    let lost = log.lost().map(str::to_owned);
                    match lost {
                        Some(why) if !is_told_lost => {
                            self.note(&format!("connection lost ({why}); reconnecting"))?;
                            is_told_lost = true;
                        }
                        None if is_told_lost => {
                            self.note("connected again")?;
                            is_told_lost = false;
                        }
                        Some(_) | None => {}
                    }
                    if waits_for_admission && !is_admitted && begun.elapsed() > SILENCE {
                        self.note("the service has not taken the prompt yet; still trying")?;
                        waits_for_admission = false;
                    }
                }
            }
            let step = self.asks.step();
            self.deal(step).await?;
            if asked_to_stop && is_admitted && abort.is_none() {
                abort = Some(client.abort(&session).map(|done| done.map(drop)).boxed_local());
            }
        }
    }

    /// Returns a report of the run, which ended with `outcome`.
    #[must_use]
    pub fn report(&self, outcome: RunOutcome) -> RunReport {
        RunReport {
            session: self.session.clone(),
            turns: self.state.turns().to_vec(),
            outcome,
            refused: self.asks.refused().to_vec(),
        }
    }

    /// Returns whether the run had no effect: the service refused its prompt, or no turn began for it.
    fn is_void(&self, ended: &Result<RunOutcome, CliError>) -> bool {
        match ended {
            // A prompt that waits is kept; one that waits for a clone which failed is sent again with another address.
            Ok(outcome) => {
                let waits = self.state.is_left_waiting() && self.filling.is_none();
                *outcome == RunOutcome::Failed && self.state.turns().is_empty() && !waits
            }
            Err(CliError::Client(error)) => !self.state.was_admitted() && error.is_refusal(),
            Err(CliError::Usage(_) | CliError::Elsewhere { .. } | CliError::Io { .. }) => false,
        }
    }

    /// Returns whether the run is over and its prompt still waits in the session's inbox.
    fn has_ended_waiting(&self) -> bool {
        self.state.outcome().is_some() && self.state.is_left_waiting()
    }

    /// Returns whether the session goes on with another model alone: the service has no such model, or does not allow it.
    fn needs_model(&self) -> bool {
        self.state.reason().is_some_and(|reason| {
            reason.code == ErrorCode::ModelUnknown || reason.code == ErrorCode::ModelNotAllowed
        })
    }

    /// Carries out the next step for a call that waits.
    async fn deal(&mut self, step: Step) -> Result<(), CliError> {
        match step {
            Step::Nothing => Ok(()),
            Step::Show(text) => text.lines().try_for_each(|line| self.note(line)),
            Step::Send(Reply { ask, body }) => match ask_cmd::send(&self.client, &ask, &body).await
            {
                // Somebody else was faster, or nobody waits any longer: the log says how it goes on.
                Err(CliError::Client(error)) if error.is_conflict() => Ok(()),
                sent => sent,
            },
        }
    }

    /// Says how far the clone of the session's repository is.
    async fn tell_filling(&mut self) -> Result<(), CliError> {
        if self.filling.is_none() || !self.state.turns().is_empty() {
            return Ok(());
        }
        // A service that cannot say it now says it in a moment.
        let Ok(workspace) = self.client.repository(&self.session).await else { return Ok(()) };
        self.tell_workspace(&workspace)
    }

    fn tell_workspace(&mut self, workspace: &RepositoryView) -> Result<(), CliError> {
        match self.filling.as_mut().and_then(|filling| filling.line(workspace)) {
            Some(Told::Step(line)) => self.note(&line),
            Some(Told::Again { line, tries: _ }) if self.view.is_moving() => {
                self.view.wait_for(line);
                Ok(())
            }
            // Elsewhere a line cannot be replaced: fewer and fewer are said.
            Some(Told::Again { line, tries }) if tries.is_power_of_two() => self.note(&line),
            Some(Told::Again { .. }) | None => Ok(()),
        }
    }

    /// Returns why the session's repository could not be cloned, if no turn began for that.
    async fn unfilled(&self) -> Option<String> {
        if self.filling.is_none() || !self.state.turns().is_empty() {
            return None;
        }
        let repository = self.client.repository(&self.session).await.ok();
        let fault = repository.and_then(|repository| repository.fault);
        let reason = || self.state.reason_before().map(|reason| reason.message.clone());
        fault.map(|fault| fault.message).or_else(reason)
    }

    fn show(&mut self, item: &LogItem) -> Result<(), CliError> {
        let was_ours = self.state.is_ours();
        if let LogItem::Event(event) = item
            && let Some(event) = &event.event
        {
            self.state.observe(event);
        }
        let is_ours = was_ours || self.state.is_ours();
        if is_ours && let LogItem::Event(LogEvent { event: Some(event), .. }) = item {
            self.asks.observe(event);
        }
        Ok(self.view.show(item, is_ours)?)
    }

    fn conclude(&mut self) -> Result<(), CliError> {
        // That of a clone is told with the clone.
        if let Some(why) = self.state.reason_before().filter(|_| self.filling.is_none()) {
            let why = format!("error: {} ({})", why.message, why.code);
            self.note(&printable::line(&why, 2_000))?;
        }
        Ok(())
    }

    fn note(&mut self, text: &str) -> Result<(), CliError> {
        Ok(self.view.note(text)?)
    }
}

/// Awaits the work, or waits forever if there is none.
async fn pending_unless<T>(work: &mut Option<LocalBoxFuture<'_, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// Returns the chosen model with its provider. A choice without one gets the service's default provider.
async fn model(
    client: &Client,
    choice: Option<&ModelChoice>,
) -> Result<Option<ModelChoice>, CliError> {
    match choice {
        Some(choice) if !choice.has_provider() => {
            let provider = client.default_provider().await?.ok_or_else(|| {
                let usage =
                    format!("--model {choice}: name its provider too, as PROVIDER/{choice}");
                CliError::Usage(usage)
            })?;
            Ok(Some(choice.at(&provider)))
        }
        other => Ok(other.cloned()),
    }
}

/// Reads the address of a repository.
fn repository(text: &str) -> Result<Address, AddressError> {
    Address::parse(text)
}

/// Returns a stream of the SIGINTs from now on.
fn interrupts() -> Result<BoxStream<'static, ()>, CliError> {
    let mut signal = signal(SignalKind::interrupt())
        .map_err(|source| CliError::Io { doing: "cannot listen for Ctrl-C", source })?;
    Ok(poll_fn(move |context| signal.poll_recv(context)).boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding conformance queue: `run` could not queue a prompt.
    #[test]
    fn a_queued_prompt_says_so_to_the_service() {
        #[derive(clap::Parser)]
        struct Probe {
            #[command(flatten)]
            run: RunArgs,
        }
        let sent = |words: &[&str]| {
            let words = [&["probe", "hello"], words].concat();
            let args = <Probe as clap::Parser>::try_parse_from(words).expect("flags").run;
            let message = "msg_1".parse().expect("an id");
            let request = request(&args, message, "hello".into(), None);
            serde_json::to_value(request).expect("JSON")["delivery"].clone()
        };
        assert_eq!(sent(&["--queue"]), "queue");
        assert_eq!(sent(&[]), serde_json::Value::Null, "the service's default: it steers");
    }
}
