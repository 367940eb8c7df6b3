//! A conversation that is forked at any point is the conversation up to there, and shares no id with the original.

use std::collections::BTreeSet;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, CallId, CompactionEnded, CompactionReason,
    CompactionStarted, ContextUpdated, Delivery, DrainEnded, DrainOutcome, EntryRemoved, EntrySet,
    EpochStarted, Finish, IdMint, MessageId, ModelRef, NoticeKind, NoticeRecorded, PartId,
    PromptAdmitted, PromptPart, PromptPromoted, RecordedEvent, ReplyPart, RevertCleared,
    RevertCommitted, RevertStaged, Seq, SessionCreated, SessionEvent, SessionForked, SessionMoved,
    SideOutcome, Stamp, TitleEnded, TitleStarted, ToolCalled, ToolClass, ToolIntent,
    ToolOutcomeKind, ToolSettled, ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled,
    TurnStarted, TurnUsage,
};
use history::{Components, History, ModelEntry};
use proptest::prelude::*;
use proptest::sample::Index;
use session_rules::{Forked, fork};

/// The number of the first copied event. The events before it describe the fork and its parent.
const FIRST: Seq = Seq(3);

#[derive(Debug, Clone)]
enum Step {
    Prompt { parts: usize, synthetic: bool },
    Context,
    Notice,
    Turn { calls: usize, replied: bool, outcome: TurnOutcome },
    Compaction { keep: Index, outcome: SideOutcome },
    Entry { key: u8, value: Option<u8> },
    Noise,
    Move,
    Revert { at: Index, end: End },
}

#[derive(Debug, Clone, Copy)]
enum End {
    Staged,
    Cleared,
    Committed,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        5 => Just(TurnOutcome::Completed),
        1 => Just(TurnOutcome::Cut),
        1 => Just(TurnOutcome::Failed),
        1 => Just(TurnOutcome::Interrupted),
        1 => Just(TurnOutcome::Lost),
        1 => Just(TurnOutcome::Overflowed),
    ];
    let side = prop_oneof![
        3 => Just(SideOutcome::Completed),
        1 => Just(SideOutcome::Failed),
        1 => Just(SideOutcome::Lost),
    ];
    let end =
        prop_oneof![1 => Just(End::Staged), 1 => Just(End::Cleared), 3 => Just(End::Committed)];
    prop_oneof![
        4 => (1..3_usize, any::<bool>())
            .prop_map(|(parts, synthetic)| Step::Prompt { parts, synthetic }),
        1 => Just(Step::Context),
        1 => Just(Step::Notice),
        5 => (0..3_usize, any::<bool>(), outcome)
            .prop_map(|(calls, replied, outcome)| Step::Turn { calls, replied, outcome }),
        2 => (any::<Index>(), side).prop_map(|(keep, outcome)| Step::Compaction { keep, outcome }),
        1 => (0..3_u8, any::<Option<u8>>()).prop_map(|(key, value)| Step::Entry { key, value }),
        1 => Just(Step::Noise),
        1 => Just(Step::Move),
        2 => (any::<Index>(), end).prop_map(|(at, end)| Step::Revert { at, end }),
    ]
}

fn model() -> ModelRef {
    ModelRef::new("p", "m")
}

/// A log that grows like those of a worker and gateways.
struct Log {
    mint: IdMint,
    events: Vec<RecordedEvent>,
    epoch: i32,
    prompt: MessageId,
    staged: Option<RevertCommitted>,
    count: usize,
}

impl Log {
    fn new(steps: &[Step]) -> Self {
        let mut mint = IdMint::seeded(Stamp::default(), 1_795_293_590_662, 1);
        let prompt = MessageId::mint(&mut mint);
        let mut log = Self { mint, events: Vec::new(), epoch: 0, prompt, staged: None, count: 0 };
        log.push(created());
        log.epoch();
        for step in steps {
            log.step(step);
        }
        log
    }

    fn push(&mut self, event: impl Into<SessionEvent>) {
        let seq = Seq(i64::try_from(self.events.len()).expect("short") + 1);
        let id = domain::EventId::mint(&mut self.mint);
        let time = 1_000 * seq.0;
        self.events.push(RecordedEvent { seq, id, time, claim: None, event: event.into() });
    }

    fn text(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what} {}", self.count)
    }

    fn epoch(&mut self) {
        self.epoch += 1;
        let baseline = self.text("baseline");
        let snapshot = format!("{{\"n\":{}}}", self.count);
        self.push(EpochStarted { epoch: self.epoch, baseline, snapshot, reason: None });
    }

    fn step(&mut self, step: &Step) {
        // Anything that continues the conversation first makes a staged Revert final, like an admission.
        let leaves_it = matches!(step, Step::Entry { .. } | Step::Noise | Step::Revert { .. });
        if let Some(committed) = self.staged.take_if(|_| !leaves_it) {
            self.push(committed);
        }
        match step {
            Step::Prompt { parts, synthetic } => self.promote(*parts, *synthetic),
            Step::Context => {
                let (message, rendered) = (MessageId::mint(&mut self.mint), self.text("told"));
                let snapshot = format!("{{\"n\":{}}}", self.count);
                self.push(ContextUpdated { message, rendered, snapshot });
            }
            Step::Notice => {
                let (message, text) = (MessageId::mint(&mut self.mint), self.text("notice"));
                self.push(NoticeRecorded { message, kind: NoticeKind::Recovery, text });
            }
            Step::Turn { calls, replied, outcome } => self.turn(*calls, *replied, *outcome),
            Step::Compaction { keep, outcome } => self.compact(keep, *outcome),
            Step::Entry { key, value: Some(value) } => {
                self.push(EntrySet { key: format!("k{key}"), value: value.to_string() });
            }
            Step::Entry { key, value: None } => {
                self.push(EntryRemoved { key: format!("k{key}") });
            }
            Step::Noise => self.noise(),
            Step::Move => self.go(),
            Step::Revert { at, end } => self.revert(at, *end),
        }
    }

    fn promote(&mut self, parts: usize, synthetic: bool) {
        let message = MessageId::mint(&mut self.mint);
        let texts: Vec<String> = (0..parts).map(|_| self.text("prompt")).collect();
        let part = |text| PromptPart::Text { id: PartId::mint(&mut self.mint), text };
        let parts: Vec<PromptPart> = texts.into_iter().map(part).collect();
        let synthetic = synthetic.then(|| "CI".to_owned());
        self.push(PromptAdmitted {
            by: None,
            message: message.clone(),
            delivery: Delivery::Steer,
            parts: parts.clone(),
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
            synthetic: synthetic.clone(),
        });
        self.push(PromptPromoted {
            message: message.clone(),
            parts,
            agent: "build".into(),
            model: model(),
            admitted: 1,
            synthetic,
        });
        self.prompt = message;
    }

    fn turn(&mut self, calls: usize, replied: bool, outcome: TurnOutcome) {
        let (turn, message) = (TurnId::mint(&mut self.mint), MessageId::mint(&mut self.mint));
        self.push(TurnStarted {
            turn: turn.clone(),
            message: message.clone(),
            parent: self.prompt.clone(),
            agent: "build".into(),
            model: model(),
            epoch: self.epoch,
            step: 1,
            notice: None,
        });
        let is_empty = matches!(outcome, TurnOutcome::Lost | TurnOutcome::Overflowed);
        let usage = TurnUsage { input: 9, output: 9, ..TurnUsage::default() };
        if !is_empty && (replied || outcome == TurnOutcome::Completed) {
            let id = PartId::mint(&mut self.mint);
            let mut parts = vec![ReplyPart::text(id, self.text("reply"))];
            for _ in 0..calls {
                let call = self.call(&turn, &message);
                parts.push(ReplyPart::ToolCall { call });
            }
            self.push(AttemptEnded {
                attempt: AttemptId::mint(&mut IdMint::seeded(Stamp::default(), 1, 2)),
                turn: turn.clone(),
                outcome: AttemptOutcome::Completed,
                usage: Some(usage),
                error: None,
            });
            let finish = Finish::Stop.into();
            self.push(TurnReplied { turn: turn.clone(), message: message.clone(), parts, finish });
        }
        self.push(TurnSettled { turn, message, outcome, usage, error: None });
    }

    fn call(&mut self, turn: &TurnId, message: &MessageId) -> CallId {
        let (call, part) = (CallId::mint(&mut self.mint), PartId::mint(&mut self.mint));
        self.push(ToolCalled {
            turn: turn.clone(),
            message: message.clone(),
            intent: ToolIntent {
                call: call.clone(),
                part,
                provider_call: format!("provider-{}", self.count),
                tool: "read".into(),
                arguments: "{}".into(),
                metadata: None,
            },
            class: ToolClass::Pure,
            state: ToolState::Started,
        });
        let output = self.text("output");
        self.push(ToolSettled {
            turn: turn.clone(),
            call: call.clone(),
            outcome: ToolOutcomeKind::Completed,
            output,
            title: String::new(),
            structured: None,
            managed_path: None,
            truncated: false,
            started: 1,
            ended: 2,
        });
        call
    }

    fn compact(&mut self, keep: &Index, outcome: SideOutcome) {
        let (turn, message) = (TurnId::mint(&mut self.mint), MessageId::mint(&mut self.mint));
        let keep_from = Seq(i64::try_from(keep.index(self.events.len())).expect("short") + 1);
        let prompt = self.text("sum up");
        self.push(CompactionStarted {
            turn: turn.clone(),
            message: message.clone(),
            reason: CompactionReason::Manual,
            input: Some(self.prompt.clone()),
            continuing: false,
            agent: "build".into(),
            model: model(),
            epoch: self.epoch,
            prompt,
            keep_from,
            cause: None,
            scope: domain::SummaryScope::default(),
        });
        let completed = outcome == SideOutcome::Completed;
        let checkpoint = completed.then(|| self.text("summary"));
        let usage = TurnUsage { input: 1, ..TurnUsage::default() };
        self.push(CompactionEnded { turn, message, outcome, checkpoint, usage, error: None });
        if completed {
            self.epoch();
        }
    }

    /// Adds events that no fork copies.
    fn noise(&mut self) {
        let turn = TurnId::mint(&mut self.mint);
        let (system, prompt) = (self.text("name it"), self.text("please"));
        self.push(TitleStarted {
            turn: turn.clone(),
            message: self.prompt.clone(),
            agent: "build".into(),
            model: model(),
            system,
            prompt,
        });
        let usage = TurnUsage { input: 5, ..TurnUsage::default() };
        self.push(TitleEnded { turn, outcome: SideOutcome::Completed, usage, error: None });
        self.push(DrainEnded { outcome: DrainOutcome::Completed, error: None });
    }

    /// Moves to another Location and continues there.
    fn go(&mut self) {
        let loc = |n: usize| format!("loc_{n}").parse().expect("an id");
        self.count += 1;
        self.push(SessionMoved {
            from: loc(self.count - 1),
            to: loc(self.count),
            project: "prj_a".parse().expect("an id"),
            directory: "/workspace/other".into(),
            carry: false,
            tree: None,
        });
        self.epoch();
    }

    fn revert(&mut self, at: &Index, end: End) {
        if self.staged.take().is_some() {
            self.push(RevertCleared::default());
        }
        // No Revert crosses a Move, and none begins at a notice.
        let history = folded(&self.events);
        let messages: Vec<_> = messages(&self.events)
            .into_iter()
            .filter(|(seq, message)| *seq > history.moved() && history.savepoint(message).is_some())
            .collect();
        if messages.is_empty() {
            return;
        }
        let (from, message) = messages[at.index(messages.len())].clone();
        let back = history.savepoint(&message).expect("chosen so").back();
        self.push(RevertStaged {
            message: message.clone(),
            from,
            original: None,
            paths: domain::RevertPaths::default(),
            files: Vec::new(),
            more: 0,
            left: Vec::new(),
            back: back.clone(),
        });
        match end {
            End::Staged => self.staged = Some(RevertCommitted { message, from, back }),
            End::Cleared => self.push(RevertCleared::default()),
            End::Committed => self.push(RevertCommitted { message, from, back }),
        }
    }
}

fn created() -> SessionCreated {
    SessionCreated {
        by: None,
        project: "prj_a".parse().expect("an id"),
        location: "loc_a".parse().expect("an id"),
        directory: "/workspace".into(),
        title: "t".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: false,
        rules: Vec::new(),
        metadata: None,
    }
}

fn folded(events: &[RecordedEvent]) -> History {
    let mut history = History::new();
    history.extend(events);
    history
}

/// Returns the remaining messages before which the log may be cut or reverted, with their places.
fn messages(log: &[RecordedEvent]) -> Vec<(Seq, MessageId)> {
    let mut mint = IdMint::seeded(Stamp::default(), 1, 3);
    let begun = log.iter().filter_map(|event| {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these begin a message")]
        let message = match &event.event {
            SessionEvent::PromptPromoted(promoted) => &promoted.message,
            SessionEvent::TurnStarted(started) => &started.message,
            SessionEvent::NoticeRecorded(notice) => &notice.message,
            _ => return None,
        };
        Some((event.seq, message.clone()))
    });
    begun.filter(|(_, message)| fork(log, Some(message), FIRST, &mut mint).is_some()).collect()
}

/// Returns the log of a fork: its creation, its origin, and the copied events.
fn log_of(forked: &Forked) -> Vec<RecordedEvent> {
    let copied = i64::try_from(forked.events.len()).expect("short");
    let parent = "ses_a".parse().expect("an id");
    let from = SessionForked { parent, through: forked.through, before: None, copied, files: None };
    let begin = [(0, created().into()), (0, from.into())];
    let events = begin.into_iter().chain(forked.events.clone());
    let mut mint = IdMint::seeded(Stamp::default(), 1, 4);
    let recorded = events.zip(1..).map(|((time, event), seq)| RecordedEvent {
        seq: Seq(seq),
        id: domain::EventId::mint(&mut mint),
        time,
        claim: None,
        event,
    });
    recorded.collect()
}

/// Returns the body of the next request.
fn body(history: &mut History) -> String {
    let model = ModelEntry {
        provider: "p".into(),
        id: "m".into(),
        protocol: llm_protocol::Protocol::OpenAiChat,
        context_limit: None,
        input_limit: None,
        output_limit: None,
        dialect: llm_protocol::Dialect::default(),
    };
    let components = Components {
        agent: "You are a test.".into(),
        tools: Vec::new(),
        tool_choice: llm_protocol::ToolChoice::default(),
        generation: llm_protocol::Generation::default(),
        options: serde_json::Map::new(),
        model,
    };
    let turn = "trn_next".parse().expect("an id");
    String::from_utf8(history.encode(&components, &turn)).expect("UTF-8")
}

/// Returns all ids of messages, parts, turns and calls in events.
fn ids<'a>(events: impl IntoIterator<Item = &'a SessionEvent>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for event in events {
        let payload = event.payload();
        let words = payload.split('"');
        let is_id =
            |word: &&str| ["msg_", "prt_", "trn_", "call_"].iter().any(|p| word.starts_with(p));
        found.extend(words.filter(is_id).map(str::to_owned));
    }
    found
}

/// Returns whether clients that order messages and parts by id see them in the right order.
fn in_order(copy: &[RecordedEvent]) -> bool {
    let mut shown: Vec<String> = Vec::new();
    let mut messages: Vec<&MessageId> = Vec::new();
    let mut calls = std::collections::BTreeMap::new();
    for event in copy {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these show something")]
        match &event.event {
            SessionEvent::PromptPromoted(promoted) => messages.push(&promoted.message),
            SessionEvent::TurnStarted(started) => messages.push(&started.message),
            SessionEvent::ToolCalled(called) => {
                calls.insert(&called.intent.call, called.intent.part.to_string());
            }
            SessionEvent::TurnReplied(replied) => {
                shown.extend(replied.parts.iter().map(|part| match part {
                    ReplyPart::Text { id, .. }
                    | ReplyPart::Reasoning { id, .. }
                    | ReplyPart::HostedCall { id, .. }
                    | ReplyPart::HostedResult { id, .. } => id.to_string(),
                    ReplyPart::ToolCall { call } => calls[call].clone(),
                }));
            }
            _ => {}
        }
    }
    messages.is_sorted() && shown.is_sorted()
}

/// Checks that the fork equals the log up to `end`.
fn same(
    log: &[RecordedEvent],
    end: Seq,
    forked: &Forked,
) -> Result<Vec<RecordedEvent>, TestCaseError> {
    prop_assert_eq!(forked.through, Seq(end.0 - 1));
    let copy = log_of(forked);
    let (mut ours, mut theirs) =
        (folded(&copy), folded(&log[..usize::try_from(end.0 - 1).expect("positive")]));
    prop_assert_eq!(body(&mut ours), body(&mut theirs));
    prop_assert_eq!(ours.epoch(), theirs.epoch());
    prop_assert_eq!(ours.entries(), theirs.entries());
    prop_assert!(in_order(&copy));
    prop_assert!(ours.open_turn().is_none() && ours.compacting().is_none());
    prop_assert!(ours.pending().is_empty() && ours.controls().is_empty());
    let own = ids(forked.events.iter().map(|(_, event)| event));
    let others = ids(log.iter().map(|event| &event.event));
    prop_assert!(own.is_disjoint(&others), "{:?}", own.intersection(&others).next());
    Ok(copy)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_fork_shows_what_its_log_showed_up_to_the_cut_under_ids_of_its_own(
        steps in prop::collection::vec(step(), 0..24),
        at in any::<Index>(),
    ) {
        let log = Log::new(&steps);
        let (events, staged) = (log.events, log.staged);
        let mut mint = IdMint::seeded(Stamp::default(), 1_795_293_600_000, 5);
        let end = match &staged {
            Some(staged) => staged.from,
            None => Seq(i64::try_from(events.len()).expect("short") + 1),
        };
        let whole = fork(&events, None, FIRST, &mut mint).expect("all of it");
        same(&events, end, &whole)?;

        let messages = messages(&events);
        if messages.is_empty() {
            return Ok(());
        }
        let (end, message) = &messages[at.index(messages.len())];
        let cut = fork(&events, Some(message), FIRST, &mut mint).expect("it is there");
        let copy = same(&events, *end, &cut)?;
        // A fork of the fork is the same, and needs neither.
        let again = fork(&copy, None, FIRST, &mut mint).expect("all of it");
        same(&copy, Seq(i64::try_from(copy.len()).expect("short") + 1), &again)?;
        prop_assert!(fork(&events, Some(&"msg_nowhere".parse().expect("an id")), FIRST, &mut mint).is_none());
    }
}
