//! How much a cell may take: control groups where they can be had, and limits of each process in any case.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource, Rlimit, setrlimit};

use crate::command::{End, Limit};
use crate::sys::NICE;

/// The largest file that a command may write, where the disk has room for it.
pub(crate) const FILE_BYTES: u64 = 4 << 30;

/// The share of the processors that a cell has where there are control groups of version 1: as much as a process with the
/// nice value of commands. A group without a number of its own has 1,024.
const CPU_SHARES: u32 = 110;

/// The limits of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all its processes and of its `/tmp`, `/home` and `/dev/shm` together.
    pub memory_bytes: u64,
    /// Memory of all cells of one service together, where no control group limits each.
    pub all_cells_bytes: u64,
    /// Processes and threads.
    pub processes: u32,
}

impl Limits {
    /// Half of the machine's memory, at least 2 GiB, and 1,024 processes; three quarters of the memory for all cells.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        let total = total.unwrap_or_default() * 1024;
        let memory_bytes = (total / 2).max(2 << 30);
        Self { memory_bytes, all_cells_bytes: (total / 4 * 3).max(memory_bytes), processes: 1024 }
    }
}

/// The limit on files, if a command ended as one does that meets it.
pub(crate) fn met_by(end: End, file_bytes: u64) -> Option<Limit> {
    // A shell tells so that a program in it was ended by this signal.
    let is_it = matches!(end, End::Signaled(libc::SIGXFSZ))
        || matches!(end, End::Exited(code) if code == 128 + libc::SIGXFSZ);
    is_it.then_some(Limit::File(file_bytes))
}

/// Limits that each process of a command has, whatever else there is.
pub(crate) fn limit_process(processes: u32, file_bytes: u64) -> io::Result<()> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    let lower = |resource, value: u64| {
        let hard = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        setrlimit(resource, both(value.min(hard)))
    };
    lower(Resource::Core, 0)?;
    lower(Resource::Nofile, 4096)?;
    lower(Resource::Fsize, file_bytes)?;
    lower(Resource::Memlock, 8 << 20)?;
    lower(Resource::Msgqueue, 0)?;
    // It counts the processes of one user in one user namespace, which is the cell's.
    lower(Resource::Nproc, u64::from(processes))?;
    Ok(())
}

/// The control groups of one cell, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Groups {
    folders: Vec<PathBuf>,
    /// To which a process writes `0` to be in them.
    entrances: Vec<File>,
    memory_events: Option<PathBuf>,
    process_events: Option<PathBuf>,
}

/// A hierarchy in which we are: where it is mounted, and whether it is of version 2.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    folder: PathBuf,
    controllers: Vec<String>,
    unified: bool,
}

/// Finds the groups that this process is in, by the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(cgroup: &str, mountinfo: &str) -> Vec<Hierarchy> {
    let mounts: Vec<_> = mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(3);
            let (root, at) = (left.next()?, left.next()?);
            let mut right = right.split(' ');
            let kind = right.next()?;
            let options = right.nth(1)?;
            kind.starts_with("cgroup").then(|| (kind == "cgroup2", root, at, options))
        })
        .collect();
    let found = cgroup.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let unified = names.is_empty();
        let (_, root, at, _) = mounts.iter().find(|(is_unified, _, _, options)| {
            *is_unified == unified
                && (unified
                    || names.split(',').all(|name| options.split(',').any(|has| has == name)))
        })?;
        // In a container the mount may show only what is below its own root.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
        let folder = Path::new(at).join(below.trim_start_matches('/'));
        let controllers = names.split(',').map(str::to_owned).collect();
        Some(Hierarchy { folder, controllers, unified })
    });
    found.collect()
}

impl Groups {
    /// Makes the groups of a cell, below those that this process is in. `Err`: why there are none; the cell then has the
    /// limits of [`limit_process`] alone.
    pub(crate) fn make(name: &str, limits: Limits) -> Result<Self, String> {
        let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let all = hierarchies(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
        let mut groups = Self {
            folders: Vec::new(),
            entrances: Vec::new(),
            memory_events: None,
            process_events: None,
        };
        let mut reasons = Vec::new();
        for hierarchy in &all {
            let has =
                |name: &str| hierarchy.controllers.iter().any(|controller| controller == name);
            let wanted = hierarchy.unified || ["memory", "pids", "cpu"].into_iter().any(has);
            if !wanted {
                continue;
            }
            if let Err(error) = groups.add(hierarchy, name, limits) {
                reasons.push(format!("{}: {error}", hierarchy.folder.display()));
            }
        }
        if groups.memory_events.is_none() {
            return Err(if reasons.is_empty() {
                "there is no memory controller here".to_owned()
            } else {
                reasons.join("; ")
            });
        }
        Ok(groups)
    }

    fn add(&mut self, hierarchy: &Hierarchy, name: &str, limits: Limits) -> io::Result<()> {
        let folder = hierarchy.folder.join(name);
        if hierarchy.unified {
            let controllers = fs::read_to_string(hierarchy.folder.join("cgroup.subtree_control"))?;
            if !controllers.split_whitespace().any(|name| name == "memory") {
                return Err(io::Error::other("its memory controller is not delegated"));
            }
        }
        fs::create_dir(&folder)?;
        self.folders.push(folder.clone());
        let set = |file: &str, value: String| fs::write(folder.join(file), value);
        let memory = limits.memory_bytes.to_string();
        if hierarchy.unified {
            set("memory.max", memory)?;
            let _without_swap = set("memory.swap.max", "0".to_owned());
            set("pids.max", limits.processes.to_string())?;
            let _where_the_processors_are_shared_so = set("cpu.weight.nice", NICE.to_string());
            self.memory_events = Some(folder.join("memory.events"));
            self.process_events = Some(folder.join("pids.events"));
        } else {
            let has =
                |name: &str| hierarchy.controllers.iter().any(|controller| controller == name);
            if has("memory") {
                set("memory.limit_in_bytes", memory.clone())?;
                let _without_swap = set("memory.memsw.limit_in_bytes", memory);
                self.memory_events = Some(folder.join("memory.oom_control"));
            }
            if has("pids") {
                set("pids.max", limits.processes.to_string())?;
                self.process_events = Some(folder.join("pids.events"));
            }
            if has("cpu") {
                set("cpu.shares", CPU_SHARES.to_string())?;
            }
        }
        self.entrances.push(OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?);
        Ok(())
    }

    /// Moves this process, and with it all that it starts, into the groups.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.entrances.iter().try_for_each(|mut entrance| entrance.write_all(b"0\n"))
    }

    /// The open entrances, which a fresh init keeps.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.entrances.iter().map(AsFd::as_fd)
    }

    /// How many processes the kernel has killed since the cell began, for want of memory, and how often it refused another
    /// process.
    pub(crate) fn counters(&self) -> Counters {
        let count = |file: &Option<PathBuf>, name: &str| {
            let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
            text.as_deref().and_then(|text| counter(text, name)).unwrap_or_default()
        };
        Counters {
            killed: count(&self.memory_events, "oom_kill"),
            refused: count(&self.process_events, "max"),
        }
    }
}

/// The kernel's counts for a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) killed: u64,
    pub(crate) refused: u64,
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The name of the groups of the cell that this process keeps.
pub(crate) fn name_of(keeper: Pid) -> String {
    format!("opencode-cloud-{}", keeper.as_raw_nonzero())
}

/// Removes the groups of a keeper that was killed, once nothing is left in them.
pub(crate) fn remove_groups_of(keeper: Pid) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    for hierarchy in hierarchies(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) {
        let _was_none_there = fs::remove_dir(hierarchy.folder.join(name_of(keeper)));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.folders {
            // The kernel counts a process that is gone a moment longer.
            for _ in 0..50 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    _gone_or_not_ours => break,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_where_the_mounts_show_them() {
        let cgroup = "5:memory:/a/b\n4:cpu,cpuacct:/c\n0::/u/v\n";
        let mountinfo = "30 1 0:2 /a /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                         31 1 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                         32 1 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                         33 1 0:5 / / rw - ext4 /dev/vda rw\n";
        let found = hierarchies(cgroup, mountinfo);
        let folders: Vec<_> =
            found.iter().map(|it| (it.folder.to_str().unwrap(), it.unified)).collect();
        assert_eq!(
            folders,
            [
                ("/sys/fs/cgroup/memory/b", false),
                ("/sys/fs/cgroup/cpu/c", false),
                ("/sys/fs/cgroup/unified/u/v", true)
            ]
        );
    }

    // Autogroups take ten wishes a second, so that in a flood most commands had the share of the whole service.
    #[test]
    fn a_cell_has_a_small_share_of_the_processors() {
        let name = format!("opencode-cloud-test-{}", std::process::id());
        let groups = match Groups::make(&name, Limits::of_this_machine()) {
            Ok(groups) => groups,
            Err(why) => return println!("skipped: there are no control groups here: {why}"),
        };
        for folder in &groups.folders {
            for (file, share) in
                [("cpu.shares", CPU_SHARES.to_string()), ("cpu.weight.nice", NICE.to_string())]
            {
                if folder.join(file).exists() {
                    assert_eq!(fs::read_to_string(folder.join(file)).unwrap().trim(), share);
                }
            }
        }
        let read = |path| fs::read_to_string(path).unwrap();
        let all = hierarchies(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let cpu = all.iter().find(|it| it.controllers.iter().any(|name| name == "cpu"));
        assert!(cpu.is_none_or(|it| groups.folders.contains(&it.folder.join(&name))));
    }

    #[test]
    fn a_counter_is_read_by_its_whole_name() {
        let text = "oom 3\noom_kill 2\noom_kill_disable 0\n";
        assert_eq!((counter(text, "oom_kill"), counter(text, "max")), (Some(2), None));
    }
}
