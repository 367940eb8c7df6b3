//! The worth of a login link: no more than its maker showed.

use std::sync::atomic::Ordering;

use access::OrgRole;
use anyhow::{Context, Result, ensure};
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::logins::{Browser, Person, gateway_ahead, of_page, person};
use crate::world::{World, call, json as body_of, ok, send};

const MINUTE: i64 = 60_000;
const ME: &str = "/platform/me";
const LOGIN: &str = "/platform/login";
const FOLLOW: &str = "/platform/login/link";

fn token_of(made: &Value) -> Result<Value> {
    let url = made["url"].as_str().context("a URL")?;
    Ok(json!({ "token": url.split_once('#').context("a fragment")?.1 }))
}

async fn link_by_key(gateway: &Router, key: &str) -> Result<Value> {
    token_of(&ok(gateway, "POST", LOGIN, key, None).await)
}

async fn link_by_login(gateway: &Router, browser: &Browser) -> Result<Value> {
    let made = send(gateway, browser.request("POST", LOGIN, None)).await;
    ensure!(made.status() == StatusCode::OK, "{}", body_of(made).await);
    token_of(&body_of(made).await)
}

async fn refusal(gateway: &Router, browser: &Browser, path: &str, body: Option<Value>) -> Value {
    let told = send(gateway, browser.request("POST", path, body.as_ref())).await;
    body_of(told).await["error"]["code"].clone()
}

// Finding security-3 H1 (a): a key with `me.manage` alone made a link, and its login could do everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confined_key_makes_no_link() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    for scopes in [json!(["me.manage"]), json!(["read", "prompt", "me.manage"])] {
        let body = json!({ "name": "narrow", "scopes": scopes });
        let made = ok(&gateway, "POST", "/platform/key", &ada.key, Some(body)).await;
        let narrow = made["key"].as_str().context("a key")?;
        let (status, told) = call(&gateway, "POST", LOGIN, narrow, None).await;
        ensure!(status == StatusCode::FORBIDDEN, "{told}");
        assert_eq!(told["error"]["code"], "NOT_A_PERSON");
    }
    Ok(())
}

// Finding security-3 H1 (b): an old login made a link, whose login was recent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_login_gets_no_recent_one() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Member).await?;
    let owner = person(&world, "eve", OrgRole::Owner).await?;
    let maker = Browser::by_key(&gateway, &owner.key).await?;
    let member = Browser::by_key(&gateway, &ada.key).await?;
    let by_key = link_by_key(&gateway, &owner.key).await?;
    ahead.store(14 * MINUTE, Ordering::Release);
    let by_login = link_by_login(&gateway, &maker).await?;
    let (made, _) = Browser::begin(&gateway, FOLLOW, by_login).await?;
    assert_eq!(refusal(&gateway, &made, "/platform/recovery", None).await, Value::Null);

    ahead.store(16 * MINUTE, Ordering::Release);
    assert_eq!(refusal(&gateway, &maker, LOGIN, None).await, "SIGN_IN_AGAIN");
    assert_eq!(refusal(&gateway, &made, LOGIN, None).await, "SIGN_IN_AGAIN");
    assert_eq!(refusal(&gateway, &made, "/platform/recovery", None).await, "SIGN_IN_AGAIN");
    // A link that a key made is as old as its making.
    let (late, _) = Browser::begin(&gateway, FOLLOW, by_key).await?;
    assert_eq!(late.status(&gateway, "GET", ME).await, 200);
    assert_eq!(refusal(&gateway, &late, "/platform/recovery", None).await, "SIGN_IN_AGAIN");
    // A key with all scopes begins a recent login too, whoever's it is.
    let whole = Some(json!({ "name": "x" }));
    assert_eq!(refusal(&gateway, &member, "/platform/key", whole).await, "SIGN_IN_AGAIN");
    Ok(())
}

/// Begins logins by a key's links, ends the key's secret, and proves that all it began has ended with it.
async fn end_what_a_key_began(
    (gateway, other): (&Router, &Router),
    ada: &Person,
    end: (&str, &str, Option<Value>),
) -> Result<()> {
    let body = json!({ "name": "short", "days": 1 });
    let key = ok(gateway, "POST", "/platform/key", &ada.key, Some(body)).await;
    let (text, id) = (key["key"].as_str().context("a key")?, key["id"].as_str().context("an id")?);
    // By a link of the key, then by a link of that login: both end with the key, and not after it.
    let (first, me) = Browser::begin(gateway, FOLLOW, link_by_key(gateway, text).await?).await?;
    assert_eq!(me["login"]["expires_at"], key["expires_at"]);
    let (second, me) =
        Browser::begin(gateway, FOLLOW, link_by_login(gateway, &first).await?).await?;
    assert_eq!(me["login"]["expires_at"], key["expires_at"]);
    let (of_key, of_login) =
        (link_by_key(gateway, text).await?, link_by_login(gateway, &second).await?);
    let (method, path, body) = end;
    ok(gateway, method, &format!("/platform/key/{id}{path}"), &ada.key, body).await;
    for browser in [&first, &second] {
        assert_eq!(browser.status(other, "GET", ME).await, 401);
    }
    for link in [of_key, of_login] {
        let told = body_of(send(gateway, of_page("POST", FOLLOW, Some(&link))).await).await;
        assert_eq!(told["error"]["code"], "LINK_EXPIRED", "{told}");
    }
    Ok(())
}

// Finding security-3 H1: the confined key was revoked, and the login that its link had begun lived on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_of_a_link_ends_with_its_maker() -> Result<()> {
    let world = World::new().await?;
    let (gateway, other) = (world.gateway(), world.gateway());
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let gateways = (&gateway, &other);
    end_what_a_key_began(gateways, &ada, ("DELETE", "", None)).await?;
    // In the second look, the owner rotated a key that may have been seen, and the thief's logins lived on.
    let at_once = Some(json!({ "hours": 0 }));
    end_what_a_key_began(gateways, &ada, ("POST", "/rotate", at_once)).await?;

    // The end of a login ends what its links began, and theirs.
    let root = Browser::by_key(&gateway, &ada.key).await?;
    let (child, _) =
        Browser::begin(&gateway, FOLLOW, link_by_login(&gateway, &root).await?).await?;
    let (grandchild, _) =
        Browser::begin(&gateway, FOLLOW, link_by_login(&gateway, &child).await?).await?;
    assert_eq!(root.status(&gateway, "POST", "/platform/logout").await, 204);
    for browser in [&root, &child, &grandchild] {
        assert_eq!(browser.status(&gateway, "GET", ME).await, 401);
        assert_eq!(browser.status(&other, "GET", ME).await, 401);
    }
    // Whoever ends all others keeps the one that asks, though another one's link began it.
    let root = Browser::by_key(&gateway, &ada.key).await?;
    let (child, _) =
        Browser::begin(&gateway, FOLLOW, link_by_login(&gateway, &root).await?).await?;
    assert_eq!(child.status(&gateway, "DELETE", LOGIN).await, 200);
    assert_eq!(root.status(&other, "GET", ME).await, 401);
    assert_eq!(child.status(&other, "GET", ME).await, 200);
    Ok(())
}
