//! The errors of taking, reading and restoring snapshots.

use std::io;
use std::path::{Path, PathBuf};

use blobs::BlobError;
use sandbox::lock::LockError;

/// The reason why a snapshot or restore failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file or directory of the Location or of the cache cannot be used. Retry.
    #[error("cannot {action} {}", path.display())]
    Files {
        /// The attempted action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The Location has too many files. Name folders that need no snapshot in a `.gitignore`.
    #[error(
        "the workspace has more than {limit} files and directories; name those that need no snapshot in a \
         .gitignore"
    )]
    TooManyFiles {
        /// The bound.
        limit: usize,
    },
    /// One Capture would add too many bytes. Name folders that need no snapshot in a `.gitignore`.
    #[error(
        "the workspace has more than {limit} bytes that are in no snapshot yet; name files that need none in a \
         .gitignore"
    )]
    TooLarge {
        /// The bound, in bytes.
        limit: u64,
    },
    /// A file changed during each read. Retry when it is quiet.
    #[error("{} keeps changing while it is read", path.display())]
    Changing {
        /// The file.
        path: PathBuf,
    },
    /// A pack could not be stored or read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// No named pack has the object: a row is missing, or its pack was never committed.
    #[error("object {0} is in none of the Location's packs")]
    MissingObject(String),
    /// A pack differs from the one that was stored. Restore it from a backup.
    #[error("pack {pack} is damaged: {what}")]
    Damaged {
        /// Its name.
        pack: String,
        /// The problem.
        what: &'static str,
    },
    /// The Location has a newer owner. Change nothing there.
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

    /// Returns whether stored data is permanently unavailable, so that a retry does not help.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::MissingObject(_) | Self::Damaged { .. } | Self::Blob(BlobError::NotFound(_)) => {
                true
            }
            Self::Blob(
                BlobError::BadName(_)
                | BlobError::Full(_)
                | BlobError::Taken(_)
                | BlobError::Store { .. }
                | BlobError::List { .. }
                | BlobError::Setup { .. },
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
