//! Objects and their ids: a blob is a file's bytes or a link's target, a tree is a directory's entries.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The SHA-256 of an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId(pub(crate) [u8; 32]);

impl ObjectId {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0[..6]))
    }
}

/// The id of all files of a Location at one moment; equal ids mean equal files. 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub(crate) ObjectId);

impl TreeId {
    /// Returns the tree of a directory without files.
    #[must_use]
    pub fn empty() -> Self {
        Self(ObjectId::of(b""))
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for text that is not a tree's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tree's id is 64 hex digits")]
pub struct BadTreeId;

impl FromStr for TreeId {
    type Err = BadTreeId;

    fn from_str(text: &str) -> Result<Self, BadTreeId> {
        let mut id = [0; 32];
        hex::decode_to_slice(text, &mut id).map_err(|_| BadTreeId)?;
        Ok(Self(ObjectId(id)))
    }
}

/// The kind of a tree's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A file with mode 0644.
    File,
    /// A file with mode 0755.
    Executable,
    /// A file with another mode, given by its permission bits.
    Mode(u16),
    Link,
    Directory,
}

const PLAIN: u16 = 0o644;
const EXECUTABLE: u16 = 0o755;
/// The bits of a mode that are stored: read, write and execute.
const KEPT_BITS: u16 = 0o777;

impl Kind {
    /// Returns a file kind for these bits of `st_mode`.
    pub(crate) fn file(mode: u32) -> Self {
        match u16::try_from(mode & u32::from(KEPT_BITS)).unwrap_or(PLAIN) {
            PLAIN => Self::File,
            EXECUTABLE => Self::Executable,
            bits => Self::Mode(bits),
        }
    }

    /// Returns the permission bits of a file; `None` for links and directories.
    pub(crate) fn mode(self) -> Option<u16> {
        match self {
            Self::File => Some(PLAIN),
            Self::Executable => Some(EXECUTABLE),
            Self::Mode(bits) => Some(bits),
            Self::Link | Self::Directory => None,
        }
    }

    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::File => b'f',
            Self::Executable => b'x',
            Self::Mode(_) => b'm',
            Self::Link => b'l',
            Self::Directory => b'd',
        }
    }

    /// Returns the kind for a byte. `mode` is the file's mode if the byte says that it has its own.
    pub(crate) fn of(byte: u8, mode: u32) -> Option<Self> {
        match byte {
            b'f' => Some(Self::File),
            b'x' => Some(Self::Executable),
            b'l' => Some(Self::Link),
            b'd' => Some(Self::Directory),
            // Each mode has only one form, so that equal trees have equal ids.
            b'm' if mode <= u32::from(KEPT_BITS) => {
                Some(Self::file(mode)).filter(|kind| matches!(kind, Self::Mode(_)))
            }
            _ => None,
        }
    }
}

/// The target of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) id: ObjectId,
}

/// A directory's entries, ordered by name.
pub(crate) type Entries = Vec<(OsString, Entry)>;

/// The bytes of a tree object: for each entry, in order of names, `kind name NUL id`. For a file with its own
/// mode, two bytes of mode stand between kind and name.
#[derive(Default)]
pub(crate) struct TreeBytes(Vec<u8>);

impl TreeBytes {
    /// Appends an entry. Names must come in ascending order.
    pub(crate) fn push(&mut self, name: &OsStr, entry: Entry) {
        self.0.push(entry.kind.byte());
        if let Kind::Mode(bits) = entry.kind {
            self.0.extend_from_slice(&bits.to_be_bytes());
        }
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self.0.extend_from_slice(&entry.id.0);
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Parses a tree object; `None` if it is invalid or contains names that no directory can have.
pub(crate) fn parse_tree(mut bytes: &[u8]) -> Option<Entries> {
    let mut entries: Entries = Vec::new();
    while let Some((&kind, mut rest)) = bytes.split_first() {
        let mut mode = 0;
        if kind == Kind::Mode(0).byte() {
            let (bits, after) = rest.split_first_chunk::<2>()?;
            (mode, rest) = (u32::from(u16::from_be_bytes(*bits)), after);
        }
        let kind = Kind::of(kind, mode)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (name, rest) = (&rest[..end], &rest[end + 1..]);
        let (id, rest) = rest.split_first_chunk::<32>()?;
        let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
        let ascends = entries.last().is_none_or(|(last, _)| last.as_bytes() < name);
        if !is_name || !ascends {
            return None;
        }
        entries.push((OsStr::from_bytes(name).to_owned(), Entry { kind, id: ObjectId(*id) }));
        bytes = rest;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&[u8], Kind)]) -> Vec<u8> {
        let mut bytes = TreeBytes::default();
        for (name, kind) in entries {
            bytes.push(OsStr::from_bytes(name), Entry { kind: *kind, id: ObjectId::of(name) });
        }
        bytes.done()
    }

    #[test]
    fn a_tree_is_read_as_it_was_written() {
        let given: [(&[u8], Kind); 5] = [
            (b"a\nb", Kind::Link),
            (b"a0", Kind::Mode(0)),
            (b"b", Kind::Directory),
            (b"c d", Kind::Executable),
            (b"\xff", Kind::File),
        ];
        let read = parse_tree(&tree(&given)).unwrap();
        let names: Vec<_> = read.iter().map(|(n, e)| (n.as_bytes(), e.kind)).collect();
        assert_eq!(names, given);
        assert_eq!(parse_tree(b""), Some(Vec::new()));
    }

    #[test]
    fn a_tree_that_no_directory_can_be_is_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b"] {
            assert_eq!(parse_tree(&tree(&[(bad, Kind::File)])), None, "{bad:?}");
        }
        assert_eq!(parse_tree(&tree(&[(b"b", Kind::File), (b"a", Kind::File)])), None);
        assert_eq!(parse_tree(&tree(&[(b"a", Kind::File), (b"a", Kind::File)])), None);
        let whole = tree(&[(b"a", Kind::File)]);
        for cut in 1..whole.len() {
            assert_eq!(parse_tree(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(parse_tree(b"?a\0"), None);
        for mode in [0o644, 0o755, 0o1777] {
            assert_eq!(parse_tree(&tree(&[(b"a", Kind::Mode(mode))])), None, "{mode:o}");
        }
    }

    #[test]
    fn a_trees_id_survives_its_text() {
        let id = TreeId(ObjectId::of(b"x"));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("abc".parse::<TreeId>(), Err(BadTreeId));
    }
}
