//! Random edits: a restore gives the captured files, and a diff equals a naive comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::world::{Files, Thing, World};
use crate::{ChangeStatus, FileChange, Touched, TreeId};

#[derive(Debug, Clone)]
enum Edit {
    Write(String, String),
    Executable(String, bool),
    Link(String, String),
    Make(String),
    Remove(String),
    Rename(String, String),
}

fn path() -> impl Strategy<Value = String> {
    "[abc](/[abc]){0,2}"
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (path(), "([xyz]\n){0,6}z?").prop_map(|(p, text)| Edit::Write(p, text)),
        1 => (path(), any::<bool>()).prop_map(|(p, is)| Edit::Executable(p, is)),
        1 => (path(), path()).prop_map(|(p, to)| Edit::Link(p, to)),
        1 => path().prop_map(Edit::Make),
        2 => path().prop_map(Edit::Remove),
        2 => (path(), path()).prop_map(|(p, to)| Edit::Rename(p, to)),
    ]
}

/// Makes an edit as far as possible, and returns the paths that it may have touched.
fn make(world: &World, edit: &Edit) -> Vec<String> {
    // Use a path only if no link is on the way, as `Touched` promises.
    let plain = |path: &str| {
        let links = Path::new(path).ancestors().skip(1).any(|up| {
            fs::symlink_metadata(world.root().join(up)).is_ok_and(|found| found.is_symlink())
        });
        (!links).then(|| world.root().join(path))
    };
    let parent = |path: &Path| fs::create_dir_all(path.parent().unwrap());
    let (touched, done) = match edit {
        Edit::Write(path, text) => (
            vec![path],
            plain(path).map(|at| {
                let _a_link_is_replaced = fs::symlink_metadata(&at)
                    .is_ok_and(|found| found.is_symlink())
                    .then(|| fs::remove_file(&at));
                parent(&at).and_then(|()| fs::write(at, text))
            }),
        ),
        Edit::Executable(path, is) => (
            vec![path],
            plain(path).map(|at| {
                if fs::symlink_metadata(&at).is_ok_and(|found| found.is_file()) {
                    world.executable(path, *is);
                }
                Ok(())
            }),
        ),
        Edit::Link(path, to) => (
            vec![path],
            plain(path).map(|at| parent(&at).and_then(|()| std::os::unix::fs::symlink(to, at))),
        ),
        Edit::Make(path) => (vec![path], plain(path).map(fs::create_dir_all)),
        Edit::Remove(path) => (
            vec![path],
            plain(path).map(|at| fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at))),
        ),
        Edit::Rename(from, to) => (
            vec![from, to],
            plain(from)
                .zip(plain(to))
                .map(|(from, to)| parent(&to).and_then(|()| fs::rename(from, to))),
        ),
    };
    let _not_possible_here = done;
    touched.into_iter().cloned().collect()
}

/// Splits text into lines with their ends, as a diff counts them.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Returns the length of the longest common subsequence, by the textbook algorithm.
fn common(a: &[&str], b: &[&str]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (at, y) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if x == y { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

/// Returns a leaf as text, with its kind.
fn leaf(thing: Option<&Thing>) -> Option<(String, u8)> {
    match thing? {
        Thing::Directory => None,
        Thing::File(bytes, executable) => {
            Some((String::from_utf8(bytes.clone()).unwrap(), u8::from(*executable)))
        }
        Thing::Link(target) => Some((target.to_str().unwrap().to_owned(), 2)),
    }
}

/// Returns the differences, by comparing every path and every line.
fn naive(before: &Files, after: &Files) -> BTreeMap<String, (ChangeStatus, u64, u64)> {
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let mut changes = BTreeMap::new();
    for path in paths {
        let (old, new) = (leaf(before.get(path)), leaf(after.get(path)));
        let status = match (&old, &new) {
            (None, None) => continue,
            (None, Some(_)) => ChangeStatus::Added,
            (Some(_), None) => ChangeStatus::Deleted,
            (Some(old), Some(new)) if old == new => continue,
            (Some(_), Some(_)) => ChangeStatus::Modified,
        };
        let (old, new) = (old.unwrap_or_default().0, new.unwrap_or_default().0);
        let (old, new) = (lines(&old), lines(&new));
        let common = common(&old, &new);
        let counted = (status, (new.len() - common) as u64, (old.len() - common) as u64);
        changes.insert(path.to_str().unwrap().to_owned(), counted);
    }
    changes
}

/// Applies a patch to a text.
fn patched(text: &str, patch: &str) -> Option<String> {
    let old = lines(text);
    let (mut at, mut new, mut last) = (0, String::new(), b' ');
    for line in patch.split_inclusive('\n').skip(2) {
        let rest = &line[1..];
        match line.as_bytes()[0] {
            b'@' => {
                let range = line.split(' ').nth(1)?.strip_prefix('-')?;
                let (start, count) = range.split_once(',').unwrap_or((range, "1"));
                let start: usize = start.parse().ok()?;
                let until = if count == "0" { start } else { start - 1 };
                new.extend(old.get(at..until)?.iter().copied());
                at = until;
            }
            b'\\' if last == b'-' => {}
            b'\\' => drop(new.pop()),
            b'+' => new += rest,
            sign => {
                let line = old.get(at)?;
                if line.trim_end_matches('\n') != rest.trim_end_matches('\n') {
                    return None;
                }
                if sign == b' ' {
                    new += rest;
                }
                at += 1;
            }
        }
        last = line.as_bytes()[0];
    }
    new.extend(old.get(at..)?.iter().copied());
    Some(new)
}

fn check(before: &Files, after: &Files, found: &[FileChange]) -> Result<(), TestCaseError> {
    let seen: BTreeMap<_, _> = found
        .iter()
        .map(|change| (change.path.clone(), (change.status, change.additions, change.deletions)))
        .collect();
    prop_assert_eq!(seen, naive(before, after));
    for change in found {
        let side = |files: &Files| leaf(files.get(Path::new(&change.path))).unwrap_or_default().0;
        let (old, new) = (side(before), side(after));
        match &change.patch {
            None => prop_assert_eq!(old, new, "{}", &change.path),
            Some(patch) => {
                prop_assert_eq!(patched(&old, patch), Some(new), "{}", patch);
            }
        }
    }
    Ok(())
}

async fn run(rounds: Vec<(Vec<Edit>, bool, bool)>, back: usize) -> Result<(), TestCaseError> {
    let mut world = World::new().await;
    world.file("a", "x\n");
    let mut known: Vec<(TreeId, Files)> = vec![(world.all().await.tree, world.files())];
    for (edits, told, restart) in rounds {
        let touched = edits.iter().flat_map(|edit| make(&world, edit)).collect();
        let touched = if told { Touched::Paths(touched) } else { Touched::Anything };
        if restart {
            world.reopen().await;
        }
        let now = world.files();
        let (last, before) = known.last().cloned().unwrap();
        match world.capture(&touched).await {
            None => prop_assert_eq!(&now, &before),
            Some(captured) => {
                prop_assert_eq!(captured.parent, Some(last));
                check(&before, &now, &captured.changes.files)?;
                known.push((captured.tree, now.clone()));
            }
        }
        let (tree, _) = known.last().unwrap();
        prop_assert_eq!(&world.elsewhere(tree).await, &now);
    }
    // Any two trees can be compared, and any tree can be restored.
    let (tree, files) = &known[back % known.len()];
    let (newest, now) = known.last().unwrap();
    check(now, files, &world.shadow.diff(newest, tree, None).await.unwrap().files)?;
    let restored = world.restore(tree, None).await;
    prop_assert!(restored.left.is_empty(), "{:?}", restored.left);
    check(now, files, &restored.files)?;
    prop_assert_eq!(&world.files(), files);
    let captured = world.capture(&Touched::Nothing).await;
    prop_assert_eq!(captured.map_or(*newest, |captured| captured.tree), *tree);
    Ok(())
}

proptest! {
    #[test]
    fn what_is_restored_is_what_was_captured_and_a_diff_is_what_differs(
        rounds in prop::collection::vec(
            (prop::collection::vec(edit(), 1..8), any::<bool>(), prop::bool::weighted(0.2)),
            1..6,
        ),
        back in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(rounds, back.index(64)))?;
    }
}
