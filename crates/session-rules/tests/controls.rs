//! Decisions about Moves, Reverts and restored files: the contents of each write, and the next step.
//!
//! Long because all of them use one small drain, which is built here.

use std::sync::Arc;

use context::{EnvironmentFacts, Loaded, SystemContext, environment};
use domain::{
    CallId, Control, ControlAdmitted, Delivery, DrainEnd, DrainOutcome, EpochReason, FencingToken,
    FileChange, FileStatus, Finish, IdMint, InputCancelled, InterruptRequested, InterruptTarget,
    LocationId, MessageId, ModelRef, NoticeKind, OrgId, PartId, PromptAdmitted, PromptPart,
    ReplyPart, RevertPaths, Seq, SessionCreated, SessionError, SessionEvent, SessionRef,
    SnapshotTree, Stamp, Taken, ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled,
    ToolState, TurnId, TurnOutcome, TurnReplied, WorkspaceSnapshotted,
};
use history::History;
use llm_protocol::{Dialect, Protocol};
use session_rules::{
    Closed, Draft, FilesPlan, FixedModels, Models, MovePlan, Next, Observation, PutBack, ReadNeeds,
    RestoredFiles, RuleSettings, Rules, Said, Site, ToolFacts, Verdict, WorkspaceState,
};

const IDLE: Taken = Taken { was_open: false, handed_over: false, recoveries: 0 };
const DIED: Taken = Taken { was_open: true, handed_over: false, recoveries: 1 };

/// A session, and a drain's decisions about it.
struct Desk {
    history: History,
    mint: IdMint,
    session: SessionRef,
    settings: RuleSettings,
    models: Models,
    tools: ToolFacts,
    /// The error if the files are missing.
    missing: Option<SessionError>,
    /// The restore of the files, if there was one.
    restored: Option<(FencingToken, SnapshotTree)>,
    /// Whether the worker has no room for the log and its inbox.
    cramped: bool,
}

/// A write.
#[derive(Debug)]
struct Wrote {
    next: Next,
    kinds: Vec<&'static str>,
    events: Vec<SessionEvent>,
    /// The number of inputs that leave the inbox.
    taken: i32,
    end: DrainEnd,
    site: Site,
}

fn location(name: &str) -> LocationId {
    format!("loc_{name}").parse().expect("an id")
}

fn tree(n: usize) -> SnapshotTree {
    SnapshotTree::try_from(format!("{n:064x}")).expect("hex")
}

fn error(code: &str) -> SessionError {
    SessionError { code: code.to_owned().into(), message: "no".into() }
}

/// Returns an observation of a Location without any context.
fn seen() -> Observation {
    Observation::new(SystemContext::combine([]), Arc::default())
}

fn blocked() -> Observation {
    let asleep: Loaded<EnvironmentFacts> = Loaded::Unavailable("the disk is asleep".into());
    Observation::new(SystemContext::combine([environment(asleep)]), Arc::default())
}

impl Desk {
    fn new() -> Self {
        let mint = IdMint::seeded(Stamp::default(), 1, 3);
        let model = ModelRef::new("p", "m");
        let mut desk = Self {
            history: History::new(),
            mint,
            session: SessionRef {
                org: OrgId::FIRST,
                location: location("a"),
                session: "ses_1".parse().expect("an id"),
            },
            settings: RuleSettings { titles: false, ..RuleSettings::default() },
            models: Models {
                default: model,
                source: Arc::new(FixedModels::default().with_provider(
                    "p",
                    Protocol::OpenAiChat,
                    Dialect::default(),
                )),
            },
            tools: ToolFacts {
                needs: ReadNeeds::default(),
                classes: [("shell".to_owned(), ToolClass::Unsafe)].into(),
                definitions: Vec::new(),
            },
            missing: None,
            restored: None,
            cramped: false,
        };
        desk.push(SessionCreated {
            by: None,
            project: "prj_1".parse().expect("an id"),
            location: location("a"),
            directory: "/workspace".into(),
            title: "t".into(),
            agent: "build".into(),
            model: None,
            parent: None,
            named: true,
            rules: Vec::new(),
            metadata: None,
        });
        desk
    }

    fn push(&mut self, event: impl Into<SessionEvent>) -> Seq {
        let seq = Seq(self.history.seq().0 + 1);
        self.history.apply(seq, 1, &event.into());
        seq
    }

    fn admit(&mut self, delivery: Delivery, wake: bool) -> MessageId {
        self.admit_as(delivery, wake, None)
    }

    /// Admits synthetic input. While a Revert is staged, this does not wake the session.
    fn admit_synthetic(&mut self) -> MessageId {
        self.admit_as(Delivery::Steer, false, Some("a build has ended".into()))
    }

    fn admit_as(&mut self, delivery: Delivery, wake: bool, synthetic: Option<String>) -> MessageId {
        let message = MessageId::mint(&mut self.mint);
        let parts = vec![PromptPart::Text { id: PartId::mint(&mut self.mint), text: "hi".into() }];
        self.push(PromptAdmitted {
            by: None,
            message: message.clone(),
            delivery,
            parts,
            agent: None,
            model: None,
            wake,
            digest: String::new(),
            synthetic,
        });
        message
    }

    fn ask(&mut self, control: Control) -> MessageId {
        let (message, delivery) = (MessageId::mint(&mut self.mint), Delivery::Steer);
        let (id, digest) = (message.clone(), String::new());
        self.push(ControlAdmitted { message: id, delivery, control, wake: true, digest });
        message
    }

    fn ask_move(&mut self, carry: bool) -> MessageId {
        self.ask(Control::Move {
            project: "prj_2".parse().expect("an id"),
            location: location("b"),
            directory: "/elsewhere".into(),
            carry,
        })
    }

    fn ask_revert(&mut self, message: &MessageId) -> MessageId {
        self.ask(Control::Revert { message: message.clone(), files: true })
    }

    fn interrupt(&mut self) {
        self.push(InterruptRequested { by: None, target: InterruptTarget::Drain });
    }

    fn decide(
        &mut self,
        decide: impl FnOnce(&Rules<'_>, &mut Draft<'_>) -> Verdict<Next>,
    ) -> Wrote {
        let workspace = match (&self.missing, &self.restored) {
            (Some(error), _) => WorkspaceState::Missing(error),
            (None, Some((token, tree))) => {
                WorkspaceState::Restored { token: *token, tree: Some(tree) }
            }
            (None, None) => WorkspaceState::Here,
        };
        let rules = Rules {
            settings: &self.settings,
            models: &self.models,
            tools: &self.tools,
            changed: None,
            saved: &[],
            session: &self.session,
            workspace,
            stopping: false,
            crowded: false,
            cramped: self.cramped,
            interrupts_before: Seq(0),
        };
        let mut draft = Draft::new(&mut self.history, self.mint.clone(), 1);
        let (next, end, site) = match decide(&rules, &mut draft) {
            Verdict::Write(next, end, site) => (next, end, site),
            Verdict::Leave(_) => panic!("a boundary always writes"),
        };
        let drafted = draft.finish();
        self.mint = drafted.mint;
        let kinds = drafted.events.iter().map(SessionEvent::kind).collect();
        Wrote { next, kinds, events: drafted.events, taken: drafted.promoted, end, site }
    }

    fn open(&mut self, taken: Taken) -> Wrote {
        self.decide(|rules, draft| rules.open(draft, taken, &seen()))
    }

    fn moved(&mut self, plan: MovePlan, carried: Option<SnapshotTree>) -> Wrote {
        self.decide(|rules, draft| rules.moved(draft, plan, Ok(carried), &seen()))
    }

    /// Admits a prompt and begins its turn.
    fn begin(&mut self) -> (MessageId, TurnId) {
        let prompt = self.admit(Delivery::Steer, true);
        (prompt, self.begun())
    }

    fn begun(&mut self) -> TurnId {
        let wrote = self.open(IDLE);
        let Next::Turn(plan) = wrote.next else { panic!("no turn: {wrote:?}") };
        plan.turn
    }

    /// Adds a call of the shell, which has ended.
    fn call(&mut self, turn: &TurnId, settles: bool) -> CallId {
        let call = CallId::mint(&mut self.mint);
        let intent = ToolIntent {
            call: call.clone(),
            part: PartId::mint(&mut self.mint),
            provider_call: "call_1".into(),
            tool: "shell".into(),
            arguments: "{}".into(),
            metadata: None,
        };
        let message = self.history.open_turn().expect("it is open").message.clone();
        let (of, class, state) = (turn.clone(), ToolClass::Unsafe, ToolState::Started);
        let at = message.clone();
        self.push(ToolCalled { turn: of, message: at, intent, class, state });
        let (of, parts) = (turn.clone(), vec![ReplyPart::ToolCall { call: call.clone() }]);
        self.push(TurnReplied { turn: of, message, parts, finish: Finish::ToolCalls.into() });
        if settles {
            let done = self.done(turn, &call);
            self.push(done);
        }
        call
    }

    fn done(&self, turn: &TurnId, call: &CallId) -> ToolSettled {
        ToolSettled {
            turn: turn.clone(),
            call: call.clone(),
            outcome: ToolOutcomeKind::Completed,
            output: "out".into(),
            title: "make".into(),
            structured: None,
            managed_path: None,
            truncated: false,
            started: 1,
            ended: 2,
        }
    }

    /// Settles the open turn and crosses the boundary after it.
    fn settles(&mut self, turn: &TurnId) -> Wrote {
        let message = self.history.open_turn().expect("it is open").message.clone();
        let said = Said::new(turn.clone(), message);
        self.decide(|rules, draft| {
            rules
                .settled(draft, &said, TurnOutcome::Completed, &seen())
                .map(|next| next.expect("not interrupted"))
        })
    }

    /// Lets the model answer, so that nothing is left.
    fn answers(&mut self) -> MessageId {
        let open = self.history.open_turn().expect("it is open");
        let (turn, message) = (open.turn.clone(), open.message.clone());
        let text = "well".to_owned();
        let parts = vec![ReplyPart::text(PartId::mint(&mut self.mint), text)];
        let (of, at) = (turn.clone(), message.clone());
        self.push(TurnReplied { turn: of, message: at, parts, finish: Finish::Stop.into() });
        let (outcome, usage) = (TurnOutcome::Completed, domain::TurnUsage::default());
        let at = message.clone();
        self.push(domain::TurnSettled { turn, message: at, outcome, usage, error: None });
        let wrote = self.decide(|rules, draft| rules.cross(draft, false, &seen()));
        assert_eq!(wrote.site, Site::Completed, "{wrote:?}");
        message
    }

    fn captures(&mut self, turn: Option<&TurnId>, from: usize, to: usize, paths: &[&str]) {
        let file = |path: &&str| change(path);
        self.push(WorkspaceSnapshotted {
            token: FencingToken(1),
            ordinal: 1,
            tree: tree(to),
            parent: Some(tree(from)),
            pack: None,
            bytes: 0,
            turn: turn.cloned(),
            base: turn.is_none(),
            files: paths.iter().map(file).collect(),
            more: 0,
            directories: Vec::new(),
            skipped: Vec::new(),
        });
    }

    /// Runs an exchange in which a call changes the files `paths`, from the tree `from` to the next one.
    fn exchange(&mut self, from: usize, paths: &[&str]) -> MessageId {
        let (prompt, turn) = self.begin();
        if !paths.is_empty() {
            self.call(&turn, true);
            let wrote = self.settles(&turn);
            assert_eq!(wrote.site, Site::TurnStarted, "{wrote:?}");
            self.captures(Some(&turn), from, from + 1, paths);
        }
        self.answers();
        prompt
    }
}

fn change(path: &str) -> FileChange {
    let (path, status) = (path.to_owned(), FileStatus::Modified);
    FileChange { path, status, additions: 1, deletions: 0, patch: None }
}

fn put_back(to: usize, paths: &[&str]) -> PutBack {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    PutBack { tree: tree(to), paths: Some(paths) }
}

fn restores(wrote: &Wrote) -> &[PutBack] {
    let Next::Files(FilesPlan::Restore(steps)) = &wrote.next else { panic!("no files: {wrote:?}") };
    steps
}

/// Returns why a control was not acted on.
fn refusal(events: &[SessionEvent]) -> Option<&str> {
    events.iter().find_map(|event| {
        let SessionEvent::ControlDelivered(delivered) = event else { return None };
        Some(delivered.error.as_ref().map_or("", |error| error.code.as_str()))
    })
}

fn plan(wrote: &Wrote) -> MovePlan {
    let Next::Move(plan) = wrote.next else { panic!("no move: {wrote:?}") };
    plan
}

#[test]
fn a_move_of_an_idle_session_is_one_write_that_ends_the_drain() {
    let mut desk = Desk::new();
    desk.exchange(1, &[]);
    desk.ask_move(false);
    let queued = desk.admit(Delivery::Queue, true);
    let reached = desk.open(IDLE);
    assert_eq!(
        (reached.site, reached.end, reached.kinds.len()),
        (Site::MoveReached, DrainEnd::Keep, 0)
    );
    assert_eq!(plan(&reached), MovePlan { continuing: false, carry: false });
    let wrote = desk.moved(plan(&reached), None);
    assert_eq!(wrote.kinds, ["control.delivered", "session.moved", "drain.ended"]);
    assert_eq!((wrote.site, wrote.end), (Site::Moved, DrainEnd::Moved));
    assert!(matches!(&wrote.next, Next::Moved(to) if *to == location("b")));
    let SessionEvent::SessionMoved(moved) = &wrote.events[1] else { panic!("{wrote:?}") };
    assert_eq!((&moved.from, &moved.to), (&location("a"), &location("b")));
    assert_eq!((moved.directory.as_str(), moved.carry, &moved.tree), ("/elsewhere", false, &None));
    assert_eq!(desk.history.pending()[0].prompt.message, queued, "it waits at the new Location");

    desk.session.location = location("b");
    let there = desk.open(IDLE);
    let kinds = ["epoch.started", "prompt.promoted", "turn.started", "attempt.started"];
    assert_eq!(there.kinds, kinds);
    let SessionEvent::EpochStarted(epoch) = &there.events[0] else { panic!("{there:?}") };
    assert_eq!((epoch.epoch, epoch.reason), (2, Some(EpochReason::Move)));
}

#[test]
fn a_move_in_the_middle_of_work_keeps_the_work_and_its_steps() {
    let mut desk = Desk::new();
    let (_, turn) = desk.begin();
    desk.call(&turn, true);
    let queued = desk.admit(Delivery::Queue, true);
    desk.ask_move(false);
    let steered = desk.admit(Delivery::Steer, true);
    let reached = desk.settles(&turn);
    assert_eq!(
        (reached.site, reached.kinds.as_slice()),
        (Site::MoveReached, &["turn.settled"][..])
    );
    assert!(plan(&reached).continuing);
    let wrote = desk.moved(plan(&reached), None);
    assert_eq!(wrote.kinds, ["control.delivered", "session.moved"]);
    assert_eq!((wrote.site, wrote.end), (Site::Moved, DrainEnd::MovedOpen));
    assert_eq!(desk.history.steps(), 1);

    desk.session.location = location("b");
    let taken = Taken { was_open: true, handed_over: true, recoveries: 0 };
    let blocked = {
        let mut there = Desk { history: desk.history.clone(), ..Desk::new() };
        there.session.location = location("b");
        there.decide(|rules, draft| rules.open(draft, taken, &blocked()))
    };
    assert_eq!(
        (blocked.site, blocked.kinds.as_slice()),
        (Site::ContextBlocked, &["drain.ended"][..])
    );
    let there = desk.open(taken);
    let kinds = ["epoch.started", "prompt.promoted", "turn.started", "attempt.started"];
    assert_eq!(there.kinds, kinds, "what steers joins it");
    let pending: Vec<_> =
        desk.history.pending().iter().map(|input| &input.prompt.message).collect();
    assert_eq!(pending, [&queued]);
    assert_eq!(desk.history.last_prompt(), Some(&steered));

    let mut alone = Desk::new();
    let (_, turn) = alone.begin();
    alone.call(&turn, true);
    alone.ask_move(false);
    let reached = alone.settles(&turn);
    alone.moved(plan(&reached), None);
    alone.session.location = location("b");
    let there = alone.open(taken);
    assert_eq!(there.kinds, ["epoch.started", "turn.started", "attempt.started"]);
    let SessionEvent::TurnStarted(started) = &there.events[1] else { panic!("{there:?}") };
    assert_eq!((started.step, started.epoch), (2, 2));
}

#[test]
fn a_move_that_carries_files_says_which() {
    let mut desk = Desk::new();
    desk.ask_move(true);
    let reached = desk.open(IDLE);
    assert!(plan(&reached).carry);
    let wrote = desk.moved(plan(&reached), Some(tree(4)));
    let SessionEvent::SessionMoved(moved) = &wrote.events[1] else { panic!("{wrote:?}") };
    assert_eq!((moved.carry, moved.tree.as_ref()), (true, Some(&tree(4))));

    let mut desk = Desk::new();
    desk.ask_move(true);
    let plan = plan(&desk.open(IDLE));
    let refused = Err(error("workspace.restore_failed"));
    let wrote = desk.decide(|rules, draft| rules.moved(draft, plan, refused, &seen()));
    assert_eq!(wrote.kinds, ["control.delivered", "drain.ended"]);
    assert_eq!(refusal(&wrote.events), Some("workspace.restore_failed"));
    assert_eq!((wrote.site, wrote.end), (Site::Completed, DrainEnd::Close));
}

#[test]
fn a_move_is_decided_on_what_is_next_when_it_is_written() {
    let mut desk = Desk::new();
    let message = desk.ask_move(false);
    let plan_a = plan(&desk.open(IDLE));
    desk.push(InputCancelled { message });
    assert_eq!(desk.moved(plan_a, None).kinds, ["drain.ended"]);

    let mut desk = Desk::new();
    let message = desk.ask_move(false);
    let plan_b = plan(&desk.open(IDLE));
    desk.push(InputCancelled { message });
    desk.ask_move(true);
    let again = desk.moved(plan_b, None);
    assert_eq!(again.site, Site::MoveReached, "its files are not captured");
    assert!(plan(&again).carry);
}

#[test]
fn a_move_to_where_the_session_is_does_nothing() {
    let mut desk = Desk::new();
    desk.session.location = location("b");
    desk.ask_move(false);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds, ["control.delivered", "drain.ended"]);
    assert!(desk.history.moved() == Seq(0));
}

#[test]
fn a_session_without_its_files_can_move_away_and_nothing_else() {
    let mut desk = Desk::new();
    desk.missing = Some(error("workspace.unavailable"));
    desk.ask_move(false);
    let reached = desk.open(IDLE);
    assert_eq!(desk.moved(plan(&reached), None).site, Site::Moved);

    let mut desk = Desk::new();
    desk.missing = Some(error("workspace.unavailable"));
    desk.ask_move(true);
    let plan = plan(&desk.open(IDLE));
    let refused = Err(error("workspace.unavailable"));
    let wrote = desk.decide(|rules, draft| rules.moved(draft, plan, refused, &seen()));
    assert_eq!((wrote.site, wrote.end), (Site::GivenUp, DrainEnd::Park), "no files to carry");

    let mut desk = Desk::new();
    desk.missing = Some(error("workspace.unavailable"));
    desk.admit(Delivery::Steer, true);
    desk.ask_move(false);
    let wrote = desk.open(IDLE);
    assert_eq!((wrote.site, wrote.end), (Site::GivenUp, DrainEnd::Park), "a prompt is before it");
}

#[test]
fn without_its_files_a_session_is_not_moved_away_by_one_worker_after_the_other_that_dies() {
    let mut desk = Desk::new();
    desk.missing = Some(error("workspace.unavailable"));
    desk.ask_move(true);
    let died = |recoveries| Taken { recoveries, ..DIED };
    let most = desk.settings.max_recoveries;
    assert_eq!(desk.open(died(most)).site, Site::MoveReached);
    let wrote = desk.open(died(most + 1));
    assert_eq!((wrote.site, wrote.end), (Site::GivenUp, DrainEnd::Park));
    let SessionEvent::DrainEnded(ended) = &wrote.events[0] else { panic!("{wrote:?}") };
    let code = ended.error.as_ref().map(|error| error.code.as_str());
    assert_eq!(code, Some("session.recovery_exhausted"));
    assert_eq!(desk.history.controls().len(), 1, "it is next when somebody wakes the session");
}

#[test]
fn a_control_that_an_interrupt_meets_stays_pending() {
    let mut desk = Desk::new();
    desk.exchange(1, &[]);
    let prompt = desk.exchange(1, &["x"]);
    for ask in [
        (|desk: &mut Desk, _: &MessageId| desk.ask_move(false)) as fn(&mut Desk, &MessageId) -> _,
        |desk, prompt| desk.ask_revert(prompt),
        |desk, _| desk.ask(Control::Compaction),
    ] {
        let mut desk = Desk { history: desk.history.clone(), ..Desk::new() };
        let control = ask(&mut desk, &prompt);
        desk.interrupt();
        let wrote = desk.open(DIED);
        assert_eq!((wrote.site, wrote.end), (Site::Interrupted, DrainEnd::Close));
        assert_eq!(wrote.kinds, ["drain.ended"]);
        assert_eq!(desk.history.controls()[0].message, control);
    }
    // It comes while the files are captured.
    desk.ask_revert(&prompt);
    assert_eq!(desk.open(IDLE).site, Site::RevertReached);
    desk.interrupt();
    let wrote = desk.decide(|rules, draft| rules.captured(draft, Ok(tree(9)), &seen()));
    assert_eq!((wrote.site, wrote.kinds.as_slice()), (Site::Interrupted, &["drain.ended"][..]));
    assert_eq!(desk.history.controls().len(), 1);
}

#[test]
fn a_revert_without_files_is_staged_at_once() {
    let mut desk = Desk::new();
    let first = desk.exchange(1, &[]);
    let prompt = desk.exchange(1, &["x"]);
    desk.ask(Control::Revert { message: prompt.clone(), files: false });
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds, ["control.delivered", "revert.staged", "drain.ended"]);
    assert!(matches!(wrote.next, Next::End(Closed::Ended(DrainOutcome::Completed))));
    let SessionEvent::RevertStaged(staged) = &wrote.events[1] else { panic!("{wrote:?}") };
    assert_eq!(
        (&staged.message, &staged.original, staged.paths.is_empty()),
        (&prompt, &None, true)
    );
    assert_eq!(staged.back.epoch, Some(1));

    // No call has changed a file since.
    let last = desk.exchange(2, &[]);
    desk.ask_revert(&last);
    assert_eq!(desk.open(IDLE).kinds[1], "revert.staged");
    desk.ask(Control::Unrevert);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds, ["control.delivered", "revert.cleared", "drain.ended"]);
    desk.ask(Control::Unrevert);
    assert_eq!(desk.open(IDLE).kinds, ["control.delivered", "drain.ended"], "there is none");
    assert!(desk.history.savepoint(&first).is_some());
}

#[test]
fn a_revert_with_files_captures_says_and_puts_back() {
    let mut desk = Desk::new();
    let prompt = desk.exchange(1, &["x", "a"]);
    desk.exchange(2, &["y"]);
    let control = desk.ask_revert(&prompt);
    let reached = desk.open(IDLE);
    assert_eq!((reached.site, reached.kinds.len()), (Site::RevertReached, 0));
    assert!(matches!(reached.next, Next::Files(FilesPlan::Capture)));
    // A change since the newest Capture that no event reports is in the Capture before the Revert.
    desk.captures(None, 3, 7, &["z"]);
    let staging = desk.decide(|rules, draft| rules.captured(draft, Ok(tree(7)), &seen()));
    assert_eq!(staging.kinds, ["control.delivered", "revert.staging"]);
    assert_eq!((staging.site, staging.end), (Site::RevertStaging, DrainEnd::Keep));
    assert_eq!(restores(&staging), [put_back(1, &["a", "x", "y"])]);
    assert!(desk.history.controls().iter().all(|pending| pending.message != control));

    // Its worker dies, and the next one repeats the step.
    let resumed = desk.open(DIED);
    assert_eq!((resumed.site, resumed.kinds.len()), (Site::RevertResumed, 0));
    assert_eq!(restores(&resumed), restores(&staging));

    let done = RestoredFiles { files: vec![change("x")], more: 0, left: Vec::new() };
    let wrote = desk.decide(|rules, draft| rules.restored(draft, Ok(done), &seen()));
    assert_eq!(wrote.kinds, ["revert.staged", "drain.ended"]);
    let SessionEvent::RevertStaged(staged) = &wrote.events[0] else { panic!("{wrote:?}") };
    assert_eq!(staged.original, Some(tree(7)));
    let paths = ["a", "x", "y"].map(str::to_owned).to_vec();
    assert_eq!((&staged.paths, staged.files.len()), (&RevertPaths::Only(paths), 1));

    // And back.
    desk.ask(Control::Unrevert);
    let reached = desk.open(IDLE);
    assert_eq!((reached.site, reached.kinds.len()), (Site::UnrevertReached, 0));
    assert_eq!(restores(&reached), [put_back(7, &["a", "x", "y"])]);
    let failed = Err(error("workspace.restore_failed"));
    let mut fails = Desk { history: desk.history.clone(), ..Desk::new() };
    let wrote = fails.decide(|rules, draft| rules.restored(draft, failed, &seen()));
    assert_eq!(wrote.kinds, ["control.delivered", "drain.ended"]);
    assert_eq!(refusal(&wrote.events), Some("workspace.restore_failed"));
    assert!(fails.history.revert().is_some(), "it is still staged");
    let done = Ok(RestoredFiles::default());
    let wrote = desk.decide(|rules, draft| rules.restored(draft, done, &seen()));
    assert_eq!(wrote.kinds, ["control.delivered", "revert.cleared", "drain.ended"]);
    assert!(desk.history.revert().is_none());
}

#[test]
fn another_revert_keeps_the_files_of_before_the_first() {
    let mut desk = Desk::new();
    let one = desk.exchange(1, &["x", "a"]);
    let two = desk.exchange(2, &["y"]);
    let done = || Ok(RestoredFiles::default());
    desk.ask_revert(&one);
    desk.open(IDLE);
    desk.decide(|rules, draft| rules.captured(draft, Ok(tree(3)), &seen()));
    desk.decide(|rules, draft| rules.restored(draft, done(), &seen()));
    // The Capture of the restored files is not the work of a call.
    desk.captures(None, 3, 1, &["a", "x", "y"]);
    desk.ask_revert(&two);
    let staging = desk.open(IDLE);
    assert_eq!(staging.site, Site::RevertStaging, "nothing is captured again");
    assert_eq!(restores(&staging), [put_back(3, &["a", "x"]), put_back(2, &["y"])]);
    let wrote = desk.decide(|rules, draft| rules.restored(draft, done(), &seen()));
    let SessionEvent::RevertStaged(staged) = &wrote.events[0] else { panic!("{wrote:?}") };
    assert_eq!(staged.original, Some(tree(3)));
    desk.ask(Control::Revert { message: two, files: false });
    let staging = desk.open(IDLE);
    assert_eq!(restores(&staging), [put_back(3, &["y"])], "without files they come back");
}

#[test]
fn files_that_cannot_be_put_back_leave_nothing_reverted() {
    let mut desk = Desk::new();
    let prompt = desk.exchange(1, &["x"]);
    desk.ask_revert(&prompt);
    desk.open(IDLE);
    let mut uncaptured = Desk { history: desk.history.clone(), ..Desk::new() };
    let failed = || Err(error("workspace.restore_failed"));
    let wrote = uncaptured
        .decide(|rules, draft| rules.captured(draft, failed().map(|()| tree(1)), &seen()));
    assert_eq!(wrote.kinds, ["control.delivered", "drain.ended"]);
    assert_eq!(refusal(&wrote.events), Some("workspace.restore_failed"));
    desk.decide(|rules, draft| rules.captured(draft, Ok(tree(2)), &seen()));
    let wrote = desk.decide(|rules, draft| {
        rules.restored(draft, failed().map(|()| RestoredFiles::default()), &seen())
    });
    assert_eq!(wrote.kinds, ["revert.cleared", "drain.ended"]);
    let SessionEvent::RevertCleared(cleared) = &wrote.events[0] else { panic!("{wrote:?}") };
    assert_eq!(cleared.error, Some(error("workspace.restore_failed")));
    assert!(desk.history.revert().is_none());
}

#[test]
fn a_revert_that_cannot_be_is_refused_and_says_why() {
    let mut desk = Desk::new();
    let prompt = desk.exchange(1, &["x"]);
    let unknown = MessageId::mint(&mut desk.mint);
    desk.ask_revert(&unknown);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds, ["control.delivered", "drain.ended"]);
    assert_eq!(refusal(&wrote.events), Some("session.message_unknown"));

    let mut busy = Desk { history: desk.history.clone(), ..Desk::new() };
    let (_, turn) = busy.begin();
    busy.call(&turn, true);
    busy.ask_revert(&prompt);
    busy.ask(Control::Unrevert);
    let wrote = busy.settles(&turn);
    assert_eq!(wrote.kinds[..3], ["turn.settled", "control.delivered", "control.delivered"]);
    assert_eq!(refusal(&wrote.events), Some("session.busy"));
    assert_eq!(wrote.site, Site::TurnStarted, "the work goes on");

    desk.ask_move(false);
    let plan = plan(&desk.open(IDLE));
    desk.moved(plan, None);
    desk.session.location = location("b");
    desk.ask_revert(&prompt);
    assert_eq!(refusal(&desk.open(IDLE).events), Some("session.revert_across_move"));
}

#[test]
fn a_prompt_makes_a_staged_revert_final_and_stored_ones_wait_for_it() {
    let mut desk = Desk::new();
    let first = desk.exchange(1, &[]);
    let prompt = desk.exchange(1, &[]);
    desk.ask_revert(&prompt);
    let stored = desk.admit(Delivery::Steer, false);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds, ["control.delivered", "revert.staged", "drain.ended"]);
    assert_eq!(desk.history.pending()[0].prompt.message, stored);
    // Nor after it, and nothing continues by itself.
    let resumed = Taken { was_open: true, handed_over: true, recoveries: 0 };
    assert_eq!(desk.open(resumed).site, Site::Completed);
    let mut cleared = Desk { history: desk.history.clone(), ..Desk::new() };
    cleared.ask(Control::Unrevert);
    let wrote = cleared.open(IDLE);
    assert_eq!(wrote.kinds[..3], ["control.delivered", "revert.cleared", "prompt.promoted"]);

    desk.admit(Delivery::Steer, true);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds[..3], ["revert.committed", "prompt.promoted", "turn.started"]);
    assert!(desk.history.savepoint(&prompt).is_none() && desk.history.savepoint(&first).is_some());
}

#[test]
fn what_a_staged_revert_held_is_cancelled_by_the_drain_that_commits_it() {
    let mut desk = Desk::new();
    let prompt = desk.exchange(1, &[]);
    desk.ask_revert(&prompt);
    desk.open(IDLE);
    let held = [desk.admit_synthetic(), desk.admit_synthetic()];
    assert_eq!(desk.open(IDLE).site, Site::Completed, "they wait");
    let mut moves = Desk { history: desk.history.clone(), ..Desk::new() };
    let mut cleared = Desk { history: desk.history.clone(), ..Desk::new() };

    // A prompt that came while the session was busy.
    desk.admit(Delivery::Steer, true);
    let wrote = desk.open(IDLE);
    let kinds = ["revert.committed", "input.cancelled", "input.cancelled", "prompt.promoted"];
    assert_eq!((&wrote.kinds[..4], wrote.taken), (&kinds[..], 3));
    let cancelled = wrote.events.iter().filter_map(|event| {
        let SessionEvent::InputCancelled(cancelled) = event else { return None };
        Some(cancelled.message.clone())
    });
    assert_eq!(cancelled.collect::<Vec<_>>(), held);
    assert!(desk.history.pending().is_empty());

    moves.ask_move(false);
    let plan = plan(&moves.open(IDLE));
    let wrote = moves.moved(plan, None);
    let kinds = ["revert.committed", "input.cancelled", "input.cancelled", "control.delivered"];
    assert_eq!((&wrote.kinds[..4], wrote.taken), (&kinds[..], 3));

    cleared.ask(Control::Unrevert);
    let wrote = cleared.open(IDLE);
    assert_eq!(wrote.kinds[1..4], ["revert.cleared", "prompt.promoted", "prompt.promoted"]);
}

#[test]
fn a_move_makes_a_staged_revert_final() {
    let mut desk = Desk::new();
    let prompt = desk.exchange(1, &[]);
    desk.ask_revert(&prompt);
    desk.open(IDLE);
    desk.ask_move(false);
    let plan = plan(&desk.open(IDLE));
    let wrote = desk.moved(plan, None);
    assert_eq!(wrote.kinds[..3], ["revert.committed", "control.delivered", "session.moved"]);
}

#[test]
fn a_drain_on_another_disk_tells_once_which_effects_are_gone() {
    let mut desk = Desk::new();
    let (_, turn) = desk.begin();
    let call = desk.call(&turn, true);
    desk.interrupt();
    let message = desk.history.open_turn().expect("it is open").message.clone();
    let said = Said::new(turn, message);
    desk.decide(|rules, draft| rules.interrupted(draft, &said));
    desk.restored = Some((FencingToken(9), tree(4)));

    let mut idle = Desk { history: desk.history.clone(), ..Desk::new() };
    idle.restored.clone_from(&desk.restored);
    idle.ask(Control::Unrevert);
    let wrote = idle.open(IDLE);
    assert_eq!(wrote.kinds, ["workspace.restored", "control.delivered", "drain.ended"]);
    assert_eq!(idle.history.lost().len(), 1, "nothing is said to no one");
    idle.admit(Delivery::Steer, true);
    assert_eq!(idle.open(IDLE).kinds[..2], ["notice.recorded", "prompt.promoted"]);

    desk.admit(Delivery::Steer, true);
    let wrote = desk.open(IDLE);
    assert_eq!(wrote.kinds[..3], ["workspace.restored", "notice.recorded", "prompt.promoted"]);
    let SessionEvent::WorkspaceRestored(restored) = &wrote.events[0] else { panic!("{wrote:?}") };
    assert_eq!((restored.token, &restored.tree), (FencingToken(9), &Some(tree(4))));
    assert_eq!(restored.lost, [call]);
    let SessionEvent::NoticeRecorded(notice) = &wrote.events[1] else { panic!("{wrote:?}") };
    assert_eq!(notice.kind, NoticeKind::FilesLost);
    assert!(notice.text.contains("gone: shell: make. Check"), "{}", notice.text);

    let turn = desk.history.open_turn().expect("it began").turn.clone();
    desk.call(&turn, true);
    desk.answers();
    desk.admit(Delivery::Steer, true);
    assert_eq!(desk.open(IDLE).kinds[0], "prompt.promoted", "these are there");
}

#[test]
fn a_takeover_on_another_disk_tells_after_the_turn_that_it_settles() {
    let mut desk = Desk::new();
    let (_, turn) = desk.begin();
    let call = desk.call(&turn, false);
    desk.restored = Some((FencingToken(9), tree(4)));
    let wrote = desk.open(DIED);
    assert_eq!(wrote.kinds, ["attempt.ended", "tool.settled", "workspace.restored"]);
    let SessionEvent::WorkspaceRestored(restored) = &wrote.events[2] else { panic!("{wrote:?}") };
    assert_eq!(restored.lost, [call]);
    assert!(matches!(wrote.next, Next::Recover(_)));
    // After another death, the notice is not repeated.
    let again = desk.open(DIED);
    assert!(again.kinds.is_empty(), "{again:?}");
    let wrote = desk.settles(&turn);
    let kinds = ["turn.settled", "notice.recorded", "notice.recorded", "turn.started"];
    assert_eq!(wrote.kinds[..4], kinds);
    let SessionEvent::NoticeRecorded(notice) = &wrote.events[2] else { panic!("{wrote:?}") };
    assert_eq!(notice.kind, NoticeKind::FilesLost);
}

// Finding look 4 (C2): the budget of folds was asked when a drain started, and not when its inbox grew.
#[test]
fn a_drain_without_room_leaves_its_inbox_as_it_is() {
    let mut desk = Desk { cramped: true, ..Desk::new() };
    let next = desk.decide(|rules, draft| rules.cross(draft, false, &seen()));
    assert!(matches!(next.next, Next::End(Closed::Ended(DrainOutcome::Completed))), "{next:?}");
    for (delivery, continuing) in
        [(Delivery::Queue, false), (Delivery::Steer, false), (Delivery::Steer, true)]
    {
        let mut desk = Desk { cramped: true, ..Desk::new() };
        desk.admit(delivery, true);
        let wrote = desk.decide(|rules, draft| rules.cross(draft, continuing, &seen()));
        assert!(matches!(wrote.next, Next::End(Closed::HandedOver)), "{wrote:?}");
        assert_eq!((wrote.taken, wrote.end), (0, DrainEnd::HandOver));
        assert_eq!(wrote.kinds, Vec::<&str>::new());
        desk.cramped = false;
        let wrote = desk.decide(|rules, draft| rules.cross(draft, continuing, &seen()));
        assert_eq!(wrote.taken, 1, "the next drain takes it");
    }
}
