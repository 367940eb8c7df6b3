//! The parts that tests of cells share: sandboxes of each tier, and a look at real processes.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{
    Cell, CellOptions, Command, DiskLimits, Environment, FoundTier, HiddenPaths, Limits, Outcome,
    Reach, Sandbox, Tier, TierOptions, Toolchains, find_tier,
};
use tokio_util::sync::CancellationToken;

pub(crate) const TESTBED: &str = env!("CARGO_BIN_EXE_sandbox-testbed");
/// Nothing here takes as long on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn options(at_most: Tier, limits: Limits) -> TierOptions {
    TierOptions {
        cells: CellOptions {
            launcher: TESTBED.into(),
            prefix: vec!["launch".into()],
            started: None,
            environment: Environment::from_vars(std::env::vars_os()),
            toolchains: Toolchains::find(std::env::vars_os()),
            spool_directory: std::env::temp_dir(),
            uids: (300_000, 8192),
            limits,
            exits: None,
        },
        supervisor: TESTBED.into(),
        supervisor_prefix: vec!["supervise".into()],
        probe_directory: std::env::temp_dir(),
        disk: DiskLimits::default(),
        open_git: false,
        at_most,
        landlock_at_most: None,
    }
}

/// The tiers of this machine among `wanted`, each with its sandbox. One that is missing is named with its reason, so that
/// a run says what it did not show.
pub(crate) async fn tiers(wanted: &[Tier], limits: Limits) -> Vec<FoundTier> {
    let mut found = Vec::new();
    for tier in wanted {
        let best = find_tier(&options(*tier, limits)).await;
        if best.tier == *tier {
            found.push(best);
        } else {
            skip(*tier, &format!("{:?}", best.refused));
        }
    }
    found
}

/// The tiers that whoever runs these tests promises: `./dev test` asks `doctor`, and CI as root promises all.
pub(crate) const PROMISED: &str = "OC_PROMISED_TIERS";

/// Says that a tier was not tried, and why. It is a failure where this tier is promised: a test that tried nothing is green.
pub(crate) fn skip(tier: Tier, why: &str) {
    let promised = std::env::var_os(PROMISED).unwrap_or_default();
    let promised = promised.to_string_lossy();
    let is_promised = promised.split_whitespace().any(|name| Tier::named(name) == Some(tier));
    assert!(!is_promised, "tier {tier} was not tried, and {PROMISED} promises it: {why}");
    eprintln!("SKIPPED, tier {tier}: {why}");
}

/// Tiers A and B.
pub(crate) async fn cells() -> Vec<FoundTier> {
    tiers(&[Tier::A, Tier::B], Limits::of_this_machine()).await
}

/// A command in a cell of `name`, whose workspace is `directory`.
pub(crate) fn script(script: &str, directory: &Path, name: &str) -> Command {
    let cell = Cell {
        name: name.into(),
        workspace: Some(directory.to_path_buf()),
        shown: Some("/workspace".into()),
        protect: false,
        network: Reach::None,
        hidden: HiddenPaths::default(),
    };
    Command { cell, ..Command::shell(script, directory.to_path_buf(), PATIENCE) }
}

pub(crate) async fn run(sandbox: &Arc<dyn Sandbox>, command: Command) -> Outcome {
    sandbox.run(command, &CancellationToken::new()).await.expect("the command runs")
}

/// Marks a script's processes by a variable, which children inherit whatever else they do.
pub(crate) fn marker() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("SANDBOX_TEST=m{}-{next}-", std::process::id())
}

pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let pids = fs::read_dir("/proc").expect("/proc is there").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn marked(marker: &str) -> Vec<u32> {
    let has_marker = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(marker))
    };
    processes().filter(has_marker).collect()
}

/// The parent of a process and its name.
fn parent(pid: u32) -> Option<(u32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((parent, name.split_once('(')?.1.to_owned()))
}

/// The nearest process above `pid` of this name.
pub(crate) fn above(pid: u32, name: &str) -> Option<u32> {
    let (up, own) = parent(pid)?;
    if own == name { Some(pid) } else { above(up, name) }
}

/// The init of a process: the one right below its keeper.
pub(crate) fn init_of(pid: u32) -> Option<u32> {
    let (up, _) = parent(pid)?;
    let (_, above) = parent(up)?;
    // An init is a copy of its keeper, and has its name.
    let (_, own) = parent(pid)?;
    let both_are_keepers = [own, above].iter().all(|name| name.starts_with("oc-keeper"));
    if both_are_keepers { Some(pid) } else { init_of(up) }
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A stubborn family: a background job, one in a session of its own, a daemon, one that ignores SIGTERM, one stopped.
pub(crate) fn family(marker: &str) -> String {
    let body = "trap \"\" TERM HUP INT; sleep 1000 & setsid sleep 1000 & \
         (setsid sh -c \"sleep 1000 & sleep 1000; :\" </dev/null >/dev/null 2>&1 &) ; \
         sh -c \"kill -STOP \\$\\$; :\" & sleep 1000; :";
    marking(marker, body)
}
/// How many processes [`family`] has, once all are there.
pub(crate) const FAMILY: usize = 8;

/// `body` in a shell that has `marker` in its environment from the start. No single quotes in `body`.
pub(crate) fn marking(marker: &str, body: &str) -> String {
    format!("export {marker}; exec bash -c '{body}'")
}

pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("workspace");
    fs::create_dir(&path).expect("a workspace");
    (folder, path)
}
