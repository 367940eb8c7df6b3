//! The reports of a supervisor to its worker: one line each, over the socket that is its stdin.

use crate::command::{End, Limit};

/// A line from the supervisor. The worker sends nothing: the socket's end is its only word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs as this process, which leads a group of the same number.
    Started(i32),
    /// Nothing was started: the lock file holds this newer token.
    Superseded(i64),
    /// Nothing was started.
    Refused(String),
    /// The command ran into a limit; its end follows.
    Met(Limit),
    /// It has ended and no process of it is left.
    Ended { end: End, leftovers: u32 },
}

impl Report {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Started(pid) => format!("started {pid}\n"),
            Self::Superseded(newest) => format!("superseded {newest}\n"),
            Self::Met(limit) => {
                let (name, first, second) = numbers(*limit);
                format!("met-{name} {first} {second}\n")
            }
            Self::Refused(why) => format!("refused {}\n", why.replace('\n', " ")),
            Self::Ended { end: End::Exited(code), leftovers } => {
                format!("exited {leftovers} {code}\n")
            }
            Self::Ended { end: End::Signaled(signal), leftovers } => {
                format!("signaled {leftovers} {signal}\n")
            }
            Self::Ended { end: End::TimedOut, leftovers } => format!("timed-out {leftovers} 0\n"),
            Self::Ended { end: End::Cancelled, leftovers } => format!("cancelled {leftovers} 0\n"),
            Self::Ended { end: End::OverLimit, leftovers } => format!("over-limit {leftovers} 0\n"),
        }
    }

    /// `None` for a line that no supervisor writes.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end_matches('\n').split_once(' ')?;
        match word {
            "started" => return rest.parse().ok().map(Self::Started),
            "superseded" => return rest.parse().ok().map(Self::Superseded),
            "refused" => return Some(Self::Refused(rest.to_owned())),
            _ => {}
        }
        let (leftovers, value) = rest.split_once(' ')?;
        if let Some(name) = word.strip_prefix("met-") {
            return limit(name, leftovers.parse().ok()?, value.parse().ok()?).map(Self::Met);
        }
        let value = value.parse().ok()?;
        let end = match word {
            "exited" => End::Exited(value),
            "signaled" => End::Signaled(value),
            "timed-out" => End::TimedOut,
            "cancelled" => End::Cancelled,
            "over-limit" => End::OverLimit,
            _ => return None,
        };
        Some(Self::Ended { end, leftovers: leftovers.parse().ok()? })
    }
}

/// A limit as a name and two numbers.
fn numbers(limit: Limit) -> (&'static str, u64, u64) {
    match limit {
        Limit::Memory(bytes) => ("memory", bytes, 0),
        Limit::Processes(count) => ("processes", count, 0),
        Limit::Scratch(bytes) => ("scratch", bytes, 0),
        Limit::Disk { free, reserve } => ("disk", free, reserve),
        Limit::Files { free, reserve } => ("files", free, reserve),
        Limit::Workspace { holds, limit } => ("workspace", holds, limit),
        Limit::WorkspaceFiles { holds, limit } => ("workspace-files", holds, limit),
        Limit::RemovesOnly { free, reserve } => ("removes-only", free, reserve),
        Limit::RemovesFilesOnly { free, reserve } => ("removes-files-only", free, reserve),
        Limit::File(bytes) => ("file", bytes, 0),
        Limit::FileOfDisk(bytes) => ("file-of-disk", bytes, 0),
        Limit::FileOfWorkspace(bytes) => ("file-of-workspace", bytes, 0),
    }
}

fn limit(name: &str, first: u64, second: u64) -> Option<Limit> {
    Some(match name {
        "memory" => Limit::Memory(first),
        "processes" => Limit::Processes(first),
        "scratch" => Limit::Scratch(first),
        "disk" => Limit::Disk { free: first, reserve: second },
        "files" => Limit::Files { free: first, reserve: second },
        "workspace" => Limit::Workspace { holds: first, limit: second },
        "workspace-files" => Limit::WorkspaceFiles { holds: first, limit: second },
        "removes-only" => Limit::RemovesOnly { free: first, reserve: second },
        "removes-files-only" => Limit::RemovesFilesOnly { free: first, reserve: second },
        "file" => Limit::File(first),
        "file-of-disk" => Limit::FileOfDisk(first),
        "file-of-workspace" => Limit::FileOfWorkspace(first),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_survives_its_line() {
        let ends =
            [End::Exited(-1), End::Signaled(9), End::TimedOut, End::Cancelled, End::OverLimit];
        let mut reports: Vec<_> =
            ends.into_iter().map(|end| Report::Ended { end, leftovers: 3 }).collect();
        reports.extend([
            Report::Started(42),
            Report::Superseded(7),
            Report::Refused("no such file".into()),
            Report::Met(Limit::Memory(1 << 40)),
            Report::Met(Limit::Processes(512)),
            Report::Met(Limit::Scratch(1 << 20)),
            Report::Met(Limit::Disk { free: 1, reserve: 2 }),
            Report::Met(Limit::Files { free: 3, reserve: 4 }),
            Report::Met(Limit::Workspace { holds: 5, limit: 6 }),
            Report::Met(Limit::File(7)),
            Report::Met(Limit::FileOfDisk(12)),
            Report::Met(Limit::FileOfWorkspace(13)),
            Report::Met(Limit::WorkspaceFiles { holds: 8, limit: 9 }),
            Report::Met(Limit::RemovesOnly { free: 10, reserve: 11 }),
            Report::Met(Limit::RemovesFilesOnly { free: 14, reserve: 15 }),
        ]);
        for report in reports {
            assert_eq!(Report::parse(&report.to_line()), Some(report));
        }
        assert_eq!(Report::parse("exited x 1\n"), None);
        assert_eq!(Report::parse("hello\n"), None);
    }
}
