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
use std::io::{self, ErrorKind, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
use crate::command::Bytes;
use crate::disk::DiskLimits;
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

/// The files without which git would take the rest for another state of the repository, `HEAD` last: where one of them has no
/// copy, commands see no `HEAD`, and git finds no repository.
const WHOLE: [&str; 3] = ["index", "packed-refs", "HEAD"];

/// The largest `index` or `packed-refs` that is copied, in bytes: some two million files or refs.
const LARGEST: u64 = 256 << 20;
/// The largest other file, in bytes.
const LARGEST_OTHER: u64 = 1 << 20;
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
    /// How much of their disks the copies leave.
    disk: DiskLimits,
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
    pub(crate) fn make(
        workspace: BorrowedFd<'_>,
        spool: &Path,
        disk: DiskLimits,
    ) -> io::Result<Option<Self>> {
        let Some(git) = open_git(workspace) else { return Ok(None) };
        let folder = ScratchFolder::make(spool, "git-")?;
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let front = File::open(folder.path())?;
        let owner = fstat(workspace)?;
        let front = OwnedFd::from(front);
        give_to(&front, owner.st_uid, owner.st_gid)?;
        let made = Self { folder, front, git, disk, state: Mutex::default() };
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

    /// Makes the front like the person's own, before a command. While another one runs, its changes stay. Returns sentences about
    /// what has no copy. Blocking.
    pub(crate) fn begin(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut said = Vec::new();
        if state.running == 0 {
            self.link_others()?;
            let mut is_whole = true;
            for name in COPIED {
                let refused = if name == "HEAD" && !is_whole {
                    Some("git would take the rest for another state of the repository".to_owned())
                } else {
                    self.copy_in(&mut state, name)?
                };
                let Some(why) = refused else { continue };
                is_whole &= !WHOLE.contains(&name);
                state.known.remove(name);
                // Another command may have left a file there, which is none of the person's.
                remove(&self.front, name).map_err(io::Error::from)?;
                said.push(format!(".git/{name} of the checkout is not shown to commands: {why}"));
            }
        }
        state.running += 1;
        Ok(said)
    }

    /// Copies a file of the person's own, if it is another one than before. Returns why it has no copy.
    fn copy_in(&self, state: &mut State, name: &'static str) -> io::Result<Option<String>> {
        let now = (look(&self.front, name), look(&self.git, name));
        if state.known.get(name) == Some(&now) {
            return Ok(None);
        }
        match self.put(&self.git, &self.front, name, Lock::No) {
            Ok(()) => {
                state.known.insert(name, (look(&self.front, name), now.1));
                Ok(None)
            }
            Err(Unput::Refused(why)) => Ok(Some(why)),
            Err(Unput::Failed(error)) => Err(error),
        }
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
        for _ in 0..TRIES {
            if look(&self.git, name) != known {
                return Err("somebody else has changed it meanwhile".to_owned());
            }
            match self.put(&self.front, &self.git, name, Lock::Git { known }) {
                Ok(()) => return Ok(()),
                Err(Unput::Refused(why)) => return Err(why),
                Err(Unput::Failed(error)) if error.kind() == ErrorKind::AlreadyExists => {
                    std::thread::sleep(PAUSE);
                }
                Err(Unput::Failed(error)) => return Err(error.to_string()),
            }
        }
        Err("another git has it locked".to_owned())
    }

    /// Refuses contents that git would act on elsewhere.
    fn check(&self, name: &str, file: &mut File) -> Result<(), Unput> {
        match name {
            "HEAD" => {
                let mut bytes = Vec::new();
                file.rewind()?;
                file.take(LARGEST_OTHER).read_to_end(&mut bytes)?;
                let why = || Unput::Refused("it names no branch and no commit".to_owned());
                is_head(&bytes).then_some(()).ok_or_else(why)
            }
            "index" => {
                let own = open(&self.git, name).ok().flatten();
                let own = own.as_ref().map(index::read_unusual).unwrap_or_default();
                index::check(file, &own).map_err(|refusal| Unput::Refused(refusal.to_string()))
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

    /// Puts a copy of a file in place of another one, or removes that where there is none. With git's own lock in the person's
    /// folder, and only once it has been checked: what is checked is the copy, which no command can change any more.
    fn put(&self, from: &OwnedFd, to: &OwnedFd, name: &str, lock: Lock) -> Result<(), Unput> {
        let original = open(from, name).map_err(|error| Unput::Refused(error.to_string()))?;
        let size = original.as_ref().map(|it| it.metadata().map(|it| it.size())).transpose()?;
        self.check_size(to, name, size.unwrap_or(0))?;
        let beside = match lock {
            Lock::No => format!(".oc-tmp-{name}"),
            Lock::Git { .. } => format!("{name}.lock"),
        };
        if matches!(lock, Lock::No) {
            let _none_is_left = unlinkat(to, beside.as_str(), AtFlags::empty());
        }
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(to, beside.as_str(), flags, Mode::from_raw_mode(0o644))?);
        let mut put = || {
            if let Lock::Git { known } = lock
                && look(to, name) != known
            {
                return Err(Errno::EXIST.into());
            }
            let Some((original, size)) = original.as_ref().zip(size) else {
                remove(to, name)?;
                return Ok(unlinkat(to, beside.as_str(), AtFlags::empty())?);
            };
            fill(&mut file, to, original, size)?;
            if matches!(lock, Lock::Git { .. }) {
                self.check(name, &mut file)?;
            }
            Ok(renameat(to, beside.as_str(), to, name)?)
        };
        let done = put();
        if done.is_err() {
            let _the_first_error_counts = unlinkat(to, beside.as_str(), AtFlags::empty());
        }
        done
    }

    /// Refuses a file that is too large to copy, with its holes as bytes.
    fn check_size(&self, to: &OwnedFd, name: &str, size: u64) -> Result<(), Unput> {
        let most = if matches!(name, "index" | "packed-refs") { LARGEST } else { LARGEST_OTHER };
        if size > most {
            let (size, most) = (Bytes(size), Bytes(most));
            return Err(Unput::Refused(format!("it is {size}; at most {most} is copied")));
        }
        let disk = self.disk.disk(Path::new(&format!("/proc/self/fd/{}", to.as_raw_fd())));
        // A file system without an end says 0.
        match disk.filter(|disk| disk.bytes.total > 0 && size > disk.left()) {
            Some(disk) => Err(Unput::Refused(format!(
                "it is {}; {} of its disk are free, and commands leave {}; delete what is not needed",
                Bytes(size),
                Bytes(disk.bytes.free),
                Bytes(disk.bytes.least())
            ))),
            None => Ok(()),
        }
    }
}

/// Why a file was not replaced.
#[derive(Debug)]
enum Unput {
    /// It is not to be, for this reason.
    Refused(String),
    /// The system refused it; the file has a lock if it exists already.
    Failed(io::Error),
}

impl From<io::Error> for Unput {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Unput {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

/// Removes a file, if it is there.
fn remove(from: &OwnedFd, name: &str) -> Result<(), Errno> {
    match unlinkat(from, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => Err(Errno::ISDIR),
        Err(errno) => Err(errno),
    }
}

/// Fills a new file of a folder's owner with the `size` bytes of another one, and gives it the times of that: git compares those of
/// the index with those of files.
fn fill(file: &mut File, folder: &OwnedFd, original: &File, size: u64) -> Result<(), Unput> {
    let owner = fstat(folder)?;
    give_to(&*file, owner.st_uid, owner.st_gid)?;
    if io::copy(&mut original.take(size), file)? != size {
        return Err(Unput::Refused("it became shorter meanwhile; try again".to_owned()));
    }
    let times = FileTimes::new().set_modified(original.metadata()?.modified()?);
    Ok(file.set_times(times)?)
}

/// How a file is replaced.
#[derive(Clone, Copy)]
enum Lock {
    /// Nobody else writes it.
    No,
    /// By the rules of git, and only if it is still what it was.
    Git { known: Look },
}

fn give_to(fd: impl AsFd, uid: u32, gid: u32) -> Result<(), Errno> {
    let now = fstat(&fd)?;
    if (now.st_uid, now.st_gid) == (uid, gid) {
        return Ok(());
    }
    fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
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

    /// A front of a small repository.
    fn front_with(disk: DiskLimits) -> (tempfile::TempDir, std::path::PathBuf, GitFront) {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(git.join("config"), "[core]\n").unwrap();
        let workspace = OwnedFd::from(File::open(folder.path()).unwrap());
        let front = GitFront::make(workspace.as_fd(), folder.path(), disk).unwrap().unwrap();
        (folder, git, front)
    }

    fn make_sparse(path: &Path, size: u64) {
        File::create(path).unwrap().set_len(size).unwrap();
    }

    /// The bytes of all that is in a folder, as the disk counts them.
    fn count_bytes(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        entries.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
    }

    #[test]
    fn copies_go_both_ways_unless_the_person_was_there_first() {
        let (_folder, git, front) = front_with(DiskLimits::default());
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

    // Second look, 6: thirteen sparse files of 1 GiB became real ones, through memory.
    #[test]
    fn sparse_files_are_neither_copied_nor_put_back() {
        let (_folder, git, front) = front_with(DiskLimits::default());
        let path = front.path().to_owned();
        assert_eq!(front.begin().unwrap(), Vec::<String>::new());
        for name in COPIED {
            make_sparse(&path.join(name), LARGEST + 1);
        }
        let said = front.end();
        assert_eq!(said.len(), COPIED.len());
        assert!(said[0].contains("it is 256 MiB; at most 256 MiB is copied"), "{said:?}");
        assert!(said[2].contains("at most 1 MiB is copied"), "{said:?}");
        assert!(count_bytes(&git) < 1 << 20);
        assert_eq!(std::fs::read(git.join("HEAD")).unwrap(), b"ref: refs/heads/main\n");
        // Zeroes are no index; the copy in which that is seen goes again.
        front.begin().unwrap();
        make_sparse(&path.join("index"), 8 << 20);
        assert!(front.end()[0].contains("split or cannot be read"));
        assert!(!git.join("index").exists() && !git.join("index.lock").exists());
        // The same in the other direction.
        make_sparse(&git.join("COMMIT_EDITMSG"), LARGEST_OTHER + 1);
        let said = front.begin().unwrap();
        assert!(said.len() == 1 && said[0].contains("COMMIT_EDITMSG"), "{said:?}");
        assert!(path.join("HEAD").exists() && !path.join("COMMIT_EDITMSG").exists());
        assert_eq!(front.end(), Vec::<String>::new());
        // Without its index a repository would look as if all files had been removed.
        make_sparse(&git.join("index"), LARGEST + 1);
        let said = front.begin().unwrap();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(!path.join("index").exists() && !path.join("HEAD").exists());
        assert_eq!(front.end(), Vec::<String>::new());
        assert_eq!(std::fs::read(git.join("HEAD")).unwrap(), b"ref: refs/heads/main\n");
        assert!(count_bytes(&path) < 1 << 20);
    }

    #[test]
    fn nothing_is_copied_where_the_disk_would_be_full() {
        let reserve_bytes = Some(u64::MAX / 4);
        let (_folder, git, front) = front_with(DiskLimits { reserve_bytes, ..Default::default() });
        let said = front.begin().unwrap();
        assert!(said[0].contains("HEAD") && said[0].contains("commands leave"), "{said:?}");
        assert!(!front.path().join("HEAD").exists());
        std::fs::write(front.path().join("ORIG_HEAD"), "x").unwrap();
        let said = front.end();
        assert!(said.len() == 1 && said[0].contains("delete what is not needed"), "{said:?}");
        assert!(!git.join("ORIG_HEAD").exists() && !git.join("ORIG_HEAD.lock").exists());
    }
}
