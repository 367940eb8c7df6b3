//! The attacks of `probes.py`: none gets through in a sandbox, and each does outside, as the user whom the kernel grants it,
//! in namespaces that are thrown away. A probe that never gets through would prove nothing.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

mod world;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as StdCommand, Stdio};

use sandbox::{Command, FoundTier, Limits, Tier};
use tokio_util::sync::CancellationToken;
use world::{script, tiers};

const PYTHON: &str = "/usr/bin/python3";
const PROBES: &str = include_str!("probes.py");

/// An ordinary user, for probes outside.
const NOBODY_ELSE: u32 = 4242;

/// Granted to nobody by the kernels or machines that lack something; each with the reason.
const MAY_BE_MISSING: [(&str, &str); 39] = [
    ("ports", "a kernel that gives no program ports"),
    ("all_ports", "a kernel that gives no program ports"),
    ("be_killed_last", "a machine whose root may not raise limits"),
    ("raise_a_limit", "a machine whose root may not raise limits"),
    ("calls_of_x32", "a kernel without x32"),
    ("calls_of_the_old_architecture", "a kernel without 32 bits"),
    ("calls_that_are_new", "a kernel before 6.17"),
    ("core_of_the_kernel", "a kernel without /proc/kcore"),
    ("insert_a_module", "a kernel without modules"),
    ("remove_a_module", "a kernel without modules"),
    ("set_modprobe", "a kernel without modules"),
    ("load_a_kernel", "a kernel without kexec"),
    ("load_a_kernel_file", "a kernel without kexec"),
    ("open_memory_device", "a machine without the device"),
    ("open_port_device", "a machine without the device"),
    ("open_clock_device", "a machine without the device"),
    ("open_mapper_control", "a machine without the device"),
    ("open_kvm_device", "a machine without the device"),
    ("socket_bluetooth", "a kernel without Bluetooth"),
    ("socket_sctp", "a kernel without SCTP"),
    ("socket_ping", "a system that lets no group ping"),
    ("way_to_metadata", "a machine without a network"),
    ("way_to_the_internet", "a machine without a network"),
    ("other_interfaces", "a machine without a network"),
    ("socket_multipath", "a kernel without MPTCP"),
    ("socket_vsock", "a kernel without vsock"),
    ("socket_crypto", "a kernel without AF_ALG"),
    ("io_uring", "a kernel or a setting without io_uring"),
    ("disks", "a container without disks"),
    ("open_sysrq", "a kernel without magic keys"),
    ("load_a_module", "a kernel without modules"),
    ("userfaultfd", "a kernel that keeps it for root"),
    ("unshare_user", "a system that keeps user namespaces for some"),
    ("clone_into_a_user_namespace", "a system that keeps user namespaces for some"),
    ("clone3_into_a_user_namespace", "a system that keeps user namespaces for some"),
    ("trace_others", "a kernel whose Yama lets parents trace alone"),
    ("read_memory_of_others", "a kernel whose Yama lets parents trace alone"),
    ("descriptor_from_others", "a kernel whose Yama lets parents trace alone"),
    ("memory_of_others", "a kernel whose Yama lets parents trace alone"),
];

/// The probes that tier C leaves open: it has no namespaces, so that the machine's processes are seen, and what a folder holds is not hidden
/// from `stat`.
const OPEN_IN_C: [&str; 12] = [
    "sentinel_is_seen",
    "kernel_symbols",
    "kernel_command_line",
    "disk_statistics",
    "keys_of_the_kernel",
    "users_of_keys",
    "timers_of_the_kernel",
    // Landlock knows no rights for these, and a filter sees no paths.
    "look_outside",
    "watch_outside",
    "mode_outside",
    "times_outside",
    "attribute_outside",
];

/// In tier B the init of a command has the command's user. It is all that the command can see, and its end is the command's.
const OPEN_IN_B: [&str; 1] = ["limits_of_others"];

/// The sentinels beside the workspace, which must not be reached.
struct Sentinels {
    _folder: tempfile::TempDir,
    out: PathBuf,
    port: u16,
    name: String,
    key: u32,
    process: Child,
    shared: Child,
    _unix: [UnixListener; 2],
    _datagrams: [UnixDatagram; 2],
}

/// Makes shared memory, semaphores and a queue for everybody, and removes them at the end of its input.
const SHARED: &str = r#"
import ctypes, sys
libc, key, flags = ctypes.CDLL(None), int(sys.argv[1]), 0o1666
made = [libc.shmget(key, 4096, flags), libc.semget(key, 1, flags), libc.msgget(key, flags)]
print(*made, flush=True)
sys.stdin.read()
libc.shmctl(made[0], 0, None); libc.semctl(made[1], 0, 0); libc.msgctl(made[2], 0, None)
"#;

impl Sentinels {
    fn set_up(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        fs::create_dir(&out).expect("a folder");
        for path in [folder.path(), &out] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("opened");
        }
        fs::write(out.join("secret"), "secret").expect("a file");
        fs::write(out.join("own"), "x").expect("a file");
        if rustix::process::geteuid().is_root() {
            chown(out.join("own"), Some(NOBODY_ELSE), Some(NOBODY_ELSE)).expect("given away");
        }
        for name in ["victim", "lock", "program"] {
            fs::write(out.join(name), "#!/bin/sh\n").expect("a file");
            fs::set_permissions(out.join(name), fs::Permissions::from_mode(0o777)).expect("opened");
        }
        // Its own, since tests of other tiers run at the same time.
        let key = 0x0C00_0000 + std::process::id() * 4 + u32::try_from(name.len()).expect("short");
        let mut shared = StdCommand::new(PYTHON)
            .args(["-c", SHARED, &key.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        let mut made = String::new();
        let output = shared.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut made).expect("a line");
        assert!(!made.contains('-'), "{made}");
        let name = format!("probe-{name}-{}", std::process::id());
        let datagrams = SocketAddr::from_abstract_name(format!("{name}-datagrams"));
        let datagrams = [
            UnixDatagram::bind_addr(&datagrams.expect("a name")).expect("a socket"),
            UnixDatagram::bind(out.join("datagrams")).expect("a socket"),
        ];
        let opened = fs::Permissions::from_mode(0o777);
        fs::set_permissions(out.join("datagrams"), opened).expect("opened");
        let by_name = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixListener::bind_addr(&by_name).expect("a socket");
        let by_path = UnixListener::bind(out.join("socket")).expect("a socket");
        fs::set_permissions(out.join("socket"), fs::Permissions::from_mode(0o777)).expect("opened");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = tcp.local_addr().expect("an address").port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).expect("the same port");
        std::thread::spawn(move || {
            for connection in tcp.incoming().flatten() {
                let _gone = (&connection).write_all(b"reached");
            }
        });
        std::thread::spawn(move || {
            while let Ok((_, from)) = udp.recv_from(&mut [0]) {
                let _gone = udp.send_to(b"reached", from);
            }
        });
        let process = StdCommand::new("sleep")
            .arg("987654")
            .env("PROBE_SENTINEL", "1")
            .spawn()
            .expect("a sentinel");
        let (_folder, _unix, _datagrams) = (folder, [by_name, by_path], datagrams);
        Self { _folder, out, port, name, key, process, shared, _unix, _datagrams }
    }

    /// A new workspace.
    fn workspace(&self, name: &str) -> PathBuf {
        let place = self.out.join(format!("workspace-{name}"));
        fs::create_dir(&place).expect("a folder");
        fs::write(place.join("probes.py"), PROBES).expect("a file");
        place
    }

    fn variables(&self) -> [(&'static str, String); 5] {
        let (out, key) = (self.out.display().to_string(), self.key.to_string());
        let port = self.port.to_string();
        [
            ("OUT", out),
            ("PORT", port),
            ("NAME", self.name.clone()),
            ("KEY", key),
            ("SHOWN", shown()),
        ]
    }
}

/// The folders of the root on the way to what a cell shows: tools and the clone itself, as this environment names them.
fn shown() -> String {
    let values = std::env::vars_os().map(|(_, value)| value.to_string_lossy().into_owned());
    let paths: Vec<_> =
        values.flat_map(|it| it.split(':').map(str::to_owned).collect::<Vec<_>>()).collect();
    let tops = paths.iter().filter_map(|path| path.strip_prefix('/')?.split('/').next());
    tops.filter(|top| !top.contains(' ')).collect::<Vec<_>>().join(" ")
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        drop(self.shared.stdin.take());
        let _gone = self.process.kill();
        let _reaped = (self.process.wait(), self.shared.wait());
    }
}

/// Name and right of each probe.
fn probes() -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("probes.py");
    fs::write(&file, PROBES).expect("a file");
    let listed = StdCommand::new(PYTHON).arg(file).arg("--list").output().expect("python runs");
    let text = String::from_utf8(listed.stdout).expect("text");
    let pair = |line: &str| line.split_once(' ').map(|(name, right)| (name.into(), right.into()));
    let found: Vec<_> = text.lines().filter_map(pair).collect();
    assert!(found.len() >= 150, "{}", String::from_utf8_lossy(&listed.stderr));
    found
}

async fn try_all(found: &FoundTier, sentinels: &Sentinels) -> Vec<String> {
    let names = probes().into_iter().map(|(name, _)| name).collect();
    try_some(found, sentinels, names).await
}

async fn try_some(found: &FoundTier, sentinels: &Sentinels, names: Vec<String>) -> Vec<String> {
    let never = CancellationToken::new();
    let mut through = Vec::new();
    for name in names {
        let place = sentinels.workspace(&name);
        let line = format!("exec {PYTHON} probes.py {name} 2>&1");
        let mut command = script(&line, &place, &name);
        if found.tier == Tier::C {
            command.cell.shown = None;
        }
        let env = sentinels.variables().map(|(name, value)| (name.into(), value.into()));
        let command = Command { env: env.into(), ..command };
        let outcome = found.sandbox.run(command, &never).await.expect("it runs");
        let text = outcome.output.head;
        if text.ends_with("THROUGH\n") {
            through.push(name);
        } else if !text.ends_with("HELD\n") {
            // Broken, which shows nothing.
            through.push(format!("{name}: {text}"));
        }
    }
    through
}

async fn none_gets_through(tier: Tier, but: &[&str]) {
    if !Path::new(PYTHON).exists() {
        return world::skip(tier, &format!("there is no {PYTHON}"));
    }
    for found in tiers(&[tier], Limits::of_this_machine()).await {
        let sentinels = Sentinels::set_up(tier.name());
        let through = try_all(&found, &sentinels).await;
        let through: Vec<_> = through.iter().filter(|name| !but.contains(&name.as_str())).collect();
        assert!(through.is_empty(), "tier {tier}: {through:?}");
    }
}

#[tokio::test]
async fn no_probe_gets_through_in_tier_a() {
    none_gets_through(Tier::A, &[]).await;
}

#[tokio::test]
async fn no_probe_gets_through_in_tier_b() {
    none_gets_through(Tier::B, &OPEN_IN_B).await;
}

#[tokio::test]
async fn tier_c_holds_all_but_what_it_names() {
    none_gets_through(Tier::C, &OPEN_IN_C).await;
}

/// Probes that get through behind an older landlock, each with the first ABI that holds them, and a word of the sentence that
/// names them.
const OPEN_BELOW: [(&str, i32, &str); 3] = [
    ("truncate_outside", 3, "cut to nothing"),
    ("signal_others", 6, "sent signals"),
    ("signal_by_descriptor", 6, "sent signals"),
];

#[tokio::test]
async fn an_older_landlock_is_used_and_its_doors_are_named() {
    if !Path::new(PYTHON).exists() {
        return world::skip(Tier::C, &format!("there is no {PYTHON}"));
    }
    for abi in 1..=5 {
        let mut options = world::options(Tier::C, Limits::of_this_machine());
        options.landlock_at_most = Some(abi);
        let found = sandbox::find_tier(&options).await;
        if found.tier != Tier::C {
            world::skip(Tier::C, &format!("ABI {abi}: {:?}", found.refused));
            continue;
        }
        if sandbox::landlock_abi() < 6 {
            eprintln!("SKIPPED, ABI {abi}: this kernel's own is older");
            continue;
        }
        let sentinels = Sentinels::set_up(&format!("abi-{abi}"));
        // All of them behind the oldest one; the others differ from it in what the list has.
        let through = if abi == 1 {
            try_all(&found, &sentinels).await
        } else {
            let names = OPEN_BELOW.iter().map(|(name, ..)| (*name).to_owned());
            let more = ["read_outside", "write_outside", "list_outside", "memory_of_others"];
            let names = names.chain(more.map(str::to_owned)).collect();
            try_some(&found, &sentinels, names).await
        };
        let told = found.weaker.join("; ");
        assert!(told.contains(&format!("landlock is of ABI {abi}: ")), "{told}");
        for (name, shut, word) in OPEN_BELOW {
            assert_eq!(through.iter().any(|it| it == name), abi < shut, "{name}, ABI {abi}");
            assert_eq!(told.contains(word), abi < shut, "{word}, ABI {abi}: {told}");
        }
        let known = |name: &&String| {
            let below = OPEN_BELOW.iter().any(|(open, shut, _)| open == name && abi < *shut);
            !below && !OPEN_IN_C.contains(&name.as_str())
        };
        let through: Vec<_> = through.iter().filter(known).collect();
        assert!(through.is_empty(), "ABI {abi}: {through:?}");
    }
}

/// A probe outside: in new namespaces of mounts and processes, with a sentinel of the same user beside it.
fn outside(sentinels: &Sentinels, name: &str, right: &str) -> String {
    let place = sentinels.workspace(name);
    let script = format!(
        "PROBE_SENTINEL=1 sleep 987654 9<&- & exec 9</dev/null; timeout -k 1 30 {PYTHON} probes.py {name}; kill $!"
    );
    let mut command = StdCommand::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    if right == "root" {
        // In a network of its own, so that nothing of the machine's is switched off.
        command.args(["--net", "--uts", "--ipc"]);
    } else {
        chown(&place, Some(NOBODY_ELSE), Some(NOBODY_ELSE)).expect("given away");
        let ids = [format!("--reuid={NOBODY_ELSE}"), format!("--regid={NOBODY_ELSE}")];
        command.arg("setpriv").args(ids).args(["--clear-groups", "--bounding-set=-all"]);
    }
    let mut child = command
        .args(["bash", "-c", &script])
        .current_dir(&place)
        .envs(sentinels.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut text = String::new();
    child.stdout.take().expect("its output").read_to_string(&mut text).expect("text");
    child.wait().expect("it ends");
    text
}

#[test]
fn each_probe_gets_through_outside() {
    if !rustix::process::geteuid().is_root() || !Path::new(PYTHON).exists() {
        return world::skip(Tier::A, &format!("namespaces need root, and the probes {PYTHON}"));
    }
    let namespaces = StdCommand::new("unshare")
        .args(["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc", "true"])
        .output()
        .expect("unshare runs");
    if !namespaces.status.success() {
        let why = String::from_utf8_lossy(&namespaces.stderr).into_owned();
        return world::skip(Tier::A, &format!("root has no namespaces to throw away here: {why}"));
    }
    let sentinels = Sentinels::set_up("off");
    let mut held = Vec::new();
    for (name, right) in probes() {
        let text = outside(&sentinels, &name, &right);
        if text.ends_with("THROUGH\n") {
            continue;
        }
        match MAY_BE_MISSING.iter().find(|(missing, _)| *missing == name) {
            Some((_, why)) => eprintln!("SKIPPED, {name}: {why}"),
            None => held.push(format!("{name}: {}", text.trim())),
        }
    }
    assert!(held.is_empty(), "{held:#?}");
}
