//! The commands in the documents do what the documents say.

use anyhow::{Context, Result, ensure};
use journeys::{World, repository};
use tokio::process::Command;

/// The shell's side of the examples: a refusal ends the script, and following a log ends after a moment.
const PRELUDE: &str = r#"set -e
curl() {
  case "$*" in
    *follow=true* | */event*) command curl -sS --max-time 2 "$@" >/dev/null || [ $? = 28 ]; return ;;
  esac
  command curl -sS --fail-with-body --max-time 90 "$@" || { echo "failed: curl $*" >&2; return 1; }
}
"#;

/// Returns the examples of a document, to be run from top to bottom, without the line that sets the service.
fn examples(document: &str) -> String {
    let mut script = String::from(PRELUDE);
    let mut is_shell = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_shell = !is_shell && line == "```sh";
        } else if is_shell && !line.starts_with("export OC=") {
            script.push_str(line);
            script.push('\n');
        }
    }
    script
}

// Finding trial 18: docs/api.md called its examples complete, and the second one was refused.
#[tokio::test]
async fn the_examples_of_the_api_can_be_run() -> Result<()> {
    let document = std::fs::read_to_string(repository().join("docs/api.md"))?;
    let (complete, _) = document.split_once("## Providers and their credentials").context("it")?;
    let script = examples(complete);
    ensure!(script.matches("curl ").count() > 20, "the examples are found: {script}");
    let (world, elsewhere) = (World::new().await?, World::new().await?);
    let (up, other) = (world.up().await?, elsewhere.up().await?);
    let place = world.workspace("examples")?;
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(&script).current_dir(&place).kill_on_drop(true);
    bash.env("OC", up.api().url()).env("KEY", up.api().key());
    bash.env("OTHER", other.api().url()).env("OTHER_KEY", other.api().key());
    let ended = bash.output().await?;
    let told = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{told}\n{}", String::from_utf8_lossy(&ended.stdout));
    ensure!(place.join("x.txt").exists(), "the second prompt wrote its file");
    other.stop(&elsewhere).await?;
    up.stop(&world).await
}
