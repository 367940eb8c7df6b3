//! The commands in the documents do what the documents say.

use anyhow::{Context, Result, bail, ensure};
use journeys::{World, executable, repository};
use serde_json::Value;
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

/// How many seconds the recipes may take.
const LIMIT: &str = "120";

/// The shell's side of the recipes: the first command that fails ends them. `OC_PORT` and folders stand for the document's.
const RECIPES: &str = r#"set -eu -o pipefail
PATH=$OC_FOLDER:$PATH
trap 'kill -INT $(jobs -p) 2>/dev/null; wait' EXIT
ready() { until curl -sf "$OPENCODE_CLOUD_URL/readyz" >/dev/null; do sleep 0.2; done; }
prompt() { opencode-cloud run --json "$@" | tail -n 1; }
"#;

// Finding trial 11: the recipe lacked the secrets key. Later it could not be followed, because a table had got partitions.
#[tokio::test]
async fn what_was_backed_up_is_restored_as_the_recipe_says() -> Result<()> {
    let document = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let (_, recipes) = document.split_once("\n## Backup\n").context("it")?;
    let (recipes, _) = recipes.split_once("\n## Troubleshooting\n").context("it")?;
    let blocks: Vec<&str> = recipes.split("```sh\n").skip(1).collect();
    let blocks: Vec<&str> = blocks.iter().filter_map(|block| block.split("```").next()).collect();
    let [backup, into_up, into_cluster] = blocks[..] else { bail!("{} recipes", blocks.len()) };
    let world = World::new().await?;
    let (before, after) = (world.data(), world.folder().join("restored"));
    let (before, after) = (before.display().to_string(), after.display().to_string());
    let flags = format!("--data-dir $D --port $OC_PORT --model-url {}", world.model_url());
    let serve = |of: &str| format!("serve {}", flags.replace("$D", of));
    let script = [
        RECIPES,
        &format!("opencode-cloud {} &\nready\n", serve(&before)),
        &format!("export OPENCODE_CLOUD_KEY=$(cat {before}/client.key)\nmkdir SAFE\n"),
        "prompt 'create kept containing precious' >kept.json\n",
        "echo sk-canary | opencode-cloud credential add openai --label trial\n",
        &backup.replace("/var/lib/opencode-cloud", &before),
        "prompt 'say 2 words' >lost.json\nkill -INT %1; wait %1\n",
        &format!("mv {before} {before}.gone\n"),
        &into_up
            .replace("/var/lib/opencode-cloud-restored", &after)
            .replace("serve --data-dir $N", &serve("$N"))
            .replace("127.0.0.1:4096", "127.0.0.1:$OC_PORT"),
        "opencode-cloud credential list >credentials.txt\nopencode-cloud session list --json >sessions.json\n",
        "opencode-cloud run --session \"$(sed 's/.*\"session\":\"\\([^\"]*\\).*/\\1/' kept.json)\" 'read kept' >read.txt\n",
        // Beside it on the same server, as a cluster's operator does.
        &into_cluster
            .replace("PGHOST=db PGPORT=5432", "PGHOST=127.0.0.1")
            .replace("PGPASSWORD=ADMIN", "PGPASSWORD=$PGPASSWORD")
            .replace("postgres:ADMIN@db:5432", "postgres:$PGPASSWORD@127.0.0.1:$PGPORT"),
        "psql -d restored -Atc 'SELECT count(*) FROM session_head' >heads.txt\n",
    ]
    .concat();
    let place = world.workspace("backup")?;
    let port = boot::free_port()?.to_string();
    // It signals all that the script has started.
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=20", LIMIT, "bash", "-c", &script])
        .current_dir(&place)
        .kill_on_drop(true);
    let program = executable()?;
    bash.env("OC_FOLDER", program.parent().context("a folder")?).env("OC_PORT", &port);
    bash.env("OPENCODE_CLOUD_URL", format!("http://127.0.0.1:{port}"));
    bash.env("OPENCODE_CLOUD_PROFILE", world.profile()).env_remove("OPENCODE_CLOUD_KEY");
    let ended = bash.output().await?;
    let [out, told] =
        [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(ended.status.success(), "{told}\n{out}");
    let file = |name: &str| std::fs::read_to_string(place.join(name));
    let run = |name: &str| anyhow::Ok(serde_json::from_str::<Value>(&file(name)?)?);
    let (kept, lost) = (run("kept.json")?, run("lost.json")?);
    let sessions = file("sessions.json")?;
    let has = |it: &Value| it["session"].as_str().is_some_and(|id| sessions.contains(id));
    ensure!(has(&kept) && !has(&lost), "what came after the backup is gone: {sessions}");
    ensure!(file("credentials.txt")?.contains("trial"), "{}", file("credentials.txt")?);
    ensure!(file("read.txt")?.contains("precious"), "{}", file("read.txt")?);
    ensure!(file("heads.txt")?.trim() == "1", "{}", file("heads.txt")?);
    Ok(())
}
