//! Deeds that want a recent login, and the list of one's own logins.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use access::OrgRole;
use anyhow::{Context, Result, ensure};
use api::recent_routes;
use axum::Router;
use axum::extract::ConnectInfo;
use domain::{Clock, SystemClock};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::access::filled;
use crate::logins::{Browser, cookie_of, gateway_ahead, of_page, person};
use crate::world::{World, call, json as body_of, ok, request, send};

const MINUTE: i64 = 60_000;
const LOGINS: &str = "/platform/login";

async fn answer(
    gateway: &Router,
    browser: &Browser,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let response = send(gateway, browser.request(method, path, body.as_ref())).await;
    (response.status(), body_of(response).await)
}

fn is_stale((status, told): &(StatusCode, Value)) -> bool {
    *status == StatusCode::FORBIDDEN && told["error"]["code"] == "SIGN_IN_AGAIN"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_login_gives_no_rights_away() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let bob = person(&world, "bob", OrgRole::Member).await?;
    person(&world, "eve", OrgRole::Member).await?;
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    let members = Browser::by_key(&gateway, &bob.key).await?;
    let key = |scopes: Value| Some(json!({ "name": "ci", "scopes": scopes }));
    let role = |role: &str| Some(json!({ "role": role }));
    let eve = "/platform/user/usr_eve";
    let recents = recent_routes();
    let named: BTreeSet<_> =
        recents.iter().map(|(method, path)| format!("{method} {path}")).collect();
    let expected = [
        "DELETE /platform/sso/{idp}",
        "PATCH /platform/sso/{idp}",
        "POST /platform/login",
        "POST /platform/recovery",
        "POST /platform/sso",
        "POST /platform/sso/{idp}/activate",
        "POST /platform/sso/{idp}/link",
    ];
    assert_eq!(named.iter().map(String::as_str).collect::<Vec<_>>(), expected);

    for after in [0, 14 * MINUTE, 16 * MINUTE] {
        ahead.store(after, Ordering::Release);
        let old = after > 15 * MINUTE;
        for (method, path) in &recents {
            let asked = answer(&gateway, &browser, method.as_str(), &filled(path), None).await;
            assert_eq!(is_stale(&asked), old, "{method} {path} after {after}: {asked:?}");
            // A key is the proof itself.
            let by_key = request(method.as_str(), &filled(path), &ada.key, None);
            let by_key = body_of(send(&gateway, by_key).await).await;
            assert_ne!(by_key["error"]["code"], "SIGN_IN_AGAIN");
        }
        // Keys that can give rights away, and owners.
        for scopes in [json!(["*"]), json!(["administer"]), json!(["read", "key.manage"])] {
            let asked = answer(&gateway, &browser, "POST", "/platform/key", key(scopes)).await;
            assert_eq!(is_stale(&asked), old, "{asked:?}");
        }
        let rotate = format!("/platform/key/{}/rotate", ada.key_id);
        let asked = answer(&gateway, &browser, "POST", &rotate, Some(json!({ "hours": 24 }))).await;
        assert_eq!(is_stale(&asked), old, "{asked:?}");
        let asked = answer(&gateway, &browser, "PATCH", eve, role("owner")).await;
        assert_eq!(is_stale(&asked), old, "{asked:?}");
        if old {
            let asked = answer(&gateway, &browser, "PATCH", eve, role("viewer")).await;
            assert!(is_stale(&asked), "she is an owner: {asked:?}");
        } else {
            ensure!(
                answer(&gateway, &browser, "PATCH", eve, role("admin")).await.0 == StatusCode::OK
            );
        }
        // Daily work wants no recent login.
        for scopes in [json!(["read"]), json!(["read", "prompt"]), json!(["me.manage"])] {
            let asked = answer(&gateway, &browser, "POST", "/platform/key", key(scopes)).await;
            assert_eq!(asked.0, StatusCode::CREATED, "{asked:?}");
        }
        // A member's key with all scopes gives no rights away, but begins a login, which would be recent.
        let asked = answer(&gateway, &members, "POST", "/platform/key", key(json!(["*"]))).await;
        assert_eq!(is_stale(&asked), old, "{asked:?}");
        let daily = key(json!(["read", "prompt", "administer"]));
        let asked = answer(&gateway, &members, "POST", "/platform/key", daily).await;
        assert_eq!(is_stale(&asked), old, "all scopes by other names: {asked:?}");
        // The next round begins with eve as an owner.
        if after == 14 * MINUTE {
            ok(&gateway, "PATCH", eve, &ada.key, role("owner")).await;
        }
    }
    let asked = answer(&gateway, &browser, "POST", "/platform/recovery", None).await;
    let message = asked.1["error"]["message"].as_str().context("a message")?;
    assert!(message.contains("sign in again, then repeat it"), "{message}");

    // Signing in again in the same browser makes it recent. The login before ends after its requests.
    let body = json!({ "key": ada.key });
    let mut sign_in = of_page("POST", "/platform/login/key", Some(&body));
    sign_in.headers_mut().insert("cookie", HeaderValue::try_from(&browser.cookie)?);
    let fresh = cookie_of(&send(&gateway, sign_in).await).context("a cookie")?;
    let fresh = Browser { cookie: fresh };
    assert_eq!(answer(&gateway, &fresh, "POST", "/platform/recovery", None).await.0, 201);
    let (_, list) = answer(&gateway, &fresh, "GET", LOGINS, None).await;
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(browser.status(&gateway, "GET", "/platform/me").await, 200, "under way");
    ahead.fetch_add(31_000, Ordering::AcqRel);
    assert_eq!(browser.status(&gateway, "GET", "/platform/me").await, 401);
    assert_eq!(fresh.status(&gateway, "GET", "/platform/me").await, 200);
    Ok(())
}

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

async fn firefox(gateway: &Router, key: &str) -> Result<Browser> {
    let mut request = of_page("POST", "/platform/login/key", Some(&json!({ "key": key })));
    request.headers_mut().insert("user-agent", HeaderValue::from_static(FIREFOX));
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 7], 40_000))));
    Ok(Browser { cookie: cookie_of(&send(gateway, request).await).context("a cookie")? })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_and_ends_their_own_logins() -> Result<()> {
    let world = World::new().await?;
    let (gateway, elsewhere) = (world.gateway(), world.gateway());
    let ada = person(&world, "ada", OrgRole::Viewer).await?;
    let bob = person(&world, "bob", OrgRole::Owner).await?;
    let here = firefox(&gateway, &ada.key).await?;
    let there = Browser::by_key(&gateway, &ada.key).await?;
    let bobs = Browser::by_key(&gateway, &bob.key).await?;
    let list = async |browser: &Browser| {
        let (status, list) = answer(&gateway, browser, "GET", LOGINS, None).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        list["data"].as_array().expect("a list").clone()
    };
    let of = |list: &[Value], this: bool| {
        list.iter().find(|login| login["this"] == this).expect("it").clone()
    };
    let seen = list(&here).await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    let mine = of(&seen, true);
    assert_eq!(
        (&mine["browser"], &mine["address"], &mine["began_by"]),
        (&json!(FIREFOX), &json!("10.0.0.7"), &json!("key"))
    );
    assert_eq!(of(&list(&there).await, false)["id"], mine["id"]);
    // Its use is noted once a minute.
    let (id, now) = (mine["id"].as_str().context("an id")?.to_owned(), SystemClock::new().now_ms());
    let logins = vec![id.clone()];
    world.store.note_seen(world.org, Vec::new(), logins, Vec::new(), now + MINUTE).await?;
    assert_eq!(of(&list(&here).await, true)["last_seen_at"], now + MINUTE);

    // Nobody ends somebody else's, be they an owner.
    let path = |id: &Value| format!("{LOGINS}/{}", id.as_str().expect("an id"));
    let of_bob = of(&list(&bobs).await, true);
    for (browser, id) in [(&bobs, &mine["id"]), (&here, &of_bob["id"])] {
        let (status, _) = answer(&gateway, browser, "DELETE", &path(id), None).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    let other = of(&seen, false);
    assert_eq!(answer(&gateway, &here, "DELETE", &path(&other["id"]), None).await.0, 204);
    for gateway in [&gateway, &elsewhere] {
        assert_eq!(there.status(gateway, "GET", "/platform/me").await, 401);
    }
    assert_eq!(list(&here).await.len(), 1);

    let (one, two) = (firefox(&gateway, &ada.key).await?, firefox(&gateway, &ada.key).await?);
    let (_, ended) = answer(&gateway, &here, "DELETE", LOGINS, None).await;
    assert_eq!(ended, json!({ "ended": 2 }));
    for gone in [&one, &two] {
        assert_eq!(gone.status(&elsewhere, "GET", "/platform/me").await, 401);
    }
    assert_eq!(here.status(&gateway, "GET", "/platform/me").await, 200);
    assert_eq!(bobs.status(&gateway, "GET", "/platform/me").await, 200);
    // Ending this one takes its cookie away.
    let out = send(&gateway, here.request("DELETE", &path(&mine["id"]), None)).await;
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    assert!(out.headers()["set-cookie"].to_str()?.contains("Max-Age=0"));
    assert_eq!(here.status(&gateway, "GET", "/platform/me").await, 401);

    // Whoever has lost every browser ends them with a key. A service account has none.
    let lost = Browser::by_key(&gateway, &ada.key).await?;
    assert_eq!(ok(&gateway, "DELETE", LOGINS, &ada.key, None).await, json!({ "ended": 1 }));
    assert_eq!(lost.status(&gateway, "GET", "/platform/me").await, 401);
    assert_eq!(ok(&gateway, "GET", LOGINS, &world.key, None).await, json!({ "data": [] }));
    let (status, _) = call(&gateway, "DELETE", &path(&of_bob["id"]), &world.key, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    Ok(())
}
