//! Floods of made-up secrets: they lock nobody out, though they come from the same address.

use std::net::SocketAddr;

use access::OrgRole;
use anyhow::{Context, Result};
use auth::{MadeKey, RecoveryCode, Token};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use domain::{Clock, SystemClock};
use futures::future::join_all;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use store::LinkMaker;

use crate::logins::{Browser, of_page, person};
use crate::world::{World, ok, request, send};

/// The address of a proxy: everybody has it.
const PROXY: [u8; 4] = [10, 0, 0, 1];

async fn by_proxy(gateway: &Router, mut request: Request<Body>) -> StatusCode {
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((PROXY, 40_000))));
    send(gateway, request).await.status()
}

// Finding security-3 H2: twenty unknown keys, and nobody behind the same proxy could sign in or show a new key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_made_up_secrets_locks_nobody_out() -> Result<()> {
    let world = World::new().await?;
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    // The gateway under fire has not seen this yet.
    let quiet = world.gateway();
    let cookie = Browser::by_key(&quiet, &ada.key).await?;
    let link = ok(&quiet, "POST", "/platform/login", &ada.key, None).await;
    let link = link["url"].as_str().and_then(|url| url.split_once('#')).context("a link")?.1;
    let codes = ok(&quiet, "POST", "/platform/recovery", &ada.key, None).await;
    let gateway = world.gateway();

    let made_up = |nth: usize| {
        let actor = access::Actor::User(ada.id.clone());
        let now = SystemClock::new().now_ms();
        match nth % 5 {
            0 => request("GET", "/platform/me", &MadeKey::of(&actor).text, None),
            1 => request("GET", "/platform/me", &auth::generate(), None),
            2 => {
                let token = Token::link(world.org, ada.id.clone(), LinkMaker::Operator, now).0;
                let body = json!({ "token": token.text() });
                of_page("POST", "/platform/login/link", Some(&body))
            }
            3 => {
                // Finding look 8 (H2): a link that is there, with a secret of one's own.
                let (named, _) = link.rsplit_once('.').expect("a token");
                let body = json!({ "token": format!("{named}.{nth:040}") });
                of_page("POST", "/platform/login/link", Some(&body))
            }
            _ => {
                let body = json!({ "code": RecoveryCode::set()[0].text() });
                of_page("POST", "/platform/login/recovery", Some(&body))
            }
        }
    };
    for nth in 0..20 {
        assert_eq!(by_proxy(&gateway, made_up(nth)).await, StatusCode::UNAUTHORIZED, "{nth}");
    }
    // From here on it is a flood: each further one is put off, and each good one gets in at once.
    let flood = join_all((0..200).map(|nth| by_proxy(&gateway, made_up(nth))));
    let page = |path: &str, body: Value| of_page("POST", path, Some(&body));
    let good = async {
        let me = "/platform/me";
        [
            by_proxy(&gateway, cookie.request("GET", me, None)).await,
            by_proxy(&gateway, request("GET", me, &ada.key, None)).await,
            by_proxy(&gateway, request("GET", me, &world.key, None)).await,
            by_proxy(&gateway, page("/platform/login/key", json!({ "key": ada.key }))).await,
            by_proxy(&gateway, page("/platform/login/link", json!({ "token": link }))).await,
            by_proxy(
                &gateway,
                page("/platform/login/recovery", json!({ "code": codes["codes"][0] })),
            )
            .await,
        ]
    };
    let (flood, good) = tokio::join!(flood, good);
    assert_eq!(good, [StatusCode::OK; 6]);
    assert!(flood.iter().all(|status| *status == StatusCode::TOO_MANY_REQUESTS), "{flood:?}");
    Ok(())
}

// A brother of security-3 H2: from many addresses, each below its bound, a flood took all places of look-ups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_many_addresses_locks_nobody_out() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Member).await?;
    let actor = access::Actor::User(ada.id.clone());
    let flood = join_all((0..300_u16).map(|nth| {
        let mut request = request("GET", "/platform/me", &MadeKey::of(&actor).text, None);
        let [high, low] = nth.to_be_bytes();
        let address = SocketAddr::from(([10, 1, high, low], 40_000));
        request.extensions_mut().insert(ConnectInfo(address));
        send(&gateway, request)
    }));
    let good = by_proxy(&gateway, request("GET", "/platform/me", &ada.key, None));
    let (flood, good) = tokio::join!(flood, good);
    assert_eq!(good, StatusCode::OK);
    assert!(flood.iter().all(|answer| answer.status() == StatusCode::UNAUTHORIZED));
    Ok(())
}
