//! Why a snapshot could not be taken, read or restored.

use std::io;
use std::path::{Path, PathBuf};

use blobs::BlobError;
use sandbox::lock::LockError;

/// Why there is no snapshot, or no restored file.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file or directory of the Location or of the cache cannot be used: try again.
    #[error("cannot {action} {}", path.display())]
    Files {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The Location has more than is snapshotted: name folders that need no snapshot in a `.gitignore`.
    #[error(
        "the workspace has more than {limit} files and directories; name those that need no snapshot in a \
         .gitignore"
    )]
    TooManyFiles {
        /// The bound.
        limit: usize,
    },
    /// One capture would add more than is allowed: name folders that need no snapshot in a `.gitignore`.
    #[error(
        "the workspace has more than {limit} bytes that are in no snapshot yet; name files that need none in a \
         .gitignore"
    )]
    TooLarge {
        /// The bound, in bytes.
        limit: u64,
    },
    /// A file changed each time that it was read: try again when it is quiet.
    #[error("{} keeps changing while it is read", path.display())]
    Changing {
        /// Which file.
        path: PathBuf,
    },
    /// A pack could not be stored or read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// An object is in none of the packs that were named: a row is missing, or its pack was never committed.
    #[error("object {0} is in none of the Location's packs")]
    MissingObject(String),
    /// A pack is not what was stored. Restore it from a backup.
    #[error("pack {pack} is damaged: {what}")]
    Damaged {
        /// Its name.
        pack: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The Location has a newer owner: change nothing there.
    #[error(transparent)]
    Superseded(#[from] LockError),
    /// A task for file work ended without an answer.
    #[error("file work ended without an answer")]
    Task(#[from] tokio::task::JoinError),
    /// A test ended the operation here.
    #[cfg(test)]
    #[error("a simulated crash")]
    Crash,
}

impl SnapshotError {
    pub(crate) fn files(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.to_path_buf();
        move |errno| Self::Files { action, path, source: errno.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Files { action, path, source }
    }

    /// Whether what was stored cannot be had, now and later: asking again does not help.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::MissingObject(_) | Self::Damaged { .. } | Self::Blob(BlobError::NotFound(_)) => {
                true
            }
            Self::Blob(
                BlobError::BadName(_)
                | BlobError::Full(_)
                | BlobError::Store { .. }
                | BlobError::List { .. }
                | BlobError::Folder { .. },
            )
            | Self::Files { .. }
            | Self::TooManyFiles { .. }
            | Self::TooLarge { .. }
            | Self::Changing { .. }
            | Self::Superseded(_)
            | Self::Task(_) => false,
            #[cfg(test)]
            Self::Crash => false,
        }
    }
}
