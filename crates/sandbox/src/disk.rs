//! How full the disks under commands are, and how full commands may make them.
//!
//! ```text
//! free   ────────────── reserve ────────────── half of it ───────────── 0
//!        commands run   one that takes more    those that run are ended,
//!                       is ended               those that begin remove files only
//! ```

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{Bytes, Limit};
use crate::tally::TreeSize;

/// Commands leave a tenth of a disk free, and at most this.
const MOST_RESERVE: u64 = 5 << 30;
/// The same for the number of files.
const MOST_RESERVED_FILES: u64 = 64 * 1024;
/// A managed workspace takes at most this part of its disk.
const WORKSPACE_PART: u64 = 4;
/// A command that begins below the reserve may take this part of it, so that one that deletes files can run.
const SMALL_PART: u64 = 16;
/// No disk is filled faster, in bytes a second.
const FASTEST: u64 = 2 << 30;
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How much of the disks commands may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskLimits {
    /// Bytes of each disk that commands leave free; `None`: a tenth of it, at most 5 GiB.
    pub reserve_bytes: Option<u64>,
    /// Bytes of one workspace; `None`: a quarter of its disk, and for a person's own checkout all of it.
    pub workspace_bytes: Option<u64>,
    /// Files and folders of one workspace; `None`: a quarter of those that its disk can hold, and for a person's own checkout
    /// all of them.
    pub workspace_files: Option<u64>,
}

/// A disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Its number.
    pub device: u64,
    /// Bytes of it, and how many of them are free.
    pub bytes: Room,
    /// Files that it can hold, and for how many it has room. All 0 where a file system has no such bound.
    pub files: Room,
}

/// A quantity of which there is an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub total: u64,
    /// The rest of it.
    pub free: u64,
    /// The part that commands leave.
    pub reserve: u64,
}

impl Room {
    /// Whether so little is left that commands may remove files only.
    pub(crate) fn is_over(self) -> bool {
        self.free < self.reserve / 2
    }

    /// The least that a command leaves that began when there was `self`.
    pub(crate) fn least(self) -> u64 {
        if self.free >= self.reserve {
            return self.reserve;
        }
        self.free.saturating_sub(self.reserve / SMALL_PART).max(self.reserve / 2)
    }
}

impl DiskLimits {
    /// Returns the disk of this path; `None` if there is none, or it cannot be asked. May block.
    #[must_use]
    pub fn disk(self, path: &Path) -> Option<Disk> {
        let device = std::fs::metadata(path).ok()?.dev();
        let seen = rustix::fs::statvfs(path).ok()?;
        let of = |blocks: u64| blocks.saturating_mul(seen.f_frsize);
        let total = of(seen.f_blocks);
        let reserve = self.reserve_bytes.unwrap_or_else(|| (total / 10).min(MOST_RESERVE));
        let files = (seen.f_files / 10).min(MOST_RESERVED_FILES);
        Some(Disk {
            device,
            bytes: Room { total, free: of(seen.f_bavail), reserve },
            files: Room { total: seen.f_files, free: seen.f_favail, reserve: files },
        })
    }

    /// Returns the bytes that a workspace on this disk may have; `None` if it has no limit but the disk's.
    #[must_use]
    pub fn of_a_workspace(self, disk: &Disk, is_a_persons: bool) -> Option<u64> {
        let usual = (!is_a_persons).then_some(disk.bytes.total / WORKSPACE_PART);
        self.workspace_bytes.or(usual)
    }

    /// Returns how large a workspace on this disk may be, if it has a limit.
    pub(crate) fn workspace(self, disk: &Disk, is_a_persons: bool) -> Option<TreeSize> {
        let bytes = self.of_a_workspace(disk, is_a_persons);
        // A file system without such a bound says 0.
        let part = Some(disk.files.total / WORKSPACE_PART).filter(|part| *part > 0);
        let files = self.workspace_files.or(part.filter(|_| !is_a_persons));
        let limit = |it: Option<u64>| it.unwrap_or(u64::MAX);
        (bytes.is_some() || files.is_some())
            .then(|| TreeSize { bytes: limit(bytes), files: limit(files) })
    }
}

impl Disk {
    fn rooms(&self) -> [Room; 2] {
        [self.bytes, self.files]
    }

    /// The limit that is met when one of its rooms satisfies `is_met`.
    fn limit(&self, is_met: impl Fn(usize, Room) -> bool) -> Option<Limit> {
        let rooms = self.rooms();
        let met = rooms.into_iter().enumerate().find(|(index, room)| is_met(*index, *room));
        met.map(|(index, Room { free, reserve, .. })| match index {
            0 => Limit::Disk { free, reserve },
            _ => Limit::Files { free, reserve },
        })
    }

    /// Whether commands that begin may remove files only.
    pub(crate) fn is_over(&self) -> bool {
        self.rooms().into_iter().any(Room::is_over)
    }

    /// Whether commands may take little of it.
    pub(crate) fn is_low(&self) -> bool {
        self.rooms().into_iter().any(|room| room.free < room.reserve)
    }

    /// The bytes that a command which begins now may take of it.
    pub(crate) fn left(&self) -> u64 {
        self.bytes.free.saturating_sub(self.bytes.least())
    }

    /// The limit that a command has met which may remove files only, and was refused something.
    pub(crate) fn removes_only(&self) -> Limit {
        let (bytes, files) = (self.bytes, self.files);
        if bytes.free >= bytes.reserve && files.free < files.reserve {
            return Limit::RemovesFilesOnly { free: files.free, reserve: files.reserve };
        }
        Limit::RemovesOnly { free: bytes.free, reserve: bytes.reserve }
    }

    /// The reason why no command may begin, if there is one: for sandboxes that hold back no writes.
    pub(crate) fn refusal(&self) -> Option<String> {
        let (Room { free, reserve, .. }, files) = (self.bytes, self.files);
        let left = if self.bytes.is_over() {
            format!("{} are left, and none begins below {}", Bytes(free), Bytes(reserve / 2))
        } else if files.is_over() {
            let (free, least) = (files.free, files.reserve / 2);
            format!("it has room for {free} more files, and none begins below {least}")
        } else {
            return None;
        };
        Some(format!(
            "commands are not run: the disk of this machine is full ({left}); somebody has to free some space there, or to \
             lower --disk-reserve"
        ))
    }

    /// The limit that a command has met which began when this disk was as `start`.
    pub(crate) fn met_since(&self, start: &Self) -> Option<Limit> {
        self.limit(|index, room| room.free < start.rooms()[index].least())
    }

    /// The limit that a command which failed by itself may have run into.
    pub(crate) fn is_used_up(&self) -> Option<Limit> {
        self.limit(|_, room| room.free < room.reserve / SMALL_PART)
    }

    pub(crate) fn used(&self) -> TreeSize {
        let [bytes, files] = self.rooms().map(|room| room.total.saturating_sub(room.free));
        TreeSize { bytes, files }
    }

    /// How long a command that began at `start` can take nothing beyond its limit.
    pub(crate) fn pause(&self, start: &Self) -> Duration {
        pause_for(self.bytes.free.saturating_sub(start.bytes.least()))
    }
}

/// How long it takes at least to fill so many bytes: the time until the next look.
pub(crate) fn pause_for(bytes: u64) -> Duration {
    let (least, most) = PAUSES;
    Duration::from_millis(bytes / (FASTEST / 1000)).clamp(least, most)
}

/// The disks of some paths, each once. Paths that are not there are left out: whoever needs them says so.
pub(crate) fn disks(limits: DiskLimits, paths: &[PathBuf]) -> Vec<Disk> {
    let mut seen = BTreeSet::new();
    let found = paths.iter().filter_map(|path| limits.disk(path));
    found.filter(|disk| seen.insert(disk.device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free: u64, files: u64) -> Disk {
        Disk {
            device: 1,
            bytes: Room { total: 1_000, free, reserve: 160 },
            files: Room { total: 0, free: files, reserve: 0 },
        }
    }

    #[test]
    fn a_command_leaves_the_reserve_and_one_below_it_takes_little() {
        let (much, little) = (disk(500, 0), disk(120, 0));
        assert_eq!(disk(160, 0).met_since(&much), None);
        assert_eq!(disk(159, 0).met_since(&much), Some(Limit::Disk { free: 159, reserve: 160 }));
        assert_eq!(little.refusal(), None);
        assert_eq!(disk(400, 0).met_since(&little), None, "it has deleted files");
        assert_eq!(disk(110, 0).met_since(&little), None);
        assert!(disk(109, 0).met_since(&little).is_some());
        let told = disk(79, 0).refusal().expect("a reason");
        assert!(told.contains("(79 bytes are left, and none begins below 80 bytes)"), "{told}");
        // Small steps do not lead below half of the reserve.
        assert!(disk(79, 0).met_since(&disk(81, 0)).is_some());
    }

    #[test]
    fn files_are_counted_where_their_number_has_an_end() {
        assert_eq!(disk(500, 0).refusal(), None, "it has no such end");
        let few = Room { total: 100, free: 1, reserve: 10 };
        let full = Disk { files: few, ..disk(500, 0) };
        let told = full.refusal().expect("a reason");
        let left = "(it has room for 1 more files, and none begins below 5)";
        assert!(told.contains(left), "{told}");
    }

    #[test]
    fn the_next_look_is_before_a_fast_disk_could_be_full() {
        let pause = |free| disk(free, 0).pause(&disk(1_000_000_000_000, 0)).as_millis();
        assert_eq!(pause(0), 50);
        assert_eq!(pause((1 << 30) + 160), 500);
        assert_eq!(pause(1 << 40), 2_000);
    }

    #[test]
    fn what_is_low_is_what_commands_are_told() {
        let files = Room { total: 100, free: 1, reserve: 10 };
        let low = Disk { files, ..disk(500, 0) };
        assert_eq!(low.removes_only(), Limit::RemovesFilesOnly { free: 1, reserve: 10 });
        let low = Disk { files, ..disk(9, 0) };
        assert_eq!(low.removes_only(), Limit::RemovesOnly { free: 9, reserve: 160 });
    }

    #[test]
    fn a_disk_is_asked_once_and_has_a_reserve() {
        let limits = DiskLimits::default();
        let here = std::env::temp_dir();
        let found = disks(limits, &[here.clone(), here.clone(), "/no/such".into()]);
        assert_eq!(found.len(), 1);
        let Room { total, reserve, .. } = found[0].bytes;
        assert_eq!(reserve, (total / 10).min(MOST_RESERVE));
        assert_eq!(limits.of_a_workspace(&found[0], false), Some(total / 4));
        assert_eq!(limits.of_a_workspace(&found[0], true), None);
        let limits = DiskLimits { reserve_bytes: Some(7), workspace_bytes: Some(9), ..limits };
        let disk = limits.disk(&here).expect("a disk");
        assert_eq!((disk.bytes.reserve, limits.of_a_workspace(&disk, true)), (7, Some(9)));
    }
}
