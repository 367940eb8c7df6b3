//! Files of a person's directory that tools leave alone: git's own, the service's, credentials.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sandbox::{Cell, HiddenPaths};
use serde_json::json;

use super::Place;

/// A place in a checkout of a person.
fn checkout() -> Place {
    let mut place = Place::with_web(&[]);
    place.context.cell = Cell { protect: true, ..Cell::default() };
    place.file(".git/config", "[core]\n");
    place.file(".git/info/exclude", "");
    place.file("sub/a", "a\n");
    place
}

fn add(path: &str) -> serde_json::Value {
    json!({ "patch": format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n") })
}

async fn is_refused(place: &Place, path: &str) {
    let update = format!(
        "*** Begin Patch\n*** Update File: sub/a\n*** Move to: {path}\n@@\n-a\n+b\n*** End Patch\n"
    );
    for (name, arguments) in [
        ("write", json!({"path": path, "content": "x"})),
        ("apply_patch", add(path)),
        ("apply_patch", json!({ "patch": update })),
    ] {
        let message = place.fails(name, arguments).await;
        assert!(message.contains("git obeys it"), "{name} {path}: {message}");
    }
}

// Finding security-3 H3: the person's next `git status` outside runs what `core.fsmonitor` says.
#[tokio::test]
async fn no_tool_writes_what_git_obeys_in_a_checkout() {
    let place = checkout();
    symlink(".git", place.root().join("alias")).unwrap();
    symlink("../.git/info", place.root().join("sub/info")).unwrap();
    fs::create_dir_all(place.root().join("module/.git")).unwrap();
    for path in [
        ".git/commondir",
        ".git/hooks/pre-commit",
        ".git/info/attributes",
        ".GIT/made",
        "alias/commondir",
        "sub/info/attributes",
        "sub/.git",
        "sub/.Git/config",
        "module/.git/config",
        "new/.git/config",
        "sub/../.git/made",
    ] {
        is_refused(&place, path).await;
    }
    for path in [".git/config", "alias/config"] {
        let edited = place.fails("edit", json!({"path": path, "old": "[core]", "new": "x"})).await;
        assert!(edited.contains("git obeys it"), "{edited}");
        let delete = format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n");
        let deleted = place.fails("apply_patch", json!({ "patch": delete })).await;
        assert!(deleted.contains("git obeys it"), "{deleted}");
    }
    assert_eq!(place.content(".git/config"), "[core]\n");
    for made in ["sub/.git", "sub/.Git", "new", ".GIT", ".git/commondir", ".git/hooks"] {
        assert!(!place.root().join(made).exists(), "{made}");
    }
    // To be read, and beside: as ever.
    assert!(place.ok("read", json!({"path": ".git/config"})).await.contains("[core]"));
    for path in [".gitignore", ".github/workflows/a.yml", "sub/a.git/x", "git/config"] {
        place.ok("write", json!({"path": path, "content": "x"})).await;
    }
}

// Finding security-3 H3: git takes a directory with this layout for a repository, whatever its name is.
#[tokio::test]
async fn no_tool_makes_or_changes_a_bare_repository() {
    let place = checkout();
    place.file("bare/HEAD", "ref: refs/heads/main\n");
    place.file("bare/objects/x", "");
    place.file("bare/refs/x", "");
    place.file("linked/HEAD", "ref: refs/heads/main\n");
    place.file("half/objects/x", "");
    place.file("half/refs/x", "");
    for path in ["bare/config", "bare/hooks/post-checkout", "linked/commondir", "half/HEAD"] {
        is_refused(&place, path).await;
    }
    for path in ["linked/config", "half/config", "half/objects/y"] {
        place.ok("write", json!({"path": path, "content": "x"})).await;
    }
}

#[tokio::test]
async fn a_managed_workspace_has_its_own_git() {
    let place = Place::with_web(&[]);
    place.ok("write", json!({"path": ".git/config", "content": "[core]\n"})).await;
    place.ok("apply_patch", add("bare/HEAD")).await;
}

// Finding security-3 H7: a session in a home read the sealing key and the owner's API key.
#[tokio::test]
async fn what_is_hidden_is_not_read_found_or_written() {
    let mut place = Place::with_web(&[]);
    let root = place.root().to_owned();
    let paths = [".local/share/service", ".netrc", "not-there", "later/file"];
    let hidden = HiddenPaths::new(paths.map(|path| root.join(path)));
    place.context.cell = Cell { protect: true, hidden, ..Cell::default() };
    place.file(".local/share/service/deep/secrets.key", "s3cret\n");
    place.file(".netrc", "s3cret\n");
    place.file("open", "s3cret by itself\n");
    symlink(".local/share/service", root.join("link")).unwrap();
    symlink(".local/share/service/deep/secrets.key", root.join("AGENTS.md")).unwrap();
    fs::hard_link(root.join(".netrc"), root.join("hard")).unwrap();
    for path in [
        ".local/share/service",
        ".local/share/service/deep",
        ".local/share/service/deep/secrets.key",
        ".netrc",
        "hard",
        "link/deep/secrets.key",
        "AGENTS.md",
    ] {
        for (name, arguments) in [
            ("read", json!({"path": path})),
            ("grep", json!({"path": path, "pattern": "s3cret"})),
            ("write", json!({"path": path, "content": "x"})),
            ("edit", json!({"path": path, "old": "s3cret", "new": "x"})),
        ] {
            let message = place.fails(name, arguments).await;
            assert!(message.contains("the service's own data"), "{name} {path}: {message}");
        }
    }
    for path in ["not-there", "not-there/a", "later/file", "link/new"] {
        let message = place.fails("write", json!({"path": path, "content": "x"})).await;
        assert!(message.contains("the service's own data"), "{path}: {message}");
    }
    let found = place.ok("grep", json!({"pattern": "s3cret"})).await;
    assert!(found.contains("open:1:") && !found.contains(":1:s3cret\n"), "{found}");
    let found = place.ok("glob", json!({"pattern": "**/*.key"})).await;
    assert!(!found.contains("secrets.key"), "{found}");
    place.ok("write", json!({"path": "later/other", "content": "x"})).await;
    assert_eq!(place.content(".netrc"), "s3cret\n");
}

// Finding security-3 M1: a session above replaced the directory by a link, and this session acted in its target.
#[tokio::test]
async fn a_root_that_became_a_link_is_not_used() {
    let place = Place::with_web(&[]);
    place.file("a", "a\n");
    place.ok("read", json!({"path": "a"})).await;
    let other = place.folder.path().join("other");
    fs::rename(place.root(), &other).unwrap();
    symlink(&other, place.root()).unwrap();
    for (name, arguments) in [
        ("read", json!({"path": "a"})),
        ("write", json!({"path": "b", "content": "x"})),
        ("glob", json!({"pattern": "*"})),
    ] {
        let message = place.fails(name, arguments).await;
        assert!(message.contains("cannot be used"), "{name}: {message}");
    }
    assert!(!Path::new(&other).join("b").exists());
}
