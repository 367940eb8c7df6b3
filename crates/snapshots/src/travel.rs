//! Objects on their way to another service: read out of the packs here, and proved and packed there.
//!
//! ```text
//! packs ─ObjectWalk→ (id, kind, bytes) … every object after those below it ─Intake→ one pack
//! ```
//!
//! Invariant: an Intake takes only whole trees that a Capture could have made, so no tree in its pack lacks an object
//! or is larger than a Location may be.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use blobs::{BlobKey, Blobs};
use bytes::Bytes;

use crate::error::SnapshotError;
use crate::limits::SnapshotLimits;
use crate::object::{Kind, ObjectId, TreeId, parse_tree};
use crate::objects::{BLOB_KIND, Objects, Runs};
use crate::pack::{PackBody, PackWriter};

/// The most objects that one session brings.
const MAX_OBJECTS: usize = 1_000_000;
/// The most bytes of the files of one tree, and of all objects together.
const MAX_BYTES: u64 = 32 * 1024 * 1024 * 1024;

/// Whether an object is a directory's list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// It is.
    Tree,
    /// It is a file's bytes or a link's target.
    File,
}

/// An object with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The SHA-256 of its bytes, in hex.
    pub id: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its content.
    pub bytes: Bytes,
}

/// Reads every object of some trees once, each directory after all that is in it.
pub struct ObjectWalk {
    objects: Objects,
    seen: HashSet<(ObjectId, ObjectKind)>,
    steps: Vec<Step>,
    ready: VecDeque<Object>,
}

/// A step of a walk that is still to be done.
enum Step {
    Enter(ObjectId),
    Files(Runs),
    Leave(ObjectId, Bytes),
}

impl ObjectWalk {
    /// Opens a walk through `trees`, whose objects are in these packs of an organisation, oldest first.
    ///
    /// # Errors
    /// When a pack cannot be read.
    pub async fn open(
        blobs: Blobs,
        org: String,
        packs: Vec<String>,
        trees: impl IntoIterator<Item = TreeId>,
    ) -> Result<Self, SnapshotError> {
        let objects = Objects::open(blobs, org, packs).await?;
        let steps = trees.into_iter().map(|tree| Step::Enter(tree.0)).collect();
        Ok(Self { objects, seen: HashSet::new(), steps, ready: VecDeque::new() })
    }

    /// Returns the next object; `None` after the last.
    ///
    /// # Errors
    /// [`SnapshotError::MissingObject`] when no pack has an object.
    pub async fn next(&mut self) -> Result<Option<Object>, SnapshotError> {
        loop {
            if let Some(object) = self.ready.pop_front() {
                return Ok(Some(object));
            }
            match self.steps.pop() {
                None => return Ok(None),
                Some(Step::Enter(tree)) => self.enter(tree).await?,
                Some(Step::Files(mut runs)) => {
                    let Some(files) = self.objects.read_next(&mut runs).await? else { continue };
                    self.steps.push(Step::Files(runs));
                    self.ready.extend(files.into_iter().map(|(id, bytes)| Object {
                        id: id.to_string(),
                        kind: ObjectKind::File,
                        bytes,
                    }));
                }
                Some(Step::Leave(tree, bytes)) => {
                    let id = tree.to_string();
                    return Ok(Some(Object { id, kind: ObjectKind::Tree, bytes }));
                }
            }
        }
    }

    async fn enter(&mut self, tree: ObjectId) -> Result<(), SnapshotError> {
        if !self.seen.insert((tree, ObjectKind::Tree)) {
            return Ok(());
        }
        let missing = || SnapshotError::MissingObject(tree.to_string());
        let bytes = if tree == TreeId::empty().0 {
            Bytes::new() // known without a pack
        } else {
            self.objects.get([tree]).await?.remove(&tree).ok_or_else(missing)?
        };
        let entries = parse_tree(&bytes).ok_or_else(|| SnapshotError::Damaged {
            pack: tree.to_string(),
            what: "it is no tree",
        })?;
        self.steps.push(Step::Leave(tree, bytes));
        let mut files = Vec::new();
        for (_, entry) in entries {
            if entry.kind == Kind::Directory {
                self.steps.push(Step::Enter(entry.id));
            } else if self.seen.insert((entry.id, ObjectKind::File)) {
                files.push(entry.id);
            }
        }
        self.steps.push(Step::Files(self.objects.runs(files).await?));
        Ok(())
    }
}

/// The reason why objects of another service are not taken.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The content is another one than the id says.
    #[error("object {0} has other content than its id says")]
    WrongContent(String),
    /// It is called a tree and is none.
    #[error("object {0} is no list of names")]
    NoTree(String),
    /// An object comes before, or without, one below it.
    #[error("object {missing} of tree {tree} is missing")]
    Missing {
        /// The object that did not come.
        missing: String,
        /// The tree that has it.
        tree: String,
    },
    /// No Location may have this; the bound.
    #[error("the files are more than a workspace may have: {0}")]
    Beyond(&'static str),
    /// They cannot be kept.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The size of everything in a tree.
#[derive(Debug, Clone, Copy, Default)]
struct TreeSize {
    depth: usize,
    entries: usize,
    bytes: u64,
}

/// Takes objects of another service, proves them, and packs them.
pub struct Intake {
    pack: PackWriter,
    trees: HashMap<ObjectId, TreeSize>,
    objects: usize,
    limits: SnapshotLimits,
}

impl Intake {
    /// Begins with nothing. A large pack grows in an unnamed file in `folder`.
    ///
    /// # Errors
    /// When there is no memory for compression.
    pub fn new(folder: &Path, limits: SnapshotLimits) -> Result<Self, SnapshotError> {
        let pack = PackWriter::new(folder, MAX_BYTES)?;
        Ok(Self { pack, trees: HashMap::new(), objects: 0, limits })
    }

    /// Takes an object. The objects of a tree come before it. Work on the content is done on a blocking thread.
    ///
    /// # Errors
    /// [`IntakeError`]; the Intake is lost.
    pub async fn take(mut self, object: Object) -> Result<Self, IntakeError> {
        let work = tokio::task::spawn_blocking(move || {
            self.add(&object)?;
            Ok(self)
        });
        work.await.map_err(SnapshotError::from)?
    }

    fn add(&mut self, Object { id, kind, bytes }: &Object) -> Result<(), IntakeError> {
        let own = ObjectId::of(bytes);
        if own.to_string() != *id {
            return Err(IntakeError::WrongContent(id.clone()));
        }
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(IntakeError::Beyond("1,000,000 objects in all snapshots"));
        }
        match kind {
            ObjectKind::Tree => {
                let size = self.measure(own, bytes)?;
                self.trees.insert(own, size);
            }
            ObjectKind::File if bytes.len() as u64 > self.limits.git_file_bytes => {
                return Err(IntakeError::Beyond("64 MiB in a file"));
            }
            ObjectKind::File => {}
        }
        Ok(self.pack.add(own, bytes)?)
    }

    /// Measures a tree by those below it, which are here.
    fn measure(&self, tree: ObjectId, bytes: &[u8]) -> Result<TreeSize, IntakeError> {
        let entries = parse_tree(bytes).ok_or_else(|| IntakeError::NoTree(tree.to_string()))?;
        let mut size = TreeSize { depth: 1, entries: entries.len(), bytes: 0 };
        for (_, entry) in entries {
            let missing =
                || IntakeError::Missing { missing: entry.id.to_string(), tree: tree.to_string() };
            if entry.kind == Kind::Directory {
                let below = self.trees.get(&entry.id).ok_or_else(missing)?;
                size.depth = size.depth.max(below.depth + 1);
                size.entries = size.entries.saturating_add(below.entries);
                size.bytes = size.bytes.saturating_add(below.bytes);
            } else {
                let file = self.pack.size(entry.id).ok_or_else(missing)?;
                size.bytes = size.bytes.saturating_add(file);
            }
        }
        if size.depth > self.limits.depth + 1 {
            return Err(IntakeError::Beyond("128 levels of directories"));
        }
        if size.entries > self.limits.entries {
            return Err(IntakeError::Beyond("200,000 files and directories"));
        }
        if size.bytes > MAX_BYTES {
            return Err(IntakeError::Beyond("32 GiB in one snapshot"));
        }
        Ok(size)
    }

    /// Returns whether all of a tree is here.
    #[must_use]
    pub fn has(&self, tree: &TreeId) -> bool {
        self.trees.contains_key(&tree.0)
    }

    /// Stores the pack, durably when it returns, and returns its size in bytes; `None` if nothing came.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn store(
        mut self,
        blobs: &Blobs,
        org: &str,
        name: &str,
    ) -> Result<Option<u64>, SnapshotError> {
        let finished = tokio::task::spawn_blocking(move || self.pack.finish()).await?;
        let Some(pack) = finished? else { return Ok(None) };
        let key = BlobKey::new(org, BLOB_KIND, name)?;
        match pack.body {
            PackBody::Memory(bytes) => blobs.put(&key, bytes).await?,
            PackBody::File(file) => drop(blobs.put_file(&key, file).await?),
        }
        Ok(Some(pack.bytes))
    }
}
