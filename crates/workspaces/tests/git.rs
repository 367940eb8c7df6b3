//! The command lines of fills against the real git, on repositories that these tests made.
#![expect(clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use git_wire::Oid;
use tempfile::TempDir;
use workspaces::{
    Address, FillBounds, Git, Measured, OutFound, Pinned, Skeleton, bundle, check_out,
    check_out_changes, check_out_missing, index_pack, index_upload, measure, parse_refs, patch,
    skeleton, take_upload,
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
        let made = skeleton(Some(&address), &pinned, &refs, &[]);
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
    assert_eq!(found, Measured { entries: 3, tree_bytes: 18, file_bytes: 8, depth: 0 });
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

/// Finding security-3: a tree of 20,000 levels was tried again and again, for a minute each.
#[test]
fn too_many_levels_end_the_measure_soon() {
    let world = small();
    let root = world.filled();
    let make = "printf 'commit refs/heads/deep\\ncommitter A <a@b> 0 +0000\\ndata 0\\nM 100644 inline %sf\\ndata 1\\nx\\n' \
                \"$(printf 'd/%.0s' $(seq 1 1500))\" | git fast-import --quiet && git rev-parse deep";
    let (made, said) = raw(&root, "sh", &["-c", make]);
    assert!(made, "{said}");
    let deep: Oid = said.lines().last().expect("a line").parse().expect("an id");
    let bounds = FillBounds { depth: 50, ..FillBounds::default() };
    let line = succeed(&root, &measure(deep, &bounds));
    let measured = Measured::parse(&line).expect("a line");
    let told = measured.within(&bounds).expect_err("too deep").to_string();
    assert_eq!(told, "it has more than 50 directories in each other");
    assert!(measured.entries < 100, "it ended at the bound: {line}");
    let usual = FillBounds::default();
    let line = succeed(&root, &measure(deep, &usual));
    assert!(Measured::parse(&line).expect("a line").within(&usual).is_err(), "{line}");
}

#[test]
fn files_that_no_snapshot_had_come_back() {
    let world = small();
    let root = world.filled();
    for name in ["b c", "\u{e9}\"x"] {
        std::fs::remove_file(root.join(name)).expect("removed");
    }
    std::fs::remove_file(root.join("a")).expect("removed");
    succeed(&root, &check_out_missing(4, ".git/none"));
    assert!(
        root.join("\u{e9}\"x").exists() && !root.join("a").exists(),
        "small ones are in snapshots"
    );
    assert_eq!(std::fs::read_to_string(root.join("b c")).expect("a file"), "two and\n");
}

#[test]
fn a_large_file_that_was_deleted_does_not_come_back() {
    let world = small();
    let root = world.filled();
    for name in ["a", "b c", "\u{e9}\"x"] {
        std::fs::remove_file(root.join(name)).expect("removed");
    }
    // The newest snapshot knew of one of them, and of one that git does not track.
    write(&root, ".git/list", "zz\0\u{e9}\"x\0");
    succeed(&root, &check_out_missing(0, ".git/list"));
    assert!(
        root.join("\u{e9}\"x").exists() && !root.join("a").exists() && !root.join("b c").exists()
    );
    assert!(!root.join(".git/oc-missing").exists());
}

#[test]
fn changes_are_as_they_were_on_their_machine() {
    let world = small();
    let (scratch, root) = (world.scratch(), world.filled());
    let origin = world.folder.path().join("origin");
    write(&origin, "a", "staged\n");
    git(&origin, &["add", "a"]);
    let commit = |name: &str| {
        let tree = git(&origin, &["write-tree"]);
        git(&origin, &["commit-tree", "-p", "HEAD", "-m", name, &tree])
    };
    let staged = commit("staged");
    write(&origin, "b c", "not staged\n");
    write(&origin, "new", "untracked\n");
    git(&origin, &["add", "-A"]);
    let wip = commit("wip");
    let pack = format!(
        "printf '{wip}\\n{staged}\\n^HEAD\\n' | git pack-objects --revs --thin --stdout -q >../workspace/.git/up"
    );
    assert!(raw(&origin, "sh", &["-c", &pack]).0);
    std::fs::copy(root.join(".git/up"), scratch.join("uploaded")).expect("a copy");
    let wip: Oid = wip.parse().expect("an id");
    // In a repository without the commit that it leans on, the pack is refused.
    let empty = world.folder.path().join("empty");
    git(world.folder.path(), &["init", "-q", "--bare", "empty"]);
    std::fs::copy(root.join(".git/up"), empty.join("uploaded")).expect("a copy");
    assert!(!run(&empty, &index_upload(wip)).0);
    for end in ["pack", "idx"] {
        let to = scratch.join(format!("objects/pack/pack-x.{end}"));
        std::fs::copy(scratch.join(format!("incoming.{end}")), to).expect("a copy");
    }
    let nothing: Oid = "1".repeat(40).parse().expect("an id");
    assert!(!run(&scratch, &index_upload(nothing)).0, "the commit is in no pack");
    std::fs::copy(root.join(".git/up"), scratch.join("uploaded")).expect("a copy");
    let id = succeed(&scratch, &index_upload(wip));
    assert!(id.parse::<Oid>().is_ok() && scratch.join("incoming.idx").exists(), "{id}");
    succeed(&root, &take_upload(".git/up"));
    succeed(&root, &check_out_changes(staged.parse().expect("an id"), wip));
    assert_eq!(git(&root, &["status", "--porcelain"]), "M  a\n M \"b c\"\n?? new");
    git(&root, &["fsck", "--strict", "--no-dangling"]);
    assert!(!root.join(".git/up").exists());
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

/// Makes a repository whose only commit has the tree that a script prints the id of.
fn of_tree(script: &str) -> World {
    World::new(|origin| {
        let make = format!(
            "set -e; blob=$(echo x | git hash-object -w --stdin); tree=$({script}); \
             git update-ref HEAD $(git commit-tree -m x $tree)"
        );
        let (made, said) = raw(origin, "sh", &["-c", &make]);
        assert!(made, "{said}");
    })
}

/// Attacks 19 and 20: names that are `.git` on some disk, a link in its place, and paths out of the tree.
#[test]
fn trees_with_harmful_names_are_refused() {
    let entry =
        |mode: &str, name: &str| format!("printf '{mode} blob %s\\t{name}\\n' $blob | git mktree");
    let cases = [
        (entry("100644", ".git"), "hasDotgit"),
        (entry("120000", ".git"), "hasDotgit"),
        (entry("100644", "git~1"), "hasDotgit"),
        (entry("100644", ".git "), "hasDotgit"),
        (entry("100644", ".g\\342\\200\\214it"), "hasDotgit"),
        (entry("100644", ".."), "hasDotdot"),
        (entry("120000", ".gitmodules"), "gitmodulesSymlink"),
    ];
    for (script, fault) in cases {
        let world = of_tree(&script);
        let bare = Git {
            args: ["index-pack", "-o", "bare.idx", "incoming.pack"].map(str::to_owned).into(),
            ..index_pack()
        };
        assert!(run(&world.scratch(), &bare).0, "git without fsck takes {script}");
        let (taken, said) = run(&world.scratch(), &index_pack());
        assert!(!taken && said.contains(fault), "{script}: {said}");
    }
}

/// Attack 22: a submodule whose address or path is an option or a program.
#[test]
fn submodules_that_run_something_are_refused() {
    let text = "[submodule \\\"x\\\"]\\n\\tpath = -u./x\\n\\turl = -u./evil\\n";
    let script = format!(
        "bad=$(printf \"{text}\" | git hash-object -w --stdin); \
         printf '100644 blob %s\\t.gitmodules\\n' $bad | git mktree"
    );
    let world = of_tree(&script);
    let bare = Git {
        args: ["index-pack", "-o", "bare.idx", "incoming.pack"].map(str::to_owned).into(),
        ..index_pack()
    };
    assert!(run(&world.scratch(), &bare).0, "git without fsck takes it");
    let (taken, said) = run(&world.scratch(), &index_pack());
    assert!(!taken && said.contains("gitmodules"), "{said}");
}

/// Attacks 14 and 15: a few objects that are a tree without end, and a small pack that is a large file.
#[test]
fn bombs_are_measured_and_not_checked_out() {
    let world = of_tree(
        "tree=$(printf '100644 blob %s\\tf\\n' $blob | git mktree); \
         for level in 1 2 3 4 5; do \
         tree=$(for name in a b c d e f g h; do printf '040000 tree %s\\t%s\\n' $tree $name; done | git mktree); \
         done; echo $tree",
    );
    let root = world.scratch();
    succeed(&root, &index_pack());
    for end in ["pack", "idx"] {
        let to = root.join(format!("objects/pack/pack-x.{end}"));
        std::fs::copy(root.join(format!("incoming.{end}")), to).expect("a copy");
    }
    let pack = root.join("incoming.pack").metadata().expect("a pack").len();
    let bounds = FillBounds { entries: 10_000, ..FillBounds::default() };
    let line = succeed(&root, &measure(world.commit, &bounds));
    assert!(pack < 2_000 && Measured::parse(&line).expect("a line").within(&bounds).is_err());
    let whole = git(&root, &["ls-tree", "-r", "--name-only", &world.commit.to_string()]);
    assert_eq!(whole.lines().count(), 32_768, "git itself lists them all");
}
