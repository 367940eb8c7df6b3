//! Finds processes that name a folder in their command line, environment or working directory.

use std::fs;
use std::path::Path;

/// A process that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its process id.
    pub pid: u32,
    /// Its command line, for people.
    pub command: String,
}

/// Returns all other processes that name `folder`, or something in it, in their command line, their environment or as
/// their working directory. Zombies have none of these.
#[must_use]
pub fn processes_naming(folder: &Path) -> Vec<Found> {
    let Some(needle) = folder.to_str() else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| look(pid, needle)).collect()
}

fn look(pid: u32, needle: &str) -> Option<Found> {
    let read = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let command = read("cmdline");
    let within = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let named = command.contains(needle)
        || within.to_string_lossy().starts_with(needle)
        || read("environ").contains(needle);
    named.then(|| Found { pid, command: command.trim().to_owned() })
}

/// Returns the process and its parents, nearest first.
#[must_use]
pub fn ancestors(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = pid;
    while let Some(parent) = parent(at).filter(|parent| *parent > 1 && !found.contains(parent)) {
        found.push(parent);
        at = parent;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses; the fields after it do not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
