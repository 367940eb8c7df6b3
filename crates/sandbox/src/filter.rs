//! The system calls that no command needs, refused by the kernel's packet filter (seccomp).
//!
//! Three programs: the first gives ENOSYS to what is not known and to calls whose flags are in memory, where no filter sees
//! them (programs fall back to older ones); the second gives EPERM to what changes the system, reaches other
//! processes, or would leave a setuid file on the host's disk; the third gives EOPNOTSUPP to what takes space of a disk without
//! writing it, so fast that no watch sees it (programs fall back to writing).

use std::collections::BTreeMap;
use std::io;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};

use crate::sys;

/// The newest call that was known when this was written (`removexattrat`): those above get ENOSYS.
const NEWEST: u32 = 466;

/// Calls that are newer than the names in `libc`.
const FCHMODAT2: i64 = 452;
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;

/// Which doors to other machines and processes a filter leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// In a network namespace of its own: UNIX, TCP and UDP.
    Usual,
    /// Without one: none but pairs, which are connected from the start.
    PairsOnly,
}

/// Compiled programs, to be installed in each command.
#[derive(Debug, Clone)]
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    pub(crate) fn compile(sockets: Sockets) -> io::Result<Self> {
        let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let unsupported = SeccompAction::Errno(libc::EOPNOTSUPP.unsigned_abs());
        let mut programs =
            vec![compile(forbidden()?, refused)?, compile(allocations()?, unsupported)?];
        let (rules, errno) = match sockets {
            Sockets::Usual => (unusual_sockets()?, libc::EAFNOSUPPORT),
            // The error that programs explain best: there is no network.
            Sockets::PairsOnly => (BTreeMap::from([(libc::SYS_socket, vec![])]), libc::ENETUNREACH),
        };
        programs.push(compile(rules, SeccompAction::Errno(errno.unsigned_abs()))?);
        if sockets == Sockets::PairsOnly {
            let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
            programs.push(compile(of_other_processes()?, refused)?);
        }
        // Last, since it is the first to be asked.
        programs.push(unknown_calls());
        Ok(Self(programs))
    }

    /// The same without files that are memory, where memory is looked at and not limited: what is in them counts in no process
    /// that does not map them. Programs take a file in `/dev/shm` or `/tmp` then.
    pub(crate) fn without_memory_files(mut self) -> io::Result<Self> {
        let rules = BTreeMap::from([(libc::SYS_memfd_create, Vec::new())]);
        let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        self.0.insert(0, compile(rules, unknown)?);
        Ok(self)
    }

    /// Installs them in this process, for good. It must have no_new_privs.
    pub(crate) fn install(&self) -> io::Result<()> {
        self.0.iter().try_for_each(sys::install_filter)
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, action: SeccompAction) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

/// All of these conditions together.
fn rule(conditions: Vec<seccompiler::Result<SeccompCondition>>) -> io::Result<SeccompRule> {
    let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
    let rule = conditions.map(SeccompRule::new).map_err(io::Error::other)?;
    rule.map_err(io::Error::other)
}

type Condition = seccompiler::Result<SeccompCondition>;

fn bits(argument: u8, mask: u64) -> Condition {
    Ok(SeccompCondition::new(argument, Qword, MaskedEq(mask), mask)?)
}

fn not(argument: u8, value: i32) -> Condition {
    Ok(SeccompCondition::new(argument, Dword, Ne, u64::from(value.unsigned_abs()))?)
}

fn is(argument: u8, value: i32) -> Condition {
    Ok(SeccompCondition::new(argument, Dword, Eq, u64::from(value.unsigned_abs()))?)
}

/// Never refused by arguments.
const ALWAYS: [i64; 56] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_memfd_secret,
    STATMOUNT,
    LISTMOUNT,
];

fn forbidden() -> io::Result<Rules> {
    let mut rules: Rules = ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt] {
        rules.insert(call, Vec::new());
    }
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let clones = namespaces.map(|kind| rule(vec![bits(0, u64::from(kind.unsigned_abs()))]));
    rules.insert(libc::SYS_clone, clones.into_iter().collect::<io::Result<_>>()?);
    // Characters typed into somebody's terminal.
    let typing = [0x5412, 0x541C].map(|request| rule(vec![is(1, request)]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<io::Result<_>>()?);
    let known = [0, 8, 0x2_0000, 0x4_0000, -1];
    let personality = known.map(|value: i32| {
        let value = u64::from(value.cast_unsigned());
        Ok(SeccompCondition::new(0, Dword, Ne, value)?)
    });
    rules.insert(libc::SYS_personality, vec![rule(personality.into_iter().collect())?]);
    for (call, mode) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ] {
        rules.insert(call, vec![rule(vec![bits(mode, 0o4000)])?, rule(vec![bits(mode, 0o2000)])?]);
    }
    // The mode counts only where a file may be made.
    let making = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
    for (call, flags) in [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ] {
        let mut found = Vec::new();
        for make in making {
            for mode in [0o4000, 0o2000] {
                let make = bits(flags, u64::from(make.unsigned_abs()));
                found.push(rule(vec![make, bits(flags + 1, mode)])?);
            }
        }
        rules.insert(call, found);
    }
    Ok(rules)
}

/// The ways to take space of a disk without writing: the call, and the older requests that come to the same.
fn allocations() -> io::Result<Rules> {
    let requests = [
        0x4030_580A, // XFS_IOC_ALLOCSP
        0x4030_5824, // XFS_IOC_ALLOCSP64
        0x4030_5828, // FS_IOC_RESVSP
        0x4030_582A, // FS_IOC_RESVSP64
        0x4030_5839, // FS_IOC_ZERO_RANGE
        0x401C_5820, // FS_IOC_FSSETXATTR: a hint of 1 GiB makes each written byte take as much
    ];
    let requests = requests.map(|request| rule(vec![is(1, request)]));
    Ok(BTreeMap::from([
        (libc::SYS_fallocate, Vec::new()),
        (libc::SYS_ioctl, requests.into_iter().collect::<io::Result<_>>()?),
    ]))
}

fn unusual_sockets() -> io::Result<Rules> {
    let unix_inet = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut refused = vec![rule(unix_inet.map(|family| not(0, family)).into())?];
    refused.push(rule(vec![is(0, libc::AF_NETLINK), not(2, 0)])?);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let plain = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
        let mut unplain = vec![is(0, family)];
        unplain.extend(plain.map(|protocol| not(2, protocol)));
        refused.push(rule(unplain)?);
        for kind in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, 6, 10] {
            let kind = u64::from(kind.unsigned_abs());
            let kind = SeccompCondition::new(1, Dword, MaskedEq(0xF), kind);
            refused.push(rule(vec![is(0, family), kind.map_err(seccompiler::Error::from)])?);
        }
    }
    Ok(BTreeMap::from([(libc::SYS_socket, refused)]))
}

/// Calls that change other processes of the same user, or share memory with them, where no namespace hides those.
fn of_other_processes() -> io::Result<Rules> {
    let mut rules: Rules = [
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_mq_open,
    ]
    .map(|call| (call, Vec::new()))
    .into();
    for (call, process) in [
        (libc::SYS_prlimit64, 0),
        (libc::SYS_setpriority, 1),
        (libc::SYS_ioprio_set, 1),
        (libc::SYS_sched_setaffinity, 0),
        (libc::SYS_sched_setscheduler, 0),
        (libc::SYS_sched_setparam, 0),
        (libc::SYS_sched_setattr, 0),
    ] {
        rules.insert(call, vec![rule(vec![not(process, 0)])?]);
    }
    Ok(rules)
}

/// ENOSYS for other architectures, for numbers above the newest (x32 has bit 30), and for calls whose flags are in memory.
fn unknown_calls() -> BpfProgram {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7FFF_0000;
    const ERRNO: u32 = 0x0005_0000;
    #[cfg(target_arch = "x86_64")]
    const ARCH: u32 = 0xC000_003E;
    #[cfg(target_arch = "aarch64")]
    const ARCH: u32 = 0xC000_00B7;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let unsupported = [
        libc::SYS_clone3,
        libc::SYS_openat2,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    let count = u8::try_from(unsupported.len()).unwrap_or_default();
    let mut program = vec![
        instruction(LOAD, 0, 0, 4),
        instruction(IF_EQUAL, 0, count + 3, ARCH),
        instruction(LOAD, 0, 0, 0),
        instruction(IF_GREATER, count + 1, 0, NEWEST),
    ];
    for (index, call) in (0..count).zip(unsupported) {
        program.push(instruction(IF_EQUAL, count - index, 0, u32::try_from(call).unwrap_or(0)));
    }
    program.push(instruction(RETURN, 0, 0, ALLOW));
    program.push(instruction(RETURN, 0, 0, ERRNO | libc::ENOSYS.unsigned_abs()));
    program
}
