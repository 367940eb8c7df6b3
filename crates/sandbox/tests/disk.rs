//! Real disks that commands fill, and memory without control groups: in namespaces that are thrown away.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

mod world;

use std::process::{Command as StdCommand, Stdio};

use sandbox::Tier;

const TESTBED: &str = env!("CARGO_BIN_EXE_sandbox-testbed");
const MIB: u64 = 1 << 20;

/// Grows a file and sees nothing of what that comes to, so that it ends only when it is ended. Slowly at the end: a look that
/// is late on a busy machine must not find the disk full.
const FILL: &str = "head -c 40M /dev/zero >full; i=0; \
                    while :; do i=$((i+1)); head -c 128K /dev/zero >full$i 2>/dev/null; sleep 0.02; done";
/// The same without a beginning.
const GROW: &str =
    "i=0; while :; do i=$((i+1)); head -c 512K /dev/zero >full$$.$i 2>/dev/null; sleep 0.1; done";
const TIERS: [Tier; 4] = [Tier::A, Tier::B, Tier::C, Tier::None];

/// A disk of 64 MiB.
#[derive(Debug, Clone, Copy)]
enum Made {
    Memory,
    FewFiles,
    /// One of 64 GiB, of which nobody takes much.
    Large,
    Loop,
    /// The first one, with no control groups to be found.
    WithoutGroups,
}

impl Made {
    /// The command line that mounts it over `/mnt`.
    fn mount(self) -> &'static str {
        match self {
            Self::Memory => "mount -t tmpfs -o size=64m,mode=777 tmpfs /mnt",
            // Also the service's own folder is there: that of the machine may have less room than a file may take.
            Self::Large => "mount -t tmpfs -o size=64g,mode=777 tmpfs /mnt && export TMPDIR=/mnt",
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
    run_with(made, &format!("exec {TESTBED} each \"$@\""), tier, limits, scripts)
}

/// The same in memory, by another line of shell.
fn run_beside(
    line: &str,
    tier: Tier,
    limits: &[(&str, u64)],
    scripts: &[&str],
) -> Option<Vec<String>> {
    run_with(Made::Memory, line, tier, limits, scripts)
}

fn run_with(
    made: Made,
    line: &str,
    tier: Tier,
    limits: &[(&str, u64)],
    scripts: &[&str],
) -> Option<Vec<String>> {
    let script = format!(
        "exec 2>&1; {} || {{ echo NO DISK; exit; }}; mkdir /mnt/place && echo x >/mnt/place/old && {line}",
        made.mount()
    );
    let mut command = StdCommand::new("unshare");
    if !rustix::process::geteuid().is_root() {
        // An ordinary user mounts in a namespace of users alone.
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation=private", "--", "sh", "-c", &script, "sh"]);
    command.args(scripts).env("TESTBED_TIER", tier.name()).env("TESTBED_DIRECTORY", "/mnt/place");
    command.envs(limits.iter().map(|(name, bytes)| (name, bytes.to_string())));
    let ended = command.stdin(Stdio::null()).output().expect("unshare runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    if !ended.status.success() || lines.iter().any(|line| line == "NO DISK") {
        let why = String::from_utf8_lossy(&ended.stderr);
        match made {
            Made::Loop => eprintln!("SKIPPED, {made:?} in tier {tier}: {text}{why}"),
            Made::Memory | Made::Large | Made::FewFiles | Made::WithoutGroups => {
                world::skip(tier, &format!("{made:?}: {text}{why}"));
            }
        }
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
        let scripts = [FILL, "rm full*; echo removed", "head -c 200M /dev/zero >full"];
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

/// Finding security-3 H6: on a full disk no command of anybody began, so that nobody could delete anything.
#[test]
fn below_half_of_the_reserve_commands_only_read_and_remove() {
    for tier in [Tier::A, Tier::B, Tier::C] {
        let limits = [("TESTBED_RESERVE_BYTES", 200 * MIB)];
        let scripts = [
            "cat old",
            "echo y >new",
            "mkdir new",
            "echo y >>old",
            "rm old && ls -A && echo removed",
        ];
        let Some(lines) = run(Made::Memory, tier, &limits, &scripts) else { continue };
        let case = format!("tier {tier}: {lines:#?}");
        assert_eq!(lines[..2], ["x", "Exited(0) []"], "{case}");
        let told = " MiB are left, and commands leave 200 MiB free; until then commands here can read and delete files, and \
                    write none\"]";
        let refused: Vec<_> = lines.iter().filter(|line| line.ends_with(told)).collect();
        assert_eq!(refused.len(), 3, "{case}");
        assert_eq!(lines[lines.len() - 2..], ["removed", "Exited(0) []"], "{case}");
    }
}

#[test]
fn without_walls_no_command_begins_below_half_of_it() {
    let limits = [("TESTBED_RESERVE_BYTES", 200 * MIB)];
    if let Some(lines) = run(Made::Memory, Tier::None, &limits, &["echo ran"]) {
        // The free space is rounded down, and a file is there.
        let told = "commands are not run: the disk of this machine is full (63.9 MiB are left, and none begins below \
                    100 MiB); somebody has to free some space there, or to lower --disk-reserve";
        assert_eq!(lines, [told]);
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

/// Finding security-3 H6: 200 GiB in a second, which no watch sees in time.
#[test]
fn space_is_taken_by_writing_only() {
    for tier in [Tier::A, Tier::B, Tier::C] {
        let by_ioctl = "exec /usr/bin/python3 -c 'import fcntl\nf = open(\"g\", \"w\")\n\
                        for request in 0x4030580A, 0x40305824, 0x40305828, 0x4030582A, 0x40305839, 0x401C5820:\n \
                        try: fcntl.ioctl(f, request, bytes(48)); print(\"done\")\n \
                        except OSError as error: print(error.errno, end=\" \")'";
        let falls_back = "/usr/bin/python3 -c 'import os; os.posix_fallocate(os.open(\"h\", 66), 0, 1 << 20)' && du -k h";
        let scripts = ["fallocate -l 4M f; du -k f", by_ioctl, falls_back];
        let Some(lines) = run(Made::Memory, tier, &[], &scripts) else { continue };
        let case = format!("tier {tier}: {lines:#?}");
        assert!(lines[0].contains("not supported"), "{case}");
        assert_eq!(lines[1..3], ["0\tf", "Exited(0) []"], "{case}");
        assert!(lines[3].starts_with("95 95 95 95 95 95 "), "{case}"); // EOPNOTSUPP, each time
        assert_eq!(lines[lines.len() - 2..], ["1024\th", "Exited(0) []"], "{case}");
    }
}

/// Finding security-3 H6: others' commands were ended when one filled the disk.
#[test]
fn a_command_that_takes_nothing_outlives_a_full_disk() {
    for tier in [Tier::A, Tier::B, Tier::C] {
        let waits = "while [ ! -e stop ]; do sleep 0.1; done; echo calm";
        let beside = format!(
            "mkdir /mnt/other; TESTBED_DIRECTORY=/mnt/other {TESTBED} host '{waits}' >/mnt/other/said & \
             trap 'touch /mnt/other/stop; wait; cat /mnt/other/said' EXIT; {TESTBED} each \"$@\""
        );
        let limits = [("TESTBED_WORKSPACE_BYTES", 1 << 40)];
        let Some(lines) = run_beside(&beside, tier, &limits, &[FILL]) else { continue };
        let case = format!("tier {tier}: {lines:#?}");
        assert!(lines[0].starts_with("OverLimit [\"disk full: "), "{case}");
        assert_eq!(lines[lines.len() - 2..], ["calm", "Exited(0) []"], "{case}");
    }
}

/// Finding security-3 H6: one workspace took 90 % of the files of a disk.
#[test]
fn a_workspace_of_too_many_files_is_ended() {
    let many = "i=0; while :; do i=$((i+1)); : >file$i; done";
    for tier in TIERS {
        let limits = [("TESTBED_WORKSPACE_FILES", 500)];
        let Some(lines) = run(Made::Memory, tier, &limits, &[many]) else { continue };
        let told = "OverLimit [\"workspace full: it holds ";
        assert!(lines[0].starts_with(told) && lines[0].contains(" files and folders"), "{lines:?}");
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
            "rm full*; echo x >small; sleep 0.5; echo removed",
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

/// Finding security-3 M7: 3.75 GiB of shared pages and of memory files went on at a limit of 2 GiB.
#[test]
fn memory_that_no_process_has_alone_is_looked_at_too() {
    let shared = "import mmap, time\nm = mmap.mmap(-1, 1 << 30)\n\
                  for at in range(0, 1 << 30, 4096): m[at] = 1\ntime.sleep(1000)";
    let detached = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n\
                    a = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)\n\
                    ctypes.memset(a, 1, 16 << 20)\nlibc.shmdt(ctypes.c_void_p(a))\n\
                    print(len(open('/proc/sysvipc/shm').readlines()) - 1)";
    let memory_file = "import os\ntry: os.memfd_create('x')\nexcept OSError as error: print(error)";
    let python = |script: &str| format!("exec /usr/bin/python3 -c \"{script}\"");
    for tier in [Tier::A, Tier::B, Tier::C] {
        let limits = [("TESTBED_MEMORY_BYTES", 192 * MIB)];
        // Tier C has no System V shared memory.
        let second = if tier == Tier::C { "print(0)" } else { detached };
        let scripts = [python(shared), python(second), python(memory_file)];
        let scripts: Vec<_> = scripts.iter().map(String::as_str).collect();
        let Some(lines) = run(Made::WithoutGroups, tier, &limits, &scripts) else { continue };
        let told = "OverLimit [\"out of memory: a process was killed at the limit of 192 MiB\"]";
        let refused = "[Errno 38] Function not implemented";
        let well = "Exited(0) []";
        // An ordinary user's keeper may not let segments go with their last process: they stay, and are counted.
        let is_kept = lines.get(1).is_some_and(|left| left == "1") && tier == Tier::B;
        let left = if is_kept && !rustix::process::geteuid().is_root() { "1" } else { "0" };
        assert_eq!(lines, [told, left, well, refused, well], "{tier}");
    }
}

/// Finding security-3 M7: two cells had all the memory of the machine.
#[test]
fn cells_have_a_limit_of_memory_together() {
    let python = |script: &str| format!("exec /usr/bin/python3 -c '{script}'");
    let small = python(
        "import fcntl, os, time; b = bytearray(64 << 20); open(\"ready\", \"w\").close()\n\
         while not os.path.exists(\"taken\"): time.sleep(0.05)\n\
         fcntl.flock(open(\"held\", \"r+\"), fcntl.LOCK_EX)\nprint(\"small\")",
    );
    // The lock goes with the process, whoever ends it.
    let large = "while [ ! -e ready ]; do sleep 0.05; done; exec 9>held; flock 9; touch taken; \
                 exec /usr/bin/python3 -c 'import time; b = bytearray(400 << 20); time.sleep(1000)'";
    for tier in [Tier::A, Tier::B, Tier::C] {
        let limits = [("TESTBED_MEMORY_BYTES", 512 * MIB), ("TESTBED_ALL_CELLS_BYTES", 256 * MIB)];
        let both = format!("exec {TESTBED} both \"$@\"");
        let scripts = [small.as_str(), large];
        let Some(lines) = run_with(Made::WithoutGroups, &both, tier, &limits, &scripts) else {
            continue;
        };
        let told = "OverLimit [\"out of memory: a process was killed at the limit of 256 MiB\"]";
        assert_eq!(lines, ["small", "Exited(0) []", told], "{tier}");
    }
}

/// Finding security-3 M7, its rest: what is in the folders of all cells had no bound together.
#[test]
fn the_folders_of_all_cells_count_together() {
    // Each folder may have an eighth of the limit of its cell, and each file what is left of the workspace's disk.
    let write =
        |tens: u32| format!("for i in $(seq {tens}); do head -c 10M /dev/zero >/tmp/some$i; done");
    let idle = format!("{}; : >filled", write(20));
    let fill = format!("{idle}; sleep 1000");
    let waits = format!("while [ ! -e filled ]; do sleep 0.05; done; {}", write(10));
    let small = format!("{waits}; sleep 4; echo kept");
    // A checkout below /tmp is there too.
    let looks = "ls /tmp | grep some; echo looked";
    let both = format!("exec {TESTBED} both \"$@\"");
    let limits = [("TESTBED_MEMORY_BYTES", 2048 * MIB), ("TESTBED_ALL_CELLS_BYTES", 256 * MIB)];
    for tier in [Tier::A, Tier::B] {
        // The largest cell has a command: it is ended, and the cell with what it has in memory.
        let scripts = [fill.as_str(), &small, looks];
        let made = Made::WithoutGroups;
        let Some(lines) = run_with(made, &both, tier, &limits, &scripts) else { continue };
        let told = "OverLimit [\"out of memory: a process was killed at the limit of 256 MiB\"]";
        let well = "Exited(0) []";
        assert_eq!(lines, [told, "kept", well, "looked", well], "{tier}");
        // It has none: it is emptied.
        let scripts = [idle.as_str(), &small, looks];
        let Some(lines) = run_with(made, &both, tier, &limits, &scripts) else { continue };
        assert_eq!(lines, [well, "kept", well, "looked", well], "{tier}");
    }
}

/// The last one is of finding security-3 H6: what was left bounded no file.
#[test]
fn a_file_beyond_the_largest_size_is_named() {
    let cases = [
        (Made::Large, 1 << 40, "a file reached 4 GiB, the most that one may have\"]"),
        (Made::Memory, 16 * MIB, "workspace full: a file reached 16 MiB, as much as it might "),
        (Made::Memory, 1 << 40, "disk full: a file reached 57.5 MiB, as much as commands might "),
    ];
    for (tier, (made, most, told)) in
        [Tier::A, Tier::B, Tier::C].into_iter().flat_map(|tier| cases.map(|case| (tier, case)))
    {
        // Sparse: it takes no space.
        let script = "exec truncate -s 5G full";
        let limits = [("TESTBED_WORKSPACE_BYTES", most)];
        let Some(lines) = run(made, tier, &limits, &[script]) else { continue };
        let end = lines.last().expect("a result");
        assert!(end.starts_with(&format!("Signaled(25) [\"{told}")), "{tier}: {lines:?}");
    }
}
