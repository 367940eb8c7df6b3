//! An operation that ends between any two steps, and the state that the next owner finds.

use std::collections::BTreeSet;
use std::fs;

use super::world::{Files, Thing, World};
use crate::place::TEMPORARY;
use crate::{SnapshotError, Touched, Unsaved};

/// More steps than any operation has.
const MANY: i64 = 1_000;

fn edit(world: &World) {
    world.file("a", "a long enough text, second\n");
    world.file("dir/b", "b2");
    world.executable("dir/b", true);
    fs::remove_file(world.root().join("gone")).unwrap();
    world.file("new/deep/c", "c");
    fs::remove_file(world.root().join("becomes")).unwrap();
    world.file("becomes/dir", "d");
    fs::remove_file(world.root().join("link")).unwrap();
    world.link("link", "dir");
}

fn set_up(world: &World) {
    world.file("a", "a long enough text, first\n");
    world.file("dir/b", "b1");
    world.file("gone", "g");
    world.file("becomes", "file");
    world.file("stays", "s");
    world.link("link", "a");
}

fn without_temporary(mut files: Files) -> Files {
    files.retain(|path, _| !path.file_name().unwrap().to_string_lossy().starts_with(TEMPORARY));
    files
}

#[tokio::test]
async fn a_capture_that_ends_anywhere_loses_nothing_and_names_no_missing_blob() {
    let mut ends = 0;
    for steps in 0..MANY {
        let mut world = World::new().await;
        set_up(&world);
        let first = world.all().await;
        edit(&world);
        let before = world.files();
        let crashed = match world.crashing(steps).await {
            Ok(()) => world.shadow.capture(&Touched::Anything).await,
            Err(error) => Err(error),
        };
        assert_eq!(world.files(), before, "a capture changes no file");
        match crashed {
            Err(SnapshotError::Crash) => ends += 1,
            Ok(Some(captured)) => {
                assert_eq!(world.elsewhere(&first.tree).await.len(), 7);
                world.commit(&captured).await;
                assert_eq!(world.elsewhere(&captured.tree).await, before);
                assert!(ends >= 3, "{ends}");
                return;
            }
            other => panic!("{other:?}"),
        }
        // The restarted worker's rows do not have it.
        world.reopen().await;
        assert_eq!(world.shadow.tree().await, Some(first.tree));
        let captured = world.all().await;
        assert_eq!(captured.parent, Some(first.tree));
        assert_eq!(captured.changes.files.len(), 7, "{:#?}", captured.changes.files);
        assert_eq!(world.elsewhere(&captured.tree).await, before);
    }
    panic!("the capture never ended");
}

#[tokio::test]
async fn a_first_capture_and_its_stat_index_may_end_anywhere() {
    for steps in 0..MANY {
        let mut world = World::new().await;
        (0..300).for_each(|n| world.file(&format!("{n}"), format!("{n}")));
        world.crashing(steps).await.unwrap();
        let ended = world.shadow.capture(&Touched::Anything).await;
        let done = match ended {
            Err(SnapshotError::Crash) => false,
            Ok(Some(_)) => true,
            other => panic!("{other:?}"),
        };
        world.reopen().await;
        assert_eq!(world.shadow.tree().await, None);
        let captured = world.all().await;
        assert_eq!(captured.parent, None);
        assert_eq!(world.elsewhere(&captured.tree).await, world.files());
        if done {
            assert!(steps >= 5, "{steps}: blob, index twice, its name, the list");
            return;
        }
    }
    panic!("the capture never ended");
}

#[tokio::test]
async fn a_restore_that_ends_anywhere_leaves_whole_files_and_can_be_done_again() {
    for paths in [None, Some(["a", "dir", "gone", "new", "becomes", "link"])] {
        let paths: Option<BTreeSet<String>> = paths.map(|p| p.map(str::to_owned).into());
        let mut ends = 0;
        let done = 'steps: {
            for steps in 0..MANY {
                let mut world = World::new().await;
                set_up(&world);
                let first = world.all().await;
                let old = world.files();
                edit(&world);
                let second = world.all().await;
                let new = world.files();
                world.crashing(steps).await.unwrap();
                let ended = world.shadow.restore(&first.tree, paths.as_ref(), Unsaved::Keep).await;
                let crashed = match ended {
                    Err(SnapshotError::Crash) => true,
                    Ok(restored) => {
                        assert_eq!(restored.left, Vec::<String>::new());
                        assert_eq!(world.files(), old);
                        false
                    }
                    Err(other) => panic!("{other}"),
                };
                for (path, thing) in without_temporary(world.files()) {
                    let is_whole = old.get(&path) == Some(&thing) || new.get(&path) == Some(&thing);
                    assert!(is_whole || thing == Thing::Directory, "{path:?} {thing:?}");
                }
                // The restarted worker repeats or reverts it.
                world.reopen().await;
                let again = world.shadow.restore(&first.tree, paths.as_ref(), Unsaved::Keep).await;
                assert_eq!(again.unwrap().left, Vec::<String>::new());
                assert_eq!(world.files(), old, "after {steps} steps");
                world.reopen().await;
                let back = world.shadow.restore(&second.tree, paths.as_ref(), Unsaved::Keep).await;
                assert_eq!(back.unwrap().left, Vec::<String>::new());
                assert_eq!(world.files(), new, "after {steps} steps");
                if !crashed {
                    break 'steps true;
                }
                ends += 1;
            }
            false
        };
        assert!(done && ends >= 15, "{done} {ends}");
    }
}
