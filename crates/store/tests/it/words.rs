//! The words that SQL functions write and compare are those of the enums that Rust decides on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use domain::{
    AskStatus, Delivery, DrainEnd, Finish, InputKind, InputStatus, MessageRole, PartKind,
    SessionEvent, SideOutcome, ToolState, TurnKind, TurnOutcome, TurnStatus, WakeScope, Word,
};
use store::{BlobUse, UsageKey, UsageOf, UsageStep, UsageTable};

/// Answers of functions to the store, each of which reads them in one place and refuses others.
const ANSWERS: [&str; 35] = [
    "applied",
    "busy",
    "changed",
    "committed",
    "conflict",
    "created",
    "crowded",
    "deep",
    "exists",
    "fenced",
    "full",
    "gone",
    "idle",
    "missing",
    "moved",
    "none",
    "nowhere",
    "orphan",
    "pending",
    "raced",
    "ready",
    "removed",
    "retry",
    "running",
    "same",
    "seeded",
    "set",
    "stale",
    "staged",
    "superseded",
    "used",
    "woken",
    "written",
    "failed",
    "waits",
];

/// Tables, settings, and members of JSON.
const NAMES: [&str; 53] = [
    "answer",
    "ask",
    "attempt",
    "back",
    "baseline",
    "bounded_text",
    "by",
    "call",
    "context_epoch",
    "delivery",
    "enable_nestloop",
    "files",
    "from",
    "hex",
    "hour",
    "id",
    "left_location",
    "list",
    "managed",
    "message",
    "metadata",
    "mid_conversation_system_message",
    "model",
    "oc.org",
    "off",
    "on",
    "payload",
    "provider",
    "provider_attempt",
    "provider_turn",
    "prt",
    "question",
    "rendered",
    "session",
    "session_change_",
    "session_component",
    "session_entry",
    "session_event",
    "session_incarnation",
    "session_input",
    "string",
    "target",
    "time",
    "tool_result",
    "u.starts_ms",
    "usage_daily",
    "usage_gone",
    "usage_hourly",
    "usage_model",
    "usage_person",
    "usage_project",
    "value",
    "workspace_change",
];

/// More of them, which are words elsewhere or stand alone, and the tag of an interrupt.
const MEMBERS: [&str; 8] =
    ["parked", "part", "retried", "tool-call", "tool-output", "type", "wake", "x"];

fn all<W: Word>() -> impl Iterator<Item = &'static str> {
    W::ALL.iter().map(|word| word.as_str())
}

/// Every text in quotes, without comments and without the keys by which JSON is read.
fn literals(sql: &str) -> Vec<String> {
    let code: Vec<&str> =
        sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code)).collect();
    let code = code.join("\n");
    let pieces: Vec<&str> = code.split('\'').collect();
    let quoted = pieces.windows(2).step_by(2).filter_map(|pair| {
        let [before, text] = pair else { return None };
        let before = before.trim_end();
        let is_key = [">", "?", "?|"].iter().any(|end| before.ends_with(end))
            && !before.ends_with("<>")
            && !before.ends_with(" >");
        (!is_key).then(|| (*text).to_owned())
    });
    quoted.collect()
}

#[test]
fn the_words_of_sql_functions_are_those_of_rust() {
    let ours: BTreeSet<&str> = all::<AskStatus>()
        .chain(all::<Delivery>())
        .chain(all::<DrainEnd>())
        .chain(all::<Finish>())
        .chain(all::<InputKind>())
        .chain(all::<InputStatus>())
        .chain(all::<MessageRole>())
        .chain(all::<PartKind>())
        .chain(all::<SideOutcome>())
        .chain(all::<ToolState>())
        .chain(all::<TurnKind>())
        .chain(all::<TurnOutcome>())
        .chain(all::<TurnStatus>())
        .chain(all::<WakeScope>())
        .chain(all::<UsageKey>())
        .chain(all::<UsageOf>())
        .chain(all::<UsageStep>())
        .chain(UsageTable::WORK_SUMS.iter().copied())
        .chain(BlobUse::ALL.map(BlobUse::kind))
        .chain(SessionEvent::KINDS.iter().copied())
        .collect();
    let others: BTreeSet<&str> = ANSWERS.into_iter().chain(NAMES).chain(MEMBERS).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let (mut unknown, mut met) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(folder).expect("the functions") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        for word in literals(&fs::read_to_string(&path).expect("a file")) {
            let is_word = word.len() > 1
                && word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '.' | '-' | '_'));
            if is_word && !ours.contains(&*word) && !others.contains(&*word) {
                unknown.push(format!("{name}: '{word}'"));
            }
            met.insert(word);
        }
    }
    assert!(unknown.is_empty(), "no enum has {unknown:?}; a function's answer goes into ANSWERS");
    let roles: Vec<_> = all::<MessageRole>().filter(|role| !met.contains(*role)).collect();
    assert_eq!(roles, Vec::<&str>::new(), "the projector writes every role");
}

#[test]
fn a_word_that_no_enum_has_is_seen() {
    let sql = "SELECT p->>'state', p #>> '{a,b}' WHERE m.role = 'asistant' -- 'not this'\n AND i.kind IN ('prompt', 'x')";
    assert_eq!(literals(sql), ["asistant", "prompt", "x"]);
}
