//! The model's list of tasks and its questions to a person, as clients see both.

use anyhow::{Context, Result, ensure};
use journeys::{World, eventually, executable, oracle};
use reqwest::Method;
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};

use crate::stock::released_client;
use crate::terminal::Terminal;

fn call(name: &str, arguments: Value) -> ScriptedCall {
    ScriptedCall { name: name.into(), arguments, id: None }
}

/// The model's answer in one round of the prompt "paint the door".
fn script(round: u32, tool_calls: Vec<ScriptedCall>, text: Option<&str>) -> Script {
    Script {
        matches: "paint the door".into(),
        round: Some(round),
        tool_calls,
        text: text.map(str::to_owned),
        ..Script::default()
    }
}

fn question() -> Value {
    json!({
        "question": "Which colour shall the door have?",
        "header": "Colour",
        "options": [{ "label": "Blue", "description": "As the sea" }, { "label": "Red", "description": "As a rose" }],
    })
}

#[tokio::test]
async fn tasks_are_shown_and_a_question_waits_for_its_answer() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let place = world.workspace("questions")?;
    let session = api.session(&place).await?;
    let todos = json!([
        { "content": "Ask for the colour", "status": "in_progress", "priority": "medium" },
        { "content": "Paint", "status": "pending", "priority": "high" },
    ]);
    let given = json!([
        { "content": "Ask for the colour", "status": "in_progress" },
        { "content": "Paint", "status": "pending", "priority": "high" },
    ]);
    let calls = vec![
        call("todowrite", json!({ "todos": given })),
        call("question", json!({ "questions": [question()] })),
    ];
    world.model().script(script(0, calls, None))?;
    world.model().script(script(1, vec![], Some("I paint it.")))?;
    let request = api.request(Method::GET, "/event").query(&[("directory", place.to_str())]);
    let mut events = api.stream(request).await?;
    let message = api.admit(&session, "paint the door").await?;

    let told = loop {
        let frame = events.next().await?.context("the stream ended")?;
        if frame.data["type"] == "todo.updated" {
            break frame.data;
        }
    };
    ensure!(told["properties"]["todos"] == todos, "{told}");
    let asked = eventually("a question", 60, async || {
        let asks = api.get("/question").await?.ok()?;
        Ok(asks.get(0).cloned())
    })
    .await?;
    ensure!(asked["questions"][0]["question"] == question()["question"], "{asked}");
    let list = api.get(&format!("/session/{session}/todo")).await?.ok()?;
    ensure!(list == todos, "{list}");

    let id = asked["id"].as_str().context("an id")?;
    let answers = json!({ "answers": [["Blue"]] });
    api.post(&format!("/question/{id}/reply"), &answers).await?.ok()?;
    ensure!(api.outcome(&session, &message, 60).await? == "completed");
    let messages = api.get(&format!("/session/{session}/message")).await?.ok()?;
    let parts = messages
        .as_array()
        .context("messages")?
        .iter()
        .flat_map(|message| message["parts"].as_array());
    let parts: Vec<&Value> = parts.flatten().filter(|part| part["type"] == "tool").collect();
    let state =
        |tool: &str| parts.iter().find(|part| part["tool"] == tool).map(|part| &part["state"]);
    ensure!(
        state("todowrite").is_some_and(|state| state["metadata"]["todos"] == todos),
        "{parts:?}"
    );
    ensure!(
        state("question").is_some_and(|state| state["metadata"]["answers"] == json!([["Blue"]])),
        "{parts:?}"
    );
    let requests = world.model().requests();
    let last =
        requests.iter().rev().find(|request| format!("{request:?}").contains("Which colour"));
    ensure!(
        last.is_some_and(|request| format!("{request:?}").contains("Blue")),
        "the model has the answer"
    );
    oracle(api, world.model()).await?;
    Ok(())
}

#[tokio::test]
async fn the_released_terminal_asks_and_lists_tasks() -> Result<()> {
    executable()?; // report a missing executable first
    let client = released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("terminal")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    let todos = json!([
        { "content": "Ask for the colour", "status": "in_progress" },
        { "content": "Paint it thrice", "status": "pending" },
    ]);
    world.model().script(script(0, vec![call("todowrite", json!({ "todos": todos }))], None))?;
    let asks = vec![call("question", json!({ "questions": [question()] }))];
    world.model().script(script(1, asks, None))?;
    world.model().script(script(2, vec![], Some("I paint it now.")))?;
    let (url, key) = (up.api().url(), up.api().key());
    let terminal = Terminal::attach(&world, "home", &client, url, key, &place)?;
    terminal.until("Ask anything").await?;
    let screen = terminal.prompt("paint the door", "As the sea").await?;
    ensure!(screen.contains("Which colour shall the door have?"), "{screen}");
    ensure!(screen.contains("[•] Ask for the colour"), "{screen}");
    terminal.press("Down")?;
    terminal.press("Enter")?;
    let screen = terminal.until("I paint it now.").await?;
    ensure!(screen.contains("# Questions") && screen.contains("Red"), "{screen}");
    ensure!(!screen.contains("As the sea"), "the dialog is closed:\n{screen}");
    drop(terminal);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}
