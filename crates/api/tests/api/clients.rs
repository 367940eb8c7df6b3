//! Small things that the released `run` and web clients need.

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{SseReader, World, call, ok, request, send};

async fn session(gateway: &axum::Router, key: &str) -> Result<String> {
    let session = ok(gateway, "POST", "/session", key, None).await;
    Ok(session["id"].as_str().context("an id")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shares_is_told_why_not_by_the_next_stream() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let id = session(&gateway, key).await?;
    let path = format!("/session/{id}/share");
    let mut asked = request("POST", &path, key, None);
    asked.headers_mut().insert("user-agent", "opencode/1.18.33".parse()?);
    assert_eq!(send(&gateway, asked).await.status(), StatusCode::BAD_REQUEST);
    let mut events = SseReader::new(send(&gateway, request("GET", "/event", key, None)).await);
    let told = events.until(|frame| frame.data["type"] == "session.error").await;
    let told = &told.last().context("a frame")?.data["properties"];
    assert_eq!(told["sessionID"], id);
    let message = told["error"]["data"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("not published"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attached_text_file_is_a_part_that_the_model_reads() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let id = session(&gateway, key).await?;
    let prompt = |url: &str| {
        let file =
            json!({ "type": "file", "filename": "note.txt", "mime": "text/plain", "url": url });
        json!({ "parts": [file, { "type": "text", "text": "look" }], "noReply": true })
    };
    let path = format!("/session/{id}/message");
    let sent = ok(&gateway, "POST", &path, key, Some(prompt("data:text/plain;base64,aGk="))).await;
    let texts: Vec<&Value> = sent["parts"].as_array().context("parts")?.iter().collect();
    assert_eq!(texts[0]["text"], "<file name=\"note.txt\">\nhi\n</file>");
    assert_eq!(texts[1]["text"], "look");
    for (url, status, says) in [
        ("data:image/png;base64,iVBORw0=", 400, "`note.txt` (image/png) is no text"),
        ("data:text/plain;base64,/w==", 400, "into the workspace"),
        (&format!("data:,{}", "x".repeat(300 * 1024)), 413, "more than 262144 bytes"),
    ] {
        let (answered, body) = call(&gateway, "POST", &path, key, Some(prompt(url))).await;
        let said = body.to_string();
        ensure!(answered.as_u16() == status && said.contains(says), "{answered}: {said}");
    }
    Ok(())
}

// A newcomer saw our part of the prompt as their own words, and `/undo` put it into the draft.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_reference_to_a_file_is_synthetic() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let id = session(&gateway, key).await?;
    let file = json!({ "type": "file", "mime": "text/plain", "url": "file:///w/README.md" });
    let text = json!({ "type": "text", "text": "Explain @README.md" });
    let prompt = json!({ "parts": [text, file], "noReply": true });
    let path = format!("/session/{id}/message");
    let shown = ok(&gateway, "POST", &path, key, Some(prompt)).await;
    let parts = shown["parts"].as_array().context("parts")?;
    assert_eq!(parts[0]["text"], "Explain @README.md");
    ensure!(parts[0].get("synthetic").is_none(), "{shown}");
    assert_eq!(parts[1]["text"], "The prompt refers to /w/README.md: read it before you answer.");
    assert_eq!(parts[1]["synthetic"], true);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_projects_are_found_and_nothing_else() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let top = world.directory.path().to_str().context("UTF-8")?;
    std::fs::create_dir_all(world.directory.path().join("a/one"))?;
    std::fs::create_dir_all(world.directory.path().join("secret"))?;
    let one = format!("{top}/a/one");
    let made = format!("/session?directory={one}");
    ok(&gateway, "POST", &made, key, None).await;
    let get = async |path: String| ok(&gateway, "GET", &path, key, None).await;
    // As the dialog for a new project asks.
    let find =
        |query: &str, at: &str| format!("/find/file?query={query}&type=directory&directory={at}");
    assert_eq!(get(find("", top) + "&limit=50").await, json!(["a/one/"]));
    assert_eq!(get(find("zzz", top)).await, json!([]));
    std::fs::create_dir_all(world.directory.path().join("a/one/src"))?;
    std::fs::write(world.directory.path().join("a/one/src/lib.rs"), "")?;
    assert_eq!(get(find("", &one)).await, json!(["src/"]));
    assert_eq!(get(find("one", &one)).await, json!(["/"]), "the project itself");
    let listed = get(format!("/file?path=&directory={top}")).await;
    let node = json!({ "name": "a", "path": "a/", "absolute": format!("{top}/a"), "type": "directory", "ignored": false });
    assert_eq!(listed, json!([node]));
    let below = get(format!("/file?path=a&directory={top}")).await;
    assert_eq!((&below[0]["path"], &below[0]["absolute"]), (&json!("a/one/"), &json!(one)));
    // Files are the workers'.
    for path in [
        format!("/file?path=&directory={one}"),
        format!("/file?path=src&directory={one}"),
        "/find/file?query=x&directory=/workspace".to_owned(),
    ] {
        let (status, body) = call(&gateway, "GET", &path, key, None).await;
        let said = body["data"]["message"].as_str().unwrap_or_default();
        ensure!(status == StatusCode::BAD_REQUEST && said.contains("ask the agent"), "{body}");
    }
    let foreign = find("", top);
    assert_eq!(ok(&gateway, "GET", &foreign, &world.stranger, None).await, json!([]));
    Ok(())
}
