//! The memory of commands where no control group limits it: looked at, again before a fast program could have all of it.
//!
//! A watch, no limit: the kernel may be out of memory first. It then ends a command rather than the service.

use std::ffi::CString;
use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use crate::disk::pause_for;
use crate::kill;

/// Kibibytes of the lines with these names in a file of `/proc`.
fn kibibytes(text: &str, names: [&str; 3]) -> u64 {
    let of = |line: &str| {
        let (name, value) = line.split_once(':')?;
        names.contains(&name).then(|| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}

/// Bytes that a process has in memory and are in no file. Pages that it shares count in each process that has them.
fn own_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kibibytes(&status, ["RssAnon", "RssShmem", "VmSwap"]) * 1024
}

/// The same with its share of shared pages: exact, slower, and not told of every process.
fn exact_bytes(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).map_or_else(
        |_| own_bytes(pid),
        |text| kibibytes(&text, ["Pss_Anon", "Pss_Shmem", "SwapPss"]) * 1024,
    )
}

/// Bytes that each of these processes has with all below it.
fn of_trees(roots: &[Pid], of: impl Fn(i32) -> u64) -> Vec<u64> {
    let below = |root: &Pid| kill::tree(*root).into_iter().map(&of).sum();
    roots.iter().map(below).collect()
}

/// Bytes of the shared memory of this IPC namespace that no process has: those of the others count there.
pub(crate) fn detached_bytes() -> u64 {
    fs::read_to_string("/proc/sysvipc/shm").map_or(0, |text| detached(&text))
}

fn detached(text: &str) -> u64 {
    let of = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().map(|it| it.parse().unwrap_or(0)).collect();
        // Processes that have it; bytes in memory and on swap.
        let [has, resident, swapped] = [*fields.get(6)?, *fields.get(14)?, *fields.get(15)?];
        (has == 0).then_some(resident + swapped)
    };
    text.lines().skip(1).filter_map(of).sum()
}

/// Tells the other cells of this service how many bytes this one has beside its processes, which nobody else can see: they
/// stand in the keeper's name, in mebibytes. Commands cannot change it.
pub(crate) fn show_beside(bytes: u64) {
    // A name has 15 bytes. More mebibytes than five digits say are more than any machine's part.
    let mebibytes = bytes.div_ceil(1 << 20).min(99_999);
    if let Ok(name) = CString::new(format!("{} {mebibytes}", kill::KEEPER)) {
        let _only_a_name = rustix::thread::set_name(&name);
    }
}

/// The bytes that the cell of this keeper has beside its processes.
fn read_beside(keeper: Pid) -> u64 {
    let name = fs::read_to_string(format!("/proc/{}/comm", keeper.as_raw_nonzero()));
    let mebibytes = name.ok().and_then(|name| name.split_once(' ')?.1.trim().parse::<u64>().ok());
    mebibytes.unwrap_or(0) << 20
}

/// Whether the cells of this service have more than `most` together, and that of this process the most of them. A cell is a
/// process beside this one that has its name.
pub(crate) fn is_largest_of_too_much(most: u64) -> bool {
    let own = rustix::process::getpid();
    let Some(parent) = rustix::process::getppid() else { return false };
    let cells = kill::children_named_alike(parent, own);
    let beside: Vec<u64> = cells.iter().map(|cell| read_beside(*cell)).collect();
    let count = |of: fn(i32) -> u64| -> Vec<u64> {
        of_trees(&cells, of).iter().zip(&beside).map(|(tree, beside)| tree + beside).collect()
    };
    if cells.len() < 2 || count(own_bytes).into_iter().sum::<u64>() <= most {
        return false;
    }
    let exact = count(exact_bytes);
    let largest = (0..cells.len()).max_by_key(|index| exact[*index]);
    exact.iter().sum::<u64>() > most && largest.is_some_and(|index| cells[index] == own)
}

/// A look at the memory of some commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All is well until the next look.
    Next(Duration),
    /// They have more than they may together, this one the most.
    Beyond(usize),
}

/// Looks whether the trees below these processes have more than `limit` bytes together, with `beside` bytes that are none
/// of theirs and in their cell.
pub(crate) fn look(roots: &[Pid], beside: u64, limit: u64) -> Look {
    let mut bytes: u64 = of_trees(roots, own_bytes).into_iter().sum::<u64>() + beside;
    if bytes > limit {
        let exact = of_trees(roots, exact_bytes);
        bytes = exact.iter().sum::<u64>() + beside;
        let most = (0..roots.len()).max_by_key(|index| exact[*index]);
        if let Some(most) = most.filter(|_| bytes > limit) {
            return Look::Beyond(most);
        }
    }
    Look::Next(pause_for(limit.saturating_sub(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read_by_their_names() {
        let text =
            "Name:\ta\nRssAnon:\t  12 kB\nRssAnonX:\t 5 kB\nVmSwap:\t 3 kB\nRssShmem:\t 7 kB\n";
        assert_eq!(kibibytes(text, ["RssAnon", "RssShmem", "VmSwap"]), 22);
        assert_eq!(kibibytes("RssAnon: many\n", ["RssAnon", "RssShmem", "VmSwap"]), 0);
    }

    #[test]
    fn shared_memory_counts_that_no_process_has() {
        let text = "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n\
                    0 1 1600 8192 7 7 0 0 0 0 0 1 1 1 8192 4096\n\
                    0 2 1600 8192 7 7 1 0 0 0 0 1 1 1 8192 0\n";
        assert_eq!(detached(text), 12_288);
    }

    #[test]
    fn a_process_has_memory_and_its_limit_is_met() {
        let own = rustix::process::getpid();
        assert!(own_bytes(own.as_raw_nonzero().get()) > 0);
        assert!(exact_bytes(own.as_raw_nonzero().get()) > 0);
        assert_eq!(look(&[own], 0, 1), Look::Beyond(0));
        assert!(matches!(look(&[own], 0, 1 << 50), Look::Next(_)));
        assert_eq!(look(&[own], 1 << 50, 1 << 49), Look::Beyond(0), "what no process has");
        assert!(matches!(look(&[], 0, 1), Look::Next(_)));
    }
}
