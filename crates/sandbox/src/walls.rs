//! The files that a command may reach, by landlock: the second wall in a cell, the first one where no namespaces are to be
//! had.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

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
    /// Read, run and remove.
    Remove,
    /// Everything.
    All,
    /// Everything but to make links, pipes, sockets and devices.
    Data,
}

impl Grant {
    const ALL: [(Self, &str); 5] = [
        (Self::Read, "r"),
        (Self::Use, "u"),
        (Self::Remove, "x"),
        (Self::All, "a"),
        (Self::Data, "d"),
    ];

    /// Returns the grant that is left where commands may read and remove, and write nothing.
    pub(crate) fn without_writes(self) -> Self {
        match self {
            Self::Read | Self::Use | Self::Remove => self,
            Self::All | Self::Data => Self::Remove,
        }
    }

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
            Self::Remove => {
                let removals = AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Truncate;
                AccessFs::from_read(abi) | (all & removals)
            }
            Self::All => all,
            Self::Data => {
                let special = AccessFs::MakeSym
                    | AccessFs::MakeFifo
                    | AccessFs::MakeSock
                    | AccessFs::MakeChar
                    | AccessFs::MakeBlock;
                all & !special
            }
        }
    }
}

/// The most rules of one workspace.
const RULES: usize = 4_000;

/// The rights in a workspace of which some paths, below it, stay as they are. Landlock cannot take a right away below a folder that
/// has it: the folders above such a path get no new names, and everything beside it keeps all rights.
pub(crate) fn workspace_grants(
    workspace: &Path,
    read_only: &[PathBuf],
) -> io::Result<Vec<(Grant, PathBuf)>> {
    let mut grants = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        if read_only.contains(&folder) {
            continue; // the rule of the folder above
        }
        if !read_only.iter().any(|kept| kept.starts_with(&folder)) {
            grants.push((Grant::All, workspace.join(folder)));
        } else {
            let place = workspace.join(&folder);
            for entry in fs::read_dir(&place)? {
                let entry = entry?;
                // The target of a link has a rule of its own, or none.
                if !entry.file_type()?.is_symlink() {
                    folders.push(folder.join(entry.file_name()));
                }
            }
            grants.push((Grant::Read, place));
        }
        if grants.len() + folders.len() > RULES {
            return Err(io::Error::other(format!(
                "there are more than {RULES} entries beside its repositories"
            )));
        }
    }
    Ok(grants)
}

/// Opens what a rule is about. One about changes goes through no link: another command may have put it there.
fn open(path: &Path, grant: Grant) -> Option<(OwnedFd, FileType)> {
    let resolve = match grant {
        Grant::Read | Grant::Use => ResolveFlags::empty(),
        Grant::Remove | Grant::All | Grant::Data => ResolveFlags::NO_SYMLINKS,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = openat2(CWD, path, flags, Mode::empty(), resolve).ok()?;
    let kind = FileType::from_raw_mode(fstat(&fd).ok()?.st_mode);
    Some((fd, kind))
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
        let Some((fd, kind)) = open(path, grant) else { continue };
        let mut access = grant.access(abi);
        if kind != FileType::Directory {
            access &= AccessFs::from_file(abi);
            if kind != FileType::CharacterDevice {
                access.remove(AccessFs::IoctlDev);
            }
        }
        created = created.add_rule(PathBeneath::new(fd, access))?;
    }
    Ok(created.into())
}
