//! The contract for scripts: behaviour that must not change for people who automate us.

use std::fs;

use anyhow::{Context, Result, ensure};
use journeys::{Api, Cli, World, events_of, oracle, repository};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};

fn shell(command: &str) -> ScriptedCall {
    ScriptedCall { name: "shell".into(), arguments: json!({ "command": command }), id: None }
}

#[tokio::test]
async fn scripts_can_drive_the_service_from_a_terminal() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let (cli, api) = (up.cli()?, up.api());
    let session = a_run_reports_its_session_turns_and_outcome(&world, &cli, api).await?;
    a_session_goes_on_with_what_was_said(&world, &cli, &session).await?;
    a_prompt_comes_from_standard_input(&world, &cli).await?;
    a_model_is_chosen_by_name(&world, &cli).await?;
    tool_calls_show_as_one_line_each(&world, &cli).await?;
    every_end_has_its_exit_code(&world, &cli).await?;
    sessions_can_be_looked_at(&cli, &session).await?;
    ensure!(
        world.data().join("workspaces").is_dir(),
        "--workspace-dir is a folder under --data-dir"
    );
    oracle(api, world.model()).await?;
    up.stop(&world).await
}

/// Returns the session's id.
async fn a_run_reports_its_session_turns_and_outcome(
    world: &World,
    cli: &Cli,
    api: &Api,
) -> Result<String> {
    let place = world.workspace("reports")?;
    let directory = place.to_str().context("UTF-8")?;
    let prompt = "create a.txt containing hello then read a.txt";
    let ended = cli.run(&["run", prompt, "--json", "--directory", directory]).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(fs::read_to_string(place.join("a.txt"))?.trim() == "hello");
    let report = ended.report()?;
    let keys: Vec<&String> = report.as_object().context("an object")?.keys().collect();
    ensure!(keys == ["outcome", "session", "turns"], "{report}");
    ensure!(report["outcome"] == "completed", "{report}");
    let session = report["session"].as_str().context("an id")?.to_owned();
    let log = api.log(&session).await?;
    let turns: Vec<&Value> =
        events_of(&log, "turn.started").into_iter().map(|turn| &turn["turn"]).collect();
    ensure!(report["turns"] == json!(turns) && turns.len() == 3, "{report} {turns:?}");
    // Every line before the last is an event of the log, in order, or live text.
    let mut lines = ended.json_lines()?;
    lines.pop();
    lines.retain(|line| line["type"] != "delta");
    ensure!(lines == log, "{lines:#?}");
    // The body of each turn is what went over the wire, byte for byte, in order.
    let sent = world.model().requests();
    for (turn, request) in turns.iter().zip(&sent) {
        let turn = turn.as_str().context("an id")?;
        let body = cli.run(&["explain", turn, "--body"]).await?;
        ensure!(body.code == Some(0), "{body:?}");
        ensure!(Some(&body.out) == request.body.as_ref(), "{turn}: {} != {request:?}", body.out);
    }
    ensure!(sent.len() == 3, "{sent:?}");
    Ok(session)
}

async fn a_session_goes_on_with_what_was_said(
    world: &World,
    cli: &Cli,
    session: &str,
) -> Result<()> {
    let ended = cli.run(&["run", "say 3 words", "--json", "--session", session]).await?;
    ensure!(ended.code == Some(0) && ended.report()?["session"] == session, "{ended:?}");
    let body = last_body(world)?;
    ensure!(
        body.contains("create a.txt containing hello") && body.contains("say 3 words"),
        "{body}"
    );
    Ok(())
}

async fn a_prompt_comes_from_standard_input(world: &World, cli: &Cli) -> Result<()> {
    let place = world.workspace("stdin")?;
    let cli = cli.clone().within(&place);
    for args in [&["run", "--json"][..], &["run", "-", "--json"][..]] {
        let ended = cli.run_with_input(args, "say 2 words\n").await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        let body = last_body(world)?;
        ensure!(
            body.contains("\"say 2 words\"") && body.contains(&*place.to_string_lossy()),
            "{body}"
        );
    }
    Ok(())
}

async fn a_model_is_chosen_by_name(world: &World, cli: &Cli) -> Result<()> {
    let cli = cli.clone().within(&world.workspace("model")?);
    let ended = cli.run(&["run", "say 1 words", "--model", "another-model"]).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let body: Value = serde_json::from_str(&last_body(world)?)?;
    ensure!(body["model"] == "another-model", "{}", body["model"]);
    Ok(())
}

async fn tool_calls_show_as_one_line_each(world: &World, cli: &Cli) -> Result<()> {
    let cli = cli.clone().within(&world.workspace("lines")?);
    let prompt = "create b.txt containing y and also run exit 3";
    let ended = cli.run(&["run", prompt]).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let shown = format!("{}\n{}", ended.out, ended.err);
    for line in ["[ok] write b.txt (new, 1 byte)", "[failed] shell exit 3: exit code 3"] {
        ensure!(shown.lines().any(|shown| shown == line), "no line `{line}` in: {shown}");
    }
    Ok(())
}

async fn every_end_has_its_exit_code(world: &World, cli: &Cli) -> Result<()> {
    let cli = cli.clone().within(&world.workspace("ends")?);
    let model = world.model();
    model.script(Script {
        matches: "be refused".into(),
        status: Some(401),
        ..Script::default()
    })?;
    let ended = cli.run(&["run", "be refused", "--json"]).await?;
    ensure!(ended.code == Some(1) && ended.report()?["outcome"] == "failed", "{ended:?}");
    ensure!(ended.out.contains("provider.authentication"), "{ended:?}");
    let ended = cli.run(&["run", "be refused"]).await?;
    ensure!(ended.code == Some(1) && ended.err.contains("API key"), "{ended:?}");

    model.script(Script { matches: "never answer".into(), hang: true, ..Script::default() })?;
    let mut running = cli.start(&["run", "never answer", "--json"])?;
    running.until("attempt.started").await?;
    running.signal(Signal::INT)?;
    let ended = running.end().await?;
    ensure!(ended.code == Some(130) && ended.report()?["outcome"] == "interrupted", "{ended:?}");

    // During a tool, whose processes must end with it.
    let call = shell("sleep 600");
    model.script(Script {
        matches: "take long".into(),
        tool_calls: vec![call],
        ..Script::default()
    })?;
    let mut running = cli.start(&["run", "take long", "--json"])?;
    running.until("tool.called").await?;
    running.signal(Signal::INT)?;
    let ended = running.end().await?;
    ensure!(ended.code == Some(130) && ended.report()?["outcome"] == "interrupted", "{ended:?}");
    ensure!(ended.out.contains("\"outcome\":\"interrupted\""), "{ended:?}");
    model.clear_scripts();

    for args in
        [&["run", "--no-such-flag"][..], &["run", " "], &["explain", "nonsense"], &["nonsense"]]
    {
        let ended = cli.run(args).await?;
        ensure!(ended.code == Some(2) && !ended.err.is_empty(), "{args:?}: {ended:?}");
    }
    let ended = cli.run(&["session", "list", "--key", "not-a-key-of-this-service"]).await?;
    ensure!(ended.code == Some(1) && ended.err.lines().count() == 1, "{ended:?}");
    let ended = cli.run(&["session", "list", "--url", "http://127.0.0.1:1"]).await?;
    ensure!(ended.code == Some(1) && ended.err.contains("http://127.0.0.1:1"), "{ended:?}");
    Ok(())
}

async fn sessions_can_be_looked_at(cli: &Cli, session: &str) -> Result<()> {
    for (args, part) in [
        (&["session", "list"][..], session),
        (&["session", "show", session], session),
        (&["session", "log", session], "drain.ended"),
        (&["rebuild", "--check", "--all"], ""),
        (&["check", "--settled"], "no violation"),
    ] {
        let ended = cli.run(args).await?;
        ensure!(ended.code == Some(0) && ended.out.contains(part), "{args:?}: {ended:?}");
    }
    Ok(())
}

fn last_body(world: &World) -> Result<String> {
    let last = world.model().requests().pop().context("the model was asked")?;
    last.body.context("its body is kept")
}

#[tokio::test]
async fn dev_takes_the_executable_in_oc_bin() -> Result<()> {
    let folder = testkit::temp_folder()?;
    let fake = folder.path().join("executable");
    fs::write(&fake, "#!/bin/sh\necho \"given: $*\"\n")?;
    fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    for (word, expected) in
        [("up", "given: up --port 1\n"), ("cluster", "given: dev-cluster --port 1\n")]
    {
        let mut command = tokio::process::Command::new(repository().join("dev"));
        command.args([word, "--port", "1"]).env("OC_BIN", &fake);
        let output = command.output().await?;
        ensure!(String::from_utf8_lossy(&output.stdout) == expected, "{output:?}");
    }
    Ok(())
}
