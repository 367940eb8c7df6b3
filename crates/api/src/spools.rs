//! The disk that uploads and imports take here until all of them is proved.
//!
//! They wait in files without names, in a folder of the gateway's data. All of them together have a bound, an organisation has
//! half of it, and none takes of the disk what the operator keeps free.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs, io};

use domain::OrgId;
use http::StatusCode;
use tokio::fs::File;

use crate::error::ApiError;

/// Returns how many bytes may be taken of the disk of a folder; `None` if it cannot be asked. May block.
pub type DiskRoom = Arc<dyn Fn(&Path) -> Option<u64> + Send + Sync>;

/// Where uploads and imports wait, and how much of them.
#[derive(Clone)]
pub struct SpoolSettings {
    /// The folder. Its files are removed at the start: nobody else has any there.
    pub folder: PathBuf,
    /// The most bytes of all of them. An organisation has half of it.
    pub most_bytes: u64,
    /// The room on the folder's disk.
    pub room: DiskRoom,
}

impl fmt::Debug for SpoolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, most_bytes, room: _ } = self;
        f.debug_struct("SpoolSettings")
            .field("folder", folder)
            .field("most_bytes", most_bytes)
            .finish_non_exhaustive()
    }
}

impl SpoolSettings {
    /// Makes the folder, and removes the files that an earlier process has left there.
    ///
    /// # Errors
    /// When the folder cannot be made, read or emptied.
    pub fn empty_folder(&self) -> io::Result<()> {
        // Closed to other users.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Room is taken in steps of so many bytes.
const STEP: u64 = 1024 * 1024;
/// The least that [`SpoolSettings::most_bytes`] may be: less has no room for an upload of each of two organisations.
pub const LEAST_SPOOL_BYTES: u64 = 4 * STEP;

/// The room that the spools of a gateway have.
pub(crate) struct Spools {
    settings: SpoolSettings,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: u64,
    of_orgs: HashMap<OrgId, u64>,
    spools: u64,
}

/// The room of one spool. It is given back with this value.
pub(crate) struct SpoolRoom {
    spools: Arc<Spools>,
    org: OrgId,
    /// The bytes that are taken, in whole steps.
    taken: u64,
    used: u64,
}

impl Spools {
    pub(crate) fn new(settings: SpoolSettings) -> Arc<Self> {
        Arc::new(Self { settings, taken: Mutex::default() })
    }

    /// Returns the room of a new spool, which is empty.
    pub(crate) fn begin_spool(self: &Arc<Self>, org: OrgId) -> SpoolRoom {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).spools += 1;
        SpoolRoom { spools: self.clone(), org, taken: 0, used: 0 }
    }

    fn take_step(&self, org: OrgId) -> Result<u64, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_org = taken.of_orgs.get(&org).copied().unwrap_or_default();
        if of_org + STEP > self.settings.most_bytes / 2 {
            return Err(ApiError::Barred {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: "TOO_MANY",
                message: "the organisation's uploads and imports take as much of this gateway's disk as they may; wait \
                          for the end of one, or send less at once",
            });
        }
        if taken.all + STEP > self.settings.most_bytes {
            let message = "uploads and imports take as much of this gateway's disk as they may; ask another or later";
            return Err(ApiError::Unavailable { message, cause: None });
        }
        taken.all += STEP;
        *taken.of_orgs.entry(org).or_default() += STEP;
        Ok(taken.spools)
    }

    fn give_back(&self, org: OrgId, bytes: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= bytes;
        if let Some(of_org) = taken.of_orgs.get_mut(&org) {
            *of_org -= bytes;
            if *of_org == 0 {
                taken.of_orgs.remove(&org);
            }
        }
    }
}

impl SpoolRoom {
    /// Returns a file without a name, which is empty.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn make_file(&self) -> Result<File, ApiError> {
        let folder = self.folder().to_owned();
        let made = tokio::task::spawn_blocking(move || tempfile::tempfile_in(folder)).await;
        Ok(File::from_std(made.map_err(ApiError::internal)?.map_err(ApiError::internal)?))
    }

    /// Returns the folder for further files without names.
    pub(crate) fn folder(&self) -> &Path {
        &self.spools.settings.folder
    }

    /// Takes room for further bytes. They may be written then.
    ///
    /// # Errors
    /// 429 when the organisation has as much as it may; 503 when the gateway has, or its disk is full.
    pub(crate) async fn take_bytes(&mut self, bytes: u64) -> Result<(), ApiError> {
        while self.used + bytes > self.taken {
            let spools = self.spools.take_step(self.org)?;
            self.taken += STEP;
            // Others may not have written yet what they took: a step of each.
            let (room, folder) = (self.spools.settings.room.clone(), self.folder().to_owned());
            let left = tokio::task::spawn_blocking(move || room(&folder)).await;
            if left.map_err(ApiError::internal)?.is_some_and(|left| left < STEP * spools) {
                return Err(ApiError::Unavailable {
                    message: "this gateway's disk is full; ask another or later. Its operator has to free some space, or \
                              to lower --disk-reserve",
                    cause: None,
                });
            }
        }
        self.used += bytes;
        Ok(())
    }
}

impl Drop for SpoolRoom {
    fn drop(&mut self) {
        self.spools.give_back(self.org, self.taken);
        self.spools.taken.lock().unwrap_or_else(PoisonError::into_inner).spools -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use uuid::Uuid;

    use super::*;

    fn spools(most_bytes: u64, left: &Arc<AtomicU64>) -> (tempfile::TempDir, Arc<Spools>) {
        let folder = tempfile::tempdir().expect("a folder");
        let left = left.clone();
        let room: DiskRoom = Arc::new(move |_| Some(left.load(Ordering::Relaxed)));
        let settings = SpoolSettings { folder: folder.path().join("uploads"), most_bytes, room };
        settings.empty_folder().expect("made");
        (folder, Spools::new(settings))
    }

    fn status(taken: Result<(), ApiError>) -> Option<u16> {
        taken.err().map(|error| error.failure().status.as_u16())
    }

    // Finding look 7 (M4): sixteen uploads of a gibibyte each had no bound together.
    #[tokio::test]
    async fn spools_together_have_a_bound() {
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let (_folder, spools) = spools(4 * STEP, &left);
        let [ours, theirs, thirds] = [1, 2, 3].map(|org| OrgId(Uuid::from_u128(org)));
        let mut first = spools.begin_spool(ours);
        first.take_bytes(STEP - 7).await.expect("room");
        first.take_bytes(7).await.expect("the rest of the step");
        let mut second = spools.begin_spool(ours);
        second.take_bytes(1).await.expect("room");
        assert_eq!(status(second.take_bytes(STEP).await), Some(429), "the organisation");
        let mut other = spools.begin_spool(theirs);
        other.take_bytes(2 * STEP).await.expect("half of all");
        assert_eq!(status(spools.begin_spool(thirds).take_bytes(1).await), Some(503), "all");
        drop(first);
        second.take_bytes(STEP).await.expect("room again");
        drop((second, other));
        let taken = spools.taken.lock().expect("whole");
        assert_eq!((taken.all, taken.of_orgs.len(), taken.spools), (0, 0, 0));
    }

    #[tokio::test]
    async fn no_spool_takes_what_the_disk_keeps_free() {
        let left = Arc::new(AtomicU64::new(2 * STEP));
        let (_folder, spools) = spools(100 * STEP, &left);
        let org = OrgId(Uuid::from_u128(1));
        let (mut one, mut two) = (spools.begin_spool(org), spools.begin_spool(org));
        one.take_bytes(1).await.expect("room for a step of each");
        left.store(2 * STEP - 1, Ordering::Relaxed);
        assert_eq!(status(two.take_bytes(1).await), Some(503));
    }

    #[tokio::test]
    async fn a_start_removes_what_was_left() {
        let (_folder, spools) = spools(STEP, &Arc::new(AtomicU64::new(u64::MAX)));
        let folder = &spools.settings.folder;
        fs::write(folder.join("left"), "behind").expect("written");
        let room = spools.begin_spool(OrgId(Uuid::from_u128(1)));
        let _file = room.make_file().await.expect("a file");
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1, "it has no name");
        spools.settings.empty_folder().expect("emptied");
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 0);
    }
}
