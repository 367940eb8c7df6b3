//! The Location's own ignore rules.
//!
//! They come from `.gitignore` in each directory and `.git/info/exclude` at the root, with git's semantics;
//! searches also read `.ignore`, which wins over both. Files outside the Location do not count, because
//! snapshots and searches must not differ between workers.
//!
//! Ignore files may be hostile. The kernel opens each one beneath its directory, never through a symlink;
//! reading never blocks and is bounded.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

/// The largest part of an ignore file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The most bytes of all ignore files from the root down to one directory. Further rules have no effect.
/// Compiled patterns take many times their own size.
const MAX_BYTES: usize = 1024 * 1024;
/// The number of retries after a path resolution loses a race with a rename.
const RACES: usize = 32;

/// The ignore files that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IgnoreFiles {
    /// Git's own, for snapshots.
    #[default]
    Git,
    /// Git's and `.ignore`, for searches.
    GitAndIgnore,
}

/// The ignore files from the root down to one directory.
#[derive(Debug, Default)]
pub struct IgnoreRules {
    files: IgnoreFiles,
    levels: Vec<Level>,
    bytes: usize,
}

/// The ignore files of one directory.
#[derive(Debug, Default)]
struct Level {
    git: Option<Gitignore>,
    search: Option<Gitignore>,
    bytes: usize,
}

impl IgnoreRules {
    /// Makes rules before any directory is entered.
    #[must_use]
    pub fn new(files: IgnoreFiles) -> Self {
        Self { files, levels: Vec::new(), bytes: 0 }
    }

    /// Enters the directory `fd`, which is `below` the root. Never blocks on its files.
    pub fn enter(&mut self, fd: BorrowedFd<'_>, below: &Path) {
        let mut level = Level::default();
        let mut git = String::new();
        if below.as_os_str().is_empty() {
            git += &read(fd, ".git/info/exclude");
        }
        git += &read(fd, ".gitignore");
        level.git = self.compile(&mut level.bytes, below, &git);
        if self.files == IgnoreFiles::GitAndIgnore {
            let search = read(fd, ".ignore");
            level.search = self.compile(&mut level.bytes, below, &search);
        }
        self.bytes += level.bytes;
        self.levels.push(level);
    }

    /// Leaves the current directory.
    pub fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.bytes -= level.bytes;
        }
    }

    /// Returns whether an entry of the current directory is ignored. Its parents must have been checked
    /// before.
    #[must_use]
    pub fn ignores(&self, below: &Path, is_directory: bool) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let path = rooted(below);
        let nearest_first = || self.levels.iter().rev();
        let search = nearest_first().filter_map(|level| level.search.as_ref());
        let git = nearest_first().filter_map(|level| level.git.as_ref());
        for rules in search.chain(git) {
            match rules.matched(&path, is_directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }

    fn compile(&self, bytes: &mut usize, below: &Path, lines: &str) -> Option<Gitignore> {
        if lines.is_empty() || self.bytes + *bytes + lines.len() > MAX_BYTES {
            return None;
        }
        let mut builder = GitignoreBuilder::new(rooted(below));
        for line in lines.lines() {
            // A line that is not a valid pattern has no effect, as in git.
            let _not_a_pattern = builder.add_line(None, line);
        }
        let rules = builder.build().ok()?;
        *bytes += lines.len();
        Some(rules)
    }
}

fn rooted(below: &Path) -> PathBuf {
    Path::new("/").join(below)
}

/// Returns the first part of a regular file; empty if it does not exist, is something else or cannot be read.
fn read(directory: BorrowedFd<'_>, path: &str) -> String {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = (0..RACES)
        .map(|_| openat2(directory.as_fd(), path, flags, Mode::empty(), resolve))
        .find(|opened| !matches!(opened, Err(Errno::AGAIN | Errno::INTR)));
    let Some(Ok(fd)) = opened else { return String::new() };
    let is_file =
        fstat(&fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_file {
        return String::new();
    }
    let mut bytes = Vec::new();
    match File::from(fd).take(MAX_FILE_BYTES).read_to_end(&mut bytes) {
        Ok(0) => String::new(),
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned() + "\n",
        Err(_unreadable) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mkfifoat};

    use super::*;

    fn rules(root: &Path, files: IgnoreFiles) -> IgnoreRules {
        let fd = crate::place::open_root(root).unwrap();
        let mut rules = IgnoreRules::new(files);
        rules.enter(fd.as_fd(), Path::new(""));
        rules
    }

    // Finding security 2: ignore files were opened through links and pipes, and read without a bound.
    #[test]
    fn only_regular_ignore_files_of_the_directory_count() {
        let folder = tempfile::tempdir().unwrap();
        let (root, away) = (folder.path().join("root"), folder.path().join("away"));
        fs::create_dir_all(away.join("info")).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(away.join("info/exclude"), "a\n").unwrap();
        symlink("../away", root.join(".git")).unwrap();
        mkfifoat(CWD, root.join(".gitignore"), Mode::from_raw_mode(0o600)).unwrap();
        symlink("/dev/zero", root.join(".ignore")).unwrap();
        let rules = rules(&root, IgnoreFiles::GitAndIgnore);
        assert_eq!((rules.bytes, rules.ignores(Path::new("a"), false)), (0, false));
    }

    // Finding security 2: a sparse file of a terabyte is read only up to the bound, and those patterns count.
    #[test]
    fn the_beginning_of_a_huge_ignore_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".gitignore"), "a\n").unwrap();
        let file = fs::OpenOptions::new().write(true).open(folder.path().join(".gitignore"));
        file.unwrap().set_len(1 << 40).unwrap();
        let rules = rules(folder.path(), IgnoreFiles::Git);
        assert!(rules.ignores(Path::new("a"), false) && !rules.ignores(Path::new("b"), false));
        assert!(rules.bytes <= 3 * 256 * 1024, "{}", rules.bytes);
    }

    #[test]
    fn ignore_files_on_the_way_down_are_bounded_together() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".gitignore"), "a\n".repeat(128 * 1024)).unwrap();
        let fd = crate::place::open_root(folder.path()).unwrap();
        let mut rules = IgnoreRules::new(IgnoreFiles::Git);
        for depth in 0..9 {
            let below: PathBuf = std::iter::repeat_n("d", depth).collect();
            rules.enter(fd.as_fd(), &below);
        }
        assert!(rules.bytes <= MAX_BYTES, "{}", rules.bytes);
        for _ in 0..9 {
            rules.leave();
        }
        assert_eq!(rules.bytes, 0);
    }

    #[test]
    fn a_search_honours_its_own_ignore_file_before_gits() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".gitignore"), "a\nb\n").unwrap();
        fs::write(folder.path().join(".ignore"), "!a\nc\n").unwrap();
        let of = |files| {
            let rules = rules(folder.path(), files);
            ["a", "b", "c"].map(|name| rules.ignores(Path::new(name), false))
        };
        assert_eq!(of(IgnoreFiles::Git), [true, true, false]);
        assert_eq!(of(IgnoreFiles::GitAndIgnore), [false, true, true]);
    }
}
