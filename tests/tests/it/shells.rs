//! The command line in a terminal: its dialog, its tables at two widths, and completions in three shells.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use journeys::{World, executable, oracle};
use serde_json::json;

use crate::terminal::Terminal;

const BASH: [&str; 4] = ["bash", "--norc", "--noprofile", "-i"];

#[tokio::test]
async fn a_person_answers_a_run_in_its_terminal() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    let place = world.workspace("secrets")?;
    fs::write(place.join(".env"), "TOKEN=not-for-models\n")?;
    let terminal = Terminal::shell(&world, "home", up.api(), &place, (100, 40), &BASH)?;
    terminal.until(">").await?;
    let run = "clear; opencode-cloud run 'read .env'; echo \"ended $?\"";
    terminal.prompt(run, "may it run read `.env`?").await?;
    terminal
        .until("y for yes, a for always (`.env`), n for no, or say what to do instead:")
        .await?;
    terminal.type_text("y")?;
    terminal.press("Enter")?;
    let screen = terminal.until("ended 0").await?;
    ensure!(screen.contains("TOKEN=not-for-models"), "{screen}");

    // Words are for the model, which goes on with them.
    terminal.prompt(run, "say what to do instead:").await?;
    terminal.type_text("read the example")?;
    terminal.press("Enter")?;
    let screen = terminal.until("ended").await?;
    ensure!(screen.contains("read the example") && !screen.contains("TOKEN"), "{screen}");

    // Ctrl-C while it asks stops the work, and the dialog is over everywhere.
    terminal.prompt(run, "say what to do instead:").await?;
    terminal.press("C-c")?;
    terminal.until("ended").await?;
    let asks = up.api().get("/platform/ask").await?.ok()?;
    ensure!(asks == json!([]), "{asks}");
    drop(terminal);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// Runs a command in the terminal and returns the lines that it printed.
async fn printed(terminal: &Terminal, command: &str) -> Result<Vec<String>> {
    terminal.type_text(&format!("clear; {command}; echo e''nd"))?;
    terminal.press("Enter")?;
    let screen = terminal.until("\nend\n").await?;
    let lines = screen.lines().take_while(|line| *line != "end").map(str::to_owned);
    Ok(lines.filter(|line| !line.starts_with('>')).collect())
}

#[tokio::test]
async fn tables_fit_terminals_of_80_and_200_columns() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    let name = "a-directory-with-a-name-that-alone-takes-more-than-forty-columns";
    let place = world.workspace(name)?;
    let api = up.api();
    let project = api.project(&place).await?;
    let title = "Find out why the parser loses the last line of a file without a line feed, and mend it everywhere";
    for _ in 0..3 {
        let body = json!({ "title": title });
        api.post(&format!("/project/{project}/session"), &body).await?.ok()?;
    }
    let terminal = Terminal::shell(&world, "home", api, &place, (80, 50), &BASH)?;
    terminal.until(">").await?;
    for (columns, whole) in [(80, false), (200, true)] {
        terminal.resize(columns)?;
        for (command, start, rows) in [
            ("opencode-cloud session list", "ses_", 3),
            ("opencode-cloud project list", "prj_", 1),
            ("opencode-cloud models", "simulated", 1),
            ("opencode-cloud provider list", "simulated", 1),
        ] {
            let lines = printed(&terminal, command).await?;
            let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            ensure!(width <= usize::from(columns), "{command}: {lines:#?}");
            // A row that was broken by the terminal would have a second line, which begins otherwise.
            let of_rows = lines.iter().filter(|line| line.starts_with(start)).count();
            ensure!(of_rows == rows && lines.len() >= rows + 1, "{command}: {lines:#?}");
            ensure!(lines.len() <= rows + 2, "{command} at {columns}: {lines:#?}");
            if start == "ses_" {
                let shown = lines.iter().filter(|line| line.contains(title)).count();
                ensure!(
                    shown == if whole { rows } else { 0 },
                    "{command} at {columns}: {lines:#?}"
                );
            }
        }
        let help = printed(&terminal, "opencode-cloud session revert --help").await?;
        ensure!(help.iter().all(|line| line.chars().count() <= usize::from(columns)), "{help:#?}");
    }
    drop(terminal);
    up.stop(&world).await
}

fn is_installed(shell: &str) -> bool {
    Command::new(shell).arg("--version").output().is_ok_and(|told| told.status.success())
}

/// Types the beginning of a word, presses Tab, and waits for the rest.
async fn completes(terminal: &Terminal, typed: &str, whole: &str) -> Result<()> {
    terminal.press("C-u")?;
    terminal.type_text(typed)?;
    terminal.press("Tab")?;
    terminal.until(whole).await?;
    terminal.press("C-u").map(drop)
}

async fn shell_completes(
    world: &World,
    shell: &str,
    words: &[&str],
    setup: &str,
    place: &Path,
) -> Result<()> {
    if !is_installed(shell) {
        eprintln!("skipped: {shell} is not installed; ./dev test installs it where it can");
        return Ok(());
    }
    // Completions ask nobody.
    let api = journeys::Api::new("http://127.0.0.1:9", "none")?;
    let terminal = Terminal::shell(world, shell, &api, place, (120, 30), words)?;
    terminal.until(">").await?;
    terminal.type_text(&format!("{setup}; echo r''eady"))?;
    terminal.press("Enter")?;
    terminal.until("\nready").await?;
    completes(&terminal, "opencode-cloud sessi", "opencode-cloud session").await?;
    completes(&terminal, "opencode-cloud session rever", "opencode-cloud session revert").await?;
    completes(&terminal, "opencode-cloud session revert --las", "--last").await?;
    completes(&terminal, "opencode-cloud run --ask rejec", "--ask reject").await
}

#[tokio::test]
async fn bash_zsh_and_fish_complete_commands_and_options() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let place = world.workspace("place")?;
    let bash = "source <(opencode-cloud completions bash)";
    shell_completes(&world, "bash", &BASH, bash, &place).await?;
    let zsh = "autoload -U compinit; compinit -u -D; source <(opencode-cloud completions zsh)";
    shell_completes(&world, "zsh", &["zsh", "-f", "-i"], zsh, &place).await?;
    let fish = "opencode-cloud completions fish | source";
    let prompt = "function fish_prompt; echo -n '> '; end; set -g fish_greeting";
    shell_completes(&world, "fish", &["fish", "--no-config", "-i", "-C", prompt], fish, &place)
        .await
}
