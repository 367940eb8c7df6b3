//! Sums of usage, as clients ask for them.

use access::OrgRole;
use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{at, begin};
use crate::logins::person;
use crate::world::{World, call, ok, request, send};

const PATH: &str = "/platform/usage";

/// Makes a session with one answered prompt.
async fn used(world: &World) -> Result<()> {
    let gateway = world.gateway();
    let project = ok(&gateway, "POST", "/project/init", &world.key, None).await;
    let path = format!("/project/{}/session", project["id"].as_str().expect("an id"));
    let session = ok(&gateway, "POST", &path, &world.key, Some(json!({}))).await;
    let session = session["id"].as_str().expect("an id").to_owned();
    let prompt = Some(json!({ "text": "hello" }));
    let post = format!("/platform/session/{session}/message");
    ok(&gateway, "POST", &post, &world.key, prompt).await;
    let turn = begin(world, &at(world, &session).await?).await?;
    turn.finish(world, "Hi.", None).await?;
    Ok(())
}

fn total(answer: &Value, sum: &str) -> i64 {
    let rows = answer["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["sums"][sum].as_i64().expect("a sum")).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_are_the_figures_of_the_list_of_sessions() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let none = ok(&gateway, "GET", PATH, &world.key, None).await;
    assert_eq!((&none["rows"], &none["as_of"]), (&json!([]), &Value::Null));
    for _ in 0..3 {
        used(&world).await?;
    }
    world.store.count_usage(world.org).await?;
    let answer =
        ok(&gateway, "GET", &format!("{PATH}?by=person,project,model"), &world.key, None).await;
    let listed = ok(&gateway, "GET", "/platform/session", &world.key, None).await;
    let of_list = |name: &str| -> i64 {
        let sessions = listed.as_array().expect("sessions").iter();
        sessions.map(|session| session["tokens"][name].as_i64().expect("tokens")).sum()
    };
    for (sum, name) in [("input_tokens", "input"), ("output_tokens", "output")] {
        assert_eq!(total(&answer, sum), of_list(name), "{sum}");
        assert!(of_list(name) > 0);
    }
    assert_eq!((total(&answer, "turns"), total(&answer, "prompts")), (3, 3));
    let keys = &answer["rows"].as_array().expect("rows").last().expect("a row")["keys"];
    assert!(keys["person"].as_str().is_some_and(|person| person.contains('_')), "{answer}");
    let project = keys["project"].as_str().expect("a project");
    assert!(answer["names"][project].as_str().is_some_and(|at| at.starts_with('/')), "{answer}");
    assert!(answer["as_of"].as_i64().is_some_and(|as_of| as_of > 0));

    let path = format!("{PATH}?by=model&step=all&compare=previous&format=csv");
    let csv = send(&gateway, request("GET", &path, &world.key, None)).await;
    assert_eq!(csv.headers()["content-type"], "text/csv; charset=utf-8; header=present");
    let text = axum::body::to_bytes(csv.into_body(), 100_000).await?;
    let text = std::str::from_utf8(&text)?;
    let head = text.lines().next().expect("a heading");
    assert!(head.starts_with("period,start,model,sessions,prompts,turns,"), "{head}");
    assert!(text.lines().any(|line| line.starts_with("current,") && line.contains(",echo,")));
    let check = ok(&gateway, "GET", "/platform/check", &world.key, None).await;
    assert_eq!(check, json!([]));
    // Nothing of it is another organisation's.
    let theirs = ok(&gateway, "GET", PATH, &world.stranger, None).await;
    assert_eq!(theirs["rows"], json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_question_is_told_what_is_right() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    for (query, told) in [
        ("by=team", "`by` has `person`, `project`"),
        ("of=tools&by=person", "is kept by `tool`, `outcome`"),
        ("from=soon", "`from` is a day such as `2026-11-01`"),
        ("step=minute", "`step` has `hour`, `day`, `week`, `month`, `all`"),
        ("step=hour&from=2026-01-01&to=2026-03-01", "at most 14 days"),
        ("compare=last", "`compare` is `previous`"),
        ("format=xml", "`format` is `json` or `csv`"),
    ] {
        let (status, answer) =
            call(&gateway, "GET", &format!("{PATH}?{query}"), &world.key, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {answer}");
        assert!(answer.to_string().contains(told), "{query}: {answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_of_somebody_who_is_known() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let set = async |whose: &str, usd: Value| {
        let body = json!({ "whose": whose, "monthly_usd": usd });
        call(&gateway, "PUT", "/platform/limit", &ada.key, Some(body)).await
    };
    for whose in ["organisation", "each", "usr_ada", "key_of_before"] {
        let (status, told) = set(whose, json!(50)).await;
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    for whose in ["usr_nope", "svc_nope"] {
        let (status, told) = set(whose, json!(50)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
        assert!(told.to_string().contains("opencode-cloud user list"), "{told}");
        let (status, told) = set(whose, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    Ok(())
}
