//! The seven tools on a real directory. Long because all tools share one place and most tests use several.

#[path = "tools/any_bytes.rs"]
mod any_bytes;
#[path = "tools/bash.rs"]
mod bash;
#[path = "tools/forms.rs"]
mod forms;
#[path = "tools/guarded.rs"]
mod guarded;
#[path = "tools/patch.rs"]
mod patch;
#[path = "tools/web.rs"]
mod web;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blobs::{BlobError, Blobs};
use domain::{Permitted, ToolClass, ToolOutcomeKind};
use rustix::fs::CWD;
use sandbox::{Cell, Environment, LocationLock, ProcessSandbox, lock};
use serde_json::{Value, json};
use snapshots::Touched;
use tokio_util::sync::CancellationToken;
use tools::{
    Limits, ManagedOutputs, OrgOutputs, Probe, ReadRules, Settlement, SkillScope, TaskList,
    ToolCall, ToolContext, ToolSet, Unlisted, settle,
};

struct Place {
    folder: tempfile::TempDir,
    registry: ToolSet,
    context: ToolContext,
    blobs: Blobs,
}

fn sandbox() -> Arc<ProcessSandbox> {
    Arc::new(ProcessSandbox::new(
        env!("CARGO_BIN_EXE_tools-testbed").into(),
        Vec::<String>::new(),
        Environment::from_vars(std::env::vars_os()),
        std::env::temp_dir(),
    ))
}

impl Place {
    fn new() -> Self {
        Self::of(ToolSet::standard(sandbox()))
    }

    /// A place whose tools may reach `allowed` besides the internet.
    fn with_web(allowed: &[&str]) -> Self {
        let allowed = allowed.iter().map(|host| host.parse().expect("a host")).collect();
        Self::with_rules(egress::Rules { allowed, ..egress::Rules::default() })
    }

    fn with_rules(rules: egress::Rules) -> Self {
        let egress = egress::Egress::new(&rules.into()).expect("an egress");
        Self::of(ToolSet::with_web(sandbox(), &egress))
    }

    fn of(registry: ToolSet) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let blobs = Blobs::in_folder(&folder.path().join("blobs")).expect("a folder for blobs");
        let context = ToolContext {
            root,
            shown_root: "/workspace".into(),
            cancel: CancellationToken::new(),
            outputs: Arc::new(OrgOutputs { blobs: blobs.clone(), org: "org".into() }),
            tasks: None,
            lock: None,
            cell: Cell::default(),
            limits: Limits::default(),
            skills: Some(SkillScope { permitted: Permitted::All, in_project: false }),
            reads: ReadRules::default(),
            live: sandbox::LiveOutput::default(),
        };
        Self { registry, context, folder, blobs }
    }

    fn root(&self) -> &Path {
        &self.context.root
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, content).expect("a file");
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).expect("a file")
    }

    async fn settled(&self, name: &str, arguments: Value) -> Settlement {
        let outcome = self.registry.run(&call(name, &arguments), &self.context).await;
        settle(outcome, self.context.limits, &self.blobs, "org", "tool_1").await
    }

    async fn ok(&self, name: &str, arguments: Value) -> String {
        let settled = self.settled(name, arguments).await;
        assert_eq!(settled.kind, ToolOutcomeKind::Completed, "{}", settled.output);
        settled.output
    }

    async fn fails(&self, name: &str, arguments: Value) -> String {
        let settled = self.settled(name, arguments).await;
        assert_eq!(settled.kind, ToolOutcomeKind::Failed, "{}", settled.output);
        settled.output
    }
}

fn call(name: &str, arguments: &Value) -> ToolCall {
    ToolCall { id: "prt_1".into(), name: name.into(), arguments: arguments.to_string() }
}

#[test]
fn definitions_are_in_a_stable_order_and_classes_are_known() {
    let place = Place::new();
    let classes: BTreeMap<_, _> = place
        .registry
        .definitions()
        .map(|tool| (tool.name.as_str(), place.registry.class(&tool.name)))
        .collect();
    let names: Vec<_> = place.registry.definitions().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["edit", "glob", "grep", "read", "shell", "skill", "write"]);
    let expected = [
        ("edit", ToolClass::Probe),
        ("glob", ToolClass::Pure),
        ("grep", ToolClass::Pure),
        ("read", ToolClass::Pure),
        ("shell", ToolClass::Unsafe),
        ("skill", ToolClass::Pure),
        ("write", ToolClass::Probe),
    ];
    assert_eq!(classes, BTreeMap::from(expected));
    assert!(place.registry.definitions().eq(Place::new().registry.definitions()));
}

#[tokio::test]
async fn a_bad_call_is_told_to_the_model() {
    let place = Place::new();
    let unknown = place.fails("frobnicate", json!({})).await;
    assert!(
        unknown.contains("the tools are edit, glob, grep, read, shell, skill, write"),
        "{unknown}"
    );
    for name in ["read", "write", "edit", "glob", "grep", "shell", "skill"] {
        for arguments in ["{", "[]", "{}", "null", "{\"path\":1,\"pattern\":1,\"command\":1}"] {
            let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
            let outcome = place.registry.run(&call, &place.context).await;
            assert_eq!(outcome.kind, ToolOutcomeKind::Failed, "{name} {arguments}");
        }
    }
    assert!(place.fails("grep", json!({"pattern": "("})).await.contains("regular expression"));
    assert!(place.fails("glob", json!({"pattern": "\\"})).await.contains("valid pattern"));
}

// Check heldout-3: "Created runw.txt (20 bytes, 1 lines)".
#[tokio::test]
async fn one_thing_is_told_as_one() {
    let place = Place::new();
    let write = async |content: &str| {
        let arguments = json!({"path": "a.txt", "content": content});
        let text = place.ok("write", arguments).await;
        text.split_once(" (").map(|(_, count)| count.to_owned())
    };
    for (content, count) in
        [("", "0 bytes, 0 lines)"), ("x", "1 byte, 1 line)"), ("a\nb\n", "4 bytes, 2 lines)")]
    {
        assert_eq!(write(content).await.as_deref(), Some(count));
    }
    write("x\n").await;
    let all = place.ok("read", json!({"path": "a.txt"})).await;
    assert!(all.ends_with("(end: 1 line in all)"), "{all}");
    let past = place.fails("read", json!({"path": "a.txt", "offset": 9})).await;
    assert!(past.contains("has only 1 line: no line 9"), "{past}");
    let names = place.ok("read", json!({"path": "."})).await;
    assert!(names.ends_with("(end: 1 entry in all)"), "{names}");
    let found = place.ok("grep", json!({"pattern": "x"})).await;
    assert!(found.ends_with("(1 line)"), "{found}");
}

#[tokio::test]
async fn read_numbers_lines_and_goes_on() {
    let place = Place::new();
    place.file("src/a.txt", "one\ntwo\nthree\n");
    let all = place.ok("read", json!({"path": "src/a.txt"})).await;
    assert_eq!(all, "1: one\n2: two\n3: three\n(end: 3 lines in all)");
    let real = place.root().join("src/a.txt").display().to_string();
    for path in ["/workspace/src/a.txt", "./src/../src/a.txt", &real] {
        let part = place.ok("read", json!({"filePath": path, "offset": 2, "limit": 1})).await;
        assert_eq!(part, "2: two\n(lines follow; go on with offset=3)");
    }
    assert!(
        place.fails("read", json!({"path": "src/a.txt", "offset": 9})).await.contains("only 3")
    );
    place.file(
        "big",
        &"x".repeat(99).lines().map(|l| format!("{l}\n")).cycle().take(3_000).collect::<String>(),
    );
    let page = place.settled("read", json!({"path": "big", "limit": 9_999})).await;
    assert!(
        !page.truncated
            && page.output.len() <= 51_200
            && page.output.contains("go on with offset=")
    );
}

#[tokio::test]
async fn read_lists_directories_refuses_binaries_and_suggests() {
    let place = Place::new();
    place.file("b/inner.txt", "");
    place.file("main.rs", "");
    fs::write(place.root().join("image"), [0, 1, 2]).unwrap();
    assert_eq!(
        place.ok("read", json!({"path": "."})).await,
        "b/\nimage\nmain.rs\n(end: 3 entries in all)"
    );
    assert!(place.fails("read", json!({"path": "image"})).await.contains("binary"));
    let hint = place.fails("read", json!({"path": "mian.rs"})).await;
    assert_eq!(hint, "mian.rs does not exist. Did you mean main.rs?");
    let hint = place.fails("read", json!({"path": "b/innr.txt"})).await;
    assert_eq!(hint, "b/innr.txt does not exist. Did you mean b/inner.txt?");
    rustix::fs::mkfifoat(CWD, place.root().join("pipe"), 0o600.into()).unwrap();
    assert!(place.fails("read", json!({"path": "pipe"})).await.contains("neither a file"));
}

#[tokio::test]
async fn nothing_outside_the_location_is_reached() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s3cret\n").unwrap();
    fs::create_dir(place.root().join("sub")).unwrap();
    symlink("../outside", place.root().join("up")).unwrap();
    symlink(&outside, place.root().join("abs")).unwrap();
    symlink("../../outside/secret", place.root().join("sub/file")).unwrap();
    symlink("../up", place.root().join("sub/chain")).unwrap();
    symlink("/proc/self/root", place.root().join("magic")).unwrap();
    symlink("../outside/made", place.root().join("dangling")).unwrap();
    let secret = outside.join("secret").display().to_string();
    let similar = format!("{}x/secret", place.root().display());
    let escapes = [
        "../outside/secret",
        "up/secret",
        "abs/secret",
        "sub/file",
        "sub/chain/secret",
        "magic/etc/passwd",
        "/etc/passwd",
        "/workspace/../outside/secret",
        "/workspacex/a",
        "sub/../../outside/secret",
        &secret,
        &similar,
    ];
    for path in escapes {
        for (name, arguments) in [
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "content": "changed"})),
            ("edit", json!({"path": path, "old": "s3cret", "new": "changed"})),
            ("grep", json!({"path": path, "pattern": "s3cret"})),
            ("glob", json!({"path": path, "pattern": "*"})),
        ] {
            let message = place.fails(name, arguments).await;
            let denied = message.contains("denied") && message.contains("outside /workspace");
            assert!(denied, "{name} {path}: {message}");
        }
    }
    assert!(place.ok("grep", json!({"pattern": "s3cret"})).await.contains("no line matches"));
    assert!(!place.ok("glob", json!({"pattern": "secret"})).await.contains("secret\n"));
    place.fails("write", json!({"path": "up/new", "content": "x"})).await;
    place.fails("write", json!({"path": "../new", "content": "x"})).await;
    place.fails("write", json!({"path": "dangling", "content": "x"})).await;
    let untouched: Vec<_> =
        fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((untouched.len(), fs::read_to_string(&secret).unwrap().as_str()), (1, "s3cret\n"));
}

#[tokio::test]
async fn write_makes_directories_keeps_modes_and_follows_inner_symlinks() {
    let place = Place::new();
    place.ok("write", json!({"path": "/workspace/a/b/c.txt", "content": "new"})).await;
    assert_eq!(place.content("a/b/c.txt"), "new");
    place.file("run.sh", "old");
    let script = place.root().join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o751)).unwrap();
    symlink("run.sh", place.root().join("link")).unwrap();
    place.ok("write", json!({"path": "link", "content": "#!/bin/sh\n"})).await;
    assert_eq!(place.content("run.sh"), "#!/bin/sh\n");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(fs::symlink_metadata(place.root().join("link")).unwrap().is_symlink());
    fs::create_dir(place.root().join("data")).unwrap();
    symlink("data/new.txt", place.root().join("current")).unwrap();
    place.ok("write", json!({"path": "current", "content": "made"})).await;
    assert_eq!(place.content("data/new.txt"), "made");
    assert!(fs::symlink_metadata(place.root().join("current")).unwrap().is_symlink());
    symlink("circle", place.root().join("circle")).unwrap();
    place.fails("write", json!({"path": "circle", "content": "x"})).await;
    assert!(place.fails("write", json!({"path": "a", "content": ""})).await.contains("not a file"));
    let names = place.ok("read", json!({"path": "."})).await;
    assert!(!names.contains("oc-tmp"), "{names}");
}

#[tokio::test]
async fn edit_changes_one_piece_and_shows_the_difference() {
    let place = Place::new();
    place.file("a.rs", "fn a() {}\nfn b() {}\n");
    let edit = json!({"path": "a.rs", "oldString": "fn a()", "newString": "fn first()"});
    let settled = place.settled("edit", edit).await;
    assert_eq!(settled.output, "Edited a.rs in 1 place");
    assert_eq!(place.content("a.rs"), "fn first() {}\nfn b() {}\n");
    let diff = settled.structured.unwrap()["diff"].as_str().unwrap().to_owned();
    assert!(diff.contains("-fn a() {}\n+fn first() {}\n"), "{diff}");
    let twice = place.fails("edit", json!({"path": "a.rs", "old": "fn ", "new": "x"})).await;
    assert!(twice.contains("occurs 2 times"), "{twice}");
    place.ok("edit", json!({"path": "a.rs", "old": "fn ", "new": "pub fn ", "all": true})).await;
    assert_eq!(place.content("a.rs"), "pub fn first() {}\npub fn b() {}\n");
    let hint = place.fails("edit", json!({"path": "b.rs", "old": "x", "new": "y"})).await;
    assert!(hint.contains("does not exist. Did you mean a.rs?"), "{hint}");
}

#[tokio::test]
async fn parallel_edits_of_one_file_all_count() {
    let place = Place::new();
    let start: String = (0..16).map(|n| format!("[{n}]\n")).collect();
    place.file("a", &start);
    let edit = |n: i32| ToolCall {
        id: format!("c{n}"),
        ..call("edit", &json!({"path": "a", "old": format!("[{n}]"), "new": format!("<{n}>")}))
    };
    let calls: Vec<_> = (0..16).map(edit).collect();
    let mut running = Vec::new();
    for call in calls {
        let (registry, context) = (place.registry.clone(), place.context.clone());
        running.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(registry.run(&call, &context)).kind
        }));
    }
    for thread in running {
        assert_eq!(thread.join().unwrap(), ToolOutcomeKind::Completed);
    }
    assert_eq!(place.content("a"), start.replace('[', "<").replace(']', ">"));
}

#[tokio::test]
async fn a_probe_sees_what_an_earlier_owner_did() {
    let place = Place::new();
    place.file("a", "one two");
    let probe = async |name: &str, arguments: Value| match place
        .registry
        .probe(&call(name, &arguments), &place.context)
        .await
    {
        Probe::Done(outcome) => {
            assert_eq!(outcome.kind, ToolOutcomeKind::Completed);
            "done"
        }
        Probe::NotDone => "not done",
        Probe::Unclear => "unclear",
    };
    assert_eq!(probe("write", json!({"path": "a", "content": "one two"})).await, "done");
    assert_eq!(probe("write", json!({"path": "a", "content": "one"})).await, "not done");
    assert_eq!(probe("write", json!({"path": "b", "content": ""})).await, "not done");
    assert_eq!(probe("edit", json!({"path": "a", "old": "zero", "new": "one"})).await, "done");
    assert_eq!(probe("edit", json!({"path": "a", "old": "two", "new": "2"})).await, "not done");
    assert_eq!(probe("edit", json!({"path": "a", "old": "x", "new": "y"})).await, "unclear");
    assert_eq!(probe("shell", json!({"command": "true"})).await, "unclear");
}

#[tokio::test]
async fn glob_is_sorted_bounded_and_respects_ignore_files() {
    let place = Place::new();
    for path in ["src/z.rs", "src/a.rs", "src/deep/m.rs", "b.rs", "c.txt", "target/x.rs", ".env"] {
        place.file(path, "");
    }
    place.file(".gitignore", "target\n");
    place.file(".git/config.rs", "");
    place.file("src/.gitignore", "z.rs\n");
    let found = place.ok("glob", json!({"pattern": "*.rs"})).await;
    assert_eq!(found, "b.rs\nsrc/a.rs\nsrc/deep/m.rs\n(3 files)");
    let found = place.ok("glob", json!({"pattern": "/workspace/src/*.rs"})).await;
    assert_eq!(found, "src/a.rs\n(1 file)");
    let found = place.ok("glob", json!({"pattern": "**/*.rs", "path": "src"})).await;
    assert_eq!(found, "src/a.rs\nsrc/deep/m.rs\n(2 files)");
    let asked_for = place.ok("glob", json!({"pattern": "*", "path": "target"})).await;
    assert_eq!(asked_for, "target/x.rs\n(1 file)");
    for n in 0..300 {
        place.file(&format!("many/{n:03}"), "");
    }
    let found = place.ok("glob", json!({"pattern": "many/*"})).await;
    assert!(found.contains("many/199\n") && !found.contains("many/200"), "{found}");
    assert!(found.ends_with("(only the first 200: use a narrower pattern or path)"));
}

/// Runs `call` on its own thread, and fails if it takes too long or too much memory.
fn within_bounds(place: Place, name: &'static str, arguments: Value) -> String {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let output = runtime.block_on(place.ok(name, arguments));
        ended.send(output).expect("the test waits");
    });
    end.recv_timeout(Duration::from_secs(60)).expect("it neither blocks nor reads without end")
}

// Finding security 2: an ignore file was followed out of the Location, read without a bound, or blocked the
// search.
#[test]
fn a_hostile_ignore_file_neither_blocks_nor_fills_memory() {
    type Make<'m> = &'m dyn Fn(&Path);
    let hostile: [(&str, Make<'_>); 4] = [
        ("zero", &|path| symlink("/dev/zero", path).expect("a link")),
        ("pagemap", &|path| symlink("/proc/self/pagemap", path).expect("a link")),
        ("pipe", &|path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(CWD, path, mode).expect("a pipe");
        }),
        ("sparse", &|path| {
            let file = fs::File::create(path).expect("a file");
            file.set_len(1 << 40).expect("a sparse file");
        }),
    ];
    for (what, make) in hostile {
        for name in [".gitignore", ".ignore", ".git/info/exclude", "d/.gitignore"] {
            for tool in ["glob", "grep"] {
                let place = Place::new();
                place.file("d/a.txt", "hit");
                fs::create_dir_all(place.root().join(".git/info")).expect("a directory");
                make(&place.root().join(name));
                let pattern = if tool == "glob" { "a.*" } else { "hit" };
                let found = within_bounds(place, tool, json!({"pattern": pattern}));
                assert!(found.starts_with("d/a.txt"), "{tool} with {name} as {what}: {found}");
            }
        }
    }
}

// Finding security 2: listed files were followed, blocked the search, or were read without a bound.
#[test]
fn a_search_passes_over_what_is_no_ordinary_file() {
    let place = Place::new();
    place.file("a/b/c.txt", "hit");
    let root = place.root();
    symlink("/dev/zero", root.join("zero")).expect("a link");
    symlink("/proc/self/environ", root.join("environ")).expect("a link");
    symlink("/", root.join("all")).expect("a link");
    symlink("..", root.join("a/up")).expect("a link");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(CWD, root.join("pipe"), mode).expect("a pipe");
    fs::File::create(root.join("sparse")).expect("a file").set_len(1 << 40).expect("sparse");
    let found = within_bounds(place, "grep", json!({"pattern": "hit|PATH"}));
    assert!(found.starts_with("a/b/c.txt:1:hit\n(1 line)"), "{found}");
}

// Finding security 2: a tree deeper than any path must not take one descriptor per level.
#[test]
fn a_very_deep_directory_is_left_and_counted() {
    let place = Place::new();
    place.file("z", "hit");
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
    let none = rustix::fs::Mode::empty();
    let mut at = rustix::fs::open(place.root(), flags, none).expect("the root");
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o700)).expect("deeper");
        at = rustix::fs::openat(&at, "d", flags, none).expect("deeper");
    }
    let found = within_bounds(place, "grep", json!({"pattern": "hit"}));
    assert_eq!(found, "z:1:hit\n(1 line) (1 file could not be searched)");
}

// Finding security 19: a search could use 1 GB for an expression's states, and 100 MB for an expression.
#[tokio::test]
async fn an_expression_that_takes_too_much_memory_is_refused() {
    let place = Place::new();
    place.file("a", "x");
    let told = place.fails("grep", json!({"pattern": r"\w{1200}"})).await;
    assert!(told.contains("size limit") && told.contains("simplify"), "{told}");
}

#[tokio::test]
async fn grep_finds_lines_in_order_and_is_bounded() {
    let place = Place::new();
    place.file("b.rs", "let x = 1;\nlet y = 2;\n");
    place.file("a/c.rs", "fn x() {}\r\n");
    place.file("a/d.txt", "x marks\n");
    place.file(".gitignore", "*.log\n");
    place.file("e.log", "x\n");
    fs::write(place.root().join("binary"), b"x\0x").unwrap();
    let found = place.ok("grep", json!({"pattern": r"\bx\b"})).await;
    assert_eq!(found, "a/c.rs:1:fn x() {}\na/d.txt:1:x marks\nb.rs:1:let x = 1;\n(3 lines)");
    let found = place.ok("grep", json!({"pattern": "x", "path": "a", "include": "*.rs"})).await;
    assert_eq!(found, "a/c.rs:1:fn x() {}\n(1 line)");
    let found = place.ok("grep", json!({"pattern": "LET (?i)Y", "path": "b.rs"})).await;
    assert_eq!(found, "(no line matches)");
    let found = place.ok("grep", json!({"pattern": "(?i)LET Y", "path": "b.rs"})).await;
    assert_eq!(found, "b.rs:2:let y = 2;\n(1 line)");
    place.file("many", &"hit\n".repeat(500));
    let found = place.ok("grep", json!({"pattern": "hit"})).await;
    assert!(found.contains("many:200:hit\n") && !found.contains("many:201:"));
    assert!(found.contains("only the first 200 lines"));
}

// Threads search at once, and the result is that of one: complete, in the order of paths, and cut where one would cut.
#[tokio::test]
async fn grep_in_many_files_is_as_if_one_thread_read_them() {
    let place = Place::new();
    let mut lines = Vec::new();
    for n in 0..2_000 {
        let path = format!("d{}/e{}/f{n:04}", n / 500, n / 50 % 10);
        let hits = if n % 16 == 3 { 1 + n % 3 } else { 0 };
        // Files of many sizes, so that a later one is often ready before an earlier one.
        let filler = "nothing\n".repeat((n * 7919) % 4_000 / (1 + n % 5));
        place.file(&path, &(filler.clone() + &"one hit\n".repeat(hits)));
        let first = filler.lines().count() + 1;
        lines.extend((first..first + hits).map(|line| format!("{path}:{line}:one hit\n")));
    }
    assert!(lines.len() > 200);
    for _ in 0..4 {
        let found = place.ok("grep", json!({"pattern": "hit"})).await;
        let (shown, footer) = found.rsplit_once('\n').expect("lines and a footer");
        assert_eq!(format!("{shown}\n"), lines[..200].concat());
        assert!(footer.starts_with("(only the first 200 lines"), "{footer}");
        let found = place.ok("grep", json!({"pattern": "hit", "include": "*[1-3]"})).await;
        let wanted = lines.iter().filter(|line| {
            line.split(':').next().is_some_and(|path| path.ends_with(['1', '2', '3']))
        });
        let wanted: Vec<_> = wanted.map(String::as_str).collect();
        assert!((50..200).contains(&wanted.len()));
        assert_eq!(found, format!("{}({} lines)", wanted.concat(), wanted.len()));
    }
}

// Small files are searched where they were read, and others as a stream.
#[tokio::test]
async fn grep_reads_long_and_encoded_files_and_no_binary_ones() {
    let place = Place::new();
    let write =
        |name: &str, bytes: &[u8]| fs::write(place.root().join(name), bytes).expect("a file");
    write("a-bom", b"\xEF\xBB\xBFneedle\n");
    write("b-binary", b"needle one\n\0needle two\n");
    // The word lies across the end of the 256 KiB that are read first.
    let (lines, word) = ("x".repeat(99) + "\n", "y".repeat(40) + "needle\n");
    write("c-long", (lines.repeat(2_621) + &word + &lines + "needle").as_bytes());
    let utf16: Vec<u8> = "\u{FEFF}a needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    write("d-utf16", &utf16);
    let found = place.ok("grep", json!({"pattern": "^.*needle"})).await;
    let expected = format!(
        "a-bom:1:needle\nc-long:2622:{word}c-long:2624:needle\nd-utf16:1:a needle\n(4 lines)"
    );
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_large_output_can_be_read_and_searched_where_it_is_kept() {
    let place = Place::new();
    let settled = place.settled("shell", json!({"command": "seq 1 30000; exit 7"})).await;
    assert_eq!(settled.managed_path.as_deref(), Some("/tool-output/tool_1"));
    assert!(settled.truncated && settled.output.len() <= 51_200);
    assert!(settled.output.starts_with("1\n2\n"));
    assert!(settled.output.ends_with("\n29999\n30000\n(exit code 7)"));
    assert_eq!(settled.structured.as_ref().unwrap()["exit_code"], 7);
    let path = "/tool-output/tool_1";
    let middle = place.ok("read", json!({"path": path, "offset": 15_000, "limit": 1})).await;
    assert!(middle.starts_with("15000: 15000\n"), "{middle}");
    let found = place.ok("grep", json!({"path": path, "pattern": "^1777.$"})).await;
    assert!(found.starts_with("/tool-output/tool_1:17770:17770\n"), "{found}");
    // The directory has it, for each of the three.
    assert_eq!(
        place.ok("read", json!({"path": "/tool-output"})).await,
        "tool_1\n(end: 1 entry in all)"
    );
    let found = place.ok("grep", json!({"path": "/tool-output/", "pattern": "^1777.$"})).await;
    assert!(found.starts_with("/tool-output/tool_1:17770:17770\n"), "{found}");
    let found = place.ok("glob", json!({"path": "/tool-output", "pattern": "tool_*"})).await;
    assert_eq!(found, "/tool-output/tool_1\n(1 file)");
    let none = place.ok("glob", json!({"path": "/tool-output", "pattern": "*.txt"})).await;
    assert_eq!(none, "(no file matches)");
    // These commands have no cell, so they see none of it, and are told.
    let missed = place.ok("shell", json!({"command": "tail -n1 /tool-output/tool_1"})).await;
    assert!(
        missed
            .ends_with("do not see /tool-output in the sandbox of this machine: use read or grep)"),
        "{missed}"
    );
    for other in ["/tool-output/tool_2", "/tool-output/../../etc/passwd"] {
        assert!(place.fails("read", json!({"path": other})).await.contains("does not exist"));
    }
    let written = place.fails("write", json!({"path": path, "content": "x"})).await;
    assert!(written.contains("denied"), "{written}");
}

#[tokio::test]
async fn a_store_that_is_down_is_a_failed_read() {
    struct Down;
    #[async_trait::async_trait]
    impl ManagedOutputs for Down {
        async fn read(&self, name: &str) -> Result<Option<bytes::Bytes>, BlobError> {
            Err(BlobError::BadName(name.to_owned()))
        }
        async fn names(&self, _: usize) -> Result<Vec<String>, Unlisted> {
            Err("storage is away".into())
        }
    }
    let mut place = Place::new();
    place.context.outputs = Arc::new(Down);
    let message = place.fails("read", json!({"path": "/tool-output/tool_1"})).await;
    assert!(message.contains("try again later"), "{message}");
}

#[tokio::test]
async fn shell_says_how_a_command_ended() {
    let place = Place::new();
    let output = place.ok("shell", json!({"command": "echo out; echo err >&2; pwd"})).await;
    let root = place.root().canonicalize().unwrap().display().to_string();
    assert_eq!(output, format!("out\nerr\n{root}\n(exit code 0)"));
    let killed = place.fails("shell", json!({"command": "sleep 100", "timeout_ms": 100})).await;
    assert!(killed.contains("killed after 100 ms"), "{killed}");
    let left = place.ok("shell", json!({"command": "sleep 100 & echo ok"})).await;
    assert!(left.starts_with("ok\n(exit code 0)\n(processes left") && left.contains("ended: 1;"));
    let call = call("shell", &json!({"command": "touch begun; sleep 100"}));
    let interrupted = async {
        while !place.root().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        place.context.cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(place.registry.run(&call, &place.context), interrupted);
    assert_eq!(outcome.kind, ToolOutcomeKind::Interrupted);
    let after = place.registry.run(&call, &place.context).await;
    assert_eq!(after.kind, ToolOutcomeKind::Interrupted);
}

#[tokio::test]
async fn a_superseded_worker_changes_nothing() {
    let mut place = Place::new();
    place.file("a", "old");
    let path = place.folder.path().join("lock");
    place.context.lock = Some(LocationLock { path: path.clone(), token: 1 });
    place.ok("write", json!({"path": "a", "content": "mine"})).await;
    let newer = LocationLock { path, token: 2 };
    lock::acquire_or_kill(&newer, Duration::ZERO).unwrap();
    for (name, arguments) in [
        ("write", json!({"path": "a", "content": "stale"})),
        ("edit", json!({"path": "a", "old": "mine", "new": "stale"})),
        ("shell", json!({"command": "echo stale > a"})),
    ] {
        assert!(place.fails(name, arguments).await.contains("newer owner"), "{name}");
    }
    assert_eq!(place.content("a"), "mine");
}

/// Returns the inodes of `w` and `e`; a change replaces them.
fn inodes(root: &Path) -> [Option<u64>; 2] {
    ["w", "e"].map(|name| fs::metadata(root.join(name)).map(|found| found.ino()).ok())
}

// Finding store 19: `write` and `edit` checked the token first, and changed the file after a takeover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_comes_after_a_takeover() {
    let mut place = Place::new();
    let path = place.folder.path().join("lock");
    place.context.lock = Some(LocationLock { path: path.clone(), token: 1 });
    let content = "x".repeat(8 << 20);
    let calls = [
        ("write", json!({"path": "w", "content": content})),
        ("edit", json!({"path": "e", "old": "y", "new": "z"})),
    ];
    place.file("e", &(content.clone() + "y"));
    let place = Arc::new(place);
    for (token, (name, arguments)) in (2..).zip(calls.iter().cycle().take(20)) {
        let (name, arguments) = (*name, arguments.clone());
        #[expect(clippy::disallowed_methods, reason = "the test's own task")]
        let changing = tokio::spawn({
            let place = place.clone();
            async move { place.settled(name, arguments).await }
        });
        let newer = LocationLock { path: path.clone(), token };
        // Take over at some moment during the change.
        tokio::time::sleep(Duration::from_millis(u64::try_from(token).unwrap_or(0))).await;
        let root = place.root().to_path_buf();
        let taken = tokio::task::spawn_blocking(move || {
            lock::acquire_or_kill(&newer, Duration::from_secs(60)).expect("it is waited for");
            inodes(&root)
        });
        let found = taken.await.expect("a look");
        changing.await.expect("it ends");
        assert_eq!(
            found,
            inodes(place.root()),
            "{name} has changed a file after the takeover under {token}"
        );
        // The next round's worker starts again.
        fs::remove_file(&path).expect("the lock begins anew");
    }
}

/// A directory is repeatedly swapped for a symlink to the outside while tools use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_with_a_symlink_shows_nothing_of_the_outside() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "s3cret").unwrap();
    place.file("d/f", "fine");
    let (root, done) = (place.root().to_path_buf(), Arc::new(Mutex::new(false)));
    let stop = done.clone();
    symlink("../outside", root.join("aside")).unwrap();
    let swapper = std::thread::spawn(move || {
        let (used, aside) = (root.join("d"), root.join("aside"));
        while !*stop.lock().unwrap() {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, &used, CWD, &aside, exchange).unwrap();
        }
    });
    let (mut fine, mut denied) = (0, 0);
    // Repeat until both cases occurred: the machine decides how often the names change between two looks.
    for round in 0.. {
        if round >= 150 && fine > 0 && denied > 0 {
            break;
        }
        assert!(round < 20_000, "nothing was raced: {fine} read, {denied} denied");
        let read = place.settled("read", json!({"path": "d/f"})).await;
        fine += usize::from(read.output.contains("fine"));
        denied += usize::from(read.output.contains("denied"));
        let found = place.settled("grep", json!({"pattern": "."})).await;
        assert!(!read.output.contains("s3cret") && !found.output.contains("s3cret"));
        place.settled("write", json!({"path": "d/g", "content": "x"})).await;
    }
    *done.lock().unwrap() = true;
    swapper.join().unwrap();
    assert!(!outside.join("g").exists());
}

#[tokio::test]
async fn a_result_says_which_files_the_call_may_have_changed() {
    let place = Place::new();
    place.file("a/b.txt", "one\n");
    symlink("a", place.root().join("short")).unwrap();
    symlink("a/b.txt", place.root().join("link")).unwrap();
    for (tool, arguments) in [
        ("read", json!({"path": "a/b.txt"})),
        ("glob", json!({"pattern": "**"})),
        ("grep", json!({"pattern": "one"})),
        ("edit", json!({"path": "a/b.txt", "old": "none", "new": "x"})),
        ("edit", json!({"path": "missing", "old": "none", "new": "x"})),
        ("write", json!({"path": "../outside", "content": ""})),
        ("write", json!({"path": "a", "content": ""})),
        ("write", json!({})),
        ("shell", json!({"command": " "})),
        ("none", json!({})),
    ] {
        assert_eq!(place.settled(tool, arguments).await.touched, Touched::Nothing, "{tool}");
    }
    for (tool, arguments, path) in [
        ("write", json!({"path": "new/deep/c", "content": "c"}), "new/deep/c"),
        ("write", json!({"path": "/workspace/a/b.txt", "content": "two\n"}), "a/b.txt"),
        ("write", json!({"path": "short/d", "content": "d"}), "a/d"),
        ("edit", json!({"path": "link", "old": "two", "new": "three"}), "a/b.txt"),
        ("edit", json!({"path": "./short/../a/b.txt", "old": "three", "new": "4"}), "a/b.txt"),
    ] {
        let settled = place.settled(tool, arguments).await;
        assert_eq!(settled.touched, Touched::path(path), "{}", settled.output);
    }
    for command in ["true", "exit 1"] {
        let settled = place.settled("shell", json!({ "command": command })).await;
        assert_eq!(settled.touched, Touched::Anything);
    }
    // After a takeover, only the effect itself is known.
    let done = call("write", &json!({"path": "new/deep/c", "content": "c"}));
    let Probe::Done(outcome) = place.registry.probe(&done, &place.context).await else {
        panic!("the file is there");
    };
    assert_eq!(outcome.touched, Touched::Anything);
}

#[tokio::test]
async fn a_skill_is_loaded_by_its_name_when_the_agent_may() {
    let mut place = Place::new();
    let none = place.fails("skill", json!({"name": "deploy"})).await;
    assert_eq!(none, "there is no skill deploy to load; there is none");
    let skill =
        |name: &str, text: &str| format!("---\nname: {name}\ndescription: It.\n---\n{text}");
    place.file(".opencode/skills/deploy/SKILL.md", &skill("deploy", "\nRun `./ship`.\n\n"));
    place.file(".claude/skills/secret/SKILL.md", &skill("secret", "Hidden."));
    place.file(".opencode/skills/broken/SKILL.md", "No front matter.");
    let loaded = place.settled("skill", json!({"name": "deploy"})).await;
    let directory = "/workspace/.opencode/skills/deploy";
    let expected = format!("Run `./ship`.\n(paths in this skill are relative to {directory})");
    assert_eq!((loaded.output.as_str(), loaded.title.as_str()), (expected.as_str(), "Load deploy"));
    assert_eq!(loaded.structured, Some(json!({"name": "deploy", "directory": directory})));
    assert_eq!(loaded.touched, Touched::Nothing);
    let unknown = place.fails("skill", json!({"name": "ship"})).await;
    assert_eq!(unknown, "there is no skill ship to load; those that there are: deploy, secret");
    let broken = place.fails("skill", json!({"name": "broken"})).await;
    assert!(broken.contains("cannot be used: its SKILL.md does not begin with"), "{broken}");

    // An agent does not see skills that it may not load.
    let permitted = Permitted::only(["deploy"]);
    place.context.skills = Some(SkillScope { permitted, in_project: false });
    place.ok("skill", json!({"name": "deploy"})).await;
    let denied = place.fails("skill", json!({"name": "secret"})).await;
    assert_eq!(denied, "there is no skill secret to load; those that there are: deploy");
    place.context.skills = None;
    assert_eq!(place.fails("skill", json!({"name": "deploy"})).await, "there are no skills here");

    // Finding: report 30-b9 (anomalyco/opencode#21793): a skill that a rule denies was listed.
    let mut place = Place::new();
    place.file(".opencode/skills/deploy/SKILL.md", &skill("deploy", "Run it."));
    place.file(".opencode/skills/lark-doc/SKILL.md", &skill("lark-doc", "Hidden."));
    place.context.reads = ReadRules::default().with_skills(|name| !name.starts_with("lark-"));
    let unknown = place.fails("skill", json!({"name": "nope"})).await;
    assert_eq!(unknown, "there is no skill nope to load; those that there are: deploy");
}

#[tokio::test]
async fn a_skill_of_the_project_above_is_loaded_only_where_that_counts() {
    let mut place = Place::new();
    let top = place.root().to_owned();
    place.file(".git/HEAD", "ref: refs/heads/main\n");
    place.file(".opencode/skills/far/SKILL.md", "---\ndescription: It.\n---\nFar.");
    place.file("a/b/file", "");
    place.context.root = top.join("a/b");
    place.context.shown_root = "/home/me/top/a/b".into();
    place.fails("skill", json!({"name": "far"})).await;
    place.context.skills = Some(SkillScope { permitted: Permitted::All, in_project: true });
    let far = place.ok("skill", json!({"name": "far"})).await;
    assert!(
        far.starts_with("Far.\n") && far.contains("to /home/me/top/.opencode/skills/far"),
        "{far}"
    );
}

#[tokio::test]
async fn a_long_skill_keeps_its_two_ends_and_the_rest_is_kept_apart() {
    let place = Place::new();
    let text: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let skill = format!("---\ndescription: It.\n---\n{text}");
    place.file(".opencode/skills/long/SKILL.md", &skill);
    let loaded = place.settled("skill", json!({"name": "long"})).await;
    assert!(loaded.truncated && loaded.output.starts_with("line 0\n"), "{:.99}", loaded.output);
    assert!(loaded.output.ends_with("/long)\n(only its first 1048576 bytes were read)"));
    assert_eq!(loaded.managed_path.as_deref(), Some("/tool-output/tool_1"));
}

/// A sandbox that shows outputs, and says which.
struct Shows(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl sandbox::Sandbox for Shows {
    async fn run(
        &self,
        command: sandbox::Command,
        _: &CancellationToken,
    ) -> Result<sandbox::Outcome, sandbox::SandboxError> {
        let shown = command.outputs.iter().map(|file| file.name.clone()).collect();
        *self.0.lock().expect("nobody panics with it") = shown;
        Err(sandbox::SandboxError::NotStarted("only looked at".into()))
    }

    fn shows_outputs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_command_gets_the_outputs_that_it_speaks_of() {
    let shows = Arc::new(Shows(Mutex::default()));
    let place = Place::of(ToolSet::standard(shows.clone()));
    for name in ["tool_a", "tool_b"] {
        let key = blobs::BlobKey::new("org", tools::BLOB_KIND, name).expect("a key");
        place.blobs.put(&key, "all".into()).await.expect("stored");
    }
    for (command, expected) in [
        ("ls", vec![]),
        ("ls /tool-output", vec!["tool_a", "tool_b"]),
        ("cat /tool-output/tool_b /tool-output/tool_x", vec!["tool_b", "tool_a"]),
    ] {
        place.fails("shell", json!({ "command": command })).await;
        assert_eq!(*shows.0.lock().expect("nobody panics"), expected, "{command}");
    }
}
