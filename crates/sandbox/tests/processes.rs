//! Real processes: whatever happens, none is left.

use std::fs;
use std::path::Path;
use std::process::{Child, Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use sandbox::{
    Command, End, Environment, LocationLock, Outcome, ProcessSandbox, Sandbox, SandboxError, lock,
};
use tokio_util::sync::CancellationToken;

const TESTBED: &str = env!("CARGO_BIN_EXE_sandbox-testbed");
/// Nothing here takes as long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn sandbox() -> ProcessSandbox {
    let environment = Environment::from_vars(std::env::vars_os());
    ProcessSandbox::new(TESTBED.into(), ["supervise"], environment, std::env::temp_dir())
}

fn script(script: &str) -> Command {
    Command::shell(script, std::env::temp_dir(), PATIENCE)
}

async fn run(command: Command) -> Outcome {
    sandbox().run(command, &CancellationToken::new()).await.expect("the command runs")
}

/// Marks a script's processes by a variable, which children inherit whatever else they do.
fn marker() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("SANDBOX_TEST=m{}-{next}-", std::process::id())
}

fn marked(marker: &str) -> Vec<u32> {
    let has_marker = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(marker))
    };
    let pids = fs::read_dir("/proc").expect("/proc is there").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_marker).collect()
}

fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A stubborn family: a background job, one in a session of its own that inherits no descriptor, a daemon, one that ignores SIGTERM, one stopped.
fn family(marker: &str) -> String {
    let body = "trap \"\" TERM HUP INT; sleep 1000 & \
         setsid bash -c \"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- 10>&- 11>&- 12>&-; exec sleep 1000\" & \
         (setsid sh -c \"sleep 1000 & sleep 1000; :\" </dev/null >/dev/null 2>&1 &) ; \
         sh -c \"kill -STOP \\$\\$; :\" & sleep 1000; :";
    marking(marker, body)
}
/// How many processes [`family`] has, once all are there.
const FAMILY: usize = 8;

/// `body` in a shell that has `marker` in its environment from the start. No single quotes in `body`.
fn marking(marker: &str, body: &str) -> String {
    format!("export {marker}; exec bash -c '{body}'")
}

fn host(args: &[&str]) -> Child {
    StdCommand::new(TESTBED)
        .arg("host")
        .args(args)
        .stdin(Stdio::null())
        .spawn()
        .expect("the testbed starts")
}

#[tokio::test]
async fn the_exit_code_and_both_streams_come_back_in_order() {
    let outcome = run(script("echo one; echo two >&2; printf 'th\\0ree\\377'; exit 3")).await;
    assert_eq!(outcome.end, End::Exited(3));
    assert_eq!(outcome.output.head, "one\ntwo\nth\u{FFFD}ree\u{FFFD}");
    assert!(outcome.output.is_whole() && outcome.leftovers == 0);
}

#[tokio::test]
async fn a_signal_of_its_own_is_told_apart() {
    assert_eq!(run(script("kill -SEGV $$")).await.end, End::Signaled(11));
}

#[tokio::test]
async fn provider_credentials_are_not_in_the_environment() {
    let environment = Environment::from_vars([("OPENAI_API_KEY".into(), "sk-secret".into())]);
    let sandbox =
        ProcessSandbox::new(TESTBED.into(), ["supervise"], environment, std::env::temp_dir());
    let command = Command { env: vec![("MINE".into(), "yes".into())], ..script("env") };
    let outcome = sandbox.run(command, &CancellationToken::new()).await.unwrap();
    assert!(!outcome.output.head.contains("sk-secret"), "{}", outcome.output.head);
    assert!(
        outcome.output.head.contains("MINE=yes\n") && outcome.output.head.contains("TERM=dumb")
    );
}

#[tokio::test]
async fn at_its_deadline_a_command_is_killed_whole() {
    let marker = marker();
    let timeout = Duration::from_millis(400);
    let outcome = run(Command { timeout, ..script(&family(&marker)) }).await;
    assert_eq!((outcome.end, marked(&marker)), (End::TimedOut, vec![]));
}

#[tokio::test]
async fn a_cancelled_command_is_killed_whole() {
    let (marker, cancel) = (marker(), CancellationToken::new());
    let running = async {
        while marked(&marker).len() != FAMILY {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let sandbox = sandbox();
    let (outcome, ()) = tokio::join!(sandbox.run(script(&family(&marker)), &cancel), running);
    assert_eq!((outcome.unwrap().end, marked(&marker)), (End::Cancelled, vec![]));
}

#[tokio::test]
async fn a_dropped_run_is_killed_whole() {
    let marker = marker();
    let sandbox = sandbox();
    let cancel = CancellationToken::new();
    let running = async {
        while marked(&marker).len() != FAMILY {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = sandbox.run(script(&family(&marker)), &cancel) => panic!("it cannot end by itself"),
        () = running => {}
    }
    wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    let marker = marker();
    let outcome =
        run(script(&marking(&marker, "setsid sleep 1000 & sleep 1000 & sleep 0.1; echo done")))
            .await;
    assert_eq!((outcome.end, outcome.leftovers), (End::Exited(0), 2));
    assert_eq!((outcome.output.head.as_str(), marked(&marker)), ("done\n", vec![]));
}

#[test]
fn nothing_outlives_a_sigkilled_worker() {
    let marker = marker();
    let mut worker = host(&[&family(&marker)]);
    wait_until("the family runs", PATIENCE, || marked(&marker).len() == FAMILY);
    worker.kill().unwrap();
    wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
    worker.wait().unwrap();
}

#[tokio::test]
async fn a_command_that_stops_its_supervisor_is_killed_all_the_same() {
    let (marker, cancel) = (marker(), CancellationToken::new());
    let sandbox = sandbox();
    let stopping = marking(&marker, "kill -STOP $PPID; sleep 1000 & sleep 1000; :");
    let running = async {
        while marked(&marker).len() != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(sandbox.run(script(&stopping), &cancel), running);
    assert_eq!((outcome.unwrap().end, marked(&marker)), (End::Cancelled, vec![]));
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_ends_with_an_error() {
    let marker = marker();
    let killing = marking(&marker, "sleep 1000 & kill -KILL $PPID; sleep 1000; :");
    let outcome = sandbox().run(script(&killing), &CancellationToken::new()).await;
    assert!(matches!(outcome, Err(SandboxError::SupervisorLost)));
    assert_eq!(marked(&marker), Vec::<u32>::new());
}

#[tokio::test]
async fn large_output_is_kept_in_a_file_and_memory_is_bounded() {
    let command = Command { keep_bytes: 1000, ..script("seq 1 200000") };
    let mut output = run(command).await.output;
    assert_eq!((output.head.len(), output.tail.len()), (1000, 1000));
    assert!(output.head.starts_with("1\n2\n") && output.tail.ends_with("199999\n200000\n"));
    assert_eq!((output.line_breaks, output.lost_bytes), (200_000, 0));
    let mut all = String::new();
    std::io::Read::read_to_string(output.file.as_mut().unwrap(), &mut all).unwrap();
    assert_eq!(all.len() as u64, output.total_bytes);
    assert!(all.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=200_000));
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let cancel = CancellationToken::new();
    let missing = Command { program: "/no/such".into(), ..script("true") };
    let error = sandbox().run(missing, &cancel).await.unwrap_err().to_string();
    assert!(error.contains("/no/such") && error.contains("No such file"), "{error}");
    let nowhere = Command { directory: "/no/where".into(), ..script("true") };
    let error = sandbox().run(nowhere, &cancel).await.unwrap_err().to_string();
    assert!(error.contains("/no/where is not a directory"), "{error}");
    let long = sandbox().run(script(&"x".repeat(200_000)), &cancel).await.unwrap_err().to_string();
    assert!(long.contains("too long"), "{long}");
}

fn lock_in(directory: &Path, token: i64) -> LocationLock {
    LocationLock { path: directory.join("lock"), token }
}

#[test]
fn a_new_owner_kills_what_a_stuck_worker_left_and_the_old_one_can_start_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (lock_in(directory.path(), 1), lock_in(directory.path(), 2));
    let marker = marker();
    let mut stuck = host(&[&family(&marker), old.path.to_str().unwrap(), "1"]);
    wait_until("the family runs", PATIENCE, || marked(&marker).len() == FAMILY);
    let stuck_pid = rustix::process::Pid::from_child(&stuck);
    rustix::process::kill_process(stuck_pid, rustix::process::Signal::STOP).unwrap();
    let killed = lock::acquire_or_kill(&new, Duration::from_millis(100)).unwrap();
    assert!(killed.len() >= FAMILY, "the supervisor and all of the family but one: {killed:?}");
    assert!(!killed.contains(&i32::try_from(stuck.id()).unwrap()), "the worker itself lives");
    wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
    stuck.kill().unwrap();
    stuck.wait().unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut try_old = script("echo ran");
    try_old.lock = Some(old);
    let refused = runtime.block_on(sandbox().run(try_old, &CancellationToken::new()));
    assert!(matches!(refused, Err(SandboxError::Superseded { ours: 1, newest: 2 })));
    let mut try_new = script("echo ran");
    try_new.lock = Some(new);
    assert_eq!(runtime.block_on(run(try_new)).output.head, "ran\n");
}

#[test]
fn a_stopped_supervisor_does_not_keep_a_new_owner_out() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (lock_in(directory.path(), 1), lock_in(directory.path(), 2));
    let marker = marker();
    let stopping = marking(&marker, "kill -STOP $PPID; sleep 1000 & sleep 1000; :");
    let mut stuck = host(&[&stopping, old.path.to_str().unwrap(), "1"]);
    wait_until("it runs", PATIENCE, || marked(&marker).len() == 3);
    lock::acquire_or_kill(&new, Duration::ZERO).unwrap();
    wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}

#[tokio::test]
async fn a_descriptor_that_the_worker_inherited_reaches_no_command() {
    use rustix::fs::{Mode, OFlags};
    // Without CLOEXEC, as a shell leaves it open for what it starts.
    let open = rustix::fs::open("/etc/passwd", OFlags::RDONLY, Mode::empty()).unwrap();
    let outcome = run(script("ls -l /proc/$$/fd; echo looked")).await;
    drop(open);
    let text = outcome.output.head;
    assert!(text.ends_with("looked\n") && !text.contains("/etc/passwd"), "{text}");
}

// Finding security 18: a command inherited the lock's own descriptor, and could write a token that fences everybody.
#[tokio::test]
async fn a_command_has_no_descriptor_that_it_can_write_a_token_to() {
    let directory = tempfile::tempdir().unwrap();
    let lock = lock_in(directory.path(), 7);
    lock::acquire_or_kill(&lock, Duration::ZERO).unwrap();
    let writing = "for fd in /proc/$$/fd/*; do n=${fd##*/}; if [ $n -gt 2 ]; then readlink $fd; \
                   (printf 99999999999999999999 >&$n) 2>/dev/null; fi; done";
    let mut command = script(writing);
    command.lock = Some(lock.clone());
    let outcome = run(command).await;
    let names: Vec<_> = outcome.output.head.lines().filter(|name| name.contains("lock")).collect();
    let tools = format!("{}.tools", lock.path.display());
    assert_eq!(names, [tools.as_str()], "{}", outcome.output.head);
    lock::prove(&lock).expect("the token stands");
    drop(lock::hold(&lock).expect("and nobody is superseded"));
}

/// Finding security-3, low: a command lets go of the mark that it inherits, or takes it for itself, and nobody was found to be
/// ended.
#[test]
fn a_command_that_drops_its_mark_is_found_all_the_same() {
    for act in ["-u", "-x -n"] {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (lock_in(directory.path(), 1), lock_in(directory.path(), 2));
        let marker = marker();
        let acts = format!(
            "for fd in /proc/$$/fd/*; do n=${{fd##*/}}; [ $n -gt 2 ] && flock {act} $n; done; sleep 1000; :"
        );
        let mut stuck = host(&[&marking(&marker, &acts), old.path.to_str().unwrap(), "1"]);
        wait_until("it has acted", PATIENCE, || marked(&marker).iter().any(sleeps));
        let stuck_pid = rustix::process::Pid::from_child(&stuck);
        rustix::process::kill_process(stuck_pid, rustix::process::Signal::STOP).unwrap();
        lock::acquire_or_kill(&new, Duration::ZERO).unwrap();
        wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
        stuck.kill().unwrap();
        stuck.wait().unwrap();
    }
}

/// Whether a process is the last one of a script.
fn sleeps(pid: &u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep\x001000"))
}

/// A supervisor that its command has killed leaves what the command started, and the worker is stopped.
#[test]
fn a_new_owner_finds_the_tools_of_a_supervisor_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (lock_in(directory.path(), 1), lock_in(directory.path(), 2));
    let marker = marker();
    let go = directory.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; kill -KILL $PPID; sleep 1000; :",
        go.display()
    );
    let mut stuck = host(&[&marking(&marker, &script), old.path.to_str().unwrap(), "1"]);
    wait_until("it runs", PATIENCE, || !marked(&marker).is_empty());
    let stuck_pid = rustix::process::Pid::from_child(&stuck);
    rustix::process::kill_process(stuck_pid, rustix::process::Signal::STOP).unwrap();
    fs::write(&go, "").unwrap();
    wait_until("the supervisor is killed", PATIENCE, || marked(&marker).iter().any(sleeps));
    lock::acquire_or_kill(&new, Duration::ZERO).unwrap();
    wait_until("all are gone", PATIENCE, || marked(&marker).is_empty());
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}
