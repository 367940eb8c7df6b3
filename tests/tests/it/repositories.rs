//! Repositories in and out: from somebody's machine and back, and on workers with disks of their own that die in the middle.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use journeys::{Api, Cluster, Up, World, ancestors, eventually, oracle, processes_naming};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};
use testkit::{GitServer, git};

/// The files of a repository whose checkout takes a moment.
const MANY: u32 = 3_000;

/// Every file below a folder with its content.
fn all(at: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(at)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(all(&path)?);
        } else {
            found.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn a_dirty_repository_goes_out_and_its_work_comes_back() -> Result<()> {
    let world = World::new().await?;
    let shop = world.workspace("shop")?;
    git(&shop, &["init", "-q", "-b", "main"])?;
    fs::write(shop.join("prices"), "apple 1\nbread 2\ncheese 3\ndates 4\neggs 5\nflour 6\n")?;
    git(&shop, &["add", "-A"])?;
    git(&shop, &["commit", "-q", "-m", "prices"])?;
    git(&shop, &["remote", "add", "elsewhere", "https://h.org/other"])?;
    fs::write(shop.join("prices"), "apple 10\nbread 2\ncheese 3\ndates 4\neggs 5\nflour 6\n")?;
    fs::write(shop.join("notes"), "mine\n")?;
    fs::write(shop.join(".env"), "KEY=1\n")?;

    let server = GitServer::start()?;
    let (allow, ca) = (format!("--egress-allow={}", server.host()), server.authority());
    let up = world.up_with(&[&allow, &format!("--egress-ca={}", ca.display())]).await?;
    a_day_with_an_address(&world, &up, &server).await?;
    let cli = up.cli()?.within(&shop);
    let before = all(&shop)?;
    let shown = cli.run(&["run", "--here", "--dry-run", "say 1 word"]).await?;
    ensure!(shown.code == Some(0) && shown.err.contains("nothing was sent"), "{shown:?}");
    let prompt = "run `git status --porcelain && sed -i s/6$/60/ prices && git commit -qam theirs && echo x >made`";
    let ran = cli.run(&["run", "--here", "--json", prompt]).await?;
    ensure!(ran.code == Some(0), "{ran:?}");
    for told in ["1 of them untracked", "looks like a secret", ".env"] {
        ensure!(ran.err.contains(told), "{told}: {}", ran.err);
    }
    assert_eq!(all(&shop)?, before, "nothing of the person's has changed");
    let report = ran.report()?;
    let session = report["session"].as_str().context("a session")?;
    let result = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    ensure!(result.contains(" M prices") && result.contains("?? notes"), "{result}");

    // The person has gone on meanwhile, in the same file too.
    fs::write(shop.join("prices"), "apple 10\nbread 20\ncheese 3\ndates 4\neggs 5\nflour 6\n")?;
    let index = fs::read(shop.join(".git/index"))?;
    let pulled = cli.run(&["session", "pull", session, "--apply"]).await?;
    ensure!(pulled.code == Some(0), "{pulled:?}");
    let prices = fs::read_to_string(shop.join("prices"))?;
    assert_eq!(prices, "apple 10\nbread 20\ncheese 3\ndates 4\neggs 5\nflour 60\n");
    ensure!(shop.join("made").exists() && fs::read(shop.join(".git/index"))? == index);

    let beside = world.folder().join("beside");
    let pulled =
        cli.run(&["session", "pull", session, "--worktree", &beside.display().to_string()]).await?;
    ensure!(pulled.code == Some(0), "{pulled:?}");
    assert_eq!(git(&beside, &["log", "-2", "--format=%s", "HEAD~1"])?, "theirs\nprices");
    let opened = cli.run(&["session", "open", session]).await?;
    ensure!(opened.err.contains("/here/shop-") && opened.err.contains("on main"), "{opened:?}");

    // Attack 42: a Revert leaves commits alone and says so.
    let reverted = cli.run(&["session", "revert", session, "--last"]).await?;
    ensure!(reverted.code == Some(0), "{reverted:?}");
    for told in ["commits stay", "git reset --soft HEAD~1"] {
        ensure!(reverted.out.contains(told), "{told}: {reverted:?}");
    }
    let pulled = cli.run(&["session", "pull", session]).await?;
    ensure!(pulled.code == Some(0), "{pulled:?}");
    let work = format!("refs/oc/{session}");
    let subjects = git(&shop, &["log", "--format=%s", &work])?;
    assert_eq!(subjects, "Changes that were not committed\ntheirs\nprices", "the commit is there");
    let prices = git(&shop, &["show", &format!("{work}:prices")])?;
    assert_eq!(
        prices, "apple 10\nbread 2\ncheese 3\ndates 4\neggs 5\nflour 6",
        "and its files went back"
    );
    ensure!(git(&shop, &["ls-tree", "--name-only", &work])? == "notes\nprices", "`made` is gone");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// From an address to a branch that builds: the tests fail, the model finds out why, fixes it and commits.
async fn a_day_with_an_address(world: &World, up: &Up, server: &GitServer) -> Result<()> {
    let repository = server.repository("till")?;
    let till = world.workspace("till")?;
    git(&till, &["init", "-q", "-b", "main"])?;
    fs::write(till.join("sum.sh"), "echo $(($1 - $2))\n")?;
    fs::write(till.join("test.sh"), "[ \"$(sh sum.sh 2 3)\" = 5 ] && echo passed\n")?;
    git(&till, &["add", "-A"])?;
    git(&till, &["commit", "-q", "-m", "a till"])?;
    git(&till, &["remote", "add", "renamed", &repository.display().to_string()])?;
    git(&till, &["push", "-q", "renamed", "main"])?;
    let shell = |command: &str| {
        vec![ScriptedCall {
            name: "shell".into(),
            arguments: json!({ "command": command }),
            id: None,
        }]
    };
    let edit = json!({ "path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2" });
    let rounds = [
        shell("sh test.sh"),
        vec![ScriptedCall { name: "edit".into(), arguments: edit, id: None }],
        shell("sh test.sh && git commit -qam 'Add what was taken away'"),
        Vec::new(),
    ];
    for (round, tool_calls) in (0..).zip(rounds) {
        let text = tool_calls.is_empty().then(|| "fixed".to_owned());
        let matches = "The tests fail".into();
        let script = Script { matches, round: Some(round), tool_calls, text, ..Script::default() };
        world.model().script(script)?;
    }
    let cli = up.cli()?.within(&till);
    let address = format!("https://{}/till@main", server.host());
    let prompt = "The tests fail: find out why, fix it and commit";
    let ran = cli.run(&["run", "--repo", &address, "--json", prompt]).await?;
    ensure!(ran.code == Some(0), "{ran:?}");
    let report = ran.report()?;
    let session = report["session"].as_str().context("a session")?;
    let pulled = cli.run(&["session", "pull", session, "--branch", "fix"]).await?;
    ensure!(pulled.code == Some(0), "{pulled:?}");
    assert_eq!(git(&till, &["log", "--format=%s", "fix"])?, "Add what was taken away\na till");
    assert_eq!(git(&till, &["status", "-sb"])?, "## main", "nothing else has changed");
    git(&till, &["checkout", "-q", "fix"])?;
    assert_eq!(git(&till, &["-c", "alias.build=!sh test.sh", "build"])?, "passed");
    Ok(())
}

/// Returns the worker that a command of the session runs for.
async fn owner(cluster: &Cluster, world: &World, of: &str) -> Result<u32> {
    let pid = eventually("the command runs", 60, async || {
        let mut found = processes_naming(&world.data()).into_iter();
        Ok(found.find(|process| process.command.contains(of)).map(|process| process.pid))
    })
    .await?;
    let parents = ancestors(pid);
    let workers = cluster.of("worker")?;
    let owner = workers.iter().find(|worker| parents.contains(&worker.pid));
    Ok(owner.context("a worker")?.pid)
}

async fn ends(api: &Api, session: &str, text: &str) -> Result<()> {
    let message = api.admit(session, text).await?;
    ensure!(api.outcome(session, &message, 90).await? == "completed", "{text}");
    Ok(())
}

#[tokio::test]
async fn workers_die_in_a_fill_and_in_a_turn_and_nothing_is_lost() -> Result<()> {
    let world = World::new().await?;
    let server = GitServer::start()?;
    let work = world.workspace("work")?;
    git(&work, &["init", "-q", "-b", "main"])?;
    fs::write(work.join("a"), "one\n")?;
    fs::write(work.join("large"), "0123456789abcdef".repeat(17 << 16))?;
    // So many that a checkout takes a moment.
    for number in 0..MANY {
        let folder = work.join(format!("many/{}", number / 100));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(number.to_string()), format!("{number}\n"))?;
    }
    git(&work, &["add", "-A"])?;
    git(&work, &["commit", "-q", "-m", "first"])?;
    let demo = server.repository("demo")?;
    git(&work, &["push", "-q", &demo.display().to_string(), "main"])?;

    let (allow, ca) = (format!("--egress-allow={}", server.host()), server.authority());
    let ca = format!("--egress-ca={}", ca.display());
    let mut flags: Vec<&str> =
        "--placements=1 --gateways=1 --workers=4 --no-restart --workspace-disk=own"
            .split(' ')
            .collect();
    flags.extend([allow.as_str(), ca.as_str()]);
    let cluster = world.cluster(&flags).await?;
    let api = cluster.gateway(0);
    let directory = format!("/{}/demo", server.host());
    let project = api.post("/project/init", &json!({ "directory": directory })).await?.ok()?;
    let project = project["id"].as_str().context("a project")?;
    let session = api.post(&format!("/project/{project}/session"), &json!({})).await?.ok()?;
    let session = session["id"].as_str().context("a session")?;

    // A worker dies while the pack comes.
    server.fault(Some("slow"))?;
    let message = api.admit(session, "run `git log --format=%s`").await?;
    let path = format!("/platform/session/{session}/repository");
    eventually("it fetches", 60, async || {
        let shown = api.get(&path).await?.ok()?;
        Ok((shown["stage"] == "fetching").then_some(()))
    })
    .await?;
    let pinned = api.get(&path).await?.ok()?["commit"].clone();
    let workers = cluster.of("worker")?;
    if workers.iter().any(|worker| fs::read_dir(format!("/proc/{}/fd", worker.pid)).is_err()) {
        eprintln!(
            "SKIPPED: the workers' files are closed to an ordinary user, so nobody sees which one fetches"
        );
        server.fault(None)?;
        return cluster.stop(&world).await;
    }
    let holder = holder(&cluster).await?;
    cluster.signal(holder, Signal::KILL)?;
    server.fault(None)?;
    // Attack 3: the next one dies in the middle of the checkout, and a third one fills it.
    let workers: Vec<u32> = cluster.of("worker")?.iter().map(|worker| worker.pid).collect();
    let dying = eventually_fast("a worker checks out", 60, || checks_out(&workers)).await?;
    cluster.signal(dying, Signal::KILL)?;
    let left = below(&world.data(), &|path| path.extension().is_some_and(|end| end == "restoring"));
    ensure!(!left.is_empty(), "what it left is marked as not whole");
    ensure!(api.outcome(session, &message, 90).await? == "completed", "another worker fills it");
    let shown = api.get(&path).await?.ok()?;
    ensure!(shown["state"] == "filled" && shown["commit"] == pinned, "{shown}");

    // The model commits, at last what makes `.git` larger than 64 MiB, and deletes a large file without git; its worker dies in
    // the next turn.
    let second = "echo two >a && git commit -qam second";
    let third = "cp large other && head -c 70000000 /dev/urandom >noise && git add other noise && git commit -qm third";
    ends(api, session, &format!("run `{second} && {third} && rm large`")).await?;
    let endless = format!("echo {} >pid.txt; sleep 600; :", world.data().display());
    let call =
        ScriptedCall { name: "shell".into(), arguments: json!({ "command": endless }), id: None };
    for (round, tool_calls) in (0..).zip([vec![call], vec![]]) {
        let text = tool_calls.is_empty().then(|| "went on".to_owned());
        let matches = "endless".into();
        let script = Script { matches, round: Some(round), tool_calls, text, ..Script::default() };
        world.model().script(script)?;
    }
    let message = api.admit(session, "endless").await?;
    let dying = owner(&cluster, &world, "pid.txt; sleep 600").await?;
    cluster.signal(dying, Signal::KILL)?;
    server.fault(Some("503"))?;
    ensure!(api.outcome(session, &message, 90).await? == "completed", "a third worker goes on");
    let prove = "run `git fsck --strict --no-dangling && git log --format=%s && git status --porcelain && wc -c other noise`";
    ends(api, session, prove).await?;
    let body = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    let body: Value = serde_json::from_str(&body)?;
    let messages = body["messages"].as_array().context("messages")?;
    let result = messages.iter().rev().find(|message| message["role"] == "tool");
    let result = result.and_then(|it| it["content"].as_str()).context("a result")?;
    ensure!(
        result.contains("third\nsecond\nfirst\n D large\n17825792 other\n70000000 noise"),
        "{result}"
    );
    server.fault(None)?;
    no_alternate_leads_to_another(&world, &server, api, session).await?;
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
}

/// Attack 21: a workspace names another one's objects as its own. The machine's git would read them; a command does not.
async fn no_alternate_leads_to_another(
    world: &World,
    server: &GitServer,
    api: &Api,
    session: &str,
) -> Result<()> {
    let work = world.workspace("secret")?;
    git(&work, &["init", "-q", "-b", "main"])?;
    fs::write(work.join("secret"), "of somebody else\n")?;
    git(&work, &["add", "-A"])?;
    git(&work, &["commit", "-q", "-m", "secret"])?;
    let repository = server.repository("secret")?;
    git(&work, &["push", "-q", &repository.display().to_string(), "main"])?;
    let secret = git(&work, &["rev-parse", "HEAD:secret"])?;
    let directory = format!("/{}/secret", server.host());
    let project = api.post("/project/init", &json!({ "directory": directory })).await?.ok()?;
    let project = project["id"].as_str().context("a project")?;
    let other = api.post(&format!("/project/{project}/session"), &json!({})).await?.ok()?;
    ends(api, other["id"].as_str().context("a session")?, "run true").await?;
    let held = below(&world.data(), &|path| path.ends_with(".git/objects"));
    let has = |objects: &PathBuf| {
        let Some(dot) = objects.parent() else { return false };
        git(&work, &["--git-dir", &dot.display().to_string(), "cat-file", "-e", &secret]).is_ok()
    };
    let objects = held.into_iter().find(has).context("the other workspace's objects")?;
    let line = format!("{}\n", objects.display());
    let probe = world.workspace("probe")?;
    git(&probe, &["init", "-q"])?;
    fs::write(probe.join(".git/objects/info/alternates"), &line)?;
    assert_eq!(
        git(&probe, &["cat-file", "blob", &secret])?,
        "of somebody else",
        "a bare git reads it"
    );

    let command = format!(
        "echo {} >.git/objects/info/alternates; git cat-file blob {secret} && echo leaked; git log -1 --format=%s",
        objects.display()
    );
    ends(api, session, &format!("run `{command}`")).await?;
    let body = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    ensure!(!body.contains("of somebody else") && !body.contains("leaked\\n"), "{body}");
    ensure!(body.contains("bad file"), "git says that it has no such object: {body}");
    // Nor does git in the service's own cells, which make the bundle of the workspace as it is.
    let out = api.get(&format!("/platform/session/{session}/bundle")).await?;
    ensure!(out.status == 200, "{}", out.status);
    Ok(())
}

/// Returns the paths below a folder that are wanted.
fn below(at: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if wanted(&path) {
            found.push(path.clone());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&path, wanted));
        }
    }
    found
}

/// Returns the worker whose git makes files.
fn checks_out(workers: &[u32]) -> Option<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.windows(12).any(|words| words == b"reset\0--hard")
    };
    pids.filter(is_one).find_map(|pid| ancestors(pid).into_iter().find(|pid| workers.contains(pid)))
}

/// Like [`eventually`] for what is there for a moment only.
async fn eventually_fast<T>(what: &str, seconds: u64, look: impl Fn() -> Option<T>) -> Result<T> {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(Instant::now() < until, "{what}: not within {seconds} s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the worker that fetches a pack: it has the file open.
async fn holder(cluster: &Cluster) -> Result<u32> {
    let workers = cluster.of("worker")?;
    eventually("a worker fetches", 60, async || {
        let fetches = |pid: u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut names = files.filter_map(|file| fs::read_link(file.path()).ok());
            names.any(|name| name.ends_with("incoming.pack"))
        };
        Ok(workers.iter().map(|worker| worker.pid).find(|pid| fetches(*pid)))
    })
    .await
}
