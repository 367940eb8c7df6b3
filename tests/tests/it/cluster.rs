//! A cluster loses a worker, the leader of placement and a gateway: each costs time, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{
    Api, Cli, Cluster, World, ancestors, events_of, eventually, oracle, processes_naming,
};
use rustix::process::Signal;
use serde_json::json;
use simulated_model::{Script, ScriptedCall};

#[tokio::test]
async fn a_cluster_loses_any_member_and_nothing_else() -> Result<()> {
    let world = World::new().await?;
    let cluster = started_slowly(&world).await?;
    the_manifest_tells_every_process(&cluster)?;
    // It is told after the manifest is there.
    eventually("the sandbox is told", 30, async || {
        let said = cluster.process().stderr();
        Ok((said.lines().filter(|line| line.contains("sandbox: ")).count() == 1).then_some(()))
    })
    .await?;
    no_secret_is_in_a_list_of_processes(&cluster)?;
    a_worker_dies_in_the_middle_of_its_tools(&world, &cluster).await?;
    the_leader_of_placement_dies(&world, &cluster).await?;
    a_gateway_dies(&world, &cluster).await?;
    cluster.stop(&world).await
}

/// Starts a cluster that has to wait where it writes the caller's profile. Until then it says to nobody that it is ready.
async fn started_slowly(world: &World) -> Result<Cluster> {
    let port = boot::free_port()?;
    let held = fs::File::create(world.profile().with_added_extension("lock"))?;
    held.lock()?;
    let waits = async {
        let gateway = Api::new(&format!("http://127.0.0.1:{port}"), "none")?;
        let ready = async || Ok(gateway.is_ready().await.then_some(()));
        eventually("a gateway is ready", 120, ready).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let said = fs::read_to_string(world.logs().join("cluster.out"))?;
        ensure!(said.is_empty() && !world.data().join("cluster.json").exists(), "{said}");
        drop(held);
        Ok(())
    };
    let (cluster, waited) = tokio::join!(world.cluster_of_owner(port, &[]), waits);
    waited?;
    let cluster = cluster?;
    let listed = Cli::of_profile(world)?.run(&["session", "list"]).await?;
    ensure!(listed.code == Some(0), "commands find URL and key in the profile: {listed:?}");
    Ok(cluster)
}

fn the_manifest_tells_every_process(cluster: &Cluster) -> Result<()> {
    let members = cluster.members()?;
    let count = |role: &str| members.iter().filter(|member| member.role == role).count();
    let counts = ["placement", "gateway", "worker", "postgres", "nats"].map(count);
    ensure!(counts == [3, 2, 3, 1, 1], "{members:?}");
    let pids: BTreeSet<u32> = members.iter().map(|member| member.pid).collect();
    ensure!(pids.len() == members.len(), "{members:?}");
    for member in &members {
        let scheme = match member.role.as_str() {
            "postgres" => "postgres://",
            "nats" => "nats://",
            _ => "http://127.0.0.1:",
        };
        ensure!(member.url.starts_with(scheme), "{member:?}");
        ensure!(fs::exists(format!("/proc/{}", member.pid))?, "{member:?} does not run");
    }
    Ok(())
}

// Finding security 16: every user of the machine could read the secrets of the processes' command lines.
fn no_secret_is_in_a_list_of_processes(cluster: &Cluster) -> Result<()> {
    for member in cluster.members()? {
        if !["gateway", "worker", "placement"].contains(&member.role.as_str()) {
            continue;
        }
        let read = |name: &str| fs::read(format!("/proc/{}/{name}", member.pid));
        let line = String::from_utf8_lossy(&read("cmdline")?).replace('\0', " ");
        ensure!(!line.contains("postgres://") && !line.contains("--secrets-key"), "{line}");
        let variables = match read("environ") {
            // Not even its own user reads it, but for root.
            Err(closed) if closed.kind() == ErrorKind::PermissionDenied && !is_root() => continue,
            read => read?,
        };
        let secrets = String::from_utf8_lossy(&variables).into_owned();
        let named = ["DATABASE_URL", "CLUSTER_SECRET", "SECRETS_KEY", "NATS_URL"];
        let mut found = 0;
        for variable in secrets.split('\0') {
            let Some((name, value)) = variable.split_once('=') else { continue };
            if named.iter().any(|end| name == format!("OPENCODE_CLOUD_{end}")) {
                found += 1;
                ensure!(!line.contains(value), "{name} is in {line}");
            }
        }
        ensure!(found >= 3, "{} has {found} of them", member.role);
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn call(name: &str, arguments: serde_json::Value) -> ScriptedCall {
    ScriptedCall { name: name.into(), arguments, id: None }
}

async fn a_worker_dies_in_the_middle_of_its_tools(world: &World, cluster: &Cluster) -> Result<()> {
    let api = cluster.gateway(0);
    let place = world.workspace("worker")?;
    fs::write(place.join("in.txt"), "input\n")?;
    let session = api.session(&place).await?;
    let script = |round, tool_calls| Script {
        matches: "three things".into(),
        round: Some(round),
        tool_calls,
        ..Script::default()
    };
    let endless = json!({ "command": "echo ran >> unsafe.txt; sleep 600" });
    let calls = vec![
        call("read", json!({ "path": "in.txt" })),
        call("shell", endless),
        call("write", json!({ "path": "out.txt", "content": "output" })),
    ];
    world.model().script(script(0, calls))?;
    world.model().script(Script { text: Some("went on".into()), ..script(1, vec![]) })?;
    let message = api.admit(&session, "three things").await?;
    let tool = eventually("the tools run", 60, async || {
        let started = place.join("unsafe.txt").exists() && place.join("out.txt").exists();
        Ok(processes_naming(&place).into_iter().next().filter(|_| started))
    })
    .await?;
    let workers = cluster.of("worker")?;
    let parents = ancestors(tool.pid);
    let owner = workers.iter().find(|worker| parents.contains(&worker.pid));
    let owner =
        owner.with_context(|| format!("{tool:?} {parents:?} is of no worker: {workers:?}"))?;
    cluster.signal(owner.pid, Signal::KILL)?;
    eventually("no tool outlives its worker", 15, async || {
        Ok(processes_naming(&place).is_empty().then_some(()))
    })
    .await?;
    ensure!(api.outcome(&session, &message, 60).await? == "completed");
    ensure!(fs::read_to_string(place.join("unsafe.txt"))? == "ran\n", "an unsafe body runs once");
    ensure!(fs::read_to_string(place.join("out.txt"))? == "output");
    let log = api.log(&session).await?;
    let mut outcomes: Vec<&str> = events_of(&log, "tool.settled")
        .into_iter()
        .filter_map(|settled| settled["outcome"].as_str())
        .collect();
    outcomes.sort_unstable();
    ensure!(outcomes == ["completed", "completed", "unknown"], "{outcomes:?}");
    let unknown = events_of(&log, "tool.settled").into_iter().find(|it| it["outcome"] == "unknown");
    let told = unknown.and_then(|it| it["output"].as_str()).context("a text for the model")?;
    let sent = world.model().requests().pop().context("the model is asked again")?;
    let body: serde_json::Value = serde_json::from_str(&sent.body.context("its body is kept")?)?;
    let messages = body["messages"].as_array().context("messages")?;
    let is_told = |message: &serde_json::Value| {
        message["content"].as_str().is_some_and(|content| content.ends_with(told))
    };
    ensure!(messages.iter().any(is_told), "the model is told: {body:#}");
    oracle(api, world.model()).await.map(drop)
}

async fn the_leader_of_placement_dies(world: &World, cluster: &Cluster) -> Result<()> {
    let api = cluster.gateway(0);
    let leased = api.session(&world.workspace("worker")?).await?;
    let unleased = api.session(&world.workspace("leader")?).await?;
    let leader = cluster.placement_leader().await?;
    cluster.signal(leader.pid, Signal::KILL)?;
    // A leased Location works without placement; a new one waits for the next leader.
    ensure!(api.prompt(&leased, "create a.txt containing x", 60).await? == "completed");
    ensure!(api.prompt(&unleased, "create a.txt containing x", 60).await? == "completed");
    let next = cluster.placement_leader().await?;
    ensure!(next.pid != leader.pid, "{next:?}");
    oracle(api, world.model()).await.map(drop)
}

async fn a_gateway_dies(world: &World, cluster: &Cluster) -> Result<()> {
    let (one, two) = (cluster.gateway(0), cluster.gateway(1));
    let session = one.session(&world.workspace("gateway")?).await?;
    let script =
        Script { matches: "wait".into(), gate: Some("gateway".into()), ..Script::default() };
    world.model().script(script)?;
    let mut follow = one.follow(&session, 0).await?;
    let message = one.admit(&session, "wait").await?;
    let mut after = 0;
    while let Some(frame) = follow.next().await? {
        after = frame.id.unwrap_or(after);
        if frame.event == "attempt.started" {
            break;
        }
    }
    let gateways = cluster.of("gateway")?;
    let first = gateways.iter().find(|gateway| gateway.url == one.url()).context("a gateway")?;
    cluster.signal(first.pid, Signal::KILL)?;
    while let Ok(Some(_)) = follow.next().await {} // until it breaks
    let mut follow = two.follow(&session, after).await?;
    world.model().open_gate("gateway")?;
    while let Some(frame) = follow.next().await? {
        let Some(seq) = frame.id else { continue };
        ensure!(seq == after + 1, "no gap and no repeat: {seq} after {after}");
        after = seq;
        if frame.event == "drain.ended" {
            break;
        }
    }
    ensure!(two.outcome(&session, &message, 60).await? == "completed");
    eventually("the gateway is started again, at its URL", 60, async || {
        Ok(one.is_ready().await.then_some(()))
    })
    .await?;
    ensure!(one.prompt(&session, "say 3 words", 60).await? == "completed");
    oracle(one, world.model()).await.map(drop)
}
