//! The root directory of a command. A keeper builds it once, in a mount namespace of its own, on top of [`BASE`]; each command
//! gets a copy, adds its `/proc`, and turns it into its root.
//!
//! ```text
//! tmpfs (read-only)
//!   usr, bin, lib …  the host's, read-only          etc    made, with a few of the host's files
//!   tool folders     the host's, read-only          dev    null zero full random urandom tty, own pts
//!   the workspace    with translated ids            tmp, home, dev/shm    tmpfs, bounded, the cell's own
//!   tool-output      the worker's, read-only
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::command::OUTPUTS;
use crate::sys::{self, MountAttributes, NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};

/// The host's folder over which the new root is mounted: one that is everywhere. The keeper alone sees it there.
pub(crate) const BASE: &str = "/tmp";

/// The home of commands.
pub(crate) const HOME: &str = "/home/agent";

/// Where commands find certificates that the service believes beside the system's.
pub(crate) const CERTIFICATES: &str = "/etc/opencode-cloud-certificates.pem";

/// Who commands are, as they see it.
pub(crate) const USER: u32 = 1000;

/// A step that failed, in words.
pub(crate) type Step<T> = Result<T, String>;

pub(crate) fn at<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> String + '_ {
    move |error| format!("{step}: {}", error.into())
}

const SYSTEM: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"];

/// Files and folders of `/etc` that hold no secret and that programs look for.
const ETC: [&str; 38] = [
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "pki/tls/certs",
    "pki/ca-trust",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "timezone",
    "profile",
    "profile.d",
    "bash.bashrc",
    "bashrc",
    "inputrc",
    "mime.types",
    "magic",
    "terminfo",
    "fonts",
    "protocols",
    "services",
    "debian_version",
    "os-release",
    "lsb-release",
    "locale.alias",
    "locale.conf",
    "host.conf",
    "networks",
    "python3",
    "perl",
    "java",
    "maven",
    "gradle",
    "ImageMagick-6",
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The files of a new `/proc` that show the host, or act on it; and its folders that may be read.
const PROC_HIDDEN: [&str; 10] = [
    "kcore",
    "keys",
    "key-users",
    "kallsyms",
    "kmsg",
    "timer_list",
    "sysrq-trigger",
    "config.gz",
    "cmdline",
    "diskstats",
];
const PROC_READ_ONLY: [&str; 5] = ["sys", "irq", "bus", "fs", "acpi"];

/// Workspaces that would hide the system that commands need.
const NOT_A_WORKSPACE: [&str; 13] = [
    "/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/home",
    "/tmp", OUTPUTS,
];

/// Whether a workspace may be shown at this path.
pub(crate) fn may_be_shown(path: &Path) -> bool {
    let below = ["/proc", "/sys", "/dev", "/etc"].iter().any(|top| path.starts_with(top));
    path.is_absolute() && !below && !NOT_A_WORKSPACE.iter().any(|top| path == Path::new(top))
}

/// All that a root is made of.
pub(crate) struct Plan<'p> {
    pub(crate) shown: &'p Path,
    pub(crate) tools: Vec<PathBuf>,
    /// Whether git's own files of the workspace are read-only.
    pub(crate) protect: bool,
    /// The host's owner of files that commands make in `/tmp` and home.
    pub(crate) owner: (u32, u32),
    /// A user namespace by which the workspace's owner becomes `owner`.
    pub(crate) id_map: Option<BorrowedFd<'p>>,
    pub(crate) memory_bytes: u64,
    /// Certificates in PEM for [`CERTIFICATES`]; none if empty.
    pub(crate) certificates: &'p [u8],
    /// The worker's folder for [`OUTPUTS`].
    pub(crate) outputs: &'p Path,
}

fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

fn attach(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn read_only(tree: &OwnedFd, id_map: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let set = READ_ONLY | NO_SUID | NO_DEVICES;
    sys::set_mount_attributes(tree.as_fd(), MountAttributes { set, id_map, recursive: true })
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// A path below the new root, which is the working directory.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// A file or folder of the host that gets the same place in the new root.
struct BoundPath {
    tree: OwnedFd,
    host: PathBuf,
    /// Asked before the new root covers [`BASE`] and all that is below it.
    is_folder: bool,
}

/// Binds a file or folder of the host to the same place, read-only. One that is not there is left out.
fn bind(host: &Path, id_map: Option<BorrowedFd<'_>>) -> Step<Option<BoundPath>> {
    let Ok(kind) = fs::metadata(host) else { return Ok(None) };
    let tree = clone_tree(host).map_err(at(&format!("cannot clone {}", host.display())))?;
    // An id map is a convenience here: without it a command reads what everybody may.
    if id_map.is_none() || read_only(&tree, id_map).is_err() {
        read_only(&tree, None).map_err(at(&format!("cannot protect {}", host.display())))?;
    }
    Ok(Some(BoundPath { tree, host: host.to_path_buf(), is_folder: kind.is_dir() }))
}

impl BoundPath {
    fn attach(&self) -> Step<()> {
        let to = inside(&self.host);
        let attached = self.make_place(to).and_then(|()| attach(&self.tree, to));
        attached.map_err(at(&format!("cannot attach {}", self.host.display())))
    }

    fn make_place(&self, to: &Path) -> io::Result<()> {
        if fs::symlink_metadata(to).is_ok() {
            return Ok(());
        }
        if self.is_folder {
            return make_folder(to);
        }
        to.parent().map_or(Ok(()), make_folder)?;
        File::create(to).map(drop)
    }
}

/// Builds the root over [`BASE`]. The working directory is the workspace; afterwards it is the new root.
pub(crate) fn build(plan: &Plan<'_>) -> Step<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(at("cannot make mounts private"))?;
    let workspace = clone_tree(Path::new(".")).map_err(at("cannot clone the workspace"))?;
    let attributes =
        MountAttributes { set: NO_SUID | NO_DEVICES, id_map: plan.id_map, recursive: true };
    sys::set_mount_attributes(workspace.as_fd(), attributes)
        .map_err(at("cannot translate the workspace's ids"))?;
    // All that is the host's, before the new root covers a part of it.
    let mut system = Vec::new();
    let mut links = Vec::new();
    for name in SYSTEM {
        let path = Path::new("/").join(name);
        match fs::read_link(&path) {
            Ok(target) => links.push((target, name)),
            Err(_no_link) => system.extend(bind(&path, None)?),
        }
    }
    for name in ETC {
        system.extend(bind(&Path::new("/etc").join(name), None)?);
    }
    let mut tools = Vec::new();
    for path in &plan.tools {
        tools.extend(bind(path, plan.id_map)?);
    }
    let outputs = clone_tree(plan.outputs).map_err(at("cannot clone the folder of outputs"))?;
    let attributes = MountAttributes {
        set: READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC,
        ..MountAttributes::default()
    };
    sys::set_mount_attributes(outputs.as_fd(), attributes)
        .map_err(at("cannot protect the folder of outputs"))?;
    let devices: Vec<_> = DEVICES
        .iter()
        .map(|name| clone_tree(&Path::new("/dev").join(name)).map(|tree| (tree, *name)))
        .collect::<io::Result<_>>()
        .map_err(at("cannot clone a device"))?;

    tmpfs(BASE, "size=16m,nr_inodes=16k,mode=755").map_err(at("cannot mount a tmpfs"))?;
    chdir(BASE).map_err(at("cannot enter the new root"))?;
    let made = (|| {
        // Relative ones: an absolute one would lead the keeper into the host's files.
        for (target, name) in links {
            symlink(inside(&target), name)?;
        }
        ["proc", "dev/pts", "dev/shm", "etc", "home", "run", "tmp", "var"]
            .iter()
            .try_for_each(|name| make_folder(Path::new(name)))?;
        symlink("../tmp", "var/tmp")?;
        make_etc()?;
        if plan.certificates.is_empty() {
            return Ok(());
        }
        fs::write(inside(Path::new(CERTIFICATES)), plan.certificates)
    })();
    made.map_err(at("cannot make folders"))?;
    make_devices(devices).map_err(at("cannot make /dev"))?;
    let part = plan.memory_bytes / 8;
    let scratch = format!("size={},nr_inodes=512k,mode=1777", part * 2);
    tmpfs("tmp", &scratch).map_err(at("cannot mount /tmp"))?;
    tmpfs("dev/shm", &format!("size={part},nr_inodes=64k,mode=1777"))
        .map_err(at("cannot mount /dev/shm"))?;
    tmpfs("home", &format!("size={part},nr_inodes=256k,mode=755"))
        .map_err(at("cannot mount /home"))?;
    let home = inside(Path::new(HOME));
    make_folder(home)
        .and_then(|()| chown(home, Some(plan.owner.0), Some(plan.owner.1)))
        .map_err(at("cannot make the home"))?;
    system.iter().try_for_each(BoundPath::attach)?;
    let at_outputs = inside(Path::new(OUTPUTS));
    make_folder(at_outputs)
        .and_then(|()| attach(&outputs, at_outputs))
        .map_err(at("cannot attach the folder of outputs"))?;
    let shown = inside(plan.shown);
    make_folder(shown)
        .and_then(|()| attach(&workspace, shown))
        .map_err(at("cannot attach the workspace"))?;
    tools.iter().try_for_each(BoundPath::attach)?;
    if plan.protect {
        protect_git(shown).map_err(at("cannot protect the workspace's .git"))?;
    }
    let top = open_tree(CWD, ".", OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .map_err(at("cannot open the new root"))?;
    let attributes =
        MountAttributes { set: READ_ONLY | NO_SUID | NO_DEVICES, ..Default::default() };
    sys::set_mount_attributes(top.as_fd(), attributes).map_err(at("cannot protect the new root"))
}

fn tmpfs(path: &str, options: &str) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    Ok(mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
}

fn make_etc() -> io::Result<()> {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let files = [
        (
            "passwd",
            format!(
                "root:x:0:0:root:/root:{shell}\nagent:x:{USER}:{USER}::{HOME}:{shell}\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        ("group", format!("root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n")),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
        ("shells", format!("/bin/sh\n{shell}\n")),
    ];
    files.iter().try_for_each(|(name, text)| fs::write(Path::new("etc").join(name), text))
}

fn make_devices(devices: Vec<(OwnedFd, &str)>) -> io::Result<()> {
    for (tree, name) in devices {
        let path = Path::new("dev").join(name);
        File::create(&path)?;
        // A device is written to whether its mount is read-only or not; its mode and owner are not.
        let set = READ_ONLY | NO_SUID | NO_EXEC;
        sys::set_mount_attributes(tree.as_fd(), MountAttributes { set, ..Default::default() })?;
        attach(&tree, &path)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=620,max=64")?;
    for (target, name) in [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ] {
        symlink(target, Path::new("dev").join(name))?;
    }
    fs::set_permissions("dev", Permissions::from_mode(0o755))
}

/// A checkout of a person: what git would run or obey outside the sandbox later is read-only, and `.git` itself a mount
/// point, so that it cannot be moved away and made anew. A link is not followed: git inside a command has then none.
fn protect_git(workspace: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |from: BorrowedFd<'_>, name: &str| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(from, name, flags, Mode::empty(), resolve)
    };
    let top = openat2(
        CWD,
        workspace,
        flags | OFlags::DIRECTORY,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    let Ok(git) = open(top.as_fd(), ".git") else { return Ok(()) };
    let is_folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&git)?.st_mode).is_dir();
    let again = |fd: BorrowedFd<'_>, set| -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(fd, "", flags)?;
        let set = set | NO_SUID | NO_DEVICES;
        sys::set_mount_attributes(tree.as_fd(), MountAttributes { set, ..Default::default() })?;
        let both =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&tree, "", fd, "", both)?)
    };
    if !is_folder {
        return again(git.as_fd(), READ_ONLY);
    }
    again(git.as_fd(), 0)?;
    // Beneath the mount that is there now.
    let git = openat2(
        top.as_fd(),
        ".git",
        flags | OFlags::DIRECTORY,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?;
    for name in ["hooks", "config", "config.worktree", "modules", "info"] {
        if let Ok(found) = open(git.as_fd(), name) {
            again(found.as_fd(), READ_ONLY)?;
        }
    }
    Ok(())
}

/// Adds this process namespace's `/proc` to a copy of the root, and makes it the root.
pub(crate) fn enter() -> Step<()> {
    chdir(BASE).map_err(at("cannot enter the new root"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None::<&std::ffi::CStr>)
        .map_err(at("cannot mount /proc"))?;
    for name in PROC_HIDDEN {
        let path = Path::new("proc").join(name);
        if fs::symlink_metadata(&path).is_ok() {
            mount_bind("dev/null", &path).map_err(at("cannot cover a file of /proc"))?;
        }
    }
    for name in PROC_READ_ONLY {
        let path = Path::new("proc").join(name);
        if path.is_dir() {
            let tree = clone_tree(&path).map_err(at("cannot clone a folder of /proc"))?;
            read_only(&tree, None)
                .and_then(|()| attach(&tree, &path))
                .map_err(at("cannot protect a folder of /proc"))?;
        }
    }
    pivot_root(".", ".").map_err(at("cannot pivot"))?;
    unmount(".", UnmountFlags::DETACH).map_err(at("cannot leave the host's files"))?;
    chdir("/").map_err(at("cannot enter the new root"))
}
