//! Recovery codes, and what all owners are told of.

use std::net::SocketAddr;

use access::{Actor, OrgRole};
use anyhow::{Context, Result, ensure};
use auth::{RecoveryCode, Token};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use domain::{Clock, SystemClock};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use store::LinkMaker;

use crate::logins::{Browser, of_page, person};
use crate::world::{World, call, json as body_of, ok, send};

const CODES: &str = "/platform/recovery";
const LOGIN: &str = "/platform/login/recovery";

async fn codes(gateway: &Router, key: &str) -> Result<Vec<String>> {
    let (status, made) = call(gateway, "POST", CODES, key, None).await;
    ensure!(status == StatusCode::CREATED, "{status}: {made}");
    Ok(serde_json::from_value(made["codes"].clone())?)
}

async fn shown(gateway: &Router, code: &str, from: [u8; 4]) -> Response<Body> {
    secret(gateway, LOGIN, &json!({ "code": code }), from).await
}

/// Begins a login from an address.
async fn secret(gateway: &Router, path: &str, body: &Value, from: [u8; 4]) -> Response<Body> {
    let mut request = of_page("POST", path, Some(body));
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((from, 40_000))));
    send(gateway, request).await
}

/// Shows a code and returns the code of the refusal.
async fn refused(gateway: &Router, code: &str) -> String {
    let response = shown(gateway, code, [10, 0, 0, 7]).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(!response.headers().contains_key("set-cookie"));
    body_of(response).await["error"]["code"].as_str().expect("a code").to_owned()
}

async fn told(gateway: &Router, key: &str) -> Vec<Value> {
    let alerts = ok(gateway, "GET", "/platform/alert", key, None).await;
    alerts["data"].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_code_logs_its_owner_in_once_and_tells_all() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let bob = person(&world, "bob", OrgRole::Owner).await?;
    let eve = person(&world, "eve", OrgRole::Admin).await?;
    let none = ok(&gateway, "GET", CODES, &ada.key, None).await;
    assert_eq!(none, json!({ "made_at": null, "used": 0, "left": 0 }));
    for method in ["GET", "POST"] {
        let (status, _) = call(&gateway, method, CODES, &eve.key, None).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method}: codes are the owners'");
    }
    let set = codes(&gateway, &ada.key).await?;
    assert_eq!(set.len(), 8);

    let loose = set[0].to_lowercase().replace('-', " ");
    let response = shown(&gateway, &loose, [10, 0, 0, 7]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers()["set-cookie"].to_str()?.starts_with("oc-4096-"));
    let me = body_of(response).await;
    assert_eq!((&me["actor"]["id"], &me["role"]), (&json!("usr_ada"), &json!("owner")));
    let left = ok(&gateway, "GET", CODES, &ada.key, None).await;
    assert_eq!((&left["used"], &left["left"]), (&json!(1), &json!(7)));

    assert_eq!(refused(&gateway, &set[0]).await, "CODE_USED");
    assert_eq!(refused(&gateway, &set[1][1..]).await, "CODE_MISTYPED");
    assert_eq!(refused(&gateway, &RecoveryCode::set()[0].text()).await, "CODE_UNKNOWN");
    // Nobody makes a browser log in from another page.
    let mut foreign = of_page("POST", LOGIN, Some(&json!({ "code": set[1] })));
    foreign.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
    assert_eq!(send(&gateway, foreign).await.status(), StatusCode::FORBIDDEN);

    // Each owner has the alerts, and reads them for themselves. Nobody else has them.
    let alerts = told(&gateway, &bob.key).await;
    let kinds: Vec<_> =
        alerts.iter().map(|alert| alert["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["recovery.used", "recovery.made"]);
    let used = alerts[0]["message"].as_str().context("a message")?;
    assert!(used.contains("as usr_ada") && used.contains("10.0.0.7; 7 are left"), "{used}");
    let read = format!("/platform/alert/{}/read", alerts[0]["id"].as_str().context("an id")?);
    ok(&gateway, "POST", &read, &bob.key, None).await;
    let read_at =
        |alerts: &[Value]| alerts.iter().map(|one| one["read_at"].is_i64()).collect::<Vec<_>>();
    assert_eq!(read_at(&told(&gateway, &bob.key).await), [true, false]);
    assert_eq!(read_at(&told(&gateway, &ada.key).await), [false, false]);
    for other in [&eve.key, &world.key, &world.stranger] {
        assert_eq!(told(&gateway, other).await, Vec::<Value>::new());
        assert_eq!(call(&gateway, "POST", &read, other, None).await.0, StatusCode::NOT_FOUND);
    }

    // A new set takes the place of the old one. Of two browsers with one code, one gets in.
    let newer = codes(&gateway, &ada.key).await?;
    assert_eq!(refused(&gateway, &set[1]).await, "CODE_UNKNOWN");
    let (one, two) = tokio::join!(
        shown(&gateway, &newer[0], [10, 0, 0, 7]),
        shown(&gateway, &newer[0], [10, 0, 0, 7])
    );
    let mut statuses = [one.status().as_u16(), two.status().as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 401]);
    // The codes of somebody who is no owner any more are nothing.
    ok(&gateway, "PATCH", "/platform/user/usr_ada", &bob.key, Some(json!({ "role": "admin" })))
        .await;
    assert_eq!(refused(&gateway, &newer[1]).await, "CODE_NO_OWNER");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_guesses_codes_is_put_off() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let set = codes(&gateway, &ada.key).await?;
    let guesses: Vec<_> = (0..3).flat_map(|_| RecoveryCode::set()).collect();
    for guess in &guesses[..20] {
        let response = shown(&gateway, &guess.text(), [10, 0, 0, 66]).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    // From then on further guesses of it are put off for some seconds. A good code is none: the address may be a proxy's.
    let late = shown(&gateway, &guesses[20].text(), [10, 0, 0, 66]).await;
    assert_eq!(late.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        body_of(late).await["error"]["message"].as_str().is_some_and(|said| said.contains("wait"))
    );
    assert_eq!(shown(&gateway, &set[0], [10, 0, 0, 66]).await.status(), StatusCode::OK);
    // A mistyped one costs no look-up, and does not count.
    for _ in 0..30 {
        let response = shown(&gateway, "ABCDE-FGHJK", [10, 0, 0, 8]).await;
        assert_eq!(body_of(response).await["error"]["code"], "CODE_MISTYPED");
    }
    assert_eq!(shown(&gateway, &set[1], [10, 0, 0, 8]).await.status(), StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_guesses_links_is_put_off() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let made = ok(&gateway, "POST", "/platform/login", &ada.key, None).await;
    let good = made["url"].as_str().and_then(|url| url.split_once('#')).context("a link")?.1;
    let follow = async |token: &str, from| {
        secret(&gateway, "/platform/login/link", &json!({ "token": token }), from).await.status()
    };
    let guess = || {
        let now = SystemClock::new().now_ms();
        Token::link(world.org, ada.id.clone(), LinkMaker::Operator, now).0.text().to_owned()
    };
    for n in 0..20 {
        assert_eq!(follow(&guess(), [10, 0, 0, 66]).await, StatusCode::UNAUTHORIZED, "{n}");
    }
    let repeated = guess();
    assert_eq!(follow(&repeated, [10, 0, 0, 66]).await, StatusCode::TOO_MANY_REQUESTS);
    // Codes and links are of one bound. A good link is no guess, and others get in.
    let code = shown(&gateway, &RecoveryCode::set()[0].text(), [10, 0, 0, 66]).await;
    assert_eq!(code.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(follow(good, [10, 0, 0, 66]).await, StatusCode::OK);
    assert_eq!(follow(&guess(), [10, 0, 0, 7]).await, StatusCode::UNAUTHORIZED);
    // Whoever repeats one that was followed makes nobody look it up each time.
    assert_eq!(follow(good, [10, 0, 0, 7]).await, StatusCode::UNAUTHORIZED);
    assert_eq!(follow(good, [10, 0, 0, 7]).await, StatusCode::TOO_MANY_REQUESTS);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_keeps_the_newest_alerts() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let user = || ada.id.clone();
    for n in 0..store::MAX_ALERTS + 2 {
        let hashes = vec![vec![u8::try_from(n % 256)?; 32]];
        world.store.set_recovery_codes(world.org, user(), hashes, "{}".into(), 1_000 + n).await?;
    }
    let alerts = world.store.alerts(world.org, user()).await?;
    assert_eq!(i64::try_from(alerts.len())?, store::MAX_ALERTS);
    assert_eq!(alerts.last().context("one")?.at_ms, 1_002);
    assert_eq!(alerts[0].by, Actor::User(user()));
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    assert_eq!(browser.status(&gateway, "GET", "/platform/alert").await, 200);
    Ok(())
}
