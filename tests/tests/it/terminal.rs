//! The released terminal interface at our service, as a person sees it in a terminal of tmux.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use journeys::{Api, World, eventually, executable, oracle};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};

use crate::stock::released_client;

/// A terminal with one program.
pub(crate) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Starts `opencode-cloud attach` in a terminal, with `client` as the released client.
    /// `home` names the folder of its user.
    pub(crate) fn attach(
        world: &World,
        home: &str,
        client: &Path,
        url: &str,
        key: &str,
        place: &Path,
    ) -> Result<Self> {
        let home = world.workspace(home)?;
        let mut tmux = Command::new("tmux");
        let folder = client.parent().context("a folder")?;
        tmux.env_clear().env("OPENCODE_CLOUD_URL", url).env("OPENCODE_CLOUD_KEY", key);
        for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
            tmux.env(format!("XDG_{kind}_HOME"), home.join(kind));
        }
        for what in ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
            tmux.env(format!("OPENCODE_DISABLE_{what}"), "1");
        }
        let program = [executable()?.into_os_string(), "attach".into(), place.into()];
        Self::open(tmux, &home, folder, place, (150, 50), &program)
    }

    /// Starts a shell in a terminal, in which `opencode-cloud` is a command. `words` start the shell.
    pub(crate) fn shell(
        world: &World,
        home: &str,
        api: &Api,
        place: &Path,
        size: (u16, u16),
        words: &[&str],
    ) -> Result<Self> {
        let home = world.workspace(home)?;
        let mut tmux = Command::new("tmux");
        tmux.env_clear().env("OPENCODE_CLOUD_URL", api.url());
        tmux.env("OPENCODE_CLOUD_KEY", api.key()).env("PS1", "> ").env("PAGER", "cat");
        let executable = executable()?;
        let folder = executable.parent().context("a folder")?;
        let program: Vec<OsString> = words.iter().map(OsString::from).collect();
        Self::open(tmux, &home, folder, place, size, &program)
    }

    /// Starts a program in a terminal of so many columns and lines. `folder` is on its PATH.
    fn open(
        mut tmux: Command,
        home: &Path,
        folder: &Path,
        place: &Path,
        (columns, lines): (u16, u16),
        program: &[OsString],
    ) -> Result<Self> {
        let terminal = Self { socket: home.join("tmux") };
        tmux.env("HOME", home).env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        tmux.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()));
        tmux.arg("-S").arg(&terminal.socket).args(["new-session", "-d"]);
        tmux.args(["-x", &columns.to_string(), "-y", &lines.to_string()]);
        tmux.arg("-c").arg(place).args(program);
        let started = tmux.output().context("tmux is needed: ./dev test installs it")?;
        ensure!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Ok(terminal)
    }

    /// Makes the terminal wider or narrower.
    pub(crate) fn resize(&self, columns: u16) -> Result<()> {
        self.tmux(&["resize-window", "-x", &columns.to_string()]).map(drop)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the screen.
    pub(crate) fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Returns the lines that programs printed, each whole where the terminal had to break it.
    pub(crate) fn whole_lines(&self) -> Result<Vec<String>> {
        let screen = self.tmux(&["capture-pane", "-p", "-J"])?;
        Ok(screen.lines().map(|line| line.trim_end().to_owned()).collect())
    }

    /// Types a text as it is.
    pub(crate) fn type_text(&self, text: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", text]).map(drop)
    }

    /// Presses a key, such as `Enter`.
    pub(crate) fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Waits until the screen shows `text`, and returns the screen.
    pub(crate) async fn until(&self, text: &str) -> Result<String> {
        let mut last = String::new();
        let look = async || {
            last = self.tmux(&["capture-pane", "-p"])?;
            Ok(last.contains(text).then(|| last.clone()))
        };
        let found = eventually("a text on the screen", 60, look).await;
        found.with_context(|| format!("`{text}` is not on the screen:\n{last}"))
    }

    /// Waits until the screen no longer shows `text`.
    pub(crate) async fn until_gone(&self, text: &str) -> Result<()> {
        let look = async || Ok((!self.screen()?.contains(text)).then_some(()));
        let gone = eventually("a text leaves the screen", 60, look).await;
        gone.with_context(|| format!("`{text}` is still on the screen"))
    }

    /// Gives a prompt once the one before has ended, and waits until the screen shows `text`.
    pub(crate) async fn prompt(&self, prompt: &str, text: &str) -> Result<String> {
        self.type_text(prompt)?;
        self.until(prompt).await?;
        self.press("Enter")?;
        self.until(text).await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _already_gone = self.tmux(&["kill-server"]);
    }
}

// Findings trial 2, 4 and 5: /diff ended the client, tools had no output, and refusals were swallowed.
#[tokio::test]
async fn the_released_terminal_shows_what_a_session_does() -> Result<()> {
    executable()?; // report a missing executable first
    let client = released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("terminal")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    let terminal =
        Terminal::attach(&world, "home", &client, up.api().url(), up.api().key(), &place)?;
    terminal.until("Ask anything").await?;
    let screen = terminal.prompt("run `echo from-the-$((40 + 2))`", "from-the-42").await?;
    ensure!(screen.contains("$ echo from-the-$((40 + 2))"), "{screen}");
    terminal.until("Build · ").await?;
    terminal.prompt("create made.txt containing bonjour", "# Wrote made.txt").await?;
    terminal.until("Created made.txt").await?;
    terminal.prompt("/diff", "+1 -0").await?;
    terminal.press("Escape")?;
    terminal.until("Created made.txt").await?;
    terminal.type_text("!")?;
    terminal.prompt("ls -la", "cannot be run yet").await?;
    terminal.prompt("/compact", "Objective").await?;
    drop(terminal);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

// Issue 30: the walk saw two cards of tools, and neither agents, models, providers nor the way back.
#[tokio::test]
async fn the_terminal_draws_each_tool_and_goes_back() -> Result<()> {
    executable()?; // report a missing executable first
    let client = released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("terminal")?;
    let file = place.join("a.txt");
    std::fs::write(&file, "alpha\nbeta\n")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    let page = format!("{}/healthz", world.model_url().trim_end_matches("/v1"));
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-gamma\n+delta\n*** End Patch";
    script_call(&world, "patch it", "apply_patch", json!({ "patchText": patch }))?;
    script_call(&world, "fetch it", "webfetch", json!({ "url": page, "format": "text" }))?;

    let terminal =
        Terminal::attach(&world, "home", &client, up.api().url(), up.api().key(), &place)?;
    terminal.until("Ask anything").await?;
    terminal.prompt("read a.txt", "Read a.txt").await?;
    terminal.until("read: 1: alpha").await?;
    terminal.prompt("edit a.txt replacing beta with gamma", "Edit a.txt").await?;
    terminal.until("2 + gamma").await?;
    terminal.until("edit: Edited a.txt").await?;
    terminal.prompt("search for alpha", "Grep \"alpha\" (1 match)").await?;
    terminal.until("grep: a.txt:1:alpha").await?;
    terminal.prompt("list the files", "Glob \"*\" (1 match)").await?;
    terminal.until("glob: a.txt").await?;
    terminal.prompt("fetch it", &format!("WebFetch {page}")).await?;
    terminal.until("That was fetch it").await?;
    terminal.prompt("patch it", "Patched a.txt").await?;
    terminal.until("2 + delta").await?;
    terminal.until("That was patch it").await?;

    // The last prompt goes back with its file, and comes again.
    let reads = async |text: &str| {
        let look = async || Ok((std::fs::read_to_string(&file)? == text).then_some(()));
        eventually("the file's content", 60, look).await
    };
    reads("alpha\ndelta\n").await?;
    terminal.press("C-x")?;
    terminal.press("u")?;
    terminal.until("1 message reverted").await?;
    reads("alpha\ngamma\n").await?;
    terminal.press("C-x")?;
    terminal.press("r")?;
    terminal.until_gone("1 message reverted").await?;
    reads("alpha\ndelta\n").await?;

    terminal.press("Tab")?;
    terminal.until("Plan · ").await?;
    terminal.press("Tab")?;
    terminal.until_gone("Plan · ").await?;
    terminal.prompt("/models", "Select model").await?;
    terminal.press("Escape")?;
    terminal.until_gone("Select model").await?;
    terminal.prompt("/connect", "Connect a provider").await?;
    terminal.until("Anthropic").await?;
    drop(terminal);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// Lets the model answer a prompt with one call, and then with a sentence.
fn script_call(world: &World, prompt: &str, tool: &str, arguments: Value) -> Result<()> {
    let call = ScriptedCall { name: tool.into(), arguments, id: None };
    let first = Script { matches: prompt.into(), round: Some(0), ..Script::default() };
    let last = Script { round: Some(1), text: Some(format!("That was {prompt}")), ..first.clone() };
    world.model().script(Script { tool_calls: vec![call], ..first })?;
    world.model().script(last)?;
    Ok(())
}

/// An answer whose end waits until its gate is open.
fn story() -> Script {
    Script {
        matches: "tell the story".into(),
        text: Some("It begins well, goes on, and so it ends.".into()),
        gate: Some("the-end".into()),
        gate_after_chunks: Some(4),
        ..Script::default()
    }
}

// The gateway that the terminal is attached to lives on, and the terminal is not touched: only a worker dies.
#[tokio::test]
async fn the_terminal_shows_the_answer_of_a_killed_worker() -> Result<()> {
    executable()?; // report a missing executable first
    let client = released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("terminal")?;
    let cluster = world.cluster(&[]).await?;
    let api = cluster.gateway(0);
    world.model().script(story())?;
    let terminal = Terminal::attach(&world, "home", &client, api.url(), api.key(), &place)?;
    terminal.until("Ask anything").await?;
    terminal.prompt("tell the story", "It begins").await?;
    let owner = eventually("a worker has the session", 60, async || {
        let Ok(status) = cluster.placement().await else { return Ok(None) };
        let owner = status.workers.into_iter().find(|worker| worker.leases > 0);
        let Some(owner) = owner else { return Ok(None) };
        let members = cluster.of("worker")?;
        Ok(members.into_iter().find(|member| member.url == owner.worker.url))
    })
    .await?;
    let asked = || world.model().requests().into_iter().filter(|it| it.scripted).count();
    ensure!(asked() == 1, "{} requests before the end", asked());
    cluster.signal(owner.pid, Signal::KILL)?;
    eventually(
        "another worker asks the model again",
        120,
        async || Ok((asked() > 1).then_some(())),
    )
    .await?;
    world.model().open_gate("the-end")?;
    terminal.until("and so it ends.").await?;
    terminal.until("Build · ").await?;
    // The same terminal goes on.
    terminal.prompt("say 2 words", "w0 w1").await?;
    drop(terminal);
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
}
