//! The user that runs a child server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::BootError;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Returns the user that runs Postgres: `None` means our own; root runs it as `postgres`.
pub(crate) fn for_postgres() -> Result<Option<User>, BootError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = Path::new("/etc/passwd");
    let text = fs::read_to_string(passwd).map_err(BootError::io("read", passwd))?;
    find(&text, "postgres").ok_or(BootError::NoPostgresUser).map(Some)
}

/// Returns the user with that name in the text of an `/etc/passwd` (name:password:uid:gid:…).
fn find(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { name: name.to_owned(), uid, gid })
    })
}

impl User {
    /// Refuses a folder that this user cannot enter, and names the first closed folder on the path.
    pub(crate) fn require_entry(&self, folder: &Path) -> Result<(), BootError> {
        if self.may("cd \"$0\"", folder)? {
            return Ok(());
        }
        let path = self.first_closed(folder).unwrap_or_else(|| folder.to_owned());
        Err(BootError::Unreachable { user: self.name.clone(), path })
    }

    /// Returns whether this user can run that program.
    pub(crate) fn can_run(&self, program: &Path) -> Result<bool, BootError> {
        self.may("test -x \"$0\"", program)
    }

    /// Asks the system, which also knows access lists.
    fn may(&self, script: &str, path: &Path) -> Result<bool, BootError> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(path).uid(self.uid).gid(self.gid).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(BootError::io("run", Path::new("sh")))?;
        Ok(status.success())
    }

    fn first_closed(&self, folder: &Path) -> Option<PathBuf> {
        let from_the_root: Vec<_> = folder.ancestors().collect();
        let closed = from_the_root.into_iter().rev().find(|path| {
            fs::metadata(path).is_ok_and(|data| !self.enters(data.mode(), data.uid(), data.gid()))
        });
        closed.map(Path::to_owned)
    }

    /// Returns whether a folder's permission bits let this user pass.
    fn enters(&self, mode: u32, owner: u32, group: u32) -> bool {
        let bit = if owner == self.uid {
            0o100
        } else if group == self.gid {
            0o010
        } else {
            0o001
        };
        mode & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone() -> User {
        User { name: "someone".into(), uid: 101, gid: 104 }
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nsomeone2:x:7:7::/:\nsomeone:x:101:104:a,b:/x:\n";
        assert_eq!(find(passwd, "someone"), Some(someone()));
        assert_eq!(find(passwd, "some"), None);
        assert_eq!(find("someone:x:nan:1::", "someone"), None);
    }

    #[test]
    fn the_most_specific_bits_of_a_folder_decide() {
        let user = someone();
        assert!(user.enters(0o701, 0, 0) && !user.enters(0o710, 0, 0));
        assert!(user.enters(0o710, 0, 104) && !user.enters(0o701, 0, 104));
        assert!(user.enters(0o700, 101, 0) && !user.enters(0o077, 101, 104));
    }
}
