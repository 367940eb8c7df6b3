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
pub(crate) const NEWEST: i32 = 6;

fn abi(number: i32) -> ABI {
    match number {
        ..=0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        NEWEST.. => ABI::V6,
    }
}

/// The doors that stay open behind landlock of an ABI, where there is no namespace behind it.
pub(crate) fn open_in(abi: i32) -> Vec<&'static str> {
    let doors = [
        (2, "files move between folders of the workspace by copies only (ABI 2 mends that)"),
        (3, "files outside that the service may write can be cut to nothing (ABI 3 shuts that)"),
        (5, "devices that it may open take commands (ABI 5 shuts that)"),
        (6, "the service's processes can be sent signals (ABI 6 shuts that)"),
    ];
    doors.into_iter().filter(|(shut, _)| abi < *shut).map(|(_, door)| door).collect()
}

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

    fn access(self, abi: ABI) -> BitFlags<AccessFs> {
        let all = AccessFs::from_all(abi);
        match self {
            Self::Read => AccessFs::from_read(abi),
            Self::Use => {
                AccessFs::from_read(abi) | (all & (AccessFs::WriteFile | AccessFs::IoctlDev))
            }
            Self::All => all,
        }
    }
}

/// The rules of a command, as a descriptor; `None` where the kernel has no landlock. `network`: whether it keeps the TCP of its namespace;
/// `newest`: no newer ABI is asked for.
pub(crate) fn rules<'p>(
    grants: impl IntoIterator<Item = (&'p Path, Grant)>,
    network: bool,
    newest: i32,
) -> Result<Option<OwnedFd>, RulesetError> {
    let abi = abi(newest);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?;
    // Of an older ABI these have no members, which is an error.
    let (scopes, ports) = (Scope::from_all(abi), AccessNet::from_all(abi));
    let ruleset = if scopes.is_empty() { ruleset } else { ruleset.scope(scopes)? };
    let keeps_ports = network || ports.is_empty();
    let ruleset = if keeps_ports { ruleset } else { ruleset.handle_access(ports)? };
    let mut created = ruleset.create()?;
    for (path, grant) in grants {
        // One that is not there needs no rule.
        let (Ok(fd), Ok(kind)) = (PathFd::new(path), std::fs::metadata(path)) else { continue };
        let mut access = grant.access(abi);
        if !kind.is_dir() {
            access &= AccessFs::from_file(abi);
            if !kind.file_type().is_char_device() {
                access.remove(AccessFs::IoctlDev);
            }
        }
        created = created.add_rule(PathBeneath::new(fd, access))?;
    }
    Ok(created.into())
}
