use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::{
    CallId, MessageId, Permitted, SessionRef, TimestampMs, ToolIntent, ToolOutcomeKind,
    ToolSettled, TurnId,
};
use futures::future::BoxFuture;
use llm_protocol::{RawJson, ToolDefinition};
use sandbox::{Cell, LiveOutput};
use session_rules::{ReadNeeds, ReadScope, ToolFacts, settled_as};
use snapshots::Touched;
use tokio_util::sync::CancellationToken;
use tools::{Limits, Probe, ReadRules, SkillScope, ToolCall, ToolContext, ToolSet, settle};
use tracing::{Instrument, info_span, warn};

use crate::outputs::SessionOutputs;
use crate::runtime::Runtime;
use crate::traced::Within;
use crate::watched_call::WatchedCall;
use crate::workspace::Workspace;

/// The tools of a Location, and the same as decisions see them.
#[derive(Clone)]
pub(crate) struct LocationTools {
    pub(crate) set: ToolSet,
    pub(crate) facts: ToolFacts,
}

impl LocationTools {
    pub(crate) fn of(set: ToolSet) -> Self {
        let definition = |tool: &tools::ToolDefinition| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: RawJson::parse(tool.input_schema.to_string())
                .expect("a JSON value prints as JSON"),
        };
        let class = |tool: &tools::ToolDefinition| (tool.name.clone(), set.class(&tool.name));
        let facts = ToolFacts {
            needs: ReadNeeds(tools::needs),
            classes: set.definitions().map(class).collect(),
            definitions: set.definitions().map(definition).collect(),
        };
        Self { set, facts }
    }
}

impl fmt::Debug for LocationTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.facts.classes.keys()).finish()
    }
}

/// The Location's tools, from intent to settlement.
pub(crate) struct Toolbox<'r> {
    runtime: &'r Runtime,
    session: &'r SessionRef,
    workspace: &'r Workspace,
    tools: &'r LocationTools,
    /// Where the spans of its calls belong.
    pub(crate) traced: Option<Within>,
}

/// A call that was run, and what it may have changed.
pub(crate) struct Ran {
    pub(crate) settled: ToolSettled,
    pub(crate) touched: Touched,
}

/// The answer of a probe to a takeover: whether a *probe* call was done.
pub(crate) enum Found {
    Done(Ran),
    NotDone,
    Unclear,
}

impl<'r> Toolbox<'r> {
    pub(crate) fn new(
        runtime: &'r Runtime,
        session: &'r SessionRef,
        workspace: &'r Workspace,
    ) -> Self {
        let tools = workspace.tools(&runtime.tools);
        Self { runtime, session, workspace, tools, traced: None }
    }

    /// As decisions see them.
    pub(crate) fn facts(&self) -> &'r ToolFacts {
        &self.tools.facts
    }

    /// Settles a call that has no body, since its agent may not make it.
    pub(crate) fn refused(&self, turn: TurnId, call: CallId, why: &str) -> BoxFuture<'r, Ran> {
        let now = self.runtime.clock.now_ms();
        let settled = settled_as(turn, call, ToolOutcomeKind::Failed, why, now);
        Box::pin(std::future::ready(Ran { settled, touched: Touched::Nothing }))
    }

    /// Returns the limits of results, whatever the model.
    pub(crate) fn limits(&self) -> Limits {
        self.runtime.settings.output
    }

    /// Runs one body to its settlement. Its intent must be committed as *started*. `skills`: those that its agent
    /// may load; `reads`: the rules about files and pages to which it may come; `limits`: of its result.
    /// `message`: the one that made the call.
    pub(crate) fn body(
        &self,
        (turn, message): (TurnId, MessageId),
        intent: ToolIntent,
        skills: &Permitted,
        reads: ReadScope,
        limits: Limits,
        cancel: CancellationToken,
    ) -> BoxFuture<'r, Ran> {
        let (edits, pages, results, skills_of_call) =
            (reads.clone(), reads.clone(), reads.clone(), reads.clone());
        let reads = ReadRules::new(move |path| reads.judge(path))
            .with_edits(move |path| edits.judge_edit(path))
            .with_pages(move |address| pages.judge_page(address))
            .with_results(move |tool, path| results.hides_result(tool, path))
            .with_skills(move |name| skills_of_call.shows_skill(name));
        let context = self.context(skills, reads, cancel);
        let (runtime, session, traced) = (self.runtime, self.session, self.traced);
        let tools = &self.tools.set;
        let span = info_span!("session.tool", tool = %intent.tool, call.id = %intent.call);
        let body = async move {
            let started = runtime.clock.now_ms();
            let outcome = match context {
                Some(context) => {
                    let watched = WatchedCall::new(runtime, session, message, &intent);
                    let call = call(&intent);
                    watched.show_while(&context.live, tools.run(&call, &context)).await
                }
                None => return gone(turn, intent.call, started),
            };
            let call = intent.call.clone();
            let done = Finished { runtime, session, turn, call, started, limits };
            let ran = done.settle(outcome).await;
            let took = u64::try_from(ran.settled.ended - ran.settled.started).unwrap_or(0);
            let outcome = ran.settled.outcome.as_str();
            telemetry::metrics().tool(&intent.tool, outcome, Duration::from_millis(took));
            if let Some(traced) = traced {
                traced.tool(&intent, &ran.settled);
            }
            ran
        };
        Box::pin(body.instrument(span))
    }

    /// Looks whether a call that an earlier owner had started has had its effect.
    pub(crate) async fn probe(&self, turn: TurnId, intent: &ToolIntent) -> Found {
        let started = self.runtime.clock.now_ms();
        let context =
            self.context(Permitted::NOTHING, ReadRules::default(), CancellationToken::new());
        let Some(context) = context else { return Found::Unclear };
        match self.tools.set.probe(&call(intent), &context).await {
            Probe::Done(outcome) => {
                let (runtime, session) = (self.runtime, self.session);
                let call = intent.call.clone();
                let limits = self.limits();
                let done = Finished { runtime, session, turn, call, started, limits };
                Found::Done(done.settle(outcome).await)
            }
            Probe::NotDone => Found::NotDone,
            Probe::Unclear => Found::Unclear,
        }
    }

    /// Commands of one session share a cell.
    fn cell(&self) -> Cell {
        Cell {
            name: self.session.session.to_string(),
            workspace: self.workspace.root().map(Path::to_owned),
            shown: Some(self.workspace.shown().into()),
            protect: self.workspace.is_in_project(),
            network: self.runtime.settings.network,
            hidden: self.runtime.settings.hidden.clone(),
        }
    }

    fn context(
        &self,
        skills: &Permitted,
        reads: ReadRules,
        cancel: CancellationToken,
    ) -> Option<ToolContext> {
        let (permitted, in_project) = (skills.clone(), self.workspace.is_in_project());
        let skills = SkillScope { permitted, in_project };
        let outputs = Arc::new(SessionOutputs::new(self.runtime, self.session));
        Some(ToolContext {
            root: self.workspace.root()?.to_owned(),
            shown_root: self.workspace.shown().to_owned(),
            cancel,
            outputs: outputs.clone(),
            tasks: Some(outputs),
            lock: self.workspace.lock().cloned(),
            cell: self.cell(),
            limits: self.runtime.settings.output,
            skills: self.runtime.settings.project_instructions.then_some(skills),
            reads,
            live: LiveOutput::default(),
        })
    }
}

/// A body that has ended and is not bounded yet.
struct Finished<'r> {
    runtime: &'r Runtime,
    session: &'r SessionRef,
    turn: TurnId,
    call: CallId,
    started: TimestampMs,
    limits: Limits,
}

impl Finished<'_> {
    async fn settle(self, mut outcome: tools::ToolOutcome) -> Ran {
        let touched = std::mem::take(&mut outcome.touched);
        let org = self.session.org.to_string();
        // Unguessable, since a call's id has 14 random characters, and each body's own: another worker may run the
        // call again and get another text, and a stored blob never changes.
        let call = self.call.as_str().trim_start_matches("call_");
        let name = format!("tool_{call}-{:x}", self.started);
        let settled = settle(outcome, self.limits, &self.runtime.blobs, &org, &name).await;
        if let Some(error) = &settled.storage_error {
            warn!(call.id = %self.call, %error, "a tool's complete output could not be kept");
        }
        let settled = ToolSettled {
            turn: self.turn,
            call: self.call,
            outcome: settled.kind,
            output: settled.output,
            title: settled.title.replace('\0', "\u{FFFD}"),
            structured: settled.structured.map(|value| value.to_string()),
            managed_path: settled.managed_path,
            truncated: settled.truncated,
            started: self.started,
            ended: self.runtime.clock.now_ms(),
        };
        Ran { settled, touched }
    }
}

fn call(intent: &ToolIntent) -> ToolCall {
    ToolCall {
        id: intent.call.to_string(),
        name: intent.tool.clone(),
        arguments: intent.arguments.clone(),
    }
}

fn gone(turn: TurnId, call: CallId, now: TimestampMs) -> Ran {
    let text = "the workspace is not available";
    let settled = settled_as(turn, call, ToolOutcomeKind::Failed, text, now);
    Ran { settled, touched: Touched::Nothing }
}
