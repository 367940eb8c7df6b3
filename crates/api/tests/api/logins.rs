//! Logins in browsers: how they begin and end, and who cannot make use of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use access::{Actor, OrgRole, Scopes};
use anyhow::{Context, Result, ensure};
use api::{ApiParts, ApiState, router};
use auth::{MadeKey, Token};
use axum::Router;
use axum::body::Body;
use domain::{Clock, OrgId, SystemClock, TimestampMs, UserId};
use http::{HeaderValue, Request, StatusCode};
use serde_json::{Value, json};
use store::LinkMaker;

use crate::world::{World, call, json as body_of, ok, request, send};

/// A person of the first organisation with a key that has all scopes.
pub(crate) struct Person {
    pub(crate) id: UserId,
    pub(crate) key: String,
    pub(crate) key_id: String,
}

/// Makes a person.
pub(crate) async fn person(world: &World, name: &str, role: OrgRole) -> Result<Person> {
    person_of(world, world.org, name, role).await
}

/// Makes a person of an organisation.
pub(crate) async fn person_of(
    world: &World,
    org: OrgId,
    name: &str,
    role: OrgRole,
) -> Result<Person> {
    let id: UserId = format!("usr_{name}").parse()?;
    let (actor, now) = (Actor::User(id.clone()), SystemClock::new().now_ms());
    world.store.create_principal(org, actor.clone(), role, None, now).await?;
    let made = MadeKey::of(&actor);
    let scopes = vec![Scopes::EVERYTHING.to_owned()];
    let row = made.row(actor, "all".into(), scopes, Some(now + 86_400_000));
    world.store.create_owned_key(org, row, None, now).await?;
    Ok(Person { id, key: made.text, key_id: made.id.to_string() })
}

/// A browser with the cookie of a login.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    pub(crate) cookie: String,
}

/// A request of one of our own pages.
pub(crate) fn of_page(method: &str, path: &str, body: Option<&Value>) -> Request<Body> {
    let mut request = request(method, path, "", body);
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_static("127.0.0.1:4096"));
    headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
    if let Some(body) = body {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("content-length", body.to_string().len().into());
    }
    request
}

impl Browser {
    pub(crate) async fn by_key(gateway: &Router, key: &str) -> Result<Self> {
        Ok(Self::begin(gateway, "/platform/login/key", json!({ "key": key })).await?.0)
    }

    pub(crate) async fn begin(gateway: &Router, path: &str, body: Value) -> Result<(Self, Value)> {
        let response = send(gateway, of_page("POST", path, Some(&body))).await;
        ensure!(response.status() == StatusCode::OK, "{path}: {}", body_of(response).await);
        let cookie = cookie_of(&response).context("a cookie")?;
        Ok((Self { cookie }, body_of(response).await))
    }

    /// Returns a request as our own pages send it.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Request<Body> {
        let mut request = of_page(method, path, body);
        let cookie = HeaderValue::try_from(&self.cookie).expect("visible");
        request.headers_mut().insert("cookie", cookie);
        request
    }

    pub(crate) async fn status(&self, gateway: &Router, method: &str, path: &str) -> u16 {
        send(gateway, self.request(method, path, None)).await.status().as_u16()
    }
}

/// Returns the cookie that an answer sets, as a browser sends it back.
pub(crate) fn cookie_of<B>(response: &http::Response<B>) -> Option<String> {
    let set = response.headers().get("set-cookie")?.to_str().ok()?;
    Some(set.split(';').next()?.to_owned())
}

/// A clock that a test puts forward.
struct Ahead(SystemClock, Arc<AtomicI64>);

impl Clock for Ahead {
    fn now_ms(&self) -> TimestampMs {
        self.0.now_ms() + self.1.load(Ordering::Acquire)
    }

    fn monotonic(&self) -> Duration {
        let ahead = self.1.load(Ordering::Acquire);
        self.0.monotonic() + Duration::from_millis(ahead.unsigned_abs())
    }
}

/// Returns a gateway whose clock goes ahead by so many milliseconds.
pub(crate) fn gateway_ahead(world: &World) -> (Router, Arc<AtomicI64>) {
    let ahead = Arc::new(AtomicI64::new(0));
    let clock = Arc::new(Ahead(SystemClock::new(), ahead.clone()));
    let state = ApiState::start(ApiParts { clock, ..world.parts() });
    (router(state), ahead)
}

const READ: &str = "/platform/session";
const MINUTE: i64 = 60_000;

async fn link(world: &World, user: &UserId, now: i64) -> Result<String> {
    let (token, row) = Token::link(world.org, user.clone(), LinkMaker::Operator, now);
    world.store.create_login_link(world.org, row, now).await?;
    Ok(token.text().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_logs_a_person_in_once_and_they_take_a_name() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let ways = ok(&gateway, "GET", "/platform/auth", "", None).await;
    assert_eq!(
        ways,
        json!({ "key": true, "link": true, "code": true, "sso": [], "version": "0.0.0-test" })
    );

    let now = SystemClock::new().now_ms();
    let token = link(&world, &ada.id, now).await?;
    let body = json!({ "token": token });
    let (browser, me) = Browser::begin(&gateway, "/platform/login/link", body.clone()).await?;
    assert_eq!((&me["first"], &me["role"]), (&json!(true), &json!("owner")));
    assert_eq!(
        me["actor"],
        json!({ "kind": "user", "id": "usr_ada", "name": null, "email": null })
    );
    assert!(me["may"].as_array().is_some_and(|may| may.contains(&json!("sso.manage"))), "{me}");
    assert!(me["login"]["id"].as_str().is_some_and(|id| id.starts_with("lgn_")), "{me}");
    let name = json!({ "name": "  Ada   Lovelace " });
    let named = send(&gateway, browser.request("PATCH", "/platform/me", Some(&name))).await;
    let named = body_of(named).await;
    assert_eq!((&named["actor"]["name"], named.get("first")), (&json!("Ada Lovelace"), None));

    let old = link(&world, &ada.id, now - 2 * 60 * MINUTE).await?;
    for (token, code) in
        [(token.as_str(), "LINK_USED"), (&old, "LINK_EXPIRED"), ("nonsense", "LINK_UNKNOWN")]
    {
        let again = json!({ "token": token });
        let response = send(&gateway, of_page("POST", "/platform/login/link", Some(&again))).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{code}");
        let told = body_of(response).await;
        assert_eq!(told["error"]["code"], code);
    }
    // Whoever has the key of `up` can make another one.
    let made = ok(&gateway, "POST", "/platform/login", &ada.key, None).await;
    let url = made["url"].as_str().context("a URL")?;
    let token = url.strip_prefix("http://127.0.0.1:4096/login#").context("in the fragment")?;
    Browser::begin(&gateway, "/platform/login/link", json!({ "token": token })).await?;
    let (status, told) = call(&gateway, "POST", "/platform/login", &world.key, None).await;
    ensure!(status == StatusCode::CONFLICT, "a service account: {told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_a_person_with_all_scopes_logs_in() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Admin).await?;
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    assert_eq!(browser.status(&gateway, "GET", READ).await, 200);
    let some = json!({ "name": "narrow", "scopes": ["read", "administer"] });
    let narrow = ok(&gateway, "POST", "/platform/key", &ada.key, Some(some)).await;
    let narrow = narrow["key"].as_str().context("a key")?.to_owned();
    for (key, expected) in [(narrow, 403), (world.key.clone(), 403), (auth::generate(), 401)] {
        let body = json!({ "key": key });
        let refused = send(&gateway, of_page("POST", "/platform/login/key", Some(&body))).await;
        assert_eq!(refused.status().as_u16(), expected);
        assert!(cookie_of(&refused).is_none());
    }
    // The login ends with the key that it began with.
    ok(&gateway, "DELETE", &format!("/platform/key/{}", ada.key_id), &ada.key, None).await;
    let other = world.gateway();
    assert_eq!(browser.status(&other, "GET", READ).await, 401);
    Ok(())
}

// Attacks 8, 9, 29 and 30 of identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_page_host_or_cookie_uses_a_login() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    let with = |name: &'static str, value: &str| {
        let mut request = browser.request("GET", READ, None);
        request.headers_mut().insert(name, HeaderValue::try_from(value).expect("visible"));
        request
    };
    let status = async |request| send(&gateway, request).await.status().as_u16();
    assert_eq!(status(with("sec-fetch-site", "cross-site")).await, 403, "another site");
    assert_eq!(status(with("sec-fetch-site", "same-site")).await, 403, "a sibling or another port");
    assert_eq!(status(with("host", "evil.example:4096")).await, 421, "a rebound name");
    let mut form = browser.request("POST", "/platform/session/ses_a/abort", Some(&json!({})));
    form.headers_mut().insert("content-type", HeaderValue::from_static("text/plain"));
    assert_eq!(status(form).await, 415);
    // A listed origin of another web client may send a key, and no login.
    let mut listed = with("sec-fetch-site", "cross-site");
    listed.headers_mut().insert("origin", HeaderValue::from_static("https://code.example.com"));
    assert_eq!(status(listed).await, 403);

    let two = format!("{}; {}", browser.cookie, browser.cookie.replace('a', "b"));
    let tossed = send(&gateway, with("cookie", &two)).await;
    assert_eq!(tossed.status(), StatusCode::UNAUTHORIZED);
    let cleared = tossed.headers()["set-cookie"].to_str()?.to_owned();
    assert!(cleared.contains("Max-Age=0"), "{cleared}");
    assert!(!tossed.headers().contains_key("www-authenticate"), "a browser is asked for nothing");

    // Nobody makes a browser log in as somebody else, and a planted cookie is not taken over.
    let body = json!({ "key": ada.key });
    let mut foreign = of_page("POST", "/platform/login/key", Some(&body));
    foreign.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
    assert_eq!(status(foreign).await, 403);
    let mut planted = of_page("POST", "/platform/login/key", Some(&body));
    planted.headers_mut().insert("cookie", HeaderValue::try_from(&browser.cookie)?);
    let fresh = cookie_of(&send(&gateway, planted).await).context("a cookie")?;
    assert_ne!(fresh, browser.cookie);
    assert!(fresh.starts_with("oc-4096-"), "{fresh}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_is_replaced_and_an_old_copy_ends_the_login() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let first = Browser::by_key(&gateway, &ada.key).await?;
    let response = send(&gateway, first.request("GET", READ, None)).await;
    assert!(cookie_of(&response).is_none(), "it is new");

    ahead.fetch_add(16 * MINUTE, Ordering::AcqRel);
    let response = send(&gateway, first.request("GET", READ, None)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let next = Browser { cookie: cookie_of(&response).context("a new cookie")? };
    assert_ne!(next.cookie, first.cookie);
    // Requests that were under way have the old one still, and get no third.
    let response = send(&gateway, first.request("GET", READ, None)).await;
    assert_eq!((response.status(), cookie_of(&response)), (StatusCode::OK, None));
    assert_eq!(next.status(&gateway, "GET", READ).await, 200);

    ahead.fetch_add(31_000, Ordering::AcqRel);
    assert_eq!(next.status(&gateway, "GET", READ).await, 200);
    assert_eq!(first.status(&gateway, "GET", READ).await, 401, "a copy");
    assert_eq!(next.status(&gateway, "GET", READ).await, 401, "nobody knows who has which");
    Ok(())
}

/// A phone may lose the answer that brings a new cookie: the one that it has is good until it has shown the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_signs_nobody_out() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let first = Browser::by_key(&gateway, &ada.key).await?;
    let mut lost = Vec::new();
    for _ in 0..3 {
        ahead.fetch_add(16 * MINUTE, Ordering::AcqRel);
        let answer = send(&gateway, first.request("GET", READ, None)).await;
        lost.push(Browser { cookie: cookie_of(&answer).context("a new cookie")? });
        ahead.fetch_add(36_000, Ordering::AcqRel);
        let answer = send(&gateway, first.request("GET", READ, None)).await;
        assert_eq!((answer.status(), cookie_of(&answer)), (StatusCode::OK, None), "{lost:?}");
    }
    // The last answer arrives after all.
    let [_, copied, next] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(next.status(&gateway, "GET", READ).await, 200);
    assert_eq!(first.status(&gateway, "GET", READ).await, 200, "requests that are under way");
    ahead.fetch_add(31_000, Ordering::AcqRel);
    assert_eq!(next.status(&gateway, "GET", READ).await, 200);
    // Two who showed the first one were each given another: one of them has a copy.
    assert_eq!(copied.status(&gateway, "GET", READ).await, 401);
    assert_eq!(next.status(&gateway, "GET", READ).await, 401, "nobody knows who has which");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_ends_by_logout_by_disuse_and_at_its_end() -> Result<()> {
    let world = World::new().await?;
    let (gateway, ahead) = gateway_ahead(&world);
    let ada = person(&world, "ada", OrgRole::Owner).await?;
    let browser = Browser::by_key(&gateway, &ada.key).await?;
    let out = send(&gateway, browser.request("POST", "/platform/logout", None)).await;
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    assert!(out.headers()["set-cookie"].to_str()?.contains("Max-Age=0"));
    assert_eq!(browser.status(&gateway, "GET", READ).await, 401);

    let idle = Browser::by_key(&gateway, &ada.key).await?;
    ahead.fetch_add(12 * 60 * MINUTE + 1, Ordering::AcqRel);
    assert_eq!(idle.status(&gateway, "GET", READ).await, 401);
    Ok(())
}
