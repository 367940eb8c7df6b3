//! The command line in a terminal: its dialog, its tables at two widths, and completions in three shells.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use journeys::{World, eventually, executable, oracle};
use serde_json::json;

use crate::terminal::Terminal;

const BASH: [&str; 4] = ["bash", "--norc", "--noprofile", "-i"];

#[tokio::test]
async fn a_person_answers_a_run_in_its_terminal() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    let place = world.workspace("secrets")?;
    for name in ["", "b", "c"] {
        fs::write(place.join(format!("{name}.env")), "TOKEN=not-for-models\n")?;
    }
    let terminal = Terminal::shell(&world, "home", up.api(), &place, (100, 40), &BASH)?;
    terminal.until(">").await?;
    let run =
        |name: &str| format!("clear; opencode-cloud run 'read {name}.env'; echo \"ended $?\"");
    terminal.prompt(&run(""), "allow read `.env`?").await?;
    terminal.until("y yes, a always (`.env`), n stops here; n TEXT goes on with TEXT:").await?;
    // A line that is no answer asks again, and yes is yes in any case.
    terminal.type_text("?")?;
    terminal.press("Enter")?;
    terminal.until("?\nallow read `.env`?").await?;
    terminal.type_text("YES")?;
    terminal.press("Enter")?;
    let screen = terminal.until("ended 0").await?;
    ensure!(screen.contains("TOKEN=not-for-models"), "{screen}");

    // Words after a no are for the model, which goes on with them.
    terminal.prompt(&run("b"), "allow read `b.env`?").await?;
    terminal.type_text("no, read the example")?;
    terminal.press("Enter")?;
    terminal.until("The user rejected this call: read the example").await?;
    let screen = terminal.until("ended 0").await?;
    ensure!(!screen.contains("TOKEN"), "{screen}");

    // Ctrl-C while it asks stops the work, and nobody is asked any longer.
    terminal.prompt(&run("c"), "allow read `c.env`?").await?;
    terminal.press("C-c")?;
    terminal.until("ended 130").await?;
    let asks = up.api().get("/platform/ask").await?.ok()?;
    ensure!(asks == json!([]), "{asks}");
    drop(terminal);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// Runs a command in the terminal and returns the lines that it printed. `number` tells it from those before.
async fn printed(terminal: &Terminal, number: usize, command: &str) -> Result<Vec<String>> {
    terminal.type_text(&format!("clear; {command}; echo e''nd {number}"))?;
    terminal.press("Enter")?;
    let end = format!("end {number}");
    let screen = terminal.until(&format!("\n{end}\n")).await?;
    let lines = screen.lines().take_while(|line| *line != end).map(str::to_owned);
    Ok(lines.collect())
}

#[tokio::test]
async fn tables_fit_terminals_of_80_and_200_columns() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    let place = world.workspace("place")?;
    let api = up.api();
    let project = api.project(&place).await?;
    let title = "Find out why the parser loses the last line, and mend it";
    for _ in 0..3 {
        let body = json!({ "title": title });
        api.post(&format!("/project/{project}/session"), &body).await?.ok()?;
    }
    let terminal = Terminal::shell(&world, "home", api, &place, (80, 50), &BASH)?;
    terminal.until(">").await?;
    let mut number = 0;
    for columns in [80, 200] {
        terminal.resize(columns)?;
        for (command, start, rows) in
            [("opencode-cloud session list", "ses_", 3), ("opencode-cloud project list", "prj_", 1)]
        {
            number += 1;
            let lines = printed(&terminal, number, command).await?;
            // A row that the terminal had to break would have a second line.
            let of_rows = lines.iter().filter(|line| line.starts_with(start)).count();
            ensure!(
                of_rows == rows && lines.len() == rows + 1,
                "{command} at {columns}: {lines:#?}"
            );
            if start == "ses_" {
                let whole = lines.iter().filter(|line| line.contains(title)).count();
                ensure!(whole == if columns == 200 { rows } else { 0 }, "{columns}: {lines:#?}");
            }
        }
        number += 1;
        let help = printed(&terminal, number, "opencode-cloud session revert --help").await?;
        ensure!(help.iter().any(|line| line.contains("--last")), "{help:#?}");
    }
    drop(terminal);
    up.stop(&world).await
}

/// Commands that only read, and a word of what each shows.
const READS: [(&str, &str); 11] = [
    ("session show SESSION", "created "),
    ("session show SESSION --messages", "user msg_"),
    ("session inbox SESSION", "nothing waits"),
    ("project show PROJECT", "SESSION"),
    ("provider list", "SET UP BY"),
    ("models", "CONTEXT"),
    ("credential list", "no credentials"),
    ("ask list", "nothing waits"),
    ("usage", "PROMPTS"),
    ("limit list", "there is no limit"),
    ("session --help", "unarchive"),
];

#[tokio::test]
async fn commands_read_well_at_80_and_200_columns_and_in_pipes() -> Result<()> {
    executable()?; // report a missing executable first
    let world = World::new().await?;
    let up = world.up().await?;
    let place = world.workspace("place")?;
    let api = up.api();
    let project = api.project(&place).await?;
    let title = "Find out why the parser loses the last line, and mend it";
    let new = json!({ "id": "ses_read", "title": title });
    api.post(&format!("/project/{project}/session"), &new).await?.ok()?;
    let prompt = json!({ "id": "msg_read", "text": "say 3 words" });
    api.post("/platform/session/ses_read/message", &prompt).await?.ok()?;
    api.post("/platform/session/ses_read/wait", &json!({})).await?.ok()?;
    // Usage is summed a moment after the turn.
    eventually("the turn is counted", 60, async || {
        let usage = api.get("/platform/usage").await?.ok()?;
        let is_counted = usage["rows"].as_array().is_some_and(|rows| !rows.is_empty());
        Ok(is_counted.then_some(()))
    })
    .await?;
    let terminal = Terminal::shell(&world, "home", api, &place, (80, 70), &BASH)?;
    terminal.until(">").await?;
    for columns in [80, 200] {
        terminal.resize(columns)?;
        for (at, (command, word)) in READS.iter().enumerate() {
            let command = command.replace("SESSION", "ses_read").replace("PROJECT", &project);
            let command = format!("opencode-cloud {command} && echo w''ell");
            printed(&terminal, at + 100 * usize::from(columns), &command).await?;
            let shown = terminal.whole_lines()?;
            let told = || format!("{command} at {columns}: {shown:#?}");
            ensure!(shown.iter().any(|line| line.contains(word)), told());
            ensure!(shown.iter().any(|line| line == "well"), told());
            let widest = shown.iter().map(|line| line.chars().count()).max();
            ensure!(widest <= Some(usize::from(columns)), told());
        }
    }
    terminal.resize(80)?;
    // A pipe is no terminal: nothing is cut, and nothing is coloured.
    let listed = "NO_COLOR= opencode-cloud session list | tee list.txt";
    printed(&terminal, 1, listed).await?;
    let text = std::fs::read_to_string(place.join("list.txt"))?;
    ensure!(text.contains(title) && !text.contains('\u{1b}'), "{text}");
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
    ensure!(is_installed(shell), "{shell} is not installed; `./dev test` installs it");
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
