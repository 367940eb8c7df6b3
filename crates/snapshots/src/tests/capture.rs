//! The content of a Capture, its left-out files, and its debts after a failure.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use domain::SystemClock;

use super::world::{Ahead, Thing, World};
use crate::directory::Dir;
use crate::object::ObjectId;
use crate::place::open_root;
use crate::scan::{Keep, KeepNothing, Scan, Skipped};
use crate::{Captured, ChangeStatus, SnapshotError, SnapshotLimits, Touched, Why};

fn shown(captured: &crate::Captured) -> Vec<(&str, ChangeStatus, u64, u64)> {
    let files = &captured.changes.files;
    files.iter().map(|f| (f.path.as_str(), f.status, f.additions, f.deletions)).collect()
}

#[tokio::test]
async fn nothing_touched_captures_nothing() {
    let mut world = World::new().await;
    world.file("a", "a");
    assert_eq!(world.capture(&Touched::Nothing).await, None);
    assert!(!world.folder.path().join("blobs/o").exists());
    assert_eq!(world.shadow.tree().await, None);
}

#[tokio::test]
async fn the_first_capture_has_everything_and_the_next_what_changed() {
    let mut world = World::new().await;
    world.file("src/a.txt", "one\ntwo\n");
    world.file("src/b.txt", "b\n");
    let first = world.capture(&Touched::path("src/a.txt")).await.unwrap();
    assert_eq!((first.parent, first.changes.files.len(), first.ordinal), (None, 0, 1));
    assert_eq!(world.elsewhere(&first.tree).await, world.files());

    world.file("src/a.txt", "one\n2\nthree\n");
    let second = world.capture(&Touched::path("src/a.txt")).await.unwrap();
    assert_eq!(second.parent, Some(first.tree));
    assert_eq!(shown(&second), [("src/a.txt", ChangeStatus::Modified, 2, 1)]);
    let patch = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n";
    assert_eq!(second.changes.files[0].patch.as_deref(), Some(patch));
    assert!(second.bytes < first.bytes + 100, "only what is new is packed");
    assert_eq!(world.elsewhere(&second.tree).await, world.files());

    assert_eq!(world.capture(&Touched::path("src/a.txt")).await, None);
    assert_eq!(world.capture(&Touched::Anything).await, None);
}

#[tokio::test]
async fn paths_are_looked_at_whatever_they_became() {
    let mut world = World::new().await;
    world.file("a/b/c", "1");
    world.file("d", "1");
    world.file("e/f", "1");
    world.all().await;
    fs::remove_dir_all(world.root().join("a")).unwrap();
    fs::remove_file(world.root().join("d")).unwrap();
    world.file("d/new/deep", "2");
    fs::remove_dir_all(world.root().join("e")).unwrap();
    world.link("e", "d/new");
    world.file("g/h/i", "3");
    let touched = ["a/b/c", "d/new/deep", "e/f", "./g/h/i", "none/at/all"];
    let touched = Touched::Paths(touched.map(str::to_owned).into());
    let captured = world.capture(&touched).await.unwrap();
    assert_eq!(world.elsewhere(&captured.tree).await, world.files());
    assert_eq!(
        shown(&captured),
        [
            ("a/b/c", ChangeStatus::Deleted, 0, 1),
            ("d", ChangeStatus::Deleted, 0, 1),
            ("d/new/deep", ChangeStatus::Added, 1, 0),
            ("e", ChangeStatus::Added, 1, 0),
            ("e/f", ChangeStatus::Deleted, 0, 1),
            ("g/h/i", ChangeStatus::Added, 1, 0),
        ]
    );
    // A path that lexically leaves the Location triggers a full scan.
    world.file("elsewhere", "x");
    assert!(world.capture(&Touched::path("../root/elsewhere")).await.is_some());
}

#[tokio::test]
async fn kinds_and_the_executable_bit_are_kept() {
    let mut world = World::new().await;
    world.file("run", "#!/bin/sh\n");
    world.link("dangling", "no/where");
    world.link("out", "/etc/passwd");
    fs::create_dir_all(world.root().join("empty/deeper")).unwrap();
    let first = world.all().await;
    world.executable("run", true);
    let second = world.capture(&Touched::path("run")).await.unwrap();
    assert_eq!(shown(&second), [("run", ChangeStatus::Modified, 0, 0)]);
    assert!(second.pack.is_some());
    let there = world.elsewhere(&second.tree).await;
    assert_eq!(there, world.files());
    assert_eq!(there[Path::new("run")], Thing::File(b"#!/bin/sh\n".into(), true));
    assert_eq!(there[Path::new("out")], Thing::Link("/etc/passwd".into()));
    world.executable("run", false);
    let third = world.all().await;
    assert_eq!(third.tree, first.tree);
    assert_eq!(third.pack, None, "a committed pack has all of it");
}

#[tokio::test]
async fn ignored_files_are_left_out_but_what_was_tracked_stays() {
    let mut world = World::new().await;
    world.file(".gitignore", "*.log\n/out/\n!keep.log\n");
    world.file(".git/info/exclude", "private\n");
    world.file("sub/.gitignore", "!loud.log\n");
    for path in ["a.log", "keep.log", "out/x", "sub/out/x", "private", "sub/loud.log", "sub/b.log"]
    {
        world.file(path, path);
    }
    let first = world.all().await;
    let mut expected = world.files();
    for path in ["a.log", "out", "out/x", "private", "sub/b.log"] {
        assert!(expected.remove(Path::new(path)).is_some(), "{path}");
    }
    assert_eq!(world.elsewhere(&first.tree).await, expected);

    world.file("a.log", "more");
    world.file("out/deep/y", "more");
    let touched = Touched::Paths(["a.log", "out/deep/y"].map(str::to_owned).into());
    assert_eq!(world.capture(&touched).await, None);

    world.file(".gitignore", "*\n");
    world.file("sub/out/x", "still tracked");
    world.file("sub/out/new", "ignored");
    let second = world.all().await;
    assert_eq!(
        shown(&second),
        [(".gitignore", ChangeStatus::Modified, 1, 3), ("sub/out/x", ChangeStatus::Modified, 1, 1)]
    );
}

#[tokio::test]
async fn what_is_too_large_or_special_is_left_out_and_named() {
    let limits = SnapshotLimits { file_bytes: 100, depth: 3, ..SnapshotLimits::default() };
    let mut world = World::with(|options| options.limits = limits).await;
    world.file("large", [b'x'; 101]);
    world.file("fits", [b'x'; 100]);
    world.file("1/2/3/4/5", "deep");
    world.file(".oc-tmp-0123", "of a tool that was killed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.root().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let captured = world.all().await;
    let first = [("1/2/3/4", Why::TooDeep), ("large", Why::TooLarge), ("pipe", Why::Special)];
    let first = first.map(|(path, why)| (path.to_owned(), why)).to_vec();
    assert_eq!(captured.skipped, Skipped { count: 3, first });
    let there: Vec<_> = world.elsewhere(&captured.tree).await.into_keys().collect();
    assert_eq!(there, ["1", "1/2", "1/2/3", "fits"].map(std::path::PathBuf::from));

    let limits = SnapshotLimits { entries: 10, ..SnapshotLimits::default() };
    let world = World::with(|options| options.limits = limits).await;
    (0..11).for_each(|n| world.file(&format!("{n}"), ""));
    let refused = world.shadow.capture(&Touched::Anything).await;
    assert!(matches!(refused, Err(SnapshotError::TooManyFiles { limit: 10 })), "{refused:?}");
    fs::remove_file(world.root().join("0")).unwrap();
    assert!(world.shadow.capture(&Touched::Anything).await.unwrap().is_some());
}

// Finding store 18: a file that was too large vanished silently, even if nothing else had changed.
#[tokio::test]
async fn a_file_that_is_left_out_is_told_once_for_each_change() {
    let limits = SnapshotLimits { file_bytes: 100, ..SnapshotLimits::default() };
    let mut world = World::with(|options| options.limits = limits).await;
    world.file("a", "a");
    world.file("old", [b'x'; 101]);
    let told = |captured: Option<Captured>| {
        let first = captured.map(|captured| captured.skipped.first).unwrap_or_default();
        first.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(told(world.capture(&Touched::Anything).await), ["old"]);
    assert_eq!(world.capture(&Touched::Anything).await, None);
    world.file("new", [b'x'; 200]);
    let captured = world.shadow.capture(&Touched::Anything).await.unwrap().unwrap();
    assert_eq!((captured.parent, &captured.pack), (Some(captured.tree), &None));
    world.shadow.abandoned(&captured).await;
    assert_eq!(told(world.capture(&Touched::Nothing).await), ["new"], "it was not told yet");
    assert_eq!(world.capture(&Touched::Anything).await, None);
    world.file("new", [b'y'; 300]);
    assert_eq!(told(world.capture(&Touched::path("new")).await), ["new"], "it has changed");
    // A restarted worker does not attribute existing files to the next calls.
    world.reopen().await;
    assert_eq!(world.capture(&Touched::Anything).await, None);
    world.file("a", "b");
    assert_eq!(told(world.capture(&Touched::Anything).await), Vec::<String>::new());
}

// Finding store 15: opening a Location's files read the index of every pack ever made.
#[tokio::test]
async fn of_many_packs_few_are_read_and_all_objects_are_found() {
    let mut world = World::new().await;
    world.file("kept", "k".repeat(100_000));
    world.file("sub/old", "old");
    let first = world.all().await;
    let before = world.files();
    fs::remove_file(world.root().join("sub/old")).unwrap();
    let mut last = world.all().await;
    for n in 0..150 {
        world.file("a", format!("{n}"));
        last = world.capture(&Touched::path("a")).await.unwrap();
    }
    world.reopen().await;
    let unread = world.shadow.unread().await;
    assert!(unread >= 80, "only {unread} of {} packs are left unread", world.options.packs.len());
    assert_eq!(world.capture(&Touched::Anything).await, None, "all of it is known to be kept");
    world.file("sub/b", "b");
    let next = world.all().await;
    assert!(next.bytes < 2_000, "{} bytes: what is kept is not packed again", next.bytes);
    assert_eq!(world.shadow.unread().await, unread);
    assert_eq!(world.elsewhere(&last.tree).await.len(), 3);
    // Content that only an old tree has is found in the end.
    assert_eq!(world.elsewhere(&first.tree).await, before);
    let changes = world.shadow.diff(&first.tree, &next.tree, None).await.unwrap();
    assert_eq!(changes.files.len(), 3);
    world.restore(&first.tree, None).await;
    assert_eq!(world.files(), before);
}

#[tokio::test]
async fn a_git_folder_is_whole_or_not_there() {
    let limits = SnapshotLimits { git_file_bytes: 100, ..SnapshotLimits::default() };
    let mut world = World::with(|options| options.limits = limits).await;
    world.file(".git/HEAD", "ref");
    world.file(".git/index.lock", "");
    world.file(".git/objects/pack/tmp_pack", "half");
    fs::create_dir_all(world.root().join(".git/refs/heads")).unwrap();
    world.file("sub/.git", "gitdir: ../.git/modules/sub");
    let first = world.all().await;
    let mut expected = world.files();
    expected.remove(Path::new(".git/index.lock"));
    expected.remove(Path::new(".git/objects/pack/tmp_pack"));
    assert_eq!(world.elsewhere(&first.tree).await, expected);

    world.file(".git/objects/pack/pack-1", [b'x'; 101]);
    let second = world.all().await;
    let there: Vec<_> = world.elsewhere(&second.tree).await.into_keys().collect();
    assert_eq!(there, ["sub", "sub/.git"].map(std::path::PathBuf::from));
    assert_eq!(second.skipped.first, [(".git/objects/pack/pack-1".to_owned(), Why::TooLarge)]);

    let mut world = World::with(|options| options.git = false).await;
    world.file(".git/HEAD", "ref");
    world.file("a", "a");
    let captured = world.all().await;
    let there: Vec<_> = world.elsewhere(&captured.tree).await.into_keys().collect();
    assert_eq!(there, ["a"].map(std::path::PathBuf::from));
}

#[tokio::test]
async fn a_store_that_fails_costs_nothing_but_time() {
    let mut world = World::new().await;
    world.file("a", "1");
    world.all().await;
    let (blobs, aside) = (world.folder.path().join("blobs/o"), world.folder.path().join("aside"));
    fs::rename(&blobs, &aside).unwrap();
    fs::write(&blobs, "in the way").unwrap();
    world.file("a", "2");
    let failed = world.shadow.capture(&Touched::path("a")).await;
    assert!(matches!(failed, Err(SnapshotError::Blob(_))), "{failed:?}");
    fs::remove_file(&blobs).unwrap();
    fs::rename(&aside, &blobs).unwrap();
    world.file("b", "new");
    let captured = world.capture(&Touched::path("b")).await.unwrap();
    assert_eq!(
        shown(&captured),
        [("a", ChangeStatus::Modified, 1, 1), ("b", ChangeStatus::Added, 1, 0)]
    );
    assert_eq!(world.elsewhere(&captured.tree).await, world.files());
}

#[tokio::test]
async fn what_nobody_waited_for_is_not_read_again() {
    for large in [false, true] {
        let mut world =
            World::with(|options| options.clock = Arc::new(Ahead(SystemClock::new()))).await;
        (0..300).for_each(|n| world.file(&format!("d{}/{n}", n % 7), format!("{n}")));
        if large {
            // More than a pack has in memory.
            let noise: Vec<u8> = (0..1_250_000_u64)
                .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
                .collect();
            world.file("large", noise);
        }
        let all = 300 + usize::from(large);
        for _given_up in 0..3 {
            let shadow = world.shadow.clone();
            let capture = Box::pin(async move { shadow.capture(&Touched::Anything).await });
            tokio::time::timeout(std::time::Duration::ZERO, capture).await.unwrap_err();
            assert_eq!(world.shadow.read().await, all);
        }
        assert_eq!(world.shadow.tree().await, None, "nothing is captured yet");
        world.file("d1/1", "changed meanwhile");
        let first = world.all().await;
        assert_eq!(world.shadow.read().await, all + 1, "the one that changed");
        assert_eq!((first.parent, first.changes.files.len()), (None, 0));
        assert_eq!(world.elsewhere(&first.tree).await, world.files());
        world.file("d1/1", "again");
        let second = world.all().await;
        assert!(second.bytes < 4_000, "nothing of the first is stored again: {}", second.bytes);
        assert_eq!(world.elsewhere(&second.tree).await, world.files());
    }
}

#[tokio::test]
async fn what_no_row_names_is_packed_again() {
    let mut world = World::new().await;
    world.file("a", "1");
    world.all().await;
    // Two sessions share the Location, and the row of the first one's Capture is never written.
    world.file("a", "2");
    let lost = world.shadow.capture(&Touched::path("a")).await.unwrap().unwrap();
    world.file("b", "2 too");
    let second = world.capture(&Touched::path("b")).await.unwrap();
    assert_eq!(second.parent, Some(lost.tree));
    assert_eq!(shown(&second), [("b", ChangeStatus::Added, 1, 0)]);
    assert_eq!(world.elsewhere(&second.tree).await, world.files());

    world.file("c", "3");
    let lost = world.shadow.capture(&Touched::path("c")).await.unwrap().unwrap();
    world.shadow.abandoned(&lost).await;
    let told = world.capture(&Touched::Nothing).await.unwrap();
    assert_eq!((told.tree, told.parent), (lost.tree, Some(second.tree)));
    assert_ne!(told.pack, lost.pack, "a number is used once");
    assert_eq!(shown(&told), [("c", ChangeStatus::Added, 1, 0)]);
    assert_eq!(world.elsewhere(&told.tree).await, world.files());

    // A Capture that was neither committed nor abandoned is repeated, even if nothing changed since.
    world.file("d", "4");
    let lost = world.shadow.capture(&Touched::path("d")).await.unwrap().unwrap();
    let again = world.capture(&Touched::Anything).await.unwrap();
    assert_eq!((again.tree, again.changes.files.len()), (lost.tree, 0));
    assert_eq!(world.elsewhere(&again.tree).await, world.files());
}

#[tokio::test]
async fn a_restarted_worker_goes_on_with_or_without_its_stat_index() {
    let mut world =
        World::with(|options| options.clock = Arc::new(Ahead(SystemClock::new()))).await;
    (0..300).for_each(|n| world.file(&format!("d{}/{n}", n % 7), format!("{n}")));
    let first = world.all().await;
    let index = world.options.cache.join(format!("{}-loc_1.index", world.options.at.org));
    assert!(index.is_file(), "many files were read");
    for damage in [None, Some(false), Some(true)] {
        match damage {
            None => {}
            Some(false) => fs::write(&index, "no index").unwrap(),
            Some(true) => fs::remove_file(&index).unwrap(),
        }
        world.reopen().await;
        assert_eq!(world.shadow.tree().await, Some(first.tree));
        assert_eq!(world.capture(&Touched::Anything).await, None);
        world.shadow.save().await.unwrap();
    }
    world.file("d1/1", "changed while nobody looked");
    world.reopen().await;
    let second = world.capture(&Touched::path("d2/2")).await.unwrap();
    assert_eq!(shown(&second), [("d1/1", ChangeStatus::Modified, 1, 1)]);
    assert_eq!(second.ordinal, 2);
}

#[test]
fn a_large_file_with_a_new_time_alone_is_not_kept_again() {
    #[derive(Default)]
    struct Kept(HashMap<ObjectId, usize>);

    impl Keep for Kept {
        fn has(&self, id: ObjectId) -> bool {
            self.0.contains_key(&id)
        }

        fn keep(&mut self, id: ObjectId, bytes: Bytes) -> Result<(), SnapshotError> {
            assert_eq!(ObjectId::of(&bytes), id);
            *self.0.entry(id).or_default() += 1;
            Ok(())
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pack");
    let root = open_root(folder.path()).unwrap();
    let (mut dir, mut kept) = (Dir::default(), Kept::default());
    let limits = SnapshotLimits::default();
    let mut content = vec![7; 2 << 20];
    for (turn, changes) in [true, false, true, false].into_iter().enumerate() {
        if changes {
            content[turn] += 1;
        }
        fs::write(&file, &content).unwrap(); // a new time in any case
        let mut scan = Scan::new(&limits, false, 0, &mut kept);
        scan.everything(&root, &mut dir).unwrap();
        assert_eq!(scan.read, 1);
        assert_eq!(dir.leaf(Path::new("pack")).unwrap().entry.id, ObjectId::of(&content));
        assert_eq!(kept.0.len(), turn / 2 + 1);
        assert!(kept.0.values().all(|times| *times == 1), "{:?}", kept.0);
    }
}

// Finding security-3 H7: a snapshot of a home took the service's own folder and credentials along.
#[tokio::test]
async fn what_is_hidden_is_in_no_snapshot() {
    let mut world = World::with(|options| {
        let paths = ["data", ".netrc"].map(|path| options.root.join(path));
        options.hidden = sandbox::HiddenPaths::new(paths);
    })
    .await;
    world.file("data/secrets.key", "s3cret");
    world.file(".netrc", "s3cret");
    world.file("seen", "seen");
    let captured = world.all().await;
    let elsewhere = world.elsewhere(&captured.tree).await;
    assert_eq!(elsewhere.keys().collect::<Vec<_>>(), [Path::new("seen")]);
    world.file("data/more", "s3cret");
    for path in ["data/more", "data", ".netrc"] {
        assert!(world.capture(&Touched::path(path)).await.is_none(), "{path}");
    }
}

#[test]
fn a_file_is_read_again_only_when_its_stat_does_not_vouch_for_it() {
    fn look(root: &OwnedFd, dir: &mut Dir, now_ns: i64) -> (usize, ObjectId) {
        let limits = SnapshotLimits::default();
        let mut keep = KeepNothing;
        let mut scan = Scan::new(&limits, false, now_ns, &mut keep);
        scan.everything(root, dir).unwrap();
        (scan.read, dir.seal())
    }
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let root = open_root(folder.path()).unwrap();
    let mut dir = Dir::default();
    // Just changed: they could change again within a tick of the clock.
    let written = crate::directory::Vouch::of(&rustix::fs::stat(&a).unwrap()).changed_ns;
    let (read, first) = look(&root, &mut dir, written + 1_000_000_000);
    assert_eq!(read, 2);
    let late = written + 3_600_000_000_000;
    assert_eq!(look(&root, &mut dir, late), (2, first));
    assert_eq!(look(&root, &mut dir, late), (0, first));
    // The same size and time, which an unpacked archive may have.
    let time = fs::metadata(&a).unwrap().modified().unwrap();
    fs::write(&a, "A").unwrap();
    fs::File::options().write(true).open(&a).unwrap().set_modified(time).unwrap();
    let (read, second) = look(&root, &mut dir, late);
    assert_eq!(read, 1);
    assert_ne!(second, first);
}

#[tokio::test]
async fn names_that_are_no_text_are_kept() {
    use std::os::unix::ffi::OsStrExt;
    let mut world = World::new().await;
    let name = std::ffi::OsStr::from_bytes(b"no \xff text\nat all");
    fs::write(world.root().join(name), "x").unwrap();
    let captured = world.all().await;
    assert_eq!(world.elsewhere(&captured.tree).await, world.files());
    fs::write(world.root().join(name), "y").unwrap();
    let second = world.all().await;
    let path = second.changes.files[0].path.clone();
    let restored = world
        .shadow
        .restore(&captured.tree, Some(&BTreeSet::from([path])), crate::Unsaved::Keep)
        .await
        .unwrap();
    assert_eq!(restored.files.len(), 1);
    assert_eq!(fs::read(world.root().join(name)).unwrap(), b"x");
}
