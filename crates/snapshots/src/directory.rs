//! The Location's tracked files as last seen: names, kinds, ids, and the stat that proves them unchanged.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::object::{Entries, Entry, Kind, ObjectId, TreeBytes};

/// The age below which a file may change again without a change of its times: the kernel's clock ticks, and a
/// file server's clock may be off by as much. In nanoseconds.
const RACY_NS: i64 = 2_000_000_000;

/// The stat that proves a file's content unchanged: times in nanoseconds, size in bytes, inode, mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Vouch {
    pub(crate) changed_ns: i64,
    pub(crate) modified_ns: i64,
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
}

fn nanoseconds<E>(seconds: i64, nanoseconds: Result<i64, E>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.unwrap_or(0))
}

impl Vouch {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            changed_ns: nanoseconds(stat.st_ctime, i64::try_from(stat.st_ctime_nsec)),
            modified_ns: nanoseconds(stat.st_mtime, i64::try_from(stat.st_mtime_nsec)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            mode: stat.st_mode,
        }
    }

    /// Returns the stat without the change time, which also changes when the file gains or loses a name.
    pub(crate) fn but_for_links(self) -> Self {
        Self { changed_ns: 0, ..self }
    }

    /// Returns whether the file could change after `now_ns` and look the same.
    pub(crate) fn is_racy(&self, now_ns: i64) -> bool {
        self.changed_ns.max(self.modified_ns).saturating_add(RACY_NS) >= now_ns
    }
}

/// A file or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) entry: Entry,
    pub(crate) vouch: Vouch,
    /// Read it again at the next scan, whatever its stat says.
    pub(crate) racy: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Leaf(Leaf),
    Dir(Dir),
}

/// A directory. Its id is unknown after a change beneath it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dir {
    pub(crate) nodes: BTreeMap<OsString, Node>,
    pub(crate) id: Option<ObjectId>,
}

impl Dir {
    /// Returns the id, computing it where something changed.
    pub(crate) fn seal(&mut self) -> ObjectId {
        if let Some(id) = self.id {
            return id;
        }
        for node in self.nodes.values_mut() {
            if let Node::Dir(dir) = node {
                dir.seal();
            }
        }
        let id = ObjectId::of(&self.bytes());
        self.id = Some(id);
        id
    }

    /// Returns the tree object. Directories beneath must be sealed: an unsealed one counts as empty.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = TreeBytes::default();
        for (name, node) in &self.nodes {
            bytes.push(name, node.entry());
        }
        bytes.done()
    }

    fn entries(&self) -> Entries {
        self.nodes.iter().map(|(name, node)| (name.clone(), node.entry())).collect()
    }

    /// Returns all sealed directories by id, to compare with stored trees.
    pub(crate) fn all_entries(&self) -> HashMap<ObjectId, Entries> {
        let (mut all, mut rest) = (HashMap::new(), vec![self]);
        while let Some(dir) = rest.pop() {
            if let Some(id) = dir.id {
                all.entry(id).or_insert_with(|| dir.entries());
            }
            rest.extend(dir.nodes.values().filter_map(Node::dir));
        }
        all
    }

    /// Returns its own id and those of everything in it. Sealed directories only.
    pub(crate) fn ids(&self) -> Vec<ObjectId> {
        let (mut all, mut rest) = (Vec::new(), vec![self]);
        while let Some(dir) = rest.pop() {
            all.extend(dir.id);
            for node in dir.nodes.values() {
                match node {
                    Node::Leaf(leaf) => all.push(leaf.entry.id),
                    Node::Dir(dir) => rest.push(dir),
                }
            }
        }
        all
    }

    /// Returns the file or link at `path`.
    pub(crate) fn leaf(&self, path: &Path) -> Option<&Leaf> {
        let (parent, name) = (path.parent()?, path.file_name()?);
        let mut dir = self;
        for name in parent {
            dir = dir.nodes.get(name)?.dir()?;
        }
        match dir.nodes.get(name)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Dir(_) => None,
        }
    }

    /// Puts a node at `path`, creating directories on the way, or removes it.
    pub(crate) fn set(&mut self, path: &Path, node: Option<Node>) {
        let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else { return };
        let mut dir = self;
        for name in parent {
            dir.id = None;
            dir = dir.enter(name);
        }
        dir.id = None;
        match node {
            Some(node) => drop(dir.nodes.insert(last.to_owned(), node)),
            None => drop(dir.nodes.remove(last)),
        }
    }

    /// Creates `path` as a directory if needed.
    pub(crate) fn make(&mut self, path: &Path) {
        let mut dir = self;
        for name in path {
            dir.id = None;
            dir = dir.enter(name);
        }
        dir.id = None;
    }

    fn enter(&mut self, name: &OsStr) -> &mut Dir {
        let node = self.nodes.entry(name.to_owned()).or_insert_with(|| Node::Dir(Dir::default()));
        if let Node::Leaf(_) = node {
            *node = Node::Dir(Dir::default());
        }
        match node {
            Node::Dir(dir) => dir,
            Node::Leaf(_) => unreachable!("a leaf was just replaced"),
        }
    }

    /// Marks a file for reading at the next scan.
    pub(crate) fn doubt(&mut self, path: &Path) {
        if let Some(mut leaf) = self.leaf(path).cloned() {
            leaf.racy = true;
            self.set(path, Some(Node::Leaf(leaf)));
        }
    }

    /// Visits every leaf and every empty directory, in order.
    pub(crate) fn visit(&self, at: &mut PathBuf, each: &mut impl FnMut(&Path, Option<&Leaf>)) {
        if self.nodes.is_empty() {
            each(at, None);
        }
        for (name, node) in &self.nodes {
            at.push(name);
            match node {
                Node::Leaf(leaf) => each(at, Some(leaf)),
                Node::Dir(dir) => dir.visit(at, each),
            }
            at.pop();
        }
    }
}

impl Node {
    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Leaf(leaf) => leaf.entry,
            Self::Dir(dir) => {
                let id = dir.id.unwrap_or_else(|| ObjectId::of(b""));
                Entry { kind: Kind::Directory, id }
            }
        }
    }

    pub(crate) fn dir(&self) -> Option<&Dir> {
        match self {
            Self::Dir(dir) => Some(dir),
            Self::Leaf(_) => None,
        }
    }
}
