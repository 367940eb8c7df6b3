//! The entries of an index of git: the names that `git checkout .` writes to, and the submodules. `git status` at the top runs git
//! in each of those, by its own configuration.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use super::names::{Flaw, find_flaw};

/// The bits of a mode that say what an entry is, and their values.
const KIND: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const SUBMODULE: u32 = 0o160_000;

/// The longest path of an entry, in bytes: no system opens a longer one.
const LONGEST: usize = 4096;
/// The length of a path that its entry does not say.
const UNSAID: usize = 0xfff;
/// The most blocks of an offset table, which git writes for its threads.
const BLOCKS: usize = 4096;
/// The lengths of hashes, in bytes. Which one an index has is the repository's word, not its own.
const HASHES: [u64; 2] = [20, 32];

/// The entries of a person's own index that a command may not add.
#[derive(Debug, Default)]
pub(super) struct Unusual(BTreeSet<(Vec<u8>, u32)>);

/// Why an index is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is damaged, of an unknown version, or a part of it is in another file.
    Unreadable,
    /// It names this submodule.
    Submodule(Vec<u8>),
    /// This name is one that git writes to elsewhere, or is no file's.
    Entry(Vec<u8>, Flaw),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short =
            |path: &[u8]| String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
        match self {
            Self::Unreadable => write!(f, "it is split or cannot be read; unset core.splitIndex"),
            Self::Submodule(path) => write!(
                f,
                "it would make {} a submodule, in which git obeys another configuration; ask the person to add it",
                short(path)
            ),
            Self::Entry(path, flaw) => {
                write!(f, "it names {:?}, {flaw}; remove that from the index", short(path))
            }
        }
    }
}

/// Returns the unusual entries of an index. None if it cannot be read: then a command may add none.
pub(super) fn read_unusual(index: &File) -> Unusual {
    for hash in HASHES {
        let mut unusual = BTreeSet::new();
        let read = walk(index, hash, |entry| {
            if entry.find_refusal().is_some() {
                unusual.insert((entry.path.to_vec(), entry.mode & KIND));
            }
            None
        });
        if read.is_ok() {
            return Unusual(unusual);
        }
    }
    Unusual::default()
}

/// Refuses an index with entries by which git would write or obey something elsewhere, but for those of `own`.
pub(super) fn check(index: &File, own: &Unusual) -> Result<(), Refusal> {
    check_each(index, |entry| {
        let refusal = entry.find_refusal()?;
        (!own.0.contains(&(entry.path.to_vec(), entry.mode & KIND))).then_some(refusal)
    })
}

/// Returns whether an index names nothing but files and links in its checkout, and submodules.
pub(super) fn has_plain_names(index: &File) -> bool {
    let refused =
        |entry: &Entry<'_>| entry.find_refusal().filter(|it| !matches!(it, Refusal::Submodule(_)));
    check_each(index, refused).is_ok()
}

/// Reads an index as git may do it, and hands each entry to `look`. One that can be read in two ways has to be harmless in both.
fn check_each(index: &File, look: impl Fn(&Entry<'_>) -> Option<Refusal>) -> Result<(), Refusal> {
    let mut checked = Err(Refusal::Unreadable);
    for hash in HASHES {
        let Ok(blocks) = walk(index, hash, |_| None) else { continue };
        let mut threads = Threads::begin(&blocks);
        walk(index, hash, |entry| {
            if threads.begins_elsewhere(entry) { Some(Refusal::Unreadable) } else { look(entry) }
        })?;
        checked = if threads.is_over() { Ok(()) } else { return Err(Refusal::Unreadable) };
    }
    checked
}

/// One entry.
struct Entry<'e> {
    path: &'e [u8],
    mode: u32,
    /// Where it begins in the index.
    at: u64,
    /// How much of its path is that of the entry before.
    kept: usize,
    flaw: Option<Flaw>,
}

impl Entry<'_> {
    fn find_refusal(&self) -> Option<Refusal> {
        if let Some(flaw) = self.flaw {
            return Some(Refusal::Entry(self.path.to_vec(), flaw));
        }
        (self.mode & KIND == SUBMODULE).then(|| Refusal::Submodule(self.path.to_vec()))
    }
}

/// Where a thread of git begins to read entries, and how many it reads.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    at: u64,
    entries: u32,
}

/// Follows git's threads, which read an index by its own table: it could lead them to entries that nobody else sees.
struct Threads<'b> {
    blocks: std::slice::Iter<'b, Block>,
    /// Whether there is a table at all.
    are_used: bool,
    left: u32,
}

impl<'b> Threads<'b> {
    fn begin(blocks: &'b [Block]) -> Self {
        Self { blocks: blocks.iter(), are_used: !blocks.is_empty(), left: 0 }
    }

    /// Returns whether a thread would begin elsewhere than at this entry, or with another path than it has.
    fn begins_elsewhere(&mut self, entry: &Entry<'_>) -> bool {
        if !self.are_used {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        let Some(block) = self.blocks.next() else { return true };
        self.left = block.entries.saturating_sub(1);
        block.at != entry.at || block.entries == 0 || entry.kept > 0
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.blocks.len() == 0
    }
}

/// A file that is read from its beginning to its end, without a copy of it.
struct Source<'f> {
    file: BufReader<&'f File>,
    at: u64,
    end: u64,
}

impl<'f> Source<'f> {
    fn open(mut file: &'f File, hash: u64) -> Option<Self> {
        let end = file.metadata().ok()?.len().checked_sub(hash)?;
        file.seek(SeekFrom::Start(0)).ok()?;
        Some(Self { file: BufReader::with_capacity(64 * 1024, file), at: 0, end })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let after =
            self.at.checked_add(u64::try_from(N).ok()?).filter(|after| *after <= self.end)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).ok()?;
        self.at = after;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take()?))
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        let after = self.at.checked_add(count).filter(|after| *after <= self.end)?;
        self.file.seek_relative(i64::try_from(count).ok()?).ok()?;
        self.at = after;
        Some(())
    }

    /// Reads a number as git writes the offsets of packs.
    fn varint(&mut self) -> Option<usize> {
        let [mut byte] = self.take()?;
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            [byte] = self.take()?;
            value =
                value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        }
        Some(value)
    }

    /// Appends the bytes before the next NUL, which is read too.
    fn text(&mut self, to: &mut Vec<u8>) -> Option<()> {
        let most = (LONGEST + 1).checked_sub(to.len())?;
        let mut rest = (&mut self.file).take(u64::try_from(most).ok()?);
        self.at += u64::try_from(rest.read_until(0, to).ok()?).ok()?;
        (self.at <= self.end && to.pop() == Some(0)).then_some(())
    }
}

/// Hands each entry of an index (versions 2 to 4) to `look`, until that refuses one. `hash`: the length of its hashes. Returns the
/// blocks of its table, if it has one.
fn walk(
    index: &File,
    hash: u64,
    mut look: impl FnMut(&Entry<'_>) -> Option<Refusal>,
) -> Result<Vec<Block>, Refusal> {
    let mut source = Source::open(index, hash).ok_or(Refusal::Unreadable)?;
    read_entries(&mut source, hash, &mut look)?;
    read_extensions(&mut source, hash).ok_or(Refusal::Unreadable)
}

fn read_entries(
    source: &mut Source<'_>,
    hash: u64,
    look: &mut impl FnMut(&Entry<'_>) -> Option<Refusal>,
) -> Result<(), Refusal> {
    let (version, count) = read_header(source).ok_or(Refusal::Unreadable)?;
    let (mut path, mut is_sound) = (Vec::new(), false);
    for _ in 0..count {
        let at = source.at;
        let read = read_entry(source, hash, version, &mut path);
        let (mode, kept) = read.ok_or(Refusal::Unreadable)?;
        // Parts of a sound path are not looked at again: an index can repeat 4 KiB a million times.
        let fresh = if is_sound { kept } else { 0 };
        let flaw = find_flaw(&path, fresh, mode & KIND == LINK);
        is_sound = flaw.is_none();
        let is_usual = matches!(mode & KIND, FILE | LINK | SUBMODULE);
        let flaw = if is_usual { flaw } else { Some(Flaw::Mode) };
        if let Some(refusal) = look(&Entry { path: &path, mode, at, kept, flaw }) {
            return Err(refusal);
        }
    }
    Ok(())
}

fn read_header(source: &mut Source<'_>) -> Option<(u32, u32)> {
    if &source.take::<4>()? != b"DIRC" {
        return None;
    }
    let (version, count) = (source.number()?, source.number()?);
    (2..=4).contains(&version).then_some((version, count))
}

/// Reads one entry. `path` is that of the one before, and then its own. Returns its mode, and how much of the path it has kept.
fn read_entry(
    source: &mut Source<'_>,
    hash: u64,
    version: u32,
    path: &mut Vec<u8>,
) -> Option<(u32, usize)> {
    let begun = source.at;
    source.skip(24)?; // times, device, inode
    let mode = source.number()?;
    source.skip(12 + hash)?; // owner, size, object
    let flags = u16::from_be_bytes(source.take()?);
    if flags & 0x4000 != 0 {
        // Before version 3 there are no further flags, and git reads them all the same.
        (version > 2).then_some(())?;
        source.skip(2)?;
    }
    let kept = if version == 4 { path.len().checked_sub(source.varint()?)? } else { 0 };
    path.truncate(kept);
    source.text(path)?;
    // Git believes the length that is said, and we the NUL.
    let said = usize::from(flags) & UNSAID;
    if said != path.len() && (said != UNSAID || path.len() < UNSAID) {
        return None;
    }
    if version < 4 {
        // One to eight NULs, up to a multiple of eight; the first was read.
        source.skip(7 - (source.at - begun - 1) % 8)?;
    }
    Some((mode, kept))
}

/// Reads what is behind the entries. `None` if a part of the index is in another file.
fn read_extensions(source: &mut Source<'_>, hash: u64) -> Option<Vec<Block>> {
    let (entries_end, mut blocks) = (source.at, Vec::new());
    while source.at < source.end {
        let name = source.take::<4>()?;
        let length = u64::from(source.number()?);
        match &name {
            b"link" => return None,
            b"IEOT" => {
                let count = usize::try_from(length.checked_sub(4)? / 8).ok()?;
                // One table, of whole rows.
                let is_whole = length % 8 == 4 && (1..=BLOCKS).contains(&count);
                (is_whole && blocks.is_empty() && source.number()? == 1).then_some(())?;
                for _ in 0..count {
                    let (at, entries) = (u64::from(source.number()?), source.number()?);
                    blocks.push(Block { at, entries });
                }
            }
            b"EOIE" => {
                // It says where these parts begin. Git looks for it at the end alone.
                (length == 4 + hash && u64::from(source.number()?) == entries_end).then_some(())?;
                source.skip(hash)?;
            }
            _ => source.skip(length)?,
        }
    }
    Some(blocks)
}

#[cfg(test)]
mod tests;
