//! Sign-in at an identity provider, through the router and npm's `oidc-provider`: what people see, and the attacks of the
//! design by number.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use access::OrgRole;
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use domain::{Clock, SystemClock};
use http::{HeaderValue, Request, StatusCode};
use reqwest::Url;
use serde_json::{Value, json};

use crate::idp::Idp;
use crate::logins::{Browser, Person, gateway_ahead, person};
use crate::visit::visit;
use crate::world::{World, call, ok, request, send};

const LIST: &str = "/platform/sso";

struct Sso {
    world: World,
    gateway: Router,
    idp: Idp,
    owner: Person,
}

/// A browser that visits: it keeps cookies, and says that it navigates.
#[derive(Default)]
struct Visitor {
    cookies: BTreeMap<String, String>,
}

impl Visitor {
    /// Visits a path of ours, as a link or redirect of another site makes a browser do.
    async fn visit(&mut self, gateway: &Router, path: &str) -> http::Response<Body> {
        let mut request = request("GET", path, "", None);
        for (name, value) in [
            ("host", "127.0.0.1:4096"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        self.send(gateway, request).await
    }

    async fn send(&mut self, gateway: &Router, mut request: Request<Body>) -> http::Response<Body> {
        let sent: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !sent.is_empty() {
            let sent = HeaderValue::try_from(sent.join("; ")).expect("visible");
            request.headers_mut().insert("cookie", sent);
        }
        let response = send(gateway, request).await;
        for set in response.headers().get_all("set-cookie") {
            let pair = set.to_str().expect("ASCII").split(';').next().expect("a pair");
            let (name, value) = pair.split_once('=').expect("a name and a value");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        response
    }

    /// Returns the cookie of a login, if it has one.
    fn login(&self) -> Option<Browser> {
        let found = self.cookies.iter().find(|(name, _)| !name.ends_with("-sso"))?;
        Some(Browser { cookie: format!("{}={}", found.0, found.1) })
    }

    async fn me(&self, gateway: &Router) -> Value {
        let login = self.login().expect("a login");
        let response = send(gateway, login.request("GET", "/platform/me", None)).await;
        assert_eq!(response.status(), StatusCode::OK);
        crate::world::json(response).await
    }
}

fn location(response: &http::Response<Body>) -> String {
    assert_eq!(response.status(), StatusCode::FOUND);
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(response.headers()["referrer-policy"], "no-referrer");
    response.headers()["location"].to_str().expect("ASCII").to_owned()
}

fn path_of(url: &Url) -> String {
    assert_eq!(url.origin().ascii_serialization(), "http://127.0.0.1:4096");
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

impl Sso {
    async fn new() -> Result<Self> {
        let world = World::new().await?;
        let owner = person(&world, "owner", OrgRole::Owner).await?;
        Ok(Self { gateway: world.gateway(), idp: Idp::start().await, owner, world })
    }

    async fn person(&self, claims: Value) {
        self.idp.control(json!({ "person": claims, "twist": null, "down": false })).await;
    }

    /// Adds a connection and registers its client at the provider.
    async fn draft(&self, name: &str, rules: Value) -> Result<String> {
        let mut body = json!({ "name": name, "issuer": self.idp.url, "client_id": "later" });
        body.as_object_mut()
            .context("an object")?
            .extend(rules.as_object().cloned().unwrap_or_default());
        let (status, made) = call(&self.gateway, "POST", LIST, &self.owner.key, Some(body)).await;
        ensure!(status == StatusCode::CREATED && made["state"] == "draft", "{status}: {made}");
        let redirect = made["redirect_url"].as_str().context("an address")?;
        let (client_id, secret) = self.idp.register(redirect, "RS256", "client_secret_basic").await;
        let change = json!({ "client_id": client_id, "client_secret": secret });
        let id = made["id"].as_str().context("an id")?.to_owned();
        let changed = self.admin("PATCH", &id, "", Some(change)).await;
        ensure!(
            changed["has_client_secret"] == true
                && !changed.to_string().contains(&secret.unwrap_or_default())
        );
        Ok(id)
    }

    async fn active(&self, name: &str, rules: Value) -> Result<String> {
        let id = self.draft(name, rules).await?;
        self.person(json!({ "sub": "tester" })).await;
        let page = self.tested(&id).await?;
        ensure!(page.contains("Test succeeded"), "{page}");
        let active = self.admin("POST", &id, "/activate", None).await;
        ensure!(active["state"] == "active" && active["algorithm"] == "RS256", "{active}");
        Ok(id)
    }

    async fn admin(&self, method: &str, id: &str, end: &str, body: Option<Value>) -> Value {
        ok(&self.gateway, method, &format!("{LIST}/{id}{end}"), &self.owner.key, body).await
    }

    /// Makes a test and returns the page at its end.
    async fn tested(&self, id: &str) -> Result<String> {
        let ticket = self.admin("POST", id, "/test", None).await;
        let url: Url = ticket["url"].as_str().context("an address")?.parse()?;
        let mut visitor = Visitor::default();
        let to = location(&visitor.visit(&self.gateway, &path_of(&url)).await).parse()?;
        let response = visitor.visit(&self.gateway, &path_of(&visit(&to).await)).await;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
        assert!(visitor.login().is_none(), "nobody is logged in");
        // The ticket is used up.
        let again = location(&Visitor::default().visit(&self.gateway, &path_of(&url)).await);
        assert_eq!(again, "/login?error=start_again");
        let page = axum::body::to_bytes(response.into_body(), 1 << 20).await?;
        Ok(String::from_utf8(page.to_vec())?)
    }

    /// Begins a sign-in and visits the provider. Returns the path that the browser comes back to.
    async fn sent(&self, visitor: &mut Visitor, id: &str, query: &str) -> Result<String> {
        let begun = visitor.visit(&self.gateway, &format!("/auth/start/{id}{query}")).await;
        Ok(path_of(&visit(&location(&begun).parse()?).await))
    }

    /// Signs in with a new browser.
    async fn signed_in(&self, id: &str) -> Result<(Visitor, String)> {
        let mut visitor = Visitor::default();
        let back = self.sent(&mut visitor, id, "").await?;
        let to = location(&visitor.visit(&self.gateway, &back).await);
        Ok((visitor, to))
    }

    async fn tokens(&self) -> u64 {
        self.idp.control(json!({})).await["/token"].as_u64().unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_join_by_a_connection_with_the_role_of_their_groups() -> Result<()> {
    let sso = Sso::new().await?;
    let gateway = &sso.gateway;
    let rules = json!({ "groups": { "it": "admin", "eng": "member" }, "scopes": ["email", "profile", "groups"] });
    let id = sso.draft("Example", rules).await?;
    // A draft signs nobody in, is not offered, and is not activated untested.
    let start = format!("/auth/start/{id}");
    let visit_start = async || location(&Visitor::default().visit(gateway, &start).await);
    assert_eq!(visit_start().await, "/login?error=unknown_provider");
    let (status, told) =
        call(gateway, "POST", &format!("{LIST}/{id}/activate"), &sso.owner.key, None).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    let offered = async || {
        ok(gateway, "GET", "/platform/auth?organization=none", "", None).await["sso"].clone()
    };
    assert_eq!(offered().await, json!([]));

    let ada =
        json!({ "sub": "ada", "name": "Ada", "email": "ada@example.com", "groups": ["it", "x"] });
    sso.person(ada.clone()).await;
    let page = sso.tested(&id).await?;
    for part in [
        "<dd>ada</dd>",
        "ada@example.com",
        "RS256",
        "would join as admin: the group <code>it</code>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let report = sso.admin("GET", &id, "", None).await["report"].clone();
    assert_eq!(
        (&report["is_good"], &report["claims"]["groups"]),
        (&json!(true), &json!(["it", "x"]))
    );
    let people = ok(gateway, "GET", "/platform/user", &sso.owner.key, None).await;
    assert_eq!(
        people["data"].as_array().map(Vec::len),
        Some(1),
        "a test makes nobody join: {people}"
    );
    sso.admin("POST", &id, "/activate", None).await;
    let me = ok(gateway, "GET", "/platform/me", &sso.owner.key, None).await;
    let org = me["organisation"]["id"].as_str().context("an id")?;
    let ways = format!("/platform/auth?organization={org}");
    let ways = ok(gateway, "GET", &ways, "", None).await;
    assert_eq!(ways["sso"], json!([{ "id": id, "name": "Example", "start": start }]));
    assert_eq!(offered().await, json!([]), "of an organisation that nobody knows");

    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &id, "?return=%2Fo%2Forg%2Fsessions").await?;
    assert_eq!(location(&visitor.visit(gateway, &back).await), "/o/org/sessions");
    assert!(visitor.cookies.keys().all(|name| !name.ends_with("-sso")), "{:?}", visitor.cookies);
    let me = visitor.me(gateway).await;
    assert_eq!((&me["role"], &me["actor"]["name"]), (&json!("admin"), &json!("Ada")));
    assert_eq!(me["actor"]["email"], "ada@example.com");

    // Finding reports 26: the provider says that there are too many groups to tell, so the last known role stays.
    let overage = json!({ "_claim_names": { "groups": "src1" } });
    sso.idp
        .control(json!({ "person": { "sub": "ada" }, "twist": "claims", "claims": overage }))
        .await;
    let kept = sso.signed_in(&id).await?.0.me(gateway).await;
    assert_eq!((&kept["role"], &kept["actor"]["id"]), (&json!("admin"), &me["actor"]["id"]));
    sso.idp.control(json!({ "twist": null })).await;
    // Attack 5: at the next sign-in the claim has vanished.
    sso.person(json!({ "sub": "ada" })).await;
    let again = sso.signed_in(&id).await?.0.me(gateway).await;
    assert_eq!((&again["role"], &again["actor"]["id"]), (&json!("viewer"), &me["actor"]["id"]));
    // Attacks 2 and 4: the same address, another subject.
    sso.person(
        json!({ "sub": "eve", "email": "ada@example.com", "email_verified": true, "groups": [] }),
    )
    .await;
    let eve = sso.signed_in(&id).await?.0.me(gateway).await;
    assert_ne!(eve["actor"]["id"], me["actor"]["id"]);
    assert_eq!(eve["role"], "viewer");

    // Five browsers of one new person at once: one person joins.
    sso.person(json!({ "sub": "new", "groups": ["eng"] })).await;
    let many = futures::future::join_all((0..5).map(|_| sso.signed_in(&id))).await;
    let mut ids = Vec::new();
    for done in many {
        ids.push(done?.0.me(gateway).await["actor"]["id"].clone());
    }
    assert!(ids.iter().all(|one| *one == ids[0]), "{ids:?}");

    // Whoever is disabled does not come back by the provider.
    let path = format!("/platform/user/{}", ids[0].as_str().context("an id")?);
    ok(gateway, "PATCH", &path, &sso.owner.key, Some(json!({ "disabled": true }))).await;
    assert_eq!(sso.signed_in(&id).await?.1, "/login?error=disabled");

    // All owners were told of the activation, and nobody is told again of one that is active.
    let second = person(&sso.world, "second", OrgRole::Owner).await?;
    sso.admin("POST", &id, "/activate", None).await;
    let told =
        async |key: &str| ok(gateway, "GET", "/platform/alert", key, None).await["data"].clone();
    let alerts = told(&sso.owner.key).await;
    assert_eq!(alerts.as_array().map(Vec::len), Some(1), "{alerts}");
    let message = alerts[0]["message"].as_str().context("a message")?;
    assert!(message.contains("at Example") && message.contains(&sso.idp.url), "{message}");
    assert_eq!(told(&second.key).await, json!([]), "no owner then");

    // Whoever signs in again proves anew who they are; a session at the provider is no recent login.
    let begun = Visitor::default().visit(gateway, &format!("/auth/start/{id}?anew=true")).await;
    assert!(location(&begun).contains("prompt=login"));
    assert!(!location(&Visitor::default().visit(gateway, &start).await).contains("prompt="));
    let link_of = async |visitor: &Visitor| {
        let login = visitor.login().expect("a login");
        let link = login.request("POST", &format!("{LIST}/{id}/link"), Some(&json!({})));
        let response = send(gateway, link).await;
        (response.status(), crate::world::json(response).await)
    };
    sso.person(json!({ "sub": "late" })).await;
    sso.idp.control(json!({ "twist": "earlier" })).await;
    let (stale, _) = sso.signed_in(&id).await?;
    let (status, said) = link_of(&stale).await;
    assert_eq!((status, &said["error"]["code"]), (StatusCode::FORBIDDEN, &json!("SIGN_IN_AGAIN")));
    sso.person(json!({ "sub": "late" })).await;
    // The same browser signs in again: one login stays.
    let mut again = stale;
    let back = sso.sent(&mut again, &id, "?anew=true").await?;
    assert_eq!(location(&again.visit(gateway, &back).await), "/");
    assert_eq!(link_of(&again).await.0, StatusCode::OK);
    let list = again.login().context("a login")?.request("GET", "/platform/login", None);
    let list = crate::world::json(send(gateway, list).await).await;
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["data"][0]["began_by"], "provider");

    // An owner links their account in their own browser, and stays an owner whatever their groups.
    let browser = Browser::by_key(gateway, &sso.owner.key).await?;
    let link = browser.request(
        "POST",
        &format!("{LIST}/{id}/link"),
        Some(&json!({ "return": "/o/x/me" })),
    );
    let mut owners = Visitor::default();
    let begun = owners.send(gateway, link).await;
    assert_eq!(begun.status(), StatusCode::OK);
    let url = crate::world::json(begun).await["url"].as_str().context("an address")?.parse()?;
    sso.person(json!({ "sub": "boss", "groups": ["eng"] })).await;
    let back = path_of(&visit(&url).await);
    assert_eq!(location(&owners.visit(gateway, &back).await), "/o/x/me");
    let (boss, _) = sso.signed_in(&id).await?;
    let boss = boss.me(gateway).await;
    assert_eq!(
        (&boss["role"], &boss["actor"]["id"]),
        (&json!("owner"), &json!(sso.owner.id.as_str()))
    );
    let (status, _) =
        call(gateway, "POST", &format!("{LIST}/{id}/link"), &sso.owner.key, None).await;
    assert_eq!(status, StatusCode::CONFLICT, "a key is in no browser");

    // The end of a login is also one at the provider; the end of a connection ends its logins.
    sso.person(ada).await;
    let (ada, _) = sso.signed_in(&id).await?;
    let login = ada.login().context("a login")?;
    let (other, _) = sso.signed_in(&id).await?;
    let out = send(gateway, login.request("POST", "/platform/logout", None)).await;
    assert_eq!(out.status(), StatusCode::OK);
    let next = crate::world::json(out).await["next"].as_str().context("an address")?.to_owned();
    assert!(
        next.starts_with(&format!("{}/session/end?", sso.idp.url))
            && next.contains("id_token_hint="),
        "{next}"
    );
    assert_eq!(login.status(gateway, "GET", "/platform/me").await, 401);
    ok(gateway, "DELETE", &format!("{LIST}/{id}"), &sso.owner.key, None).await;
    let fresh = sso.world.gateway(); // believes nothing yet
    assert_eq!(other.login().context("a login")?.status(&fresh, "GET", "/platform/me").await, 401);
    assert_eq!(visit_start().await, "/login?error=unknown_provider");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_on_a_sign_in_end_at_the_login_page() -> Result<()> {
    let sso = Sso::new().await?;
    let gateway = &sso.gateway;
    let a = sso.active("A", json!({})).await?;
    let b = sso.active("B", json!({ "default_role": "admin" })).await?;
    sso.person(json!({ "sub": "ada" })).await;
    let again = "/login?error=start_again";

    // 7: a state and a code that come back twice, and one that is too late.
    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &a, "").await?;
    let cookies = visitor.cookies.clone();
    assert_eq!(location(&visitor.visit(gateway, &back).await), "/");
    let before = sso.tokens().await;
    visitor.cookies = cookies;
    assert_eq!(location(&visitor.visit(gateway, &back).await), again);
    let (late, ahead) = gateway_ahead(&sso.world);
    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &a, "").await?;
    ahead.store(10 * 60 * 1000, std::sync::atomic::Ordering::Release);
    assert_eq!(location(&visitor.visit(&late, &back).await), again);

    // 1: a code of A at the callback of B, and B's state with A's code.
    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &a, "").await?;
    assert_eq!(location(&visitor.visit(gateway, &back.replace(&a, &b)).await), again);

    // 8: login CSRF. Another browser, one without the cookie, and one with a second, planted cookie.
    let of_eve = sso.sent(&mut Visitor::default(), &a, "").await?;
    assert_eq!(location(&Visitor::default().visit(gateway, &of_eve).await), again);
    let mut victim = Visitor::default();
    sso.sent(&mut victim, &a, "").await?;
    assert_eq!(location(&victim.visit(gateway, &of_eve).await), again);
    assert!(victim.login().is_none());
    let mut tossed = Visitor::default();
    let back = sso.sent(&mut tossed, &a, "").await?;
    let (name, value) = tossed.cookies.pop_first().context("a cookie")?;
    tossed.cookies.insert(name.clone(), format!("planted; {name}={value}"));
    assert_eq!(location(&tossed.visit(gateway, &back).await), again);
    assert_eq!(sso.tokens().await, before, "no token was asked for");

    // 1: the answer names another issuer; 6 and 11: tokens that the provider should not send.
    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &a, "").await?;
    let (path, _) = back.split_once("&iss=").context("an issuer")?;
    let forged = format!("{path}&iss=https%3A%2F%2Fevil.example");
    assert_eq!(location(&visitor.visit(gateway, &forged).await), again);
    for twist in ["nonce", "hmac", "none", "key", "audience", "issuer", "expired", "future"] {
        sso.idp.control(json!({ "twist": twist })).await;
        let (visitor, to) = sso.signed_in(&a).await?;
        assert_eq!(to, "/login?error=token_refused", "{twist}");
        assert!(visitor.login().is_none());
        if ["nonce", "hmac"].contains(&twist) {
            let page = sso.tested(&a).await?;
            assert!(page.contains("Test failed"), "the test shows it: {page}");
        }
    }
    sso.person(json!({ "sub": "ada" })).await;

    // 10: where a sign-in returns to, by parameter and by host.
    for evil in [
        "//evil.example",
        "%2F%5Cevil.example",
        "https:%2F%2Fevil.example",
        "%2Fplatform%2Fme",
        "%2Fauth%2Fstart",
    ] {
        let mut visitor = Visitor::default();
        let back = sso.sent(&mut visitor, &a, &format!("?return={evil}")).await?;
        assert_eq!(location(&visitor.visit(gateway, &back).await), "/", "{evil}");
    }
    for (host, status) in [("evil.example", 421), ("localhost:4096", 302)] {
        let mut start = request("GET", &format!("/auth/start/{a}"), "", None);
        start.headers_mut().insert("host", HeaderValue::from_static(host));
        start.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("none"));
        let response = send(gateway, start).await;
        assert_eq!(response.status(), status, "{host}");
        if status == 302 {
            let to: Url = location(&response).parse()?;
            let redirect = to
                .query_pairs()
                .find(|(name, _)| name == "redirect_uri")
                .context("one")?
                .1
                .into_owned();
            assert_eq!(redirect, format!("http://127.0.0.1:4096/auth/callback/{a}"));
        }
    }
    // The wall lets browsers navigate to these two addresses, and to no other.
    let response = Visitor::default().visit(gateway, "/platform/auth").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);

    // 12: the provider is down at the end, and at the start; the logins that there are go on.
    let (known, _) = sso.signed_in(&a).await?;
    let mut visitor = Visitor::default();
    let back = sso.sent(&mut visitor, &a, "").await?;
    sso.idp.control(json!({ "down": true })).await;
    assert_eq!(location(&visitor.visit(gateway, &back).await), "/login?error=provider_down");
    let fresh = sso.world.gateway();
    let start = format!("/auth/start/{a}");
    assert_eq!(
        location(&Visitor::default().visit(&fresh, &start).await),
        "/login?error=provider_down"
    );
    assert_eq!(known.me(&fresh).await["role"], "viewer");

    // 3, and what a connection may not be.
    let admin = person(&sso.world, "admin", OrgRole::Admin).await?;
    let made = json!({ "name": "Evil", "issuer": sso.idp.url, "client_id": "x" });
    let (status, _) = call(gateway, "POST", LIST, &admin.key, Some(made)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for (name, value, words) in [
        (
            "issuer",
            json!("https://login.microsoftonline.com/common/v2.0"),
            "every Microsoft tenant",
        ),
        ("issuer", json!("https://accounts.google.com"), "e-mail domains"),
        ("issuer", json!("ftp://x"), "no issuer"),
        ("default_role", json!("owner"), "an owner is made by an owner"),
        ("groups", json!({ "it": "owner" }), "an owner is made by an owner"),
        ("domains", json!(["example"]), "no e-mail domain"),
        ("client_id", json!(" "), "client_id"),
    ] {
        let mut body = json!({ "name": "C", "issuer": sso.idp.url, "client_id": "x" });
        body[name] = value;
        let (status, told) = call(gateway, "POST", LIST, &sso.owner.key, Some(body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {told}");
        assert!(told.to_string().contains(words), "{name}: {told}");
    }
    let taken = json!({ "name": "A", "issuer": sso.idp.url, "client_id": "x" });
    assert_eq!(
        call(gateway, "POST", LIST, &sso.owner.key, Some(taken)).await.0,
        StatusCode::CONFLICT
    );
    let client = Some(json!({ "client_id": "another" }));
    let (status, told) =
        call(gateway, "PATCH", &format!("{LIST}/{a}"), &sso.owner.key, client).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    // A new secret of an active connection counts at once, and nobody has to test it first.
    let changed = sso.admin("PATCH", &a, "", Some(json!({ "client_secret": "wrong" }))).await;
    assert_eq!(changed["state"], "active");
    sso.person(json!({ "sub": "ada" })).await;
    assert_eq!(sso.signed_in(&a).await?.1, "/login?error=provider_denied");
    Ok(())
}

// Finding security-3 M2: each start wrote a row, the oldest of which was forgotten: a flood ended the sign-ins of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_is_carried_by_its_browser_alone() -> Result<()> {
    let sso = Sso::new().await?;
    let id = sso.active("Example", json!({})).await?;
    sso.person(json!({ "sub": "ann", "name": "Ann", "email": "ann@ours.example" })).await;
    let mut ann = Visitor::default();
    let answer = sso.sent(&mut ann, &id, "").await?;
    let cookie = ann.cookies.iter().find(|(name, _)| name.ends_with("-sso"));
    let (name, value) = cookie.map(|(name, value)| (name.clone(), value.clone())).context("one")?;
    // No row has it, so nobody's starts can push it out.
    let state = Url::parse(&format!("http://127.0.0.1:4096{answer}"))?;
    let state = state.query_pairs().find(|(name, _)| name == "state").context("a state")?.1;
    let (world, idp) = (&sso.world, id.parse()?);
    let hashes = [auth::hash(&state).to_vec(), auth::hash(&value).to_vec()];
    let [of_state, of_browser] = hashes;
    let now = SystemClock::new().now_ms();
    let row = world.store.take_login_attempt(world.org, idp, of_state, of_browser, now).await?;
    assert_eq!(row, None);

    // A changed cookie, that of another connection, and one that is too old begin again.
    let changed = format!("{}A{}", &value[..value.len() / 2], &value[value.len() / 2 + 1..]);
    let other = sso.active("Other", json!({})).await?;
    let mut bob = Visitor::default();
    sso.sent(&mut bob, &other, "").await?;
    let of_other = bob.cookies.into_values().next().context("a cookie")?;
    for wrong in [changed, of_other, value.replacen("1.", "1.9", 1)] {
        let mut thief = Visitor { cookies: [(name.clone(), wrong)].into() };
        let end = thief.visit(&sso.gateway, &answer).await;
        assert_eq!(location(&end), "/login?error=start_again");
    }
    let (late, ahead) = gateway_ahead(world);
    ahead.store(11 * 60_000, Ordering::Release);
    let mut slow = Visitor { cookies: [(name.clone(), value.clone())].into() };
    assert_eq!(location(&slow.visit(&late, &answer).await), "/login?error=start_again");

    // It ends once, also when two requests bring it back together.
    let tokens = sso.tokens().await;
    let mut twin = Visitor { cookies: ann.cookies.clone() };
    let (one, two) =
        tokio::join!(ann.visit(&sso.gateway, &answer), twin.visit(&sso.gateway, &answer));
    let mut ends = [location(&one), location(&two)];
    ends.sort_unstable();
    assert_eq!(ends, ["/", "/login?error=start_again"]);
    assert_eq!(sso.tokens().await, tokens + 1, "the provider was asked once");
    Ok(())
}

// Finding: report 30-d5 (auth0/express-openid-connect#43): the second tab's attempt replaced that of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_of_one_browser_both_end_signed_in() -> Result<()> {
    let sso = Sso::new().await?;
    let id = sso.active("Example", json!({})).await?;
    sso.person(json!({ "sub": "ann", "name": "Ann", "email": "ann@ours.example" })).await;
    let mut tabs = Visitor::default();
    let first = sso.sent(&mut tabs, &id, "?return=%2Fo%2Ffirst").await?;
    let second = sso.sent(&mut tabs, &id, "?return=%2Fo%2Fsecond").await?;
    // Another browser ends neither.
    let end = Visitor::default().visit(&sso.gateway, &first).await;
    assert_eq!(location(&end), "/login?error=start_again");
    assert_eq!(location(&tabs.visit(&sso.gateway, &first).await), "/o/first");
    assert_eq!(location(&tabs.visit(&sso.gateway, &second).await), "/o/second");
    assert!(tabs.cookies.keys().all(|name| !name.ends_with("-sso")), "{:?}", tabs.cookies);

    // During an upgrade a browser has the one cookie of the build before.
    let mut upgraded = Visitor::default();
    let answer = sso.sent(&mut upgraded, &id, "").await?;
    let (name, value) = upgraded.cookies.pop_first().context("a cookie")?;
    let (site, _) = name.trim_end_matches("-sso").rsplit_once('-').context("a state's name")?;
    upgraded.cookies.insert(format!("{site}-sso"), value);
    assert_eq!(location(&upgraded.visit(&sso.gateway, &answer).await), "/");
    assert!(upgraded.cookies.keys().all(|name| !name.ends_with("-sso")), "{:?}", upgraded.cookies);
    Ok(())
}
