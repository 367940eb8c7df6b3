//! Finding and killing whole trees of processes, by `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The facts of `/proc/PID/stat` about a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    session: i32,
    zombie: bool,
}

/// The second field is the name in parentheses, and a name may hold parentheses and spaces.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Stat { parent, session, zombie })
}

/// `None` when it is gone.
fn stat(pid: i32) -> Option<Stat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// All processes, each with its number. One that ends meanwhile is left out.
pub(crate) fn all_processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Living descendants of `root`, without it.
pub(crate) fn descendants(root: Pid) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<(i32, bool)>> = BTreeMap::new();
    for pid in all_processes() {
        let Some(stat) = stat(pid) else { continue };
        children.entry(stat.parent).or_default().push((pid, stat.zombie));
    }
    let mut found = BTreeSet::new();
    let mut open = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        for (pid, zombie) in children.remove(&parent).unwrap_or_default() {
            open.push(pid); // a zombie leader may still have threads with children
            if !zombie {
                found.insert(pid);
            }
        }
    }
    found
}

/// A process and its living descendants, by files that cost nothing for all others.
pub(crate) fn tree(root: Pid) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = open.pop() {
        if !found.insert(pid) {
            continue;
        }
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Ok(children) = fs::read_to_string(task.path().join("children")) else {
                // A kernel without these files, or a thread that has ended.
                open.extend(descendants(root));
                break;
            };
            open.extend(
                children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
    }
    found
}

/// The first word of a keeper's name; behind it stands what its cell has beside its processes.
pub(crate) const KEEPER: &str = "oc-keeper";

/// The living children of `parent` whose name has the first word of its child `of`.
pub(crate) fn children_named_alike(parent: Pid, of: Pid) -> Vec<Pid> {
    let name = |pid: Pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
        name.split_ascii_whitespace().next().map(str::to_owned)
    };
    let Some(wanted) = name(of) else { return Vec::new() };
    let parent = parent.as_raw_nonzero().get();
    let children = all_processes()
        .filter(|pid| stat(*pid).is_some_and(|it| it.parent == parent && !it.zombie));
    children.filter_map(Pid::from_raw).filter(|pid| name(*pid).as_ref() == Some(&wanted)).collect()
}

/// Whether we have no other child than `pid`, by a file that costs less than a look at all processes.
pub(crate) fn is_only_child(pid: Pid) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero();
    fs::read_to_string(format!("/proc/self/task/{own}/children"))
        .is_ok_and(|children| children.trim() == pid.as_raw_nonzero().to_string())
}

/// The name by which a launcher is known to whoever looks for holders of a lock.
pub(crate) const LAUNCHER: &CStr = c"oc-launcher";

/// Whether a process is a launcher. Commands that take its name gain nothing: they hold no lock.
pub(crate) fn is_launcher(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.strip_suffix(b"\n") == Some(LAUNCHER.to_bytes()))
}

/// The children of this process but for `known` ones.
pub(crate) fn has_other_children(known: &BTreeSet<i32>) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let is_ours = |pid: &i32| stat(*pid).is_some_and(|stat| stat.parent == own);
    all_processes().any(|pid| !known.contains(&pid) && is_ours(&pid))
}

/// Whether a process runs, is stopped or sleeps; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.zombie)
}

/// SIGKILLs a process; one that is gone already is as good.
pub(crate) fn process(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
        let _gone_is_fine = kill_process(pid, Signal::KILL);
    }
}

/// SIGTERM, on which a supervisor ends its command.
pub(crate) fn ask_to_end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
        let _gone_is_fine = kill_process(pid, Signal::TERM);
    }
}

/// SIGKILLs a process group, without a gap in which a member could fork.
pub(crate) fn group(leader: i32) {
    if let Some(leader) = Pid::from_raw(leader).filter(|pid| !pid.is_init()) {
        let _gone_is_fine = kill_process_group(leader, Signal::KILL);
    }
}

/// SIGKILLs all that is alive of the session that `leader` began, which need not live any more: its number is nobody
/// else's as long as one of them does. Returns how many there were: ask again until there are none.
pub(crate) fn session(leader: i32) -> usize {
    let is_of_it = |pid: &i32| stat(*pid).is_some_and(|it| it.session == leader && !it.zombie);
    all_processes().filter(is_of_it).inspect(|pid| process(*pid)).count()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_name_may_hold_parentheses() {
        let stat = "12 (a) S (b) Z 7 12 13 0";
        assert_eq!(parse_stat(stat), Some(Stat { parent: 7, session: 13, zombie: true }));
        assert_eq!(
            parse_stat("12 (sh) S 1 12 12"),
            Some(Stat { parent: 1, session: 12, zombie: false })
        );
        assert_eq!(parse_stat("12 sh"), None);
    }

    #[test]
    fn a_session_is_killed_whole_when_its_leader_is_gone() {
        let script = "sleep 30 & sleep 30 & echo $$; kill -KILL $$";
        let mut leader = std::process::Command::new("setsid");
        let leader = leader.args(["--fork", "sh", "-c", script]).stdout(Stdio::piped());
        let mut leader = leader.spawn().unwrap();
        let mut number = String::new();
        BufReader::new(leader.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let number: i32 = number.trim().parse().unwrap();
        leader.wait().unwrap();
        let mut found = 0;
        loop {
            match session(number) {
                0 => break,
                some => found = found.max(some),
            }
        }
        assert!(found >= 2, "{found}");
    }

    #[test]
    fn a_child_is_a_descendant() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let found = descendants(rustix::process::getpid());
        let tree = tree(rustix::process::getpid());
        process(i32::try_from(child.id()).unwrap());
        child.wait().unwrap();
        assert!(found.contains(&i32::try_from(child.id()).unwrap()), "{found:?}");
        assert!(tree.contains(&i32::try_from(child.id()).unwrap()), "{tree:?}");
    }
}
