//! The released web client in a browser without a window, at the service: a person's day in it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use journeys::{World, executable, oracle};
use serde_json::{Value, json};
use simulated_model::Script;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::npm::installed;
use crate::stock::released_client;

/// How long the whole walk may take on a busy machine. Each step has a limit of its own.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the browser.
pub(crate) fn chromium() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    all.find(|program| program.is_file())
        .context("no chromium is on the PATH: ./dev test installs it")
}

#[tokio::test]
async fn the_released_web_client_works_through_a_day() -> Result<()> {
    executable()?; // report a missing executable first
    let (browser, client) = (chromium()?, released_client().await?);
    let folder = installed("opencode-web", "playwright-core").await;
    let world = World::new().await?;
    let place = world.workspace("garden")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    // The place is known once it has a session.
    up.api().session(&place).await?;
    world.model().script(Script {
        matches: "tell the story".into(),
        text: Some("It begins well, goes on, and so it ends.".into()),
        gate: Some("the-end".into()),
        gate_after_chunks: Some(5),
        ..Script::default()
    })?;

    let home = world.workspace("web-home")?;
    let parts = json!({
        "service": up.api().url(), "key": up.api().key(), "client": client, "home": home,
        "place": place, "browser": browser,
    });
    let mut node = Command::new("node");
    node.arg("walk.mjs").arg(parts.to_string()).current_dir(folder).kill_on_drop(true);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut walk = node.spawn().context("node is needed: ./dev test installs it")?;
    let mut go_on = walk.stdin.take().context("an input")?;
    let mut lines = BufReader::new(walk.stdout.take().context("an output")?).lines();
    let mut steps = Vec::new();
    let walked = timeout(LIMIT, async {
        while let Some(line) = lines.next_line().await? {
            match line.as_str() {
                "waits streaming" => world.model().open_gate("the-end")?,
                "waits renamed" => {
                    let titles = titles(up.api()).await?;
                    ensure!(titles.contains(&"a name of my own".to_owned()), "{titles:?}");
                }
                // Before a session is deleted, with all that the oracle compares.
                "waits listed" => {
                    oracle(up.api(), world.model()).await?;
                }
                _ => {}
            }
            if line.starts_with("waits ") {
                go_on.write_all(b"go on\n").await?;
            }
            steps.push(line);
        }
        anyhow::Ok(())
    })
    .await;
    let mut told = String::new();
    if walked.is_err() {
        walk.start_kill()?;
    }
    let mut errors = walk.stderr.take().context("an output")?;
    timeout(Duration::from_secs(20), errors.read_to_string(&mut told)).await.ok();
    let status = walk.wait().await?;
    if !matches!(walked, Ok(Ok(()))) || !status.success() {
        bail!("after {steps:?}: {walked:?}: {told}");
    }

    let last: Value = serde_json::from_str(&steps.pop().context("a report")?)?;
    let refused: Vec<&str> =
        last["refused"].as_array().context("a list")?.iter().filter_map(Value::as_str).collect();
    let others: Vec<_> = refused.iter().filter(|what| !is_harmless(what)).collect();
    ensure!(others.is_empty() && last["errors"] == json!([]), "{last:#}");
    ensure!(steps.first().is_some_and(|step| step == "opened"), "{steps:?}");
    ensure!(steps.last().is_some_and(|step| step == "deleted"), "{steps:?}");
    let left = titles(up.api()).await?;
    ensure!(!left.contains(&"a name of my own".to_owned()), "{left:?}");
    ensure!(std::fs::read_to_string(place.join("made.txt"))?.trim() == "bonjour");
    up.stop(&world).await
}

/// Returns whether the client goes on without this, and shows no error.
fn is_harmless(refused: &str) -> bool {
    // It offers to make a git repository, looks for a tree of files beside the session, and asks once more for the
    // session that was deleted.
    ["400 POST /project/git/init", "400 GET /file"].contains(&refused)
        || refused.starts_with("404 GET /session/")
}

async fn titles(api: &journeys::Api) -> Result<Vec<String>> {
    let title = |session: Value| session["title"].as_str().map(str::to_owned);
    Ok(api.sessions().await?.into_iter().filter_map(title).collect())
}
