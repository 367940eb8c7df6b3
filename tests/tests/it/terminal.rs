//! The released terminal interface at our service, as a person sees it in a terminal of tmux.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use journeys::{World, eventually, executable, oracle};

use crate::stock::released_client;

/// A terminal of 150 by 50 characters with one program.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Starts `opencode-cloud attach` in a terminal, with `client` as the released client.
    fn attach(world: &World, client: &Path, url: &str, key: &str, place: &Path) -> Result<Self> {
        let home = world.workspace("home")?;
        let terminal = Self { socket: home.join("tmux") };
        let mut tmux = Command::new("tmux");
        tmux.env_clear().env("HOME", &home).env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        let folder = client.parent().context("a folder")?.display();
        tmux.env("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin"));
        tmux.env("OPENCODE_CLOUD_URL", url).env("OPENCODE_CLOUD_KEY", key);
        for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
            tmux.env(format!("XDG_{kind}_HOME"), home.join(kind));
        }
        for what in ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
            tmux.env(format!("OPENCODE_DISABLE_{what}"), "1");
        }
        tmux.arg("-S").arg(&terminal.socket).args(["new-session", "-d", "-x", "150", "-y", "50"]);
        tmux.arg("-c").arg(place).arg(executable()?).arg("attach").arg(place);
        let started = tmux.output().context("tmux is needed: ./dev test installs it")?;
        ensure!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Ok(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Types a text as it is.
    fn type_text(&self, text: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", text]).map(drop)
    }

    /// Presses a key, such as `Enter`.
    fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Waits until the screen shows `text`, and returns the screen.
    async fn until(&self, text: &str) -> Result<String> {
        let mut last = String::new();
        let look = async || {
            last = self.tmux(&["capture-pane", "-p"])?;
            Ok(last.contains(text).then(|| last.clone()))
        };
        let found = eventually("a text on the screen", 60, look).await;
        found.with_context(|| format!("`{text}` is not on the screen:\n{last}"))
    }

    /// Gives a prompt once the one before has ended, and waits until the screen shows `text`.
    async fn prompt(&self, prompt: &str, text: &str) -> Result<String> {
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
    let terminal = Terminal::attach(&world, &client, up.api().url(), up.api().key(), &place)?;
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
