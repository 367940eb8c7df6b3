//! Admission over HTTP: what a client may repeat, and what it may not.

use anyhow::{Context, Result, ensure};
use journeys::{Answer, Api, World, another_organisation, message_id, oracle};
use serde_json::{Value, json};

fn prompt(id: &str, text: &str) -> Value {
    json!({ "messageID": id, "parts": [{ "type": "text", "text": text }], "delivery": "queue" })
}

fn refused(answer: &Answer, status: u16, code: &str) -> Result<()> {
    ensure!(answer.status == status && answer.body["error"]["code"] == code, "{answer:?}");
    ensure!(answer.body["request_id"].is_string(), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_prompt_can_be_repeated_and_never_changed() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let session = api.session(&world.workspace("here")?).await?;
    let path = format!("/platform/session/{session}/message");

    let id = message_id(0);
    let first = api.post(&path, &prompt(&id, "say 3 words")).await?.ok()?;
    for _ in 0..3 {
        ensure!(
            api.post(&path, &prompt(&id, "say 3 words")).await?.ok()? == first,
            "an exact retry"
        );
    }
    ensure!(api.outcome(&session, &id, 60).await? == "completed");
    let again = api.post(&path, &prompt(&id, "say 3 words")).await?;
    ensure!(again.status == 200, "an exact retry after its end: {again:?}");
    let mut other_delivery = prompt(&id, "say 3 words");
    other_delivery["delivery"] = json!("steer");
    for different in [prompt(&id, "say 4 words"), other_delivery] {
        refused(&api.post(&path, &different).await?, 409, "CONFLICT")?;
    }
    let elsewhere = api.session(&world.workspace("here")?).await?;
    let elsewhere = format!("/platform/session/{elsewhere}/message");
    refused(&api.post(&elsewhere, &prompt(&id, "say 3 words")).await?, 409, "CONFLICT")?;

    let far = api.post(&path, &prompt(&message_id(120_000), "say 1 words")).await?;
    ensure!(far.status == 400, "{far:?}");
    let near = message_id(20_000);
    api.post(&path, &prompt(&near, "say 1 words")).await?.ok()?;
    ensure!(
        api.outcome(&session, &near, 60).await? == "completed",
        "20 s ahead is a clock's error"
    );
    ensure!(api.post(&path, &prompt("nonsense", "say 1 words")).await?.status == 400);

    a_session_can_be_made_twice_at_one_place(&world, api).await?;
    what_is_anothers_does_not_exist(&world, api, &session, &first).await?;
    let verdict = oracle(api, world.model()).await?;
    ensure!(verdict.turns == 2, "every prompt ran once: {verdict:?}");
    up.stop(&world).await
}

async fn a_session_can_be_made_twice_at_one_place(world: &World, api: &Api) -> Result<()> {
    let (here, there) = (world.workspace("here")?, world.workspace("there")?);
    let project = api.post("/project/init", &json!({ "directory": here })).await?.ok()?;
    let path = format!("/project/{}/session", project["id"].as_str().context("an id")?);
    let id = message_id(0).replace("msg_", "ses_");
    let body = json!({ "id": id, "directory": here });
    let first = api.post(&path, &body).await?.ok()?;
    ensure!(first["id"] == id, "{first}");
    ensure!(api.post(&path, &body).await?.ok()? == first, "the same session");
    refused(&api.post(&path, &json!({ "id": id, "directory": there })).await?, 409, "CONFLICT")
}

async fn what_is_anothers_does_not_exist(
    world: &World,
    ours: &Api,
    session: &str,
    first: &Value,
) -> Result<()> {
    let theirs = another_organisation(ours, &world.data()).await?;
    ensure!(theirs.sessions().await?.is_empty());
    let message = first["info"]["id"].as_str().context("a message has an id")?;
    let missing = "ses_000000000000AAAAAAAAAAAAAA";
    for path in [String::new(), "/message".into(), "/log".into()] {
        let [real, none] = [session, missing].map(|id| format!("/platform/session/{id}{path}"));
        let (real, none) = (theirs.get(&real).await?, theirs.get(&none).await?);
        refused(&real, 404, "NOT_FOUND")?;
        ensure!(real.body["error"] == none.body["error"], "{real:?} and {none:?} tell them apart");
    }
    let path = format!("/platform/session/{session}");
    for (path, body) in [
        (format!("{path}/message"), prompt(&message_id(0), "say 1 words")),
        (format!("{path}/abort"), json!({})),
        (format!("{path}/rebuild"), json!({})),
    ] {
        refused(&theirs.post(&path, &body).await?, 404, "NOT_FOUND")?;
    }
    ensure!(theirs.get(&format!("/session/{session}/message/{message}")).await?.status == 404);
    Ok(())
}
