//! Processes of a worker's tools, seen from outside.

use std::collections::{BTreeSet, HashMap};
use std::fs;

/// A process, distinguished from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolProcess {
    pub(crate) pid: u32,
    /// Its start time, in the kernel's ticks.
    began: u64,
    /// Its command line, for people.
    pub(crate) command: String,
}

impl ToolProcess {
    /// Returns whether it still runs. A zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.began == self.began && stat.runs)
    }
}

struct Stat {
    parent: u32,
    began: u64,
    runs: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain spaces and parentheses; the fields after it do not.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            runs: !matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            began: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns all processes below each of these, from one look at all processes.
pub(crate) fn tools_below(workers: &[u32]) -> HashMap<u32, Vec<ToolProcess>> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats: HashMap<u32, Stat> =
        pids.filter_map(|pid| Some((pid, Stat::of(pid)?))).filter(|(_, stat)| stat.runs).collect();
    let mut found: HashMap<u32, Vec<ToolProcess>> = HashMap::new();
    for (pid, stat) in &stats {
        let (mut at, mut passed) = (stat.parent, BTreeSet::new());
        while !workers.contains(&at) && passed.insert(at) {
            let Some(above) = stats.get(&at) else { break };
            at = above.parent;
        }
        if workers.contains(&at) {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.entry(at).or_default().push(ToolProcess {
                pid: *pid,
                began: stat.began,
                command,
            });
        }
    }
    found
}

/// Returns the value of a flag in a process's command line.
pub(crate) fn flag_of(pid: u32, flag: &str) -> Option<String> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.filter_map(|word| Some(word.strip_prefix(flag)?.strip_prefix('=')?.to_owned())).next()
}
