//! The released OpenCode client from npm against our service, and the requests of its SDK.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Api, Ended, Up, World, eventually, executable, oracle};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

/// The release that we must serve.
const VERSION: &str = "1.18.33";

/// Returns the package with the executable that `opencode-ai` picks for this machine.
fn package() -> String {
    let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_old = processor == "x64" && !flags.contains(" avx2 ");
    format!("opencode-linux-{processor}{}", if is_old { "-baseline" } else { "" })
}

/// Returns the client, installed once below cargo's target folder.
pub(crate) async fn released_client() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test lives in TARGET/PROFILE/deps")?;
    let folder = target.join("stock-client").join(VERSION);
    let program = folder.join("node_modules").join(package()).join("bin/opencode");
    fs::create_dir_all(&folder)?;
    // Tests of one run take turns: the first installs it.
    let turn = File::create(folder.join("turn"))?;
    turn.lock()?;
    if !program.is_file() {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--ignore-scripts",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--prefix",
        ]);
        npm.arg(&folder).arg(format!("{}@{VERSION}", package())).stdin(Stdio::null());
        npm.kill_on_drop(true);
        let advice = "the released OpenCode client is not here and npm cannot bring it: install npm (./dev test \
                      does) and allow it to reach its registry";
        let output = timeout(Duration::from_secs(120), npm.output())
            .await
            .context(advice)?
            .context(advice)?;
        ensure!(output.status.success(), "{advice}: {}", String::from_utf8_lossy(&output.stderr));
    }
    ensure!(program.is_file(), "npm brought no {}", program.display());
    Ok(program)
}

/// Runs the client with its own home.
async fn opencode(world: &World, key: &str, args: &[&str]) -> Result<Ended> {
    let home = world.workspace("home")?;
    let mut command = Command::new(released_client().await?);
    command.args(args).env_clear().current_dir(world.workspace("client")?).stdin(Stdio::null());
    command.env("PATH", "/usr/bin:/bin").env("HOME", &home).env("OPENCODE_SERVER_PASSWORD", key);
    for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
        command.env(format!("XDG_{kind}_HOME"), home.join(kind));
    }
    for what in ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
        command.env(format!("OPENCODE_DISABLE_{what}"), "1");
    }
    command.kill_on_drop(true);
    let output = timeout(Duration::from_secs(100), command.output())
        .await
        .context("the client does not end")??;
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ended { code: output.status.code(), out, err })
}

#[tokio::test]
async fn a_released_client_works_with_a_url_and_a_key() -> Result<()> {
    executable()?; // report a missing executable first
    released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("stock")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    it_runs_prompts(&world, &up, &place).await?;
    its_sdk_finds_its_routes(&up, &place).await?;
    it_forks_and_undoes(&world, &up, &place).await?;
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

async fn it_runs_prompts(world: &World, up: &Up, place: &Path) -> Result<()> {
    let (url, key) = (up.api().url(), up.api().key());
    let ended = opencode(world, key, &["run", "--attach", url, "say 5 words"]).await?;
    ensure!(ended.code == Some(0) && ended.out.contains("w0 w1 w2 w3 w4"), "{ended:?}");

    let prompt = "create made.txt containing hello then read made.txt";
    let ended = opencode(world, key, &["run", "--attach", url, prompt]).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(fs::read_to_string(place.join("made.txt"))?.trim() == "hello", "{ended:?}");
    let shown = format!("{}{}", ended.out, ended.err).to_lowercase();
    ensure!(shown.contains("write") && shown.contains("read"), "the tools are shown: {ended:?}");

    let args = ["run", "--attach", url, "--format", "json", "run `echo from-the-shell`"];
    let ended = opencode(world, key, &args).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let events = ended.json_lines()?;
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    for kind in ["step_start", "tool_use", "text", "step_finish"] {
        ensure!(kinds.contains(&kind), "no {kind} in {kinds:?}: {ended:?}");
    }
    let tool = events.iter().find(|event| event["type"] == "tool_use").context("a tool")?;
    let state = &tool["part"]["state"];
    ensure!(state["status"] == "completed", "{tool:#}");
    ensure!(state["output"].as_str().is_some_and(|out| out.contains("from-the-shell")), "{tool:#}");

    let ended =
        opencode(world, "not-a-key-of-this-service", &["run", "--attach", url, "hello"]).await?;
    let said = format!("{}{}", ended.out, ended.err);
    ensure!(ended.code != Some(0) && said.contains("Session not found"), "{ended:?}");
    Ok(())
}

/// Sends a request like stock clients: Basic, with the key as password.
async fn ask(api: &Api, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build()?;
    let mut request = client.request(method, format!("{}{path}", api.url()));
    request = request.basic_auth("opencode", Some(api.key()));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = api.send(request).await?;
    Ok((answer.status, answer.body))
}

async fn its_sdk_finds_its_routes(up: &Up, place: &Path) -> Result<()> {
    let api = up.api();
    let (status, health) = ask(api, Method::GET, "/global/health", None).await?;
    ensure!(
        status == 200 && health["healthy"] == true && health["version"].is_string(),
        "{health}"
    );

    let (status, session) =
        ask(api, Method::POST, "/session", Some(json!({ "title": "by hand" }))).await?;
    ensure!(status == 200 && session["title"] == "by hand", "{session}");
    let id = session["id"].as_str().filter(|id| id.starts_with("ses_")).context("an id")?;
    for field in ["projectID", "directory", "version", "slug"] {
        ensure!(session[field].is_string(), "no {field}: {session}");
    }
    ensure!(session["directory"] == json!(place), "{session}");
    ensure!(
        session["time"]["created"].is_i64() && session["time"]["updated"].is_i64(),
        "{session}"
    );

    let one = format!("/session/{id}");
    let (status, shown) = ask(api, Method::GET, &one, None).await?;
    ensure!(status == 200 && shown["id"] == id, "{shown}");
    let (status, list) = ask(api, Method::GET, "/session", None).await?;
    let list = list.as_array().context("a list")?;
    ensure!(status == 200 && list.iter().any(|session| session["id"] == id), "{list:?}");

    // Held open for the whole turn, and answered with the assistant's message.
    let hello = json!({ "parts": [{ "type": "text", "text": "say 2 words" }] });
    let (status, answer) = ask(api, Method::POST, &format!("{one}/message"), Some(hello)).await?;
    ensure!(status == 200 && answer["info"]["role"] == "assistant", "{answer:#}");
    let text =
        answer["parts"].as_array().context("parts")?.iter().find(|part| part["type"] == "text");
    ensure!(text.is_some_and(|part| part["text"] == "w0 w1"), "{answer:#}");

    let later = json!({ "parts": [{ "type": "text", "text": "run `echo later`" }] });
    let (status, nothing) =
        ask(api, Method::POST, &format!("{one}/prompt_async"), Some(later)).await?;
    ensure!(status == 204 && nothing == json!(""), "{status} {nothing}");
    let messages = eventually("the later prompt is answered", 60, async || {
        let (_, messages) = ask(api, Method::GET, &format!("{one}/message"), None).await?;
        let (_, status) = ask(api, Method::GET, "/session/status", None).await?;
        let messages = messages.as_array().cloned().context("a list")?;
        Ok((messages.len() == 5 && status.get(id).is_none()).then_some(messages))
    })
    .await?;
    let roles: Vec<&Value> = messages.iter().map(|message| &message["info"]["role"]).collect();
    ensure!(
        json!(roles) == json!(["user", "assistant", "user", "assistant", "assistant"]),
        "{roles:?}"
    );
    let ids: Vec<&str> =
        messages.iter().filter_map(|message| message["info"]["id"].as_str()).collect();
    ensure!(ids.is_sorted(), "stock clients sort by id: {ids:?}");
    let mut parts =
        messages.iter().flat_map(|message| message["parts"].as_array().into_iter().flatten());
    let tool = parts.find(|part| part["type"] == "tool").context("a tool's part")?;
    let state = &tool["state"];
    ensure!(
        state["status"] == "completed" && state["input"]["command"] == "echo later",
        "{tool:#}"
    );
    ensure!(state["output"].as_str().is_some_and(|out| out.contains("later")), "{tool:#}");
    let (status, missing) =
        ask(api, Method::GET, "/session/ses_000000000000AAAAAAAAAAAAAA", None).await?;
    ensure!(status == 404 && missing["name"] == "NotFoundError", "{missing}");
    Ok(())
}

/// Forks a session like the client's `run --fork`, then sends the requests of its undo, redo and file list.
async fn it_forks_and_undoes(world: &World, up: &Up, place: &Path) -> Result<()> {
    let api = up.api();
    let session = api.session(place).await?;
    let list = async |session: &str| -> Result<Vec<Value>> {
        let path = format!("/session/{session}/message");
        let (status, messages) = ask(api, Method::GET, &path, None).await?;
        ensure!(status == 200, "{messages}");
        messages.as_array().cloned().context("a list")
    };
    let path = format!("/session/{session}");
    let prompt = async |text: &str| -> Result<String> {
        let body = json!({ "parts": [{ "type": "text", "text": text }] });
        let (status, answer) =
            ask(api, Method::POST, &format!("{path}/message"), Some(body)).await?;
        ensure!(status == 200, "{answer}");
        Ok(answer["info"]["parentID"].as_str().context("its prompt")?.to_owned())
    };
    prompt("create undo.txt containing one").await?;
    let second = prompt("edit undo.txt replacing one with two").await?;
    let before = list(&session).await?;

    let args = ["run", "--attach", api.url(), "--session", &session, "--fork", "say 3 words"];
    let ended = opencode(world, api.key(), &args).await?;
    ensure!(ended.code == Some(0) && ended.out.contains("w0 w1 w2"), "{ended:?}");
    let sessions = api.sessions().await?;
    let fork = sessions.iter().find(|found| found["forkOf"] == session.as_str());
    let fork = fork.and_then(|fork| fork["id"].as_str()).context("a fork")?;
    let copied = list(fork).await?;
    ensure!(copied.len() == before.len() + 2, "{copied:#?}");
    ensure!(list(&session).await? == before, "the other one is as it was");
    let roles = |messages: &[Value]| -> Vec<Value> {
        messages.iter().take(before.len()).map(|message| message["info"]["role"].clone()).collect()
    };
    ensure!(roles(&copied) == roles(&before), "{copied:#?}");

    let text = || fs::read_to_string(place.join("undo.txt")).unwrap_or_default();
    let (status, diff) = ask(api, Method::GET, &format!("{path}/diff"), None).await?;
    ensure!(status == 200 && diff[0]["file"] == "undo.txt", "{diff:#}");
    ensure!(diff[0]["status"] == "added" && diff[0]["additions"] == 1, "{diff:#}");
    let back = json!({ "messageID": second });
    let (status, undone) = ask(api, Method::POST, &format!("{path}/revert"), Some(back)).await?;
    ensure!(status == 200 && undone["revert"]["messageID"] == second.as_str(), "{undone:#}");
    ensure!(undone["revert"]["diff"].is_string(), "{undone:#}");
    ensure!(text().trim_end() == "one", "{}", text());
    let (status, redone) = ask(api, Method::POST, &format!("{path}/unrevert"), None).await?;
    ensure!(status == 200 && redone["revert"].is_null(), "{redone:#}");
    ensure!(text().trim_end() == "two", "{}", text());
    Ok(())
}
