//! People: their roles, and that an organisation keeps an owner.

use access::OrgRole;
use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::json;

use crate::logins::person;
use crate::world::{World, call, ok};

/// Makes `usr_bob` an owner in one transaction, which is committed once another one waits for it.
const PROMOTION: &str = "DO $$ BEGIN
    PERFORM FROM organisation FOR UPDATE;
    UPDATE principal SET role = 'owner' WHERE id = 'usr_bob';
    FOR nth IN 1..500 LOOP
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
        EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock');
    END LOOP;
END $$";
/// Waits until that transaction waits for another one.
const UNTIL_PROMOTED: &str = "DO $$ BEGIN
    FOR nth IN 1..10000 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep');
    END LOOP;
END $$";

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

// Finding look, low (C1): a promotion raced an admin's change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admins_change_loses_against_a_promotion() -> Result<()> {
    for (method, has_key) in [("PATCH", false), ("DELETE", true)] {
        let world = World::new().await?;
        let gateway = world.gateway();
        let eve = person(&world, "eve", OrgRole::Admin).await?;
        let bob = person(&world, "bob", OrgRole::Member).await?;
        let me = ok(&gateway, "GET", "/platform/me", &eve.key, None).await;
        ensure!(me["role"] == "admin", "{me}");
        let (path, body) = if has_key {
            (format!("/platform/key/{}", bob.key_id), None)
        } else {
            ("/platform/user/usr_bob".to_owned(), Some(json!({ "disabled": true })))
        };
        let change = async {
            world.database.run(UNTIL_PROMOTED.to_owned()).await?;
            anyhow::Ok(call(&gateway, method, &path, &eve.key, body).await)
        };
        let (promoted, changed) = tokio::join!(world.database.run(PROMOTION.to_owned()), change);
        promoted?;
        let (status, told) = changed?;
        ensure!(
            status == StatusCode::CONFLICT && told.to_string().contains("nothing was changed"),
            "{method}: {status} {told}"
        );
        ok(&gateway, "GET", "/platform/me", &bob.key, None).await;
    }
    Ok(())
}
