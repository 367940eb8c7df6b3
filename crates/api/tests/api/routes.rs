//! Tables over all routes: who may use them, and what another organisation sees.

use access::OrgRole;
use anyhow::Result;
use api::{policies, route_table};
use http::StatusCode;
use serde_json::json;

use crate::world::{World, call, ok, request, send};

/// Returns `path` with its parameters filled in.
fn filled(path: &str, ids: &[(&str, &str)]) -> String {
    ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_wants_a_key_but_those_that_are_open() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ids = [
        ("project", "prj_a"),
        ("session", "ses_a"),
        ("message", "msg_a"),
        ("id", "trn_a"),
        ("key", "plan"),
        ("provider", "acme"),
        ("credential", "crd_a"),
        ("attempt", "con_a"),
        ("ask", "per_a"),
        ("request", "per_a"),
        ("saved", "svp_a"),
        ("user", "usr_a"),
        ("idp", "idp_a"),
        ("api_key", "key_a"),
        ("login", "lgn_a"),
        ("alert", "alr_a"),
    ];
    for (method, path, policy) in policies() {
        let target = filled(path, &ids);
        let response = send(&gateway, request(method.as_str(), &target, "", None)).await;
        if policy.is_ok() {
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
            assert_eq!(response.headers()["www-authenticate"], r#"Basic realm="Secure Area""#);
            let wrong = auth::generate();
            let (status, _) = call(&gateway, method.as_str(), &target, &wrong, None).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} with an unknown key");
        } else {
            assert_ne!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path} is open");
        }
    }
    let (status, body) = call(&gateway, "GET", "/nowhere", "", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_sees_nothing_of_ours_on_any_route() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let project = ok(&gateway, "POST", "/project/init", &world.key, None).await;
    let project = project["id"].as_str().expect("an id").to_owned();
    let sessions = format!("/project/{project}/session");
    let session = ok(&gateway, "POST", &sessions, &world.key, Some(json!({}))).await;
    let session = session["id"].as_str().expect("an id").to_owned();
    let prompt = Some(json!({ "id": "msg_ours", "text": "hello" }));
    let post = format!("/platform/session/{session}/message");
    ok(&gateway, "POST", &post, &world.key, prompt).await;
    let (credential, attempt) = crate::providers::every_kind(&gateway, &world.key).await;
    let idp = json!({ "name": "Example", "issuer": "https://id.example.com", "client_id": "us" });
    let owner = crate::logins::person(&world, "boss", OrgRole::Owner).await?;
    let their_owner =
        crate::logins::person_of(&world, world.theirs, "them", OrgRole::Owner).await?;
    let (_, idp) = call(&gateway, "POST", "/platform/sso", &owner.key, Some(idp)).await;
    let idp = idp["id"].as_str().expect("an id").to_owned();
    let turn = crate::drain::begin(&world, &crate::drain::at(&world, &session).await?).await?;
    let id = turn.turn.to_string();
    let ask = turn.ask(&world, "git push").await?;
    let reply = Some(json!({ "reply": "always" }));
    let (ask, answer) = (ask.as_str(), format!("/platform/ask/{ask}"));
    let (status, body) = call(&gateway, "POST", &answer, &world.key, reply).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    let saved = ok(&gateway, "GET", "/platform/permission", &world.key, None).await;
    let saved = saved[0]["id"].as_str().expect("an id").to_owned();
    crate::logins::Browser::by_key(&gateway, &owner.key).await?;
    let logins = ok(&gateway, "GET", "/platform/login", &owner.key, None).await;
    let login = logins["data"][0]["id"].as_str().expect("an id").to_owned();
    call(&gateway, "POST", "/platform/recovery", &owner.key, None).await;
    let alerts = ok(&gateway, "GET", "/platform/alert", &owner.key, None).await;
    let alert = alerts["data"][0]["id"].as_str().expect("an id").to_owned();
    let keys = ok(&gateway, "GET", "/platform/key", &world.key, None).await;
    let key = keys["data"][0]["id"].as_str().expect("an id").to_owned();
    let ids = [
        ("project", project.as_str()),
        ("session", session.as_str()),
        ("message", "msg_ours"),
        ("id", id.as_str()),
        ("key", "plan"),
        ("provider", "acme"),
        ("credential", credential.as_str()),
        ("attempt", attempt.as_str()),
        ("ask", ask),
        ("request", ask),
        ("saved", saved.as_str()),
        ("user", "svc_first"),
        ("idp", idp.as_str()),
        ("api_key", key.as_str()),
        ("login", login.as_str()),
        ("alert", alert.as_str()),
    ];
    let mut tried = 0;
    for (method, path) in route_table() {
        let own = [
            ("PUT", "/platform/provider/{provider}"),
            ("POST", "/platform/oauth/{provider}"),
            ("PUT", "/auth/{provider}"),
            ("DELETE", "/auth/{provider}"),
        ];
        // Ids of providers are the same for everybody, so a stranger changes only their own settings.
        let target = filled(path, &ids);
        let same = crate::contract::is_the_same_for_all(method.as_str(), path);
        // A sign-in answers the same to everybody.
        let same = same || path.starts_with("/auth/start/") || path.starts_with("/auth/callback/");
        if target == path || same || own.contains(&(method.as_str(), path)) {
            continue;
        }
        let has_body =
            [http::Method::POST, http::Method::PUT, http::Method::PATCH].contains(&method);
        let body = has_body.then(|| match path {
            "/platform/credential/{credential}" => json!({ "label": "theirs" }),
            "/platform/oauth/{provider}/{attempt}/complete" => json!({ "code": "c", "state": "s" }),
            path if path.contains("/permissions/") => json!({ "response": "once" }),
            path if path.ends_with("/question/{request}/reply") => json!({ "answers": [] }),
            path if path.ends_with("/reply") || path.contains("{ask}") => json!({ "reply": "once" }),
            "/session/{session}/init" => {
                json!({ "messageID": "msg_b", "providerID": "p", "modelID": "m" })
            }
            // Stock routes accept all fields, ours only those that they know.
            path if path.starts_with("/session") => {
                json!({
                    "text": "hi", "directory": "/workspace", "title": "x", "delivery": "queue", "command": "init",
                })
            }
            path if path.ends_with("/message") || path.ends_with("/synthetic") => {
                json!({ "text": "hi", "delivery": "queue" })
            }
            path if path.ends_with("/session") => json!({ "directory": "/workspace", "title": "x" }),
            path if path.ends_with("/session/{session}") => json!({ "title": "x" }),
            path if path.ends_with("/inbox/{message}") => json!({ "delivery": "queue" }),
            path if path.ends_with("/move") => json!({ "directory": "/workspace" }),
            _ => json!({}),
        });
        // Only an owner comes as far as a look.
        let key =
            if path.starts_with("/platform/sso") { &their_owner.key } else { &world.stranger };
        let (status, answer) = call(&gateway, method.as_str(), &target, key, body).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {answer}");
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
    let lists = ["/project", "/platform/session", "/session", "/platform/check"];
    for path in lists.into_iter().chain(["/platform/provider", "/platform/credential"]) {
        assert_eq!(ok(&gateway, "GET", path, &world.stranger, None).await, json!([]), "{path}");
    }
    let own = format!("/platform/session/{session}");
    assert_eq!(ok(&gateway, "GET", &own, &world.key, None).await["id"], session.as_str());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_does_only_what_its_scopes_say() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (key, mut row) = auth::generate_key("reader");
    row.scopes = vec!["read".into()];
    world.store.create_key(world.org, row, 0).await?;
    ok(&gateway, "GET", "/project", &key, None).await;
    for (method, path) in
        [("POST", "/project/init"), ("POST", "/session"), ("GET", "/platform/check")]
    {
        let (status, body) = call(&gateway, method, path, &key, None).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
    }
    let (key, mut row) = auth::generate_key("expired");
    row.expires_ms = Some(1);
    world.store.create_key(world.org, row, 0).await?;
    assert_eq!(call(&gateway, "GET", "/project", &key, None).await.0, StatusCode::UNAUTHORIZED);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_comes_in_three_ways_and_a_typo_is_told() -> Result<()> {
    use base64::Engine;
    let world = World::new().await?;
    let gateway = world.gateway();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("opencode:{}", world.key));
    let mut header = request("GET", "/session", "", None);
    header.headers_mut().insert("authorization", format!("Basic {basic}").parse()?);
    assert_eq!(send(&gateway, header).await.status(), StatusCode::OK);
    // Finding security 21: queries end up in logs, so a key in the query only works where a browser cannot send a
    // header.
    let token = basic.replace('+', "%2B").replace('=', "%3D");
    let at = |path: &str| request("GET", &format!("{path}?auth_token={token}"), "", None);
    assert_eq!(send(&gateway, at("/event")).await.status(), StatusCode::OK);
    assert_eq!(send(&gateway, at("/session")).await.status(), StatusCode::UNAUTHORIZED);
    let typo = format!("{}{}", &world.key[..10], world.key[10..].replace(|_| true, "A"));
    let (status, body) = call(&gateway, "GET", "/platform/session", &typo, None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(body["error"]["message"].as_str().expect("a message").contains("mistyped"), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_have_their_dialects_shape_and_the_request_id() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let mut native = request("GET", "/platform/session/ses_none", &world.key, None);
    native.headers_mut().insert("x-request-id", "abc-1".parse()?);
    let response = send(&gateway, native).await;
    assert_eq!(response.headers()["x-request-id"], "abc-1");
    let expected = json!({
        "error": { "code": "NOT_FOUND", "message": "the resource was not found" },
        "request_id": "abc-1",
    });
    assert_eq!(crate::world::json(response).await, expected);
    let mut stock = request("GET", "/session/ses_none", &world.key, None);
    stock.headers_mut().insert("x-request-id", "two words are not taken".parse()?);
    let response = send(&gateway, stock).await;
    let id = response.headers()["x-request-id"].to_str()?.to_owned();
    assert_eq!(id.len(), 32);
    let expected = json!({
        "name": "NotFoundError",
        "data": { "message": "the resource was not found" },
    });
    assert_eq!(crate::world::json(response).await, expected);
    let (status, _) = call(&gateway, "PUT", "/session", &world.key, None).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let (status, _) = call(&gateway, "GET", "/nowhere", &world.key, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, body) =
        call(&gateway, "GET", "/platform/session/nonsense", &world.key, None).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!("INVALID_INPUT"))
    );
    let large = json!({ "text": "x".repeat(1024 * 1024) });
    let (status, body) =
        call(&gateway, "POST", "/platform/session/ses_a/message", &world.key, Some(large)).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("TOO_LARGE"))
    );
    Ok(())
}

// Finding security 14: 401 offered Basic to browsers, which then sent the key with any page's forms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_is_let_in_from_our_own_pages_only() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let ask =
        |key: &str, headers: &[(&'static str, &'static str)], body: Option<serde_json::Value>| {
            let mut request = request("POST", "/session", key, body.as_ref());
            request.headers_mut().remove("content-type");
            for (name, value) in headers {
                request.headers_mut().insert(*name, http::HeaderValue::from_static(value));
            }
            let gateway = gateway.clone();
            async move { send(&gateway, request).await }
        };
    let (json, length) = (("content-type", "application/json"), ("content-length", "2"));
    let body = || Some(json!({}));
    let key = world.key.as_str();
    assert_eq!(ask(key, &[], body()).await.status(), StatusCode::OK, "a tool without a type");
    let foreign = [("sec-fetch-site", "cross-site"), json];
    assert_eq!(ask(key, &foreign, body()).await.status(), StatusCode::FORBIDDEN);
    let form = [("sec-fetch-site", "same-origin"), ("content-type", "text/plain"), length];
    assert_eq!(ask(key, &form, body()).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let own = [("sec-fetch-site", "same-origin"), ("host", "127.0.0.1"), json, length];
    assert_eq!(ask(key, &own, body()).await.status(), StatusCode::OK);
    let refused = ask("", &own, body()).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(!refused.headers().contains_key("www-authenticate"), "a browser would keep the key");
    let tool = ask("", &[], body()).await;
    assert!(tool.headers().contains_key("www-authenticate"), "the released clients want it");
    let rebound = [("sec-fetch-site", "same-origin"), ("host", "evil.example"), json];
    assert_eq!(ask("", &rebound, body()).await.status(), StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(ask(key, &rebound, body()).await.status(), StatusCode::OK, "a valid key decides");
    Ok(())
}
