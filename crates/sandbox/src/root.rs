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

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::checkout::front::{PERSONS_OWN, SHARED, SUBMODULES};
use crate::command::OUTPUTS;
use crate::sys::{self, MountAttributes, NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};

/// The host's folder over which the new root is mounted: one that is everywhere. The keeper alone sees it there.
pub(crate) const BASE: &str = "/tmp";

/// The home of commands.
pub(crate) const HOME: &str = "/home/agent";

/// Where commands find certificates that the service believes beside the system's.
pub(crate) const CERTIFICATES: &str = "/etc/opencode-cloud-certificates.pem";

/// The empty entries that commands see in the place of hidden folders and files.
const EMPTY_FOLDER: &str = "run/empty";
const EMPTY_FILE: &str = "run/nothing";

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
    /// Paths below the workspace that are read-only.
    pub(crate) read_only: &'p [PathBuf],
    /// Paths below the workspace in whose place commands see nothing.
    pub(crate) hidden: &'p [PathBuf],
    /// The folder that commands see as the workspace's `.git`.
    pub(crate) git_front: Option<&'p Path>,
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
    let git = plan.git_front.map(|front| GitMounts::clone_from(front, plan.id_map)).transpose();
    let git = git.map_err(at("cannot clone the workspace's .git"))?;
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
    let shown = open_tree(CWD, shown, OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .map_err(at("cannot open the workspace"))?;
    cover_all(shown.as_fd(), plan).map_err(at("cannot cover a part of the workspace"))?;
    if let Some(git) = git {
        git.attach(shown.as_fd()).map_err(at("cannot attach the workspace's .git"))?;
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

/// Opens a path below a folder, through no link; `None` if it is not there.
fn open_below(folder: BorrowedFd<'_>, path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(folder, path, flags, Mode::empty(), resolve) {
        // A link: its target has another name, or is not in the root.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn is_folder(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode).is_dir())
}

/// A mount of what is open, with these attributes besides.
fn clone_open(fd: BorrowedFd<'_>, set: u64, id_map: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(fd, "", flags)?;
    let set = set | NO_SUID | NO_DEVICES;
    sys::set_mount_attributes(tree.as_fd(), MountAttributes { set, id_map, recursive: true })?;
    Ok(tree)
}

/// Puts a mount over what is open. Then nothing of it can be moved away or replaced, since it is a mount point.
fn cover(fd: BorrowedFd<'_>, tree: &OwnedFd) -> io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", fd, "", both)?)
}

/// The mounts of a checkout's `.git`: see [`crate::checkout::front`].
struct GitMounts {
    front: OwnedFd,
    persons_own: OwnedFd,
    shared: Vec<(OwnedFd, &'static str)>,
    submodules: Option<OwnedFd>,
}

impl GitMounts {
    /// Clones them. The working directory is the workspace.
    fn clone_from(front: &Path, id_map: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let here = open_tree(CWD, ".", OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        let gone = || io::Error::from(Errno::NOENT);
        let git = open_below(here.as_fd(), Path::new(".git"))?.ok_or_else(gone)?;
        let mut shared = Vec::new();
        for name in SHARED {
            if let Some(folder) = open_below(git.as_fd(), Path::new(name))?
                && is_folder(&folder)?
            {
                shared.push((clone_open(folder.as_fd(), 0, id_map)?, name));
            }
        }
        let front = open_tree(CWD, front, OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        let front = clone_open(front.as_fd(), 0, id_map)?;
        let persons_own = clone_open(git.as_fd(), READ_ONLY, id_map)?;
        let submodules = open_below(git.as_fd(), Path::new(SUBMODULES))?;
        let submodules = submodules.map(|fd| clone_open(fd.as_fd(), READ_ONLY, id_map));
        Ok(Self { front, persons_own, shared, submodules: submodules.transpose()? })
    }

    /// Attaches them; `workspace` is that of the new root.
    fn attach(&self, workspace: BorrowedFd<'_>) -> io::Result<()> {
        let own = inside(Path::new(PERSONS_OWN));
        make_folder(own)?;
        attach(&self.persons_own, own)?;
        for (tree, name) in &self.shared {
            attach(tree, &own.join(name))?;
        }
        let git = open_below(workspace, Path::new(".git"))?;
        cover(git.ok_or_else(|| io::Error::from(Errno::NOENT))?.as_fd(), &self.front)?;
        let place = open_below(workspace, &Path::new(".git").join(SUBMODULES))?;
        match (place, &self.submodules) {
            (Some(place), Some(tree)) => cover(place.as_fd(), tree),
            _ => Ok(()),
        }
    }
}

/// Makes paths of the workspace read-only, and puts nothing in the place of others.
fn cover_all(workspace: BorrowedFd<'_>, plan: &Plan<'_>) -> io::Result<()> {
    // So that no folder above a hidden path can be moved away either. Before what is put in them.
    let above = plan.hidden.iter().flat_map(|path| path.ancestors().skip(1));
    let above: BTreeSet<_> = above.filter(|path| !path.as_os_str().is_empty()).collect();
    for path in above {
        if let Some(fd) = open_below(workspace, path)? {
            cover(fd.as_fd(), &clone_open(fd.as_fd(), 0, None)?)?;
        }
    }
    for path in plan.read_only {
        if let Some(fd) = open_below(workspace, path)? {
            cover(fd.as_fd(), &clone_open(fd.as_fd(), READ_ONLY, None)?)?;
        }
    }
    if plan.hidden.is_empty() {
        return Ok(());
    }
    make_folder(Path::new(EMPTY_FOLDER))?;
    File::create(EMPTY_FILE)?;
    for path in plan.hidden {
        let Some(fd) = open_below(workspace, path)? else { continue };
        let nothing = if is_folder(&fd)? { EMPTY_FOLDER } else { EMPTY_FILE };
        let nothing = open_tree(CWD, nothing, OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        cover(fd.as_fd(), &clone_open(nothing.as_fd(), READ_ONLY | NO_EXEC, None)?)?;
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
