//! A pack: the objects of one Capture, each compressed separately, and an index at the end.
//!
//! ```text
//! object, object, … │ index: (id, offset, stored bytes, bytes) … │ offset of the index, entries, its SHA-256, magic
//! ```
//!
//! An object that compression does not shrink is stored uncompressed; then stored bytes = bytes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use zstd::bulk::Compressor;

use crate::error::SnapshotError;
use crate::object::ObjectId;

const MAGIC: &[u8; 8] = b"ocpack\x001";
const ENTRY_BYTES: usize = 32 + 8 + 4 + 4;
/// The size of a pack's footer in bytes.
pub(crate) const FOOTER_BYTES: usize = 8 + 8 + 32 + 8;
/// The most entries of an index; more than any Capture has.
const MAX_ENTRIES: u64 = 4_000_000;
/// The size in bytes up to which a pack is built in memory; a larger one goes to a file.
const MEMORY_BYTES: usize = 8 * 1024 * 1024;
/// zstd's own default: objects are small, and a turn waits for them.
const LEVEL: i32 = 3;

/// The place of an object in its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    pub(crate) bytes: u32,
}

/// The footer of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) index_at: u64,
    pub(crate) entries: u64,
    hash: [u8; 32],
}

impl Footer {
    /// Parses a footer; `None` if the bytes are not one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (index_at, rest) = bytes.split_first_chunk::<8>()?;
        let (entries, rest) = rest.split_first_chunk::<8>()?;
        let (hash, magic) = rest.split_first_chunk::<32>()?;
        let footer = Self {
            index_at: u64::from_be_bytes(*index_at),
            entries: u64::from_be_bytes(*entries),
            hash: *hash,
        };
        (magic == MAGIC && footer.entries <= MAX_ENTRIES).then_some(footer)
    }

    /// Returns the size of the index in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.entries * ENTRY_BYTES as u64
    }

    /// Parses the index; `None` if its hash is wrong.
    pub(crate) fn index(&self, bytes: &[u8]) -> Option<Vec<(ObjectId, Span)>> {
        if <[u8; 32]>::from(Sha256::digest(bytes)) != self.hash {
            return None;
        }
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || entries.len() as u64 != self.entries {
            return None;
        }
        entries.iter().map(|entry| self.entry(entry)).collect()
    }

    fn entry(&self, entry: &[u8; ENTRY_BYTES]) -> Option<(ObjectId, Span)> {
        let (id, rest) = entry.split_first_chunk::<32>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (stored, bytes) = rest.split_first_chunk::<4>()?;
        let span = Span {
            offset: u64::from_be_bytes(*offset),
            stored: u32::from_be_bytes(*stored),
            bytes: u32::from_be_bytes(bytes.try_into().ok()?),
        };
        let ends = span.offset.checked_add(u64::from(span.stored))?;
        (ends <= self.index_at).then_some((ObjectId(*id), span))
    }
}

/// Returns the bytes of an object; `None` if they do not match its id.
pub(crate) fn unpack(id: ObjectId, span: Span, stored: &[u8]) -> Option<Bytes> {
    let bytes = if span.stored == span.bytes {
        Bytes::copy_from_slice(stored)
    } else {
        Bytes::from(zstd::bulk::decompress(stored, span.bytes as usize).ok()?)
    };
    (ObjectId::of(&bytes) == id).then_some(bytes)
}

enum Sink {
    Memory(Vec<u8>),
    File(io::BufWriter<File>),
}

/// Builds a pack. More can be added after it was finished, for another one that has all of it.
pub(crate) struct PackWriter {
    sink: Sink,
    folder: PathBuf,
    spans: HashMap<ObjectId, Span>,
    order: Vec<ObjectId>,
    at: u64,
    content: u64,
    limit: u64,
    compressor: Compressor<'static>,
}

/// A complete pack, ready to be stored.
pub(crate) struct Pack {
    pub(crate) body: PackBody,
    pub(crate) bytes: u64,
    pub(crate) index: Vec<(ObjectId, Span)>,
    /// The hash of the index. Two packs with the same hash have the same content.
    pub(crate) hash: [u8; 32],
}

pub(crate) enum PackBody {
    Memory(Bytes),
    /// A file, positioned at its start.
    File(File),
}

impl PackWriter {
    /// Starts a pack with at most `limit` bytes of content. A large one grows in an unnamed file in `folder`.
    pub(crate) fn new(folder: &Path, limit: u64) -> Result<Self, SnapshotError> {
        let failed = SnapshotError::io("compress into", folder);
        Ok(Self {
            sink: Sink::Memory(Vec::new()),
            folder: folder.to_path_buf(),
            spans: HashMap::new(),
            order: Vec::new(),
            at: 0,
            content: 0,
            limit,
            compressor: Compressor::new(LEVEL).map_err(failed)?,
        })
    }

    pub(crate) fn has(&self, id: ObjectId) -> bool {
        self.spans.contains_key(&id)
    }

    /// Returns the size of an object in bytes; `None` if it is not there.
    pub(crate) fn size(&self, id: ObjectId) -> Option<u64> {
        self.spans.get(&id).map(|span| u64::from(span.bytes))
    }

    /// Adds an object unless it is already there.
    pub(crate) fn add(&mut self, id: ObjectId, bytes: &[u8]) -> Result<(), SnapshotError> {
        if self.has(id) {
            return Ok(());
        }
        self.content += bytes.len() as u64;
        let too_large = SnapshotError::TooLarge { limit: self.limit };
        let Ok(length) = u32::try_from(bytes.len()) else { return Err(too_large) };
        if self.content > self.limit {
            return Err(too_large);
        }
        let folder = self.folder.clone();
        let failed = SnapshotError::io("write a pack in", &folder);
        let packed = match self.compressor.compress(bytes) {
            Ok(packed) if packed.len() < bytes.len() => packed,
            Ok(_no_gain) => bytes.to_vec(),
            Err(error) => return Err(failed(error)),
        };
        self.write(&packed).map_err(failed)?;
        let stored = u32::try_from(packed.len()).unwrap_or(length);
        self.spans.insert(id, Span { offset: self.at, stored, bytes: length });
        self.order.push(id);
        self.at += packed.len() as u64;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Sink::Memory(memory) = &self.sink
            && memory.len() + bytes.len() > MEMORY_BYTES
        {
            let mut file = io::BufWriter::new(tempfile::tempfile_in(&self.folder)?);
            file.write_all(memory)?;
            self.sink = Sink::File(file);
        }
        match &mut self.sink {
            Sink::Memory(memory) => memory.extend_from_slice(bytes),
            Sink::File(file) => file.write_all(bytes)?,
        }
        Ok(())
    }

    /// Returns the pack with its index; `None` if it is empty.
    pub(crate) fn finish(&mut self) -> Result<Option<Pack>, SnapshotError> {
        if self.order.is_empty() {
            return Ok(None);
        }
        let index: Vec<_> = self.order.iter().map(|id| (*id, self.spans[id])).collect();
        let mut bytes = Vec::with_capacity(index.len() * ENTRY_BYTES + FOOTER_BYTES);
        for (id, span) in &index {
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&span.offset.to_be_bytes());
            bytes.extend_from_slice(&span.stored.to_be_bytes());
            bytes.extend_from_slice(&span.bytes.to_be_bytes());
        }
        let hash = <[u8; 32]>::from(Sha256::digest(&bytes));
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.extend_from_slice(&(index.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&hash);
        bytes.extend_from_slice(MAGIC);
        let failed = || SnapshotError::io("write a pack in", &self.folder);
        let total = self.at + bytes.len() as u64;
        let body = match &mut self.sink {
            Sink::Memory(memory) => PackBody::Memory([&memory[..], &bytes].concat().into()),
            Sink::File(file) => PackBody::File(ended(file, self.at, &bytes).map_err(failed())?),
        };
        Ok(Some(Pack { body, bytes: total, index, hash }))
    }
}

/// Writes the end of a pack behind its objects, and returns the whole file with a position of its own. The next object takes the
/// place of this end.
fn ended(file: &mut io::BufWriter<File>, at: u64, end: &[u8]) -> io::Result<File> {
    file.write_all(end)?;
    // Nothing may be left behind a shorter end than the last one.
    file.flush()?;
    file.get_ref().set_len(at + end.len() as u64)?;
    file.seek(io::SeekFrom::Start(at))?;
    // It has no name, and a copy of the descriptor would share its position.
    File::open(format!("/proc/self/fd/{}", file.get_ref().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn written(objects: &[&[u8]], limit: u64) -> Result<(Vec<u8>, Pack), SnapshotError> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = PackWriter::new(folder.path(), limit)?;
        for object in objects {
            writer.add(ObjectId::of(object), object)?;
        }
        let mut pack = writer.finish()?.unwrap();
        Ok((all(&mut pack), pack))
    }

    fn all(pack: &mut Pack) -> Vec<u8> {
        match &mut pack.body {
            PackBody::Memory(bytes) => bytes.to_vec(),
            PackBody::File(file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                bytes
            }
        }
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn objects_are_had_back_from_memory_and_from_a_file() {
        let (text, random, large) = ("a line\n".repeat(500), noise(3_000), noise(9_000_000));
        for objects in [
            vec![&b""[..], text.as_bytes(), &random, text.as_bytes()],
            vec![text.as_bytes(), &large, &random],
        ] {
            let (bytes, pack) = written(&objects, u64::MAX).unwrap();
            assert_eq!(pack.bytes, bytes.len() as u64);
            let footer = Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..]).unwrap();
            let (from, to) = (footer.index_at as usize, bytes.len() - FOOTER_BYTES);
            assert_eq!(footer.index_bytes(), (to - from) as u64);
            let index = footer.index(&bytes[from..to]).unwrap();
            assert_eq!(index, pack.index);
            assert_eq!(index.len(), 3, "an object is stored once");
            for (id, span) in index {
                let stored = &bytes[span.offset as usize..][..span.stored as usize];
                let object = unpack(id, span, stored).unwrap();
                assert!(objects.iter().any(|given| *given == object));
            }
        }
        assert!(written(&[text.as_bytes()], 100_000).unwrap().0.len() < 300);
    }

    #[test]
    fn a_finished_pack_can_be_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let (small, large) = (noise(3_000), noise(9_000_000));
        for first in [&small, &large] {
            let mut writer = PackWriter::new(folder.path(), u64::MAX).unwrap();
            for object in [first, &noise(2_000), &noise(40)] {
                writer.add(ObjectId::of(object), object).unwrap();
                let mut unread = writer.finish().unwrap().unwrap();
                let mut pack = writer.finish().unwrap().unwrap();
                let bytes = all(&mut pack);
                assert_eq!(all(&mut unread), bytes);
                assert_eq!(pack.bytes, bytes.len() as u64);
                let footer = Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..]).unwrap();
                assert_eq!(footer.index_at, writer.at);
                for (id, span) in pack.index {
                    let stored = &bytes[span.offset as usize..][..span.stored as usize];
                    assert!(unpack(id, span, stored).is_some());
                }
            }
        }
    }

    #[test]
    fn damage_is_seen() {
        let text = "a line\n".repeat(50);
        let (bytes, pack) = written(&[text.as_bytes()], u64::MAX).unwrap();
        let end = bytes.len() - FOOTER_BYTES;
        let footer = Footer::parse(&bytes[end..]).unwrap();
        let from = footer.index_at as usize;
        for at in from..end {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(footer.index(&damaged[from..end]), None);
        }
        assert_eq!(Footer::parse(&bytes[end - 1..]), None);
        let (id, span) = pack.index[0];
        for at in 0..span.stored as usize {
            let mut damaged = bytes[..span.stored as usize].to_vec();
            damaged[at] ^= 1;
            // A flipped bit either changes nothing after zstd, or the hash detects it.
            if let Some(object) = unpack(id, span, &damaged) {
                assert_eq!(object, text.as_bytes());
            }
        }
    }

    #[test]
    fn a_pack_is_bounded() {
        let refused = written(&[&[0; 60], &[1; 60]], 100).map(drop);
        assert!(matches!(refused, Err(SnapshotError::TooLarge { limit: 100 })));
    }
}
