use std::time::Duration;

use anyhow::Result;
use domain::{ReplyPart, TextCheckpointed};
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{at, begin, begin_with};
use crate::world::{Sse, SseReader, World, call, json as json_of, ok, request, send};

fn kinds(frames: &[Sse]) -> Vec<String> {
    frames
        .iter()
        .map(|sse| {
            let (kind, properties) =
                (sse.data["type"].as_str().expect("a type"), &sse.data["properties"]);
            let detail = match kind {
                "message.updated" => &properties["info"]["role"],
                "message.part.updated" => &properties["part"]["type"],
                "session.status" => &properties["status"]["type"],
                _ => &Value::Null,
            };
            let state = properties["part"]["state"]["status"].as_str();
            match (detail.as_str(), state) {
                (Some(detail), Some(state)) => format!("{kind}:{detail}:{state}"),
                (Some(detail), None) => format!("{kind}:{detail}"),
                (None, _) => kind.to_owned(),
            }
        })
        .collect()
}

pub(crate) async fn listen(world: &World, gateway: &axum::Router, path: &str) -> SseReader {
    SseReader::new(send(gateway, request("GET", path, &world.key, None)).await)
}

fn idle(sse: &Sse) -> bool {
    sse.data["type"] == "session.idle"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_shows_on_event_in_the_order_that_stock_clients_expect() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let query = format!("?directory={}", world.path());
    let session =
        ok(&gateway, "POST", &format!("/session{query}"), &world.key, Some(json!({}))).await;
    assert_eq!(session["directory"], world.path());
    let id = session["id"].as_str().expect("an id");
    let mut events = listen(&world, &gateway, &format!("/event{query}")).await;
    let mut everywhere = listen(&world, &gateway, "/global/event").await;
    let mut elsewhere = listen(&world, &gateway, "/event?directory=/workspace").await;
    let body = Some(json!({ "parts": [{ "type": "text", "text": "read a.txt" }] }));
    let (status, _) =
        call(&gateway, "POST", &format!("/session/{id}/prompt_async"), &world.key, body).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let mut frames = events.until(|sse| sse.data["type"] == "message.part.updated").await;
    let mut turn = begin(&world, &at(&world, id).await?).await?;
    frames.extend(events.until(|sse| sse.data["properties"]["part"]["type"] == "step-start").await);
    turn.say(&world, "it says ");
    turn.say(&world, "hello");
    frames.extend(events.until(|sse| sse.data["properties"]["delta"] == "hello").await);
    let call_id = turn.tool(&world).await?;
    turn.finish(&world, "it says hello", Some(call_id)).await?;
    frames.extend(events.until(idle).await);
    assert_eq!(
        kinds(&frames),
        [
            "server.connected",
            "message.updated:user",
            "message.part.updated:text",
            "message.updated:user",
            "message.part.updated:text",
            "session.updated",
            "session.status:busy",
            "message.updated:assistant",
            "message.part.updated:step-start",
            "message.part.updated:text",
            "message.part.delta",
            "message.part.delta",
            "message.part.updated:tool:pending",
            "message.part.updated:tool:running",
            "message.part.updated:tool:completed",
            "message.part.updated:text",
            "message.part.updated:step-finish",
            "message.updated:assistant",
            "session.updated",
            "session.updated",
            "session.status:idle",
            "session.idle",
        ]
    );
    let text = frames.iter().rfind(|sse| sse.data["properties"]["part"]["type"] == "text");
    let part = &text.expect("a text").data["properties"]["part"];
    assert_eq!(part["text"], "it says hello");
    assert!(part["time"]["end"].is_number(), "`run` prints a text once it has an end: {part}");
    let global = everywhere.until(|sse| sse.data["payload"]["type"] == "session.idle").await;
    assert_eq!(global.last().map(|sse| &sse.data["directory"]), Some(&json!(world.path())));
    assert_eq!(global.len(), frames.len());
    let quiet = tokio::time::timeout(Duration::from_millis(300), async {
        elsewhere.until(idle).await;
    });
    assert!(quiet.await.is_err(), "another directory's events are not ours");
    // The rows say the same as the events.
    let listed = ok(&gateway, "GET", &format!("/session/{id}/message"), &world.key, None).await;
    let told = frames.iter().rfind(|sse| sse.data["type"] == "message.updated");
    assert_eq!(Some(&listed[1]["info"]), told.map(|sse| &sse.data["properties"]["info"]));
    let finish = frames.iter().find(|sse| sse.data["properties"]["part"]["type"] == "step-finish");
    let last = listed[1]["parts"].as_array().and_then(|parts| parts.last());
    assert_eq!(last, finish.map(|sse| &sse.data["properties"]["part"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_used_through_another_gateway_is_found() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let old = ok(&there, "POST", "/session", &world.key, Some(json!({}))).await;
    let mut events = listen(&world, &here, "/event").await;
    events.until(|sse| sse.data["type"] == "server.connected").await;
    let new = ok(&there, "POST", "/session", &world.key, Some(json!({}))).await;
    for session in [&old, &new] {
        let id = session["id"].as_str().expect("an id");
        let path = format!("/session/{id}/prompt_async");
        let body = Some(json!({ "parts": [{ "type": "text", "text": "hi" }] }));
        call(&there, "POST", &path, &world.key, body).await;
        // It ends before the next look.
        begin(&world, &at(&world, id).await?).await?.finish(&world, "hello", None).await?;
    }
    let mut told = std::collections::BTreeMap::new();
    let mut left = 2;
    while left > 0 {
        for sse in events.until(idle).await {
            let id = sse.data["properties"]["sessionID"].as_str().unwrap_or_default().to_owned();
            told.entry(id).or_insert_with(Vec::new).push(sse);
        }
        left -= 1;
    }
    for (session, first) in [(&old, "message.updated:user"), (&new, "session.created")] {
        let frames = &told[session["id"].as_str().expect("an id")];
        let kinds = kinds(frames);
        assert_eq!(kinds[0], first);
        assert!(kinds.contains(&"message.part.updated:step-finish".to_owned()), "{kinds:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_session_is_told() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let mut events = listen(&world, &gateway, "/event").await;
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    events.until(|sse| sse.data["type"] == "session.created").await;
    let path = format!("/session/{}", session["id"].as_str().expect("an id"));
    assert_eq!(ok(&gateway, "DELETE", &path, &world.key, None).await, json!(true));
    let frames = events.until(|sse| sse.data["type"] == "session.deleted").await;
    let told = frames.last().map(|sse| &sse.data["properties"]["sessionID"]);
    assert_eq!(told, Some(&session["id"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_posted_message_is_held_open_until_its_turn_has_ended() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    assert_eq!(session["directory"], "/workspace");
    let id = session["id"].as_str().expect("an id").to_owned();
    let path = format!("/session/{id}/message");
    let body = Some(json!({ "parts": [{ "type": "text", "text": "hi" }] }));
    let held = call(&gateway, "POST", &path, &world.key, body);
    let work = async {
        let mut events =
            listen(&world, &gateway, &format!("/platform/session/{id}/log?follow=true")).await;
        events.until(|sse| sse.event == "prompt.admitted").await;
        begin(&world, &at(&world, &id).await?).await?.finish(&world, "hello", None).await
    };
    let ((status, answer), worked) = tokio::join!(held, work);
    worked?;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["info"]["role"], "assistant");
    assert_eq!(answer["parts"][1]["text"], "hello");
    let listed = ok(&gateway, "GET", &path, &world.key, None).await;
    assert_eq!(listed[1], answer);
    // A request does not wait for a prompt that an interrupt has parked.
    let body = Some(json!({ "parts": [{ "type": "text", "text": "again" }] }));
    let held = call(&gateway, "POST", &path, &world.key, body);
    let abort = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        let mut events = listen(&world, &gateway, &log).await;
        events.until(|sse| sse.data["data"]["parts"][0]["text"] == "again").await;
        ok(&gateway, "POST", &format!("/session/{id}/abort"), &world.key, None).await
    };
    let ((status, answer), aborted) = tokio::join!(held, abort);
    assert_eq!((status, aborted), (StatusCode::CONFLICT, json!(true)), "{answer}");
    Ok(())
}

// Finding heldout-3: the route said that commands are not offered, though `/init` works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_runs_the_command_and_answers_when_it_has_ended() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let id = session["id"].as_str().expect("an id").to_owned();
    let body = json!({ "messageID": "msg_init", "providerID": "simulated", "modelID": "echo" });
    let path = format!("/session/{id}/init");
    let held = call(&gateway, "POST", &path, &world.key, Some(body));
    let work = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        listen(&world, &gateway, &log).await.until(|sse| sse.event == "prompt.admitted").await;
        begin(&world, &at(&world, &id).await?).await?.finish(&world, "done", None).await
    };
    let (answer, worked) = tokio::join!(held, work);
    worked?;
    assert_eq!(answer, (StatusCode::OK, json!(true)));
    let list = format!("/session/{id}/message");
    let (one, all) =
        (format!("{list}?limit=1"), ok(&gateway, "GET", &list, &world.key, None).await);
    assert_eq!(all[0]["info"]["id"], "msg_init");
    let text = all[0]["parts"][0]["text"].as_str().expect("a text");
    assert!(text.contains("AGENTS.md"), "{text}");
    // A page says where the next one is, as the released server does.
    let page = send(&gateway, request("GET", &one, &world.key, None)).await;
    let link = page.headers()["link"].to_str()?.to_owned();
    assert!(link.ends_with("; rel=\"next\""), "{link}");
    let next = link.split(['<', '>']).nth(1).expect("an address");
    let next = ok(&gateway, "GET", next, &world.key, None).await;
    assert_eq!((&next[0], next.as_array().map(Vec::len)), (&all[0], Some(1)));
    let last = send(&gateway, request("GET", &list, &world.key, None)).await;
    assert!(!last.headers().contains_key("link"));
    Ok(())
}

// Finding heldout-3: the SDK asks for a refused stream for ever, so that its caller hung.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_offered_says_so_and_ends() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, None).await;
    let own = format!("/api/session/{}/event", session["id"].as_str().expect("an id"));
    for path in ["/api/event", &own] {
        let answer = send(&gateway, request("GET", path, &world.key, None)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let body = axum::body::to_bytes(answer.into_body(), 4096).await?;
        let (name, data) = std::str::from_utf8(&body)?.split_once('\n').expect("two lines");
        assert_eq!(name, "event: effect/httpapi/stream/failure");
        let cause: Value = serde_json::from_str(data.trim().trim_start_matches("data: "))?;
        let why = cause[0]["defect"].as_str().expect("a reason");
        assert!(why.contains("`GET /event`"), "{path}: {why}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_asks_before_it_begins_is_answered() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let get = async |path: &str| ok(&gateway, "GET", path, &world.key, None).await;
    let health = get("/global/health").await;
    assert_eq!(health, json!({ "healthy": true, "version": "0.0.0-test" }));
    assert_eq!(get("/config").await["model"], "simulated/echo");
    let agents = get("/agent").await;
    assert_eq!((&agents[0]["name"], &agents[0]["mode"]), (&json!("build"), &json!("primary")));
    let plan = agents.as_array().expect("a list").iter().find(|agent| agent["name"] == "plan");
    let deny = json!({"permission": "*", "pattern": "*", "action": "deny"});
    let plan = plan.expect("plan");
    assert_eq!((&plan["permission"][0], &plan["mode"]), (&deny, &json!("primary")));
    assert_eq!(get("/config").await["default_agent"], "build");
    assert_eq!(get("/command").await[0]["name"], "init");
    let providers = get("/config/providers").await;
    assert_eq!(providers["providers"][0]["models"]["echo"]["name"], "echo (simulated)");
    assert_eq!(get("/provider").await["connected"], json!(["simulated"]));
    assert_eq!(get("/path").await["directory"], "/workspace");
    assert_eq!(get("/project/current").await["id"], "global");
    assert_eq!(get("/session").await, json!([]));
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({ "title": "t" }))).await;
    assert_eq!(get("/session").await, json!([session]));
    assert_eq!(get("/session?search=other").await, json!([]));
    assert_eq!(get("/session/status").await, json!({}));
    let id = session["id"].as_str().expect("an id");
    assert_eq!(get(&format!("/session/{id}")).await, session);
    assert_eq!(get("/project/current").await["id"], session["projectID"]);
    Ok(())
}

// Issue 11, point 0: admission never waits, and a released client still misses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_opens_after_a_short_turn_has_its_events() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let id = session["id"].as_str().expect("an id").to_owned();
    let body = json!({ "parts": [{ "type": "text", "text": "hi" }] });
    let mut prompt = request("POST", &format!("/session/{id}/message"), &world.key, Some(&body));
    prompt.headers_mut().insert("user-agent", http::HeaderValue::from_static("opencode/1.18.33"));
    let held = async { json_of(send(&gateway, prompt).await).await };
    let heard = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        listen(&world, &gateway, &log).await.until(|sse| sse.event == "prompt.admitted").await;
        let turn = begin(&world, &at(&world, &id).await?).await?;
        turn.finish(&world, "hello", None).await?;
        let mut events = listen(&world, &gateway, "/event").await;
        anyhow::Ok(events.until(idle).await)
    };
    let (answer, heard) = tokio::join!(held, heard);
    assert_eq!(answer["parts"][1]["text"], "hello");
    let heard = heard?;
    let kinds: Vec<_> = heard.iter().map(|sse| sse.data["type"].clone()).collect();
    assert_eq!(kinds[0], "server.connected");
    let texts: Vec<_> = heard.iter().map(|sse| &sse.data["properties"]["part"]["text"]).collect();
    assert!(texts.contains(&&json!("hi")) && texts.contains(&&json!("hello")), "{texts:?}");
    Ok(())
}

/// Posts a prompt, answers it like a worker that learns of it through the gateway `beside`, and returns the client's
/// response.
async fn held(
    world: &World,
    gateway: &axum::Router,
    beside: &axum::Router,
    id: &str,
    text: &str,
) -> Result<Value> {
    let path = format!("/session/{id}/message");
    let body = Some(json!({ "parts": [{ "type": "text", "text": text }] }));
    let held = call(gateway, "POST", &path, &world.key, body);
    let work = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        let mut events = listen(world, beside, &log).await;
        events.until(|sse| sse.data["data"]["parts"][0]["text"] == text).await;
        let mut turn = begin(world, &at(world, id).await?).await?;
        turn.say(world, "one ");
        for (offset, piece) in [(0, "one "), (4, "two")] {
            let (turn_id, part, text) = (turn.turn.clone(), turn.part.clone(), piece.to_owned());
            turn.write(world, TextCheckpointed { turn: turn_id, part, offset, text }).await?;
        }
        let first = turn.tool(world).await?;
        turn.tool(world).await?; // no reply mentions it
        turn.finish(world, "one two three", Some(first)).await
    };
    let ((status, answer), worked) = tokio::join!(held, work);
    worked?;
    anyhow::ensure!(status == StatusCode::OK, "{status} {answer}");
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_answer_is_made_of_events_as_its_rows_have_it() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let id = session["id"].as_str().expect("an id");
    for text in ["first", "second"] {
        let answer = held(&world, &gateway, &gateway, id, text).await?;
        let path = format!("/session/{id}/message");
        let listed = ok(&gateway, "GET", &path, &world.key, None).await;
        assert_eq!(listed.as_array().and_then(|all| all.last()), Some(&answer));
        let kinds: Vec<_> = answer["parts"].as_array().into_iter().flatten().collect();
        let kinds: Vec<_> = kinds.iter().filter_map(|part| part["type"].as_str()).collect();
        assert_eq!(kinds, ["step-start", "tool", "text", "tool", "step-finish"]);
        let message = answer["info"]["id"].as_str().expect("an id");
        let shown = ok(&gateway, "GET", &format!("{path}/{message}"), &world.key, None).await;
        assert_eq!(shown, answer);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_deleted_and_made_anew_at_another_gateway_is_the_new_one() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    // The client that posts also listens, so that no prompt waits for a listener.
    let _events = listen(&world, &here, "/event").await;
    let old = json!({ "id": "ses_again", "directory": "/workspace/old" });
    ok(&here, "POST", "/session", &world.key, Some(old)).await;
    let answer = held(&world, &here, &there, "ses_again", "first").await?;
    assert_eq!(answer["info"]["path"]["cwd"], "/workspace/old");
    ok(&there, "DELETE", "/session/ses_again", &world.key, None).await;
    let body = json!({ "parts": [{ "type": "text", "text": "nobody is there" }] });
    let path = "/session/ses_again/message";
    let (status, _) = call(&here, "POST", path, &world.key, Some(body)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let again = json!({ "id": "ses_again", "directory": "/workspace/old" });
    ok(&there, "POST", "/session", &world.key, Some(again)).await;
    held(&world, &here, &there, "ses_again", "known again").await?;
    ok(&there, "DELETE", "/session/ses_again", &world.key, None).await;
    let new = json!({ "id": "ses_again", "directory": "/workspace/new" });
    ok(&there, "POST", "/session", &world.key, Some(new)).await;
    let answer = held(&world, &here, &there, "ses_again", "second").await?;
    assert_eq!(answer["info"]["path"]["cwd"], "/workspace/new");
    Ok(())
}

/// Returns a search that the provider ran, and its text after that.
fn searched() -> Vec<ReplyPart> {
    let part = |part: serde_json::Value| serde_json::from_value(part).expect("a part");
    vec![
        part(json!({"type": "text", "id": "prt_1", "text": "Looking."})),
        part(json!({"type": "hosted-call", "id": "prt_2", "call": "s1", "name": "web_search",
                    "input": "{\"query\":\"x\"}", "metadata": "{\"p\":{\"model\":\"m\"}}"})),
        part(
            json!({"type": "hosted-result", "id": "prt_3", "call": "s1", "name": "web_search", "output": "found"}),
        ),
        part(
            json!({"type": "hosted-call", "id": "prt_4", "call": "s2", "name": "fetch", "input": "{}"}),
        ),
        part(
            json!({"type": "hosted-result", "id": "prt_5", "call": "s2", "name": "fetch", "output": "gone",
                    "is_error": true}),
        ),
        part(json!({"type": "text", "id": "prt_6", "text": "So."})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_variant_a_notice_and_what_the_provider_ran_are_shown_live_and_from_rows() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    let id = session["id"].as_str().expect("an id");
    let mut events = listen(&world, &gateway, "/global/event").await;
    let path = format!("/session/{id}/message");
    let body = json!({
        "model": { "providerID": "simulated", "modelID": "echo" }, "variant": "high",
        "parts": [{ "type": "text", "text": "search" }],
    });
    let held = call(&gateway, "POST", &path, &world.key, Some(body));
    let work = async {
        let log = format!("/platform/session/{id}/log?follow=true");
        let mut log = listen(&world, &gateway, &log).await;
        log.until(|sse| sse.data["data"]["parts"][0]["text"] == "search").await;
        let at = at(&world, id).await?;
        begin_with(&world, &at, Some("echo is deprecated")).await?.reply(&world, searched()).await
    };
    let ((status, answer), worked) = tokio::join!(held, work);
    worked?;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let listed = ok(&gateway, "GET", &path, &world.key, None).await;
    assert_eq!(listed[1], answer, "made of events as of rows");
    assert_eq!(listed[0]["info"]["model"]["variant"], "high");
    assert_eq!(answer["info"]["variant"], "high");
    let parts: Vec<_> = answer["parts"].as_array().into_iter().flatten().collect();
    let shown = |at: usize| (&parts[at]["type"], &parts[at]["state"]["status"]);
    let (text, tool) = (json!("text"), json!("tool"));
    assert_eq!((shown(1).0, shown(4).0, parts.len()), (&text, &text, 6));
    assert_eq!(shown(2), (&tool, &json!("completed")));
    assert_eq!(shown(3), (&tool, &json!("error")));
    assert_eq!(parts[2]["callID"], "call_2");
    assert_eq!(parts[2]["state"]["input"], json!({ "query": "x" }));
    assert_eq!(parts[2]["state"]["output"], "found");
    assert_eq!(parts[2]["state"]["metadata"], json!({ "providerExecuted": true }));
    assert_eq!(parts[3]["state"]["error"], "gone");

    let frames = events.until(|sse| sse.data["payload"]["type"] == "session.idle").await;
    let payloads: Vec<_> = frames.iter().map(|sse| &sse.data["payload"]).collect();
    let toast = payloads.iter().find(|payload| payload["type"] == "tui.toast.show");
    let told = json!({ "message": "echo is deprecated", "variant": "warning" });
    assert_eq!(toast.map(|toast| &toast["properties"]), Some(&told));
    let live = payloads.iter().map(|payload| &payload["properties"]["part"]);
    let live: Vec<_> = live.filter(|part| part["type"] == "tool").collect();
    assert_eq!(live, [parts[2], parts[3]]);

    let native = ok(&gateway, "GET", &format!("/platform/session/{id}"), &world.key, None).await;
    assert_eq!(
        native["model"],
        json!({ "id": "echo", "providerID": "simulated", "variant": "high" })
    );
    assert_eq!(native["notices"][0]["message"], "echo is deprecated");
    assert_eq!(native["notices"][0]["modelID"], "echo");
    let rebuild = format!("/platform/session/{id}/rebuild?check=true");
    let rebuilt = ok(&gateway, "POST", &rebuild, &world.key, None).await;
    assert_eq!(rebuilt["exact"], true, "{rebuilt}");
    Ok(())
}
