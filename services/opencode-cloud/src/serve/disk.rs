//! How much of the disks the commands of models may take.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use api::{DiskRoom, LEAST_SPOOL_BYTES, SpoolSettings};
use clap::Args;
use sandbox::{Bytes, DiskLimits, Room};

use super::ServeError;

/// A size on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit: Option<u64> = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kib" => Some(1 << 10),
            "m" | "mib" => Some(1 << 20),
            "g" | "gib" => Some(1 << 30),
            "t" | "tib" => Some(1 << 40),
            _ => None,
        };
        let size = unit.zip(digits.parse::<u64>().ok()).and_then(|(unit, it)| it.checked_mul(unit));
        size.map(Self).ok_or_else(|| "write bytes, or such as 500MiB, 5GiB or 1T".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The space of disks that is left free.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ReserveArgs {
    /// Space of a disk that commands of models and uploads leave free: a command that takes more is ended, and below half
    /// of it commands read and delete only [default: a tenth of the disk, at most 5GiB]
    #[arg(long, value_name = "SIZE", env = "OPENCODE_CLOUD_DISK_RESERVE")]
    pub disk_reserve: Option<Size>,
}

impl ReserveArgs {
    /// Returns the same setting as an argument for another process.
    pub(crate) fn words(self) -> impl Iterator<Item = String> {
        self.disk_reserve.map(|size| format!("--disk-reserve={size}")).into_iter()
    }

    /// Returns who says how much of a disk may be taken.
    pub(crate) fn room(self) -> DiskRoom {
        let reserve_bytes = self.disk_reserve.map(|size| size.0);
        let limits = DiskLimits { reserve_bytes, ..DiskLimits::default() };
        Arc::new(move |folder| {
            let Room { free, reserve, .. } = limits.disk(folder)?.bytes;
            Some(free.saturating_sub(reserve))
        })
    }
}

/// How much uploads and imports may take.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Data")]
pub struct UploadArgs {
    /// Space in the data folder for uploads and imports that are being sent; an organisation has half of it
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = Size(8 << 30),
        env = "OPENCODE_CLOUD_UPLOAD_SPOOL"
    )]
    pub upload_spool: Size,
    /// Storage that the packs which an organisation has sent from people's machines may take. Each is forgotten after a day
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = Size(20 << 30),
        env = "OPENCODE_CLOUD_UPLOAD_QUOTA"
    )]
    pub upload_quota: Size,
}

impl UploadArgs {
    /// Returns where uploads wait, in this data folder. Makes the folder, and empties it.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) fn spools(self, data: &Path, room: DiskRoom) -> Result<SpoolSettings, ServeError> {
        if self.upload_spool.0 < LEAST_SPOOL_BYTES {
            let message = "--upload-spool is too small for any upload; give 4MiB at least";
            return Err(ServeError::Usage(message.to_owned()));
        }
        let folder = data.join("uploads");
        let settings = SpoolSettings { folder, most_bytes: self.upload_spool.0, room };
        settings.empty_folder().map_err(|error| {
            ServeError::Usage(format!(
                "the folder {} for uploads cannot be made or emptied ({error}); choose another --data-dir",
                settings.folder.display()
            ))
        })?;
        Ok(settings)
    }

    /// Returns the most bytes of an organisation's uploads in storage.
    pub(crate) fn quota(self) -> u64 {
        self.upload_quota.0
    }

    /// Returns the same settings as arguments for another process.
    pub(crate) fn words(self) -> [String; 2] {
        let Self { upload_spool, upload_quota } = self;
        [format!("--upload-spool={upload_spool}"), format!("--upload-quota={upload_quota}")]
    }
}

/// How much of the disks commands may take.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DiskArgs {
    /// The space that they leave.
    #[command(flatten)]
    pub reserve: ReserveArgs,
    /// Space that a workspace may take: beyond it, a command that takes more is ended [default: a quarter of the disk for
    /// managed workspaces, all of it for directories of this machine]
    #[arg(long, value_name = "SIZE", env = "OPENCODE_CLOUD_WORKSPACE_SIZE")]
    pub workspace_size: Option<Size>,
}

impl DiskArgs {
    pub(crate) fn limits(self) -> DiskLimits {
        DiskLimits {
            reserve_bytes: self.reserve.disk_reserve.map(|size| size.0),
            workspace_bytes: self.workspace_size.map(|size| size.0),
            workspace_files: None,
        }
    }

    /// Returns the same settings as arguments for another process.
    pub(crate) fn words(self) -> Vec<String> {
        let size = self.workspace_size.map(|size| format!("--workspace-size={size}"));
        self.reserve.words().chain(size).collect()
    }

    /// Returns a sentence about the disk of a folder, for `doctor`.
    pub(crate) fn describe_disk(self, folder: &Path) -> String {
        let limits = self.limits();
        let Some(disk) = limits.disk(folder) else {
            return format!("disk      unknown: {} cannot be asked", folder.display());
        };
        let (free, reserve) = (Bytes(disk.bytes.free), Bytes(disk.bytes.reserve));
        let enough = if disk.bytes.free < disk.bytes.reserve { "no" } else { "yes" };
        let workspace = limits.of_a_workspace(&disk, false).map(Bytes);
        let workspace =
            workspace.map(|bytes| format!("; a managed workspace takes at most {bytes}"));
        format!(
            "disk      {enough}: {free} are left at {}, of which commands leave {reserve}{}",
            folder.display(),
            workspace.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        disk: DiskArgs,
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in
            [("7", 7), (" 2k", 2048), ("500MiB", 500 << 20), ("5gib", 5 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "G", "1.5G", "-1", "1 G", "1GB", "99999999999T"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_process_gets_the_same_limits() {
        let given = ["probe", "--disk-reserve=5GiB", "--workspace-size=1M"];
        let disk = Probe::try_parse_from(given).expect("flags").disk;
        let words = [vec!["probe".to_owned()], disk.words()].concat();
        let again = Probe::try_parse_from(words).expect("flags").disk;
        assert_eq!(again.limits(), disk.limits());
        assert_eq!(again.limits().workspace_bytes, Some(1 << 20));
        assert_eq!(DiskArgs::default().words(), Vec::<String>::new());
    }
}
