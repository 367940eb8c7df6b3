//! Names, parents, and the usage of a tree of sessions.

use anyhow::Result;
use http::StatusCode;
use serde_json::json;

use crate::drain::{at, begin};
use crate::native::session;
use crate::world::{World, call, ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_renamed_in_both_dialects() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let paths = [
        format!("/project/{project}/session/{session}"),
        format!("/platform/session/{session}"),
        format!("/session/{session}"),
    ];
    for (n, path) in paths.iter().enumerate() {
        let title = format!("Title {n}");
        let renamed =
            ok(&gateway, "PATCH", path, &world.key, Some(json!({ "title": format!(" {title} ") })))
                .await;
        assert_eq!(renamed["title"], title);
        let shown = ok(&gateway, "GET", path, &world.key, None).await;
        assert_eq!(shown, renamed);
        let blank = Some(json!({ "title": " \n" }));
        assert_eq!(
            call(&gateway, "PATCH", path, &world.key, blank).await.0,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(ok(&gateway, "PATCH", path, &world.key, Some(json!({}))).await, shown);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_are_listed_counted_with_their_parent_and_deleted_with_it() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, root) = session(&world, &gateway).await;
    let sessions = format!("/project/{project}/session");
    let body = json!({ "id": "ses_child", "parentID": root, "directory": world.path() });
    let child = ok(&gateway, "POST", &sessions, &world.key, Some(body.clone())).await;
    assert_eq!(child["parentID"], root.as_str());
    assert_eq!(child, ok(&gateway, "POST", &sessions, &world.key, Some(body)).await);
    // The same id with another parent, or none, is a conflict.
    let body = Some(json!({ "id": "ses_child", "directory": world.path() }));
    let (status, _) = call(&gateway, "POST", &sessions, &world.key, body).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let orphan = Some(json!({ "parentID": "ses_nobody", "directory": world.path() }));
    let (status, body) = call(&gateway, "POST", &sessions, &world.key, orphan).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");

    let own = format!("/platform/session/{root}");
    let listed = ok(&gateway, "GET", &format!("{own}/children"), &world.key, None).await;
    assert_eq!(listed, json!([child]));
    let stock = ok(&gateway, "GET", &format!("/session/{root}/children"), &world.key, None).await;
    assert_eq!((&stock[0]["id"], &stock[0]["parentID"]), (&json!("ses_child"), &json!(root)));
    let roots = ok(&gateway, "GET", "/session?roots=true", &world.key, None).await;
    assert_eq!(roots.as_array().map(Vec::len), Some(1));

    let prompt = Some(json!({ "text": "hello" }));
    ok(&gateway, "POST", "/platform/session/ses_child/message", &world.key, prompt).await;
    begin(&world, &at(&world, "ses_child").await?).await?.finish(&world, "hi", None).await?;
    let used = ok(&gateway, "GET", &format!("{own}/usage"), &world.key, None).await;
    assert_eq!(
        (&used["session"]["tokens"]["total"], &used["tree"]["tokens"]["total"], &used["sessions"]),
        (&json!(0), &json!(15), &json!(2))
    );
    assert_eq!(used["tree"]["cost"], 0);

    assert_eq!(ok(&gateway, "DELETE", &own, &world.key, None).await, json!(true));
    let (status, _) = call(&gateway, "GET", "/platform/session/ses_child", &world.key, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    Ok(())
}
