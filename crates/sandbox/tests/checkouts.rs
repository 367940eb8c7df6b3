//! The files that commands leave in a person's checkout, tried by git outside: nothing that git runs, obeys or writes through.

mod world;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sandbox::{Cell, Command, FoundTier, HiddenPaths, Limits, SandboxError, Tier};
use tokio_util::sync::CancellationToken;
use world::{cells, run, script, tiers};

/// A checkout in its first commit, with a repository in it, and a folder outside that no command may reach.
struct Checkout {
    _folder: tempfile::TempDir,
    place: PathBuf,
    lair: PathBuf,
}

/// Runs git as the person does, who has no settings of their own.
fn git(place: &Path, words: &[&str]) -> String {
    let ended = StdCommand::new("git")
        .args(["-c", "user.name=p", "-c", "user.email=p@q"])
        .args(words)
        .current_dir(place)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_EDITOR", "true")
        .output()
        .expect("git runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&ended.stdout) + &text(&ended.stderr)
}

impl Checkout {
    fn new() -> Self {
        let (folder, place) = world::folder();
        let lair = folder.path().join("lair");
        fs::create_dir_all(lair.join("open")).expect("a folder");
        fs::write(lair.join("victim"), "as it was\n").expect("a file");
        for repository in [place.clone(), place.join("inner")] {
            fs::create_dir_all(&repository).expect("a folder");
            git(&repository, &["init", "-q", "-b", "main", "."]);
            fs::write(repository.join("a"), "a\n").expect("a file");
            fs::write(repository.join(".gitignore"), "inner/\n").expect("a file");
            git(&repository, &["add", "a", ".gitignore"]);
            git(&repository, &["commit", "-qm", "one"]);
        }
        // In tier C commands make no folder beside a `.git`.
        fs::create_dir(place.join("old")).expect("a folder");
        Self { _folder: folder, place, lair }
    }

    fn command(&self, text: &str, name: &str) -> Command {
        let text = text.replace("LAIR", &self.lair.display().to_string());
        let cell = Cell {
            protect: true,
            workspace: Some(self.place.clone()),
            name: name.into(),
            ..Cell::default()
        };
        let command = script(&format!("{WHO}{text}"), &self.place, name);
        Command { cell, ..command }
    }

    /// Whether something has reached the folder outside.
    fn is_reached(&self) -> bool {
        let open = fs::read_dir(self.lair.join("open")).expect("a folder").count();
        open > 0 || fs::read_to_string(self.lair.join("victim")).expect("a file") != "as it was\n"
    }

    /// Uses git as the person does. Returns whether something has reached the folder outside, once or still.
    fn use_git(&self) -> bool {
        let mut is_reached = self.is_reached();
        fs::write(self.place.join("a"), "b\n").expect("a file");
        // Whoever finds a closed folder opens it.
        let mut chmod = StdCommand::new("chmod");
        chmod.args(["-R", "u+rwX", "."]).current_dir(&self.place);
        let _whatever_is_closed = chmod.output().expect("chmod runs");
        for folder in ["", "sub", "pkg", "bare", "inner", "old/pkg", "old/pkg/deep"] {
            let place = self.place.join(folder);
            if place.is_dir() {
                for words in [
                    &["checkout", "."][..],
                    &["status"],
                    &["add", "."],
                    &["commit", "--allow-empty", "-m", "x"],
                    &["branch", "later"],
                    &["rebase", "--continue"],
                    &["gc", "--quiet"],
                ] {
                    git(&place, words);
                    is_reached |= self.is_reached();
                }
            }
        }
        is_reached
    }
}

const WHO: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
                   GIT_CONFIG_GLOBAL=/dev/null; ";

/// Attacks on the person's next git, by name. Finding security-3 H4: the first four got through in tiers A and B, all in C.
///
/// Second look, 1: those that close a folder got through in tiers B and C; 2: those of an index got through in A and B.
const ATTACKS: [(&str, &str); 30] = [
    (
        "rebase",
        "mkdir -p sub && cd sub && git init -q . && git config user.email a@b && git config user.name a && \
         for i in 1 2 3; do git commit -q --allow-empty -m $i; done && \
         GIT_SEQUENCE_EDITOR='printf \"break\\nexec touch LAIR/open/x\\n\" >' git rebase -q -i HEAD~2",
    ),
    (
        "commondir",
        "mkdir -p .cd/refs .cd/objects; cp .git/HEAD .cd/; cp -r .git/objects .git/refs .cd/; \
         cp .git/packed-refs .cd/ 2>/dev/null; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\
         \\tfsmonitor = touch LAIR/open/x; false\\n' >.cd/config; echo ../.cd >.git/commondir",
    ),
    (
        "submodule",
        "mkdir -p sub && cd sub && git init -q . && git config user.email a@b && git config user.name a && \
         git commit -q --allow-empty -m x && git config core.fsmonitor 'touch LAIR/open/x; false' && \
         h=$(git rev-parse HEAD) && cd .. && git update-index --add --cacheinfo 160000,$h,sub",
    ),
    (
        "gitfile",
        "mkdir -p inner2 && cp -rL .git inner2/g; printf '[core]\\n\\tfsmonitor = touch LAIR/open/x; false\\n' \
         >>inner2/g/config; mkdir -p pkg; echo 'gitdir: ../inner2/g' >pkg/.git",
    ),
    ("logs_link", "rm -rf .git/logs; ln -s LAIR/open .git/logs; git commit -q --allow-empty -m x"),
    ("logs_link_below", "rm -rf .git/logs/refs/heads; ln -s LAIR/open .git/logs/refs/heads"),
    (
        "hook",
        "printf '#!/bin/sh\\ntouch LAIR/open/x\\n' >.git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    ),
    ("configuration", "git config core.fsmonitor 'touch LAIR/open/x; false'"),
    (
        "configuration_moved",
        "cp .git/config c2; printf '[core]\\n\\tfsmonitor = touch LAIR/open/x; false\\n' >>c2; mv -f c2 .git/config",
    ),
    (
        "worktree_configuration",
        "git config extensions.worktreeConfig true; \
         printf '[core]\\n\\tfsmonitor = touch LAIR/open/x; false\\n' >.git/config.worktree",
    ),
    (
        "filter",
        "mkdir -p .git/info; echo '* filter=f' >.git/info/attributes; git config filter.f.clean 'touch LAIR/open/x; cat'",
    ),
    (
        "moved_away",
        "mv .git g2; cp -rL g2 .git; printf '[core]\\n\\tfsmonitor = touch LAIR/open/x; false\\n' >>.git/config",
    ),
    ("index_link", "rm -f .git/index; ln -s LAIR/open/i .git/index"),
    ("message_link", "rm -f .git/COMMIT_EDITMSG; ln -s LAIR/victim .git/COMMIT_EDITMSG"),
    ("refs_link", "rm -rf .git/refs/heads; ln -s LAIR/open .git/refs/heads"),
    (
        "objects_link",
        "cd .git/objects; for a in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for b in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do \
         [ -e $a$b ] || ln -s LAIR/open $a$b; done; done",
    ),
    (
        "bare",
        "mkdir -p bare; cp -rL .git/HEAD .git/objects .git/refs bare/; printf '[core]\\n\\trepositoryformatversion = 0\\n\
         \\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = touch LAIR/open/x; false\\n' >bare/config",
    ),
    ("inner_configuration", "cd inner; git config core.fsmonitor 'touch LAIR/open/x; false'"),
    (
        "inner_moved",
        "mv inner i2; mkdir inner; cp -rL i2/. inner/; cd inner; chmod -R u+w .git; \
         git config core.fsmonitor 'touch LAIR/open/x; false'",
    ),
    (
        "own_hook",
        "mkdir -p pkg; cd pkg; git init -q .; mkdir -p .git/hooks; \
         printf '#!/bin/sh\\ntouch LAIR/open/x\\n' >.git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    ),
    (
        "closed_to_changes",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 555 .",
    ),
    (
        "closed_to_lists",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 0311 .",
    ),
    (
        "closed_wholly",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 000 .",
    ),
    (
        "closed_above",
        "set -e; mkdir -p old/pkg/deep; cd old/pkg/deep; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 0311 ..",
    ),
    (
        "closed_above_wholly",
        "set -e; mkdir -p old/pkg/deep; cd old/pkg/deep; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 000 ..",
    ),
    (
        "closed_above_to_changes",
        "set -e; mkdir -p old/pkg/deep; cd old/pkg/deep; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 555 . ..",
    ),
    (
        "closed_itself",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 0311 .git",
    ),
    (
        "closed_top",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; git config core.fsmonitor 'touch LAIR/open/x; false'; \
         chmod 0311 ../..",
    ),
    (
        "index_names_a_hook",
        "mkdir -p xgit/hooks; printf '#!/bin/sh\\ntouch LAIR/open/x\\n' >xgit/hooks/post-checkout; \
         chmod +x xgit/hooks/post-checkout; git add xgit; rm -rf xgit; sed -i s,xgit/hooks,.git/hooks, .git/index",
    ),
    (
        "own_index_names_a_hook",
        "set -e; mkdir -p old/pkg; cd old/pkg; git init -q .; mkdir -p xgit/hooks; printf '#!/bin/sh\\ntouch LAIR/open/x\\n' >xgit/hooks/post-checkout; \
         chmod +x xgit/hooks/post-checkout; git add xgit; rm -rf xgit; sed -i s,xgit/hooks,.git/hooks, .git/index",
    ),
];

async fn no_attack_gets_through(found: &FoundTier) {
    let never = CancellationToken::new();
    let mut through = Vec::new();
    for (name, attack) in ATTACKS {
        let checkout = Checkout::new();
        let outcome = found.sandbox.run(checkout.command(attack, name), &never).await;
        let outcome = outcome.expect("it runs");
        assert!(!checkout.is_reached(), "{name}, at once");
        if checkout.use_git() {
            through.push((name, outcome.output.head, outcome.notes));
        }
    }
    assert!(through.is_empty(), "tier {}: {through:?}", found.tier);
}

#[tokio::test]
async fn no_attack_on_git_gets_through_in_tier_a() {
    for found in tiers(&[Tier::A], Limits::of_this_machine()).await {
        no_attack_gets_through(&found).await;
    }
}

#[tokio::test]
async fn no_attack_on_git_gets_through_in_tier_b() {
    for found in tiers(&[Tier::B], Limits::of_this_machine()).await {
        no_attack_gets_through(&found).await;
    }
}

#[tokio::test]
async fn no_attack_on_git_gets_through_in_tier_c() {
    for found in tiers(&[Tier::C], Limits::of_this_machine()).await {
        no_attack_gets_through(&found).await;
    }
}

/// Where the service is an ordinary user, modes of folders count for it. Root's threads are like that without some capabilities,
/// which the programs that they start get back.
fn run_as_ordinary<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let CapabilitySets { effective, permitted, inheritable } =
            capabilities(None).expect("capabilities");
        let over_modes = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        let sets = CapabilitySets { effective: effective - over_modes, permitted, inheritable };
        set_capabilities(None, sets).expect("fewer capabilities");
        // Its threads are copies of this one.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    });
    thread.join().expect("it ends")
}

#[test]
fn no_attack_gets_through_where_the_service_is_not_root() {
    run_as_ordinary(async {
        for found in tiers(&[Tier::B, Tier::C], Limits::of_this_machine()).await {
            no_attack_gets_through(&found).await;
        }
    });
}

/// An attack that never gets through would prove nothing.
#[test]
fn every_attack_on_git_is_real_outside() {
    let mut held = Vec::new();
    for (name, attack) in ATTACKS {
        let checkout = Checkout::new();
        let command = checkout.command(attack, name);
        let mut bash = StdCommand::new("bash");
        bash.args(&command.args).current_dir(&checkout.place).env("GIT_CONFIG_NOSYSTEM", "1");
        let _whatever_it_says = bash.output().expect("bash runs");
        if !checkout.use_git() {
            held.push(name);
        }
    }
    assert!(held.is_empty(), "{held:?}");
}

#[tokio::test]
async fn commits_of_commands_are_the_persons_afterwards() {
    for found in cells().await {
        let checkout = Checkout::new();
        let work = "set -e; echo c >c; git switch -q -c mended; git add c; git commit -qm two; git tag t; \
                    git branch gone; git branch -qD gone; echo d >>c; git stash -q; git stash pop -q; git commit -qam three; \
                    git switch -q main; git merge -q --no-ff -m four mended; git gc -q; git log --oneline | wc -l";
        let outcome = run(&found.sandbox, checkout.command(work, "a")).await;
        let last = outcome.output.head.lines().last();
        assert_eq!(last, Some("4"), "tier {}: {}", found.tier, outcome.output.head);
        assert_eq!(outcome.notes, Vec::<String>::new());
        assert_eq!(git(&checkout.place, &["status", "--short"]), "");
        assert_eq!(git(&checkout.place, &["log", "--format=%s", "-1"]), "four\n");
        assert_eq!(
            git(&checkout.place, &["branch", "--format=%(refname:short)"]),
            "main\nmended\n"
        );
        assert_eq!(git(&checkout.place, &["fsck", "--no-dangling"]), "");
        // The person goes on, and the next command sees it.
        fs::write(checkout.place.join("c"), "person\n").expect("a file");
        git(&checkout.place, &["commit", "-qam", "five"]);
        let look = checkout.command("git status --short; git log --format=%s -1", "a");
        assert_eq!(run(&found.sandbox, look).await.output.head, "five\n");
    }
}

#[tokio::test]
async fn submodules_of_the_person_are_there_to_read() {
    for found in cells().await {
        let checkout = Checkout::new();
        let from = checkout.place.join("inner").display().to_string();
        git(
            &checkout.place,
            &["-c", "protocol.file.allow=always", "submodule", "add", "-q", &from, "vendor"],
        );
        git(&checkout.place, &["commit", "-qm", "two"]);
        let work = "git status --short; git -C vendor log --format=%s; echo x >>a; git commit -qam three; \
                    echo x >vendor/.git; git -C vendor config core.fsmonitor x; git log --oneline | wc -l";
        let outcome = run(&found.sandbox, checkout.command(work, "a")).await;
        let lines: Vec<_> = outcome.output.head.lines().collect();
        assert!(lines.first() == Some(&"one") && lines.last() == Some(&"3"), "{lines:?}");
        assert_eq!(outcome.notes, Vec::<String>::new());
        assert_eq!(git(&checkout.place, &["status", "--short"]), "");
        assert!(!git(&checkout.place.join("vendor"), &["config", "--list"]).contains("fsmonitor"));
    }
}

#[tokio::test]
async fn a_plain_new_repository_stays_and_may_be_used() {
    for found in tiers(&[Tier::A, Tier::B, Tier::C], Limits::of_this_machine()).await {
        let (_folder, place) = world::folder();
        let command = |text: &str| {
            let cell = Cell { protect: true, workspace: Some(place.clone()), ..Cell::default() };
            Command { cell, ..script(&format!("{WHO}{text}"), &place, "a") }
        };
        let outcome =
            run(&found.sandbox, command("git init -q . && git init -q sub && echo made")).await;
        assert_eq!((outcome.output.head.as_str(), outcome.notes.len()), ("made\n", 0));
        let more = "git commit -q --allow-empty -m one && cd sub && git commit -q --allow-empty -m two && git log --format=%s";
        let outcome = run(&found.sandbox, command(more)).await;
        assert_eq!(outcome.output.head, "two\n", "tier {}", found.tier);
        assert_eq!(git(&place, &["log", "--format=%s"]), "one\n");
        // Its own, and looked at again after each command.
        let outcome = run(&found.sandbox, command("git config core.fsmonitor x")).await;
        assert!(outcome.notes[0].contains("put aside"), "{:?}", outcome.notes);
        assert!(!place.join(".git").exists() && place.join(".git.untrusted").exists());
    }
}

#[tokio::test]
async fn an_index_with_a_new_submodule_is_not_kept() {
    for found in cells().await {
        let checkout = Checkout::new();
        let work =
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),vendor; git ls-files";
        let outcome = run(&found.sandbox, checkout.command(work, "a")).await;
        assert!(outcome.output.head.contains("vendor"), "{}", outcome.output.head);
        assert!(outcome.notes[0].contains("make vendor a submodule"), "{:?}", outcome.notes);
        assert_eq!(git(&checkout.place, &["ls-files"]), ".gitignore\na\n");
    }
}

// Finding security-3 H7: a session in a home read the sealing key and the owner's API key.
#[tokio::test]
async fn commands_see_nothing_in_place_of_what_is_hidden() {
    for found in tiers(&[Tier::A, Tier::B, Tier::C], Limits::of_this_machine()).await {
        let (_folder, place) = world::folder();
        fs::create_dir_all(place.join(".local/data")).expect("a folder");
        fs::write(place.join(".local/data/secrets.key"), "s3cret").expect("a file");
        fs::write(place.join(".netrc"), "s3cret").expect("a file");
        fs::create_dir(place.join("dots")).expect("a folder");
        fs::write(place.join("dots/aws"), "s3cret").expect("a file");
        std::os::unix::fs::symlink("dots/aws", place.join(".aws")).expect("a link");
        let paths = [".local/data", ".netrc", ".aws"].map(|path| place.join(path));
        let hidden = HiddenPaths::new(paths);
        if found.tier != Tier::C {
            // A command before did it.
            fs::remove_file(place.join(".aws")).expect("removed");
        }
        let look = "grep -rs s3cret . ; find . -name secrets.key -exec cat {} +; ls -A .local/data; \
                    mv .local/data x; rm -f .netrc; echo y >.netrc; mv .local y; cat y/data/*; echo looked";
        let mut command = script(look, &place, "a");
        command.cell =
            Cell { protect: true, workspace: Some(place.clone()), hidden, ..Cell::default() };
        let ran = found.sandbox.run(command, &CancellationToken::new()).await;
        if found.tier == Tier::C {
            let Err(SandboxError::NotStarted(why)) = ran else { panic!("{ran:?}") };
            assert!(why.contains("cannot hide"), "{why}");
            continue;
        }
        let text = ran.expect("it runs").output.head;
        assert!(text.ends_with("looked\n") && !text.contains("s3cret"), "{text}");
        assert_eq!(fs::read_to_string(place.join(".netrc")).expect("a file"), "s3cret");
        assert!(place.join(".local/data/secrets.key").exists());
    }
}

// In the second look, a command reached a program of the machine by its socket in the session's directory.
#[tokio::test]
async fn commands_reach_no_program_that_listens_in_their_directory() {
    for found in tiers(&[Tier::A, Tier::B], Limits::of_this_machine()).await {
        let (_folder, place) = world::folder();
        fs::create_dir(place.join("run")).expect("a folder");
        let sockets = ["engine.sock", "run/engine.sock"];
        let bound = sockets.map(|name| UnixListener::bind(place.join(name)).expect("a socket"));
        let connect = "import socket, sys\nfor name in sys.argv[1:]:\n try: socket.socket(socket.AF_UNIX).connect(name)\n \
                       except FileNotFoundError: print(\"gone\")\n \
                       except (PermissionError, ConnectionRefusedError): print(\"closed\")";
        let names = sockets.join(" ");
        let line = format!(
            "python3 -c '{connect}' {names}; mv run x 2>/dev/null; python3 -c '{connect}' x/engine.sock"
        );
        let mut command = script(&line, &place, "a");
        command.cell = Cell { protect: true, workspace: Some(place.clone()), ..Cell::default() };
        let outcome = run(&found.sandbox, command).await;
        let expected = "closed\nclosed\ngone\n";
        assert_eq!(outcome.output.head, expected, "{}", found.tier);
        drop(bound);
    }
}

// Finding security-3 M1: a session above replaced the directory of another one by a link.
#[tokio::test]
async fn a_workspace_that_became_a_link_is_not_entered() {
    for found in tiers(&[Tier::A, Tier::B, Tier::C], Limits::of_this_machine()).await {
        let (folder, place) = world::folder();
        let other = folder.path().join("other");
        fs::rename(&place, &other).expect("moved");
        std::os::unix::fs::symlink(&other, &place).expect("a link");
        for protect in [true, false] {
            let mut command = script("touch here", &place, "a");
            command.cell.protect = protect;
            let ran = found.sandbox.run(command, &CancellationToken::new()).await;
            assert!(matches!(ran, Err(SandboxError::NotStarted(_))), "{}: {ran:?}", found.tier);
        }
        assert!(!other.join("here").exists());
    }
}
