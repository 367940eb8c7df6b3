//! Attack 41: a service that means harm sends a bundle or a patch to somebody's machine.

use std::collections::BTreeMap;

use tempfile::TempDir;

use super::*;
use crate::output::Output;

fn git(at: &Path, words: &[&str]) -> (bool, String) {
    let ran = Command::new("git")
        .args(words)
        .current_dir(at)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b")])
        .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@b")])
        .output()
        .expect("git");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    (ran.status.success(), said.trim_end().to_owned())
}

fn make(at: &Path, words: &[&str]) -> String {
    let (succeeded, said) = git(at, words);
    assert!(succeeded, "{words:?}: {said}");
    said
}

/// All files below a folder but objects, which git may keep of a fetch that it refused.
fn all(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(at).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.ends_with(".git/objects") {
            continue;
        }
        if path.is_symlink() {
            let target = std::fs::read_link(&path).expect("a link");
            found.insert(path.clone(), target.as_os_str().as_bytes().to_vec());
        } else if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).expect("a file"));
        }
    }
    found
}

/// Somebody's repository, and the service's clone of it. Each hook of the person's would leave a trace.
fn world() -> (TempDir, PathBuf, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let (mine, theirs) = (folder.path().join("mine"), folder.path().join("theirs"));
    std::fs::create_dir(&mine).expect("a folder");
    make(&mine, &["init", "-q", "-b", "main"]);
    std::fs::write(mine.join("a"), "one\n").expect("a file");
    make(&mine, &["add", "-A"]);
    make(&mine, &["commit", "-q", "-m", "first"]);
    make(folder.path(), &["clone", "-q", "mine", "theirs"]);
    for hook in ["reference-transaction", "post-checkout", "post-merge"] {
        let path = mine.join(".git/hooks").join(hook);
        std::fs::write(&path, "#!/bin/sh\ntouch \"$0.ran\"\n").expect("a hook");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("a mode");
    }
    (folder, mine, theirs)
}

fn id() -> SessionId {
    "ses_0123456789abcdefghijklmnop".parse().expect("an id")
}

fn args(branch: Option<&str>) -> PullArgs {
    PullArgs {
        id: None,
        branch: branch.map(str::to_owned),
        worktree: None,
        apply: false,
        to: ".".into(),
    }
}

#[test]
fn a_bundle_gives_one_ref_whatever_is_in_it() {
    let (folder, mine, theirs) = world();
    std::fs::write(theirs.join("b"), "work\n").expect("a file");
    make(&theirs, &["add", "-A"]);
    make(&theirs, &["commit", "-q", "-m", "work"]);
    // More than the work: a branch of the person's, a tag, and a ref of another session.
    for name in ["refs/oc/head", "refs/heads/main", "refs/tags/v1", "refs/oc/other"] {
        make(&theirs, &["update-ref", name, "HEAD"]);
    }
    let bundle = folder.path().join("bundle");
    let path = bundle.display().to_string();
    make(&theirs, &["bundle", "create", "-q", &path, "--all", "^HEAD~1"]);
    assert_eq!(make(&mine, &["bundle", "list-heads", &path]).lines().count(), 5, "git sees all");
    let before = all(&mine);
    let here = Here(mine.clone());
    let (name, commit) = take(&here, &id(), &args(None), &bundle, false).expect("taken");
    let mut after = all(&mine);
    assert_eq!(after.remove(&mine.join(".git").join(&name)), Some(commit.into_bytes()));
    assert_eq!(after, before, "one ref is new, no file has changed and no hook ran");
    // It never moves a branch back or aside.
    make(&theirs, &["commit", "-q", "--amend", "-m", "other"]);
    make(&theirs, &["update-ref", "refs/oc/head", "HEAD"]);
    make(&theirs, &["bundle", "create", "-q", &path, "refs/oc/head", "^HEAD~1"]);
    make(&mine, &["-c", "core.hooksPath=/dev/null", "branch", "fix", &name]);
    let before = all(&mine);
    let refused =
        take(&here, &id(), &args(Some("fix")), &bundle, false).expect_err("no fast-forward");
    assert!(refused.to_string().contains("refused"), "{refused}");
    assert_eq!(all(&mine), before);
}

#[test]
fn a_bundle_that_means_harm_is_refused_whole() {
    let (folder, mine, theirs) = world();
    let script = "set -e; blob=$(echo '[core]' | git hash-object -w --stdin); \
                  inner=$(printf '100644 blob %s\\tconfig\\n' $blob | git mktree); \
                  tree=$(printf '040000 tree %s\\t.GIT\\n' $inner | git mktree); \
                  git update-ref refs/oc/head $(git commit-tree -p HEAD -m x $tree)";
    make(&theirs, &["-c", &format!("alias.make=!f() {{ {script}; }}; f"), "make"]);
    let bundle = folder.path().join("bundle");
    let path = bundle.display().to_string();
    make(&theirs, &["bundle", "create", "-q", &path, "refs/oc/head", "^HEAD"]);
    make(folder.path(), &["clone", "-q", "mine", "other"]);
    let bare = ["fetch", "-q", &path, "refs/oc/head:refs/oc/x"];
    make(&folder.path().join("other"), &bare);
    let before = all(&mine);
    let here = Here(mine.clone());
    let refused = take(&here, &id(), &args(None), &bundle, false).expect_err("fsck").to_string();
    assert!(refused.contains("hasDotgit"), "{refused}");
    std::fs::write(&bundle, "no bundle").expect("a file");
    take(&here, &id(), &args(None), &bundle, false).expect_err("no bundle");
    for name in ["../x", "a..b", "-x/.lock", "a b"] {
        take(&here, &id(), &args(Some(name)), &bundle, false).expect_err(name);
    }
    assert_eq!(all(&mine), before);
}

#[test]
fn a_patch_that_means_harm_changes_nothing() {
    let (folder, mine, _) = world();
    std::os::unix::fs::symlink(folder.path(), mine.join("link")).expect("a link");
    let patch = folder.path().join("patch");
    for path in [".git/hooks/pre-commit", "../outside", "link/outside", ".GIT/config"] {
        let text = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100755\nindex 0000000..5626abf\n--- /dev/null\n+++ b/{path}\n\
             @@ -0,0 +1 @@\n+one\n"
        );
        std::fs::write(&patch, text).expect("a file");
        let before = all(folder.path());
        let unseen = || Output::new(Box::new(Vec::new()), false);
        let mut screen = Screen { out: unseen(), err: unseen() };
        let ended = apply(&mine, &patch, &mut screen);
        let is_refused = matches!(ended, Err(CliError::Usage(_)));
        assert!(is_refused, "{path}: {ended:?}");
        assert_eq!(all(folder.path()), before, "{path}");
    }
}

// Finding trial-3 24: "a repository of session … was not found; `session list` shows what this key can see".
#[test]
fn a_session_without_a_clone_says_where_its_work_is() {
    let folder = TempDir::new().expect("a folder");
    let own = folder.path().to_str().expect("UTF-8");
    let told = describe_place(&id(), own, true);
    assert!(told.contains("in your own files") && told.contains("nothing to pull"), "{told}");
    for (directory, shares_paths) in [("/workspace/x", true), (own, false)] {
        let told = describe_place(&id(), directory, shares_paths);
        assert!(
            told.contains("no git repository") && told.contains("session diff ses_0"),
            "{told}"
        );
    }
}
