//! Sessions go to another service, with a Postgres and a disk of its own, as people take them: in a file, through a pipe,
//! and out of the released client.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Api, Ended, World, events_of, oracle};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::stock::released_client;

/// Prompts, and waits for the end of the work.
async fn work(api: &Api, session: &str, text: &str) -> Result<String> {
    let message = api.admit(session, text).await?;
    ensure!(api.outcome(session, &message, 60).await? == "completed", "{text}");
    Ok(message)
}

/// Returns messages without the directory of their answers.
fn pathless(mut messages: Value) -> Value {
    for message in messages.as_array_mut().into_iter().flatten() {
        message["info"].as_object_mut().map(|info| info.remove("path"));
    }
    messages
}

fn good(ended: Ended) -> Result<Ended> {
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(ended)
}

/// Returns the text that the model answered last.
async fn last_text(api: &Api, session: &str) -> Result<String> {
    let messages = api.get(&format!("/platform/session/{session}/message")).await?.ok()?;
    let last = messages.as_array().and_then(|all| all.last()).context("a message")?;
    let parts = last["parts"].as_array().context("parts")?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    Ok(texts.join("\n"))
}

#[tokio::test]
async fn a_session_goes_to_another_service_with_its_files() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.up().await?, there.up().await?);
    let place = here.workspace("travel")?;
    fs::write(place.join("mine.txt"), "mine\n")?;
    let session = from.api().session(&place).await?;
    work(from.api(), &session, "create a.txt containing one").await?;
    let second = work(from.api(), &session, "edit a.txt replacing one with two").await?;
    work(from.api(), &session, "run seq 1 20000").await?;
    let (cli, other) = (from.cli()?, to.cli()?);

    let file = here.folder().join("session.jsonl");
    let name = file.to_str().context("UTF-8")?;
    let ended = good(cli.run(&["export", &session, "--output", name]).await?)?;
    ensure!(ended.out.contains("opencode-cloud import"), "{ended:?}");
    let piped = good(cli.run(&["export", &session]).await?)?;
    ensure!(piped.out.lines().count() == fs::read_to_string(&file)?.lines().count());
    ensure!(!fs::read_to_string(&file)?.contains(from.api().key()), "no key is in it");

    let ended = good(other.run(&["import", name]).await?)?;
    ensure!(ended.out.contains(&format!("opencode-cloud run --session {session}")), "{ended:?}");
    let again = other.run(&["import", name]).await?;
    ensure!(again.code == Some(1) && again.err.contains("keeps ids"), "{again:?}");

    // The same conversation, the same diff, and every request is proved again.
    let own = format!("/platform/session/{session}");
    for below in ["message", "diff", "usage"] {
        let path = format!("{own}/{below}");
        let (before, after) = (from.api().get(&path).await?, to.api().get(&path).await?);
        let (before, after) = (pathless(before.ok()?), pathless(after.ok()?));
        ensure!(before == after, "{below}: {before:#} {after:#}");
    }
    let log = to.api().log(&session).await?;
    let attempts = events_of(&log, "attempt.started");
    ensure!(attempts.len() >= 6, "{}", attempts.len());
    for attempt in attempts {
        let id = attempt["attempt"].as_str().context("an id")?;
        good(other.run(&["explain", id]).await?)?;
    }
    ensure!(to.api().get("/platform/check?settled=true&blobs=true").await?.ok()? == json!([]));

    // It works on, with its files; and goes back to before a message.
    work(to.api(), &session, "run cat a.txt mine.txt").await?;
    let told = last_text(to.api(), &session).await?;
    ensure!(told.contains("two") && told.contains("mine"), "{told}");
    let back = json!({ "messageID": second });
    to.api().post(&format!("{own}/revert"), &back).await?.ok()?;
    work(to.api(), &session, "run cat a.txt").await?;
    ensure!(last_text(to.api(), &session).await?.contains("one"));
    ensure!(fs::read_to_string(place.join("a.txt"))?.trim_end() == "two", "here nothing happened");
    for (up, world) in [(&from, &here), (&to, &there)] {
        let broken = up.api().get("/platform/check?settled=true&blobs=true").await?.ok()?;
        ensure!(broken == json!([]), "{broken:#}");
        ensure!(up.api().get("/readyz").await?.status == 200, "{}", world.folder().display());
    }
    oracle(from.api(), here.model()).await?;
    from.stop(&here).await?;
    to.stop(&there).await
}

/// The name of the model's provider, in the released client's settings and in ours.
const PROVIDER: &str = "mine";

/// Runs the released client on its own, with the world's model, as somebody who has no service yet.
async fn alone(world: &World, place: &Path, args: &[&str]) -> Result<Ended> {
    let home = world.workspace("home")?;
    let mut command = Command::new(released_client().await?);
    command.args(args).env_clear().current_dir(place).stdin(Stdio::null()).kill_on_drop(true);
    command.env("PATH", "/usr/bin:/bin").env("HOME", &home);
    for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
        command.env(format!("XDG_{kind}_HOME"), home.join(kind));
    }
    for what in ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
        command.env(format!("OPENCODE_DISABLE_{what}"), "1");
    }
    let options = json!({ "baseURL": world.model_url(), "apiKey": "none" });
    let models = json!({ "simulated": { "name": "Simulated" } });
    let provider = json!({ "npm": "@ai-sdk/openai-compatible", "name": "Simulated", "options": options, "models": models });
    let config = json!({
        "provider": { (PROVIDER): provider },
        "model": format!("{PROVIDER}/simulated"),
        "small_model": format!("{PROVIDER}/simulated"),
    });
    command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    let output = timeout(Duration::from_secs(100), command.output())
        .await
        .context("the client does not end")??;
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ended { code: output.status.code(), out, err })
}

#[tokio::test]
async fn a_session_of_the_released_client_goes_on_here() -> Result<()> {
    let world = World::new().await?;
    let place = world.workspace("released")?;
    good(alone(&world, &place, &["run", "--title", "Before", "say 5 words"]).await?)?;
    good(alone(&world, &place, &["run", "-c", "read made.txt"]).await?)?;
    let listed = good(alone(&world, &place, &["session", "list"]).await?)?;
    let session = listed.out.split_whitespace().find(|word| word.starts_with("ses_"));
    let session = session.with_context(|| listed.out.clone())?.to_owned();
    let export = good(alone(&world, &place, &["export", &session]).await?)?.out;

    let up = world.up_with(&["--model-provider", PROVIDER]).await?;
    let cli = up.cli()?;
    let directory = place.to_str().context("UTF-8")?;
    let args = ["import", "-", "--directory", directory, "--json"];
    let ended = good(cli.run_with_input(&args, &export).await?)?;
    let told: Value = serde_json::from_str(&ended.out)?;
    ensure!(told["session"]["id"] == session.as_str(), "{told:#}");
    ensure!(told["session"]["directory"] == directory, "{told:#}");
    let left_out = told["leftOut"].to_string();
    ensure!(left_out.contains("token counts"), "{left_out}");
    let shown = good(cli.run(&["session", "show", &session, "--messages"]).await?)?;
    ensure!(shown.out.contains("w0 w1 w2 w3 w4"), "{shown:?}");

    work(up.api(), &session, "create after.txt containing here").await?;
    ensure!(fs::read_to_string(place.join("after.txt"))?.trim_end() == "here");
    let sent = world.model().requests().pop().and_then(|asked| asked.body).context("a body")?;
    ensure!(sent.contains("say 5 words") && sent.contains("w0 w1 w2"), "{sent}");
    let broken = up.api().get("/platform/check?settled=true&blobs=true").await?.ok()?;
    ensure!(broken == json!([]), "{broken:#}");
    up.stop(&world).await
}
