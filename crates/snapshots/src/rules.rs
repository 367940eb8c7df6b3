//! Which files the Location's own ignore files leave out.
//!
//! `.gitignore` in each directory and `.git/info/exclude` at the root, as git reads them. Nothing outside the
//! Location counts: a snapshot must not differ between workers. A `.ignore` is for searches, and leaves out nothing here.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, openat};

/// Largest ignore file that is read; the rest of a larger one is not.
const MAX_BYTES: u64 = 256 * 1024;

/// The ignore files from the root down to one directory.
#[derive(Default)]
pub(crate) struct Rules(Vec<Option<Gitignore>>);

impl Rules {
    /// Enters the directory `fd`, which is `below` the root.
    pub(crate) fn enter(&mut self, fd: BorrowedFd<'_>, below: &Path) {
        let mut lines = String::new();
        if below.as_os_str().is_empty() {
            lines += &read(fd, OsStr::new(".git/info/exclude"));
        }
        lines += &read(fd, OsStr::new(".gitignore"));
        if lines.is_empty() {
            return self.0.push(None);
        }
        let root = rooted(below);
        let mut builder = GitignoreBuilder::new(&root);
        for line in lines.lines() {
            // A line that is no pattern leaves out nothing, as in git.
            let _not_a_pattern = builder.add_line(None, line);
        }
        self.0.push(builder.build().ok());
    }

    pub(crate) fn leave(&mut self) {
        self.0.pop();
    }

    /// Whether an entry of the directory that was entered last is left out. Its parents were asked before.
    pub(crate) fn ignores(&self, below: &Path, is_directory: bool) -> bool {
        if self.0.iter().all(Option::is_none) {
            return false;
        }
        let path = rooted(below);
        for rules in self.0.iter().rev().flatten() {
            match rules.matched(&path, is_directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

fn rooted(below: &Path) -> PathBuf {
    Path::new("/").join(below)
}

fn read(directory: BorrowedFd<'_>, name: &OsStr) -> String {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = openat(directory.as_fd(), name, flags, Mode::empty()) else {
        return String::new(); // none, or one that cannot be read: it leaves out nothing
    };
    let mut bytes = Vec::new();
    match File::from(fd).take(MAX_BYTES).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned() + "\n",
        Err(_is_a_directory) => String::new(),
    }
}
