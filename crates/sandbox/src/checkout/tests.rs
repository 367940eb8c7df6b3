use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::find::find_within;
use super::*;
use crate::command::{Cell, DiskShare, End, Network};

type Step = Box<dyn Fn(&Path) + Send + Sync>;

/// Does one thing after the other in the workspace, in place of commands.
#[derive(Default)]
struct Steps {
    next: Mutex<Vec<Step>>,
    shares: Mutex<Vec<DiskShare>>,
    /// The next command never ends.
    hangs: AtomicBool,
}

#[async_trait]
impl Sandbox for Steps {
    async fn run(
        &self,
        command: Command,
        _cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        self.shares.lock().unwrap().push(command.share);
        let step = self.next.lock().unwrap().pop();
        if let Some(step) = step {
            step(command.cell.workspace.as_deref().unwrap());
        }
        if self.hangs.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let bounds = crate::process::bounds(&command, &std::env::temp_dir());
        let outcome = crate::process::not_begun(bounds, Network::Shut).await;
        Ok(Outcome { end: End::Exited(0), ..outcome })
    }
}

struct World {
    _folder: tempfile::TempDir,
    place: PathBuf,
    steps: Arc<Steps>,
    sandbox: CheckoutSandbox,
}

impl World {
    fn new(find: fn(&OwnedFd) -> Found) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_path_buf();
        let steps = Arc::new(Steps::default());
        let sandbox = CheckoutSandbox { find, ..CheckoutSandbox::new(steps.clone(), true, true) };
        Self { _folder: folder, place, steps, sandbox }
    }

    async fn run(&self, step: impl Fn(&Path) + Send + Sync + 'static) -> Result<Outcome, String> {
        self.steps.next.lock().unwrap().push(Box::new(step));
        let cell = Cell { protect: true, workspace: Some(self.place.clone()), ..Cell::default() };
        let command = Command::shell("", self.place.clone(), std::time::Duration::from_secs(1));
        let command = Command { cell, ..command };
        let ran = self.sandbox.run(command, &CancellationToken::new()).await;
        ran.map_err(|error| error.to_string())
    }

    fn newest_share(&self) -> DiskShare {
        *self.steps.shares.lock().unwrap().last().unwrap()
    }
}

/// A repository in which git runs a program.
fn make_hostile(at: &Path) {
    fs::create_dir_all(at.join(".git/objects")).unwrap();
    fs::create_dir_all(at.join(".git/refs")).unwrap();
    fs::write(at.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(at.join(".git/config"), "[core]\n\tfsmonitor = touch x\n").unwrap();
}

fn open(place: &Path) -> OwnedFd {
    open_workspace(place).unwrap()
}

// Second look, 1: a repository that could not be moved counted as the person's from the next command on.
#[tokio::test]
async fn what_cannot_be_put_aside_is_judged_again() {
    let world = World::new(find_repositories);
    let outcome = world
        .run(|place| {
            make_hostile(&place.join("pkg"));
            for number in 0..100 {
                let end = if number == 0 { String::new() } else { format!("-{number}") };
                fs::write(place.join(format!("pkg/.git.untrusted{end}")), "").unwrap();
            }
        })
        .await
        .unwrap();
    assert!(outcome.notes[0].contains("could not be put aside"), "{:?}", outcome.notes);
    for _ in 0..2 {
        let why = world.run(|_| panic!("nothing is run")).await.unwrap_err();
        assert!(why.contains("pkg/.git is not to be trusted"), "{why}");
        assert!(why.contains("until it is removed"), "{why}");
    }
    fs::remove_file(world.place.join("pkg/.git.untrusted-7")).unwrap();
    world.steps.next.lock().unwrap().clear();
    let outcome = world.run(|_| {}).await.unwrap();
    assert!(outcome.notes[0].contains("as .git.untrusted-7"), "{:?}", outcome.notes);
    assert!(!world.place.join("pkg/.git").exists());
}

#[tokio::test]
async fn a_command_that_was_let_go_is_judged_before_the_next() {
    let world = World::new(find_repositories);
    make_hostile(&world.place.join("persons"));
    world.steps.hangs.store(true, Ordering::Relaxed);
    let run = world.run(|place| make_hostile(&place.join("pkg")));
    let short = std::time::Duration::from_millis(500);
    assert!(tokio::time::timeout(short, run).await.is_err(), "it hangs");
    assert!(world.place.join("pkg/.git").exists());
    let outcome = world.run(|_| {}).await.unwrap();
    assert!(outcome.notes.len() == 1 && outcome.notes[0].contains("pkg"), "{:?}", outcome.notes);
    assert!(!world.place.join("pkg/.git").exists());
    assert!(world.place.join("persons/.git").exists());
    // A person's own, made between two commands, is left alone.
    make_hostile(&world.place.join("later"));
    assert_eq!(world.run(|_| {}).await.unwrap().notes, Vec::<String>::new());
    assert!(world.place.join("later/.git").exists());
}

// Second look, 5: a million entries hid a repository.
#[tokio::test]
async fn decoys_hide_no_repository_and_may_be_deleted() {
    let world = World::new(|workspace| find_within(workspace, 50));
    // Files do not count.
    let outcome = world
        .run(|place| {
            fs::create_dir(place.join("files")).unwrap();
            (0..200).for_each(|n| fs::write(place.join(format!("files/{n}")), "").unwrap());
            make_hostile(&place.join("files/z"));
        })
        .await
        .unwrap();
    assert!(outcome.notes[0].contains("put aside"), "{:?}", outcome.notes);
    assert!(!world.newest_share().removes_only);

    let outcome = world
        .run(|place| {
            (0..60).for_each(|n| fs::create_dir(place.join(format!("a{n}"))).unwrap());
            for n in 0..60 {
                make_hostile(&place.join(format!("a{n}/deep")));
            }
        })
        .await
        .unwrap();
    let said = outcome.notes.last().unwrap();
    assert!(said.contains("more than 50 folders") && said.contains("write none"), "{said}");
    let outcome = world
        .run(|place| {
            for n in 1..60 {
                crate::removal::remove_tree(&place.join(format!("a{n}"))).unwrap();
            }
        })
        .await
        .unwrap();
    assert!(world.newest_share().removes_only);
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    // A hidden repository is judged before the next command, which may write again.
    let outcome = world.run(|_| {}).await.unwrap();
    assert!(outcome.notes[0].contains("a0/deep/.git was put aside"), "{:?}", outcome.notes);
    assert!(!world.newest_share().removes_only && !world.place.join("a0/deep/.git").exists());
}

#[tokio::test]
async fn a_sandbox_without_walls_runs_nothing_beside_what_is_unseen() {
    let mut world = World::new(|workspace| find_within(workspace, 2));
    world.sandbox.holds_back_writes = false;
    (0..3).for_each(|n| fs::create_dir(world.place.join(n.to_string())).unwrap());
    let why = world.run(|_| panic!("nothing is run")).await.unwrap_err();
    assert!(why.contains("more than 2 folders; remove those"), "{why}");
}

#[test]
fn a_repository_deeper_than_is_looked_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    crate::removal::tests::dig(folder.path(), 200);
    let unseen = find_repositories(&open(folder.path())).unseen.unwrap();
    assert!(unseen.to_string().contains("levels deep"), "{unseen}");
    let folder = tempfile::tempdir().unwrap();
    let long = "d".repeat(250);
    let path: PathBuf = std::iter::repeat_n(long.as_str(), 15).collect();
    fs::create_dir_all(folder.path().join(&path)).unwrap();
    let last = open(&folder.path().join(&path));
    rustix::fs::mkdirat(&last, long.as_str(), Mode::RWXU).unwrap();
    let last = rustix::fs::openat(&last, long.as_str(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    rustix::fs::mkdirat(&last, long.as_str(), Mode::RWXU).unwrap();
    let unseen = find_repositories(&open(folder.path())).unseen.unwrap();
    assert!(matches!(unseen, Unseen::TooDeep(_)), "{unseen}");
    crate::removal::empty_folder(folder.path()).unwrap();
}

/// Does something without the capabilities that make root's modes worth nothing: as an ordinary user does who owns the files.
fn run_as_ordinary<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let thread = std::thread::spawn(move || {
        let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
        let over = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(
            None,
            CapabilitySets { effective: effective - over, permitted, inheritable },
        )
        .unwrap();
        work()
    });
    thread.join().unwrap()
}

// Second look, 1: a folder without rights hid what was in it.
#[test]
fn a_closed_folder_hides_no_repository() {
    for (closed, mode) in [
        ("", 0o000),
        ("", 0o555),
        ("", 0o311),
        ("a", 0o000),
        ("a", 0o444),
        ("a/pkg", 0o555),
        ("a/pkg", 0o311),
        ("a/pkg", 0o000),
        ("a/pkg/.git", 0o000),
        ("a/pkg/.git", 0o311),
        ("a/pkg/.git/objects", 0o311),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_path_buf();
        make_hostile(&place.join("a/pkg"));
        let fd = open(&place);
        fs::set_permissions(place.join(closed), Permissions::from_mode(mode)).unwrap();
        let said = run_as_ordinary(move || {
            let found = find_repositories(&fd);
            let all: Vec<_> = found.repositories.into_iter().collect();
            assert!(all.len() == 1 && found.unseen.is_none(), "{all:?}, {:?}", found.unseen);
            (all[0].is_harmless(fd.as_fd()), all[0].put_aside(fd.as_fd()))
        });
        assert!(matches!(said, (false, Aside::Moved(_))), "{closed}, {mode:o}: {said:?}");
        assert!(!place.join("a/pkg/.git").exists(), "{closed}, {mode:o}");
    }
}

#[test]
fn a_closed_folder_in_a_repository_hides_no_link() {
    for mode in [0o000, 0o311, 0o444] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_path_buf();
        make_hostile(&place);
        fs::write(place.join(".git/config"), "").unwrap();
        let fd = open(&place);
        let repository = find_repositories(&fd).repositories.pop_first().unwrap();
        assert!(repository.is_harmless(fd.as_fd()));
        fs::create_dir(place.join(".git/logs")).unwrap();
        std::os::unix::fs::symlink("/etc", place.join(".git/logs/refs")).unwrap();
        fs::set_permissions(place.join(".git/logs"), Permissions::from_mode(mode)).unwrap();
        assert!(!run_as_ordinary(move || repository.is_harmless(fd.as_fd())), "{mode:o}");
    }
}

#[test]
fn an_index_with_names_elsewhere_makes_a_new_repository_harmful() {
    let folder = tempfile::tempdir().unwrap();
    make_hostile(folder.path());
    fs::write(folder.path().join(".git/config"), "").unwrap();
    fs::write(folder.path().join(".git/index"), index_naming(b".git/hooks/x")).unwrap();
    let fd = open(folder.path());
    let repository = find_repositories(&fd).repositories.pop_first().unwrap();
    assert!(!repository.is_harmless(fd.as_fd()));
    fs::write(folder.path().join(".git/index"), index_naming(b"hooks/x")).unwrap();
    assert!(repository.is_harmless(fd.as_fd()));
}

/// An index of version 2 with one file.
fn index_naming(path: &[u8]) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    bytes.extend([0; 24]);
    bytes.extend(0o100_644_u32.to_be_bytes());
    bytes.extend([0; 32]);
    bytes.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
    bytes.extend(path);
    bytes.resize(bytes.len() + 8 - (bytes.len() - 12) % 8, 0);
    bytes.extend([0; 20]);
    bytes
}
