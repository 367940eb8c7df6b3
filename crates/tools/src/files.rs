//! The Location's authority over files (FEAT-0002 FR-04): the kernel resolves every path beneath its
//! directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, statat,
};
use rustix::io::Errno;
use sandbox::{HiddenFiles, HiddenPaths};

use crate::call::{Stopped, ToolContext};
use crate::git_files;
use crate::spelling::find_spelling;

/// The number of retries after a path resolution loses a race with a rename.
const RACES: usize = 32;
/// The most parent directories that one write may create.
const MAX_DEPTH: usize = 64;
/// The most bytes of a path, as in Linux. The kernel refuses a longer one.
const MAX_PATH_BYTES: usize = 4_096;

/// The names of a home, as they begin a path in a shell.
const HOMES: [&str; 3] = ["~", "$HOME", "${HOME}"];

/// One Location's files.
///
/// Uses `openat2` with `RESOLVE_BENEATH` (Linux 5.6): the kernel refuses a `..` or symlink that leaves the
/// directory during resolution, so there is no gap between check and use. Absolute symlinks are refused, even
/// those that point inside.
#[derive(Debug)]
pub(crate) struct LocationFiles {
    root: OwnedFd,
    real_root: PathBuf,
    given_root: PathBuf,
    shown_root: String,
    hidden: HiddenPaths,
    /// The identities of `hidden`, as they were when the first file was opened: most looks at a project open none, and there are
    /// many paths.
    hidden_files: OnceLock<HiddenFiles>,
    /// Whether git's own files must not change: in a checkout of a person, git obeys them outside the sandbox.
    keeps_git: bool,
}

/// A file or directory that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) kind: FileType,
    /// Its size when it was opened.
    pub(crate) bytes: u64,
    /// A walk has come to it over a symlink.
    pub(crate) is_linked: bool,
}

/// The reason why a path was not opened.
#[derive(Debug)]
pub(crate) enum Refused {
    Missing,
    Outside,
    /// It holds the service's own data, or a person's credentials.
    Hidden,
    /// It is a file that git obeys.
    GitsOwn,
    Io(io::Error),
}

impl Refused {
    /// Converts it to a message for the model, with the path as the model wrote it.
    pub(crate) fn told(self, path: &str, files: &LocationFiles) -> Stopped {
        Stopped::because(match self {
            Self::Missing => format!("{path} does not exist"),
            Self::Outside => format!(
                "access to {path} is denied: it is outside {}, the only directory that tools may use",
                files.shown_root
            ),
            Self::Hidden => format!(
                "access to {path} is denied: it holds the service's own data or somebody's credentials"
            ),
            Self::GitsOwn => format!(
                "writing {path} is denied: git obeys it outside of this session; use git in a command, or ask the \
                 person to change it"
            ),
            Self::Io(error) => format!("cannot use {path}: {error}"),
        })
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::NOSYS => Self::Io(io::Error::other(
                "this machine's kernel has no openat2 (Linux 5.6), without which files cannot be confined",
            )),
            other => Self::Io(other.into()),
        }
    }
}

impl LocationFiles {
    pub(crate) fn open_root(context: &ToolContext) -> Result<Self, Stopped> {
        let shown_root = &context.shown_root;
        let opened = Self::open_at(&context.root, shown_root, &context.cell.hidden);
        let opened = opened.map_err(|error| {
            Stopped::because(format!("the working directory {shown_root} cannot be used: {error}"))
        })?;
        Ok(Self { keeps_git: context.cell.protect, ..opened })
    }

    /// Opens the files for the service itself. `root` is a real path: a link in it was put there since.
    pub(crate) fn open_at(root: &Path, shown_root: &str, hidden: &HiddenPaths) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat2(CWD, root, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let real_root = path_of(&fd)?;
        Ok(Self {
            root: fd,
            real_root,
            given_root: root.to_path_buf(),
            shown_root: shown_root.to_owned(),
            hidden: hidden.clone(),
            hidden_files: OnceLock::new(),
            keeps_git: false,
        })
    }

    /// Returns the path below the root that the model means: relative paths unchanged, absolute ones below
    /// either name of the root, and names as they are spelled on the disk. [`LocationFiles::open`] decides about the target.
    pub(crate) fn relative(&self, given: &str) -> Result<PathBuf, Stopped> {
        if given.is_empty() || given.contains('\0') {
            return Err(Stopped::because("the path is empty or holds a NUL"));
        }
        let path = Path::new(given);
        let home = given.split('/').next().filter(|first| HOMES.contains(first)).map(Path::new);
        // A folder of such a name is not made, because a home is meant.
        if home.is_some_and(|home| matches!(self.open(home, OFlags::PATH), Err(Refused::Missing))) {
            return Err(Refused::Outside.told(given, self));
        }
        if path.is_relative() {
            return Ok(self.drop_detours(find_spelling(self, path.to_path_buf())));
        }
        let roots = [Path::new(&self.shown_root), &self.given_root, &self.real_root];
        match roots.into_iter().find_map(|root| path.strip_prefix(root).ok()) {
            Some(below) if below.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(below) => Ok(self.drop_detours(find_spelling(self, below.to_path_buf()))),
            None => Err(Refused::Outside.told(given, self)),
        }
    }

    /// Takes each `..` behind a name that is missing away with that name. Otherwise the path would name another file once
    /// somebody makes that folder.
    pub(crate) fn drop_detours(&self, path: PathBuf) -> PathBuf {
        let has_parent = path.components().any(|part| part == Component::ParentDir);
        if !has_parent || path.as_os_str().len() > MAX_PATH_BYTES {
            return path;
        }
        let mut kept = PathBuf::new();
        for part in path.components() {
            let is_missing = part == Component::ParentDir
                && kept.file_name().is_some()
                && matches!(self.open(&kept, OFlags::PATH), Err(Refused::Missing));
            if is_missing {
                kept.pop();
            } else {
                kept.push(part);
            }
        }
        if kept.as_os_str().is_empty() { PathBuf::from(".") } else { kept }
    }

    /// Opens the target of `path`, if it is beneath the root.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Refused> {
        let fd = self.resolve(path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
        self.refuse_hidden(&fd)?;
        Ok(fd)
    }

    fn hidden_files(&self) -> &HiddenFiles {
        self.hidden_files.get_or_init(|| self.hidden.identities())
    }

    /// Refuses an open file that is hidden, or lies in a hidden directory. What is around the root does not count: managed
    /// workspaces are in the service's folder.
    fn refuse_hidden(&self, fd: &OwnedFd) -> Result<(), Refused> {
        let hidden_files = self.hidden_files();
        if hidden_files.is_empty() {
            return Ok(());
        }
        let is_hidden = |stat: rustix::fs::Stat| hidden_files.contains(stat.st_dev, stat.st_ino);
        if is_hidden(fstat(fd)?) {
            return Err(Refused::Hidden);
        }
        // Commands cannot change what is hidden, so that its directories keep their names meanwhile.
        let real = path_of(fd).map_err(Refused::Io)?;
        let above = real
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(&self.real_root) && *above != self.real_root);
        for directory in above {
            if statat(CWD, directory, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_hidden) {
                return Err(Refused::Hidden);
            }
        }
        Ok(())
    }

    /// Refuses a name in an open directory if a file of that name would be one of git's own, or hidden.
    fn refuse_name(&self, directory: &OwnedFd, name: &OsStr) -> Result<(), Refused> {
        let real = path_of(directory).map_err(Refused::Io)?.join(name);
        let Ok(below) = real.strip_prefix(&self.real_root) else { return Err(Refused::Outside) };
        let hidden_around = self.hidden.around(&real);
        if hidden_around.is_some_and(|hidden| !self.real_root.starts_with(hidden)) {
            return Err(Refused::Hidden);
        }
        if !self.keeps_git {
            return Ok(());
        }
        if git_files::names_git(&real) || git_files::is_of_repository(self, below) {
            return Err(Refused::GitsOwn);
        }
        Ok(())
    }

    /// Returns whether a file of this path below the root would be hidden. Follows no symlink.
    pub(crate) fn hides_name(&self, path: &Path) -> bool {
        let around = self.hidden.around(&self.real_root.join(path));
        around.is_some_and(|hidden| !self.real_root.starts_with(hidden))
    }

    /// Returns whether a directory below the root has an entry of this name. Follows no symlink.
    pub(crate) fn has_entry(&self, directory: &Path, name: &str) -> bool {
        let Ok(fd) = self.open_directory(directory) else { return false };
        statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn resolve(
        &self,
        path: &Path,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Refused> {
        for _ in 0..RACES {
            match openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(fd) => return Ok(fd),
            }
        }
        Err(Refused::Io(io::Error::other("its directories keep being moved; try again")))
    }

    /// Opens the directory at `path` for listing. Follows no symlink.
    pub(crate) fn open_directory(&self, path: &Path) -> Result<OwnedFd, Refused> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = self.resolve(path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?;
        self.refuse_hidden_itself(fd)
    }

    /// Refuses an open file that is hidden. Its directories are known not to be.
    fn refuse_hidden_itself(&self, fd: OwnedFd) -> Result<OwnedFd, Refused> {
        let hidden_files = self.hidden_files();
        if hidden_files.is_empty() {
            return Ok(fd);
        }
        let stat = fstat(&fd)?;
        let is_hidden = hidden_files.contains(stat.st_dev, stat.st_ino);
        if is_hidden { Err(Refused::Hidden) } else { Ok(fd) }
    }

    /// Opens a file that a walk has come to, as [`LocationFiles::open_to_read`] does. Faster if it is no symlink.
    pub(crate) fn open_walked(&self, path: &Path) -> Result<OpenFile, Refused> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.resolve(path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
            Ok(fd) => as_readable(self.refuse_hidden_itself(fd)?),
            Err(Refused::Outside) => {
                self.open_to_read(path).map(|opened| OpenFile { is_linked: true, ..opened })
            }
            Err(other) => Err(other),
        }
    }

    /// Opens a file or directory for reading. Refuses pipes and devices without blocking.
    pub(crate) fn open_to_read(&self, path: &Path) -> Result<OpenFile, Refused> {
        as_readable(self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?)
    }

    /// Returns the real path of an open file, below the root and without symlinks.
    pub(crate) fn real_relative(&self, fd: &OwnedFd) -> Result<PathBuf, Refused> {
        let real = path_of(fd).map_err(Refused::Io)?;
        match real.strip_prefix(&self.real_root) {
            Ok(below) if below.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Ok(below) => Ok(below.to_path_buf()),
            Err(_moved_meanwhile) => Err(Refused::Outside),
        }
    }

    /// Returns the same of an open file, the root as an empty path.
    pub(crate) fn real_of(&self, file: &File) -> Result<PathBuf, Refused> {
        let real = path_of(file).map_err(Refused::Io)?;
        real.strip_prefix(&self.real_root).map(Path::to_path_buf).map_err(|_moved| Refused::Outside)
    }

    /// Opens the parent directory of `path`'s last name, creating missing directories.
    pub(crate) fn open_parent(&self, path: &Path) -> Result<(OwnedFd, OsString), Refused> {
        let name = path.file_name().map(OsStr::to_owned).ok_or_else(|| {
            Refused::Io(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))
        })?;
        if self.keeps_git && git_files::names_git(path) {
            return Err(Refused::GitsOwn); // before a directory is made
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let mut reached = PathBuf::from(".");
        let mut fd = self.open(&reached, directory)?;
        for (depth, component) in parent.components().enumerate() {
            if component == Component::CurDir {
                continue;
            }
            if let Component::Normal(next) = component {
                // Before anything is made in it.
                self.refuse_name(&fd, next)?;
            }
            reached.push(component);
            fd = match self.open(&reached, directory) {
                Err(Refused::Missing) if depth < MAX_DEPTH => {
                    match mkdirat(&fd, component.as_os_str(), Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => self.open(&reached, directory)?,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                other => other?,
            };
        }
        self.refuse_name(&fd, &name)?;
        Ok((fd, name))
    }

    pub(crate) fn real_root(&self) -> &Path {
        &self.real_root
    }
}

/// Returns an open file for reading, unless it is a pipe or a device.
fn as_readable(fd: OwnedFd) -> Result<OpenFile, Refused> {
    let stat = fstat(&fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    match kind {
        FileType::RegularFile | FileType::Directory => {
            let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
            Ok(OpenFile { file: File::from(fd), kind, bytes, is_linked: false })
        }
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {
            Err(Refused::Io(io::Error::other("it is neither a file nor a directory")))
        }
    }
}

fn path_of(fd: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Runs file work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Stopped> + Send + 'static,
) -> Result<T, Stopped> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Stopped::because(format!("the tool itself failed: {error}"))),
    }
}
