//! Sessions of the released client: what `opencode export` writes becomes a session here.

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{at, begin};
use crate::import::imports;
use crate::world::{World, ok};

const SESSION: &str = "ses_df55d196cffe9tS4FEnbVyazW8";

/// Returns an export with everything that a released session can have.
fn export() -> Value {
    let info = json!({
        "id": SESSION, "slug": "glowing-comet", "projectID": "global", "directory": "/elsewhere", "path": "",
        "title": "Elsewhere", "agent": "build", "version": "1.18.33", "cost": 0.1, "parentID": "ses_parent",
        "permission": [{ "permission": "edit", "pattern": "*", "action": "deny" }],
        "share": { "url": "https://share.example/x" }, "metadata": { "ticket": 7 },
        "time": { "created": 1_795_474_777_747_i64, "updated": 1_795_474_819_934_i64 },
    });
    let model = json!({ "providerID": "sim", "modelID": "simulated" });
    let user = |id: &str, at: i64, parts: Value| {
        json!({
            "info": {
                "id": id, "sessionID": SESSION, "role": "user", "agent": "build", "model": model,
                "time": { "created": at }, "summary": { "diffs": [] },
            },
            "parts": parts,
        })
    };
    let answer = |id: &str, of: &str, at: i64, more: Value, parts: Value| {
        let mut info = json!({
            "id": id, "sessionID": SESSION, "role": "assistant", "parentID": of, "mode": "plan", "agent": "plan",
            "providerID": "sim", "modelID": "simulated", "path": { "cwd": "/", "root": "/" }, "cost": 0,
            "tokens": { "total": 7, "input": 5, "output": 2, "reasoning": 0, "cache": { "read": 0, "write": 0 } },
            "time": { "created": at, "completed": at + 5 },
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            info[name] = value.clone();
        }
        json!({ "info": info, "parts": parts })
    };
    let text = |id: &str, text: &str| json!({ "id": id, "type": "text", "text": text });
    let tool = |id: &str, state: Value| json!({ "id": id, "type": "tool", "callID": "call_0", "tool": "bash", "state": state });
    let done = json!({
        "status": "completed", "input": { "command": "ls" }, "output": "a.txt", "title": "ls", "metadata": {},
        "time": { "start": 11, "end": 12 },
    });
    let failed = json!({ "status": "error", "input": {}, "error": "no such file", "time": { "start": 1, "end": 2 } });
    let file = json!({ "id": "prt_f", "type": "file", "mime": "text/plain", "url": "data:,x" });
    json!({ "info": info, "messages": [
        user("msg_a", 10, json!([text("prt_a", "list\u{0}"), file])),
        answer("msg_b", "msg_a", 11, json!({ "finish": "tool-calls" }), json!([
            { "id": "prt_s", "type": "step-start", "snapshot": "4b825dc6" },
            { "id": "prt_r", "type": "reasoning", "text": "hm", "time": { "start": 1 } },
            text("prt_b", "I look."), tool("prt_c", done), tool("prt_d", failed), text("prt_e", "One file."),
            { "id": "prt_p", "type": "patch", "hash": "x", "files": [] },
        ])),
        answer("msg_c", "msg_a", 20, json!({ "finish": "stop" }), json!([text("prt_g", "Done.")])),
        user("msg_d", 30, json!([{ "id": "prt_h", "type": "compaction", "auto": true }])),
        answer("msg_e", "msg_d", 31, json!({ "summary": true }), json!([text("prt_i", "They listed.")])),
        user("msg_f", 40, json!([text("prt_j", "again")])),
        answer("msg_g", "msg_f", 41, json!({ "error": { "name": "MessageAbortedError", "data": {} } }),
            json!([tool("prt_k", json!({ "status": "running", "input": {}, "time": { "start": 1 } }))])),
        user("msg_h", 50, json!([{ "id": "prt_l", "type": "file", "mime": "image/png", "url": "file:///x" }])),
        answer("msg_i", "msg_h", 51,
            json!({ "error": { "name": "APIError", "data": { "message": "too many" } } }), json!([])),
    ] })
}

/// Returns `role: parts` of each message.
fn told(messages: &Value) -> Vec<String> {
    let part = |part: &Value| match part["type"].as_str() {
        Some("tool") => {
            let state = &part["state"];
            let said = state["output"].as_str().or(state["error"].as_str()).unwrap_or_default();
            format!("{} {said}", state["status"].as_str().unwrap_or_default())
        }
        kind => {
            format!("{} {}", kind.unwrap_or_default(), part["text"].as_str().unwrap_or_default())
        }
    };
    let is_shown =
        |part: &&Value| part["type"].as_str().is_some_and(|kind| !kind.starts_with("step-"));
    let one = |message: &Value| {
        let parts: Vec<String> =
            message["parts"].as_array().into_iter().flatten().filter(is_shown).map(part).collect();
        format!("{}: {}", message["info"]["role"].as_str().unwrap_or_default(), parts.join(" | "))
    };
    messages.as_array().into_iter().flatten().map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_session_goes_on_here() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    // As the released client writes it: on many lines.
    let (status, answer) = imports(&gateway, &world.key, "", format!("{:#}", export())).await;
    ensure!(status == StatusCode::OK, "{answer}");
    let session = &answer["session"];
    assert_eq!((&session["id"], &session["title"]), (&json!(SESSION), &json!("Elsewhere")));
    assert_eq!((&session["agent"], &answer["files"]), (&json!("build"), &json!("none")));
    assert_eq!(session["model"]["providerID"], "sim");
    assert_eq!(session["metadata"], json!({ "ticket": 7 }));
    let left_out = [
        "attached files (2)",
        "its place below a parent session (1)",
        "its share link (1)",
        "snapshots and changes of files (1)",
        "summaries of older parts: the whole conversation is here (2)",
        "token counts and costs of answers (4)",
    ];
    assert_eq!(answer["leftOut"], json!(left_out));
    let own = format!("/platform/session/{SESSION}");
    let list = format!("{own}/message");
    let messages = ok(&gateway, "GET", &list, &world.key, None).await;
    let expected = [
        "user: text list\u{fffd}",
        "assistant: reasoning hm | text I look. | completed a.txt | error no such file",
        "assistant: text One file.",
        "assistant: text Done.",
        "user: text again",
        "assistant: error The call had no result when the session was exported.",
        "user: text (The content of this message was not imported.)",
        "assistant: ",
    ];
    assert_eq!(told(&messages), expected);
    let ids: Vec<_> = messages
        .as_array()
        .context("a list")?
        .iter()
        .map(|message| &message["info"]["id"])
        .collect();
    assert_eq!((ids[0], ids[2], ids[3]), (&json!("msg_a"), &json!("msg_b"), &json!("msg_c")));
    assert_eq!(messages[7]["info"]["error"]["data"]["message"], "too many");

    let sound = "/platform/check?settled=true&blobs=true";
    assert_eq!(ok(&gateway, "GET", sound, &world.key, None).await, json!([]));
    let check = ok(&gateway, "POST", &format!("{own}/rebuild?check=true"), &world.key, None).await;
    assert_eq!(check["exact"], true, "{check}");
    let model = json!({ "providerID": "simulated", "modelID": "echo" });
    let prompt = Some(json!({ "id": "msg_next", "text": "next?", "model": model }));
    ok(&gateway, "POST", &list, &world.key, prompt).await;
    let turn = begin(&world, &at(&world, SESSION).await?).await?;
    let sent = String::from_utf8(turn.body.clone())?;
    ensure!(
        sent.contains("One file.") && sent.contains("a.txt") && sent.contains("next?"),
        "{sent}"
    );
    turn.finish(&world, "next!", None).await?;
    assert_eq!(ok(&gateway, "GET", sound, &world.key, None).await, json!([]));
    // The ids are taken now.
    let (status, answer) = imports(&gateway, &world.key, "", export().to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    Ok(())
}

// The public reports OpenMAIC#1493 and opencode#33520: half of a surrogate pair, and a mark of the byte order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_export_may_have_half_a_character_and_a_mark() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let mut export = export();
    export["info"]["title"] = json!("TITLE");
    let text = export.to_string().replace("TITLE", "\\ud83d half");
    let (status, answer) = imports(&gateway, &world.key, "", format!("\u{feff}{text}")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let list = ok(&gateway, "GET", "/platform/session", &world.key, None).await;
    assert_eq!(list[0]["title"], "\u{fffd} half");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_export_that_is_cut_or_too_large_is_refused() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let text = export().to_string();
    for cut in [1, text.len() / 2, text.len() - 1] {
        let (status, answer) = imports(&gateway, &world.key, "", text[..cut].to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    let utf16: Vec<u8> =
        [0xFF, 0xFE].into_iter().chain(text.bytes().flat_map(|byte| [byte, 0])).collect();
    let (status, answer) = imports(&gateway, &world.key, "", utf16).await;
    assert!(status == StatusCode::BAD_REQUEST && answer.to_string().contains("UTF-16"), "{answer}");
    let large = format!("{{\n\"info\": \"{}\" }}", "x".repeat(65 << 20));
    let (status, answer) = imports(&gateway, &world.key, "", large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    let mut foreign = export();
    foreign["info"]["id"] = json!("abc");
    let (status, answer) = imports(&gateway, &world.key, "", foreign.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(ok(&gateway, "GET", "/platform/session", &world.key, None).await, json!([]));
    Ok(())
}
