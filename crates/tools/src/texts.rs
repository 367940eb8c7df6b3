//! Reads text files of a Location for the service, with no more authority than the Location's tools.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use rustix::fs::{Dir, FileType, OFlags, fstat};
use rustix::io::Errno;
use sandbox::HiddenPaths;
use tokio_util::sync::CancellationToken;

use crate::files::{LocationFiles, Refused};
use crate::walk::walk;

/// Reads texts beneath one directory. Blocking: do not call it on an async thread.
#[derive(Debug)]
pub struct LocationTexts(LocationFiles);

/// The beginning of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundText {
    /// The text read, with U+FFFD in place of invalid UTF-8.
    pub text: String,
    /// The file is longer.
    pub more: bool,
    /// Some of it is not UTF-8.
    pub is_mended: bool,
}

/// Why a path that is there has no text, or a folder no names.
type Unread = String;

impl LocationTexts {
    /// Opens the texts beneath `root`, which is a real path, but for those that are hidden.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(root: &Path, hidden: &HiddenPaths) -> io::Result<Self> {
        LocationFiles::open_at(root, "", hidden).map(Self)
    }

    /// Returns the first `max_bytes` of the file at `path` below the root. `None` if nothing is there, or it
    /// is not a regular file, or it is outside: a symlink does not make its target readable.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn read(&self, path: &Path, max_bytes: usize) -> io::Result<Option<FoundText>> {
        // Without NONBLOCK, opening a pipe waits for its writer.
        let fd = match self.0.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => fd,
            Err(Refused::Missing | Refused::Outside | Refused::Hidden | Refused::GitsOwn) => {
                return Ok(None);
            }
            Err(Refused::Io(error)) if leads_to_no_file(&error) => return Ok(None),
            Err(Refused::Io(error)) => return Err(error),
        };
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(fd).take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
        let more = bytes.len() > max_bytes;
        bytes.truncate(max_bytes);
        if more {
            // Do not cut inside a character.
            let whole = std::str::from_utf8(&bytes);
            let end = whole.err().filter(|error| error.error_len().is_none());
            bytes.truncate(end.map_or(bytes.len(), |error| error.valid_up_to()));
        }
        let text = String::from_utf8_lossy(&bytes);
        let is_mended = matches!(text, Cow::Owned(_));
        Ok(Some(FoundText { text: text.into_owned(), more, is_mended }))
    }

    /// Visits each file and link below the directory `below` as `glob` finds them, by its path beneath the root: those that an
    /// ignore file names and what is hidden are left out, and no link is followed. Ends when `visit` breaks, when `cancel`
    /// fires, or at the bound of a walk. Returns whether everything was visited.
    pub fn visit_files(
        &self,
        below: &Path,
        cancel: &CancellationToken,
        mut visit: impl FnMut(&Path) -> ControlFlow<()>,
    ) -> bool {
        let mut is_whole = true;
        let walked = walk(&self.0, below, cancel, |path| {
            let went_on = visit(path);
            is_whole &= went_on.is_continue();
            Ok(went_on)
        });
        walked.is_ok_and(|walked| !walked.gave_up) && is_whole
    }

    /// Returns whether the path is a hidden one or lies in one, whether it is there or not.
    #[must_use]
    pub fn is_hidden(&self, path: &Path) -> bool {
        match self.0.open(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(Refused::Hidden) => true,
            Err(Refused::Missing) => self.0.hides_name(path),
            Ok(_) | Err(Refused::Outside | Refused::GitsOwn | Refused::Io(_)) => false,
        }
    }

    /// Does the same as [`Self::read`], for a file that must not be passed over: `Err` says why there is no text of something
    /// that is there. Only what is missing or hidden is `None`.
    ///
    /// # Errors
    /// It leads out of the root or to nothing, it is no regular file, or it cannot be read.
    pub fn must_read(&self, path: &Path, max_bytes: usize) -> Result<Option<FoundText>, Unread> {
        match self.read(path, max_bytes) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => self.why_passed_over(path, "a regular file").map_or(Ok(None), Err),
            Err(error) => Err(format!("it cannot be read: {error}")),
        }
    }

    /// Returns why nothing was found at a path: `None`, if nothing is there.
    fn why_passed_over(&self, path: &Path, wanted: &str) -> Option<Unread> {
        let nofollow = self.0.open(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let kind = FileType::from_raw_mode(fstat(&nofollow).ok()?.st_mode);
        if kind != FileType::Symlink {
            return Some(format!("it is not {wanted}"));
        }
        match self.0.open(path, OFlags::PATH) {
            Err(Refused::Hidden | Refused::GitsOwn) => None,
            Err(Refused::Missing) => Some("it is a link to nothing".to_owned()),
            Err(Refused::Outside) => {
                Some("it is a link that leads out of the project, or in circles".to_owned())
            }
            Err(Refused::Io(error)) => Some(format!("its target cannot be used: {error}")),
            Ok(_) => Some(format!("it is a link to something that is not {wanted}")),
        }
    }

    /// Does the same as [`Self::names`], for a folder that must not be passed over.
    ///
    /// # Errors
    /// It leads out of the root or to nothing, it is no folder, it has more than `max` names, or it cannot be read.
    pub fn must_list(&self, path: &Path, max: usize) -> Result<Vec<String>, Unread> {
        let names = self.names(path, max).map_err(|error| format!("it cannot be read: {error}"))?;
        if !names.is_empty() {
            return Ok(names);
        }
        let is_folder = self.0.open(path, OFlags::PATH | OFlags::DIRECTORY).is_ok();
        if !is_folder {
            return self.why_passed_over(path, "a folder").map_or(Ok(Vec::new()), Err);
        }
        match self.0.open(path, OFlags::RDONLY | OFlags::DIRECTORY).map(Dir::new) {
            // `.` and `..` are two of them.
            Ok(Ok(directory)) => {
                let is_full = directory.count() > max + 2;
                if is_full { Err(format!("it has more than {max} names")) } else { Ok(names) }
            }
            Ok(Err(error)) => Err(format!("it cannot be read: {error}")),
            Err(refused) => match refused {
                Refused::Io(error) => Err(format!("it cannot be read: {error}")),
                Refused::Missing | Refused::Outside | Refused::Hidden | Refused::GitsOwn => {
                    Ok(names)
                }
            },
        }
    }

    /// Returns whether a path may lead to a folder. It may where that cannot be told: [`Self::must_list`] says why.
    #[must_use]
    pub fn may_be_folder(&self, path: &Path) -> bool {
        let Ok(fd) = self.0.open(path, OFlags::PATH) else { return true };
        let is_folder = |mode| FileType::from_raw_mode(mode) == FileType::Directory;
        fstat(&fd).is_ok_and(|stat| is_folder(stat.st_mode))
    }

    /// Returns the sorted names in the directory at `path` below the root. Empty if there is no directory, it
    /// is outside, or it has more than `max` names. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// The directory exists but cannot be read.
    pub fn names(&self, path: &Path, max: usize) -> io::Result<Vec<String>> {
        let fd = match self.0.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK) {
            Ok(fd) => fd,
            Err(Refused::Missing | Refused::Outside | Refused::Hidden | Refused::GitsOwn) => {
                return Ok(Vec::new());
            }
            Err(Refused::Io(error)) if leads_to_no_file(&error) => return Ok(Vec::new()),
            Err(Refused::Io(error)) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in Dir::new(fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == max {
                return Ok(Vec::new());
            }
            names.push(name.to_owned());
        }
        names.sort();
        Ok(names)
    }
}

/// Returns whether the path cannot be a file: a file in place of a directory, an impossible name, a socket.
fn leads_to_no_file(error: &io::Error) -> bool {
    let codes = [Errno::NOTDIR, Errno::NAMETOOLONG, Errno::NXIO, Errno::INVAL];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn text(text: &str, more: bool) -> Option<FoundText> {
        Some(FoundText { text: text.into(), more, is_mended: text.contains('\u{FFFD}') })
    }

    #[test]
    fn a_text_is_read_up_to_its_bound_and_not_in_the_middle_of_a_character() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/AGENTS.md"), "grün").unwrap();
        std::fs::write(folder.path().join("odd"), b"a\xffb").unwrap();
        symlink("a/AGENTS.md", folder.path().join("CLAUDE.md")).unwrap();
        let texts = LocationTexts::open(folder.path(), &HiddenPaths::default()).unwrap();
        let read = |path: &str, max| texts.read(Path::new(path), max).unwrap();
        assert_eq!(read("a/AGENTS.md", 5), text("grün", false));
        assert_eq!(read("a/AGENTS.md", 4), text("grü", true));
        assert_eq!(read("a/AGENTS.md", 3), text("gr", true));
        assert_eq!(read("CLAUDE.md", 9), text("grün", false));
        assert_eq!(read("odd", 9), text("a\u{FFFD}b", false));
    }

    #[test]
    fn what_is_no_file_of_the_location_is_not_there() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        symlink(outside.path().join("secret"), at("away")).unwrap();
        symlink("../secret", at("up")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let pipe = rustix::fs::CWD;
        rustix::fs::mkfifoat(pipe, at("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let texts = LocationTexts::open(folder.path(), &HiddenPaths::default()).unwrap();
        let long = "x".repeat(300);
        let names = [
            "missing",
            "directory",
            "file/AGENTS.md",
            "away",
            "up",
            "loop",
            "socket",
            "pipe",
            &long,
        ];
        for name in names {
            assert_eq!(texts.read(Path::new(name), 9).unwrap(), None, "{name}");
        }
        assert!(LocationTexts::open(&at("missing"), &HiddenPaths::default()).is_err());
    }
}
