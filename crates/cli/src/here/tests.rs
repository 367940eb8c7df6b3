//! The person's repository on the way to a service and back, with the real git.

use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use super::*;

fn git(at: &Path, words: &[&str]) -> String {
    let ran = Command::new("git")
        .args(words)
        .current_dir(at)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b")])
        .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@b")])
        .output()
        .expect("git");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()
}

fn write(top: &Path, name: &str, text: &str) {
    let path = top.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

/// Every file below a folder with its content.
fn all(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(at).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).expect("a file"));
        }
    }
    found
}

/// A repository with something of everything that is not committed, and a hook that would leave a trace.
fn shop() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let top = folder.path().join("shop");
    std::fs::create_dir(&top).expect("a folder");
    git(&top, &["init", "-q", "-b", "main"]);
    for name in ["changed", "staged", "gone", "plain"] {
        write(&top, name, "one\n");
    }
    write(&top, ".gitignore", "target\n*.log\n");
    git(&top, &["add", "-A"]);
    git(&top, &["commit", "-q", "-m", "first"]);
    git(&top, &["remote", "add", "elsewhere", "https://user:secret@h.org/r"]);
    for hook in ["post-index-change", "reference-transaction", "pre-commit"] {
        let path = top.join(".git/hooks").join(hook);
        write(&top, &format!(".git/hooks/{hook}"), "#!/bin/sh\ntouch \"$0.ran\"\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("a mode");
    }
    write(&top, "changed", "two\n");
    write(&top, "staged", "two\n");
    let quiet = ["-c", "core.hooksPath=/dev/null"];
    git(&top, &[&quiet[..], &["add", "staged"]].concat());
    std::fs::remove_file(top.join("gone")).expect("removed");
    write(&top, "new/file", "new\n");
    write(&top, "target/built", "x");
    write(&top, "a.log", "x");
    write(&top, ".env", "KEY=1\n");
    (folder, top)
}

/// Makes a workspace of packs, as a fill does.
fn receive(at: &Path, packs: &Packs, survey: &Survey) {
    git(at, &["init", "-q", "-b", "main"]);
    for (path, _) in [&packs.commits, &packs.changes].into_iter().flatten() {
        let words = format!("git index-pack --stdin --fix-thin --strict <'{}'", path.display());
        git(at, &["-c", &format!("alias.take=!{words}"), "take"]);
    }
    git(at, &["update-ref", "refs/heads/main", &survey.head]);
    match &survey.changes {
        None => drop(git(at, &["reset", "-q", "--hard"])),
        Some(ChangeCommits { staged, wip }) => {
            git(at, &["read-tree", "--reset", "-u", wip]);
            git(at, &["read-tree", "--reset", staged]);
        }
    }
}

#[test]
fn a_repository_goes_as_it_is_and_stays_as_it_was() {
    let (folder, top) = shop();
    let status = git(&top, &["--no-optional-locks", "status", "--porcelain"]);
    let before = all(&top);
    let here = Private::open(&top.join("new")).expect("opened from below");
    let found = survey(&here, &[]).expect("a survey");
    let packs = packs(&here, &found, &[]).expect("packs");
    let text = summary(&here.top, &found, &packs);
    let there = folder.path().join("there");
    std::fs::create_dir(&there).expect("a folder");
    receive(&there, &packs, &found);
    drop(here);
    assert_eq!(all(&top), before, "nothing of the person's has changed, and no hook ran");
    let expected = status.replace("?? .env\n", "");
    assert_eq!(git(&there, &["status", "--porcelain"]), expected);
    assert_ne!(expected, status);
    assert_eq!(git(&there, &["log", "--format=%s"]), "first");
    assert!(!there.join("target").exists() && !there.join(".env").exists());
    assert!(text.contains("4 files, 1 of them untracked"), "{text}");
    assert!(text.contains("ignored: a.log, target/"), "{text}");
    assert!(text.contains("secret (--include PATH sends it): .env"), "{text}");
    assert!(!text.contains("user:secret"), "{text}");
}

#[test]
fn what_the_service_has_is_not_sent_again() {
    let (_folder, top) = shop();
    let here = Private::open(&top).expect("opened");
    let found = survey(&here, &[PathBuf::from(".env")]).expect("a survey");
    assert!(found.kept_back.is_empty());
    let sent = packs(&here, &found, std::slice::from_ref(&found.head)).expect("packs");
    assert!(sent.commits.is_none() && sent.lacking == 0);
    let (path, bytes) = sent.changes.expect("changes");
    let taken =
        here.run(["index-pack", "--stdin", "--fix-thin"], &std::fs::read(path).expect("a pack"));
    taken.expect("a pack that leans on the commit");
    assert!(bytes < 2_000, "{bytes}");
}

#[test]
fn tracked_secrets_are_asked_about() {
    let (_folder, top) = shop();
    write(&top, "deploy/server.pem", "x\n");
    let quiet = ["-c", "core.hooksPath=/dev/null"];
    git(&top, &[&quiet[..], &["add", "deploy"]].concat());
    git(&top, &[&quiet[..], &["commit", "-q", "-m", "a key"]].concat());
    write(&top, "plain", &format!("token ghp_{}\n", "a".repeat(36)));
    let here = Private::open(&top).expect("opened");
    let found = survey(&here, &[]).expect("a survey");
    assert_eq!(found.secret_commits, [PathBuf::from("deploy/server.pem")]);
    assert_eq!(found.secret_changes, [PathBuf::from("plain")]);
    let found = survey(&Private::open(&top).expect("opened"), &[".".into()]).expect("a survey");
    assert!(found.secret_commits.is_empty() && found.secret_changes.is_empty());
}

// A newcomer's dry run did not name a tracked `.env`, which the real run then refused.
#[test]
fn a_dry_run_names_tracked_secrets() {
    let (_folder, top) = shop();
    let here = Private::open(&top).expect("opened");
    let found = survey(&here, &[]).expect("a survey");
    let sent = packs(&here, &found, &[]).expect("packs");
    assert_eq!(warn_of_secrets(&found, &sent, false), None, "an untracked `.env` stays");
    let quiet = ["-c", "core.hooksPath=/dev/null"];
    git(&top, &[&quiet[..], &["add", ".env"]].concat());
    git(&top, &[&quiet[..], &["commit", "-q", "-m", "settings", ".env"]].concat());
    let here = Private::open(&top).expect("opened");
    let found = survey(&here, &[]).expect("a survey");
    let sent = packs(&here, &found, &[]).expect("packs");
    for (can_ask, consequence) in [(false, "refuses to send them"), (true, "asks before")] {
        let warning = warn_of_secrets(&found, &sent, can_ask).expect("a warning");
        assert!(warning.starts_with("tracked files look like secrets: .env. "), "{warning}");
        assert!(warning.contains(consequence) && warning.contains("--include PATH"), "{warning}");
    }
    let sent = packs(&here, &found, std::slice::from_ref(&found.head)).expect("packs");
    assert_eq!(warn_of_secrets(&found, &sent, false), None, "the service has the commit");
}

#[test]
fn what_cannot_go_is_refused_with_a_way_out() {
    let folder = TempDir::new().expect("a folder");
    git(folder.path(), &["init", "-q"]);
    let refused = |include: &[PathBuf]| {
        let here = Private::open(folder.path()).expect("opened");
        survey(&here, include).map(drop).map_err(|error| error.to_string())
    };
    assert!(refused(&[]).is_err_and(|told| told.contains("no commit yet")));
    write(folder.path(), ".gitignore", "*.log\n");
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    write(folder.path(), "a.log", "x");
    assert!(refused(&["a.log".into()]).is_err_and(|told| told.contains("keeps no ignored files")));
    let large = std::fs::File::create(folder.path().join("large")).expect("a file");
    large.set_len((64 << 20) + 1).expect("a length");
    assert!(refused(&[]).is_err_and(|told| told.contains("64 MiB") && told.contains("large")));
}
