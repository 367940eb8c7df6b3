//! Opens folders from which a command may have taken the rights of their owner.

use std::fs::Permissions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags, fchmod, fstat};
use rustix::io::Errno;

/// The rights with which its owner lists a folder and enters it.
pub(crate) const TO_READ: Mode = Mode::RUSR.union(Mode::XUSR);
/// The same, and to change names in it.
pub(crate) const TO_CHANGE: Mode = Mode::RWXU;

/// Opens a folder, not a link to one, and gives its owner all rights back where one of `needed` is missing. A command of the same
/// user may have taken them. `open` opens it with the flags that it is given.
pub(crate) fn open_with_rights(
    needed: Mode,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match open(flags | OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            let closed = open(flags | OFlags::PATH)?;
            // `fchmod` takes no descriptor of this kind, and this name leads to the folder itself.
            let itself = format!("/proc/self/fd/{}", closed.as_raw_fd());
            let mode = fstat(&closed)?.st_mode & 0o7777 | Mode::RWXU.as_raw_mode();
            std::fs::set_permissions(itself, Permissions::from_mode(mode))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))?;
            open(flags | OFlags::RDONLY)?
        }
        opened => opened?,
    };
    give_rights(&fd, needed)?;
    Ok(fd)
}

/// Gives the owner of an open folder all rights back where one of `needed` is missing.
pub(crate) fn give_rights(folder: &OwnedFd, needed: Mode) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode & 0o7777);
    if !mode.contains(needed) {
        // Where it is not ours, whoever needs the right says so.
        let _not_ours = fchmod(folder, mode | Mode::RWXU);
    }
    Ok(())
}
