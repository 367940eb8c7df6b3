//! The files that a command may reach, by landlock: the second wall in a cell, the first one where no namespaces are to be
//! had.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest ABI that is asked for; older kernels give what they have.
const NEWEST: ABI = ABI::V6;

/// The ABI of this kernel's landlock; 0 without one.
#[must_use]
pub fn landlock_abi() -> i32 {
    crate::sys::landlock_abi()
}

/// The paths that every program needs to read, where a command has no root of its own. Nothing there is secret that everybody may
/// not read anyway.
pub(crate) const SYSTEM: [&str; 33] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix",
    "/proc",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/profile",
    "/etc/bash.bashrc",
    "/etc/inputrc",
    "/etc/terminfo",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
    "/etc/java",
    "/etc/perl",
];

/// The devices of every program; the others of `/dev` may be disks.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The rights beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Read and run.
    Read,
    /// Write to files that are there, such as devices.
    Use,
    /// Everything.
    All,
}

impl Grant {
    const ALL: [(Self, &str); 3] = [(Self::Read, "r"), (Self::Use, "u"), (Self::All, "a")];

    /// Its letter on a command line.
    pub(crate) fn letter(self) -> &'static str {
        Self::ALL.iter().find(|(grant, _)| *grant == self).map_or("r", |(_, letter)| letter)
    }

    pub(crate) fn of(letter: &OsStr) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| letter == *known).map(|(grant, _)| *grant)
    }

    fn access(self) -> BitFlags<AccessFs> {
        let read = AccessFs::from_read(NEWEST);
        match self {
            Self::Read => read,
            Self::Use => read | AccessFs::WriteFile | AccessFs::IoctlDev,
            Self::All => AccessFs::from_all(NEWEST),
        }
    }
}

/// The rules of a command, as a descriptor; `None` where the kernel has no landlock. `network`: whether it keeps the TCP of its namespace.
pub(crate) fn rules<'p>(
    grants: impl IntoIterator<Item = (&'p Path, Grant)>,
    network: bool,
) -> Result<Option<OwnedFd>, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    let ruleset =
        if network { ruleset } else { ruleset.handle_access(AccessNet::from_all(NEWEST))? };
    let mut created = ruleset.create()?;
    for (path, grant) in grants {
        // One that is not there needs no rule.
        let (Ok(fd), Ok(kind)) = (PathFd::new(path), std::fs::metadata(path)) else { continue };
        let mut access = grant.access();
        if !kind.is_dir() {
            access &= AccessFs::from_file(NEWEST);
            if !kind.file_type().is_char_device() {
                access.remove(AccessFs::IoctlDev);
            }
        }
        created = created.add_rule(PathBeneath::new(fd, access))?;
    }
    Ok(created.into())
}
