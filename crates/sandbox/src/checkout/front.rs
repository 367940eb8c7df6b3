//! The folder that commands see as the `.git` of a person's checkout.
//!
//! ```text
//! the front, the commands' own            /run/git, the person's own
//!   HEAD, index …   copies                  everything            read-only
//!   objects      ─▶ links to /run/git       objects, refs, logs   to write, but for links
//!   config       ─▶ …
//! ```
//!
//! So a command commits as ever, and what git obeys (configuration, hooks, `commondir`) is the person's own at every moment, not
//! only once the command has ended. Copies that a command changed are put back after it, as git itself does it, if the
//! person's own are still as they were.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchown, fstat, mkdirat, openat,
    openat2, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::index;
use crate::removal::ScratchFolder;

/// Where commands see the person's own `.git`.
pub(crate) const PERSONS_OWN: &str = "/run/git";

/// The folders of it that commands change where they are: data that git does not obey.
pub(crate) const SHARED: [&str; 5] = ["objects", "refs", "logs", "reftable", "lfs"];

/// The folder of it with the repositories of submodules. It is mounted where they look for it, read-only, since they name their
/// checkouts relative to themselves.
pub(crate) const SUBMODULES: &str = "modules";

/// The files that commands change in copies: git makes new ones beside them.
const COPIED: [&str; 13] = [
    // The index before `HEAD`: a commit that is seen has its files in the index.
    "index",
    "packed-refs",
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "COMMIT_EDITMSG",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "SQUASH_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "AUTO_MERGE",
];

/// The largest file that is copied, in bytes.
const LARGEST: u64 = 1 << 30;
/// How often another git's lock of a file is waited for, and how long.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The state of a file when it was copied.
type Look = Option<(u64, u64, i64, i64)>;

/// The front of one cell.
pub(crate) struct GitFront {
    folder: ScratchFolder,
    front: OwnedFd,
    /// The person's own `.git`.
    git: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    /// The front's file and the person's, when they were the same.
    known: HashMap<&'static str, (Look, Look)>,
}

/// Opens the `.git` of a workspace, if it is a folder.
fn open_git(workspace: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(workspace, ".git", flags, Mode::empty(), resolve).ok()
}

impl GitFront {
    /// Makes a front in `spool`; `None` if the workspace has no folder `.git`.
    pub(crate) fn make(workspace: BorrowedFd<'_>, spool: &Path) -> io::Result<Option<Self>> {
        let Some(git) = open_git(workspace) else { return Ok(None) };
        let folder = ScratchFolder::make(spool, "git-")?;
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let front = File::open(folder.path())?;
        let owner = fstat(workspace)?;
        let front = OwnedFd::from(front);
        give_to(&front, owner.st_uid, owner.st_gid)?;
        let made = Self { folder, front, git, state: Mutex::default() };
        if openat(
            &made.git,
            SUBMODULES,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .is_ok()
        {
            mkdirat(&made.front, SUBMODULES, Mode::from_raw_mode(0o755))?;
        }
        Ok(Some(made))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the front like the person's own, before a command. While another one runs, its changes stay. Blocking.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.running == 0 {
            self.link_others()?;
            for name in COPIED {
                let known = state.known.get(name).copied();
                let now = (look(&self.front, name), look(&self.git, name));
                if known != Some(now) {
                    // A link, for instance: it has no copy.
                    let Ok(bytes) = read(&self.git, name) else {
                        state.known.remove(name);
                        continue;
                    };
                    let put = self.put(&self.front, name, bytes.as_deref(), Lock::No);
                    put.map_err(io::Error::from)?;
                    state.known.insert(name, (look(&self.front, name), now.1));
                }
            }
        }
        state.running += 1;
        Ok(())
    }

    /// Forgets a command that began, and puts nothing back: its caller is gone.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = state.running.saturating_sub(1);
    }

    /// Puts what a command has changed in its copies to the person's own. Returns sentences about what was not. Blocking.
    pub(crate) fn end(&self) -> Vec<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = state.running.saturating_sub(1);
        let mut said = Vec::new();
        for name in COPIED {
            let Some(known) = state.known.get(name).copied() else { continue };
            let front = look(&self.front, name);
            if front == known.0 {
                continue;
            }
            let done = self.put_back(name, known.1);
            if let Err(why) = &done {
                said.push(format!(".git/{name} of the checkout stays as it was: {why}"));
            }
            // A refused file is looked at again when it changes again, or is replaced before the next command.
            let own = if done.is_ok() { look(&self.git, name) } else { None };
            state.known.insert(name, (front, own));
        }
        said
    }

    fn put_back(&self, name: &str, known: Look) -> Result<(), String> {
        let unread = |error: io::Error| format!("the command's cannot be read: {error}");
        let bytes = read(&self.front, name).map_err(unread)?;
        if let Some(bytes) = &bytes {
            self.check(name, bytes)?;
        }
        for _ in 0..TRIES {
            if look(&self.git, name) != known {
                return Err("somebody else has changed it meanwhile".to_owned());
            }
            match self.put(&self.git, name, bytes.as_deref(), Lock::Git { known }) {
                Err(Errno::EXIST) => std::thread::sleep(PAUSE),
                Err(errno) => return Err(io::Error::from(errno).to_string()),
                Ok(()) => return Ok(()),
            }
        }
        Err("another git has it locked".to_owned())
    }

    /// Refuses contents that git would act on elsewhere.
    fn check(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        match name {
            "HEAD" if !is_head(bytes) => Err("it names no branch and no commit".to_owned()),
            "index" => {
                let named = index::submodules(bytes)
                    .ok_or("it is split or cannot be read; unset core.splitIndex")?;
                let own = read(&self.git, name).ok().flatten().unwrap_or_default();
                let own = index::submodules(&own).unwrap_or_default();
                match named.difference(&own).next() {
                    None => Ok(()),
                    Some(path) => Err(format!(
                        "it would make {} a submodule, in which git obeys another configuration; ask the person to add it",
                        String::from_utf8_lossy(path)
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    /// Links everything in the person's own that is not copied.
    fn link_others(&self) -> io::Result<()> {
        let copy = openat(&self.git, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        for entry in Dir::new(copy)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_copied = COPIED.iter().any(|copied| copied.as_bytes() == name);
            if is_copied || name == b"." || name == b".." || name.ends_with(b".lock") {
                continue;
            }
            let target = Path::new(PERSONS_OWN).join(OsStr::from_bytes(name));
            let name = OsStr::from_bytes(name);
            match symlinkat(&target, &self.front, name) {
                Ok(()) => {}
                Err(Errno::EXIST) if self.has_link(name, &target) => {}
                Err(Errno::EXIST) => {
                    // A command has put something else there; a folder of its own stays.
                    if unlinkat(&self.front, name, AtFlags::empty()).is_ok() {
                        symlinkat(&target, &self.front, name)?;
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn has_link(&self, name: &OsStr, target: &Path) -> bool {
        let found = readlinkat(&self.front, name, Vec::new());
        found.is_ok_and(|found| found.as_bytes() == target.as_os_str().as_bytes())
    }

    /// Puts a content in place of a file, or removes it. With git's own lock in the person's folder.
    fn put(&self, to: &OwnedFd, name: &str, bytes: Option<&[u8]>, lock: Lock) -> Result<(), Errno> {
        let beside = match lock {
            Lock::No => format!(".oc-tmp-{name}"),
            Lock::Git { .. } => format!("{name}.lock"),
        };
        if matches!(lock, Lock::No) {
            let _none_is_left = unlinkat(to, beside.as_str(), AtFlags::empty());
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(to, beside.as_str(), flags, Mode::from_raw_mode(0o644))?;
        let filled = match (lock, bytes) {
            (Lock::Git { known }, _) if look(to, name) != known => Err(Errno::EXIST),
            (_, Some(bytes)) => self.fill(fd, to, name, bytes),
            (_, None) => match unlinkat(to, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => unlinkat(to, beside.as_str(), AtFlags::empty()),
                Err(Errno::ISDIR | Errno::PERM) => Err(Errno::ISDIR),
                Err(errno) => Err(errno),
            },
        };
        let done = filled.and_then(|()| match bytes {
            Some(_) => renameat(to, beside.as_str(), to, name),
            None => Ok(()),
        });
        if done.is_err() {
            let _the_first_error_counts = unlinkat(to, beside.as_str(), AtFlags::empty());
        }
        done
    }

    /// Writes a copy with the times of its original: git compares those of the index with those of files.
    fn fill(&self, fd: OwnedFd, to: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let is_front = std::ptr::eq(to, &raw const self.front);
        let from = if is_front { &self.git } else { &self.front };
        let owner = fstat(to)?;
        give_to(&fd, owner.st_uid, owner.st_gid)?;
        let mut file = File::from(fd);
        let fill = |file: &mut File| -> io::Result<()> {
            file.write_all(bytes)?;
            if let Some(original) = open(from, name)? {
                file.set_times(FileTimes::new().set_modified(original.metadata()?.modified()?))?;
            }
            Ok(())
        };
        fill(&mut file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// How a file is replaced.
#[derive(Clone, Copy)]
enum Lock {
    /// Nobody else writes it.
    No,
    /// By the rules of git, and only if it is still what it was.
    Git { known: Look },
}

fn give_to(fd: &OwnedFd, uid: u32, gid: u32) -> Result<(), Errno> {
    let now = fstat(fd)?;
    if (now.st_uid, now.st_gid) == (uid, gid) {
        return Ok(());
    }
    fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

fn look(folder: &OwnedFd, name: &str) -> Look {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Some((stat.st_ino, u64::try_from(stat.st_size).ok()?, stat.st_mtime, nanoseconds))
}

/// Opens a regular file; `None` if there is none.
fn open(folder: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(io::Error::other("it is a link")),
        other => other?,
    };
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no file"));
    }
    Ok(Some(File::from(fd)))
}

fn read(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open(folder, name)? else { return Ok(None) };
    if file.metadata()?.size() > LARGEST {
        return Err(io::Error::other("it is too large"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Returns whether this is a `HEAD`: a branch, or a commit.
fn is_head(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let text = text.trim_end_matches('\n');
    let is_name = |name: &str| {
        name.starts_with("refs/")
            && !name.split('/').any(|part| part.is_empty() || part.starts_with('.'))
            && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    let is_commit =
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit || text.strip_prefix("ref: ").is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_head_names_a_branch_or_a_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567\n";
        for good in ["ref: refs/heads/main\n", "ref: refs/heads/a/b", commit] {
            assert!(is_head(good.as_bytes()), "{good}");
        }
        for bad in ["", "main", "ref: ../x", "ref: refs/../x", "ref: refs/a b", "ref: /etc/x"] {
            assert!(!is_head(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn copies_go_both_ways_unless_the_person_was_there_first() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(git.join("config"), "[core]\n").unwrap();
        let workspace = OwnedFd::from(File::open(folder.path()).unwrap());
        let front = GitFront::make(workspace.as_fd(), folder.path()).unwrap().unwrap();
        let path = front.path().to_owned();
        front.begin().unwrap();
        assert_eq!(std::fs::read(path.join("HEAD")).unwrap(), b"ref: refs/heads/main\n");
        assert_eq!(std::fs::read_link(path.join("config")).unwrap(), Path::new("/run/git/config"));
        std::fs::write(path.join("HEAD"), "ref: refs/heads/next\n").unwrap();
        std::fs::write(path.join("commondir"), "../.cd").unwrap();
        std::fs::write(path.join("MERGE_HEAD"), "x").unwrap();
        assert_eq!(front.end(), Vec::<String>::new());
        assert_eq!(std::fs::read(git.join("HEAD")).unwrap(), b"ref: refs/heads/next\n");
        assert!(git.join("MERGE_HEAD").exists() && !git.join("commondir").exists());
        front.begin().unwrap();
        std::fs::remove_file(path.join("MERGE_HEAD")).unwrap();
        std::fs::write(path.join("HEAD"), "ref: refs/heads/ours\n").unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/theirs\n").unwrap();
        let said = front.end();
        assert!(said.len() == 1 && said[0].contains("somebody else"), "{said:?}");
        assert_eq!(std::fs::read(git.join("HEAD")).unwrap(), b"ref: refs/heads/theirs\n");
        assert!(!git.join("MERGE_HEAD").exists());
        // The next command sees the person's.
        front.begin().unwrap();
        assert_eq!(std::fs::read(path.join("HEAD")).unwrap(), b"ref: refs/heads/theirs\n");
        std::fs::remove_file(path.join("HEAD")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("HEAD")).unwrap();
        assert!(front.end()[0].contains("it is a link"));
        assert_eq!(std::fs::read(git.join("HEAD")).unwrap(), b"ref: refs/heads/theirs\n");
    }
}
