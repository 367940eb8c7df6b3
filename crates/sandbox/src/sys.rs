//! System calls that neither the standard library nor rustix has, each behind a safe function. All `unsafe` of the project
//! is in this file.
//!
//! Invariant: launcher, keepers and inits have one thread each, so that plain `fork` is legal in them. A worker, which has
//! many, never calls what forks here.
#![expect(unsafe_code, reason = "clone, mount_setattr, ids and signal masks have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The parent, with the child's number and a descriptor that becomes readable when it ends.
    Parent { pid: Pid, pidfd: OwnedFd },
    /// The child.
    Child,
}

/// Forks, into new namespaces of these kinds (`CLONE_NEW…`, or 0).
pub(crate) fn fork(namespaces: libc::c_int) -> io::Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    let flags = namespaces | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is fork(2); the caller has one thread, so the child may run any code.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            std::ptr::null::<libc::c_void>(),
            &raw mut pidfd,
            std::ptr::null::<libc::c_void>(),
            std::ptr::null::<libc::c_void>(),
        )
    })?;
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(Forked::Child);
    };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Forked::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// Waits for the end of a child, and lets the kernel forget it.
pub(crate) fn reap(child: Pid) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let wait = || waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
    while matches!(wait(), Err(rustix::io::Errno::INTR)) {}
}

/// The ABI of this kernel's landlock; 0 without one.
pub(crate) fn landlock_abi() -> i32 {
    let version: libc::c_long = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel reads nothing and answers a number.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, version) };
    i32::try_from(abi).unwrap_or(0).max(0)
}

/// Ends this process at once, without running anything that its parent had registered.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: does not return and touches nothing.
    unsafe { libc::_exit(code) }
}

/// Moves this process, which has one thread, into new namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: the file table is not unshared, which is all that could surprise other threads.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Replaces this process by a program. Returns only when that fails.
pub(crate) fn exec(program: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let pointers = |words: &[CString]| {
        let mut all: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        all.push(std::ptr::null());
        all
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both lists end with a null pointer, and their strings live until the call.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Has a command's process do something between fork and exec. The caller has one thread, so it may be anything.
pub(crate) fn before_exec(
    command: &mut std::process::Command,
    work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt;
    // SAFETY: no other thread of the parent holds a lock that the child would miss.
    unsafe { command.pre_exec(work) };
}

/// Closes all descriptors but these.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut next = 0_u32;
    for fd in keep.into_iter().map(Some).chain([None]) {
        let last = match fd {
            Some(0) => None,
            Some(fd) => Some(fd - 1),
            None => Some(u32::MAX),
        };
        if let Some(last) = last.filter(|last| *last >= next) {
            // SAFETY: the caller is a fresh child that owns nothing but `keep`.
            check(unsafe {
                libc::syscall(
                    libc::SYS_close_range,
                    libc::c_long::from(next),
                    libc::c_long::from(last),
                    0 as libc::c_long,
                )
            })?;
        }
        next = fd.map_or(0, |fd| fd + 1);
    }
    Ok(())
}

/// Makes `fd` the descriptor `number` of this process, open over an exec.
pub(crate) fn dup_onto(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        return Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?);
    }
    // SAFETY: dup2 touches no memory; the caller owns the standard descriptors.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), number) }))?;
    Ok(())
}

/// Takes these ids on, as real, effective and saved ones, and no further groups.
pub(crate) fn become_user(uid: u32, gid: u32, drop_groups: bool) -> io::Result<()> {
    // SAFETY: none of these touches memory but the empty list, and this process has one thread.
    unsafe {
        if drop_groups {
            check(libc::c_long::from(libc::setgroups(0, std::ptr::null())))?;
        }
        check(libc::c_long::from(libc::setresgid(gid, gid, gid)))?;
        check(libc::c_long::from(libc::setresuid(uid, uid, uid)))?;
    }
    Ok(())
}

/// The change that `mount_setattr` makes to a mount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MountAttributes<'fd> {
    pub(crate) set: u64,
    pub(crate) id_map: Option<BorrowedFd<'fd>>,
    pub(crate) recursive: bool,
}

pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const NO_SUID: u64 = 2;
pub(crate) const NO_DEVICES: u64 = 4;
pub(crate) const NO_EXEC: u64 = 8;
const ID_MAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Changes the attributes of the mount that a descriptor is the root of.
pub(crate) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttributes<'_>,
) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: attributes.set | if attributes.id_map.is_some() { ID_MAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: attributes.id_map.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    let recursive = if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `attr` is what the kernel expects, of the size that is told, and lives until the call returns.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::c_long::from(mount.as_raw_fd()),
            c"".as_ptr(),
            libc::c_long::from(libc::AT_EMPTY_PATH | recursive),
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Switches the loopback interface of this network namespace on.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid ifreq; the kernel reads name and flags of it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = libc::c_char::from_ne_bytes([b'l']);
        request.ifr_name[1] = libc::c_char::from_ne_bytes([b'o']);
        request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(1);
        let done = libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request);
        check(libc::c_long::from(done))?;
    }
    Ok(())
}

/// Blocks SIGTERM and SIGCHLD and returns a descriptor that is readable when one of them has come.
pub(crate) fn signals_as_descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is made before it is read; the descriptor is ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        check(libc::c_long::from(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        )))?;
        let fd = check(libc::c_long::from(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        )))?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)))
    }
}

/// Unblocks all signals and gives each its default action: a program expects to begin so.
pub(crate) fn default_signals() {
    // SAFETY: no handler is installed, and signals that cannot be changed are refused by the kernel.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// The nice value of commands. With nothing else to do the machine is theirs; beside a turn of somebody else they have a
/// tenth of what it has.
pub(crate) const NICE: libc::c_int = 10;

/// Lowers this process' priority.
pub(crate) fn be_nice() {
    // SAFETY: touches no memory. A refusal changes nothing that matters.
    let _refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Lowers the priority of this process' session, which it has just made.
///
/// A kernel with `sched_autogroup` divides the processors between sessions first: there each command would have as much as
/// the service and its database together, however nice it is. See sched(7).
pub(crate) fn lower_own_session() {
    // Some kernels have none, and those that do take ten wishes a second: a command that comes too soon keeps its share,
    // unless it has a control group.
    let _not_there = std::fs::write("/proc/self/autogroup", NICE.to_string());
}

/// Takes every capability from this process, and what could give one back.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    for number in 0..64 {
        // SAFETY: touches no memory. EINVAL: there is no capability of this number, nor a higher one.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL) => break,
                Some(libc::EPERM) => break, // without CAP_SETPCAP; no_new_privs holds all the same
                _ => return Err(error),
            }
        }
    }
    let _none_were_there = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}

/// Whether any other process can be signalled: in a process namespace of its own, whether one is left.
pub(crate) fn others_are_left() -> bool {
    // SAFETY: signal 0 is no signal.
    unsafe { libc::kill(-1, 0) == 0 }
}

/// Installs a program of the kernel's packet filter for the system calls of this process, for good.
pub(crate) fn install_filter(program: &seccompiler::BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(program).map_err(io::Error::other)
}

/// Confines this process to a landlock ruleset, for good. It must have no_new_privs.
pub(crate) fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    let fd = libc::c_long::from(ruleset.as_raw_fd());
    let no_flags: libc::c_long = 0;
    // SAFETY: takes a descriptor and flags, and touches no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fd, no_flags) })?;
    Ok(())
}

/// Lets a task of this runtime wait until `fd` is readable.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its number for as long as it lives, which is as long as the registration does.
    let registered = unsafe {
        tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE)
    };
    registered.map_err(io::Error::from)
}

/// A descriptor of memory with these bytes, at its beginning.
pub(crate) fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
    let fd = memfd_create("request", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&fd, rest)?;
        rest = &rest[count..];
    }
    seek(fd.as_fd(), SeekFrom::Start(0))?;
    Ok(fd)
}
