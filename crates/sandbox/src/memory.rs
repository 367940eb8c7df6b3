//! The memory of commands where no control group limits it: looked at, again before a fast program could have all of it.
//!
//! A watch, no limit: the kernel may be out of memory first. It then ends a command rather than the service.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use crate::disk::pause_for;
use crate::kill;

/// Kibibytes of the lines with these names in a file of `/proc`.
fn kibibytes(text: &str, names: [&str; 2]) -> u64 {
    let of = |line: &str| {
        let (name, value) = line.split_once(':')?;
        names.contains(&name).then(|| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}

/// Bytes that a process has for itself. Pages that it shares with one that it was forked from count in both.
fn own_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kibibytes(&status, ["RssAnon", "VmSwap"]) * 1024
}

/// The same with its share of shared pages: exact, slower, and not told of every process.
fn exact_bytes(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .map_or_else(|_| own_bytes(pid), |text| kibibytes(&text, ["Pss_Anon", "SwapPss"]) * 1024)
}

/// Bytes that each of these processes has with all below it.
fn of_trees(roots: &[Pid], of: impl Fn(i32) -> u64) -> Vec<u64> {
    let below = |root: &Pid| kill::tree(*root).into_iter().map(&of).sum();
    roots.iter().map(below).collect()
}

/// A look at the memory of some commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All is well until the next look.
    Next(Duration),
    /// They have more than they may together, this one the most.
    Beyond(usize),
}

/// Looks whether the trees below these processes have more than `limit` bytes together.
pub(crate) fn look(roots: &[Pid], limit: u64) -> Look {
    let mut bytes: u64 = of_trees(roots, own_bytes).into_iter().sum();
    if bytes > limit {
        let exact = of_trees(roots, exact_bytes);
        bytes = exact.iter().sum();
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
        let text = "Name:\ta\nRssAnon:\t  12 kB\nRssAnonX:\t 5 kB\nVmSwap:\t 3 kB\n";
        assert_eq!(kibibytes(text, ["RssAnon", "VmSwap"]), 15);
        assert_eq!(kibibytes("RssAnon: many\n", ["RssAnon", "VmSwap"]), 0);
    }

    #[test]
    fn a_process_has_memory_and_its_limit_is_met() {
        let own = rustix::process::getpid();
        assert!(own_bytes(own.as_raw_nonzero().get()) > 0);
        assert!(exact_bytes(own.as_raw_nonzero().get()) > 0);
        assert_eq!(look(&[own], 1), Look::Beyond(0));
        assert!(matches!(look(&[own], 1 << 50), Look::Next(_)));
        assert!(matches!(look(&[], 1), Look::Next(_)));
    }
}
