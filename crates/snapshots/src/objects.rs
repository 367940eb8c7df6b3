//! The objects of a Location: the packs that contain them, and a cache of recent reads.

use std::collections::{HashMap, VecDeque};
use std::iter::Peekable;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec;

use blobs::{BlobKey, Blobs};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::contents::{self, Contents};
use crate::error::SnapshotError;
use crate::object::{Entries, ObjectId, parse_tree};
use crate::pack::{FOOTER_BYTES, Footer, Pack, PackBody, Span, unpack};

/// The blob kind of packs.
pub const BLOB_KIND: &str = "snapshot";
/// The number of reads at the same time, of pack indexes and of runs.
const PARALLEL: usize = 8;
/// The most runs that are read before their contents are used.
const RUNS_AT_ONCE: usize = 64;
/// Runs up to this stored size in bytes are unpacked where they are read: another thread would cost more.
const SMALL_STORED: usize = 16 * 1024;
/// The number of packs after which the next one gets a contents list.
const LIST_EVERY: usize = 64;
/// The same for the first pack of a Location that began with another one's files. However many began with each other's, few
/// indexes are read to open the last one.
const LIST_FIRST: usize = 8;
/// The bytes at the end of a pack that are read first: enough for an index of 1,300 entries.
const TAIL_BYTES: u64 = 64 * 1024;
/// The largest gap in bytes between objects that are read together, up to these totals of stored and unpacked
/// bytes.
const GAP_BYTES: u64 = 32 * 1024;
const RUN_STORED: u64 = 4 * 1024 * 1024;
const RUN_BYTES: u64 = 16 * 1024 * 1024;
/// The size of the cache of recent reads, and the largest cached object, in bytes.
const CACHE_BYTES: usize = 1024 * 1024;
const CACHED_BYTES: usize = 128 * 1024;

/// The packs and the places of their objects.
pub(crate) struct Objects {
    blobs: Blobs,
    org: String,
    inner: Mutex<Inner>,
    /// Committed packs whose indexes are not read yet, oldest first. The newest tree needs none of them.
    older: tokio::sync::Mutex<Vec<String>>,
}

#[derive(Default)]
struct Inner {
    packs: Vec<PackState>,
    places: HashMap<ObjectId, (usize, Span)>,
    recent: Recent,
    /// The number of committed packs since the last one with a contents list.
    unlisted: usize,
}

struct PackState {
    name: String,
    /// Its row is committed.
    committed: bool,
}

#[derive(Default)]
struct Recent {
    objects: HashMap<ObjectId, Bytes>,
    order: VecDeque<ObjectId>,
    bytes: usize,
}

impl Recent {
    fn keep(&mut self, id: ObjectId, bytes: &Bytes) {
        if bytes.len() > CACHED_BYTES || self.objects.contains_key(&id) {
            return;
        }
        self.bytes += bytes.len();
        // Copied, because a slice would keep everything it was read with in memory.
        self.objects.insert(id, Bytes::copy_from_slice(bytes));
        self.order.push_back(id);
        while self.bytes > CACHE_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.objects.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
    }
}

/// Objects of one pack that are read together.
pub(crate) struct Run {
    pack: String,
    from: u64,
    to: u64,
    /// The unpacked size.
    bytes: u64,
    objects: Vec<(ObjectId, Span)>,
}

/// The reads of many objects, in the order of their places.
pub(crate) type Runs = Peekable<vec::IntoIter<Run>>;

impl Objects {
    /// Reads the indexes of packs whose rows are committed; `packs` are ordered oldest first. Packs before
    /// the last one with a contents list are read only when an object is in no other pack.
    pub(crate) async fn open(
        blobs: Blobs,
        org: String,
        packs: Vec<String>,
    ) -> Result<Self, SnapshotError> {
        let listed = packs.iter().rposition(|name| contents::of_name(name).is_some());
        let mut older = packs;
        let newer = older.split_off(listed.unwrap_or(0));
        let listing = listed.and_then(|_| Some((contents::of_name(newer.first()?)?, newer.len())));
        let objects =
            Self { blobs, org, inner: Mutex::default(), older: tokio::sync::Mutex::new(older) };
        objects.inner().unlisted = newer.len();
        objects.read_indexes(newer).await?;
        if let Some((id, count)) = listing {
            let bytes = objects.get([id]).await?.remove(&id);
            let contents = bytes.and_then(|bytes| Contents::parse(&bytes));
            let contents = contents.ok_or(SnapshotError::Damaged {
                pack: id.to_string(),
                what: "these are no contents",
            })?;
            let mut inner = objects.inner();
            inner.unlisted = count - 1;
            inner.list(contents);
        }
        Ok(objects)
    }

    /// Reads the indexes of committed packs.
    async fn read_indexes(&self, packs: Vec<String>) -> Result<(), SnapshotError> {
        let Self { blobs, org, .. } = self;
        let read = |name: String| async move {
            let index = read_index(blobs, org, &name).await?;
            Ok::<_, SnapshotError>((name, index))
        };
        let indexes: Vec<_> =
            stream::iter(packs).map(read).buffered(PARALLEL).try_collect().await?;
        let mut inner = self.inner();
        for (name, index) in indexes {
            inner.add(name, true, &index);
        }
        Ok(())
    }

    /// Reads older packs' indexes, newest first, until all of these objects are found.
    pub(crate) async fn find(&self, ids: &[ObjectId]) -> Result<(), SnapshotError> {
        let is_found = || {
            let inner = self.inner();
            ids.iter().all(|id| inner.places.contains_key(id))
        };
        if is_found() {
            return Ok(());
        }
        let mut older = self.older.lock().await;
        while !older.is_empty() && !is_found() {
            let from = older.len().saturating_sub(LIST_EVERY);
            self.read_indexes(older[from..].to_vec()).await?;
            older.truncate(from);
        }
        Ok(())
    }

    /// Lets the next pack have a contents list unless few indexes are read without.
    pub(crate) fn list_soon(&self) {
        let mut inner = self.inner();
        if inner.unlisted >= LIST_FIRST {
            inner.unlisted = inner.unlisted.max(LIST_EVERY);
        }
    }

    /// Returns whether the next pack should get a contents list.
    pub(crate) fn wants_contents(&self) -> bool {
        self.inner().unlisted >= LIST_EVERY
    }

    /// Returns the places of these objects in committed packs.
    pub(crate) fn contents(&self, ids: impl IntoIterator<Item = ObjectId>) -> Contents {
        let inner = self.inner();
        let (mut contents, mut numbers) = (Contents::default(), HashMap::new());
        for id in ids {
            let Some((pack, span)) = inner.places.get(&id) else { continue };
            let PackState { name, committed } = &inner.packs[*pack];
            if *committed {
                let number = *numbers.entry(*pack).or_insert_with(|| {
                    contents.packs.push(name.clone());
                    contents.packs.len() - 1
                });
                contents.objects.push((id, number, *span));
            }
        }
        contents
    }

    /// Returns the number of committed packs whose indexes are not read.
    #[cfg(test)]
    pub(crate) async fn unread(&self) -> usize {
        self.older.lock().await.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a pack with a committed row has the object.
    pub(crate) fn is_kept(&self, id: ObjectId) -> bool {
        let inner = self.inner();
        inner.places.get(&id).is_some_and(|(pack, _)| inner.packs[*pack].committed)
    }

    /// Returns the size of an object in bytes; `None` if no pack has it.
    pub(crate) fn size(&self, id: ObjectId) -> Option<u64> {
        self.inner().places.get(&id).map(|(_, span)| u64::from(span.bytes))
    }

    /// Stores a pack. Its objects can be read from now on, and count as stored once it is committed.
    pub(crate) async fn store(&self, name: &str, pack: Pack) -> Result<(), SnapshotError> {
        let key = BlobKey::new(&self.org, BLOB_KIND, name)?;
        match pack.body {
            PackBody::Memory(bytes) => self.blobs.put(&key, bytes).await?,
            PackBody::File(file) => {
                self.blobs.put_file(&key, file).await?;
            }
        }
        self.inner().add(name.to_owned(), false, &pack.index);
        Ok(())
    }

    /// Records that the row of a pack is committed.
    pub(crate) fn committed(&self, name: &str) {
        let mut inner = self.inner();
        inner.unlisted = if contents::of_name(name).is_some() { 0 } else { inner.unlisted + 1 };
        for pack in inner.packs.iter_mut().filter(|pack| pack.name == name) {
            pack.committed = true;
        }
    }

    /// Caches an object that will be needed soon.
    pub(crate) fn remember(&self, id: ObjectId, bytes: &Bytes) {
        self.inner().recent.keep(id, bytes);
    }

    /// Reads objects. For large ones, use [`Objects::runs`] and [`Objects::read_next`].
    pub(crate) async fn get(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<HashMap<ObjectId, Bytes>, SnapshotError> {
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        {
            let inner = self.inner();
            for id in ids {
                match inner.recent.objects.get(&id) {
                    Some(bytes) => drop(found.insert(id, bytes.clone())),
                    None => missing.push(id),
                }
            }
        }
        let mut runs = self.runs(missing).await?;
        while let Some(contents) = self.read_next(&mut runs).await? {
            for (id, bytes) in contents {
                self.remember(id, &bytes);
                found.insert(id, bytes);
            }
        }
        Ok(found)
    }

    /// Reads trees.
    pub(crate) async fn trees(
        &self,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<HashMap<ObjectId, Entries>, SnapshotError> {
        let parse = |(id, bytes): (ObjectId, Bytes)| match parse_tree(&bytes) {
            Some(entries) => Ok((id, entries)),
            None => Err(SnapshotError::Damaged { pack: id.to_string(), what: "it is no tree" }),
        };
        self.get(ids).await?.into_iter().map(parse).collect()
    }

    /// Groups many objects into few reads: neighbours together, in bounded pieces.
    pub(crate) async fn runs(&self, ids: Vec<ObjectId>) -> Result<Runs, SnapshotError> {
        self.find(&ids).await?;
        let inner = self.inner();
        let mut wanted = Vec::with_capacity(ids.len());
        for id in ids {
            let Some((pack, span)) = inner.places.get(&id) else {
                return Err(SnapshotError::MissingObject(id.to_string()));
            };
            wanted.push((*pack, span.offset, id, *span));
        }
        wanted.sort_unstable_by_key(|(pack, offset, id, _)| (*pack, *offset, *id));
        wanted.dedup_by_key(|(.., id, _)| *id);
        let mut runs: Vec<(usize, Run)> = Vec::new();
        for (pack, from, id, span) in wanted {
            let to = from + u64::from(span.stored);
            let bytes = u64::from(span.bytes);
            if let Some((last, run)) = runs.last_mut()
                && *last == pack
                && from <= run.to + GAP_BYTES
                && to - run.from <= RUN_STORED
                && run.bytes + bytes <= RUN_BYTES
            {
                run.to = run.to.max(to);
                run.bytes += bytes;
                run.objects.push((id, span));
                continue;
            }
            let name = inner.packs[pack].name.clone();
            let run = Run { pack: name, from, to, bytes, objects: vec![(id, span)] };
            runs.push((pack, run));
        }
        let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
        Ok(runs.into_iter().peekable())
    }

    /// Reads the next run; several at once while they are small, since a tree may have its objects in as many packs as there
    /// were captures. `None` after the last.
    pub(crate) async fn read_next(
        &self,
        runs: &mut Runs,
    ) -> Result<Option<Vec<(ObjectId, Bytes)>>, SnapshotError> {
        let (mut next, mut bytes) = (Vec::new(), 0);
        while let Some(run) = runs.next_if(|run| {
            next.is_empty() || (next.len() < RUNS_AT_ONCE && bytes + run.bytes <= RUN_BYTES)
        }) {
            bytes += run.bytes;
            next.push(run);
        }
        if next.is_empty() {
            return Ok(None);
        }
        let reads = stream::iter(next).map(|run| self.read(run)).buffered(PARALLEL);
        let contents: Vec<_> = reads.try_collect().await?;
        Ok(Some(contents.into_iter().flatten().collect()))
    }

    /// Reads the objects of a run and checks their hashes.
    async fn read(&self, run: Run) -> Result<Vec<(ObjectId, Bytes)>, SnapshotError> {
        let key = BlobKey::new(&self.org, BLOB_KIND, &run.pack)?;
        let stored = self.blobs.get_range(&key, run.from..run.to).await?;
        let is_small = stored.len() <= SMALL_STORED;
        let unpack_run = move || {
            let damaged = || SnapshotError::Damaged {
                pack: run.pack.clone(),
                what: "an object is not its id's",
            };
            let mut objects = Vec::with_capacity(run.objects.len());
            for (id, span) in &run.objects {
                let from = usize::try_from(span.offset - run.from).unwrap_or(usize::MAX);
                let bytes = stored.get(from..).and_then(|rest| rest.get(..span.stored as usize));
                let object = bytes.and_then(|bytes| unpack(*id, *span, bytes));
                objects.push((*id, object.ok_or_else(damaged)?));
            }
            Ok(objects)
        };
        if is_small { unpack_run() } else { tokio::task::spawn_blocking(unpack_run).await? }
    }
}

impl Inner {
    fn list(&mut self, contents: Contents) {
        let Contents { packs, objects } = contents;
        let first = self.packs.len();
        self.packs.extend(packs.into_iter().map(|name| PackState { name, committed: true }));
        for (id, pack, span) in objects {
            self.places.entry(id).or_insert((first + pack, span));
        }
    }

    fn add(&mut self, name: String, committed: bool, index: &[(ObjectId, Span)]) {
        let pack = self.packs.len();
        self.packs.push(PackState { name, committed });
        for (id, span) in index {
            let kept = self.places.get(id).is_some_and(|(pack, _)| self.packs[*pack].committed);
            if !kept {
                self.places.insert(*id, (pack, *span));
            }
        }
    }
}

async fn read_index(
    blobs: &Blobs,
    org: &str,
    name: &str,
) -> Result<Vec<(ObjectId, Span)>, SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { pack: name.to_owned(), what };
    let key = BlobKey::new(org, BLOB_KIND, name)?;
    let size = blobs.size(&key).await?;
    let tail_at = size.saturating_sub(TAIL_BYTES);
    let tail = blobs.get_range(&key, tail_at..size).await?;
    let footer_at = tail.len().checked_sub(FOOTER_BYTES).ok_or(damaged("it is too short"))?;
    let footer =
        Footer::parse(&tail[footer_at..]).ok_or(damaged("its last bytes are no pack's"))?;
    let index_end = size - FOOTER_BYTES as u64;
    if footer.index_at.checked_add(footer.index_bytes()) != Some(index_end) {
        return Err(damaged("its index is not where it says"));
    }
    let index = if footer.index_at >= tail_at {
        let from = usize::try_from(footer.index_at - tail_at).unwrap_or(footer_at);
        tail.slice(from..footer_at)
    } else {
        blobs.get_range(&key, footer.index_at..index_end).await?
    };
    footer.index(&index).ok_or(damaged("its index is not what was written"))
}
