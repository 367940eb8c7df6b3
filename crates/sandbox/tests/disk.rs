//! Real disks that commands fill, and memory without control groups: in namespaces that are thrown away.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::process::{Command as StdCommand, Stdio};

use sandbox::Tier;

const TESTBED: &str = env!("CARGO_BIN_EXE_sandbox-testbed");
const MIB: u64 = 1 << 20;

/// Grows a file and sees nothing of what that comes to, so that it ends only when it is ended. Slowly at the end: a look that
/// is late on a busy machine must not find the disk full.
const FILL: &str = "head -c 40M /dev/zero >full; \
                    while :; do head -c 128K /dev/zero >>full 2>/dev/null; sleep 0.02; done";
/// The same without a beginning.
const GROW: &str = "while :; do head -c 512K /dev/zero >>full 2>/dev/null; sleep 0.1; done";
const TIERS: [Tier; 4] = [Tier::A, Tier::B, Tier::C, Tier::None];

/// A disk of 64 MiB.
#[derive(Debug, Clone, Copy)]
enum Made {
    Memory,
    FewFiles,
    Loop,
    /// The first one, with no control groups to be found.
    WithoutGroups,
}

impl Made {
    /// The command line that mounts it over `/mnt`.
    fn mount(self) -> &'static str {
        match self {
            Self::Memory => "mount -t tmpfs -o size=64m,mode=777 tmpfs /mnt",
            Self::FewFiles => "mount -t tmpfs -o size=64m,nr_inodes=200,mode=777 tmpfs /mnt",
            Self::WithoutGroups => {
                "mount -t tmpfs -o size=64m,mode=777 tmpfs /mnt && mount -t tmpfs tmpfs /sys/fs/cgroup"
            }
            // Its file is in memory, and goes with the namespace.
            Self::Loop => {
                "mount -t tmpfs tmpfs /mnt && truncate -s 64M /mnt/disk && mkfs.ext4 -q -m 0 /mnt/disk && \
                 mount -o loop /mnt/disk /mnt"
            }
        }
    }
}

/// Runs scripts one after the other with such a disk as workspace, and returns what came of each. `None`: there is no such
/// disk or tier here.
fn run(made: Made, tier: Tier, limits: &[(&str, u64)], scripts: &[&str]) -> Option<Vec<String>> {
    let script = format!(
        "exec 2>&1; {} || {{ echo NO DISK; exit; }}; mkdir /mnt/place && exec {TESTBED} each \"$@\"",
        made.mount()
    );
    let mut command = StdCommand::new("unshare");
    command.args(["--mount", "--propagation=private", "--", "sh", "-c", &script, "sh"]);
    command.args(scripts).env("TESTBED_TIER", tier.name()).env("TESTBED_DIRECTORY", "/mnt/place");
    command.envs(limits.iter().map(|(name, bytes)| (name, bytes.to_string())));
    let ended = command.stdin(Stdio::null()).output().expect("unshare runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    if !ended.status.success() || lines.iter().any(|line| line == "NO DISK") {
        let why = String::from_utf8_lossy(&ended.stderr);
        eprintln!("skipped, {made:?} in tier {tier}: {text}{why}");
        return None;
    }
    Some(lines)
}

/// Whether this is a machine on which nothing may be skipped.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_command_that_fills_its_disk_is_ended_and_told_why() {
    let mut shown = 0;
    let made = TIERS.map(|tier| (Made::Memory, tier)).into_iter().chain([(Made::Loop, Tier::A)]);
    for (made, tier) in made {
        let scripts = [FILL, "rm full; echo removed", "head -c 200M /dev/zero >full"];
        // The limit of the disk, not of the workspace.
        let limits = [("TESTBED_WORKSPACE_BYTES", 1 << 40)];
        let Some(lines) = run(made, tier, &limits, &scripts) else { continue };
        let case = format!("{made:?} in tier {tier}: {lines:#?}");
        let [filled, removed, done, .., burst] = &lines[..] else { panic!("{case}") };
        assert!(filled.starts_with("OverLimit [\"disk full: "), "{case}");
        assert!(filled.contains(" MiB are left, and commands leave "), "{case}");
        // Below the reserve a command may free space, since it takes none.
        assert_eq!((removed.as_str(), done.as_str()), ("removed", "Exited(0) []"), "{case}");
        // Faster than any look, perhaps: then the disk itself says so, and the result does in both cases.
        assert!(burst.contains("[\"disk full: "), "{case}");
        shown += 1;
    }
    assert!(shown > 0 || !is_root(), "root has namespaces to throw away");
}

#[test]
fn below_half_of_the_reserve_no_command_begins() {
    for tier in TIERS {
        let limits = [("TESTBED_RESERVE_BYTES", 200 * MIB)];
        let Some(lines) = run(Made::Memory, tier, &limits, &["echo ran"]) else { continue };
        let told = "commands are not run: the disk of this machine is full (64 MiB are left, and none begins below \
                    100 MiB); somebody has to free some space there, or to lower --disk-reserve";
        assert_eq!(lines, [told], "{tier}");
    }
}

#[test]
fn a_command_that_makes_too_many_files_is_ended() {
    let many = "i=0; while :; do i=$((i+1)); (: >file$i) 2>/dev/null; sleep 0.005; done";
    for tier in TIERS {
        let Some(lines) = run(Made::FewFiles, tier, &[], &[many]) else { continue };
        assert!(
            lines[0].starts_with("OverLimit [\"disk full: it has room for "),
            "{tier}: {lines:?}"
        );
    }
}

#[test]
fn a_workspace_beyond_its_limit_may_shrink_and_not_grow() {
    for tier in TIERS {
        let scripts = [
            GROW,
            // Two counts at least: it is left alone, and may delete.
            "sleep 1; echo looked",
            GROW,
            "rm full; echo x >small; sleep 0.5; echo removed",
        ];
        let limits = [("TESTBED_WORKSPACE_BYTES", 16 * MIB)];
        let Some(lines) = run(Made::Memory, tier, &limits, &scripts) else { continue };
        let case = format!("tier {tier}: {lines:#?}");
        let [filled, looked, done, grown, removed, freed] = &lines[..] else { panic!("{case}") };
        assert!(filled.starts_with("OverLimit [\"workspace full: it holds "), "{case}");
        assert!(filled.contains(", and its limit is 16 MiB; delete what is not needed"), "{case}");
        assert_eq!((looked.as_str(), done.as_str()), ("looked", "Exited(0) []"), "{case}");
        assert!(grown.starts_with("OverLimit [\"workspace full: "), "{case}");
        assert_eq!((removed.as_str(), freed.as_str()), ("removed", "Exited(0) []"), "{case}");
    }
}

#[test]
fn memory_without_control_groups_is_looked_at() {
    let eat =
        "/usr/bin/python3 -c 'import time; b = bytearray(1 << 30); time.sleep(1000)'; echo never";
    // Pages of a parent count once, however many children have them.
    let share = "/usr/bin/python3 -c 'import os, time; b = bytearray(48 << 20); \
                 [os.fork() or (time.sleep(2), os._exit(0)) for _ in range(8)]; [os.wait() for _ in range(8)]; print(\"shared\")'";
    for tier in [Tier::A, Tier::B, Tier::C] {
        let limits = [("TESTBED_MEMORY_BYTES", 192 * MIB)];
        let Some(lines) = run(Made::WithoutGroups, tier, &limits, &[eat, share]) else { continue };
        let told = "OverLimit [\"out of memory: a process was killed at the limit of 192 MiB\"]";
        assert_eq!(lines, [told, "shared", "Exited(0) []"], "{tier}");
    }
}

#[test]
fn a_file_beyond_the_largest_size_is_named() {
    for tier in [Tier::A, Tier::B, Tier::C] {
        // Sparse: it takes no space.
        let script = "exec truncate -s 5G full";
        let Some(lines) = run(Made::Memory, tier, &[], &[script]) else { continue };
        let end = lines.last().expect("a result");
        let expected = "Signaled(25) [\"a file reached 4 GiB, the most that one may have\"]";
        assert_eq!(end, expected, "{tier}: {lines:?}");
    }
}
