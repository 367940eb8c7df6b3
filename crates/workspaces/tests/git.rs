//! The command lines of fills against the real git, on repositories that these tests made.
#![expect(clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use git_wire::Oid;
use tempfile::TempDir;
use workspaces::{
    Address, FillBounds, Git, Measured, OutFound, Pinned, Skeleton, bundle, check_out,
    check_out_missing, index_pack, measure, parse_refs, patch, skeleton,
};

fn raw(directory: &Path, program: &str, args: &[&str]) -> (bool, String) {
    let ran = Command::new(program)
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b")])
        .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@b")])
        .output()
        .expect("a program");
    let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    (ran.status.success(), text.trim().to_owned())
}

fn git(directory: &Path, args: &[&str]) -> String {
    let (succeeded, said) = raw(directory, "git", args);
    assert!(succeeded, "{args:?}: {said}");
    said
}

/// Runs a command of a fill.
fn run(directory: &Path, git: &Git) -> (bool, String) {
    let args: Vec<&str> = git.args.iter().map(String::as_str).collect();
    raw(directory, git.program, &args)
}

fn succeed(directory: &Path, git: &Git) -> String {
    let (succeeded, said) = run(directory, git);
    assert!(succeeded, "{git:?}: {said}");
    said
}

struct World {
    folder: TempDir,
    commit: Oid,
}

impl World {
    /// Makes a repository with what `make` leaves, packed to `incoming.pack` in `scratch`.
    fn new(make: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = folder.path().join("origin");
        std::fs::create_dir(&origin).expect("a folder");
        git(&origin, &["init", "-q", "-b", "main"]);
        make(&origin);
        let commit = git(&origin, &["rev-parse", "HEAD"]).parse().expect("an id");
        git(folder.path(), &["init", "-q", "--bare", "scratch"]);
        let pack = "git pack-objects --all --stdout </dev/null >../scratch/incoming.pack";
        assert!(raw(&origin, "sh", &["-c", pack]).0);
        Self { folder, commit }
    }

    fn scratch(&self) -> std::path::PathBuf {
        self.folder.path().join("scratch")
    }

    /// Makes the workspace as a fill does, and returns its folder.
    fn filled(&self) -> std::path::PathBuf {
        succeed(&self.scratch(), &index_pack());
        let root = self.folder.path().join("workspace");
        let dot = root.join(".git");
        for folder in Skeleton::folders() {
            std::fs::create_dir_all(dot.join(folder)).expect("a folder");
        }
        for end in ["pack", "idx"] {
            let to = dot.join(format!("objects/pack/pack-x.{end}"));
            std::fs::copy(self.scratch().join(format!("incoming.{end}")), to).expect("a copy");
        }
        let refs = parse_refs(&format!("{} - refs/heads/main\n", self.commit)).expect("refs");
        let address = Address::parse("https://h.org/r").expect("an address");
        let pinned = Pinned { commit: self.commit, branch: Some(refs[0].name.clone()) };
        let made = skeleton(&address, &pinned, &refs);
        for (name, text) in
            [("HEAD", made.head), ("config", made.config), ("packed-refs", made.packed_refs)]
        {
            std::fs::write(dot.join(name), text).expect("a file");
        }
        succeed(&root, &check_out());
        root
    }
}

fn write(root: &Path, name: &str, text: &str) {
    std::fs::write(root.join(name), text).expect("a file");
}

fn small() -> World {
    World::new(|origin| {
        write(origin, "a", "one\n");
        write(origin, "b c", "two and\n");
        write(origin, "\u{e9}\"x", "three\n");
        git(origin, &["add", "."]);
        git(origin, &["commit", "-q", "-m", "first"]);
    })
}

#[test]
fn a_filled_workspace_is_a_clean_clone() {
    let world = small();
    let root = world.filled();
    let line = succeed(&root, &measure(world.commit, &FillBounds::default()));
    let found = Measured::parse(&line).expect("a line");
    assert_eq!(found, Measured { entries: 3, tree_bytes: 18, file_bytes: 8 });
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert_eq!(git(&root, &["status", "-sb"]), "## main...origin/main");
    assert_eq!(git(&root, &["fsck", "--strict"]), "");
    assert_eq!(git(&root, &["log", "--format=%s"]), "first");
}

#[test]
fn too_many_entries_end_the_measure() {
    let world = small();
    let root = world.filled();
    let bounds = FillBounds { entries: 1, ..FillBounds::default() };
    let line = succeed(&root, &measure(world.commit, &bounds));
    assert!(Measured::parse(&line).expect("a line").within(&bounds).is_err(), "{line}");
    let nothing: Oid = "1".repeat(40).parse().expect("an id");
    assert!(!run(&root, &measure(nothing, &bounds)).0, "a commit that is not there");
}

#[test]
fn files_that_no_snapshot_had_come_back() {
    let world = small();
    let root = world.filled();
    for name in ["b c", "\u{e9}\"x"] {
        std::fs::remove_file(root.join(name)).expect("removed");
    }
    std::fs::remove_file(root.join("a")).expect("removed");
    succeed(&root, &check_out_missing(4));
    assert!(
        root.join("\u{e9}\"x").exists() && !root.join("a").exists(),
        "small ones are in snapshots"
    );
    assert_eq!(std::fs::read_to_string(root.join("b c")).expect("a file"), "two and\n");
}

#[test]
fn work_goes_out_as_patch_and_bundle() {
    let world = small();
    let root = world.filled();
    let to = root.join(".git/oc-out").display().to_string();
    let nothing = OutFound::parse(&succeed(&root, &bundle(world.commit, &to))).expect("a line");
    assert!(nothing.is_nothing(world.commit) && !Path::new(&to).exists());
    write(&root, "a", "changed\n");
    git(&root, &["commit", "-q", "-am", "theirs"]);
    write(&root, "new", "untracked\n");
    succeed(&root, &patch(world.commit, &to));
    let origin = world.folder.path().join("origin");
    git(&origin, &["apply", "--check", &to]);
    let text = std::fs::read_to_string(&to).expect("a patch");
    assert!(text.contains("+changed") && text.contains("+untracked"), "{text}");
    let found = OutFound::parse(&succeed(&root, &bundle(world.commit, &to))).expect("a line");
    let again = OutFound::parse(&succeed(&root, &bundle(world.commit, &to))).expect("a line");
    assert_eq!(again, found, "the same files, the same commits");
    git(&origin, &["fetch", "-q", &to, "refs/oc/*:refs/oc/*"]);
    assert_eq!(git(&origin, &["rev-parse", "refs/oc/head"]), found.head.to_string());
    assert_eq!(git(&origin, &["show", "refs/oc/wip:new"]), "untracked");
    assert_eq!(git(&origin, &["log", "--format=%s", "refs/oc/head"]), "theirs\nfirst");
    assert_eq!(git(&root, &["status", "--porcelain"]), "?? new", "the session's own index stays");
    // Only what is not committed.
    git(&root, &["reset", "-q", "--hard", &world.commit.to_string()]);
    std::fs::remove_file(&to).expect("removed");
    let found = OutFound::parse(&succeed(&root, &bundle(world.commit, &to))).expect("a line");
    assert!(found.head == world.commit && found.wip.is_some() && Path::new(&to).exists());
}

/// A tree that has `.GIT/config` would, on a disk that knows no upper case, become the repository's configuration.
#[test]
fn a_tree_with_a_hidden_git_folder_is_refused() {
    let world = World::new(|origin| {
        let make = "set -e; blob=$(echo '[core]' | git hash-object -w --stdin); \
                    inner=$(printf '100644 blob %s\\tconfig\\n' $blob | git mktree); \
                    tree=$(printf '040000 tree %s\\t.GIT\\n' $inner | git mktree); \
                    git update-ref HEAD $(git commit-tree -m x $tree)";
        assert!(raw(origin, "sh", &["-c", make]).0);
    });
    let bare = Git {
        args: ["index-pack", "-o", "bare.idx", "incoming.pack"].map(str::to_owned).into(),
        ..index_pack()
    };
    assert!(
        run(&world.scratch(), &bare).0,
        "git without fsck takes it, so the probe proves something"
    );
    let (taken, said) = run(&world.scratch(), &index_pack());
    assert!(!taken && said.contains("hasDotgit"), "{said}");
}
