//! Every command in terminals of 80 and 200 columns: no line is wider, and nothing is cut without a mark.
//!
//! The commands are those of clap's own tree: a new one needs a line in [`CASES`], or a reason in [`ELSEWHERE`].

mod pty;
mod wide;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use clap::CommandFactory;
use opencode_cloud::command_line::Cli;
use serde_json::{Value, json};

use crate::service::{KEY, Service, Step};
use crate::{admitted, created, ended, promoted, turn};
use wide::{MESSAGE, SESSION, TEXTS, TURN};

/// A word of a message, so that a case cannot pass with an error instead.
type Line = (&'static str, &'static str);

/// The commands of people, each with the lines that it is called with, and a word of what it shows.
const CASES: &[(&str, &[Line])] = &[
    ("login", &[("login URL --key-file KEYFILE --name work", "Logged in")]),
    ("logout", &[("login URL --key-file KEYFILE", "Logged in"), ("logout", "still valid there")]),
    (
        "services",
        &[("login URL --key-file KEYFILE --name work", "Logged in"), ("services", "SERVICE")],
    ),
    ("use", &[("login URL --key-file KEYFILE", "Logged in"), ("use URL", "from now on")]),
    (
        "session list",
        &[
            ("session list", "STATE TITLE"),
            ("session list", "UPDATED"),
            ("session list --search x", "UPDATED"),
        ],
    ),
    (
        "session show",
        &[("session show SES", "directory"), ("session show SES --messages", "assistant")],
    ),
    ("session log", &[("session log SES", "retry.scheduled")]),
    ("session open", &[("session open SES --print", "go on")]),
    ("session pull", &[("session pull SES", "has changed nothing")]),
    ("session delete", &[("session delete SES", "is deleted")]),
    ("session rename", &[("session rename SES title", "the title is now")]),
    ("session archive", &[("session archive SES", "archived")]),
    ("session unarchive", &[("session unarchive SES", "listed again")]),
    ("session compact", &[("session compact SES", "it waits in the inbox")]),
    ("session inbox", &[("session inbox SES", "DELIVERY")]),
    ("session cancel", &[("session cancel SES MSG", "no longer waits")]),
    ("session deliver", &[("session deliver SES MSG steer", "is now `steer`")]),
    ("session resume", &[("session resume SES", "it continues")]),
    ("session wait", &[("session wait SES", "still busy")]),
    ("session children", &[("session children SES", "UPDATED")]),
    ("session usage", &[("session usage SES", "tree of 2")]),
    (
        "session context",
        &[
            ("session context SES", "plan"),
            ("session context SES plan {}", "set;"),
            ("session context SES plan --remove", "removed"),
        ],
    ),
    ("session fork", &[("session fork SES", "continues from there")]),
    ("session move", &[("session move SES --carry", "it waits in the inbox")]),
    (
        "session revert",
        &[
            ("session revert SES MSG", "a new prompt makes this final"),
            ("session revert SES --commit", "is final"),
        ],
    ),
    ("session unrevert", &[("session unrevert SES", "is undone")]),
    ("session diff", &[("session diff SES", "2 files"), ("session diff SES --stat", "STATUS")]),
    ("export", &[("export SES --output FILE", "exported")]),
    ("import", &[("import KEYFILE --directory .", "imported")]),
    ("ask list", &[("ask list", "ABOUT")]),
    ("ask reply", &[("ask reply per_1 once", "answered")]),
    ("ask answer", &[("ask answer que_1 yes", "answered")]),
    ("permission list", &[("permission list", "ALLOWS")]),
    ("permission remove", &[("permission remove pms_1", "taken back")]),
    ("project list", &[("project list", "DIRECTORY")]),
    ("project show", &[("project show prj_0123456789abcdefghijklmnop", "directory")]),
    ("provider list", &[("provider list", "SET UP BY")]),
    ("credential list", &[("credential list", "CREDENTIAL")]),
    ("credential add", &[("credential add acme --key-file KEYFILE", "turns use it")]),
    ("credential remove", &[("credential remove crd_1", "forgotten")]),
    ("credential login", &[("credential login acme", "signed in")]),
    (
        "usage",
        &[("usage --by person --compare", "before"), ("usage --of tools --by person", "CALLS")],
    ),
    ("limit list", &[("limit list", "A new month")]),
    ("limit set", &[("limit set 20", "A new month")]),
    ("limit remove", &[("limit remove", "A new month")]),
    ("abort", &[("abort SES", "interrupted")]),
    ("explain", &[("explain TRN", "verdict")]),
    ("rebuild", &[("rebuild --session SES", "differs"), ("rebuild", "--check")]),
    ("check", &[("check", "1 violation")]),
    ("key", &[("key", "oc_")]),
    ("key list", &[("key list", "SCOPES")]),
    ("key create", &[("key create ci", "not shown again")]),
    ("key rotate", &[("key rotate key_1", "not shown again")]),
    ("key revoke", &[("key revoke key_1", "revoked")]),
    ("user list", &[("user list", "E-MAIL")]),
    ("user role", &[("user role usr_1 admin", "disabled")]),
    ("user disable", &[("user disable usr_1", "disabled")]),
    ("user enable", &[("user enable usr_1", "disabled")]),
    ("sso list", &[("sso list", "ISSUER")]),
    (
        "sso add",
        &[("sso add Example --issuer https://x --client-id y --public", "redirect address")],
    ),
    ("sso change", &[("sso change Example --no-groups", "has to be tested")]),
    ("sso test", &[("sso test Example", "Claims:")]),
    ("sso activate", &[("sso activate Example", "is active")]),
    ("sso remove", &[("sso remove Example", "is removed")]),
    ("recovery show", &[("recovery show", "make new ones")]),
    ("recovery create", &[("recovery create", "not shown again")]),
    ("open", &[("open --print", "within an hour"), ("open SES --print", "%2Fsession%2Fses_0")]),
    ("ready", &[("ready URL", "ready"), ("ready http://127.0.0.1:9", "nobody answers")]),
    ("models", &[("models", "CONTEXT"), ("models acme", "there is no provider")]),
    ("secrets init", &[("secrets init --dir FILE --database-url postgres://u@h/d", "secrets")]),
    ("doctor", &[("doctor", "landlock")]),
    ("man", &[("man --dir FILE", "")]),
];

/// The commands that this test does not call, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("run", "the test below: it needs a session's log"),
    ("attach", "it becomes the released client, which draws its own screen"),
    ("llm schema", "JSON for programs"),
    ("llm stream", "JSON for programs"),
    ("llm encode", "JSON for programs"),
    ("completions", "a script"),
    ("up", "a server; journeys read its greeting"),
    ("serve", "a server; journeys read its greeting"),
    ("simulated-model", "a server; one line when it is ready"),
    ("gateway", "a server: log alone"),
    ("worker", "a server: log alone"),
    ("placement serve", "a server: log alone"),
    ("dev-cluster", "a server; journeys read its greeting"),
    ("migrate", "a sentence about a cluster's database"),
    ("feature-level", "a sentence about a cluster's database"),
    ("owner-link", "an address and a sentence, from a cluster's database"),
    ("credentials rewrap", "sentences about a cluster's database"),
    ("credentials reset-key", "sentences about a cluster's database"),
    ("placement init", "a sentence about a cluster"),
    ("placement status", "JSON for programs"),
    ("placement add", "a sentence about a cluster"),
    ("placement remove", "a sentence about a cluster"),
    ("placement raise-generation", "a sentence about a cluster"),
    ("placement drain", "a sentence about a cluster"),
    ("placement undrain", "a sentence about a cluster"),
];

/// Every command that does something, by its words.
fn commands() -> BTreeMap<String, clap::Command> {
    fn walk(command: &clap::Command, path: &str, all: &mut BTreeMap<String, clap::Command>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
            if !below.is_subcommand_required_set() {
                all.insert(path.clone(), below.clone());
            }
            walk(below, &path, all);
        }
    }
    let mut root = Cli::command();
    root.build();
    let mut all = BTreeMap::new();
    walk(&root, "", &mut all);
    all
}

#[test]
fn each_command_has_a_case_or_a_reason() {
    let known: Vec<&str> = CASES
        .iter()
        .map(|(name, _)| *name)
        .chain(ELSEWHERE.iter().map(|(name, _)| *name))
        .collect();
    let once: BTreeSet<String> = known.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(once.len(), known.len(), "a command is there twice");
    assert_eq!(commands().into_keys().collect::<BTreeSet<_>>(), once);
}

fn command(words: &[String], home: &Path, url: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opencode-cloud"));
    command.args(words).current_dir(home).env_clear();
    command.env("HOME", home).env("TERM", "xterm").env("PAGER", "cat").env("TZ", "UTC");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if let Some(url) = url {
        command.env("OPENCODE_CLOUD_URL", url).env("OPENCODE_CLOUD_KEY", KEY);
    }
    command
}

/// Returns the lines that are too wide and the texts that were cut without a mark.
fn faults(shown: &str, columns: u16) -> Vec<String> {
    let is_wide = |line: &&str| line.chars().count() > usize::from(columns) && !is_pasted(line);
    let wide = shown.lines().filter(is_wide).map(|line| format!("too wide: {line}"));
    let text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = TEXTS.iter().flat_map(|whole| {
        let start: String = whole.chars().take(12).collect();
        let places = text.match_indices(&start).map(|(at, _)| &text[at..]).collect::<Vec<_>>();
        places.into_iter().filter(|shown| is_cut(shown, whole)).map(|shown| {
            format!("cut without a mark: {}", shown.chars().take(140).collect::<String>())
        })
    });
    wide.chain(cut).collect()
}

/// Ids, addresses, paths, code and commands of ours are pasted, so they stay whole, after a label too.
fn is_pasted(line: &str) -> bool {
    let line = line.trim();
    let shown = line.split_once("  ").map_or(line, |(_, rest)| rest.trim_start());
    let is_code = shown.starts_with('`') && shown.trim_end_matches(['.', ',', ';']).ends_with('`');
    let first = shown.split(' ').next().and_then(|word| word.rsplit('/').next());
    !shown.contains(' ') || is_code || first == Some("opencode-cloud")
}

/// Returns whether a text goes on otherwise than `whole` does, without a mark.
fn is_cut(shown: &str, whole: &str) -> bool {
    let same = shown.chars().zip(whole.chars()).take_while(|(one, other)| one == other).count();
    let rest: String = shown.chars().skip(same).take(4).collect();
    let rest = rest.trim_start();
    same < whole.chars().count() && !rest.starts_with('…') && !rest.starts_with("..")
}

#[test]
fn wide_lines_and_silent_cuts_are_found() {
    let title = TEXTS[0];
    let cut = |end: &str| format!("{}{end} x", title.chars().take(20).collect::<String>());
    assert_eq!(faults(&format!("a {}…\n  b", &title[..70]), 80), [] as [String; 0]);
    assert_eq!(faults(&cut("..."), 80), [] as [String; 0]);
    assert_eq!(faults(&cut(""), 80).len(), 1);
    assert_eq!(faults(&"word ".repeat(17), 80).len(), 1);
    assert_eq!(faults(&"w".repeat(90), 80), [] as [String; 0], "a word is pasted");
    let wrapped = title.replacen(" of ", "\n    of ", 1);
    assert_eq!(faults(&wrapped, 200), [] as [String; 0], "a text may go on below");
}

#[test]
fn commands_fit_terminals_of_80_and_200_columns() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let url = runtime.block_on(wide::start());
    let left = Mutex::new(CASES.iter());
    let faulty = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, lines)) = next(&left) {
                    for columns in [80, 200] {
                        let found = faults_of(lines, &url, columns);
                        let found =
                            found.into_iter().map(|it| format!("{name} at {columns}: {it}"));
                        faulty.lock().expect("kept").extend(found);
                    }
                }
            });
        }
    });
    let mut faulty = faulty.into_inner().expect("kept");
    faulty.sort();
    assert!(faulty.is_empty(), "{}", faulty.join("\n"));
}

fn next<'c, T>(left: &Mutex<std::slice::Iter<'c, T>>) -> Option<&'c T> {
    left.lock().expect("no thread panics").next()
}

/// Calls the lines of a case in a home of their own.
fn faults_of(lines: &[Line], url: &str, columns: u16) -> Vec<String> {
    let home = tempfile::tempdir().expect("a folder");
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(home.path()).status();
    assert!(git.expect("git").success());
    fs::write(home.path().join("key"), KEY).expect("a file");
    let mut found = Vec::new();
    for (line, word) in lines {
        let fill = |text: &str| match text {
            "URL" => url.to_owned(),
            "SES" => SESSION.to_owned(),
            "MSG" => MESSAGE.to_owned(),
            "TRN" => TURN.to_owned(),
            "KEYFILE" => "key".to_owned(),
            "FILE" => "made".to_owned(),
            other => other.to_owned(),
        };
        let words: Vec<String> = line.split(' ').map(fill).collect();
        let knows = ["login", "logout", "services", "use"].contains(&words[0].as_str());
        let shown = pty::shown(command(&words, home.path(), (!knows).then_some(url)), columns);
        let text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.contains(word) {
            found.push(format!("`{line}` does not say `{word}`: {shown}"));
        }
        found.extend(faults(&shown, columns));
    }
    found
}

#[test]
fn a_run_fits_terminals_of_80_and_200_columns() {
    let (asked, sentence) = (TEXTS[3], TEXTS[4]);
    let steps = || {
        let arguments = json!({ "command": asked }).to_string();
        let intent = json!({ "call": "call_1", "part": "prt_9", "provider_call": "c", "tool": "shell", "arguments": arguments });
        let called = json!({ "turn": "trn_1", "message": "msg_a", "intent": intent, "class": "unsafe", "state": "started" });
        let settled = json!({ "turn": "trn_1", "call": "call_1", "outcome": "failed", "output": sentence, "title": asked,
            "truncated": false, "started": 1, "ended": 5_000 });
        let error = json!({ "code": "provider.internal", "message": sentence });
        let retry = json!({ "turn": "trn_1", "ordinal": 2, "at": 9, "error": error });
        vec![
            created(),
            Step::Prompt,
            admitted(2),
            promoted(3),
            turn(4, "trn_1"),
            Step::Event(5, "retry.scheduled", retry),
            Step::Event(6, "tool.called", called),
            Step::Event(7, "tool.settled", settled),
            ended(8, "completed"),
        ]
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for columns in [50, 80, 200] {
        let service = runtime.block_on(Service::start(vec![steps()]));
        let home = tempfile::tempdir().expect("a folder");
        let words = ["run", "hello", "--session", "ses_1"].map(str::to_owned);
        let shown = pty::shown(command(&words, home.path(), Some(&service.url)), columns);
        for word in ["attempt 2 in", "✗ shell cargo", "continue:"] {
            assert!(shown.contains(word), "{columns}: {shown}");
        }
        assert_eq!(faults(&shown, columns), [] as [String; 0], "{shown}");
    }
}

// Finding trial-3 19: in a terminal an edit was a line without its diff, and an answer was raw markdown.
#[test]
fn a_terminal_shows_diffs_outputs_and_markdown() {
    let call = |number: u32, tool: &str, arguments: Value| {
        json!({ "turn": "trn_1", "message": "msg_a", "class": "unsafe", "state": "started", "intent": {
            "call": format!("call_{number}"), "part": format!("prt_{number}9"), "provider_call": "c", "tool": tool,
            "arguments": arguments.to_string() } })
    };
    let result = |number: u32, output: &str, structured: Value| {
        json!({ "turn": "trn_1", "call": format!("call_{number}"), "outcome": "completed", "output": output, "title": "t",
            "structured": structured.to_string(), "truncated": false, "started": 1, "ended": 2 })
    };
    let diff =
        json!({ "path": "a.rs", "replacements": 1, "diff": "@@ -1 +1 @@\n-old line\n+new line\n" });
    let text = "# Done\n\nIt is **mended**.\n\n| name | what |\n| --- | --- |\n| a | b |\n";
    let parts = json!([{ "type": "text", "id": "prt_1", "text": text }]);
    let replied = json!({ "turn": "trn_1", "message": "msg_a", "parts": parts, "finish": "stop" });
    let steps = vec![
        created(),
        Step::Prompt,
        admitted(2),
        promoted(3),
        turn(4, "trn_1"),
        Step::Event(5, "tool.called", call(1, "edit", json!({ "path": "a.rs" }))),
        Step::Event(6, "tool.settled", result(1, "Edited", diff)),
        Step::Event(7, "tool.called", call(2, "shell", json!({ "command": "make" }))),
        Step::Event(
            8,
            "tool.settled",
            result(2, "all built\n(exit code 0)", json!({ "exit_code": 0 })),
        ),
        Step::Event(9, "turn.replied", replied),
        ended(10, "completed"),
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let service = runtime.block_on(Service::start(vec![steps]));
    let home = tempfile::tempdir().expect("a folder");
    let words = ["run", "hello", "--session", "ses_1"].map(str::to_owned);
    let shown = pty::shown(command(&words, home.path(), Some(&service.url)), 80);
    let expected = "✓ edit a.rs (1 replacement)\n  @@ -1 +1 @@\n  -old line\n  +new line\n✓ shell make\n  all built\nDone\n\n\
                    It is mended.\n\nname  what\n────  ────\na     b\ncontinue:";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    for (name, command) in commands() {
        let mut command = command.term_width(80);
        let help = command.render_long_help().to_string();
        // Clap leaves the line of the usage whole, and what has no space cannot be broken.
        let is_whole = |line: &&str| line.starts_with("Usage: ") || !line.trim().contains(' ');
        let wide: Vec<&str> =
            help.lines().filter(|line| line.chars().count() > 80 && !is_whole(line)).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
    }
}
