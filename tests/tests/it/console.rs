//! The console in a browser without a window, at the service: a person's day in it, and what it weighs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use journeys::{Api, Up, World, executable, oracle};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};
use testkit::{GitServer, git};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::npm::installed;
use crate::web::chromium;

/// How long the whole walk may take on a busy machine. Each step has a limit of its own.
const LIMIT: Duration = Duration::from_secs(240);

/// Within this a page shows nothing more of a login that has ended.
pub(crate) const DARK_MS: u64 = 5_000;

/// After this a gateway believes in no login about which it cannot ask.
const BELIEVED: Duration = Duration::from_secs(5);

/// What the first page may weigh, compressed.
const FIRST_PAINT_BYTES: usize = 300 * 1024;

const STEPS: [&str; 12] = [
    "signed in",
    "first answer",
    "tool unfolded",
    "answered from another tab",
    "rejected with words",
    "question answered",
    "long output",
    "waits steered",
    "steered and queued",
    "interrupted",
    "waits killed",
    "signed out",
];

fn scripts(world: &World) -> Result<()> {
    let gated = |matches: &str, text: &str, gate: &str| Script {
        matches: matches.into(),
        text: Some(text.into()),
        gate: Some(gate.into()),
        gate_after_chunks: Some(5),
        ..Script::default()
    };
    world.model().script(gated("tell the story", "It begins well, and so it ends.", "story"))?;
    world.model().script(gated("hold on", "Holding on, and on and on.", "never"))?;
    let questions = json!([{
        "header": "Indent", "question": "Tabs or spaces?",
        "options": [{ "label": "Tabs", "description": "one a level" }, { "label": "Spaces", "description": "four a level" }],
    }]);
    let ask = [(0, Some(questions)), (1, None)].map(|(round, questions)| Script {
        matches: "ask me".into(),
        round: Some(round),
        text: questions.is_none().then(|| "As you like.".into()),
        tool_calls: questions.iter().map(asking).collect(),
        ..Script::default()
    });
    for script in ask {
        world.model().script(script)?;
    }
    let lines = "Line one of **many**.\n\n- `two`\n- three\n\nAnd the last line.";
    world.model().script(gated("recite", lines, "recital"))?;
    Ok(())
}

fn asking(questions: &Value) -> ScriptedCall {
    let arguments = json!({ "questions": questions });
    ScriptedCall { name: "question".into(), arguments, id: None }
}

/// Runs a program in a browser at a service, to its end. Each line of its output is a step that was seen; after one that begins
/// with `waits ` it waits until `act` has ended. Returns the steps, and its last line, which is a report.
pub(crate) async fn walk(
    program: &str,
    api: &Api,
    more: &[(&str, &str)],
    mut act: impl AsyncFnMut(&str) -> Result<()>,
) -> Result<(Vec<String>, Value)> {
    let (browser, folder) = (chromium()?, installed("console", "playwright-core").await);
    let mut parts = json!({ "service": api.url(), "key": api.key(), "browser": browser });
    for (name, value) in more {
        parts[name] = json!(value);
    }
    let mut node = Command::new("node");
    node.arg(program).arg(parts.to_string()).current_dir(folder).kill_on_drop(true);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut node = node.spawn().context("node is needed: ./dev test installs it")?;
    let mut go_on = node.stdin.take().context("an input")?;
    let mut lines = BufReader::new(node.stdout.take().context("an output")?).lines();
    let mut steps = Vec::new();
    let walked = timeout(LIMIT, async {
        while let Some(line) = lines.next_line().await? {
            if line.starts_with("waits ") {
                act(&line).await?;
                go_on.write_all(b"go on\n").await?;
            }
            steps.push(line);
        }
        anyhow::Ok(())
    })
    .await;
    if !matches!(walked, Ok(Ok(()))) {
        node.start_kill()?;
    }
    let mut told = String::new();
    let mut errors = node.stderr.take().context("an output")?;
    timeout(Duration::from_secs(20), errors.read_to_string(&mut told)).await.ok();
    let status = node.wait().await?;
    if !matches!(walked, Ok(Ok(()))) || !status.success() {
        bail!("after {steps:?}: {walked:?}: {told}");
    }
    let report = serde_json::from_str(&steps.pop().context("a report")?)?;
    Ok((steps, report))
}

#[tokio::test]
async fn a_person_works_a_day_in_the_console() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    scripts(&world)?;
    let (api, mut running) = (up.api().clone(), Some(up));
    let (steps, report) = walk("walk.mjs", &api, &[], async |step| {
        if step == "waits steered" {
            return Ok(world.model().open_gate("story")?);
        }
        let up = running.take().context("it runs")?;
        running = Some(restarted(&world, up).await?);
        Ok(world.model().open_gate("recital")?)
    })
    .await?;
    ensure!(report["faults"] == json!([]), "{report:#}");
    let missing: Vec<_> =
        STEPS.iter().filter(|step| !steps.iter().any(|seen| seen == *step)).collect();
    ensure!(missing.is_empty(), "{missing:?} of {steps:?}");
    let after = |word: &str| steps.iter().find_map(|step| step.strip_prefix(word));
    let session = after("session ").context("the session's id")?;
    let on_page = serde_json::from_str(after("texts ").context("the page's texts")?)?;
    let up = running.context("it runs")?;
    same_as_log(up.api(), session, &on_page).await?;
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// Phones, long sessions and long prompts, as people met them, in windows of three sizes.
#[tokio::test]
async fn long_sessions_and_phones_are_at_home_in_the_console() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up_of_owner(&[]).await?;
    let (steps, report) = walk("phone.mjs", up.api(), &[], async |_| Ok(())).await?;
    ensure!(report["faults"] == json!([]), "{report:#}");
    ensure!(steps.last().is_some_and(|step| step == "signed out"), "{steps:?}");
    up.stop(&world).await
}

// Issue 30: nothing walked from the printed link to a first answer, and no page of keys was opened.
#[tokio::test]
async fn a_printed_link_leads_to_a_first_answer() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up_of_owner(&[]).await?;
    let link = up.cli()?.run(&["open", "--print"]).await?;
    let link = link.out.trim().to_owned();
    let refusal = json!({ "error": { "code": "invalid_api_key", "message": "no such key" } });
    let refused = Script { status: Some(401), body: Some(refusal), ..Script::default() };
    world.model().script(refused)?;
    let more = [("link", link.as_str()), ("server", &world.model_url())];
    let (steps, report) = walk("first.mjs", up.api(), &more, async |_| {
        world.model().clear_scripts();
        Ok(())
    })
    .await?;
    ensure!(report["faults"] == json!([]), "{report:#}");
    ensure!(steps.last().is_some_and(|step| step == "the link is spent"), "{steps:?}");
    let dark = steps.iter().find_map(|step| step.strip_prefix("dark ")).context("a time")?;
    ensure!(dark.parse::<u64>()? < DARK_MS, "a revoked key worked for {dark} ms");
    // Both keys were really sent.
    let sent = world.model().requests().into_iter();
    let keys: BTreeSet<_> =
        sent.filter_map(|sent| sent.headers.get("credential").cloned()).collect();
    ensure!(keys.len() == 2, "{keys:?}");
    up.stop(&world).await
}

/// Kills the service and starts it again at the same address.
async fn restarted(world: &World, up: Up) -> Result<Up> {
    let port = up.api().url().rsplit(':').next().context("a port")?.to_owned();
    up.kill(world).await?;
    world.up_with(&["--port", &port]).await
}

/// Proves that the page shows each prompt and answer of the log once, whole, and nothing else.
async fn same_as_log(api: &Api, session: &str, on_page: &BTreeMap<String, String>) -> Result<()> {
    let mut expected = BTreeMap::new();
    for event in api.log(session).await? {
        let data = &event["data"];
        let texts: Vec<&str> = data["parts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|part| part["type"] == "text")
            .filter_map(|part| part["text"].as_str())
            .collect();
        let message = data["message"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("turn.started") => drop(expected.insert(message, String::new())),
            Some("prompt.promoted" | "turn.replied") => {
                drop(expected.insert(message, plain(&texts)))
            }
            Some("turn.settled") if data["outcome"] == "lost" => drop(expected.remove(&message)),
            _ => {}
        }
    }
    let shown: BTreeMap<_, _> =
        on_page.iter().map(|(id, text)| (id.clone(), text.clone())).collect();
    ensure!(shown == expected, "the page: {shown:#?}\nthe log: {expected:#?}");
    ensure!(expected.values().any(|text| text.contains("the last line.")), "{expected:?}");
    Ok(())
}

/// Returns a text as a browser shows it: without the signs of lists, weights and code, in one line.
fn plain(texts: &[&str]) -> String {
    let joined = texts.join(" ").replace(['*', '`'], "").replace("\n- ", "\n");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn pages_outlive_processes_and_no_login() -> Result<()> {
    let world = World::new().await?;
    let flags = ["--placements=1", "--gateways=2", "--workers=2"];
    let cluster = world.cluster_of_owner(boot::free_port()?, &flags).await?;
    scripts(&world)?;
    let (api, other) = (cluster.gateway(0), cluster.gateway(1));
    let mut stopped = Vec::new();
    let (_, report) = walk("faults.mjs", api, &[("other", other.url())], async |step| {
        match step {
            "waits killed" => {
                cluster.kill("gateway", Signal::KILL)?;
                for worker in cluster.of("worker")? {
                    cluster.signal(worker.pid, Signal::KILL)?;
                }
                world.model().open_gate("recital")?;
            }
            // The worker goes on, and NATS would carry what the model says.
            "waits cut" => {
                stopped = cluster.stop_postgres()?;
                sleep(BELIEVED).await;
                world.model().open_gate("story")?;
                sleep(Duration::from_secs(3)).await;
            }
            "waits back" => cluster.go_on(&stopped),
            _ => {
                let ends = api.request(Method::DELETE, "/platform/login");
                api.send(ends).await?.ok()?;
            }
        }
        Ok(())
    })
    .await?;
    ensure!(report["faults"] == json!([]), "{report:#}");
    let session = report["session"].as_str().context("the session's id")?;
    for texts in report["texts"].as_array().context("the pages' texts")? {
        same_as_log(api, session, &serde_json::from_value(texts.clone())?).await?;
    }
    let dark = report["dark"].as_array().context("times")?;
    println!("dark after {dark:?} ms");
    ensure!(dark.len() == 2, "{report:#}");
    ensure!(dark.iter().all(|ms| ms.as_u64().is_some_and(|ms| ms < DARK_MS)), "{dark:?}");
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
}

#[tokio::test]
async fn a_repository_comes_in_by_the_console() -> Result<()> {
    let world = World::new().await?;
    let server = GitServer::start()?;
    let till = world.workspace("till")?;
    git(&till, &["init", "-q", "-b", "main"])?;
    std::fs::write(till.join("prices"), "apple 1\n")?;
    git(&till, &["add", "-A"])?;
    git(&till, &["commit", "-q", "-m", "prices"])?;
    let repository = server.repository("shop/till")?;
    git(&till, &["push", "-q", &repository.display().to_string(), "main"])?;
    let (allow, ca) = (format!("--egress-allow={}", server.host()), server.authority());
    let up = world.up_of_owner(&[&allow, &format!("--egress-ca={}", ca.display())]).await?;

    server.fault(Some("403"))?;
    let address = format!("https://{}/shop/till", server.host());
    let act = async |step: &str| server.fault((step == "waits refused").then_some("slow"));
    let (_, report) = walk("repository.mjs", up.api(), &[("address", &address)], act).await?;
    ensure!(report["faults"] == json!([]), "{report:#}");
    let said = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    ensure!(said("refused").contains("403"), "{report:#}");
    ensure!(said("step") == "2", "{report:#}");
    let commit = git(&till, &["rev-parse", "--short=10", "HEAD"])?;
    ensure!(said("filled").contains(&commit) && said("filled").contains("main"), "{report:#}");
    ensure!(!said("filled").contains("refs/"), "{report:#}");

    // The command that was copied, at home.
    let command = said("command");
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    let pulled = up.cli()?.within(&till).run(&args).await?;
    ensure!(pulled.code == Some(0), "{command}: {pulled:?}");
    let branch = args.last().context("a branch")?;
    ensure!(git(&till, &["show", &format!("{branch}:made.txt")])? == "hello", "{pulled:?}");
    // And the patch.
    let patch = world.folder().join("patch");
    std::fs::write(&patch, said("patch"))?;
    git(&till, &["apply", &patch.display().to_string()])?;
    ensure!(std::fs::read_to_string(till.join("made.txt"))?.trim() == "hello");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

#[tokio::test]
async fn the_first_page_of_the_console_is_light() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let (api, client) = (up.api(), reqwest::Client::builder().no_proxy().build()?);
    let fetch = async |path: &str| -> Result<(reqwest::header::HeaderMap, Vec<u8>)> {
        let asked = client.get(format!("{}{path}", api.url())).header("accept-encoding", "br");
        let answer = asked.send().await?.error_for_status()?;
        Ok((answer.headers().clone(), answer.bytes().await?.to_vec()))
    };
    let raw = client.get(api.url()).send().await?;
    let policy = raw.headers().get("content-security-policy").context("a policy")?.clone();
    ensure!(!policy.to_str()?.contains("unsafe"), "{policy:?}");
    let page = raw.text().await?;
    ensure!(page.contains("id=\"app\""), "./dev console builds the console first: {page}");

    // What the page names, and what its scripts load before anybody is signed in or a list is seen.
    let mut waiting = named(&page);
    let mut sizes = BTreeMap::new();
    while let Some(path) = waiting.pop() {
        if sizes.contains_key(&path) || path.contains(".worker") {
            continue;
        }
        let (headers, bytes) = fetch(&path).await?;
        let is_script = headers
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/javascript"));
        ensure!(
            !is_script || bytes.len() < 1024 || headers.contains_key("content-encoding"),
            "{path} is not compressed"
        );
        sizes.insert(path.clone(), bytes.len());
        if is_script {
            let plain = client.get(format!("{}{path}", api.url())).send().await?.text().await?;
            let wanted = |file: &String| {
                ["Shell", "Sessions", "Login"].iter().any(|name| file.contains(name))
            };
            waiting.extend(imported(&plain));
            waiting.extend(named(&plain).into_iter().filter(wanted));
        } else if path.ends_with(".css") {
            let plain = client.get(format!("{}{path}", api.url())).send().await?.text().await?;
            waiting.extend(named(&plain));
        }
    }
    let whole: usize = sizes.values().sum();
    println!("first paint: {whole} bytes in {} files", sizes.len());
    ensure!(sizes.len() > 3 && whole < FIRST_PAINT_BYTES, "{whole} bytes: {sizes:#?}");

    // Only the console's own paths answer HTML; every other one still wants a key.
    let unknown = client.get(format!("{}/no/such/path", api.url())).send().await?;
    ensure!(unknown.status() == 401, "{unknown:?}");
    ensure!(client.get(format!("{}/_/no-such-file.js", api.url())).send().await?.status() == 404);
    up.stop(&world).await
}

/// Returns the files below `/_/` that a text names.
fn named(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("/_/").chain(text.match_indices("a/")) {
        let rest = text.get(at..).unwrap_or_default();
        let end = rest.find(['"', '\'', '`', ')', ' ', '>']).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        let name = name.strip_prefix("/_/").unwrap_or(name);
        if [".js", ".css", ".woff2"].iter().any(|ending| name.ends_with(ending))
            && name.starts_with("a/")
        {
            found.push(format!("/_/{name}"));
        }
    }
    found
}

/// Returns the files that a script imports before it runs.
fn imported(script: &str) -> Vec<String> {
    let head = script.split("import").skip(1).filter(|rest| !rest.starts_with('('));
    let quoted = head.filter_map(|rest| {
        let begin = rest.find("./")?;
        let name = rest.get(begin + 2..)?;
        (begin < 4000).then(|| name.split(['"', '\'', '`']).next()).flatten()
    });
    quoted.filter(|name| name.ends_with(".js")).map(|name| format!("/_/a/{name}")).collect()
}
