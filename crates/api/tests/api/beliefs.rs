//! Revocation reaches open streams and admitted work, also at a gateway that is cut off from the database.

use std::time::Duration;

use access::OrgRole;
use anyhow::{Context, Result, ensure};
use api::{ApiParts, ApiState, router};
use axum::body::Body;
use futures::StreamExt;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::{Store, StoreOptions};
use testkit::Proxy;
use tokio::time::{Instant, sleep, timeout};

use crate::drain::{at, begin};
use crate::logins::{Browser, person};
use crate::world::{World, call, ok, request, send};

/// Within this a revoked credential serves nothing.
const WITHIN: Duration = Duration::from_secs(5);

/// Returns how long a stream goes on.
async fn ends(response: Response<Body>) -> Result<Duration> {
    ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let (began, mut stream) = (Instant::now(), response.into_body().into_data_stream());
    let end = timeout(Duration::from_secs(30), async { while stream.next().await.is_some() {} });
    end.await.context("the stream went on")?;
    Ok(began.elapsed())
}

async fn make(world: &World, gateway: &axum::Router, key: &str, id: &str) -> Result<()> {
    let new = json!({ "id": id });
    let path = format!("/session?directory={}", world.path());
    let (status, told) = call(gateway, "POST", &path, key, Some(new)).await;
    ensure!(status == StatusCode::OK, "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_and_a_disabled_person_lose_their_streams() -> Result<()> {
    let world = World::new().await?;
    let (gateway, other) = (world.gateway(), world.gateway());
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let bob = person(&world, "bob", OrgRole::Member).await?;
    make(&world, &gateway, &ada.key, "ses_a").await?;
    let follow = "/platform/session/ses_a/log?follow=true";
    let browser = Browser::by_key(&other, &bob.key).await?;
    let open = [
        send(&other, request("GET", follow, &bob.key, None)).await,
        send(&other, request("GET", "/event", &bob.key, None)).await,
        send(&other, browser.request("GET", "/global/event", None)).await,
    ];
    let stays = send(&other, request("GET", "/event", &ada.key, None)).await;
    // At another gateway, which knows of it only from the database.
    let off = json!({ "disabled": true });
    ok(&gateway, "PATCH", "/platform/user/usr_bob", &ada.key, Some(off)).await;
    for stream in open {
        let took = ends(stream).await?;
        ensure!(took < WITHIN, "{took:?}");
    }
    assert_eq!(call(&other, "GET", "/project", &bob.key, None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(browser.status(&other, "GET", "/project").await, 401);
    let mut stays = stays.into_body().into_data_stream();
    ensure!(stays.next().await.is_some(), "others go on");
    // A changed role ends streams too, and the next request is decided by it.
    let on = json!({ "disabled": false, "role": "viewer" });
    ok(&gateway, "PATCH", "/platform/user/usr_bob", &ada.key, Some(on)).await;
    let until = Instant::now() + WITHIN;
    loop {
        let (status, told) = call(&other, "POST", "/project/init", &bob.key, None).await;
        if status != StatusCode::UNAUTHORIZED {
            ensure!(status == StatusCode::FORBIDDEN, "{status} {told}");
            return Ok(());
        }
        // A text that a gateway did not know is refused for a second without a query.
        ensure!(Instant::now() < until, "{told}");
        sleep(Duration::from_millis(200)).await;
    }
}

// Attack 16 of identity: the gateway does not hear of the revocation, and serves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_cut_off_goes_dark_and_comes_back() -> Result<()> {
    let world = World::new().await?;
    let url = world.database_url();
    let host = url.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/')).context("a host")?.0;
    let proxy = Proxy::to(host).await?;
    let store = Store::connect(&StoreOptions::new(proxy.url(&url)))?;
    let state = ApiState::start(ApiParts { store, ..world.parts() });
    let (cut_off, gateway) = (router(state), world.gateway());
    make(&world, &gateway, &world.key, "ses_a").await?;
    let mut turn = {
        let prompt = json!({ "text": "hello" });
        ok(&gateway, "POST", "/platform/session/ses_a/message", &world.key, Some(prompt)).await;
        begin(&world, &at(&world, "ses_a").await?).await?
    };
    let follow = "/platform/session/ses_a/log?follow=true";
    let response = send(&cut_off, request("GET", follow, &world.key, None)).await;
    let mut stream = response.into_body().into_data_stream();
    let mut until = async |text: &str, limit: Duration| {
        let found = timeout(limit, async {
            while let Some(Ok(bytes)) = stream.next().await {
                if String::from_utf8_lossy(&bytes).contains(text) {
                    return true;
                }
            }
            false
        });
        found.await.unwrap_or(false)
    };
    ensure!(until("attempt.started", Duration::from_secs(20)).await);
    turn.say(&world, "seen ");
    ensure!(until("seen ", Duration::from_secs(20)).await, "live text comes by signals");

    proxy.mute(true);
    sleep(WITHIN).await;
    turn.say(&world, "hidden ");
    ensure!(!until("hidden ", Duration::from_secs(1)).await, "a lapsed belief shows nothing");
    let asked = send(&cut_off, request("GET", "/platform/session", &world.key, None));
    let status = timeout(Duration::from_secs(20), asked).await?.status();
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE, "{status}");

    // The database is there again: the same stream goes on, and nothing is lost.
    proxy.mute(false);
    ensure!(until("hidden ", Duration::from_secs(30)).await, "it goes on");
    Ok(())
}

// Finding ops-3: "too many keys, codes and links are being checked" was said while the database was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_shown_a_silent_database_is_named() -> Result<()> {
    let world = World::new().await?;
    let url = world.database_url();
    let host = url.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/')).context("a host")?.0;
    for is_gone in [false, true] {
        let proxy = Proxy::to(host).await?;
        let store = Store::connect(&StoreOptions::new(proxy.url(&url)))?;
        let gateway = router(ApiState::start(ApiParts { store, ..world.parts() }));
        ok(&gateway, "GET", "/platform/me", &world.key, None).await;
        if is_gone {
            proxy.lead_to("127.0.0.1:1");
            proxy.cut_flows();
        } else {
            proxy.mute(true);
        }
        let code = json!({ "code": auth::RecoveryCode::set()[0].text() });
        let shown = (0..40).map(|nth| match nth % 4 {
            0 => request("GET", "/platform/me", &auth::generate(), None),
            1 => request("GET", "/platform/session", &world.stranger, None),
            2 => crate::logins::of_page("POST", "/platform/login/recovery", Some(&code)),
            _ => {
                let key = json!({ "key": auth::generate() });
                crate::logins::of_page("POST", "/platform/login/key", Some(&key))
            }
        });
        let gateway = &gateway;
        let answers = shown.map(|asked| async move {
            let response = send(gateway, asked).await;
            (response.status(), crate::world::json(response).await)
        });
        let answers = timeout(Duration::from_secs(60), futures::future::join_all(answers)).await?;
        for (nth, (status, body)) in answers.into_iter().enumerate() {
            ensure!(status == StatusCode::SERVICE_UNAVAILABLE, "{nth}: {status} {body}");
            let told = body["error"]["message"].as_str().unwrap_or_default();
            ensure!(told.starts_with("the database does not answer"), "{nth}: {told}");
        }
    }
    Ok(())
}

/// Waits until a session's log has an event of this kind.
async fn logged(world: &World, gateway: &axum::Router, session: &str, kind: &str) -> Result<Value> {
    let until = Instant::now() + WITHIN;
    loop {
        let path = format!("/platform/session/{session}/log");
        let log = ok(gateway, "GET", &path, &world.key, None).await;
        let found = log.as_array().into_iter().flatten().find(|event| event["type"] == kind);
        if let Some(found) = found {
            return Ok(found.clone());
        }
        ensure!(Instant::now() < until, "no {kind} in {log}");
        sleep(Duration::from_millis(100)).await;
    }
}

// Attack 17 of identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stolen_key_has_admitted_is_stopped() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Member).await?;
    for (session, key) in [("ses_hers", &ada.key), ("ses_ours", &world.key)] {
        make(&world, &gateway, key, session).await?;
        let path = format!("/platform/session/{session}/message");
        let first = Some(json!({ "text": "work" }));
        ok(&gateway, "POST", &path, key, first).await;
        begin(&world, &at(&world, session).await?).await?;
        let next = Some(json!({ "text": "then", "delivery": "queue" }));
        ok(&gateway, "POST", &path, key, next).await;
    }
    let path = format!("/platform/key/{}?stop_work=true", ada.key_id);
    ok(&gateway, "DELETE", &path, &world.key, None).await;
    logged(&world, &gateway, "ses_hers", "input.cancelled").await?;
    logged(&world, &gateway, "ses_hers", "interrupt.requested").await?;
    let log = ok(&gateway, "GET", "/platform/session/ses_ours/log", &world.key, None).await;
    ensure!(!log.to_string().contains("interrupt.requested"), "others' work goes on: {log}");
    Ok(())
}
