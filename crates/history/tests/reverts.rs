//! Reverts, Captures, Moves and Forks in the fold; and a fold in pieces, some of them taken back, equals the fold of
//! everything.
//!
//! Long because all of it is told by one small language of events.

use domain::{
    CallId, CompactionEnded, CompactionReason, CompactionStarted, ContextUpdated, Delivery,
    DeliveryChanged, DrainEnded, DrainOutcome, EpochStarted, FencingToken, FileChange, FileStatus,
    Finish, IdMint, LocationId, MessageId, ModelRef, NoticeKind, NoticeRecorded, PartId, ProjectId,
    PromptAdmitted, PromptPart, PromptPromoted, RecordedEvent, ReplyPart, RevertCleared,
    RevertCommitted, RevertPaths, RevertStaged, Seq, SessionEvent, SessionMoved, SideOutcome,
    SnapshotTree, Stamp, ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled,
    ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
    WorkspaceRestored, WorkspaceSnapshotted,
};
use history::History;
use llm_protocol::{Message, Part};

/// A log that is folded while it is written.
struct Told {
    log: Vec<RecordedEvent>,
    history: History,
    mint: IdMint,
}

fn model() -> ModelRef {
    ModelRef::new("p", "m")
}

fn tree(n: usize) -> SnapshotTree {
    SnapshotTree::try_from(format!("{n:064x}")).expect("hex")
}

impl Told {
    fn new() -> Self {
        let mint = IdMint::seeded(Stamp::default(), 1, 7);
        let mut told = Self { log: Vec::new(), history: History::new(), mint };
        told.epoch(1);
        told
    }

    fn push(&mut self, event: impl Into<SessionEvent>) -> Seq {
        let seq = Seq(self.history.seq().0 + 1);
        let (time, event) = (seq.0, event.into());
        self.history.apply(seq, time, &event);
        let id = domain::EventId::mint(&mut self.mint);
        self.log.push(RecordedEvent { seq, id, time, claim: None, event });
        seq
    }

    fn epoch(&mut self, epoch: i32) {
        let (baseline, snapshot) = (format!("baseline {epoch}"), format!("{{\"e\":{epoch}}}"));
        self.push(EpochStarted { epoch, baseline, snapshot, reason: None });
    }

    fn update(&mut self, text: &str) {
        let message = MessageId::mint(&mut self.mint);
        let snapshot = format!("{{\"u\":\"{text}\"}}");
        self.push(ContextUpdated { message, rendered: text.into(), snapshot });
    }

    fn prompt(&mut self, text: &str) -> MessageId {
        let message = MessageId::mint(&mut self.mint);
        let parts =
            vec![PromptPart::Text { id: PartId::mint(&mut self.mint), text: text.to_owned() }];
        self.push(PromptPromoted {
            message: message.clone(),
            parts,
            agent: "build".into(),
            model: model(),
            admitted: 1,
            synthetic: None,
        });
        message
    }

    fn notice(&mut self, kind: NoticeKind) {
        let message = MessageId::mint(&mut self.mint);
        self.push(NoticeRecorded { message, kind, text: format!("{kind:?}") });
    }

    fn starts(&mut self) -> (TurnId, MessageId) {
        let (turn, message) = (TurnId::mint(&mut self.mint), MessageId::mint(&mut self.mint));
        self.push(TurnStarted {
            turn: turn.clone(),
            message: message.clone(),
            parent: message.clone(),
            agent: "build".into(),
            model: model(),
            epoch: 1,
            step: 1,
            notice: None,
        });
        (turn, message)
    }

    fn call(&mut self, turn: &TurnId, class: ToolClass, state: ToolState) -> CallId {
        let call = CallId::mint(&mut self.mint);
        let intent = ToolIntent {
            call: call.clone(),
            part: PartId::mint(&mut self.mint),
            provider_call: "call_1".into(),
            tool: "shell".into(),
            arguments: "{}".into(),
            metadata: None,
        };
        let message = MessageId::mint(&mut self.mint);
        self.push(ToolCalled { turn: turn.clone(), message, intent, class, state });
        call
    }

    fn result(&mut self, turn: &TurnId, call: &CallId) {
        self.push(ToolSettled {
            turn: turn.clone(),
            call: call.clone(),
            outcome: ToolOutcomeKind::Failed,
            output: "out".into(),
            title: "make".into(),
            structured: None,
            managed_path: None,
            truncated: false,
            started: 1,
            ended: 2,
        });
    }

    fn ends(&mut self, turn: TurnId, message: MessageId, text: &str, calls: &[CallId]) {
        let mut parts = vec![ReplyPart::text(PartId::mint(&mut self.mint), text)];
        parts.extend(calls.iter().map(|call| ReplyPart::ToolCall { call: call.clone() }));
        let (of, at) = (turn.clone(), message.clone());
        self.push(TurnReplied { turn: of, message: at, parts, finish: Finish::Stop.into() });
        let (outcome, usage) = (TurnOutcome::Completed, TurnUsage::default());
        self.push(TurnSettled { turn, message, outcome, usage, error: None });
    }

    fn answer(&mut self, text: &str) -> MessageId {
        let (turn, message) = self.starts();
        self.ends(turn, message.clone(), text, &[]);
        message
    }

    /// Writes a turn with one call, which is captured after the next turn began.
    fn works(&mut self, text: &str) -> (MessageId, TurnId, CallId) {
        let (turn, message) = self.starts();
        let call = self.call(&turn, ToolClass::Unsafe, ToolState::Started);
        self.result(&turn, &call);
        self.ends(turn.clone(), message.clone(), text, std::slice::from_ref(&call));
        (message, turn, call)
    }

    fn captures(&mut self, turn: Option<&TurnId>, from: Option<usize>, to: usize, paths: &[&str]) {
        let file = |path: &&str| FileChange {
            path: (*path).to_owned(),
            status: FileStatus::Modified,
            additions: 1,
            deletions: 0,
            patch: None,
        };
        self.push(WorkspaceSnapshotted {
            token: FencingToken(1),
            ordinal: 1,
            tree: tree(to),
            parent: from.map(tree),
            pack: None,
            bytes: 0,
            turn: turn.cloned(),
            base: turn.is_none(),
            files: paths.iter().map(file).collect(),
            more: i64::from(paths.is_empty() && turn.is_some()),
            directories: Vec::new(),
            skipped: Vec::new(),
        });
    }

    fn compacts(&mut self, keep_from: Seq) -> MessageId {
        let (turn, message) = (TurnId::mint(&mut self.mint), MessageId::mint(&mut self.mint));
        self.push(CompactionStarted {
            turn: turn.clone(),
            message: message.clone(),
            reason: CompactionReason::Manual,
            input: None,
            continuing: false,
            agent: "build".into(),
            model: model(),
            epoch: 1,
            prompt: "summarise".into(),
            keep_from,
            cause: None,
            scope: domain::SummaryScope::default(),
        });
        self.push(CompactionEnded {
            turn,
            message: message.clone(),
            outcome: SideOutcome::Completed,
            checkpoint: Some(format!("the summary {message}")),
            usage: TurnUsage::default(),
            error: None,
        });
        message
    }

    /// Admits synthetic input, which wakes the session or waits.
    fn notes(&mut self, wake: bool) -> MessageId {
        let message = MessageId::mint(&mut self.mint);
        self.push(PromptAdmitted {
            by: None,
            message: message.clone(),
            delivery: Delivery::Steer,
            parts: Vec::new(),
            agent: None,
            model: None,
            wake,
            digest: String::new(),
            synthetic: Some("a note".into()),
        });
        message
    }

    fn stages(&mut self, message: &MessageId) {
        let to = self.history.savepoint(message).expect("it can be reverted to");
        let (message, from, back) = (message.clone(), to.seq, to.back());
        let (original, paths) = (None, RevertPaths::Only(Vec::new()));
        let files = Vec::new();
        let left = Vec::new();
        self.push(RevertStaged { message, from, original, paths, files, more: 0, left, back });
    }

    fn held(&self) -> Vec<MessageId> {
        self.history.held().map(|input| input.prompt.message.clone()).collect()
    }

    fn reverts(&mut self, message: &MessageId) {
        let to = self.history.savepoint(message).expect("it can be reverted to");
        let (message, from, back) = (message.clone(), to.seq, to.back());
        self.push(RevertCommitted { message, from, back });
    }

    fn moves(&mut self) {
        self.push(SessionMoved {
            from: location("a"),
            to: location("b"),
            project: "prj_1".parse::<ProjectId>().expect("an id"),
            directory: "/workspace".into(),
            carry: false,
            tree: None,
        });
    }

    /// Returns the texts that the next request shows.
    fn shown(&self) -> Vec<String> {
        let view = self.history.view();
        view.shown(self.history.conversation()).iter().map(text).collect()
    }
}

fn location(name: &str) -> LocationId {
    format!("loc_{name}").parse().expect("an id")
}

fn text(message: &Message) -> String {
    let said = message.content.iter().map(|part| match part {
        Part::Text(text) | Part::Reasoning(text) => text.text.clone(),
        Part::Media(media) => media.data.clone(),
        Part::ToolCall(call) => call.name.clone(),
        Part::ToolResult(result) => format!("result of {}", result.name),
    });
    said.collect::<Vec<_>>().join("+")
}

fn only(paths: &[&str]) -> RevertPaths {
    RevertPaths::Only(paths.iter().map(|path| (*path).to_owned()).collect())
}

#[test]
fn a_committed_revert_goes_back_to_before_its_message_and_stays_there() {
    let mut told = Told::new();
    told.prompt("one");
    told.answer("a");
    told.update("news");
    let two = told.prompt("two");
    let b = told.answer("b");
    told.update("more news");
    told.prompt("three");
    assert!(told.history.wants_turn());
    told.reverts(&two);
    assert_eq!(told.shown(), ["one", "a", "news"]);
    assert_eq!(told.history.epoch().expect("an epoch").snapshot, r#"{"u":"news"}"#);
    assert!(told.history.savepoint(&two).is_none() && told.history.savepoint(&b).is_none());
    told.prompt("other");
    told.answer("c");
    assert_eq!(told.shown(), ["one", "a", "news", "other", "c"]);
    assert!(!told.history.wants_turn());
}

#[test]
fn an_answer_can_be_reverted_and_leaves_its_prompt_unanswered() {
    let mut told = Told::new();
    let one = told.prompt("one");
    let (answer, ..) = told.works("a");
    told.answer("b");
    told.reverts(&answer);
    assert_eq!(told.shown(), ["one"]);
    assert!(told.history.wants_turn());
    told.reverts(&one);
    assert!(told.shown().is_empty() && !told.history.wants_turn());
    assert!(told.history.first_prompt().is_none() && told.history.last_prompt().is_none());
}

#[test]
fn reverts_nest_and_cross_each_other() {
    let mut told = Told::new();
    let mut prompts = Vec::new();
    for text in ["one", "two", "three", "four"] {
        prompts.push(told.prompt(text));
        told.answer(&format!("re {text}"));
    }
    told.reverts(&prompts[3]);
    told.reverts(&prompts[2]);
    let five = told.prompt("five");
    told.answer("re five");
    assert_eq!(told.shown(), ["one", "re one", "two", "re two", "five", "re five"]);
    let six = told.prompt("six");
    told.reverts(&five);
    assert_eq!(told.shown(), ["one", "re one", "two", "re two"]);
    assert!(told.history.savepoint(&six).is_none());
    told.reverts(&prompts[1]);
    told.prompt("seven");
    assert_eq!(told.shown(), ["one", "re one", "seven"]);
}

#[test]
fn what_a_revert_holds_is_held_until_it_is_cleared_or_committed_wherever_it_is_staged() {
    let mut told = Told::new();
    let first = told.prompt("one");
    told.answer("two");
    let second = told.prompt("three");
    let before = told.notes(false);
    assert_eq!(told.held(), []);
    told.stages(&second);
    let note = told.notes(false);
    assert_eq!(told.held(), std::slice::from_ref(&note), "not {before}");
    told.stages(&first);
    let (later, _wanted) = (told.notes(false), told.notes(true));
    assert_eq!(told.held(), [note.clone(), later.clone()]);
    told.push(DeliveryChanged { message: later, delivery: Delivery::Queue, wake: true });
    assert_eq!(told.held(), [note], "somebody wants the other one now");
    told.push(RevertCleared { error: None });
    assert_eq!(told.held(), []);
    told.stages(&second);
    assert_eq!(told.held(), [], "the next Revert is another one");
    let newest = told.notes(false);
    assert_eq!(told.held(), [newest]);
    told.reverts(&second);
    assert_eq!(told.held(), []);
}

#[test]
fn a_revert_to_behind_a_compaction_shows_what_was_summarised() {
    let mut told = Told::new();
    told.prompt("one");
    told.answer("a");
    told.update("news");
    let two = told.prompt("two");
    told.answer("b");
    let keep = Seq(told.history.seq().0 + 1);
    told.prompt("three");
    let checkpoint = told.compacts(keep);
    told.epoch(2);
    let four = told.prompt("four");
    let summary = format!("the summary {checkpoint}");
    assert_eq!(told.shown(), [&summary, "three", "four"]);
    let mut behind = Told { log: told.log.clone(), history: told.history.clone(), ..Told::new() };
    told.reverts(&four);
    assert_eq!(told.shown(), [&summary, "three"]);
    told.reverts(&checkpoint);
    assert_eq!(told.shown(), ["one", "a", "news", "two", "b", "three"]);
    behind.reverts(&two);
    assert_eq!(behind.shown(), ["one", "a", "news"]);
    let epoch = behind.history.epoch().expect("an epoch");
    assert_eq!((epoch.number, epoch.baseline.as_str()), (1, "baseline 1"));
    assert_eq!(behind.history.last_epoch(), 2, "numbers are not used again");
    behind.epoch(3);
    assert_eq!(behind.shown(), ["one", "a"], "a new epoch hides what was told before it");
}

#[test]
fn a_move_ends_the_epoch_and_no_revert_crosses_it() {
    let mut told = Told::new();
    let one = told.prompt("one");
    let (_, turn, _) = told.works("a");
    told.captures(Some(&turn), Some(1), 2, &["x"]);
    told.update("news");
    told.moves();
    assert!(told.history.epoch().is_none() && told.history.read_paths().is_empty());
    assert!(told.history.savepoint(&one).expect("it is there").seq < told.history.moved());
    assert_eq!(told.history.changed_since(Seq(1)), only(&[]), "of another Location");
    assert_eq!(told.history.tree_before(Seq(1)), None);
    told.epoch(2);
    assert_eq!(told.shown(), ["one", "a+shell", "result of shell"], "the chronology stays");
    assert_eq!(told.history.last_epoch(), 2);
}

#[test]
fn files_go_back_to_before_the_first_call_that_changed_any() {
    let mut told = Told::new();
    let one = told.prompt("one");
    told.captures(None, None, 1, &[]);
    let (_, first, _) = told.works("a");
    let (second_message, second, _) = {
        let works = told.works("b");
        told.captures(Some(&first), Some(1), 2, &["x"]);
        works
    };
    told.captures(Some(&second), Some(3), 4, &["y", "a"]);
    let at = |told: &Told, message| told.history.savepoint(message).expect("alive").seq;
    let (one, second) = (at(&told, &one), at(&told, &second_message));
    assert_eq!(told.history.changed_since(one), only(&["a", "x", "y"]));
    assert_eq!(told.history.tree_before(one), Some(&tree(1)));
    // The first turn's Capture was committed after the second turn had begun.
    assert_eq!(told.history.changed_since(second), only(&["a", "y"]));
    assert_eq!(told.history.tree_before(second), Some(&tree(3)), "with what others changed");
    let now = Seq(told.history.seq().0 + 1);
    assert_eq!(told.history.changed_since(now), only(&[]));
    assert_eq!(told.history.tree_before(now), Some(&tree(4)));
    let (_, third, _) = told.works("c");
    told.captures(Some(&third), Some(4), 5, &[]);
    assert_eq!(told.history.changed_since(now), RevertPaths::All, "more than are listed");
}

fn unsaved(told: &Told) -> Vec<CallId> {
    told.history.unsaved().iter().map(|unsaved| unsaved.call.clone()).collect()
}

#[test]
fn a_call_is_unsaved_until_its_effects_are_captured() {
    let mut told = Told::new();
    told.prompt("one");
    let (turn, message) = told.starts();
    let pure = told.call(&turn, ToolClass::Pure, ToolState::Started);
    let never = told.call(&turn, ToolClass::Unsafe, ToolState::Intended);
    let shell = told.call(&turn, ToolClass::Unsafe, ToolState::Started);
    for call in [&pure, &never] {
        told.result(&turn, call);
    }
    assert!(unsaved(&told).is_empty());
    told.result(&turn, &shell);
    let write = told.call(&turn, ToolClass::Probe, ToolState::Started);
    assert_eq!(unsaved(&told), std::slice::from_ref(&shell), "a batch is captured as a whole");
    told.result(&turn, &write);
    assert_eq!(unsaved(&told), [shell, write]);
    told.ends(turn.clone(), message, "a", &[]);
    told.captures(Some(&turn), Some(1), 2, &["x"]);
    assert!(unsaved(&told).is_empty());

    // Nothing waits for a Capture for ever: neither later calls nor a drain's end confirm one.
    let (_, second_turn, second) = told.works("b");
    let (turn, message) = told.starts();
    let third = told.call(&turn, ToolClass::Unsafe, ToolState::Started);
    told.result(&turn, &third);
    told.ends(turn, message, "c", &[]);
    told.push(DrainEnded { outcome: DrainOutcome::Completed, error: None });
    assert_eq!(unsaved(&told), [second, third]);
    // A Capture that finds no change confirms the calls too.
    told.captures(Some(&second_turn), Some(2), 2, &[]);
    assert!(unsaved(&told).is_empty());
}

#[test]
fn of_very_many_unsaved_calls_the_newest_are_remembered() {
    let mut told = Told::new();
    told.prompt("one");
    let (turn, _) = told.starts();
    let calls: Vec<CallId> = (0..300)
        .map(|_| {
            let call = told.call(&turn, ToolClass::Unsafe, ToolState::Started);
            told.result(&turn, &call);
            call
        })
        .collect();
    assert_eq!(unsaved(&told), calls[300 - 256..]);
}

#[test]
fn what_another_disk_does_not_have_is_lost_until_the_model_is_told() {
    let mut told = Told::new();
    told.prompt("one");
    let (_, _, call) = told.works("a");
    let (token, lost) = (FencingToken(9), vec![call.clone()]);
    told.push(WorkspaceRestored { token, tree: Some(tree(1)), lost, lost_files: Vec::new() });
    assert!(unsaved(&told).is_empty());
    assert_eq!(told.history.restored(), Some(FencingToken(9)));
    let lost: Vec<_> = told.history.lost().iter().map(|lost| (&lost.call, &*lost.title)).collect();
    assert_eq!(lost, [(&call, "make")]);
    told.notice(NoticeKind::Recovery);
    assert_eq!(told.history.lost().len(), 1);
    told.notice(NoticeKind::FilesLost);
    assert!(told.history.lost().is_empty());
}

#[test]
fn the_calls_of_a_copied_log_changed_another_sessions_files() {
    let mut told = Told::new();
    // The copy: a prompt, and a turn of five events.
    let forked = r#"{"parent":"ses_1","through":9,"copied":6}"#;
    told.push(SessionEvent::read("session.forked", 1, forked).expect("its shape"));
    told.prompt("one");
    told.works("a");
    assert!(told.history.unsaved().is_empty());
    told.works("b");
    assert_eq!(told.history.unsaved().len(), 1);
}

/// A small random generator: the same numbers for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).expect("small")).expect("small")
    }
}

/// Writes a random log, as no session would write it.
fn wild(seed: u64) -> Vec<RecordedEvent> {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut told = Told::new();
    let mut known = Vec::new();
    for step in 0..40 {
        match rng.below(12) {
            0..3 => known.push(told.prompt(&format!("p{step}"))),
            3 | 4 => known.push(told.answer(&format!("a{step}"))),
            5 => {
                let (message, turn, call) = told.works(&format!("w{step}"));
                known.push(message);
                if rng.below(2) == 0 {
                    told.captures(Some(&turn), Some(step), step + 1, &["x"]);
                } else {
                    let (token, lost) = (FencingToken(1), vec![call]);
                    told.push(WorkspaceRestored {
                        token,
                        tree: None,
                        lost,
                        lost_files: Vec::new(),
                    });
                }
            }
            6 => told.update(&format!("u{step}")),
            7 => told.notice(NoticeKind::FilesLost),
            8 => {
                let at = rng.below(told.history.conversation().messages().len() + 1);
                let keep = told.history.conversation().place(at);
                known.push(told.compacts(keep.unwrap_or(Seq(told.history.seq().0 + 1))));
                told.epoch(told.history.last_epoch() + 1);
            }
            9 if rng.below(3) == 0 => told.moves(),
            9 => told.captures(None, None, step, &["y"]),
            _ if known.is_empty() => {}
            _ => {
                let message = known[rng.below(known.len())].clone();
                if told.history.savepoint(&message).is_some() {
                    told.reverts(&message);
                }
            }
        }
    }
    told.log
}

#[test]
fn a_log_folds_the_same_in_pieces_and_with_pieces_that_are_taken_back() {
    let mut reverted = 0;
    for seed in 1..300 {
        let log = wild(seed);
        reverted += log.iter().filter(|event| event.event.kind() == "revert.committed").count();
        let mut whole = History::new();
        whole.extend(&log);
        let mut rng = Rng(seed);
        let mut pieces = History::new();
        let mut at = 0;
        while at < log.len() {
            let ahead = (at + 1 + rng.below(7)).min(log.len());
            let mark = pieces.mark();
            pieces.extend(&log[at..ahead]);
            if rng.below(2) == 0 {
                pieces.back_to(mark);
                let less = (at + 1 + rng.below(3)).min(log.len());
                pieces.extend(&log[at..less]);
                at = less;
            } else {
                at = ahead;
            }
        }
        assert_eq!(format!("{pieces:?}"), format!("{whole:?}"), "seed {seed}");
    }
    assert!(reverted > 100, "only {reverted}");
}

// Finding core-3 M1: a fold held the texts of its whole log.
#[test]
fn a_fold_gives_up_hidden_texts_and_says_when_it_lacks_them() {
    let (mut given_up, mut read_again) = (0, 0);
    for seed in 1..300 {
        let log = wild(seed);
        let (mut whole, mut fold) = (History::new(), History::new());
        for (at, event) in log.iter().enumerate() {
            whole.extend([event]);
            fold.extend([event]);
            if fold.lacks_texts() {
                fold = History::new();
                fold.extend(&log[..=at]);
                read_again += 1;
            }
            fold.give_up_hidden();
            given_up += usize::from(fold.bytes() < whole.bytes());
            let [shown, expected] =
                [&fold, &whole].map(|fold| fold.view().shown(fold.conversation()));
            assert_eq!(shown, expected, "seed {seed}, event {at}");
            assert_eq!(fold.wants_turn(), whole.wants_turn());
            let first = |fold: &History| {
                let at = fold.first_prompt().map(|(_, at)| at)?;
                fold.conversation().messages().get(at).cloned()
            };
            assert_eq!(first(&fold), first(&whole), "a title is made of it");
        }
    }
    assert!(given_up > 1_000 && read_again > 30, "{given_up}, {read_again}");
}

#[test]
fn no_text_is_given_up_while_a_revert_waits() {
    let mut told = Told::new();
    let one = told.prompt("one");
    told.answer("a");
    let keep = Seq(told.history.seq().0 + 1);
    told.compacts(keep);
    told.epoch(2);
    let whole = told.history.bytes();
    told.stages(&one);
    told.history.give_up_hidden();
    assert!(told.history.bytes() >= whole && !told.history.lacks_texts());
    told.push(RevertCleared { error: None });
    told.history.give_up_hidden();
    assert!(told.history.bytes() < whole && !told.history.lacks_texts());
    told.stages(&one);
    assert!(told.history.lacks_texts(), "its commit would show what is gone");
}

// A fold learned of a Revert to a summary that it had given up, and of its end, in one look.
#[test]
fn a_fold_lacks_the_summary_that_a_revert_restored_meanwhile() {
    let mut told = Told::new();
    told.prompt("one");
    told.answer("a");
    told.compacts(Seq(told.history.seq().0 + 1));
    told.epoch(2);
    let two = told.prompt("two");
    told.answer("b");
    told.compacts(Seq(told.history.seq().0 + 1));
    told.epoch(3);
    let mut fold = History::new();
    fold.extend(&told.log);
    fold.give_up_hidden();
    let known = told.log.len();
    told.reverts(&two);
    fold.extend(&told.log[known..]);
    assert!(fold.lacks_texts(), "the summary before `two` is shown again");
    let known = told.log.len();
    told.compacts(Seq(told.history.seq().0 + 1));
    fold.extend(&told.log[known..]);
    assert!(fold.lacks_texts(), "a later summary does not mend what was folded without it");
}
