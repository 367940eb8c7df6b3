//! The first process of a command's process namespace: it makes the command's view of the machine, runs the command, reaps
//! whatever is left to it, and says how the command ended. When it ends, the kernel kills all that is in its namespace.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, chdir, set_dumpable_behavior,
    set_parent_process_death_signal, setsid, wait,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::command::{End, TOO_LONG};
use crate::control::Report;
use crate::filter::Filters;
use crate::limits::{self, Groups};
use crate::root::{self, Step, USER, at};
use crate::sys::{self, Forked};
use crate::wire::CommandRequest;

/// Who an init is in its user namespace: another one than its command, which therefore cannot touch it. Only where the
/// host has an id for it.
pub(crate) const INIT: u32 = 999;

/// The descriptors and settings that a cell has ready for its commands.
pub(crate) struct Ready {
    pub(crate) users: OwnedFd,
    /// Who inits are in `users`.
    pub(crate) init: u32,
    pub(crate) rules: Option<OwnedFd>,
    /// The same for commands that only remove files.
    pub(crate) removal_rules: Option<OwnedFd>,
    pub(crate) filters: Filters,
    pub(crate) groups: Option<Groups>,
    pub(crate) processes: u32,
}

/// Runs the command; never returns. `status`: where the one line goes.
pub(crate) fn main(
    request: &CommandRequest,
    ready: &Ready,
    output: OwnedFd,
    status: OwnedFd,
    alive: &OwnedFd,
) -> ! {
    let report = match begin(request, ready, output, &status, alive) {
        Ok(main) => {
            let end = reap_until(main);
            Report::Ended { end, leftovers: leftovers() }
        }
        Err(why) => Report::Refused(why),
    };
    let told = File::from(status).write_all(report.to_line().as_bytes());
    sys::exit(i32::from(told.is_err()))
}

/// Dies with the keeper, however that ends. It may have ended before this: then its end of `alive` is closed.
fn die_with_the_keeper(alive: &OwnedFd) -> Step<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(at("cannot follow the keeper"))?;
    let mut byte = [0];
    match rustix::io::read(alive, &mut byte) {
        Err(Errno::AGAIN) => Ok(()),
        _closed => Err("the keeper is gone".to_owned()),
    }
}

fn begin(
    request: &CommandRequest,
    ready: &Ready,
    output: OwnedFd,
    status: &OwnedFd,
    alive: &OwnedFd,
) -> Step<Pid> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(at("cannot follow the keeper"))?;
    if let Some(groups) = &ready.groups {
        groups.enter().map_err(at("cannot enter the control groups"))?;
    }
    let _shows_a_path_else = sys::unshare(UnshareFlags::NEWCGROUP);
    root::enter()?;
    rustix::system::sethostname(b"sandbox").map_err(at("cannot name the machine"))?;
    move_into_link_name_space(ready.users.as_fd(), Some(LinkNameSpaceType::User))
        .map_err(at("cannot enter the user namespace"))?;
    let has_groups = ready.init != USER; // a namespace that a user has made may not change groups
    sys::become_user(ready.init, ready.init, has_groups).map_err(at("cannot change the user"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at("cannot close memory"))?;
    die_with_the_keeper(alive)?; // a change of user has ended that
    let (failure, failed) = pipe_with(PipeFlags::CLOEXEC).map_err(at("cannot make a pipe"))?;
    match sys::fork(0).map_err(at("cannot fork"))? {
        Forked::Child => {
            let why = become_command(request, ready, &output, &failed);
            let _init_reads_it = rustix::io::write(&failed, why.as_bytes());
            sys::exit(127)
        }
        Forked::Parent { pid, pidfd } => {
            drop((failed, output, pidfd));
            let _closed = sys::close_all_but(&[status.as_fd(), alive.as_fd(), failure.as_fd()]);
            let mut why = String::new();
            let read = File::from(failure).read_to_string(&mut why);
            read.map_err(at("cannot hear of the command"))?;
            if why.is_empty() { Ok(pid) } else { Err(why) }
        }
    }
}

fn c_string(word: &OsStr) -> Result<CString, String> {
    CString::new(word.as_bytes()).map_err(|_| "a word of the command holds a NUL".to_owned())
}

/// Returns only a failure, in words.
fn become_command(
    request: &CommandRequest,
    ready: &Ready,
    output: &OwnedFd,
    failed: &OwnedFd,
) -> String {
    match try_become(request, ready, output.as_fd(), failed.as_fd()) {
        Ok(never) => match never {},
        Err(why) => why,
    }
}

fn try_become(
    request: &CommandRequest,
    ready: &Ready,
    output: BorrowedFd<'_>,
    failed: BorrowedFd<'_>,
) -> Step<std::convert::Infallible> {
    let program = find(&request.program, &request.env)?;
    let words = |words: &[std::ffi::OsString]| {
        words.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()
    };
    let mut args = vec![c_string(request.program.as_os_str())?];
    args.extend(words(&request.args)?);
    let env = words(&request.env)?;
    // A process that has changed its user does not own its files in `/proc`. Commands have another user than this one: none
    // of them can look into it meanwhile.
    let has_changed = ready.init != USER;
    if has_changed {
        set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(at("cannot own the files of this process"))?;
    }
    let _least_of_all = std::fs::write("/proc/self/oom_score_adj", "500");
    sys::be_nice();
    setsid().map_err(at("cannot make a session"))?;
    sys::lower_own_session();
    if has_changed {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(at("cannot disown the files of this process"))?;
    }
    limits::limit_process(ready.processes, request.share.file_bytes)
        .map_err(at("cannot limit the command"))?;
    if ready.init != USER {
        sys::become_user(USER, USER, true).map_err(at("cannot become the command's user"))?;
    }
    sys::drop_capabilities().map_err(at("cannot drop capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(at("cannot forbid new rights"))?;
    chdir(&request.directory)
        .map_err(at(&format!("cannot start in {}", request.directory.display())))?;
    let nothing = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(at("cannot open /dev/null"))?;
    // The pipe may have any number: out of the way of the three before they are replaced.
    let output =
        rustix::io::fcntl_dupfd_cloexec(output, 10).map_err(at("cannot keep the output"))?;
    let failed = rustix::io::fcntl_dupfd_cloexec(failed, 10).map_err(at("cannot keep a pipe"))?;
    let rules = if request.share.removes_only { &ready.removal_rules } else { &ready.rules };
    if let Some(rules) = rules {
        sys::restrict_self(rules.as_fd()).map_err(at("cannot apply landlock"))?;
    }
    for (fd, number) in [(nothing.as_fd(), 0), (output.as_fd(), 1), (output.as_fd(), 2)] {
        sys::dup_onto(fd, number).map_err(at("cannot connect the output"))?;
    }
    sys::default_signals();
    ready.filters.install().map_err(at("cannot install the filter"))?;
    close_all_but_standard(failed.as_fd()).map_err(at("cannot close descriptors"))?;
    let error = sys::exec(&program, &args, &env);
    let why = if error.raw_os_error() == Some(libc::E2BIG) {
        TOO_LONG.to_owned()
    } else {
        format!("{}: {error}", request.program.display())
    };
    // Here, since owners of closed descriptors must not be dropped.
    let _init_reads_it = rustix::io::write(failed, why.as_bytes());
    sys::exit(127)
}

fn close_all_but_standard(failed: BorrowedFd<'_>) -> std::io::Result<()> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    sys::close_all_but(&[stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), failed])
}

/// The program's file: a path, or a name on the command's own `PATH`.
fn find(program: &Path, env: &[std::ffi::OsString]) -> Result<CString, String> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return c_string(program.as_os_str());
    }
    let path = env.iter().find_map(|word| word.as_bytes().strip_prefix(b"PATH="));
    let folders = path.unwrap_or(b"/usr/bin:/bin").split(|byte| *byte == b':');
    let candidates = folders.map(|folder| PathBuf::from(OsStr::from_bytes(folder)).join(program));
    let found = candidates.into_iter().find(|candidate| candidate.is_file());
    found.map_or_else(
        || Err(format!("{}: there is no such program", program.display())),
        |found| c_string(found.as_os_str()),
    )
}

/// Waits for the command itself, and reaps whatever else ends meanwhile.
fn reap_until(main: Pid) -> End {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => End::Exited(code),
                    (None, Some(signal)) => End::Signaled(signal),
                    (None, None) => continue,
                };
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_no_child) => return End::Exited(-1),
        }
    }
}

/// How many processes the command has left: all that `/proc` shows but this one, and but zombies, which are reaped first.
fn leftovers() -> u32 {
    while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
    if !sys::others_are_left() {
        return 0;
    }
    let living =
        crate::kill::all_processes().filter(|pid| *pid != 1 && crate::kill::is_alive(*pid));
    u32::try_from(living.count()).unwrap_or(u32::MAX)
}
