//! Settings of the organisation and of projects, as clients set and see them.

use anyhow::Result;
use domain::{FencingToken, LocationRef};
use http::StatusCode;
use serde_json::{Value, json};
use settings::{ProjectSettings, SettingsFile, text_hash};
use store::SettingsText;

use crate::drain::{at, begin};
use crate::stock::listen;
use crate::world::{World, call, ok};

const PATH: &str = "/platform/settings";

/// Publishes these files, as a worker does that holds the session's Location.
async fn publish(world: &World, session: &Value, files: &[(&str, &str)]) -> Result<()> {
    let row =
        world.store.session(world.org, session["id"].as_str().expect("an id").parse()?).await?;
    let at = LocationRef { org: world.org, location: row.at.location };
    let token = FencingToken(1);
    world.store.raise_fence(at.clone(), token).await?;
    let file = |(path, text): &(&str, &str)| SettingsFile {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
        more: false,
    };
    let files: Vec<_> = files.iter().map(file).collect();
    let bytes = ProjectSettings::parse(&files).to_json()?;
    let text = SettingsText { hash: text_hash(&bytes), bytes };
    assert!(world.store.publish_settings(at, token, text, 1).await?);
    Ok(())
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_sets_settings_and_wrong_ones_are_refused() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let none = ok(&gateway, "GET", PATH, &world.key, None).await;
    assert_eq!(none, json!({ "text": "", "diagnostics": [] }));
    let text = "{\n  // for all\n  \"permission\": {\"bash\": \"ask\"},\n  \"theme\": \"dark\"\n}";
    let set = ok(&gateway, "PUT", PATH, &world.key, Some(json!({ "text": text }))).await;
    assert_eq!(set["text"], text);
    let remark = json!({ "severity": "note", "line": 4, "message": "`theme` has no effect here" });
    assert_eq!(set["diagnostics"], json!([remark]));
    for (wrong, told) in [
        (
            "{\n\"permission\": {\"bash\": \"maybe\"}}",
            "line 2: a permission is `allow`, `ask` or `deny`, not `maybe`",
        ),
        ("{\"permision\": 1}", "line 1: there is no setting `permision`"),
        ("{", "line 1: nothing of it counts"),
    ] {
        let body = Some(json!({ "text": wrong }));
        let (status, answer) = call(&gateway, "PUT", PATH, &world.key, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(
            message.starts_with("the settings are as before: ") && message.contains(told),
            "{message}"
        );
    }
    assert_eq!(ok(&gateway, "GET", PATH, &world.key, None).await, set);
    assert_eq!(ok(&gateway, "GET", PATH, &world.stranger, None).await, none);
    ok(&gateway, "PUT", PATH, &world.key, Some(json!({ "text": " " }))).await;
    assert_eq!(ok(&gateway, "GET", PATH, &world.key, None).await, none);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_project_are_listed_and_can_be_chosen() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let review = "---\ndescription: Reviews\nmode: primary\nmodel: simulated/echo\npermission:\n  edit: deny\n---\nReview.";
    let config = r#"{"default_agent": "review"}"#;
    publish(&world, &session, &[("opencode.json", config), (".opencode/agent/review.md", review)])
        .await?;
    let agents = ok(&gateway, "GET", "/agent", &world.key, None).await;
    assert_eq!(names(&agents)[0], "review");
    let model = json!({ "providerID": "simulated", "modelID": "echo" });
    assert_eq!((&agents[0]["native"], &agents[0]["model"]), (&json!(false), &model));
    let deny = json!({ "permission": "edit", "pattern": "*", "action": "deny" });
    assert!(agents[0]["permission"].as_array().expect("rules").contains(&deny), "{agents}");
    let project = session["projectID"].as_str().expect("a project");
    let own = ok(&gateway, "GET", &format!("/project/{project}/agent"), &world.key, None).await;
    assert_eq!(names(&own), ["review", "build", "explore", "general", "plan"]);
    let second = ok(&gateway, "GET", "/api/agent", &world.key, None).await;
    assert_eq!(second["data"][0]["id"], "review");
    assert_eq!(ok(&gateway, "GET", "/config", &world.key, None).await["default_agent"], "review");
    let fresh = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let row = world.store.session(world.org, fresh["id"].as_str().expect("an id").parse()?).await?;
    assert_eq!(row.agent, "review");
    let path = format!("/session/{}/prompt_async", session["id"].as_str().expect("an id"));
    let parts = json!([{ "type": "text", "text": "look" }]);
    let body = Some(json!({ "agent": "review", "parts": parts }));
    let (status, answer) = call(&gateway, "POST", &path, &world.key, body).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    let body = Some(json!({ "agent": "title", "parts": parts }));
    let (status, answer) = call(&gateway, "POST", &path, &world.key, body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    // A client elsewhere names a directory that is not here.
    for path in ["/agent", "/command", "/config"] {
        let elsewhere = format!("{path}?directory=/no/such/directory");
        let shown = ok(&gateway, "GET", &elsewhere, &world.key, None).await;
        assert!(!shown.to_string().contains("review"), "{shown}");
    }
    // Another organisation's project in a directory of the same name has none of it.
    let theirs = ok(&gateway, "GET", "/agent", &world.stranger, None).await;
    assert!(!names(&theirs).contains(&"review"), "{theirs}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_listed_and_becomes_a_prompt() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let fix = "---\ndescription: Fixes\nagent: plan\nmodel: simulated/echo\n---\nFix $1 as @src/a.rs says: $ARGUMENTS";
    publish(&world, &session, &[(".opencode/command/fix.md", fix)]).await?;
    let commands = ok(&gateway, "GET", "/command", &world.key, None).await;
    assert_eq!(names(&commands), ["fix", "init"]);
    assert_eq!(
        (&commands[0]["agent"], &commands[0]["hints"]),
        (&json!("plan"), &json!(["$1", "$ARGUMENTS"]))
    );
    let second = ok(&gateway, "GET", "/api/command", &world.key, None).await;
    assert_eq!(names(&second["data"]), ["fix", "init"]);
    assert_eq!(second["data"][0]["model"], json!({ "id": "echo", "providerID": "simulated" }));
    let id = session["id"].as_str().expect("an id");
    let path = format!("/session/{id}/command");
    let body = json!({ "command": "nothing", "arguments": "" });
    let (status, answer) = call(&gateway, "POST", &path, &world.key, Some(body)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.to_string().contains("choose one of `fix`, `init`"), "{answer}");
    let body = json!({ "command": "fix", "arguments": "it now" });
    let held = call(&gateway, "POST", &path, &world.key, Some(body));
    let work = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        let mut events = listen(&world, &gateway, &log).await;
        let admitted = events.until(|sse| sse.event == "prompt.admitted").await.pop();
        begin(&world, &at(&world, id).await?).await?.finish(&world, "fixed", None).await?;
        anyhow::Ok(admitted.map(|sse| sse.data))
    };
    let ((status, answer), admitted) = tokio::join!(held, work);
    let admitted = admitted?.expect("an event");
    assert_eq!(admitted["data"]["parts"][0]["text"], "Fix it now as @src/a.rs says: it now");
    assert_eq!(admitted["data"]["agent"], "plan");
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["parts"][1]["text"], "fixed");
    Ok(())
}
