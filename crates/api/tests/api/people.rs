//! People: their roles, and that an organisation keeps an owner.

use access::OrgRole;
use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::json;

use crate::logins::person;
use crate::world::{World, call, ok};

// Attack 15 of identity, and the escalation of an admin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_changed_from_above_and_an_owner_stays() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let eve = person(&world, "eve", OrgRole::Admin).await?;
    let bob = person(&world, "bob", OrgRole::Member).await?;
    let change = async |by: &str, of: &str, body| {
        call(&gateway, "PATCH", &format!("/platform/user/{of}"), by, Some(body)).await
    };
    for (by, of, body) in [
        (&bob.key, "usr_bob", json!({ "role": "admin" })),
        (&eve.key, "usr_eve", json!({ "role": "owner" })),
        (&eve.key, "usr_ada", json!({ "role": "viewer" })),
        (&eve.key, "usr_ada", json!({ "disabled": true })),
        (&world.key, "usr_bob", json!({ "role": "owner" })),
    ] {
        let (status, told) = change(by, of, body).await;
        ensure!(status == StatusCode::FORBIDDEN, "{of}: {told}");
    }
    let (status, told) = change(&world.stranger, "usr_bob", json!({ "role": "viewer" })).await;
    ensure!(status == StatusCode::NOT_FOUND, "{told}");
    for gone in [json!({ "role": "admin" }), json!({ "disabled": true })] {
        let (status, told) = change(&ada.key, "usr_ada", gone).await;
        ensure!(
            status == StatusCode::CONFLICT && told.to_string().contains("last owner"),
            "{told}"
        );
    }
    let (status, told) = change(&ada.key, "usr_eve", json!({ "role": "owner" })).await;
    ensure!(status == StatusCode::OK && told["role"] == "owner", "{told}");
    // Two owners at once: one of them stays.
    let (one, two) = tokio::join!(
        change(&ada.key, "usr_eve", json!({ "role": "member" })),
        change(&ada.key, "usr_ada", json!({ "role": "member" })),
    );
    let all = ok(&world.gateway(), "GET", "/platform/user", &world.key, None).await;
    let owners = all["data"].as_array().into_iter().flatten().filter(|row| row["role"] == "owner");
    ensure!(owners.count() == 1, "{one:?} {two:?} {all}");
    Ok(())
}
