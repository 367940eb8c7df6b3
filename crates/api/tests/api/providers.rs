//! Providers, credentials and sign-ins.

use anyhow::Result;
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, ok};

const KEY: &str = "sk-acme-0123456789abcdef";
const CLIENT_SECRET: &str = "the-secret-of-the-client";

fn setup() -> Value {
    json!({
        "env": { "ACME_REGION": "eu" },
        "oauth": {
            "clientId": "c1",
            "clientSecret": CLIENT_SECRET,
            "tokenUrl": "http://127.0.0.1:9/token",
            "authorizeUrl": "http://127.0.0.1:9/authorize",
            "redirectUrl": "http://127.0.0.1:9/callback",
            "scopes": ["models"],
        },
        "overrides": { "limits": { "requestsPerMinute": 60 } },
    })
}

/// Sets up a provider, a credential for it and a sign-in, and returns the ids of the latter two.
pub(crate) async fn every_kind(gateway: &Router, key: &str) -> (String, String) {
    ok(gateway, "PUT", "/platform/provider/acme", key, Some(setup())).await;
    let new = json!({ "provider": "acme", "label": "team", "key": KEY });
    let credential = ok(gateway, "POST", "/platform/credential", key, Some(new)).await;
    let begin = Some(json!({ "method": "code", "label": "sign-in" }));
    let begun = ok(gateway, "POST", "/platform/oauth/acme", key, begin).await;
    let id = |value: &Value, name: &str| value[name].as_str().expect("an id").to_owned();
    (id(&credential, "id"), id(&begun, "attempt"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_set_up_and_its_clients_secret_is_never_shown() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let path = "/platform/provider/acme";
    assert_eq!(call(&gateway, "GET", path, key, None).await.0, StatusCode::NOT_FOUND);
    let set = ok(&gateway, "PUT", path, key, Some(setup())).await;
    let mut expected = setup();
    expected["oauth"].as_object_mut().expect("an object").remove("clientSecret");
    expected["provider"] = json!("acme");
    expected["hasClientSecret"] = json!(true);
    expected["updated"] = set["updated"].clone();
    assert_eq!(set, expected);
    assert_eq!(ok(&gateway, "GET", path, key, None).await, expected);
    // A client can write back what it read: the secret stays until it is removed.
    let mut read = expected.clone();
    for name in ["provider", "hasClientSecret", "updated"] {
        read.as_object_mut().expect("an object").remove(name);
    }
    let again = ok(&gateway, "PUT", path, key, Some(read.clone())).await;
    assert_eq!(again["hasClientSecret"], true);
    read["oauth"]["clientSecret"] = Value::Null;
    let without = ok(&gateway, "PUT", path, key, Some(read)).await;
    assert_eq!(without["hasClientSecret"], false);
    let all = json!({ "overrides": { "allow": ["acme/small*"] } });
    ok(&gateway, "PUT", "/platform/provider/*", key, Some(all)).await;
    let list = ok(&gateway, "GET", "/platform/provider", key, None).await;
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");

    for (bad, says) in [
        (json!({ "baseURL": "x" }), "baseURL"),
        (json!({ "overrides": { "limits": { "requestsPerMinute": 0 } } }), "at least 1"),
        (json!({ "overrides": { "models": [] } }), "overrides"),
        (json!({ "oauth": { "clientId": "c1" } }), "tokenUrl"),
        (json!({ "oauth": { "clientId": "c1", "clientSecret": 1 } }), "clientSecret"),
    ] {
        let (status, body) = call(&gateway, "PUT", path, key, Some(bad)).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(message.contains(says), "{body}");
    }
    ok(&gateway, "DELETE", path, key, None).await;
    assert_eq!(call(&gateway, "DELETE", path, key, None).await.0, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_goes_in_and_only_its_last_characters_come_out() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let path = "/platform/credential";
    let new = json!({ "provider": "acme", "owner": "ann", "label": "own", "key": KEY });
    let added = ok(&gateway, "POST", path, key, Some(new.clone())).await;
    let expected = json!({
        "id": added["id"], "provider": "acme", "owner": "ann", "label": "own", "kind": "api-key",
        "hint": "cdef", "active": true, "created": added["created"], "updated": added["updated"],
    });
    assert_eq!(added, expected);
    assert_eq!(ok(&gateway, "GET", path, key, None).await, json!([expected]));
    let (status, body) = call(&gateway, "POST", path, key, Some(new)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");

    let own = format!("{path}/{}", added["id"].as_str().expect("an id"));
    let change = json!({ "active": false, "label": "old", "key": "sk-acme-fedcba9876543210" });
    let changed = ok(&gateway, "PATCH", &own, key, Some(change)).await;
    let seen = ["active", "label", "hint"].map(|name| changed[name].clone());
    assert_eq!(seen, [json!(false), json!("old"), json!("3210")]);
    let aws = json!({
        "accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrXUtnFEMI", "region": "eu-west-1",
    });
    let added = json!({ "provider": "amazon-bedrock", "aws": aws });
    let added = ok(&gateway, "POST", path, key, Some(added)).await;
    assert_eq!(
        (&added["kind"], &added["hint"], &added["label"]),
        (&json!("aws"), &json!("MPLE"), &json!("default"))
    );

    for (bad, says) in [
        (json!({ "provider": "acme" }), "`key`, `aws` or"),
        (
            json!({ "provider": "acme", "serviceAccount": { "type": "authorized_user" } }),
            "service_account",
        ),
        (json!({ "provider": "acme", "key": KEY, "serviceAccount": {} }), "one of"),
        (json!({ "key": KEY }), "`provider`"),
        (json!({ "provider": "a b", "key": KEY }), "provider's id"),
        (json!({ "provider": "acme", "key": "line\nbreak" }), "`key`"),
        (
            json!({ "provider": "acme", "key": KEY, "aws": { "accessKeyId": "a" } }),
            "secretAccessKey",
        ),
        (json!({ "provider": "acme", "secret": KEY }), "secret"),
    ] {
        let (status, body) = call(&gateway, "POST", path, key, Some(bad)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(
            body["error"]["message"].as_str().is_some_and(|text| text.contains(says)),
            "{body}"
        );
        assert!(!body.to_string().contains(KEY), "{body}");
    }
    ok(&gateway, "DELETE", &own, key, None).await;
    assert_eq!(call(&gateway, "DELETE", &own, key, None).await.0, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_is_begun_looked_at_and_completed_only_by_its_own_browser() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let begin = async |method: &str| {
        let body = Some(json!({ "method": method }));
        call(&gateway, "POST", "/platform/oauth/acme", key, body).await
    };
    let (status, body) = begin("code").await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert_eq!(body["error"]["reason"], "provider.sign-in-not-set-up");
    ok(&gateway, "PUT", "/platform/provider/acme", key, Some(setup())).await;
    let (status, begun) = begin("code").await;
    assert_eq!(status, StatusCode::OK, "{begun}");
    let url = begun["url"].as_str().expect("an address");
    assert!(
        url.starts_with("http://127.0.0.1:9/authorize?") && url.contains("code_challenge="),
        "{url}"
    );
    assert!(!begun.to_string().contains(CLIENT_SECRET), "{begun}");
    let (status, body) = begin("device").await;
    assert_eq!(
        (status, &body["error"]["reason"]),
        (StatusCode::CONFLICT, &json!("provider.sign-in-not-set-up"))
    );

    let own = format!("/platform/oauth/acme/{}", begun["attempt"].as_str().expect("an id"));
    assert_eq!(ok(&gateway, "GET", &own, key, None).await, begun);
    let other = own.replace("/acme/", "/other/");
    assert_eq!(call(&gateway, "GET", &other, key, None).await.0, StatusCode::NOT_FOUND);
    let complete = format!("{own}/complete");
    let forged = Some(json!({ "code": "c", "state": "forged" }));
    let (status, body) = call(&gateway, "POST", &complete, key, forged).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    // It is its own browser, but the provider is down: it may try again.
    let state =
        url.split(['?', '&']).find_map(|pair| pair.strip_prefix("state=")).expect("a state");
    let back = Some(json!({ "code": "the-code", "state": state }));
    let (status, body) = call(&gateway, "POST", &complete, key, back).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert_eq!(ok(&gateway, "GET", &own, key, None).await["status"], "pending");
    ok(&gateway, "DELETE", &own, key, None).await;
    assert_eq!(call(&gateway, "GET", &own, key, None).await.0, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_administers_sees_and_changes_them() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (key, mut row) = auth::generate_key("prompter");
    row.scopes = vec!["read".into(), "prompt".into()];
    world.store.create_key(world.org, row, 0).await?;
    for (method, path) in [
        ("GET", "/platform/provider"),
        ("PUT", "/platform/provider/acme"),
        ("GET", "/platform/credential"),
        ("POST", "/platform/credential"),
        ("POST", "/platform/oauth/acme"),
    ] {
        let (status, body) = call(&gateway, method, path, &key, None).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
    }
    Ok(())
}

// Finding security 4: only `overrides.api` was checked; every other member could lead anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_of_settings_leads_into_a_private_network() -> Result<()> {
    let mut world = World::new().await?;
    world.rules = egress::Rules::default();
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let path = "/platform/provider/acme";
    let model =
        |provider: Value| json!({ "overrides": { "models": { "m": { "provider": provider } } } });
    let sentinel = std::net::TcpListener::bind("127.0.0.1:0")?;
    sentinel.set_nonblocking(true)?;
    let port = sentinel.local_addr()?.port().to_string();
    let lines = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.replace("PORT", &port)).collect::<Vec<_>>()
    };
    // Addresses of names are looked at when a request is sent; the egress' own test has that.
    let is_a_name = |url: &str| url.to_lowercase().contains("example") && !url.contains('@');
    let corpus = lines(include_str!("../../../egress/corpus.txt"));
    for url in corpus.iter().filter(|url| !is_a_name(url)) {
        let oauth = |member: &str| {
            let fine = "https://id.example.com/token";
            let mut oauth = json!({ "clientId": "c1", "tokenUrl": fine });
            oauth[member] = json!(url);
            json!({ "oauth": oauth })
        };
        let all = [
            json!({ "overrides": { "api": url } }),
            json!({ "overrides": { "options": { "baseURL": url } } }),
            json!({ "overrides": { "options": { "baseUrl": url } } }),
            model(json!({ "api": url })),
            json!({ "overrides": { "api": "${LLM}" }, "env": { "LLM": url } }),
            json!({ "overrides": { "options": { "baseURL": "${LLM}" } }, "env": { "LLM": url } }),
            json!({ "env": { "ACME_URL": url } }),
            oauth("tokenUrl"),
            oauth("deviceUrl"),
            oauth("authorizeUrl"),
        ];
        for settings in all {
            // A URL with a missing value leads nowhere. The error comes when it is used.
            if url.contains("${") && !settings.to_string().contains("oauth") {
                continue;
            }
            let (status, body) = call(&gateway, "PUT", path, key, Some(settings.clone())).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{settings}: {body}");
        }
    }
    for url in lines(include_str!("../../../egress/public.txt")) {
        let public = json!({ "overrides": { "options": { "baseURL": url } } });
        ok(&gateway, "PUT", path, key, Some(public)).await;
    }
    assert!(sentinel.accept().is_err(), "somebody connected");
    Ok(())
}

// Finding security 6: a stored client secret went to whatever host `tokenUrl` named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_secret_does_not_follow_to_another_host() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let path = "/platform/provider/acme";
    ok(&gateway, "PUT", path, key, Some(setup())).await;
    let mut moved = setup();
    moved["oauth"].as_object_mut().expect("an object").remove("clientSecret");
    let same = moved.clone();
    moved["oauth"]["tokenUrl"] = json!("https://evil.example.com/token");
    let (status, body) = call(&gateway, "PUT", path, key, Some(moved.clone())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains("send `oauth.clientSecret` again"), "{message}");
    // The stored secret stays, and is still used where it was entered for.
    assert_eq!(ok(&gateway, "PUT", path, key, Some(same)).await["hasClientSecret"], true);
    moved["oauth"]["clientSecret"] = json!(CLIENT_SECRET);
    assert_eq!(ok(&gateway, "PUT", path, key, Some(moved)).await["hasClientSecret"], true);
    Ok(())
}

// Finding security 17: headers were shown to whoever may read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_never_shown_and_stay_when_they_are_written_back() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), world.key.as_str());
    let path = "/platform/provider/acme";
    let overrides = json!({ "api": "https://llm.example", "headers": { "x-team": KEY } });
    let set = ok(&gateway, "PUT", path, key, Some(json!({ "overrides": overrides }))).await;
    assert_eq!(set["overrides"]["headers"]["x-team"], "[redacted]");
    assert_eq!(ok(&gateway, "GET", path, key, None).await, set);
    let back = json!({ "overrides": set["overrides"] });
    assert_eq!(ok(&gateway, "PUT", path, key, Some(back)).await["overrides"], set["overrides"]);
    let row = world.store.provider_settings(world.org).await?.pop().expect("a row");
    assert!(row.sealed.is_some() && !row.settings.contains(KEY), "{row:?}");
    for path in [path, "/platform/provider", "/platform/model", "/config/providers", "/provider"] {
        let shown = ok(&gateway, "GET", path, key, None).await.to_string();
        assert!(!shown.contains(KEY), "{path}: {shown}");
    }
    for (headers, says) in [
        (json!({ "x-other": "[redacted]" }), "`overrides/headers/x-other` is hidden"),
        (json!({ "x-team": 1 }), "overrides"),
    ] {
        let bad = json!({ "overrides": { "api": "https://llm.example", "headers": headers } });
        let (status, body) = call(&gateway, "PUT", path, key, Some(bad)).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(status == StatusCode::BAD_REQUEST && message.contains(says), "{body}");
    }
    Ok(())
}
