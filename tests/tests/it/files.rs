//! Changes of files by sessions, over HTTP: diffs, a Revert there and back, a Fork with its own files; and a worker
//! that dies with its disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use journeys::{Api, Process, World, ancestors, events_of, eventually, oracle, processes_naming};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};
use testkit::{BUCKET, S3, S3Fault};

/// Prompts, waits for the end of the work, and returns the prompt's message.
async fn work(api: &Api, session: &str, text: &str) -> Result<String> {
    let message = api.admit(session, text).await?;
    ensure!(api.outcome(session, &message, 60).await? == "completed", "{text}");
    Ok(message)
}

/// Returns `status path` for each file of a diff.
async fn diff(api: &Api, session: &str, message: Option<&str>) -> Result<Vec<String>> {
    let query = message.map(|message| format!("?messageID={message}")).unwrap_or_default();
    let diff = api.get(&format!("/platform/session/{session}/diff{query}")).await?.ok()?;
    let files = diff["files"].as_array().with_context(|| format!("files: {diff}"))?;
    let one =
        |file: &Value| Some(format!("{} {}", file["status"].as_str()?, file["file"].as_str()?));
    files.iter().map(|file| one(file).with_context(|| diff.to_string())).collect()
}

/// Returns the last tool result in the newest request.
fn last_result(world: &World) -> Result<String> {
    let body = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    let body: Value = serde_json::from_str(&body)?;
    let messages = body["messages"].as_array().context("messages")?;
    let result = messages.iter().rev().find(|message| message["role"] == "tool");
    Ok(result.and_then(|it| it["content"].as_str()).context("a result")?.to_owned())
}

#[tokio::test]
async fn changes_are_shown_taken_back_and_gone_on_with_elsewhere() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let place = world.workspace("files")?;
    fs::write(place.join("mine.txt"), "mine\n")?;
    let content = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
    let session = api.session(&place).await?;
    work(api, &session, "create a.txt containing one").await?;
    let second = work(api, &session, "edit a.txt replacing one with two").await?;
    work(api, &session, "create b.txt containing x").await?;

    ensure!(diff(api, &session, None).await? == ["added a.txt", "added b.txt"]);
    ensure!(diff(api, &session, Some(&second)).await? == ["modified a.txt"]);

    // A fork with its own files begins with the files before the second prompt.
    let path = format!("/platform/session/{session}");
    let body = json!({ "messageID": second, "files": "copy" });
    let fork = api.post(&format!("{path}/fork"), &body).await?.ok()?;
    let fork = fork["id"].as_str().context("a fork has an id")?.to_owned();
    work(api, &fork, "run cat a.txt mine.txt").await?;
    let told = last_result(&world)?;
    ensure!(told.starts_with("one") && told.contains("mine"), "{told}");
    work(api, &fork, "create theirs.txt containing y").await?;
    ensure!(!place.join("theirs.txt").exists() && content("a.txt").trim_end() == "two");
    ensure!(diff(api, &fork, None).await? == ["added theirs.txt"]);

    // Back to before the second prompt, forward again, and back for good with the next prompt.
    fs::write(place.join("mine.txt"), "changed meanwhile\n")?;
    let back = json!({ "messageID": second });
    let reverted = api.post(&format!("{path}/revert"), &back).await?.ok()?;
    ensure!(reverted["revert"]["messageID"] == second.as_str(), "{reverted}");
    ensure!(content("a.txt").trim_end() == "one" && !place.join("b.txt").exists());
    ensure!(content("mine.txt") == "changed meanwhile\n", "no work of the session's");
    let whole = api.post(&format!("{path}/unrevert"), &json!({})).await?.ok()?;
    ensure!(whole["revert"].is_null(), "{whole}");
    ensure!(content("a.txt").trim_end() == "two" && content("b.txt").trim_end() == "x");
    api.post(&format!("{path}/revert"), &back).await?.ok()?;
    work(api, &session, "run cat a.txt").await?;
    ensure!(last_result(&world)?.starts_with("one"));
    let sent = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    ensure!(sent.contains("create a.txt") && !sent.contains("replacing one"), "{sent}");
    let log = api.log(&session).await?;
    let count = |kind: &str| events_of(&log, kind).len();
    ensure!(
        (count("revert.staged"), count("revert.cleared"), count("revert.committed")) == (2, 1, 1)
    );
    oracle(api, world.model()).await?;
    // The fork does not notice this, nor its parent's deletion.
    api.send(api.request(reqwest::Method::DELETE, &path)).await?.ok()?;
    work(api, &fork, "run cat theirs.txt").await?;
    ensure!(last_result(&world)?.starts_with('y'));
    let broken = api.get("/platform/check?settled=true").await?.ok()?;
    ensure!(broken == json!([]), "{broken:#}");
    up.stop(&world).await
}

/// Finds a file of this name, wherever a worker has it.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if entry.file_name() == name {
            return Some(path);
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Some(found) = find(&path, name)
        {
            return Some(found);
        }
    }
    None
}

/// A collector of traces that nobody here wrote. It prints each span as a line of JSON.
struct Tap {
    process: Process,
    url: String,
}

impl Tap {
    fn start(world: &World) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join("oteltap"));
        let program = found.into_iter().find(|program| program.is_file());
        let program = program.context("no oteltap is on the PATH: ./dev test installs it")?;
        let port = boot::free_port()?;
        let (args, unbuffered) = (
            ["--port".to_owned(), port.to_string()],
            ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
        );
        let process = Process::start("oteltap", &program, &args, &[unbuffered], &world.logs())?;
        Ok(Self { process, url: format!("http://127.0.0.1:{port}") })
    }

    fn spans(&self) -> Vec<Value> {
        let lines = self.process.stdout();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The work on a prompt is one trace, whoever did it, and holds no text of it.
async fn one_trace(tap: &Tap) -> Result<()> {
    let linked = |span: &Value| {
        span["name"] == "invoke_agent" && span["links"].as_array().is_some_and(|it| !it.is_empty())
    };
    let (second, of_it) = eventually("the spans of both drains have come", 60, async || {
        let spans = tap.spans();
        let Some(second) = spans.iter().find(|span| linked(span)).cloned() else { return Ok(None) };
        let is_of_it = |span: &Value| span["traceId"] == second["traceId"];
        let of_it: Vec<Value> = spans.into_iter().filter(is_of_it).collect();
        // A drain's own span comes when it ends, after those of its turns.
        let is_there = |id: &Value| of_it.iter().any(|span| span["spanId"] == *id);
        let mut turns = of_it.iter().filter(|span| span["name"] == "turn");
        let is_whole = turns.all(|turn| is_there(&turn["parentSpanId"]));
        Ok(is_whole.then_some((second, of_it)))
    })
    .await?;
    let first = &second["links"][0]["spanId"];
    ensure!(second["links"][0]["traceId"] == second["traceId"], "{second}");
    let named = |name: &str| -> Vec<&Value> {
        let begins = |span: &&Value| span["name"].as_str().is_some_and(|it| it.starts_with(name));
        of_it.iter().filter(begins).collect()
    };
    ensure!(named("admit").len() == 1, "{of_it:#?}");
    let drains = named("invoke_agent");
    let root = &named("admit")[0]["spanId"];
    ensure!(drains.iter().all(|span| span["parentSpanId"] == *root), "{drains:#?}");
    ensure!(
        drains.iter().any(|span| span["spanId"] == *first),
        "the lost drain is ended: {drains:#?}"
    );
    let turns = named("turn");
    let parents: Vec<_> = turns.iter().map(|span| &span["parentSpanId"]).collect();
    let is_of_a_drain = |parent: &Value| drains.iter().any(|span| span["spanId"] == *parent);
    ensure!(parents.iter().all(|parent| is_of_a_drain(parent)), "{turns:#?} {drains:#?}");
    // A drain between the two may have done nothing but restore.
    ensure!(parents.iter().any(|parent| *parent != parents[0]), "two did turns: {turns:#?}");
    ensure!(named("chat ").len() >= 3 && !named("execute_tool ").is_empty(), "{of_it:#?}");
    let text = tap.process.stdout();
    for secret in ["three steps", "lost.txt", "kept.txt", "sleep 600"] {
        ensure!(!text.contains(secret), "{secret} is in a span");
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_dies_with_its_disk_and_the_next_one_has_the_files_of_the_last_snapshot()
-> Result<()> {
    let world = World::new().await?;
    let (s3, tap) = (S3::start()?, Tap::start(&world)?);
    let flags = format!(
        "--placements=1 --gateways=1 --workers=2 --no-restart --workspace-disk=own --blob-url=s3://{BUCKET}/cluster \
         --blob-endpoint=http://{} --blob-region=us-east-1 --blob-access-key=j --blob-secret-key=j --otlp-endpoint={}",
        s3.host(),
        tap.url
    );
    let cluster = world.cluster(&flags.split(' ').collect::<Vec<_>>()).await?;
    // The store has what it says that it has not.
    s3.fault(S3Fault::UnavailableAfter, "PUT", "/o/", 3)?;
    let api = cluster.gateway(0);
    let project = api.post("/project/init", &json!({})).await?.ok()?;
    let project = project["id"].as_str().context("a project has an id")?;
    let new = json!({ "title": "a journey" });
    let session = api.post(&format!("/project/{project}/session"), &new).await?.ok()?;
    let session = session["id"].as_str().context("a session has an id")?;
    work(api, session, "create kept.txt containing one").await?;

    let call = |name: &str, arguments| ScriptedCall { name: name.into(), arguments, id: None };
    let write = |path: &str| call("write", json!({ "path": path, "content": "two\n" }));
    // It names the data folder, by which its process is found: what it knows of its own number holds in its cell alone.
    let endless = format!("echo {} > pid.txt; sleep 600; :", world.data().display());
    let endless = call("shell", json!({ "command": endless }));
    let steps = [vec![write("saved.txt")], vec![write("lost.txt"), endless], vec![]];
    for (round, tool_calls) in (0..).zip(steps) {
        let text = tool_calls.is_empty().then(|| "went on".to_owned());
        let matches = "three steps".into();
        let script = Script { matches, round: Some(round), tool_calls, text, ..Script::default() };
        world.model().script(script)?;
    }
    let message = api.admit(session, "three steps").await?;
    // The second batch runs, and the result of its first call is committed.
    let pid = eventually("the endless call runs", 60, async || {
        let settled = events_of(&api.log(session).await?, "tool.settled").len();
        let runs = find(&world.data(), "pid.txt").is_some() && settled >= 3;
        let mut found = processes_naming(&world.data()).into_iter();
        let endless = found.find(|process| process.command.contains("pid.txt; sleep 600"));
        Ok(endless.filter(|_| runs).map(|process| process.pid))
    })
    .await?;
    let parents = ancestors(pid);
    let workers = cluster.of("worker")?;
    let owner = workers.iter().position(|worker| parents.contains(&worker.pid));
    let owner = owner.context("a worker")?;
    cluster.signal(workers[owner].pid, Signal::KILL)?;
    let name = format!("worker-{}", owner + 1);
    for disk in [world.data().join(&name), world.data().join("workspaces").join(&name)] {
        fs::rename(&disk, disk.with_extension("lost"))?;
    }

    ensure!(api.outcome(session, &message, 60).await? == "completed");
    let log = api.log(session).await?;
    let restored = events_of(&log, "workspace.restored");
    let restored = restored.last().context("the files were made anew")?;
    let lost = restored["lost"].as_array().context("what is lost")?;
    let called = events_of(&log, "tool.called");
    let of_lost_txt = called.iter().find(|called| called.to_string().contains("lost.txt"));
    let of_lost_txt = &of_lost_txt.context("it was called")?["intent"]["call"];
    ensure!(lost.contains(of_lost_txt), "{restored} has not {of_lost_txt}");
    let notices = events_of(&log, "notice.recorded");
    let notice =
        notices.iter().find(|notice| notice["kind"] == "files-lost").context("a notice")?;
    let sent = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    // It may share its message with the prompt.
    let text = serde_json::to_string(&notice["text"])?;
    ensure!(sent.contains(text.trim_matches('"')), "the model is told: {sent}");
    one_trace(&tap).await?;
    work(api, session, "run ls").await?;
    let there = last_result(&world)?;
    ensure!(there.contains("kept.txt") && there.contains("saved.txt"), "{there}");
    ensure!(!there.contains("lost.txt") && !there.contains("pid.txt"), "{there}");
    let is_again = |line: &&String| line.contains("/o/") && line.ends_with("412");
    let again = s3.requests().iter().filter(is_again).count();
    ensure!(again >= 3, "{:#?}", s3.requests());

    // While object storage is away, tools go on, and say what they could not keep.
    s3.fault(S3Fault::Unavailable, "", "/o/", u64::MAX)?;
    work(api, session, "run seq 1 9000").await?;
    let long = last_result(&world)?;
    ensure!(long.contains("could not be kept") && long.contains("9000"), "{long}");
    work(api, session, "create late.txt containing three").await?;
    s3.well()?;
    oracle(api, world.model()).await?;
    // It is a process of the journey's too, and nobody may be left behind.
    drop(tap);
    cluster.stop(&world).await
}
