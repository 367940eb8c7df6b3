//! Other forms that models and projects have: of names, arguments, encodings, names of files, rules about `read`.

use std::fs;
use std::os::unix::fs::symlink;

use domain::{RuleAction, ToolOutcomeKind};
use serde_json::json;
use tools::{ReadRules, ToolCall};

use super::Place;

#[tokio::test]
async fn a_call_by_another_name_or_form_is_the_call() {
    let place = Place::with_web(&[]);
    place.file("a.txt", "one\ntwo\n");
    for (name, arguments) in [
        ("Read", r#"{"file_path": "a.txt", "limit": "1"}"#),
        ("read_file", r#"{"filename": "a.txt", "limit": 1.0,}"#),
        ("functions.read", "```json\n{\"path\": \"a.txt\", \"limit\": 1}\n```"),
        ("str_replace_editor", r#"{"command": "view", "path": "a.txt", "limit": 1}"#),
        ("bash", r#"{"cmd": ["bash", "-lc", "head -n1 a.txt"]}"#),
        ("run_command", r#"{"command": ["head", "-n1", "a.txt"]}"#),
    ] {
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        let outcome = place.registry.run(&call, &place.context).await;
        let settled =
            tools::settle(outcome, place.context.limits, &place.blobs, "org", "tool_1").await;
        assert_eq!(settled.kind, ToolOutcomeKind::Completed, "{name}: {}", settled.output);
        assert!(settled.output.contains("one") && !settled.output.contains("two"), "{name}");
    }
    let edit = json!({"file_path": "a.txt", "old_str": "o", "new_str": "0", "replace_all": "true"});
    place.ok("str_replace", edit).await;
    assert_eq!(place.content("a.txt"), "0ne\ntw0\n");
}

// The public report Codewhale#4674: a command that was meant for one directory ran in another.
#[tokio::test]
async fn a_command_runs_in_the_directory_that_it_names() {
    let place = Place::new();
    place.file("top.txt", "");
    symlink("/etc", place.root().join("out")).expect("a link");
    for name in ["workdir", "cwd", "directory", "working_directory", "dir_path"] {
        place.file("sub/inner.txt", "");
        let call = json!({"command": "rm -f *.txt; pwd", name: "sub"});
        let settled = place.settled("bash", call).await;
        assert!(settled.output.contains("/root/sub\n"), "{name}: {}", settled.output);
        assert_eq!(settled.title, "Run in /workspace/sub: rm -f *.txt; pwd");
        assert!(place.root().join("top.txt").exists(), "{name}");
        assert!(!place.root().join("sub/inner.txt").exists(), "{name}");
    }
    for (workdir, said) in [
        ("subb", "does not exist. Did you mean sub?"),
        ("top.txt", "Not a directory"),
        ("~", "does not exist"),
        ("out", "denied"),
    ] {
        let call = json!({"command": "touch made", "workdir": workdir});
        let output = place.fails("shell", call).await;
        assert!(output.contains(said), "{workdir}: {output}");
        assert!(!place.root().join("made").exists(), "{workdir}");
    }
    for (workdir, shown) in [(".", "/root\n"), ("/workspace/sub", "/root/sub\n"), ("/", "/\n")] {
        let output = place.ok("shell", json!({"command": "pwd", "workdir": workdir})).await;
        assert!(output.contains(shown), "{workdir}: {output}");
    }
    let lines = place.ok("shell", json!({"command": "cd sub\r\npwd\r\n"})).await;
    assert!(lines.contains("/root/sub\n"), "{lines}");
}

// Finding: report 30-b14 (cursor/cursor#3146): a path below the home made a folder `~` in the project.
#[tokio::test]
async fn a_path_below_the_home_makes_no_folder_of_its_name() {
    let place = Place::with_web(&[]);
    for path in ["~/notes.txt", "$HOME/notes.txt", "${HOME}/a/b", "~"] {
        let refused = place.fails("write", json!({"path": path, "content": "x"})).await;
        assert!(refused.contains("is outside"), "{path}: {refused}");
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch");
        let refused = place.fails("apply_patch", json!({ "patch": patch })).await;
        assert!(refused.contains("is outside"), "{path}: {refused}");
    }
    assert_eq!(fs::read_dir(place.root()).expect("a folder").count(), 0);
    place.file("~/notes.txt", "one\n");
    assert!(place.ok("read", json!({"path": "~/notes.txt"})).await.contains("one"));
}

#[tokio::test]
async fn arguments_that_change_what_is_done_are_not_ignored() {
    let place = Place::new();
    place.file("a.txt", "Needle\n");
    let found = place.ok("grep", json!({"pattern": "needle", "-i": true})).await;
    assert!(found.contains("a.txt:1:Needle"), "{found}");
    let write = json!({"path": "a.txt", "content": "more\n", "append": true});
    let refused = place.fails("write", write).await;
    assert!(refused.contains("cannot append"), "{refused}");
    assert_eq!(place.content("a.txt"), "Needle\n");
    place.ok("write", json!({"path": "b.json", "content": {"b": [1, "x"]}})).await;
    assert_eq!(place.content("b.json"), "{\n  \"b\": [\n    1,\n    \"x\"\n  ]\n}\n");
}

// The public report ripgrep#1568: `$` found nothing in files with CR LF.
#[tokio::test]
async fn the_end_of_a_line_is_found_before_cr_lf() {
    let place = Place::new();
    place.file("a.txt", "the needle\r\nother\r\n");
    place.file("b.txt", "the needle\nother needles\n");
    for (pattern, expected) in [
        ("needle$", "a.txt:1:the needle\nb.txt:1:the needle\n(2 lines)"),
        ("^other$", "a.txt:2:other\n(1 line)"),
        ("^the needle\\r?$", "a.txt:1:the needle\nb.txt:1:the needle\n(2 lines)"),
        ("needle\\r$", "a.txt:1:the needle\n(1 line)"),
        ("^the", "a.txt:1:the needle\nb.txt:1:the needle\n(2 lines)"),
    ] {
        let found = place.ok("grep", json!({ "pattern": pattern })).await;
        assert_eq!(found, expected, "{pattern}");
    }
}

// Finding: report 30-b16 (NousResearch/hermes-agent#77102): a pattern of two lines was refused.
#[tokio::test]
async fn a_pattern_with_a_line_end_is_searched_over_lines() {
    let place = Place::new();
    place.file("a.txt", "one\nfoo\nbar\nfoo bar\n");
    let (two, three) = ("a.txt:2:foo\na.txt:3:bar\n", "a.txt:4:foo bar\n(3 lines)");
    for pattern in ["foo\\nbar", "foo\nbar", "^foo\\r?\\nb"] {
        let found = place.ok("grep", json!({ "pattern": pattern })).await;
        assert_eq!(found, format!("{two}(2 lines)"), "{pattern}");
    }
    for name in ["multiline", "multi_line", "-U"] {
        let found = place.ok("grep", json!({"pattern": "foo.bar", name: "true"})).await;
        assert_eq!(found, format!("{two}{three}"), "{name}");
    }
    let single = place.ok("grep", json!({"pattern": "foo.bar", "multiline": false})).await;
    assert_eq!(single, "a.txt:4:foo bar\n(1 line)");
    let refused = place.fails("grep", json!({"pattern": "(\\n"})).await;
    assert!(refused.contains("mend or simplify it"), "{refused}");
}

// Finding: report 30-d1 (Lexus2016/hermes-agent-evolution#1484).
#[tokio::test]
async fn a_refused_look_around_names_a_way_that_works() {
    let place = Place::new();
    for pattern in ["foo(?!bar)", "(?<=def )\\w+", "(\\w)\\1"] {
        let refused = place.fails("grep", json!({ "pattern": pattern })).await;
        assert!(refused.contains("not supported"), "{refused}");
        assert!(refused.contains("`grep -P` in shell"), "{refused}");
    }
}

// Finding: report 30-b15 (microsoft/vscode#34271): nothing was found in what `read` shows decoded.
#[tokio::test]
async fn lines_are_found_in_the_encodings_that_read_knows() {
    use encoding_rs::{EUC_KR, GB18030, SHIFT_JIS};

    let place = Place::new();
    let chinese = "// \u{914D}\u{7F6E}\u{6587}\u{4EF6}\u{8FD9}\u{662F}\u{4E2D}\u{6587}\n";
    let japanese = "// \u{3053}\u{308C}\u{306F}\u{30C6}\u{30B9}\u{30C8}\u{3067}\u{3059}\n";
    let korean = "// \u{C548}\u{B155}\u{D558}\u{C138}\u{C694} \u{C138}\u{ACC4}\n";
    for (encoding, line, needle) in [
        (GB18030, chinese, "\u{914D}\u{7F6E}"),
        (SHIFT_JIS, japanese, "\u{30C6}\u{30B9}\u{30C8}"),
        (EUC_KR, korean, "\u{C138}\u{ACC4}"),
    ] {
        // The second is read in pieces.
        for before in [1, 20_000] {
            let others = line.replace(needle, "x").repeat(before);
            fs::write(place.root().join("a.c"), encoding.encode(&(others + line)).0)
                .expect("a file");
            let found = place.ok("grep", json!({ "pattern": needle })).await;
            let number = before + 1;
            assert_eq!(found, format!("a.c:{number}:{line}(1 line)"), "{}", encoding.name());
        }
    }
}

// The public report opencode#13149: the match was not in what was shown of a long line.
#[tokio::test]
async fn a_match_in_a_long_line_is_shown_with_its_column() {
    let place = Place::new();
    let line = format!("{}NEEDLE{}END", "é".repeat(2_500), "b".repeat(600));
    place.file("min.js", &format!("{line}\nNEEDLE {line}\n"));
    for pattern in ["NEEDLE", "NE+DLE", "[A-Z]{6}", "^.*NEEDLE"] {
        let found = place.ok("grep", json!({ "pattern": pattern })).await;
        let first = found.lines().next().expect("a line");
        assert!(first.starts_with("min.js:1:…é") && first.contains("éNEEDLEb"), "{first}");
        assert!(first.ends_with("b… (from column 2401 on)"), "{pattern}: {first}");
        assert!(first.chars().count() < 550, "{first}");
    }
    let found = place.ok("grep", json!({"pattern": "END$", "path": "min.js"})).await;
    let first = found.lines().next().expect("a line");
    assert!(first.ends_with("bEND (from column 3007 on)"), "{first}");
    let found = place.ok("grep", json!({"pattern": "NEEDLE", "path": "min.js"})).await;
    let second = found.lines().nth(1).expect("a line");
    assert!(second.starts_with("min.js:2:NEEDLE é") && second.ends_with("é…"), "{second}");
}

#[tokio::test]
async fn grep_leaves_out_what_read_may_not_show() {
    let mut place = Place::new();
    place.file("src/a.rs", "token\n");
    place.file(".env", "token=1\n");
    place.file("keys/b.pem", "token\n");
    symlink(".env", place.root().join("plain.txt")).expect("a link");
    place.context.reads = ReadRules::new(|path| match path {
        ".env" => RuleAction::Ask,
        path if path.starts_with("keys/") => RuleAction::Deny,
        _ => RuleAction::Allow,
    });
    for arguments in [json!({"pattern": "token"}), json!({"pattern": "token", "path": "."})] {
        let found = place.ok("grep", arguments).await;
        assert!(found.starts_with("src/a.rs:1:token\n"), "{found}");
        assert!(!found.contains("token=1") && !found.contains(".pem"), "{found}");
        assert!(found.contains("3 files were left out"), "{found}");
    }
    let below = place.ok("grep", json!({"pattern": "token", "path": "keys"})).await;
    assert!(below.contains("1 file was left out") && !below.contains("b.pem"), "{below}");
    // By its name a file is judged before the call runs.
    let named = place.ok("grep", json!({"pattern": "token", "path": ".env"})).await;
    assert!(named.contains("token=1"), "{named}");
    for tool in ["grep", "read"] {
        let linked = place.fails(tool, json!({"pattern": "token", "path": "plain.txt"})).await;
        assert!(linked.contains("leads to .env"), "{linked}");
    }
    let listed = place.ok("glob", json!({"pattern": "**/*"})).await;
    assert!(listed.contains(".env\n") && !listed.contains("b.pem"), "{listed}");
    assert!(listed.contains("1 file was left out"), "{listed}");
    let names = place.ok("read", json!({"path": "keys"})).await;
    assert!(!names.contains("b.pem") && names.contains("left out"), "{names}");
}

// Finding: report 30-b10 (anomalyco/opencode#35684).
#[tokio::test]
async fn a_search_leaves_out_what_its_own_rules_deny() {
    let mut place = Place::new();
    place.file("src/secret.txt", "token\n");
    place.file("src/a.txt", "token\n");
    place.context.reads = ReadRules::default().with_results(|_, path| path.ends_with("secret.txt"));
    for (tool, pattern) in [("glob", "**/*.txt"), ("glob", "src/secret.txt"), ("grep", "token")] {
        let found = place.ok(tool, json!({ "pattern": pattern })).await;
        assert!(!found.contains("secret.txt"), "{tool} {pattern}: {found}");
        assert!(found.contains("left out"), "{tool} {pattern}: {found}");
    }
}

// Finding: report 30-b1 (NousResearch/hermes-agent#77674).
#[tokio::test]
async fn a_change_over_a_link_is_judged_by_the_real_name() {
    let mut place = Place::with_web(&[]);
    place.file("secrets/a", "x\n");
    place.file("open/a", "x\n");
    for (target, link) in
        [("secrets/a", "link"), ("secrets/new", "free"), ("secrets", "d"), ("open", "o")]
    {
        symlink(target, place.root().join(link)).expect("a link");
    }
    symlink("../open/a", place.root().join("secrets/out")).expect("a link");
    place.context.reads = ReadRules::default().with_edits(|path| match path {
        path if path.starts_with("secrets/") => RuleAction::Deny,
        _ => RuleAction::Allow,
    });
    let patch = |text: &str| json!({"patch": format!("*** Begin Patch\n{text}\n*** End Patch")});
    for (tool, arguments) in [
        ("write", json!({"path": "link", "content": "y"})),
        ("write", json!({"path": "free", "content": "y"})),
        ("write", json!({"path": "d/new", "content": "y"})),
        ("edit", json!({"path": "link", "old": "x", "new": "y"})),
        ("apply_patch", patch("*** Update File: link\n@@\n-x\n+y")),
        ("apply_patch", patch("*** Add File: d/new\n+y")),
        ("apply_patch", patch("*** Delete File: d/out")),
        ("apply_patch", patch("*** Update File: open/a\n*** Move to: d/new\n@@\n-x\n+y")),
    ] {
        let told = place.fails(tool, arguments.clone()).await;
        assert!(told.contains("leads to secrets/"), "{tool} {arguments}: {told}");
    }
    assert_eq!([place.content("secrets/a"), place.content("open/a")], ["x\n", "x\n"]);
    assert!(!place.root().join("secrets/new").exists());
    place.ok("write", json!({"path": "o/a", "content": "y"})).await;
    place.ok("edit", json!({"path": "./secrets/a", "old": "x", "new": "y"})).await;
}

#[tokio::test]
async fn a_mark_and_an_encoding_stay_whatever_changes_the_file() {
    let utf16 = |text: &str| -> Vec<u8> {
        let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect()
    };
    let marked = |text: &str| format!("\u{FEFF}{text}").into_bytes();
    for encode in [&utf16 as &dyn Fn(&str) -> Vec<u8>, &marked] {
        let place = Place::with_web(&[]);
        let path = place.root().join("f.txt");
        let is = |text: &str| assert_eq!(fs::read(&path).expect("a file"), encode(text));
        fs::write(&path, encode("first\r\ngrün\r\n")).expect("a file");
        let read = place.ok("read", json!({"path": "f.txt"})).await;
        assert!(read.starts_with("1: first\n2: grün\n"), "{read:?}");
        assert!(place.ok("grep", json!({"pattern": "^first"})).await.contains("f.txt:1:first"));
        let patch =
            "*** Begin Patch\n*** Update File: f.txt\n@@\n-first\n+1st\n grün\n*** End Patch";
        place.ok("apply_patch", json!({"patch": patch})).await;
        is("1st\r\ngrün\r\n");
        place.ok("edit", json!({"path": "f.txt", "old": "1st\ngrün", "new": "a\nb"})).await;
        is("a\r\nb\r\n");
        let write = json!({"path": "f.txt", "content": "new\n"});
        place.ok("write", write.clone()).await;
        is("new\r\n");
        place.ok("write", json!({"path": "f.txt", "content": "\u{FEFF}newer\n"})).await;
        is("newer\r\n");
    }
}

#[tokio::test]
async fn other_encodings_are_shown_with_a_remark_and_a_way() {
    let place = Place::with_web(&[]);
    fs::write(place.root().join("latin"), b"gr\xfcn\n").expect("a file");
    let read = place.ok("read", json!({"path": "latin"})).await;
    assert!(read.contains("gr\u{FFFD}n") && read.contains("iconv -f WINDOWS-1252"), "{read}");
    let edit = place.fails("edit", json!({"path": "latin", "old": "gr", "new": "g"})).await;
    assert!(edit.contains("iconv -f WINDOWS-1252 -t UTF-8 latin"), "{edit}");
    fs::write(place.root().join("binary"), b"a\0b").expect("a file");
    let edit = place.fails("edit", json!({"path": "binary", "old": "a", "new": "g"})).await;
    assert!(edit.contains("binary"), "{edit}");
}

// The public report repomix#1878: text in GBK or Shift-JIS counted as binary.
#[tokio::test]
async fn a_text_of_east_asia_is_shown_decoded() {
    let place = Place::with_web(&[]);
    let gbk = b"\xd5\xe2\xca\xc7\xd6\xd0\xce\xc4\xd7\xa2\xca\xcd\n";
    fs::write(place.root().join("gbk.c"), gbk).expect("a file");
    let shift_jis = b"\x82\xb1\x82\xea\x82\xcd\n";
    fs::write(place.root().join("jis.c"), shift_jis).expect("a file");
    for (path, text, name) in [
        ("gbk.c", "1: \u{8FD9}\u{662F}\u{4E2D}\u{6587}\u{6CE8}\u{91CA}\n", "gb18030"),
        ("jis.c", "1: \u{3053}\u{308C}\u{306F}\n", "Shift_JIS"),
    ] {
        let read = place.ok("read", json!({ "path": path })).await;
        assert!(read.starts_with(text) && read.contains(name), "{read}");
        let edit = place.fails("edit", json!({"path": path, "old": "a", "new": "b"})).await;
        assert!(edit.contains(&format!("iconv -f {name} -t UTF-8 {path}")), "{edit}");
    }
}

// The public report opencode#4398.
#[tokio::test]
async fn a_negative_offset_reads_the_last_lines() {
    let place = Place::new();
    place.file("f", "one\ntwo\nthree\n");
    for (offset, text) in [
        (-2, "2: two\n3: three\n(end: 3 lines in all)"),
        (-9, "1: one\n2: two\n3: three\n(end: 3 lines in all)"),
        (0, "1: one\n2: two\n3: three\n(end: 3 lines in all)"),
    ] {
        assert_eq!(place.ok("read", json!({"path": "f", "offset": offset})).await, text);
    }
    let text = place.ok("read", json!({"path": "f", "offset": "-2", "limit": 1})).await;
    assert_eq!(text, "2: two\n(lines follow; go on with offset=3)");
    let listed = place.ok("read", json!({"path": ".", "offset": -1})).await;
    assert!(listed.starts_with("f\n"), "{listed}");
    let limit = place.fails("read", json!({"path": "f", "limit": -1})).await;
    assert!(limit.contains("a whole number from 0 on"), "{limit}");
}

#[tokio::test]
async fn an_ignored_file_is_found_by_its_path_or_spoken_of() {
    let place = Place::new();
    place.file(".gitignore", "*.log\nbuild/\n");
    place.file("a.log", "token\n");
    place.file("build/out.js", "token\n");
    for pattern in ["a.log", "./a.log", "build/out.js", "/workspace/build/out.js"] {
        let found = place.ok("glob", json!({ "pattern": pattern })).await;
        assert!(found.ends_with("(1 file)"), "{pattern}: {found}");
    }
    let below = place.ok("glob", json!({"pattern": "out.js", "path": "build"})).await;
    assert!(below.starts_with("build/out.js\n"), "{below}");
    for (tool, arguments) in [
        ("glob", json!({"pattern": "*.log"})),
        ("glob", json!({"pattern": "missing.log"})),
        ("grep", json!({"pattern": "token"})),
    ] {
        let none = place.ok(tool, arguments).await;
        assert!(none.contains(".gitignore") && none.contains("--ignored"), "{tool}: {none}");
    }
    fs::remove_file(place.root().join(".gitignore")).expect("removed");
    let none = place.ok("glob", json!({"pattern": "*.none"})).await;
    assert_eq!(none, "(no file matches)");
}

#[tokio::test]
async fn a_name_stays_on_its_line() {
    let place = Place::new();
    for name in ["a\nb.rs", "c\u{1b}[31m.rs", "d\r.rs"] {
        place.file(name, "token\n");
    }
    for (tool, arguments) in [
        ("glob", json!({"pattern": "*.rs"})),
        ("grep", json!({"pattern": "token"})),
        ("read", json!({"path": "."})),
    ] {
        let shown = place.ok(tool, arguments).await;
        assert!(shown.contains("a\\nb.rs") && shown.contains("d\\r.rs"), "{tool}: {shown:?}");
        assert!(shown.contains("c\\u{1b}[31m.rs"), "{tool}: {shown:?}");
        assert_eq!(shown.lines().count(), 4, "{tool}: {shown:?}");
    }
}

#[tokio::test]
async fn the_rest_of_a_long_line_can_be_read() {
    let place = Place::new();
    place.file("one.json", &format!("{{\"a\": \"{}END\"}}", "x".repeat(5_000)));
    let first = place.ok("read", json!({"path": "one.json"})).await;
    assert!(first.contains("column=2001") && !first.contains("END"), "{first}");
    let rest =
        place.ok("read", json!({"path": "one.json", "offset": 1, "limit": 1, "column": 4001}));
    assert!(rest.await.contains("END\"}"));
}

#[tokio::test]
async fn a_command_is_shown_as_a_terminal_would_at_the_end() {
    let place = Place::new();
    let command = r"printf '\033[32mok\033[0m\n10%%\r100%%\n'";
    let shown = place.ok("shell", json!({ "command": command })).await;
    assert!(shown.starts_with("ok\n100%\n(exit code 0)\n(shown as"), "{shown:?}");
}

// The public report Codewhale#5909: `read` shows no CR, so that a model cannot write them back.
#[tokio::test]
async fn a_file_keeps_its_line_ends_when_it_is_written() {
    let place = Place::new();
    let path = place.root().join("f.txt");
    for (before, content, after) in [
        ("a\r\nb\r\n", "c\nd\n", "c\r\nd\r\n"),
        ("a\r\nb", "c\nd", "c\r\nd"),
        ("a\r\n", "c\r\nd\n", "c\r\nd\n"),
        ("a\r\n", "c", "c"),
        ("a\nb\n", "c\nd\n", "c\nd\n"),
        ("a\r\nb\n", "c\nd\n", "c\nd\n"),
        ("", "c\nd\n", "c\nd\n"),
    ] {
        fs::write(&path, before).expect("a file");
        let said = place.ok("write", json!({"path": "f.txt", "content": content})).await;
        assert_eq!(place.content("f.txt"), after, "{before:?}");
        assert_eq!(said.contains("CR LF"), content != after, "{said}");
    }
    place.ok("write", json!({"path": "new.txt", "content": "c\n"})).await;
    assert_eq!(place.content("new.txt"), "c\n");
}

// The public reports aider#2616 and opencode#18848: nothing was found below `[id]`, or behind a link.
#[tokio::test]
async fn a_pattern_finds_what_is_named_in_it() {
    let place = Place::new();
    for name in ["app/[id]/page.tsx", "app/(group)/[...slug]/x.ts", "a{b}c/y.ts", "app/i/z.tsx"] {
        place.file(name, "needle\n");
    }
    place.file("real/deep/doc.md", "needle\n");
    symlink("real", place.root().join("link")).expect("a link");
    symlink("..", place.root().join("real/deep/loop")).expect("a link");
    symlink("/etc", place.root().join("out")).expect("a link");
    for (pattern, expected) in [
        ("app/[id]/page.tsx", "app/[id]/page.tsx\n(1 file)"),
        ("app/[id]/*.tsx", "app/[id]/page.tsx\napp/i/z.tsx\n(2 files)"),
        ("app/(group)/[...slug]/*", "app/(group)/[...slug]/x.ts\n(1 file)"),
        ("**/[...slug]/*.ts", "app/(group)/[...slug]/x.ts\n(1 file)"),
        ("a{b}c/*.ts", "a{b}c/y.ts\n(1 file)"),
        ("app/[id/*", "(no file matches)"),
        ("app/{i,o}/*.{ts,tsx}", "app/i/z.tsx\n(1 file)"),
        ("link/deep/*.md", "real/deep/doc.md\n(1 file)"),
        ("link/**/*.md", "real/deep/doc.md\n(1 file)"),
        ("./link/deep/doc.md", "real/deep/doc.md\n(1 file)"),
        ("/workspace/link/**/doc.*", "real/deep/doc.md\n(1 file)"),
        ("real/deep/loop/deep/*.md", "real/deep/doc.md\n(1 file)"),
        ("link/*.md", "(no file matches)"),
        ("out/*", "(no file matches)"),
    ] {
        let found = place.ok("glob", json!({ "pattern": pattern })).await;
        assert_eq!(found, expected, "{pattern}");
    }
    let include = json!({"pattern": "needle", "include": "app/[id]/*.tsx"});
    let found = place.ok("grep", include).await;
    assert!(found.starts_with("app/[id]/page.tsx:1:needle\n"), "{found}");
}

// The public report aft#32: patterns that a comma or a space separates found nothing, without a word.
#[tokio::test]
async fn several_patterns_in_one_text_are_taken() {
    let place = Place::new();
    for name in ["a.ts", "b.tsx", "c.py", "d.js", "e f.txt", "f.txt", "g.d.ts"] {
        place.file(name, "needle\n");
    }
    for (pattern, names) in [
        ("*.py,*.js", &["c.py", "d.js"][..]),
        ("*.{ts,tsx}, *.js", &["a.ts", "b.tsx", "d.js", "g.d.ts"]),
        ("*.py *.js", &["c.py", "d.js"]),
        ("*.ts,!*.d.ts", &["a.ts"]),
        ("!*.{ts,tsx,txt}", &["c.py", "d.js"]),
        ("e f.txt", &["e f.txt"]),
        ("*.{py,js}", &["c.py", "d.js"]),
    ] {
        let found = place.ok("glob", json!({ "pattern": pattern })).await;
        let listed: Vec<&str> = found.lines().filter(|line| !line.starts_with('(')).collect();
        assert_eq!(listed, names, "{pattern}");
        let found = place.ok("grep", json!({"pattern": "needle", "include": pattern})).await;
        let listed: Vec<&str> =
            found.lines().filter_map(|line| line.strip_suffix(":1:needle")).collect();
        assert_eq!(listed, names, "{pattern}");
    }
    let none = place.ok("glob", json!({"pattern": "*.c,*.h"})).await;
    assert_eq!(none, "(no file matches)");
}

// The public report pinchy#729: macOS spells `é` as two code points, and a model as one.
#[tokio::test]
async fn a_name_is_found_in_any_spelling_of_its_letters() {
    let place = Place::with_web(&[]);
    let (apart, joined) = ("re\u{301}sume\u{301}", "r\u{e9}sum\u{e9}");
    place.file(&format!("{apart}/{apart}.txt"), "one\n");
    let path = format!("{joined}/{joined}.txt");
    for (tool, arguments) in [
        ("read", json!({ "path": path })),
        ("grep", json!({"pattern": "one", "path": path})),
        ("grep", json!({"pattern": "one", "include": format!("**/{joined}.*")})),
        ("glob", json!({ "pattern": path })),
        ("glob", json!({"pattern": format!("*{joined}*")})),
        ("glob", json!({"pattern": "*", "path": joined})),
    ] {
        let found = place.ok(tool, arguments.clone()).await;
        let has = found.contains("one") || found.contains(&format!("{apart}.txt"));
        assert!(has, "{tool} {arguments}: {found}");
    }
    place.ok("edit", json!({"path": path, "old": "one", "new": "two"})).await;
    let patch =
        format!("*** Begin Patch\n*** Update File: {path}\n@@\n-two\n+three\n*** End Patch");
    place.ok("apply_patch", json!({ "patch": patch })).await;
    assert_eq!(place.content(&format!("{apart}/{apart}.txt")), "three\n");
    place.ok("write", json!({"path": path, "content": "four\n"})).await;
    place.ok("write", json!({"path": format!("{joined}/neu-ü.txt"), "content": "new\n"})).await;
    assert_eq!(place.content(&format!("{apart}/{apart}.txt")), "four\n");
    assert_eq!(place.content(&format!("{apart}/neu-ü.txt")), "new\n");
    assert!(!place.root().join(joined).exists());
    // Two names that look alike stay two.
    place.file(&format!("{joined}.md"), "joined\n");
    place.file(&format!("{apart}.md"), "apart\n");
    for (name, text) in [(joined, "joined"), (apart, "apart")] {
        let read = place.ok("read", json!({"path": format!("{name}.md")})).await;
        assert!(read.contains(text), "{read}");
    }
}
