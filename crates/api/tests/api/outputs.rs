//! Complete outputs of calls, of which results show the ends.

use anyhow::{Result, ensure};
use blobs::BlobKey;
use http::StatusCode;

use crate::import::{OUTPUT, travelled};
use crate::native::session;
use crate::world::{World, request, send};

// Finding trial-3 14: "all of it is in /tool-output/…" stood there, and nothing opened that path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_output_is_read_by_its_own_session() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let owner = travelled(&world, &gateway).await?;
    let (_, other) = session(&world, &gateway).await;
    let read = async |session: &str, name: &str| {
        let path = format!("/platform/session/{session}/output/{name}");
        let response = send(&gateway, request("GET", &path, &world.key, None)).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = axum::body::to_bytes(response.into_body(), 64 << 20).await?;
        anyhow::Ok((status, headers, String::from_utf8(body.to_vec())?))
    };
    let (status, headers, text) = read(&owner, OUTPUT).await?;
    ensure!((status, text.as_str()) == (StatusCode::OK, "all of it"), "{status}: {text}");
    // It is a command's text, so no browser opens it as a page.
    ensure!(headers["content-type"] == "text/plain; charset=utf-8", "{headers:?}");
    ensure!(headers["content-disposition"] == "attachment", "{headers:?}");
    for (session, name) in [
        (&other, OUTPUT),
        (&owner, "tool_other"),
        (&owner, "..%2Ftool_long"),
        (&owner, "%00"),
        (&owner, "tool_long%2F"),
    ] {
        let (status, _, text) = read(session, name).await?;
        ensure!(status == StatusCode::NOT_FOUND, "{session} {name}: {status} {text}");
    }
    // One that has expired.
    let key = BlobKey::new(&world.org.to_string(), "tool-output", OUTPUT)?;
    world.blobs.delete(&key).await?;
    let (status, _, text) = read(&owner, OUTPUT).await?;
    ensure!(status == StatusCode::NOT_FOUND && text.contains("output"), "{status}: {text}");
    Ok(())
}
