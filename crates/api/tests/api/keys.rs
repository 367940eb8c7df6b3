//! Keys of people and services: made, listed, confined, rotated, revoked.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use access::{Actor, OrgRole, Scopes};
use anyhow::{Context, Result, ensure};
use auth::MadeKey;
use domain::{Clock, OrgId, SystemClock};
use http::StatusCode;
use serde_json::{Value, json};

use crate::logins::{Browser, gateway_ahead, person, person_of};
use crate::world::{World, call, ok};

async fn make(gateway: &axum::Router, by: &str, body: Value) -> Result<(String, String)> {
    let made = ok(gateway, "POST", "/platform/key", by, Some(body)).await;
    let text = |name: &str| made[name].as_str().map(str::to_owned);
    Ok((text("key").context("its text")?, text("id").context("its id")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_shown_once_and_does_what_its_scopes_say() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Member).await?;
    let before = ok(&gateway, "GET", "/platform/key", &ada.key, None).await;
    assert_eq!(before["data"].as_array().map(Vec::len), Some(1));
    let (reader, id) =
        make(&gateway, &ada.key, json!({ "name": "reader", "scopes": ["read"], "days": 1 }))
            .await?;
    assert!(reader.starts_with("ocu_"), "{reader}");
    ok(&gateway, "GET", "/platform/session", &reader, None).await;
    let (status, told) = call(&gateway, "POST", "/project/init", &reader, None).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let message = told["error"]["message"].as_str().context("a message")?;
    assert!(message.contains("`session.prompt`") && message.contains("key"), "{message}");
    let list = ok(&gateway, "GET", "/platform/key", &ada.key, None).await;
    let row = list["data"].as_array().context("keys")?.iter().find(|row| row["id"] == id);
    let row = row.context("the key")?;
    assert_eq!((&row["owner"], &row["scopes"]), (&json!("usr_ada"), &json!(["read"])));
    assert!(!list.to_string().contains(&reader), "its text is shown once");
    let life = row["expires_at"].as_i64().context("an end")?
        - row["created_at"].as_i64().context("a time")?;
    assert_eq!(life, 86_400_000);
    for (wrong, named) in [
        (json!({ "name": "x", "scopes": ["raed"] }), "raed"),
        (json!({ "name": "x", "scopes": [] }), "scope"),
        (json!({ "name": "x", "days": 367 }), "days"),
        (json!({ "name": "" }), "name"),
    ] {
        let (status, told) = call(&gateway, "POST", "/platform/key", &ada.key, Some(wrong)).await;
        ensure!(status == StatusCode::BAD_REQUEST && told.to_string().contains(named), "{told}");
    }
    Ok(())
}

// Attack 35 of identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_makes_a_stronger_key_or_touches_anothers() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Member).await?;
    let bob = person(&world, "bob", OrgRole::Member).await?;
    let eve = person(&world, "eve", OrgRole::Admin).await?;
    let (maker, _) =
        make(&gateway, &ada.key, json!({ "name": "m", "scopes": ["me.manage"] })).await?;
    let (status, told) =
        call(&gateway, "POST", "/platform/key", &maker, Some(json!({ "name": "x" }))).await;
    ensure!(status == StatusCode::BAD_REQUEST && told.to_string().contains("scopes"), "{told}");
    let rotate = format!("/platform/key/{}/rotate", ada.key_id);
    let (status, told) = call(&gateway, "POST", &rotate, &maker, Some(json!({}))).await;
    ensure!(status == StatusCode::BAD_REQUEST, "a way around: {told}");
    let others = format!("/platform/key/{}", ada.key_id);
    assert_eq!(call(&gateway, "DELETE", &others, &bob.key, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        call(&gateway, "DELETE", &others, &world.stranger, None).await.0,
        StatusCode::NOT_FOUND
    );
    let service = json!({ "name": "ci", "service": "builds" });
    for (method, path, body) in
        [("GET", "/platform/key?all=true", None), ("POST", "/platform/key", Some(service.clone()))]
    {
        let (status, told) = call(&gateway, method, path, &bob.key, body).await;
        ensure!(
            status == StatusCode::FORBIDDEN && told.to_string().contains("key.manage"),
            "{told}"
        );
    }
    let (key, _) = make(&gateway, &eve.key, service).await?;
    assert!(key.starts_with("ocs_"), "{key}");
    let me = ok(&gateway, "GET", "/platform/me", &key, None).await;
    assert_eq!((&me["actor"]["id"], &me["role"]), (&json!("svc_builds"), &json!("member")));
    let all = ok(&gateway, "GET", "/platform/key?all=true", &eve.key, None).await;
    assert!(all["data"].as_array().is_some_and(|keys| keys.len() >= 5), "{all}");
    ok(&gateway, "DELETE", &others, &eve.key, None).await;
    assert_eq!(
        call(&world.gateway(), "GET", "/project", &ada.key, None).await.0,
        StatusCode::UNAUTHORIZED
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_has_two_secrets_for_a_while() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Admin).await?;
    let (old, id) = make(&gateway, &ada.key, json!({ "name": "long" })).await?;
    let rotate = format!("/platform/key/{id}/rotate");
    let made = ok(&gateway, "POST", &rotate, &ada.key, Some(json!({ "hours": 1 }))).await;
    let new = made["key"].as_str().context("a key")?.to_owned();
    assert!(made["id"] == id && new != old);
    for key in [&old, &new] {
        ok(&gateway, "GET", "/project", key, None).await;
    }
    let (status, told) = call(&gateway, "POST", &rotate, &ada.key, Some(json!({}))).await;
    ensure!(status == StatusCode::CONFLICT, "{told}");
    let (over, id) = make(&gateway, &ada.key, json!({ "name": "short" })).await?;
    let rotate = format!("/platform/key/{id}/rotate");
    let made = ok(&gateway, "POST", &rotate, &ada.key, Some(json!({ "hours": 0 }))).await;
    let other = world.gateway();
    assert_eq!(call(&other, "GET", "/project", &over, None).await.0, StatusCode::UNAUTHORIZED);
    ok(&other, "GET", "/project", made["key"].as_str().context("a key")?, None).await;
    // A key of before there were people is the first service account's, and has one secret.
    let me = ok(&gateway, "GET", "/platform/me", &world.key, None).await;
    assert_eq!((&me["actor"]["id"], &me["role"]), (&json!("svc_first"), &json!("admin")));
    make(&gateway, &world.key, json!({ "name": "newer" })).await?;
    let keys = ok(&gateway, "GET", "/platform/key", &world.key, None).await;
    let first = keys["data"][1]["id"].as_str().context("an id")?;
    let rotate = format!("/platform/key/{first}/rotate");
    let (status, told) = call(&gateway, "POST", &rotate, &world.key, Some(json!({}))).await;
    ensure!(status == StatusCode::CONFLICT && told.to_string().contains("old form"), "{told}");
    Ok(())
}

/// Makes a key of somebody in an organisation, and returns its id.
async fn key_of(world: &World, org: OrgId, owner: &str) -> Result<String> {
    let (actor, now) = (owner.parse::<Actor>().context("an actor")?, SystemClock::new().now_ms());
    let made = MadeKey::of(&actor);
    let scopes = vec![Scopes::EVERYTHING.to_owned()];
    let row = made.row(actor, "matrix".into(), scopes, Some(now + 86_400_000));
    world.store.create_owned_key(org, row, None, now).await?;
    Ok(made.id.to_string())
}

/// Rotates, then revokes a key; returns both statuses, and whom the new secret proves.
async fn rotate_and_revoke(
    gateway: &axum::Router,
    by: &str,
    id: &str,
) -> Result<(String, Option<Value>)> {
    let path = format!("/platform/key/{id}");
    let rotated = call(gateway, "POST", &format!("{path}/rotate"), by, Some(json!({}))).await;
    let proved = match rotated.1["key"].as_str() {
        Some(secret) => Some(ok(gateway, "GET", "/platform/me", secret, None).await),
        None => None,
    };
    let revoked = call(gateway, "DELETE", &path, by, None).await;
    Ok((format!("{} {}", rotated.0.as_u16(), revoked.0.as_u16()), proved))
}

// Finding security-3 C1: an admin rotated an owner's key, got its new secret, and was the owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_a_key_of_another_person() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    for role in [OrgRole::Viewer, OrgRole::Member, OrgRole::Admin, OrgRole::Owner] {
        person(&world, &format!("other{role}"), role).await?;
    }
    person_of(&world, world.theirs, "far", OrgRole::Owner).await?;
    let mut callers = Vec::new();
    for role in OrgRole::ALL {
        let caller = person(&world, role.as_str(), role).await?;
        callers.push((role.to_string(), caller.id.to_string(), caller.key));
    }
    let owner = callers.last().context("an owner")?.2.clone();
    let confined = json!({ "name": "c", "scopes": ["key.manage", "me.manage"] });
    let confined = make(&gateway, &owner, confined).await?.0;
    callers.push(("confined".into(), "usr_owner".into(), confined));
    make(&gateway, &owner, json!({ "name": "s", "service": "builds" })).await?;
    let admin = json!({ "role": "admin" });
    ok(&gateway, "PATCH", "/platform/user/svc_builds", &owner, Some(admin)).await;
    let service = json!({ "name": "s", "service": "builds" });
    let service = make(&gateway, &owner, service).await?.0;
    callers.push(("service".into(), "svc_builds".into(), service));

    let mut matrix = String::new();
    for (caller, actor, key) in &callers {
        let whose = [
            ("own", world.org, actor.as_str()),
            ("viewer's", world.org, "usr_otherviewer"),
            ("admin's", world.org, "usr_otheradmin"),
            ("owner's", world.org, "usr_otherowner"),
            ("service's", world.org, "svc_builds"),
            ("foreign", world.theirs, "usr_far"),
        ];
        write!(matrix, "{caller}:")?;
        for (name, org, owner) in whose {
            let id = key_of(&world, org, owner).await?;
            let (statuses, proved) = rotate_and_revoke(&gateway, key, &id).await?;
            write!(matrix, " {name} {statuses};")?;
            if let Some(me) = proved {
                let proved = me["actor"]["id"].as_str().context("an actor")?;
                ensure!(proved == actor || proved.starts_with("svc_"), "{caller} is {proved} now");
            }
        }
        let made = json!({ "name": "x", "service": "other", "scopes": ["me.manage"] });
        let made = call(&gateway, "POST", "/platform/key", key, Some(made)).await.0;
        writeln!(matrix, " for a service {}", made.as_u16())?;
    }
    insta::assert_snapshot!(matrix, @r"
    viewer: own 201 200; viewer's 404 404; admin's 404 404; owner's 404 404; service's 404 404; foreign 404 404; for a service 403
    member: own 201 200; viewer's 404 404; admin's 404 404; owner's 404 404; service's 404 404; foreign 404 404; for a service 403
    admin: own 201 200; viewer's 403 200; admin's 403 200; owner's 403 403; service's 201 200; foreign 404 404; for a service 201
    owner: own 201 200; viewer's 403 200; admin's 403 200; owner's 403 200; service's 201 200; foreign 404 404; for a service 201
    confined: own 400 200; viewer's 403 200; admin's 403 200; owner's 403 403; service's 400 200; foreign 404 404; for a service 201
    service: own 201 200; viewer's 403 200; admin's 403 200; owner's 403 403; service's 201 200; foreign 404 404; for a service 201
    ");
    Ok(())
}

// Finding security-3 C1, and decision 0083: what only owners may wants a recent login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_login_revokes_no_key_of_another_owner() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    person(&world, "eve", OrgRole::Owner).await?;
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    ahead.store(16 * 60_000, Ordering::Release);
    let path = format!("/platform/key/{}", key_of(&world, world.org, "usr_eve").await?);
    assert_eq!(browser.status(&gateway, "DELETE", &path).await, 403);
    let own = format!("/platform/key/{}", key_of(&world, world.org, "usr_ada").await?);
    assert_eq!(browser.status(&gateway, "DELETE", &own).await, 200);
    ahead.store(0, Ordering::Release);
    assert_eq!(browser.status(&gateway, "DELETE", &path).await, 200);
    Ok(())
}
