//! Sessions and events for tests, and the tests of the fold.

use domain::{
    DrainEnded, DrainOutcome, Finish, ModelRef, OrgId, PromptPromoted, RecordedEvent, ReplyPart,
    RetryScheduled, Seq, SessionError, SessionEvent, SessionForked, SessionRef, TextCheckpointed,
    ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled, ToolState, TurnOutcome,
    TurnReplied, TurnSettled, TurnStarted, TurnUsage,
};
use signals::{Delta, DeltaKind};
use store::{MessageRow, SessionRow};

use super::{Change, Conversation, SessionState, Status};

fn id<T: std::str::FromStr<Err = domain::IdError>>(text: &str) -> T {
    text.parse().expect("an id")
}

pub(crate) fn recorded(seq: i64, event: impl Into<SessionEvent>) -> RecordedEvent {
    RecordedEvent {
        seq: Seq(seq),
        id: id("evt_a"),
        time: seq * 10,
        claim: None,
        event: event.into(),
    }
}

fn promoted() -> PromptPromoted {
    PromptPromoted {
        message: id("msg_u"),
        parts: Vec::new(),
        agent: "plan".into(),
        model: ModelRef::new("p", "m"),
        admitted: 5,
        synthetic: None,
    }
}

pub(crate) fn turn() -> TurnStarted {
    TurnStarted {
        turn: id("trn_1"),
        message: id("msg_1"),
        parent: id("msg_u"),
        agent: "plan".into(),
        model: ModelRef::new("p", "m"),
        epoch: 1,
        step: 1,
        notice: None,
    }
}

pub(crate) fn called(call: &str, part: &str) -> ToolCalled {
    let intent = ToolIntent {
        call: id(call),
        part: id(part),
        provider_call: "c".into(),
        tool: "read".into(),
        arguments: "{}".into(),
        metadata: None,
    };
    let (turn, message) = (id("trn_1"), id("msg_1"));
    ToolCalled { turn, message, intent, class: ToolClass::Pure, state: ToolState::Started }
}

pub(crate) fn call_settled(call: &str) -> SessionEvent {
    ToolSettled {
        turn: id("trn_1"),
        call: id(call),
        outcome: ToolOutcomeKind::Completed,
        output: "done".into(),
        title: "t".into(),
        structured: None,
        managed_path: None,
        truncated: false,
        started: 1,
        ended: 2,
    }
    .into()
}

fn checkpoint(part: &str, offset: i64, text: &str) -> TextCheckpointed {
    TextCheckpointed { turn: id("trn_1"), part: id(part), offset, text: text.into() }
}

fn replied(parts: Vec<ReplyPart>) -> TurnReplied {
    TurnReplied { turn: id("trn_1"), message: id("msg_1"), parts, finish: Finish::Stop.into() }
}

pub(crate) fn settled(outcome: TurnOutcome, error: Option<SessionError>) -> TurnSettled {
    let usage = TurnUsage { input: 7, ..TurnUsage::default() };
    TurnSettled { turn: id("trn_1"), message: id("msg_1"), outcome, usage, error }
}

fn error() -> SessionError {
    SessionError { code: "provider.quota".to_owned().into(), message: "no money".into() }
}

fn ended(outcome: DrainOutcome, error: Option<SessionError>) -> DrainEnded {
    DrainEnded { outcome, error }
}

/// A session whose row has all events up to `seq`.
pub(crate) fn state(seq: i64) -> SessionState {
    let at = SessionRef { org: OrgId::FIRST, location: id("loc_1"), session: id("ses_1") };
    let row = SessionRow {
        at,
        project: id("prj_1"),
        directory: "/d".into(),
        title: "t".into(),
        agent: "build".into(),
        model: None,
        created_ms: 0,
        updated_ms: 0,
        outcome: None,
        parent: None,
        fork_of: None,
        revert: None,
        compacting_ms: None,
        notices: Vec::new(),
        archived_ms: None,
        metadata: None,
        usage: TurnUsage::default(),
        busy: false,
        seq: Seq(seq),
    };
    SessionState::resume(row, Vec::new())
}

fn statuses(changes: &[Change]) -> Vec<&Status> {
    changes
        .iter()
        .filter_map(|change| if let Change::Status(status) = change { Some(status) } else { None })
        .collect()
}

fn parts(row: &MessageRow) -> Vec<(&str, Option<&str>)> {
    row.parts.iter().map(|part| (part.id.as_str(), part.text.as_deref())).collect()
}

#[test]
fn a_reply_puts_parts_in_its_order() {
    let mut conversation = Conversation::default();
    let first = [
        recorded(1, turn()),
        recorded(2, checkpoint("prt_c", 0, "so ")),
        recorded(3, called("call_a", "prt_a")),
        recorded(4, called("call_b", "prt_b")),
        recorded(5, checkpoint("prt_c", 3, "far")),
    ];
    for event in &first {
        conversation.apply(event);
    }
    let begun = conversation.newest().expect("a message").clone();
    assert_eq!(parts(&begun), [("prt_c", Some("so far")), ("prt_a", None), ("prt_b", None)]);
    let reply = vec![
        ReplyPart::ToolCall { call: id("call_b") },
        ReplyPart::text(id("prt_c"), "so far so good"),
        ReplyPart::reasoning(id("prt_d"), "hm"),
    ];
    let changes = conversation.apply(&recorded(6, replied(reply)));
    let row = conversation.newest().expect("a message").clone();
    assert_eq!(
        parts(&row),
        [
            ("prt_b", None),
            ("prt_c", Some("so far so good")),
            ("prt_d", Some("hm")),
            ("prt_a", None)
        ]
    );
    assert_eq!(row.finish.as_deref(), Some("stop"));
    assert_eq!(changes, [Change::Parts(row, vec![id("prt_c"), id("prt_d")])]);
    assert_eq!(begun.finish, None, "an earlier change keeps the message as it was");
}

#[test]
fn text_that_a_row_has_is_not_added_again() {
    let mut conversation = Conversation::default();
    conversation.apply(&recorded(1, turn()));
    conversation.apply(&recorded(2, checkpoint("prt_c", 0, "so far")));
    let row = conversation.newest().expect("a message").clone();
    let mut resumed = Conversation::resume(vec![(*row).clone()]);
    resumed.apply(&recorded(2, checkpoint("prt_c", 0, "so far")));
    assert_eq!(resumed.newest(), Some(&row));
    resumed.apply(&recorded(3, checkpoint("prt_c", 6, ", so good")));
    let row = resumed.newest().expect("a message");
    assert_eq!(parts(row), [("prt_c", Some("so far, so good"))]);
}

#[test]
fn a_lost_turn_leaves_no_message() {
    let mut conversation = Conversation::default();
    conversation.apply(&recorded(1, turn()));
    let changes = conversation.apply(&recorded(2, settled(TurnOutcome::Lost, None)));
    assert_eq!(changes, [Change::Removed(id("msg_1"))]);
    assert_eq!(conversation.newest(), None);
}

#[test]
fn live_text_names_its_part_once_and_ends_with_the_turn() {
    let delta = Delta {
        message: id("msg_1"),
        part: id("prt_c"),
        kind: DeltaKind::Text,
        offset: 0,
        text: "x".into(),
    };
    let mut state = state(0);
    assert_eq!(state.hear(&delta), [], "its turn is not known");
    state.apply(&recorded(1, turn()));
    let is_first = |changes: &[Change]| match changes {
        [Change::Text(text)] => text.is_first,
        other => panic!("{other:?}"),
    };
    assert!(is_first(&state.hear(&delta)));
    assert!(!is_first(&state.hear(&delta)));
    state.apply(&recorded(2, settled(TurnOutcome::Completed, None)));
    assert_eq!(state.hear(&delta), []);
}

#[test]
fn clients_learn_each_status_once() {
    let mut state = state(0);
    let retry = RetryScheduled { turn: id("trn_1"), ordinal: 2, at: 99, error: error() };
    let waits = Status::Retry { attempt: 1, message: "no money".into(), next: 99 };
    assert_eq!(statuses(&state.apply(&recorded(1, promoted()))), [&Status::Busy]);
    assert_eq!(statuses(&state.apply(&recorded(2, turn()))), [&Status::Idle; 0]);
    assert_eq!(statuses(&state.apply(&recorded(3, retry))), [&waits]);
    let call = state.apply(&recorded(4, called("call_a", "prt_a")));
    assert_eq!(statuses(&call), [&Status::Busy]);
    assert_eq!(statuses(&state.apply(&recorded(5, replied(Vec::new())))), [&Status::Idle; 0]);
    assert!(state.session().busy);
    let end = state.apply(&recorded(6, ended(DrainOutcome::Completed, None)));
    assert_eq!(statuses(&end), [&Status::Idle]);
    assert!(!state.session().busy);
}

#[test]
fn a_failure_is_named_once() {
    let fails = |turn: Option<SessionError>| {
        let mut state = state(0);
        state.apply(&recorded(1, self::turn()));
        state.apply(&recorded(2, settled(TurnOutcome::Failed, turn)));
        state.apply(&recorded(3, ended(DrainOutcome::Failed, Some(error()))))
    };
    assert!(fails(None).contains(&Change::Failed(error())));
    assert!(!fails(Some(error())).contains(&Change::Failed(error())), "its message names it");
}

#[test]
fn usage_that_a_row_has_is_not_counted_again() {
    let used = |seq| {
        let mut state = state(seq);
        state.apply(&recorded(1, turn()));
        state.apply(&recorded(2, settled(TurnOutcome::Completed, None)));
        state.session().usage.input
    };
    assert_eq!((used(1), used(2)), (7, 0));
}

#[test]
fn a_copied_log_runs_nothing() {
    let mut state = state(0);
    let forked = SessionForked {
        parent: id("ses_2"),
        through: Seq(9),
        before: None,
        copied: 2,
        files: None,
    };
    state.apply(&recorded(1, forked));
    assert_eq!(statuses(&state.apply(&recorded(2, promoted()))), [&Status::Idle; 0]);
    assert_eq!(statuses(&state.apply(&recorded(3, turn()))), [&Status::Idle; 0]);
    assert!(!state.session().busy);
    assert_eq!(statuses(&state.apply(&recorded(4, turn()))), [&Status::Busy]);
}
