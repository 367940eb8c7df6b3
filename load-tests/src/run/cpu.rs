//! CPU time and memory of processes, from /proc.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The usage of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// The time of children that ended and were waited for.
    reaped_ticks: u64,
}

/// Parses `/proc/PID/stat`. The process name in it may contain blanks and parentheses.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own_ticks: number(11)? + number(12)?,
        reaped_ticks: number(13)? + number(14)?,
    })
}

fn time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the CPU time of one process, without its children.
pub(crate) fn of(pid: u32) -> anyhow::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(time(parse(&text).context("/proc/PID/stat is not as expected")?.own_ticks))
}

/// Returns the CPU time of a process and its descendants, also of those that have ended.
pub(crate) fn of_tree(root: u32) -> anyhow::Result<Duration> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // If a process ends meanwhile, its parent has its time.
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if let Some(stat) = parse(&text) {
            all.insert(pid, stat);
        }
    }
    let is_below = |mut pid: u32| {
        for _ in 0..64 {
            if pid == root {
                return true;
            }
            match all.get(&pid) {
                Some(stat) if stat.parent > 1 => pid = stat.parent,
                Some(_) | None => return false,
            }
        }
        false
    };
    let ticks = all.iter().filter(|(pid, _)| is_below(**pid));
    Ok(time(ticks.map(|(_, stat)| stat.own_ticks + stat.reaped_ticks).sum()))
}

/// Returns the memory of one process that is in RAM, in MiB.
pub(crate) fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("/proc/PID/status has no VmRSS")? / 1024.0)
}

/// The CPU time of every participant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) service: Duration,
    pub(crate) postgres: Duration,
    pub(crate) model: Duration,
    pub(crate) driver: Duration,
}

impl Used {
    /// Returns the usage since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            service: self.service.saturating_sub(earlier.service),
            postgres: self.postgres.saturating_sub(earlier.postgres),
            model: self.model.saturating_sub(earlier.model),
            driver: self.driver.saturating_sub(earlier.driver),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_passed_over() {
        let line = "12 (post) gres: x) S 7 12 12 0 -1 4194560 1 2 3 4 10 5 100 50 20 0 1 0 9";
        let stat = Stat { parent: 7, own_ticks: 15, reaped_ticks: 150 };
        assert_eq!(parse(line), Some(stat));
        assert_eq!(parse("12 (x"), None);
    }

    #[test]
    fn we_are_below_ourselves() {
        let me = std::process::id();
        let before = of(me).expect("proc");
        assert!(of_tree(me).expect("proc") >= before);
        assert!(rss_mib(me).expect("proc") > 0.1);
    }
}
