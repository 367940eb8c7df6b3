//! The bounded log of a child server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::BootError;

/// The size in bytes above which a log is moved to `….1`, over the previous one.
const MAX_BYTES: u64 = 16 << 20;
/// The bytes of a log that are read to find the reason of a failure.
const TAIL_BYTES: u64 = 64 << 10;

/// A file that a child server writes its stderr to.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
}

impl LogFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the log for a new child, which appends to it. Also returns the position where its lines begin.
    pub(crate) fn open(&self) -> Result<(File, u64), BootError> {
        self.trim().map_err(BootError::io("trim the log", &self.path))?;
        let options = OpenOptions::new().create(true).append(true).mode(0o600).clone();
        let file = options.open(&self.path).map_err(BootError::io("open the log", &self.path))?;
        let from = file.metadata().map_err(BootError::io("open the log", &self.path))?.len();
        Ok((file, from))
    }

    /// Bounds the log. Its writer appends through its own descriptor, so the file is copied and truncated,
    /// not renamed; a line written in between is lost.
    pub(crate) fn trim(&self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(data) if data.len() > MAX_BYTES => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        fs::copy(&self.path, self.path.with_added_extension("1"))?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }

    /// Returns the text since position `from`, at most the last 64 KiB. Empty if it cannot be read: it only
    /// explains another failure.
    pub(crate) fn since(&self, from: u64) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.path)?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL_BYTES))))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_that_grew_too_long_is_moved_while_its_writer_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::new(folder.path().join("log"));
        let (mut writer, from) = log.open().unwrap();
        assert_eq!(from, 0);
        writer.write_all(&vec![b'x'; MAX_BYTES as usize + 1]).unwrap();
        log.trim().unwrap();
        writer.write_all(b"after\n").unwrap();
        assert_eq!(log.since(0), "after\n");
        let (mut second, from) = log.open().unwrap();
        second.write_all(b"second\n").unwrap();
        assert_eq!(log.since(from), "second\n");
        assert_eq!(fs::metadata(folder.path().join("log.1")).unwrap().len(), MAX_BYTES + 1);
    }
}
