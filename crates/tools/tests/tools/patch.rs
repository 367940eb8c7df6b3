//! `apply_patch`, `todowrite` and `todoread`.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn patch(body: &str) -> Value {
    json!({ "patchText": format!("*** Begin Patch\n{body}\n*** End Patch") })
}

fn paths(touched: &Touched) -> Vec<&str> {
    let Touched::Paths(paths) = touched else { panic!("{touched:?}") };
    paths.iter().map(String::as_str).collect()
}

#[test]
fn the_tools_of_the_web_come_with_it() {
    let place = Place::with_web(&[]);
    let names: Vec<_> = place.registry.definitions().map(|tool| tool.name.as_str()).collect();
    let expected = [
        "apply_patch",
        "edit",
        "glob",
        "grep",
        "question",
        "read",
        "shell",
        "skill",
        "todoread",
        "todowrite",
        "webfetch",
        "write",
    ];
    assert_eq!(names, expected);
    let class = |name: &str| place.registry.class(name);
    assert_eq!(class("apply_patch"), ToolClass::Probe);
    for pure in ["question", "todoread", "todowrite", "webfetch"] {
        assert_eq!(class(pure), ToolClass::Pure, "{pure}");
    }
}

#[tokio::test]
async fn a_patch_adds_changes_moves_and_deletes() {
    let place = Place::with_web(&[]);
    place.file("b", "gone\n");
    place.file("c", "one\ntwo\nthree\n");
    place.file("d/e", "x\ny\n");
    let body = "*** Add File: new/a\n+1\n+2\n*** Delete File: b\n*** Update File: c\n@@\n one\n-two\n+2\n three\n\
                *** Update File: d/e\n*** Move to: f/g\n@@\n-x\n+z\n y";
    let settled = place.settled("apply_patch", patch(body)).await;
    assert_eq!(settled.output, "Applied:\nA new/a\nD b\nM c\nM d/e -> f/g");
    assert_eq!(place.content("new/a"), "1\n2\n");
    assert_eq!(place.content("c"), "one\n2\nthree\n");
    assert_eq!(place.content("f/g"), "z\ny\n");
    assert!(!place.root().join("b").exists() && !place.root().join("d/e").exists());
    assert_eq!(paths(&settled.touched), ["b", "c", "d/e", "f/g", "new/a"]);
    let structured = settled.structured.unwrap();
    assert!(structured["diff"].as_str().unwrap().contains("-two\n+2\n"), "{structured}");
}

#[tokio::test]
async fn a_patch_that_does_not_fit_writes_nothing() {
    let place = Place::with_web(&[]);
    place.file("a", "one\n");
    place.file("b", "x\n");
    place.file("bin", "\u{1}");
    std::fs::write(place.root().join("bin"), [0xff, 0xfd]).unwrap();
    symlink("a", place.root().join("link")).unwrap();
    let first = "*** Update File: a\n@@\n-one\n+two\n";
    for (second, said) in [
        ("*** Update File: b\n@@\n-y\n+z", "b, hunk 1: its lines are not in the file"),
        ("*** Update File: bb\n@@\n-y\n+z", "Did you mean b?"),
        ("*** Add File: b\n+z", "exists already"),
        ("*** Update File: b\n*** Move to: a2\n*** Delete File: missing", "does not exist"),
        ("*** Update File: b\n*** Move to: bin", "exists already"),
        ("*** Delete File: bin", "not UTF-8"),
        ("*** Add File: ../out\n+z", "denied"),
        ("*** Add File: /etc/out\n+z", "denied"),
        ("*** Update File: link\n@@\n-one\n+three", "are one file, a"),
        ("*** Update File: ./a\n@@\n-one\n+three", "are one file, a"),
        ("*** Update File: b\n@@\nz", "begins with a space"),
    ] {
        let settled = place.settled("apply_patch", patch(&format!("{first}{second}"))).await;
        assert!(settled.output.contains(said), "{second}: {}", settled.output);
        assert_eq!((settled.kind, settled.touched), (ToolOutcomeKind::Failed, Touched::Nothing));
        assert_eq!((place.content("a").as_str(), place.content("b").as_str()), ("one\n", "x\n"));
    }
    assert!(place.fails("apply_patch", patch("")).await.contains("no file"));
}

// The public report opencode#45310: a move to the file itself, by a detour over a missing folder, removed it.
#[tokio::test]
async fn a_detour_over_a_missing_folder_names_the_same_file() {
    let place = Place::with_web(&[]);
    place.file("same.txt", "one\n");
    std::fs::create_dir(place.root().join("d")).unwrap();
    symlink("q/../same.txt", place.root().join("link")).unwrap();
    symlink("d", place.root().join("other")).unwrap();
    for (body, said) in [
        ("*** Update File: same.txt\n*** Move to: a/../same.txt\n@@\n-one\n+two", "exists already"),
        ("*** Add File: a/../same.txt\n+x", "exists already"),
        ("*** Add File: /workspace/a/b/../../same.txt\n+x", "exists already"),
        ("*** Add File: link\n+x", "exists already"),
        ("*** Add File: new\n+1\n*** Add File: a/../new\n+2", "are one file, new"),
        ("*** Add File: d/new\n+1\n*** Add File: other/new\n+2", "are one file, d/new"),
        ("*** Add File: d/new\n+1\n*** Add File: d/../d/./new\n+2", "are one file, d/new"),
        ("*** Add File: a/../../out\n+x", "denied"),
    ] {
        let output = place.fails("apply_patch", patch(body)).await;
        assert!(output.contains(said), "{body}: {output}");
        assert_eq!(place.content("same.txt"), "one\n", "{body}");
        for made in ["a", "q", "new", "d/new"] {
            assert!(!place.root().join(made).exists(), "{body}: {made}");
        }
    }
    place.ok("apply_patch", patch("*** Update File: a/../same.txt\n@@\n-one\n+two")).await;
    place.ok("edit", json!({"path": "a/../same.txt", "old": "two", "new": "three"})).await;
    assert_eq!(place.content("same.txt"), "three\n");
    let write = json!({"path": "a/b/../../same.txt", "content": "four\n"});
    assert!(place.ok("write", write).await.starts_with("Wrote"));
    assert_eq!(place.content("same.txt"), "four\n");
    place.ok("apply_patch", patch("*** Delete File: a/../same.txt")).await;
    assert!(!place.root().join("same.txt").exists() && !place.root().join("a").exists());
}

#[tokio::test]
async fn an_error_midway_says_what_was_written() {
    let place = Place::with_web(&[]);
    place.file("a", "one\n");
    place.file("b", "");
    // More directories than one write may make.
    let deep = "d/".repeat(80);
    let body = format!(
        "*** Update File: a\n@@\n-one\n+two\n*** Add File: {deep}f\n+x\n*** Delete File: b"
    );
    let settled = place.settled("apply_patch", patch(&body)).await;
    assert!(settled.output.contains("Written before that: M a."), "{}", settled.output);
    assert_eq!((settled.kind, settled.touched), (ToolOutcomeKind::Failed, Touched::Anything));
    assert_eq!(place.content("a"), "two\n");
    assert!(place.root().join("b").exists());
}

#[tokio::test]
async fn a_probe_of_a_patch_sees_all_or_nothing() {
    let place = Place::with_web(&[]);
    let body = "*** Add File: a\n+1\n*** Delete File: b\n*** Update File: c\n@@\n-x\n+y\n*** Update File: d\n*** Move to: e\n@@\n-p\n+q";
    let probe = async || {
        let call = call("apply_patch", &patch(body));
        match place.registry.probe(&call, &place.context).await {
            Probe::Done(outcome) => {
                assert_eq!(outcome.kind, ToolOutcomeKind::Completed);
                "done"
            }
            Probe::NotDone => "not done",
            Probe::Unclear => "unclear",
        }
    };
    place.file("b", "");
    place.file("c", "x\n");
    place.file("d", "p\n");
    assert_eq!(probe().await, "not done");
    place.file("a", "1\n");
    assert_eq!(probe().await, "unclear", "the first of four");
    std::fs::remove_file(place.root().join("a")).unwrap();
    place.ok("apply_patch", patch(body)).await;
    assert_eq!(probe().await, "done");
    place.file("a", "2\n");
    assert_eq!(probe().await, "unclear");
    place.file("a", "1\n");
    place.file("d", "p\n");
    assert_eq!(probe().await, "unclear", "both names of the moved file are there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_of_the_same_files_wait_for_each_other() {
    let place = Arc::new(Place::with_web(&[]));
    for file in ["a", "b", "c"] {
        place.file(file, &(0..20).map(|n| format!("[{n}]\n")).collect::<String>());
    }
    let mut threads = Vec::new();
    for n in 0..20 {
        let place = place.clone();
        threads.push(std::thread::spawn(move || {
            let order = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]][n % 3];
            let body =
                order.map(|file| format!("*** Update File: {file}\n@@\n-[{n}]\n+<{n}>")).join("\n");
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(place.ok("apply_patch", patch(&body)))
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let expected: String = (0..20).map(|n| format!("<{n}>\n")).collect();
    for file in ["a", "b", "c"] {
        assert_eq!(place.content(file), expected);
    }
}

#[tokio::test]
async fn a_list_of_tasks_is_its_structured_result() {
    let place = Place::with_web(&[]);
    let todos = json!([
        {"id": "1", "content": "read  it", "status": "completed", "priority": "high"},
        {"content": "write it", "status": "in_progress"},
    ]);
    let settled = place.settled("todowrite", json!({ "todos": todos })).await;
    assert_eq!(
        settled.output,
        "The list has 2 tasks, 1 of them open:\n[x] read it (high)\n[>] write it"
    );
    let expected = json!([
        {"id": "1", "content": "read  it", "status": "completed", "priority": "high"},
        {"content": "write it", "status": "in_progress", "priority": "medium"},
    ]);
    assert_eq!((settled.structured, settled.touched), (Some(expected), Touched::Nothing));
    assert_eq!(place.ok("todowrite", json!({"todos": []})).await, "The list is empty.");
    for (todos, said) in [
        (json!([{"content": " ", "status": "pending"}]), "task 1 needs a text"),
        (json!([{"content": "a", "status": "done"}]), "unknown variant"),
        (json!([{"content": "a"}]), "missing field `status`"),
        (json!(vec![json!({"content": "a", "status": "pending"}); 101]), "more than 100"),
        (
            json!([{"id": "1", "content": "a", "status": "pending"}, {"id": "1", "content": "b", "status": "pending"}]),
            "two tasks",
        ),
    ] {
        let message = place.fails("todowrite", json!({ "todos": todos })).await;
        assert!(message.contains(said), "{message}");
    }
}

/// A list that was written, or that cannot be read.
struct Written(Result<Option<&'static str>, &'static str>);

#[async_trait::async_trait]
impl TaskList for Written {
    async fn tasks(&self) -> Result<Option<String>, Unlisted> {
        Ok(self.0.map(|list| list.map(str::to_owned))?)
    }
}

#[tokio::test]
async fn todoread_shows_the_list_that_was_written() {
    let mut place = Place::with_web(&[]);
    let none = place.fails("todoread", json!({})).await;
    assert_eq!(none, "there is no list of tasks here");
    let list = r#"[{"content": "write it", "status": "in_progress", "priority": "high"}]"#;
    for (list, said) in [
        (Ok(Some(list)), "The list has 1 tasks, 1 of them open:\n[>] write it (high)"),
        (Ok(None), "The list is empty."),
    ] {
        place.context.tasks = Some(Arc::new(Written(list)));
        assert_eq!(place.ok("todoread", json!({})).await, said);
    }
    place.context.tasks = Some(Arc::new(Written(Err("the database is away"))));
    let failed = place.fails("todoread", json!({})).await;
    assert_eq!(failed, "the list cannot be read now (the database is away); try again later");
}
