//! The stat index on the worker's disk: the stat and id of each file, so that a restarted worker reads only
//! changed files.
//!
//! It is a cache. If it is missing, damaged or old, files are read again, and nothing else happens: it never
//! decides whether an object is stored.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::directory::{Dir, Leaf, Node, Vouch};
use crate::error::SnapshotError;
use crate::object::{Entry, Kind, ObjectId};
use crate::steps::Steps;

const MAGIC: &[u8; 8] = b"ocstat\x002";

/// Returns the index as bytes: magic, SHA-256, then a fixed part and the path for each file or empty
/// directory.
fn encode(dir: &Dir) -> Vec<u8> {
    let mut body = Vec::new();
    dir.visit(&mut PathBuf::new(), &mut |path, leaf| {
        let bytes = path.as_os_str().as_bytes();
        let nothing = Vouch { changed_ns: 0, modified_ns: 0, size: 0, inode: 0, mode: 0 };
        let (kind, id, vouch, racy) = match leaf {
            Some(leaf) => (leaf.entry.kind, leaf.entry.id, leaf.vouch, leaf.racy),
            None => (Kind::Directory, ObjectId::of(b""), nothing, false),
        };
        body.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
        body.push(kind.byte());
        body.push(u8::from(racy));
        body.extend_from_slice(&id.0);
        body.extend_from_slice(&vouch.changed_ns.to_be_bytes());
        body.extend_from_slice(&vouch.modified_ns.to_be_bytes());
        body.extend_from_slice(&vouch.size.to_be_bytes());
        body.extend_from_slice(&vouch.inode.to_be_bytes());
        body.extend_from_slice(&vouch.mode.to_be_bytes());
        body.extend_from_slice(bytes);
    });
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&Sha256::digest(&body));
    bytes.extend_from_slice(&body);
    bytes
}

/// Parses an index; `None` if the bytes are not a complete one.
fn decode(bytes: &[u8]) -> Option<Dir> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, mut body) = rest.split_first_chunk::<32>()?;
    if <[u8; 32]>::from(Sha256::digest(body)) != *hash {
        return None;
    }
    fn take<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = body.split_first_chunk::<N>()?;
        *body = rest;
        Some(*taken)
    }
    let mut dir = Dir::default();
    while !body.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(take(&mut body)?)).ok()?;
        let [kind, racy] = take(&mut body)?;
        let id = ObjectId(take(&mut body)?);
        let vouch = Vouch {
            changed_ns: i64::from_be_bytes(take(&mut body)?),
            modified_ns: i64::from_be_bytes(take(&mut body)?),
            size: u64::from_be_bytes(take(&mut body)?),
            inode: u64::from_be_bytes(take(&mut body)?),
            mode: u32::from_be_bytes(take(&mut body)?),
        };
        let kind = Kind::of(kind, vouch.mode & 0o777)?;
        let (path, rest) = body.split_at_checked(length)?;
        body = rest;
        let path = Path::new(OsStr::from_bytes(path));
        if kind == Kind::Directory {
            dir.make(path);
        } else {
            let leaf = Leaf { entry: Entry { kind, id }, vouch, racy: racy != 0 };
            dir.set(path, Some(Node::Leaf(leaf)));
        }
    }
    Some(dir)
}

/// Writes the index to a temporary file and renames it.
pub(crate) fn save(dir: &Dir, path: &Path, steps: &Steps) -> Result<(), SnapshotError> {
    let failed = || SnapshotError::io("write the stat index", path);
    let beside = path.with_extension("tmp");
    let bytes = encode(dir);
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut file = fs::File::create(&beside).map_err(failed())?;
    file.write_all(first).map_err(failed())?;
    steps.pass()?;
    file.write_all(rest).map_err(failed())?;
    steps.pass()?;
    fs::rename(&beside, path).map_err(failed())?;
    steps.pass()
}

/// Reads the index; returns an empty one if none is usable.
pub(crate) fn load(path: &Path) -> Dir {
    match fs::read(path) {
        Ok(bytes) => decode(&bytes).unwrap_or_else(|| {
            tracing::warn!(path = %path.display(), "the stat index is damaged; all files are read again");
            Dir::default()
        }),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the stat index cannot be read; all files are");
            }
            Dir::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_had_back_whole_or_not_at_all() {
        let vouch =
            Vouch { changed_ns: -1, modified_ns: 2, size: 3, inode: u64::MAX, mode: 0o100644 };
        let leaf = |racy| {
            let entry = Entry { kind: Kind::Link, id: ObjectId::of(b"x") };
            Some(Node::Leaf(Leaf { entry, vouch, racy }))
        };
        let mut dir = Dir::default();
        dir.set(Path::new("a/b\nc"), leaf(true));
        dir.set(Path::new("z"), leaf(false));
        dir.make(Path::new("empty/deep"));
        let bytes = encode(&dir);
        let mut back = decode(&bytes).unwrap();
        assert_eq!(encode(&back), bytes);
        assert_eq!(back.seal(), dir.seal());
        assert!(back.leaf(Path::new("a/b\nc")).unwrap().racy);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none(), "{cut}");
        }
        assert!(decode(&encode(&Dir::default())).unwrap().nodes.is_empty());
    }
}
