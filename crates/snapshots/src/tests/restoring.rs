//! Tests of what a restore changes, and of what it must leave alone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::{FencingToken, LocationRef};
use sandbox::{LocationLock, lock};

use super::world::{Thing, World, folder};
use crate::{
    ChangeStatus, ShadowOptions, SnapshotError, SnapshotLimits, Touched, TreeId, Unsaved, diff,
};

#[tokio::test]
async fn only_the_named_paths_go_back_and_never_git() {
    let mut world = World::new().await;
    world.file("a", "a1");
    world.file("b", "b1");
    world.file("c/d", "d1");
    world.file(".git/HEAD", "main");
    let first = world.all().await;
    world.file("a", "a2");
    world.file("b", "b2");
    fs::remove_dir_all(world.root().join("c")).unwrap();
    world.file("new/x", "x");
    world.file(".git/HEAD", "other");
    let second = world.all().await;
    let restored = world.restore(&first.tree, Some(&["a", "c/d", "new/x", ".git/HEAD"])).await;
    let done: Vec<_> = restored.files.iter().map(|f| (f.path.as_str(), f.status)).collect();
    assert_eq!(
        done,
        [
            ("a", ChangeStatus::Modified),
            ("c/d", ChangeStatus::Added),
            ("new/x", ChangeStatus::Deleted)
        ]
    );
    assert_eq!(restored.left, Vec::<String>::new());
    let mut expected = world.elsewhere(&first.tree).await;
    expected.insert("b".into(), Thing::File(b"b2".into(), false));
    expected.insert(".git/HEAD".into(), Thing::File(b"other".into(), false));
    assert_eq!(world.files(), expected);

    // The next Capture covers the restored files. Then restore back.
    let third = world.capture(&Touched::Nothing).await.unwrap();
    assert_eq!(third.parent, Some(second.tree));
    assert_eq!(world.elsewhere(&third.tree).await, world.files());
    world.restore(&second.tree, None).await;
    assert_eq!(world.files(), world.elsewhere(&second.tree).await);
}

#[tokio::test]
async fn a_file_has_the_mode_of_its_tree() {
    let world = World::new().await;
    let mode = |name: &str| {
        fs::metadata(world.options.root.join(name)).unwrap().permissions().mode() & 0o777
    };
    let chmod = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.options.root.join(name), mode).unwrap();
    };
    // Finding store 18: only the executable bit was kept, and 0600 came back as 0666 & umask.
    let all =
        [("secret", 0o600), ("group", 0o664), ("script", 0o755), ("own", 0o700), ("ro", 0o444)];
    for (name, bits) in all {
        world.file(name, "1");
        chmod(name, bits);
    }
    let first = world.shadow.capture(&Touched::Anything).await.unwrap().unwrap();
    world.shadow.committed(&first).await;
    for (name, _) in all {
        fs::remove_file(world.root().join(name)).unwrap();
        world.file(name, "2");
    }
    let second = world.shadow.capture(&Touched::Anything).await.unwrap().unwrap();
    world.shadow.committed(&second).await;
    world.restore(&first.tree, None).await;
    assert_eq!(all.map(|(name, _)| (name, mode(name))), all);
    let third = world.shadow.capture(&Touched::Anything).await.unwrap().unwrap();
    assert_eq!(third.tree, first.tree);
    world.shadow.committed(&third).await;
    // A change of the mode alone counts.
    chmod("secret", 0o644);
    let fourth = world.shadow.capture(&Touched::Anything).await.unwrap().unwrap();
    let changed: Vec<_> = fourth.changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(changed, ["secret"]);
}

// Finding scenarios F5: a revert silently left a file's other names unchanged.
#[tokio::test]
async fn all_names_of_a_file_are_restored() {
    let mut world = World::new().await;
    for name in ["a", "b", "c"] {
        world.file(name, "before");
    }
    let first = world.all().await;
    // One file with three names, changed through one of them.
    world.file("a", "after");
    for name in ["b", "c"] {
        fs::remove_file(world.root().join(name)).unwrap();
        fs::hard_link(world.root().join("a"), world.root().join(name)).unwrap();
    }
    let second = world.all().await;
    assert_eq!(second.changes.files.len(), 3);
    let restored = world.restore(&first.tree, Some(&["a", "b", "c"])).await;
    assert_eq!((restored.left, restored.files.len()), (vec![], 3));
    assert_eq!(world.files(), world.elsewhere(&first.tree).await);
    // Another process's change at the same moment stays.
    fs::remove_file(world.root().join("b")).unwrap();
    fs::hard_link(world.root().join("a"), world.root().join("b")).unwrap();
    world.file("a", "ours");
    world.all().await;
    world.file("a", "theirs, and not captured");
    let restored = world.restore(&first.tree, Some(&["a", "b"])).await;
    assert_eq!(restored.files.len() + restored.left.len(), 2, "{restored:?}");
}

// Finding scenarios F15: a revert neither removed nor created empty directories.
#[tokio::test]
async fn empty_directories_are_restored_and_nothing_in_them() {
    let mut world = World::new().await;
    world.file("a", "a");
    fs::create_dir_all(world.root().join("old/inner")).unwrap();
    let first = world.all().await;
    fs::remove_dir_all(world.root().join("old")).unwrap();
    fs::create_dir_all(world.root().join("new/x/y")).unwrap();
    fs::create_dir(world.root().join("used")).unwrap();
    let second = world.all().await;
    assert_eq!(second.changes.files, []);
    assert_eq!(second.changes.directories, ["new/x/y", "old/inner", "used"]);
    // Another process has put a file there since.
    world.file("used/theirs", "theirs");
    world.all().await;
    let restored = world.restore(&first.tree, Some(&["new/x/y/", "old/inner/", "used/"])).await;
    assert_eq!(restored.left, Vec::<String>::new());
    let there: Vec<_> = world.files().into_keys().collect();
    let expected = ["a", "old", "old/inner", "used", "used/theirs"];
    assert_eq!(there, expected.map(std::path::PathBuf::from));
}

#[tokio::test]
async fn what_no_pack_has_is_kept_unless_it_may_be_lost() {
    for unsaved in [Unsaved::Keep, Unsaved::Overwrite] {
        let mut world = World::new().await;
        world.file(".gitignore", "*.secret\n");
        world.file("a", "a1");
        world.file("dir/file", "1");
        world.file("was/here", "1");
        let first = world.all().await;
        fs::remove_dir_all(world.root().join("dir")).unwrap();
        fs::remove_dir_all(world.root().join("was")).unwrap();
        world.file("late/tracked", "x");
        world.all().await;
        // Changes after the last Capture, which nothing has seen.
        world.file("a", "typed just now");
        world.file("dir", "in the way");
        world.file("late/my.secret", "ignored");
        world.file("more", "new");
        let restored = world.shadow.restore(&first.tree, None, unsaved).await.unwrap();
        let files = world.files();
        assert_eq!(files[Path::new("late/my.secret")], Thing::File(b"ignored".into(), false));
        assert!(!files.contains_key(Path::new("late/tracked")));
        assert_eq!(files[Path::new("was/here")], Thing::File(b"1".into(), false));
        match unsaved {
            Unsaved::Keep => {
                assert_eq!(restored.left, ["a", "dir", "dir/file", "more"]);
                assert_eq!(files[Path::new("a")], Thing::File(b"typed just now".into(), false));
                assert_eq!(files[Path::new("dir")], Thing::File(b"in the way".into(), false));
                assert!(files.contains_key(Path::new("more")));
            }
            Unsaved::Overwrite => {
                assert_eq!(restored.left, Vec::<String>::new());
                assert_eq!(files[Path::new("a")], Thing::File(b"a1".into(), false));
                assert_eq!(files[Path::new("dir/file")], Thing::File(b"1".into(), false));
                assert!(!files.contains_key(Path::new("more")));
            }
        }
    }
}

#[tokio::test]
async fn no_symlink_leads_a_restore_out_of_the_location() {
    let mut world = World::new().await;
    world.file("dir/file", "mine");
    let first = world.all().await;
    world.file("dir/file", "changed");
    world.all().await;
    let outside = world.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "theirs").unwrap();
    fs::remove_dir_all(world.root().join("dir")).unwrap();
    world.link("dir", outside.to_str().unwrap());
    for unsaved in [Unsaved::Keep, Unsaved::Overwrite] {
        let paths = BTreeSet::from(["dir/file".to_owned()]);
        let _either_way = world.shadow.restore(&first.tree, Some(&paths), unsaved).await.unwrap();
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "theirs");
    }
    let restored = world.shadow.restore(&first.tree, None, Unsaved::Overwrite).await.unwrap();
    assert_eq!(restored.left, Vec::<String>::new());
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(world.root().join("dir/file")).unwrap(), "mine");
}

#[tokio::test]
async fn a_superseded_owner_restores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let held = LocationLock { path: folder.path().join("lock"), token: 7 };
    lock::acquire_or_kill(&held, std::time::Duration::ZERO).unwrap();
    let mut world = World::with(|options| options.lock = Some(held.clone())).await;
    world.file("a", "1");
    let first = world.all().await;
    world.file("a", "2");
    world.all().await;
    let newer = LocationLock { token: 8, ..held };
    lock::acquire_or_kill(&newer, std::time::Duration::ZERO).unwrap();
    let refused = world.shadow.restore(&first.tree, None, Unsaved::Overwrite).await;
    assert!(matches!(refused, Err(SnapshotError::Superseded(_))), "{refused:?}");
    assert_eq!(fs::read_to_string(world.root().join("a")).unwrap(), "2");
}

#[tokio::test]
async fn another_worker_takes_over_with_rows_and_blobs_alone() {
    let mut world = World::new().await;
    world.file("a", "1");
    world.file(".git/HEAD", "main");
    world.all().await;
    world.file("a", "2");
    let newest = world.all().await;
    let expected = world.files();
    world.file("a", "an effect that no snapshot has");

    let other = folder();
    world.options.root = other.path().join("root");
    world.options.cache = other.path().join("cache");
    world.options.token = FencingToken(8);
    fs::create_dir(world.root()).unwrap();
    world.reopen().await;
    assert_eq!(world.shadow.tree().await, Some(newest.tree));
    world.shadow.restore(&newest.tree, None, Unsaved::Overwrite).await.unwrap();
    assert_eq!(world.files(), expected);
    assert_eq!(world.capture(&Touched::Anything).await, None, "it is what the rows say");
    world.file("b", "3");
    let next = world.capture(&Touched::path("b")).await.unwrap();
    assert_eq!((next.token, next.ordinal, next.parent), (FencingToken(8), 1, Some(newest.tree)));
}

#[tokio::test]
async fn a_fork_has_the_files_and_packs_only_what_is_new() {
    let mut world = World::new().await;
    world.file("a", "one\n".repeat(500));
    let origin = world.all().await;
    let other = folder();
    let token = FencingToken(3); // lower than the origin's: tokens of different Locations are not compared
    world.options = ShadowOptions {
        root: other.path().join("root"),
        cache: other.path().join("cache"),
        at: LocationRef { location: "loc_2".parse().unwrap(), ..world.options.at.clone() },
        token,
        seed: world.pack_names(),
        packs: Vec::new(),
        ..world.options.clone()
    };
    fs::create_dir(world.root()).unwrap();
    world.reopen().await;
    assert_eq!(world.shadow.tree().await, None);
    world.shadow.restore(&origin.tree, None, Unsaved::Overwrite).await.unwrap();
    let first = world.all().await;
    assert_eq!((first.tree, first.parent, first.pack), (origin.tree, None, None));
    world.file("a", "two\n");
    let second = world.all().await;
    assert_eq!((second.token, second.parent), (token, Some(origin.tree)));
    assert_eq!(world.elsewhere(&second.tree).await, world.files());
    world.reopen().await;
    assert_eq!(world.shadow.tree().await, Some(second.tree));
}

// Finding core-3 H4: a chain of Locations was cut at the 32nd, and the last one could not be opened.
#[tokio::test]
async fn copies_of_copies_are_opened_by_few_indexes() {
    let mut world = World::new().await;
    let mut chain: Vec<String> = Vec::new();
    let mut folders = Vec::new();
    for n in 0..40 {
        let before = world.shadow.tree().await;
        let expected = world.files();
        let other = folder();
        chain.extend(world.pack_names());
        world.options = ShadowOptions {
            root: other.path().join("root"),
            cache: other.path().join("cache"),
            at: LocationRef {
                location: format!("loc_{n}").parse().unwrap(),
                ..world.options.at.clone()
            },
            seed: chain.clone(),
            packs: Vec::new(),
            ..world.options.clone()
        };
        fs::create_dir(world.root()).unwrap();
        world.reopen().await;
        let read = chain.len() - world.shadow.unread().await;
        assert!(read <= 10, "{read} of {} indexes are read", chain.len());
        if let Some(before) = before {
            world.shadow.restore(&before, None, Unsaved::Overwrite).await.unwrap();
        }
        assert_eq!(world.files(), expected);
        world.file(&format!("{n}"), format!("file {n}\n").repeat(50));
        let captured = world.all().await;
        assert_eq!(world.elsewhere(&captured.tree).await, world.files());
        folders.push(other);
    }
    assert_eq!(world.files().len(), 40);
}

#[tokio::test]
async fn a_diff_is_read_from_blobs_and_bounded() {
    let limits = SnapshotLimits {
        changes: 4,
        patch_bytes: 200,
        compared_bytes: 1_000,
        ..SnapshotLimits::default()
    };
    let mut world = World::with(|options| options.limits = limits.clone()).await;
    world.file("binary", b"a\0b");
    world.file("long", "line\n".repeat(100));
    world.file("huge", "x".repeat(2_000));
    let first = world.all().await;
    world.file("binary", b"a\0c");
    world.file("long", "other\n".repeat(100));
    world.file("huge", "y".repeat(2_000));
    world.file("text", "no line end");
    world.file("unlisted", "");
    let second = world.all().await;
    let org = world.options.at.org.to_string();
    let (blobs, packs) = (&world.options.blobs, world.pack_names());
    let found = diff(blobs, &org, packs.clone(), &first.tree, &second.tree, &limits).await.unwrap();
    assert_eq!(found, second.changes);
    assert_eq!(found, world.shadow.diff(&first.tree, &second.tree, None).await.unwrap());
    let seen: Vec<_> = found
        .files
        .iter()
        .map(|f| (f.path.as_str(), f.additions, f.deletions, f.patch.as_deref()))
        .collect();
    let text =
        "--- /dev/null\n+++ b/text\n@@ -0,0 +1 @@\n+no line end\n\\ No newline at end of file\n";
    assert_eq!(
        seen,
        [
            ("binary", 0, 0, None),
            ("huge", 0, 0, None),
            ("long", 100, 100, None),
            ("text", 1, 0, Some(text))
        ]
    );
    assert_eq!(found.more, 1);

    let lost = packs[..1].to_vec();
    let failed = diff(blobs, &org, lost, &first.tree, &second.tree, &limits).await;
    assert!(matches!(failed, Err(SnapshotError::MissingObject(_))), "{failed:?}");
    let unknown: TreeId = "0".repeat(64).parse().unwrap();
    let failed = world.shadow.restore(&unknown, None, Unsaved::Overwrite).await;
    assert!(matches!(failed, Err(SnapshotError::MissingObject(_))), "{failed:?}");
    assert_eq!(fs::read(world.root().join("text")).unwrap(), b"no line end");
}

#[tokio::test]
async fn a_damaged_pack_is_seen_before_a_file_is_touched() {
    let mut world = World::new().await;
    world.file("a", "some text that is long enough to be packed, packed, packed\n".repeat(9));
    let first = world.all().await;
    let name = first.pack.clone().unwrap();
    let path =
        world.folder.path().join(format!("blobs/o/{}/snapshot/{name}", world.options.at.org));
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 0xff;
    fs::write(&path, &bad).unwrap();
    let other = folder();
    world.options.root = other.path().join("root");
    world.options.cache = other.path().join("cache");
    fs::create_dir(world.root()).unwrap();
    world.reopen().await;
    let failed = world.shadow.restore(&first.tree, None, Unsaved::Overwrite).await;
    assert!(matches!(failed, Err(SnapshotError::Damaged { .. })), "{failed:?}");
    assert!(world.files().is_empty());
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    let packs = world.pack_names();
    let (blobs, org) = (&world.options.blobs, world.options.at.org.to_string());
    let limits = SnapshotLimits::default();
    let failed = diff(blobs, &org, packs, &first.tree, &first.tree, &limits).await;
    assert!(matches!(failed, Err(SnapshotError::Damaged { .. })), "{failed:?}");
}
