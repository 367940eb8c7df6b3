//! Directories of this machine: their branch, their changes, the names in them, their skills and settings.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, ok};

fn run_git(place: &Path, words: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(words);
    let ended = git.current_dir(place).env("GIT_CONFIG_GLOBAL", "/dev/null").output()?;
    ensure!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

fn write_file(place: &Path, path: &str, text: &str) -> Result<()> {
    let path = place.join(path);
    fs::create_dir_all(path.parent().context("a parent")?)?;
    Ok(fs::write(path, text)?)
}

/// Makes a checkout on the branch `work` with two files, one below `sub`.
fn make_checkout(place: &Path) -> Result<()> {
    run_git(place, &["init", "--quiet", "--initial-branch=work"])?;
    write_file(place, "a.txt", "one\ntwo\n")?;
    write_file(place, "sub/b.txt", "b\n")?;
    write_file(place, ".gitignore", "target\n")?;
    run_git(place, &["add", "."])?;
    run_git(place, &["commit", "--quiet", "--message=first"])
}

struct Client<'w> {
    gateway: Router,
    world: &'w World,
    directory: String,
}

impl<'w> Client<'w> {
    fn new(world: &'w World) -> Self {
        Self { gateway: world.gateway(), world, directory: world.path() }
    }

    /// Asks about the directory `below` the world's.
    async fn get_in(&self, below: &str, path: &str) -> Value {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{mark}directory={}{below}", self.directory);
        ok(&self.gateway, "GET", &path, &self.world.key, None).await
    }

    async fn get(&self, path: &str) -> Value {
        self.get_in("", path).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkout_shows_its_branch_before_its_first_session() -> Result<()> {
    let world = World::new().await?;
    let client = Client::new(&world);
    let place = world.directory.path();
    assert_eq!(client.get("/vcs").await, json!({}));
    assert_eq!(client.get("/project/current").await["vcs"], Value::Null);
    make_checkout(place)?;
    for below in ["", "/sub"] {
        assert_eq!(client.get_in(below, "/vcs").await, json!({ "branch": "work" }), "{below}");
        assert_eq!(client.get_in(below, "/project/current").await["vcs"], "git", "{below}");
    }
    let path = format!("/session?directory={}", client.directory);
    ok(&client.gateway, "POST", &path, &world.key, None).await;
    let listed = client.get("/project").await;
    assert_eq!((&listed[0]["vcs"], listed.as_array().map(Vec::len)), (&json!("git"), Some(1)));
    run_git(place, &["checkout", "--quiet", "--detach"])?;
    assert_eq!(client.get("/vcs").await, json!({}));
    assert_eq!(client.get("/project/current").await["vcs"], "git");
    Ok(())
}

/// Returns of each change the file, the status, the lines that are new and gone, and whether there is a patch.
fn listed_changes(changes: &Value) -> Vec<(&str, &str, i64, i64, bool)> {
    let all = changes.as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |change: &'_ Value| -> (i64, i64, bool) {
        let count = |name: &str| change[name].as_i64().unwrap_or(-1);
        (count("additions"), count("deletions"), change["patch"].is_string())
    };
    all.iter()
        .map(|change| {
            let (additions, deletions, has_patch) = one(change);
            let file = change["file"].as_str().unwrap_or_default();
            let status = change["status"].as_str().unwrap_or_default();
            (file, status, additions, deletions, has_patch)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_says_what_the_working_tree_changed() -> Result<()> {
    let world = World::new().await?;
    let client = Client::new(&world);
    let place = world.directory.path();
    run_git(place, &["init", "--quiet", "--initial-branch=work"])?;
    write_file(place, "first.txt", "1\n")?;
    assert_eq!(
        listed_changes(&client.get("/vcs/diff?mode=git").await),
        [("first.txt", "added", 1, 0, true)]
    );
    fs::remove_file(place.join("first.txt"))?;
    make_checkout(place)?;
    assert_eq!(client.get("/vcs/diff?mode=git").await, json!([]));
    write_file(place, "a.txt", "one\n2\n3\n")?;
    write_file(place, "sub/new \"x\".txt", "new\n")?;
    write_file(place, "target/built", "no\n")?;
    write_file(place, "hidden/key", "secret\n")?;
    write_file(place, "staged.bin", "a\0b")?;
    run_git(place, &["add", "staged.bin"])?;
    fs::remove_file(place.join("sub/b.txt"))?;
    write_file(place, "opencode.json", r#"{ "permission": { "read": { "denied*": "deny" } } }"#)?;
    write_file(place, "denied.txt", "secret\n")?;
    let diff = client.get("/vcs/diff?mode=git").await;
    assert_eq!(
        listed_changes(&diff),
        [
            ("a.txt", "modified", 2, 1, true),
            ("opencode.json", "added", 1, 0, true),
            ("staged.bin", "added", 0, 0, false),
            ("sub/b.txt", "deleted", 0, 1, true),
            ("sub/new \"x\".txt", "added", 1, 0, true),
        ]
    );
    let patch = diff[0]["patch"].as_str().context("a patch")?;
    assert_eq!(patch, "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n");
    let status = client.get_in("/sub", "/vcs/status").await;
    let expected = [("b.txt", "deleted", 0, 1, false), ("new \"x\".txt", "added", 1, 0, false)];
    assert_eq!(listed_changes(&status), expected);
    Ok(())
}

// A repository's files name programs for git to run. None of them runs, and git looks nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_checkout_names_runs() -> Result<()> {
    let world = World::new().await?;
    let client = Client::new(&world);
    let place = world.directory.path();
    make_checkout(place)?;
    let ran = tempfile::tempdir()?;
    let touch = ran.path().join("touch.sh");
    let mark = ran.path().join("ran");
    fs::write(&touch, format!("#!/bin/sh\necho \"$@\" >>{}\ncat\n", mark.display()))?;
    fs::set_permissions(&touch, fs::Permissions::from_mode(0o755))?;
    let run = touch.to_str().context("UTF-8")?;
    for (name, value) in [
        ("core.fsmonitor", run),
        ("core.hooksPath", place.to_str().context("UTF-8")?),
        ("core.worktree", "/etc"),
        ("core.attributesFile", run),
        ("diff.external", run),
        ("diff.bad.textconv", run),
        ("diff.bad.command", run),
        ("filter.bad.clean", run),
        ("filter.bad.smudge", run),
        ("filter.bad.process", run),
        ("filter.bad.required", "true"),
        ("include.path", "../more"),
    ] {
        run_git(place, &["config", name, value])?;
    }
    for hook in ["post-index-change", "fsmonitor-watchman"] {
        fs::copy(&touch, place.join(".git/hooks").join(hook))?;
        fs::copy(&touch, place.join(hook))?;
    }
    write_file(place, ".gitattributes", "* filter=bad diff=bad\n")?;
    write_file(place, "a.txt", "other\n")?;
    write_file(place, "more", &format!("[core]\n\tfsmonitor = {run}\n"))?;
    write_file(place, "inner/file", "")?;
    run_git(&place.join("inner"), &["init", "--quiet"])?;
    run_git(&place.join("inner"), &["config", "core.fsmonitor", run])?;
    let _made_by_the_test = fs::remove_file(&mark);
    let diff = client.get("/vcs/diff?mode=git").await;
    ensure!(listed_changes(&diff).contains(&("a.txt", "modified", 1, 2, true)), "{diff}");
    assert_eq!(client.get("/vcs").await["branch"], "work");
    ensure!(!mark.exists(), "{}", fs::read_to_string(&mark)?);
    // A `.git` that leads elsewhere is no answer of git's, and no branch.
    let other = place.join("other");
    fs::create_dir(&other)?;
    symlink(place.join(".git"), other.join(".git"))?;
    assert_eq!(client.get_in("/other", "/vcs/diff?mode=git").await, json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_after_an_at_are_those_of_the_directory() -> Result<()> {
    let world = World::new().await?;
    let client = Client::new(&world);
    let place = world.directory.path();
    make_checkout(place)?;
    for path in
        ["target/main.rs", "hidden/main.rs", "denied/main.rs", "src/main.rs", "src/deep/lib.rs"]
    {
        write_file(place, path, "")?;
    }
    write_file(place, "opencode.json", r#"{ "permission": { "read": { "denied/*": "deny" } } }"#)?;
    symlink("/etc", place.join("main-link"))?;
    for (query, expected) in [
        ("query=main&dirs=true", json!(["main-link", "src/main.rs"])),
        ("query=main&dirs=false&limit=1", json!(["main-link"])),
        ("query=deep&dirs=true", json!(["src/deep/", "src/deep/lib.rs"])),
        ("query=lib&type=file", json!(["src/deep/lib.rs"])),
        ("query=zzz&dirs=true", json!([])),
    ] {
        assert_eq!(client.get(&format!("/find/file?{query}")).await, expected, "{query}");
    }
    let found = client.get("/api/fs/find?query=src&limit=20").await;
    let entry = |path: &str, kind: &str| json!({ "path": path, "type": kind });
    let expected = json!([
        entry("src/", "directory"),
        entry("src/deep/", "directory"),
        entry("src/main.rs", "file"),
        entry("src/deep/lib.rs", "file"),
    ]);
    assert_eq!(found["data"], expected);
    assert_eq!(found["location"]["directory"], client.directory);
    // Files of a managed workspace are its worker's.
    let path = "/api/fs/find?query=a&location%5Bdirectory%5D=/workspace";
    let (status, body) = call(&client.gateway, "GET", path, &world.key, None).await;
    let said = body["message"].as_str().unwrap_or_default();
    ensure!(status == StatusCode::BAD_REQUEST && said.contains("ask the agent"), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_agents_and_commands_are_there_before_a_session() -> Result<()> {
    let world = World::new().await?;
    let client = Client::new(&world);
    let place = world.directory.path();
    assert_eq!(client.get("/skill").await, json!([]));
    write_file(
        place,
        ".opencode/skills/deploy/SKILL.md",
        "---\nname: deploy\ndescription: Ships it.\n---\nRun it.\n",
    )?;
    write_file(place, ".opencode/skills/mute/SKILL.md", "---\nname: mute\n---\nNo description.\n")?;
    write_file(place, ".opencode/agent/review.md", "---\nmode: primary\n---\nReview.")?;
    write_file(place, ".opencode/command/go.md", "Go to $ARGUMENTS.")?;
    let skill = json!({
        "name": "deploy",
        "description": "Ships it.",
        "location": format!("{}/.opencode/skills/deploy/SKILL.md", client.directory),
        "content": "Run it.",
    });
    assert_eq!(client.get("/skill").await, json!([skill]));
    assert_eq!(client.get("/api/skill").await["data"], json!([skill]));
    let has = |list: &Value, name: &str| {
        list.as_array()
            .is_some_and(|all| all.iter().any(|it| it["name"] == name || it["id"] == name))
    };
    for (path, name) in [("/agent", "review"), ("/command", "go")] {
        let list = client.get(path).await;
        ensure!(has(&list, name), "{path}: {list}");
        let list = client.get(&format!("/api{path}")).await["data"].clone();
        ensure!(has(&list, name), "/api{path}: {list}");
    }
    // And they can be used at once.
    let path = format!("/session?directory={}", client.directory);
    let new = Some(json!({ "agent": "review", "id": "ses_a" }));
    ok(&client.gateway, "POST", &path, &world.key, new).await;
    let prompt = json!({ "agent": "review", "parts": [{ "type": "text", "text": "hi" }] });
    ok(&client.gateway, "POST", "/session/ses_a/prompt_async", &world.key, Some(prompt)).await;
    // The files of a managed workspace are its worker's: no list says that there is none.
    ok(&client.gateway, "POST", "/session", &world.key, None).await;
    let (status, body) = call(&client.gateway, "GET", "/skill", &world.key, None).await;
    let said = body["data"]["message"].as_str().unwrap_or_default();
    ensure!(status == StatusCode::BAD_REQUEST && said.contains("ask the agent"), "{body}");
    Ok(())
}
