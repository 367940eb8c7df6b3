//! Files that are in no snapshot and are put into a Location by who made it.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::place::{self, TEMPORARY};

/// Copies a file to `below` in the Location at `root`, and makes the folders on the way. An earlier file of the name is
/// replaced; the new one is there as a whole or not at all. Blocking.
///
/// # Errors
/// The file system fails, or something else is in the way ([`io::ErrorKind::NotADirectory`]): no link is followed, whatever
/// commands have left there.
pub fn give(root: &Path, below: &Path, from: &mut impl io::Read) -> io::Result<()> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    let (parent, name) = below.parent().zip(below.file_name()).ok_or_else(bad)?;
    place::components(below).ok_or_else(bad)?;
    let root = place::open_root(root).map_err(io::Error::other)?;
    let parent = place::open_below(&root, parent, true).map_err(|errno| match errno {
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => io::ErrorKind::NotADirectory.into(),
        other => io::Error::from(other),
    })?;
    let mut beside = std::ffi::OsString::from(TEMPORARY);
    beside.push(name);
    match unlinkat(&parent, &beside, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&parent, &beside, flags, Mode::from_raw_mode(0o644))?);
    io::copy(from, &mut file)?;
    drop(file);
    renameat(&parent, &beside, &parent, name)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_given_file_never_leaves_the_location() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        for made in [&root, &outside] {
            std::fs::create_dir(made).expect("a folder");
        }
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        give(&root, Path::new("a/b"), &mut &b"one"[..]).expect("given");
        give(&root, Path::new("a/b"), &mut &b"two"[..]).expect("given again");
        assert_eq!(read(&root.join("a/b")).as_deref(), Some("two"));
        symlink(&outside, root.join("link")).expect("a link");
        give(&root, Path::new("link/b"), &mut &b"x"[..]).expect_err("a link to elsewhere");
        give(&root, Path::new("../outside/b"), &mut &b"x"[..]).expect_err("elsewhere");
        std::fs::write(outside.join("kept"), "kept").expect("a file");
        symlink(outside.join("kept"), root.join("file")).expect("a link");
        give(&root, Path::new("file"), &mut &b"mine"[..]).expect("it takes the link's place");
        assert_eq!(read(&outside.join("kept")).as_deref(), Some("kept"));
        assert!(read(&outside.join("b")).is_none());
    }
}
