//! Tool calls beside the stream, their results, and what the model is told of them.

use anyhow::{Context, Result};
use domain::DrainOutcome::Completed;
use domain::{SessionEvent, ToolOutcomeKind};
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};

use crate::world::{SOON, Session, World};

pub(crate) fn call(name: &str, arguments: Value) -> ScriptedCall {
    ScriptedCall { name: name.into(), arguments, id: None }
}

pub(crate) fn shell(command: &str) -> ScriptedCall {
    call("shell", json!({ "command": command }))
}

/// The model's answer to `matches` after so many rounds.
pub(crate) fn calls(matches: &str, round: u32, tool_calls: Vec<ScriptedCall>) -> Script {
    Script { matches: matches.into(), round: Some(round), tool_calls, ..Script::default() }
}

pub(crate) fn says(matches: &str, round: u32, text: &str) -> Script {
    let (matches, text) = (matches.into(), Some(text.into()));
    Script { matches, round: Some(round), text, ..Script::default() }
}

/// Returns the results of calls in the last request.
fn results(world: &World) -> Result<Vec<String>> {
    let last = world.requests()?.pop().context("a request")?;
    let results = last.iter().filter(|message| message["role"] == "tool");
    Ok(results.map(|result| result["content"].as_str().unwrap_or_default().to_owned()).collect())
}

async fn settled(world: &World, session: &Session) -> Result<Vec<ToolOutcomeKind>> {
    let outcome = |event: &SessionEvent| match event {
        SessionEvent::ToolSettled(settled) => Some(settled.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| outcome(&event.event)).collect())
}

#[tokio::test]
async fn calls_of_one_reply_run_at_once_and_are_told_in_its_order() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    // Each waits for the other: in turn they would never end.
    world.script(calls(
        "both",
        0,
        vec![
            shell("echo 1 > one; until [ -e two ]; do sleep 0.01; done; sleep 0.1; echo first"),
            shell("echo 2 > two; until [ -e one ]; do sleep 0.01; done; echo second"),
        ],
    ))?;
    world.prompt(&session, "both").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = results(&world)?;
    assert!(told[0].starts_with("first\n") && told[1].starts_with("second\n"), "{told:?}");
    world.check().await
}

#[tokio::test]
async fn chained_turns_work_on_the_same_files() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let prompt =
        "create a.txt containing one then edit a.txt replacing one with two then run cat a.txt";
    world.prompt(&session, prompt).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("a.txt").trim_end(), "two");
    assert!(results(&world)?[2].starts_with("two"));
    assert_eq!(world.model().counts().requests, 4);
    world.check().await
}

#[tokio::test]
async fn what_cannot_run_is_told_to_the_model_and_the_turn_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    let broken = vec![
        call("read", "{\"path\": \"a.txt".into()),
        call("read", "[1]".into()),
        call("read", "".into()),
        call("fly", json!({"to": "the moon"})),
        call("read", json!({"path": "missing.txt"})),
        call("read", json!({"path": "a.txt"})),
    ];
    world.script(calls("try", 0, broken))?;
    world.script(says("try", 1, "done"))?;
    world.prompt(&session, "try").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let mut kinds = settled(&world, &session).await?;
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!(kinds[0], ToolOutcomeKind::Completed);
    assert_eq!(kinds[1..], [ToolOutcomeKind::Failed; 5]);
    // Each call with its result, in one order; what is no JSON object is shown to the model within one.
    let last = world.requests()?.pop().context("a request")?;
    let assistant = last.iter().find(|message| message["role"] == "assistant");
    let asked = assistant.context("a reply")?["tool_calls"].as_array().context("calls")?;
    let results: Vec<_> = last.iter().filter(|message| message["role"] == "tool").collect();
    let ids = |of: &[&Value], id: &str| of.iter().map(|of| of[id].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&asked.iter().collect::<Vec<_>>(), "id"), ids(&results, "tool_call_id"));
    let told = |arguments: &str| {
        let at = asked.iter().position(|call| call["function"]["arguments"] == arguments);
        results[at.unwrap()]["content"].as_str().unwrap()
    };
    let wrapped = |arguments: &str| json!({ "invalid_json": arguments }).to_string();
    let cut = wrapped("{\"path\": \"a.txt");
    assert!(told(&cut).starts_with("Error: the arguments of read are not valid"));
    assert!(
        told(&wrapped("[1]")).starts_with("Error: the arguments of read must be a JSON object")
    );
    assert!(told("{\"to\":\"the moon\"}").starts_with("Error: there is no tool fly"));
    assert!(told("{\"path\":\"missing.txt\"}").starts_with("Error: missing.txt"));
    assert!(told("{\"path\":\"a.txt\"}").contains("one"));
    assert_eq!(world.answer(&session).await?, "done");
    world.check().await
}

#[tokio::test]
async fn the_same_provider_id_may_come_back_in_every_reply() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let same = |command| vec![ScriptedCall { id: Some("call_1".into()), ..shell(command) }];
    world.script(calls("again", 0, same("echo one")))?;
    world.script(calls("again", 1, same("echo two")))?;
    world.script(says("again", 2, "done"))?;
    world.prompt(&session, "again").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = results(&world)?;
    assert!(told[0].starts_with("one") && told[1].starts_with("two"), "{told:?}");
    world.check().await
}

#[tokio::test]
async fn a_large_output_is_kept_whole_and_can_be_read() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "run seq 1 60000").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let found = |event: &SessionEvent| match event {
        SessionEvent::ToolSettled(settled) => Some(settled.clone()),
        _ => None,
    };
    let events = world.events(&session).await?;
    let result = events.iter().find_map(|event| found(&event.event)).context("a result")?;
    let path = result.managed_path.context("a managed path")?;
    assert!(result.truncated && result.output.len() <= 50 * 1024 && result.output.contains(&path));
    world.script(calls(
        "look",
        0,
        vec![call("read", json!({"path": path, "offset": 30_000, "limit": 2}))],
    ))?;
    world.script(says("look", 1, "seen"))?;
    world.prompt(&session, "look").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = results(&world)?.pop().context("a result")?;
    assert!(told.contains("30000") && told.contains("30001"), "{told}");
    world.check().await
}

#[tokio::test]
async fn a_call_that_closed_early_runs_beside_its_stream() -> Result<()> {
    let world = World::with(|settings| settings.intent_delay = SOON).await?;
    let session = world.session().await?;
    // Held before its finish, with the second call still open.
    world.script(Script {
        gate: Some("finish".into()),
        gate_after_chunks: Some(100_000),
        ..calls("early", 0, vec![shell("echo ran > early"), shell("echo second")])
    })?;
    world.script(says("early", 1, "done"))?;
    world.prompt(&session, "early").await?;
    let meanwhile = async {
        session.until_file("early").await?;
        let kinds = world.kinds(&session).await?;
        assert!(kinds.contains(&"tool.called") && !kinds.contains(&"turn.replied"), "{kinds:?}");
        Ok::<_, anyhow::Error>(world.model().open_gate("finish")?)
    };
    let (outcomes, seen) = tokio::join!(world.settle(&session), meanwhile);
    seen?;
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(settled(&world, &session).await?, [ToolOutcomeKind::Completed; 2]);
    world.check().await
}

#[tokio::test]
async fn a_result_does_not_wait_long_for_its_batch() -> Result<()> {
    let world = World::with(|settings| settings.result_delay = SOON).await?;
    let session = world.session().await?;
    let slow = shell("until [ -e go ]; do sleep 0.01; done; echo slow");
    world.script(calls("batch", 0, vec![slow, shell("echo fast")]))?;
    world.script(says("batch", 1, "done"))?;
    world.prompt(&session, "batch").await?;
    let meanwhile = async {
        world.until_kind(&session, "tool.settled").await?;
        assert_eq!(settled(&world, &session).await?.len(), 1);
        session.file("go", "")
    };
    let (outcomes, seen) = tokio::join!(world.settle(&session), meanwhile);
    seen?;
    assert_eq!(outcomes?, [Completed]);
    let told = results(&world)?;
    assert!(told[0].starts_with("slow") && told[1].starts_with("fast"), "{told:?}");
    world.check().await
}
