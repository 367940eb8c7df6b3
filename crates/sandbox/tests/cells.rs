//! Commands in cells: how they end, what they share, and that nothing is left whatever dies.

mod world;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{
    Cell, Command, End, Environment, FoundTier, Limit, Limits, LocationLock, Network, OutputFile,
    SandboxError, Tier, Toolchains, lock,
};
use tokio_util::sync::CancellationToken;
use world::{
    FAMILY, PATIENCE, TESTBED, above, cells, family, folder, init_of, marked, marker, marking, run,
    script, tiers, until, wait_until,
};

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).expect("killed");
}

/// Finding security-3 C2: of any tier, what a command may write goes without the service going too.
#[tokio::test]
async fn a_deep_folder_in_the_scratch_of_tier_c_is_removed() {
    // In memory: a disk takes a minute.
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let memory = memory.expect("a folder");
    let mut options = world::options(Tier::C, Limits::of_this_machine());
    options.cells.spool_directory = memory.path().to_path_buf();
    for found in tiers(&[Tier::C], Limits::of_this_machine()).await {
        let found = FoundTier { sandbox: sandbox::find_tier(&options).await.sandbox, ..found };
        let (_folder, place) = folder();
        let python = "import os\nos.chdir(os.environ['TMPDIR'])\nprint(os.getcwd())\n\
                      for i in range(18000): os.mkdir('d'); os.chdir('d')";
        let command = script("", &place, "deep");
        let command = Command {
            program: "/usr/bin/python3".into(),
            args: vec!["-c".into(), python.into()],
            // Landlock looks at each folder above, which takes a minute, and several on a busy machine.
            timeout: 4 * world::PATIENCE,
            ..command
        };
        let command = Command { cell: Cell { shown: None, ..command.cell.clone() }, ..command };
        let outcome = run(&found.sandbox, command).await;
        assert_eq!(outcome.end, End::Exited(0), "{}", outcome.output.head);
        let scratch = outcome.output.head.lines().next().expect("its folder").to_owned();
        assert!(scratch.contains("/scratch-"), "{scratch}");
        assert!(fs::symlink_metadata(&scratch).is_err(), "{scratch} is there");
    }
}

/// Finding security-3, low: a command of tier C kept its bounding set. Only CAP_SETPCAP empties it, which an ordinary user's
/// service does not have.
#[tokio::test]
async fn a_command_has_no_rights_that_it_could_gain() {
    let kept = if rustix::process::geteuid().is_root() { None } else { Some(Tier::C) };
    for found in tiers(&[Tier::A, Tier::B, Tier::C], Limits::of_this_machine()).await {
        let (_folder, place) = folder();
        let command = script("grep -E 'Cap|NoNewPrivs' /proc/self/status", &place, "rights");
        let command = Command { cell: Cell { shown: None, ..command.cell.clone() }, ..command };
        let text = run(&found.sandbox, command).await.output.head;
        let values = text.lines().filter_map(|line| line.split_once(":\t"));
        let mut held = values.filter(|(name, value)| match *name {
            "NoNewPrivs" => *value != "1",
            "CapBnd" if kept == Some(found.tier) => false,
            _ => !value.trim_matches('0').is_empty(),
        });
        assert_eq!((text.lines().count(), held.next()), (6, None), "{}: {text}", found.tier);
    }
}

/// A kernel that divides the processors between sessions gives a command as much as the whole service otherwise. Where memory
/// runs out, a command goes first.
#[tokio::test]
async fn a_command_and_its_session_come_last() {
    for found in tiers(&[Tier::A, Tier::B, Tier::C], Limits::of_this_machine()).await {
        let (_folder, place) = folder();
        let look = "nice; cat /proc/self/oom_score_adj; cat /proc/self/autogroup 2>/dev/null || echo nice 10";
        let mut seen = Vec::new();
        // The kernel takes ten such wishes a second, of all processes together.
        for _ in 0..50 {
            let command = script(look, &place, "nice");
            let command = Command { cell: Cell { shown: None, ..command.cell.clone() }, ..command };
            let text = run(&found.sandbox, command).await.output.head;
            let ends = text.lines().filter_map(|line| Some(line.rsplit(' ').next()?.to_owned()));
            seen = ends.collect();
            assert_eq!(seen[..2], ["10", "500"], "{}: {text}", found.tier);
            if seen[2] == "10" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(110)).await;
        }
        assert_eq!(seen, ["10", "500", "10"], "{}", found.tier);
    }
}

/// Finding security-3: with a folder of `PATH` below `/tmp`, which the new root covers, no cell could be made.
#[tokio::test]
async fn tools_below_tmp_are_shown_in_cells() {
    let (folder, place) = folder();
    let tools = folder.path().join("tools/bin");
    fs::create_dir_all(&tools).expect("folders");
    let program = tools.join("a-tool");
    fs::write(&program, "#!/bin/sh\necho a tool\n").expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("made one");
    let file = folder.path().join("a-file");
    fs::write(&file, "a file").expect("a file");
    for tier in [Tier::A, Tier::B] {
        let usual = world::tiers(&[tier], Limits::of_this_machine()).await;
        let mut options = world::options(tier, Limits::of_this_machine());
        let path = format!("{}:{}:/usr/bin:/bin", tools.display(), file.display());
        let vars = [("PATH".into(), path.into())];
        options.cells.environment = Environment::from_vars(vars.clone());
        options.cells.toolchains = Toolchains::find(vars);
        let found = sandbox::find_tier(&options).await;
        let expected = usual.first().map_or(found.tier, |usual| usual.tier);
        assert_eq!(found.tier, expected, "{:?}", found.refused);
        if found.tier != tier {
            continue;
        }
        let text = format!("a-tool && cat {}", file.display());
        let outcome = run(&found.sandbox, script(&text, &place, "tools")).await;
        assert_eq!(outcome.output.head, "a tool\na file", "tier {tier}");
    }
}

#[tokio::test]
async fn the_exit_code_and_both_streams_come_back_in_order() {
    for found in cells().await {
        let (_folder, place) = folder();
        let command = script("echo one; echo two >&2; printf 'th\\0ree\\377'; exit 3", &place, "a");
        let outcome = run(&found.sandbox, command).await;
        assert_eq!(outcome.end, End::Exited(3));
        assert_eq!(outcome.output.head, "one\ntwo\nth\u{FFFD}ree\u{FFFD}");
        assert_eq!((outcome.leftovers, outcome.network), (0, Network::Shut));
        let outcome = run(&found.sandbox, script("kill -SEGV $$", &place, "a")).await;
        assert_eq!(outcome.end, End::Signaled(11));
    }
}

#[tokio::test]
async fn files_of_a_command_are_its_workers_and_its_view_is_its_own() {
    for found in cells().await {
        let (folder, place) = folder();
        fs::create_dir(place.join("sub")).expect("a folder");
        let look = "id -u; pwd; hostname; echo x >made; ls /; echo $HOME $USER; cat /proc/1/comm; ls /home";
        let mut command = script(look, &place, "a");
        command.directory = place.join("sub");
        let outcome = run(&found.sandbox, command).await;
        let text = &outcome.output.head;
        assert!(text.starts_with("1000\n/workspace/sub\nsandbox\n"), "{text}");
        assert!(text.contains("/home/agent agent\n") && !text.contains("mnt"), "{text}");
        let owner = |path: &std::path::Path| fs::metadata(path).expect("there").uid();
        assert_eq!(owner(&place.join("sub/made")), owner(folder.path()), "{}", found.tier);
        let outside = Command { directory: "/usr".into(), ..script("true", &place, "a") };
        let refused = found.sandbox.run(outside, &CancellationToken::new()).await;
        assert!(matches!(refused, Err(SandboxError::NotStarted(_))));
    }
}

#[tokio::test]
async fn a_command_reads_outputs_and_changes_none() {
    for found in cells().await {
        let (_folder, place) = folder();
        let output = |name: &str, content: &'static str| OutputFile {
            name: name.into(),
            content: content.into(),
        };
        let with =
            |line: &str, name: &str, outputs| Command { outputs, ..script(line, &place, name) };
        let first = with("cat /tool-output/tool_1", "a", vec![output("tool_1", "all of it\n")]);
        assert_eq!(run(&found.sandbox, first).await.output.head, "all of it\n", "{}", found.tier);
        // A cell that is there already gets more, and keeps what it has.
        let look = "cd /tool-output; cat *; for t in 'rm -f tool_1' 'echo x >tool_1' 'touch y' 'mv tool_1 z' 'chmod 777 .'; do \
                    sh -c \"$t\" 2>/dev/null && echo \"it could $t\"; done; ls -A";
        let second = run(&found.sandbox, with(look, "a", vec![output("tool_2", "two\n")])).await;
        assert_eq!(second.output.head, "all of it\ntwo\ntool_1\ntool_2\n", "{}", found.tier);
        let other = run(&found.sandbox, with("ls -A /tool-output", "b", Vec::new())).await;
        assert_eq!((other.end, other.output.head.as_str()), (End::Exited(0), ""));
        assert!(found.sandbox.shows_outputs());
    }
}

#[tokio::test]
async fn a_cells_commands_share_its_tmp_and_loopback_alone() {
    for found in cells().await {
        let (_folder, place) = folder();
        let first = run(&found.sandbox, script("echo shared >/tmp/x; echo y >~/y", &place, "a"));
        assert_eq!(first.await.end, End::Exited(0));
        let (server, client) = (
            "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 7777)); \
             open(\"/tmp/up\", \"w\").close(); s.accept()[0].sendall(b\"hello\")'",
            "while [ ! -e /tmp/up ]; do sleep 0.01; done; exec 3<>/dev/tcp/127.0.0.1/7777; cat <&3; cat /tmp/x ~/y",
        );
        let (served, asked) = tokio::join!(
            run(&found.sandbox, script(server, &place, "a")),
            run(&found.sandbox, script(client, &place, "a")),
        );
        assert_eq!(served.end, End::Exited(0), "{}", served.output.head);
        assert_eq!(asked.output.head, "helloshared\ny\n");
        let other = run(&found.sandbox, script("cat /tmp/x ~/y; ls -A /tmp", &place, "b")).await;
        assert!(!other.output.head.contains("shared\n"), "{}", other.output.head);
    }
}

#[tokio::test]
async fn at_its_deadline_and_when_cancelled_a_command_is_killed_whole() {
    for found in cells().await {
        let (_folder, place) = folder();
        let mark = marker();
        let timeout = Duration::from_millis(400);
        let command = Command { timeout, ..script(&family(&mark), &place, "a") };
        let outcome = run(&found.sandbox, command).await;
        assert_eq!((outcome.end, marked(&mark)), (End::TimedOut, vec![]));

        let (mark, cancel) = (marker(), CancellationToken::new());
        let running = async {
            until("the family runs", || marked(&mark).len() == FAMILY).await;
            cancel.cancel();
        };
        let command = script(&family(&mark), &place, "a");
        let (outcome, ()) = tokio::join!(found.sandbox.run(command, &cancel), running);
        assert_eq!((outcome.expect("ended").end, marked(&mark)), (End::Cancelled, vec![]));

        let (mark, cancel) = (marker(), CancellationToken::new());
        tokio::select! {
            _ = found.sandbox.run(script(&family(&mark), &place, "a"), &cancel) => panic!("too early"),
            () = until("the family runs", || marked(&mark).len() == FAMILY) => {}
        }
        until("a dropped run is gone", || marked(&mark).is_empty()).await;
    }
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    for found in cells().await {
        let (_folder, place) = folder();
        let mark = marker();
        let body = marking(&mark, "setsid sleep 1000 & sleep 1000 & sleep 0.1; echo done");
        let outcome = run(&found.sandbox, script(&body, &place, "a")).await;
        assert_eq!((outcome.end, outcome.leftovers), (End::Exited(0), 2));
        assert_eq!((outcome.output.head.as_str(), marked(&mark)), ("done\n", vec![]));
    }
}

#[tokio::test]
async fn hundreds_of_stopped_daemons_are_gone_with_their_command() {
    for found in cells().await {
        let (folder, place) = folder();
        let lock = LocationLock { path: folder.path().join("lock"), token: 1 };
        let mark = marker();
        let body = marking(
            &mark,
            "for i in $(seq 500); do (setsid sh -c \"kill -STOP \\$\\$; :\" </dev/null >/dev/null 2>&1 &) ; done; \
             sleep 1000; :",
        );
        let cancel = CancellationToken::new();
        let running = async {
            until("they are stopped", || marked(&mark).len() >= 500).await;
            let (lock, mark) = (lock.clone(), mark.clone());
            let freed = tokio::task::spawn_blocking(move || {
                free_only_when_nothing_is_left(&lock, &mark);
            });
            cancel.cancel();
            freed.await.expect("it is free");
        };
        let mut command = script(&body, &place, "a");
        command.lock = Some(lock.clone());
        let (outcome, ()) = tokio::join!(found.sandbox.run(command, &cancel), running);
        assert_eq!((outcome.expect("ended").end, marked(&mark)), (End::Cancelled, vec![]));
    }
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    for found in cells().await {
        let (folder, place) = folder();
        let cancel = CancellationToken::new();
        let told = async |command| {
            let refused = found.sandbox.run(command, &cancel).await;
            refused.expect_err("it cannot start").to_string()
        };
        let missing = Command { program: "/no/such".into(), ..script("true", &place, "a") };
        let error = told(missing).await;
        assert!(error.contains("/no/such") && error.contains("No such file"), "{error}");
        let error = told(script("true", &folder.path().join("nowhere"), "b")).await;
        assert!(error.contains("nowhere is not a directory"), "{error}");
        let error = told(script(&"x".repeat(200_000), &place, "a")).await;
        assert!(error.contains("too long"), "{error}");
        let mut system = script("true", std::path::Path::new("/usr"), "c");
        system.cell.shown = None;
        let error = told(system).await;
        assert!(error.contains("choose a project's directory"), "{error}");
        let fine = run(&found.sandbox, script("echo fine", &place, "a")).await;
        assert_eq!(fine.output.head, "fine\n", "a refused command harms no cell");
    }
}

/// Whether control groups limit the commands of a cell.
fn has_groups(found: &FoundTier) -> bool {
    found.tier >= Tier::B && !found.weaker.iter().any(|why| why.starts_with("no control groups"))
}

#[tokio::test]
async fn memory_beyond_the_limit_ends_the_process_and_says_so() {
    let limits = Limits { memory_bytes: 128 << 20, processes: 64, ..Limits::of_this_machine() };
    for found in tiers(&[Tier::A, Tier::B, Tier::C], limits).await {
        let (_folder, place) = folder();
        let eat =
            "exec /usr/bin/python3 -c 'import time; b = bytearray(1 << 30); time.sleep(1000)'";
        let outcome = run(&found.sandbox, script(eat, &place, "a")).await;
        let end = if has_groups(&found) { End::Signaled(9) } else { End::OverLimit };
        assert_eq!(outcome.end, end, "{}: {}", found.tier, outcome.output.head);
        assert_eq!(outcome.limits, [Limit::Memory(limits.memory_bytes)]);
        let outcome = run(&found.sandbox, script("echo fine", &place, "a")).await;
        assert_eq!((outcome.output.head.as_str(), outcome.limits.len()), ("fine\n", 0));
    }
}

#[tokio::test]
async fn a_fork_bomb_and_a_full_tmp_stay_in_their_cell() {
    let limits = Limits { memory_bytes: 64 << 20, processes: 64, ..Limits::of_this_machine() };
    for found in tiers(&[Tier::A, Tier::B], limits).await {
        let (_folder, place) = folder();
        let mark = marker();
        let bomb = marking(&mark, "bomb() { bomb | bomb & }; bomb; sleep 1000; :");
        let (cancel, most) = (CancellationToken::new(), std::sync::atomic::AtomicUsize::new(0));
        let watching = async {
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                most.fetch_max(marked(&mark).len(), std::sync::atomic::Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            cancel.cancel();
        };
        let command = script(&bomb, &place, "a");
        let (outcome, ()) = tokio::join!(found.sandbox.run(command, &cancel), watching);
        let outcome = outcome.expect("ended");
        assert_eq!(marked(&mark), Vec::<u32>::new());
        let most = most.into_inner();
        let is_root = rustix::process::geteuid().is_root();
        let limited = has_groups(&found);
        let told = outcome.limits.contains(&Limit::Processes(64));
        assert_eq!((outcome.end, told), (End::Cancelled, limited), "{}", found.tier);
        // The kernel counts no processes of root by user: then only control groups do.
        if found.tier == Tier::A || !is_root || limited {
            assert!(most <= 64, "{}: {most} processes", found.tier);
        } else {
            eprintln!("SKIPPED, processes of tier {}: {:?}", found.tier, found.weaker);
        }
        let fill = "head -c 100000000 /dev/zero >/tmp/full; echo $?; echo x >ok && cat ok";
        let outcome = run(&found.sandbox, script(fill, &place, "b")).await;
        assert!(outcome.output.head.contains("No space left"), "{}", outcome.output.head);
        assert!(outcome.output.head.ends_with("1\nx\n"), "{}", outcome.output.head);
        assert!(outcome.limits.iter().any(|it| matches!(it, Limit::Scratch(_))), "{outcome:?}");
    }
}

fn host(tier: Tier, directory: &std::path::Path, args: &[&str]) -> Child {
    StdCommand::new(TESTBED)
        .arg("host")
        .args(args)
        .env("TESTBED_TIER", tier.name())
        .env("TESTBED_DIRECTORY", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the testbed starts")
}

/// Waits until the lock of tools is free, and sees that nothing is left then.
fn free_only_when_nothing_is_left(lock: &LocationLock, mark: &str) {
    let tools = File::open(format!("{}.tools", lock.path.display())).expect("the lock's file");
    wait_until("the lock is free", || {
        flock(&tools, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    assert_eq!(marked(mark), Vec::<u32>::new(), "the lock was free too early");
}

/// The control groups of a keeper.
fn groups_of(keeper: u32) -> String {
    let name = format!("opencode-cloud-{keeper}");
    let found = StdCommand::new("find").args(["/sys/fs/cgroup", "-name", &name]).output();
    String::from_utf8_lossy(&found.expect("find runs").stdout).into_owned()
}

#[tokio::test]
async fn nothing_outlives_a_killed_worker_keeper_or_init() {
    for found in cells().await {
        for victim in ["worker", "keeper", "init"] {
            let (folder, place) = folder();
            let lock = LocationLock { path: folder.path().join("lock"), token: 1 };
            let mark = marker();
            let mut worker =
                host(found.tier, &place, &[&family(&mark), lock.path.to_str().expect("text"), "1"]);
            wait_until("the family runs", || marked(&mark).len() == FAMILY);
            let one = *marked(&mark).iter().min().expect("one of them");
            let mut killed: Option<u32> = None;
            match victim {
                "worker" => worker.kill().expect("killed"),
                "keeper" => {
                    let init = init_of(one).expect("an init");
                    let keeper = std::fs::read_to_string(format!("/proc/{init}/stat"));
                    let keeper = keeper.expect("its stat");
                    let keeper = keeper
                        .rsplit_once(')')
                        .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
                    killed = keeper;
                    kill(keeper.expect("a keeper"));
                }
                _ => kill(init_of(one).expect("an init")),
            }
            free_only_when_nothing_is_left(&lock, &mark);
            if let Some(keeper) = killed {
                wait_until("its control groups are gone", || groups_of(keeper).is_empty());
            }
            let ended = worker.wait_with_output().expect("it ends");
            let told = String::from_utf8_lossy(&ended.stdout).into_owned();
            match victim {
                "worker" => assert!(!ended.status.success()),
                "keeper" => assert!(told.contains("without a report"), "{told}"),
                _ => assert!(told.contains("Signaled(9)"), "{told}"),
            }
        }
    }
}

#[tokio::test]
async fn a_new_owner_kills_what_a_stuck_worker_left() {
    for found in cells().await {
        let (folder, place) = folder();
        let (old, new) = (
            LocationLock { path: folder.path().join("lock"), token: 1 },
            LocationLock { path: folder.path().join("lock"), token: 2 },
        );
        let mark = marker();
        let mut stuck =
            host(found.tier, &place, &[&family(&mark), old.path.to_str().expect("text"), "1"]);
        wait_until("the family runs", || marked(&mark).len() == FAMILY);
        let one = *marked(&mark).iter().min().expect("one of them");
        let launcher = above(one, "oc-launcher").expect("a launcher");
        let pid = Pid::from_child(&stuck);
        kill_process(pid, Signal::STOP).expect("stopped");
        let killed = lock::acquire_or_kill(&new, Duration::from_millis(100)).expect("taken over");
        assert!(
            !killed.is_empty() && !killed.contains(&i32::try_from(launcher).expect("a number"))
        );
        assert_eq!(marked(&mark), Vec::<u32>::new());
        stuck.kill().expect("killed");
        stuck.wait().expect("it ends");
        wait_until("its launcher ends", || {
            !fs::exists(format!("/proc/{launcher}")).expect("known")
        });

        let mut try_old = script("echo ran", &place, "a");
        try_old.lock = Some(old);
        let refused = found.sandbox.run(try_old, &CancellationToken::new()).await;
        assert!(matches!(refused, Err(SandboxError::Superseded { ours: 1, newest: 2 })));
        let mut try_new = script("echo ran; ls -l /proc/self/fd; ls /proc/1/fd", &place, "a");
        try_new.lock = Some(new.clone());
        let outcome = run(&found.sandbox, try_new).await;
        assert!(outcome.output.head.starts_with("ran\n"), "{}", outcome.output.head);
        // Finding security 18: a command has no descriptor of the lock at all.
        assert!(!outcome.output.head.contains("lock"), "{}", outcome.output.head);
        drop(lock::hold(&new).expect("an idle cell holds nothing"));
        assert!(lock::acquire_or_kill(&new, Duration::ZERO).expect("free").is_empty());
    }
}

#[tokio::test]
async fn a_keeper_that_is_lost_is_replaced_for_the_next_command() {
    for found in cells().await {
        let (_folder, place) = folder();
        let mark = marker();
        let killing = async {
            until("it runs", || !marked(&mark).is_empty()).await;
            let one = marked(&mark)[0];
            kill(above(one, "oc-launcher").expect("a launcher"));
            kill(init_of(one).expect("an init"));
        };
        let body = marking(&mark, "sleep 1000; :");
        let (outcome, ()) = tokio::join!(run(&found.sandbox, script(&body, &place, "a")), killing);
        assert_eq!(outcome.end, End::Signaled(9));
        // The old cell still has its keeper; a new one needs a new launcher.
        for name in ["a", "b"] {
            let outcome = run(&found.sandbox, script("echo fine", &place, name)).await;
            assert_eq!(outcome.output.head, "fine\n", "{name}");
        }
    }
}

#[tokio::test]
async fn gits_own_files_of_a_checkout_are_read_only() {
    for found in cells().await {
        let (_folder, place) = folder();
        for sub in [".git/hooks", ".git/objects"] {
            fs::create_dir_all(place.join(sub)).expect("a folder");
        }
        fs::write(place.join(".git/config"), "[core]\n").expect("a file");
        let cell = |protect| Cell {
            protect,
            workspace: Some(place.clone()),
            name: format!("{protect}"),
            ..Cell::default()
        };
        let attacks = "echo x >.git/hooks/pre-commit && echo HOOK; echo x >>.git/config && echo CONFIG; \
                       mv .git .gone && echo MOVED; rm -rf .git/hooks && echo REMOVED; \
                       echo x >.git/objects/x && echo object";
        let command = script(attacks, &place, "a");
        let outcome = run(&found.sandbox, Command { cell: cell(true), ..command.clone() }).await;
        let text = outcome.output.head;
        for word in ["HOOK", "CONFIG", "MOVED"] {
            assert!(text.lines().all(|line| line != word), "{word}: {text}");
        }
        assert!(text.ends_with("object\n"), "{text}");
        // Only a link to it was removed.
        let hooks = fs::read_dir(place.join(".git/hooks")).expect("it is there");
        assert_eq!(hooks.count(), 0);
        assert_eq!(fs::read_to_string(place.join(".git/config")).expect("a file"), "[core]\n");
        assert!(place.join(".git/objects/x").exists());
        // Unprotected, each of them works: the attacks are real.
        let outcome = run(&found.sandbox, Command { cell: cell(false), ..command }).await;
        assert!(
            outcome.output.head.starts_with("HOOK\nCONFIG\nMOVED\n"),
            "{}",
            outcome.output.head
        );
    }
}

#[tokio::test]
async fn a_toolchain_works_and_is_read_only() {
    for found in cells().await {
        let (_folder, place) = folder();
        fs::write(place.join("a.c"), "#include <stdio.h>\nint main(){puts(\"hi\");}\n")
            .expect("a file");
        let build = "cc a.c -o a && ./a && git init -q . && git add a.c && \
                     git -c user.name=a -c user.email=a@b commit -qm one && git log --oneline | wc -l; \
                     python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'; \
                     touch /usr/x 2>/dev/null || echo no";
        let command = Command { timeout: PATIENCE, ..script(build, &place, "a") };
        let outcome = run(&found.sandbox, command).await;
        assert_eq!(outcome.output.head, "hi\n1\n[1, 2]\nno\n", "{}", found.tier);
    }
}
