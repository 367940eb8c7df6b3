//! The submodules that an index of git names. `git status` at the top runs git in each of them, by its own configuration.

use std::collections::BTreeSet;

/// The bits of a mode that say what an entry is, and those of a submodule.
const KIND: u32 = 0o170_000;
const SUBMODULE: u32 = 0o160_000;

/// Returns the paths of the submodules in an index of git (versions 2 to 4). `None` if it cannot be read, or if a part of it is in
/// another file.
pub(super) fn submodules(index: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    // The length of its hashes is the repository's.
    [20, 32].into_iter().find_map(|hash| parse(index, hash))
}

fn parse(index: &[u8], hash: usize) -> Option<BTreeSet<Vec<u8>>> {
    let mut rest = index.get(..index.len().checked_sub(hash)?)?;
    if take(&mut rest, 4)? != b"DIRC" {
        return None;
    }
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut found = BTreeSet::new();
    let mut path = Vec::new();
    for _ in 0..count {
        let before = rest.len();
        take(&mut rest, 24)?; // times, device, inode
        let mode = number(&mut rest)?;
        take(&mut rest, 12 + hash)?; // owner, size, object
        let flags = take(&mut rest, 2)?;
        if version > 2 && flags.first()? & 0x40 != 0 {
            take(&mut rest, 2)?;
        }
        let kept = if version == 4 { path.len().checked_sub(varint(&mut rest)?)? } else { 0 };
        path.truncate(kept);
        let end = rest.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(take(&mut rest, end)?);
        if version == 4 {
            take(&mut rest, 1)?;
        } else {
            // One to eight NULs, up to a multiple of eight.
            let padding = 8 - (before - rest.len()) % 8;
            take(&mut rest, padding)?;
        }
        if mode & KIND == SUBMODULE {
            found.insert(path.clone());
        }
    }
    while !rest.is_empty() {
        let name = take(&mut rest, 4)?;
        let length = usize::try_from(number(&mut rest)?).ok()?;
        take(&mut rest, length)?;
        if name == b"link" {
            return None;
        }
    }
    Some(found)
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// Reads a number as git writes the offsets of packs.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut byte = *take(rest, 1)?.first()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *take(rest, 1)?.first()?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn git(place: &Path, words: &[&str]) {
        let ended = Command::new("git").args(words).current_dir(place).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    #[test]
    fn submodules_of_each_version_of_an_index_are_found() {
        let oids = [("sha1", "1".repeat(40)), ("sha256", "1".repeat(64))];
        for (format, oid) in oids {
            for version in ["2", "3", "4"] {
                let folder = tempfile::tempdir().unwrap();
                let place = folder.path();
                git(place, &["init", "-q", &format!("--object-format={format}"), "."]);
                for name in ["a", "alpha/beta", "alpha/gamma", "z"] {
                    let file = place.join(name);
                    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                    std::fs::write(file, name).unwrap();
                }
                git(place, &["add", "-A"]);
                for name in ["alpha/sub", "sub"] {
                    let info = format!("160000,{oid},{name}");
                    git(place, &["update-index", "--add", "--cacheinfo", &info]);
                }
                git(place, &["update-index", "--index-version", version]);
                let index = std::fs::read(place.join(".git/index")).unwrap();
                let found = submodules(&index).unwrap();
                let expected: BTreeSet<_> = [b"alpha/sub".to_vec(), b"sub".to_vec()].into();
                assert_eq!(found, expected, "{format}, {version}");
                assert_eq!(submodules(&index[..index.len() - 1]), None);
            }
        }
        assert_eq!(submodules(b""), None);
    }
}
