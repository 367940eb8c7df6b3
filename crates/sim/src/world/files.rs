//! The files of Locations: changes by calls, Workspace Snapshots, disks that a takeover does not find again.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    CallId, FencingToken, FileChange, FileStatus, SessionEvent, SnapshotTree, TurnId,
    WorkspaceSnapshotted,
};
use history::hash_hex;
use session_rules::PutBack;

use super::World;
use crate::fault::Fault;
use crate::mutant::ShellMutant;

/// Paths that calls write to.
const PATHS: usize = 4;

/// The files of a Location.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    files: BTreeMap<String, u64>,
    /// The calls whose effects are there.
    pub(super) done: BTreeSet<CallId>,
}

/// A Location's disk, as its holder has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) content: Content,
    /// The newest snapshot whose row is written.
    tree: Option<SnapshotTree>,
    newest: (i64, i64),
    ordinal: i64,
    /// A capture of all files was made under this token.
    seen: Option<i64>,
    /// Where each worker has its own disk: the worker that has it, and its token.
    on: Option<(usize, i64)>,
    /// The token under which the files were restored, and their tree. Known as long as these files exist.
    pub(super) restored: Option<(FencingToken, Option<SnapshotTree>)>,
}

impl Disk {
    /// The database's row of it: the newest snapshot.
    pub(super) fn row(&self) -> (Option<SnapshotTree>, (i64, i64)) {
        (self.tree.clone(), self.newest)
    }

    /// The database has come back with an earlier row.
    pub(super) fn comes_back(&mut self, (tree, newest): (Option<SnapshotTree>, (i64, i64))) {
        self.tree = tree;
        self.newest = newest;
    }
}

/// A capture that is under way.
#[derive(Debug, Clone)]
pub(crate) struct Capture {
    pub(crate) ends_at: i64,
    /// The files.
    pub(crate) tree: SnapshotTree,
    token: i64,
    /// Its result.
    taken: Taken,
    fails: bool,
}

/// The result of a capture.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    /// The row to be written of it.
    pub(crate) row: WorkspaceSnapshotted,
    /// Nothing has changed since the newest row, which this one repeats.
    pub(crate) as_before: bool,
}

impl Capture {
    /// Returns its result.
    pub(crate) fn taken(&self) -> &Taken {
        &self.taken
    }
}

impl World {
    /// Begins a capture of the files of Location `at`.
    pub(crate) fn capture(&mut self, at: usize, token: i64, turn: Option<TurnId>) -> Capture {
        let slow = !self.quiet && self.rng.chance(8);
        let ends_at = self.now + if slow { self.range(300, 1_500) } else { self.range(1, 60) };
        let fails = !self.quiet && self.rng.chance(8);
        let disk = &self.disks[at];
        let tree = tree_of(&disk.content);
        let parent = disk.tree.clone();
        let before = parent.as_ref().and_then(|parent| self.trees.get(parent));
        let files = changes(before.map(|content| &content.files), &disk.content.files);
        let row = WorkspaceSnapshotted {
            token: FencingToken(token),
            ordinal: disk.ordinal + 1,
            pack: Some(format!("{at}-{token}-{}", disk.ordinal + 1)),
            tree: tree.clone(),
            parent,
            bytes: 1,
            base: turn.is_none(),
            turn,
            files,
            more: 0,
            directories: Vec::new(),
            skipped: Vec::new(),
        };
        let same = row.parent.as_ref() == Some(&tree);
        if same && let Some(taken) = self.as_before(at, row.clone()) {
            return Capture { ends_at, tree, token, taken, fails };
        }
        let disk = &mut self.disks[at];
        disk.ordinal += 1;
        self.trees.insert(tree.clone(), disk.content.clone());
        Capture { ends_at, tree, token, taken: Taken { row, as_before: false }, fails }
    }

    /// Repeats the newest row with everything of `row` except its files. `None` without a newest row.
    pub(crate) fn as_before(&self, at: usize, row: WorkspaceSnapshotted) -> Option<Taken> {
        let Disk { tree, newest: (token, ordinal), .. } = &self.disks[at];
        let tree = tree.clone()?;
        let row = WorkspaceSnapshotted {
            token: FencingToken(*token),
            ordinal: *ordinal,
            parent: Some(tree.clone()),
            tree,
            pack: None,
            files: Vec::new(),
            ..row
        };
        Some(Taken { row, as_before: true })
    }

    /// Ends a capture, and stores its pack. `None` if it failed.
    pub(crate) fn captured(&mut self, at: usize, capture: Capture) -> Option<Taken> {
        if capture.fails {
            self.faults.note(Fault::SnapshotFailed);
            return None;
        }
        self.disks[at].seen = Some(capture.token);
        self.packs.extend(capture.taken.row.pack.clone());
        Some(capture.taken)
    }

    /// Returns whether no capture has been made under this token.
    pub(crate) fn wants_base(&self, at: usize, token: i64) -> bool {
        self.disks[at].seen != Some(token)
    }

    /// A call's body has its effect.
    pub(super) fn touch(&mut self, at: usize, call: &CallId) {
        let path = format!("file{}", self.rng.index(PATHS));
        self.touched += 1;
        self.writers.insert(self.touched, call.clone());
        let content = &mut self.disks[at].content;
        content.files.insert(path, self.touched);
        content.done.insert(call.clone());
        self.effects.insert(call.clone());
    }

    /// Makes files equal to their trees. False if it failed after some of them.
    pub(crate) fn put_back(&mut self, at: usize, steps: &[PutBack]) -> bool {
        for PutBack { tree, paths } in steps {
            if !self.quiet && self.rng.chance(6) {
                self.faults.note(Fault::PutBackFailed);
                return false;
            }
            let wanted = self.trees.get(tree).map(|content| content.files.clone());
            let wanted = wanted.unwrap_or_default();
            let files = &mut self.disks[at].content.files;
            let all: BTreeSet<String> = files.keys().chain(wanted.keys()).cloned().collect();
            for path in all.iter().filter(|path| paths.as_ref().is_none_or(|p| p.contains(*path))) {
                match wanted.get(path) {
                    Some(version) => files.insert(path.clone(), *version),
                    None => files.remove(path),
                };
            }
        }
        true
    }

    /// Compares two trees.
    pub(crate) fn diff(&self, from: &SnapshotTree, to: &SnapshotTree) -> Vec<FileChange> {
        let files = |tree| self.trees.get(tree).map(|content: &Content| &content.files);
        changes(files(from), files(to).unwrap_or(&BTreeMap::new()))
    }

    /// The calls that wrote the files of a tree.
    pub(super) fn writers_of(&self, tree: &SnapshotTree) -> impl Iterator<Item = &CallId> {
        let files = self.trees.get(tree).into_iter().flat_map(|content| content.files.values());
        files.filter_map(|version| self.writers.get(version))
    }

    /// The newest snapshot of a Location whose row is written.
    pub(super) fn newest_tree(&self, at: usize) -> Option<SnapshotTree> {
        self.disks[at].tree.clone()
    }

    /// A Location begins with the files of another one.
    pub(super) fn seed(&mut self, at: usize, tree: &SnapshotTree) {
        let files = self.trees.get(tree).map(|content| content.files.clone()).unwrap_or_default();
        let content = Content { files, done: BTreeSet::new() };
        self.disks[at] = Disk { content, tree: Some(tree.clone()), ..Disk::default() };
    }

    /// A worker with its own disk takes over a Location whose fence was `before`. Unless it held the Location last, it
    /// restores the files.
    pub(super) fn own_disk(&mut self, at: usize, worker: usize, before: i64, token: i64) {
        let forgets = self.is(ShellMutant::MadeAnewForgotten);
        let disk = &mut self.disks[at];
        let last = disk.on.replace((worker, token));
        if [(worker, before), (worker, token)].map(Some).contains(&last) {
            disk.restored = disk.restored.take().filter(|_| !forgets);
            return;
        }
        if before == 0 {
            return;
        }
        let newest = disk.tree.as_ref().and_then(|tree| self.trees.get(tree));
        let content = newest.cloned().unwrap_or_default();
        if content != disk.content {
            self.faults.note(Fault::DiskLost);
        }
        disk.content = content;
        disk.restored = Some((FencingToken(token), disk.tree.clone()));
    }

    /// Checks that the last `events` of a drain at `at` tell the truth about files.
    pub(super) fn check_files(&mut self, session: usize, at: usize, events: usize) {
        let log = &self.store.sessions[session].events;
        for recorded in &log[log.len().saturating_sub(events)..] {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these are about files")]
            let found = match &recorded.event {
                SessionEvent::WorkspaceSnapshotted(taken) => {
                    let disk = &mut self.disks[at];
                    let place = (taken.token.0, taken.ordinal);
                    if place > disk.newest {
                        disk.newest = place;
                        disk.tree = Some(taken.tree.clone());
                    }
                    let stored = taken.pack.as_ref().is_none_or(|pack| self.packs.contains(pack));
                    (!stored).then(|| format!("I14: the pack of {} is nowhere", taken.tree))
                }
                SessionEvent::WorkspaceRestored(restored) => {
                    let there = &self.disks[at].content.done;
                    let calls = self.checkers[session].calls_with_effects();
                    let gone = calls.filter(|call| {
                        self.effects.contains(*call)
                            && !there.contains(*call)
                            && !restored.lost.contains(*call)
                            && !self.told_lost.contains(*call)
                    });
                    let forgotten = gone.cloned().collect::<Vec<_>>();
                    self.told_lost.extend(restored.lost.iter().cloned());
                    let first = forgotten.first();
                    first.map(|call| format!("files: the effect of {call} is gone, and not told"))
                }
                SessionEvent::SessionMoved(moved) => {
                    let to = self.facts.locations.iter().position(|at| *at == moved.to);
                    if let Some(to) = to {
                        self.visitors[to].insert(session);
                    }
                    None
                }
                SessionEvent::TurnStarted(started) => {
                    let there = &self.disks[at].content.done;
                    let mut calls = self.checkers[session].calls_with_effects();
                    let unknown = calls.find(|call| {
                        self.effects.contains(*call)
                            && !there.contains(*call)
                            && !self.told_lost.contains(*call)
                    });
                    let turn = &started.turn;
                    unknown.map(|call| {
                        format!("files: {turn} begins, and nobody has said that {call} is gone")
                    })
                }
                _ => None,
            };
            if let Some(violation) = found {
                self.violation.get_or_insert(violation);
            }
        }
    }
}

fn tree_of(content: &Content) -> SnapshotTree {
    let hash = hash_hex(format!("{content:?}").as_bytes());
    SnapshotTree::try_from(hash).unwrap_or_else(|_| unreachable!("64 hex digits"))
}

fn changes(from: Option<&BTreeMap<String, u64>>, to: &BTreeMap<String, u64>) -> Vec<FileChange> {
    let empty = BTreeMap::new();
    let from = from.unwrap_or(&empty);
    let paths: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let differ = paths.into_iter().filter(|path| from.get(*path) != to.get(*path));
    differ
        .map(|path| FileChange {
            path: path.clone(),
            status: match (from.contains_key(path), to.contains_key(path)) {
                (false, _) => FileStatus::Added,
                (true, true) => FileStatus::Modified,
                (true, false) => FileStatus::Deleted,
            },
            additions: 1,
            deletions: 0,
            patch: None,
        })
        .collect()
}
