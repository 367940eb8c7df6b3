//! Repositories in and out: from somebody's machine and back, and on workers with disks of their own that die in the middle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use journeys::{Api, Cluster, World, ancestors, eventually, oracle, processes_naming};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};
use testkit::{GitServer, git};

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

    let up = world.up().await?;
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
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
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
async fn workers_die_in_a_fetch_and_in_a_turn_and_nothing_is_lost() -> Result<()> {
    let world = World::new().await?;
    let server = GitServer::start()?;
    let work = world.workspace("work")?;
    git(&work, &["init", "-q", "-b", "main"])?;
    fs::write(work.join("a"), "one\n")?;
    fs::write(work.join("large"), "0123456789abcdef".repeat(17 << 16))?;
    git(&work, &["add", "-A"])?;
    git(&work, &["commit", "-q", "-m", "first"])?;
    let demo = server.repository("demo")?;
    git(&work, &["push", "-q", &demo.display().to_string(), "main"])?;

    let (allow, ca) = (format!("--egress-allow={}", server.host()), server.authority());
    let ca = format!("--egress-ca={}", ca.display());
    let mut flags: Vec<&str> =
        "--placements=1 --gateways=1 --workers=3 --no-restart --workspace-disk=own"
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
    let holder = holder(&cluster).await?;
    cluster.signal(holder, Signal::KILL)?;
    server.fault(None)?;
    ensure!(api.outcome(session, &message, 90).await? == "completed", "another worker fills it");
    let shown = api.get(&path).await?.ok()?;
    ensure!(shown["state"] == "filled" && shown["commit"] == pinned, "{shown}");

    // The model commits, and deletes a large file without git; its worker dies in the next turn.
    ends(api, session, "run `echo two >a && git commit -qam second && cp large other && git add other && git commit -qm third && rm large`").await?;
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
    let prove = "run `git fsck --strict --no-dangling && git log --format=%s && git status --porcelain && wc -c other`";
    ends(api, session, prove).await?;
    let body = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    let body: Value = serde_json::from_str(&body)?;
    let messages = body["messages"].as_array().context("messages")?;
    let result = messages.iter().rev().find(|message| message["role"] == "tool");
    let result = result.and_then(|it| it["content"].as_str()).context("a result")?;
    ensure!(result.contains("third\nsecond\nfirst\n D large\n17825792 other"), "{result}");
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
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
