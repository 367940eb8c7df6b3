use egress::{Egress, Rules};
use futures::future::join_all;
use oidc::{Algorithm, Groups, Issuer, OidcError, Providers, Return, TokenRefused};
use serde_json::json;
use std::sync::Arc;

use crate::world::{World, providers_ahead, visit};

const BASIC: &str = "client_secret_basic";

#[tokio::test]
async fn a_person_signs_in_with_each_algorithm_and_kind_of_client() {
    let world = World::new().await;
    let person = json!({
        "sub": "ada", "name": "Ada Lovelace", "email": "ada@example.com", "email_verified": true,
        "groups": ["eng", "it"],
    });
    world.idp.control(json!({ "person": person })).await;
    for (algorithm, auth) in
        Algorithm::ALL.into_iter().zip([BASIC, "client_secret_post", "none", BASIC])
    {
        let mut connection = world.connection("idp_1", algorithm, auth).await;
        assert_eq!(connection.client_secret.is_some(), auth != "none");
        let done = world.signed_in(&connection).await.expect("signed in");
        assert_eq!(done.algorithm, algorithm);
        assert_eq!(done.person.subject, "ada");
        assert_eq!(done.person.name.as_deref(), Some("Ada Lovelace"));
        assert_eq!(done.person.email.as_deref(), Some("ada@example.com"));
        assert_eq!(done.claims.groups("groups"), Groups::Known(vec!["eng".into(), "it".into()]));
        assert!(done.clock_ms.abs() < 10_000, "{}", done.clock_ms);
        // The pinned algorithm goes on; another one, though the provider offers it, does not.
        connection.algorithm = Some(algorithm);
        world.signed_in(&connection).await.expect("signed in");
        connection.algorithm = Algorithm::ALL.into_iter().find(|other| *other != algorithm);
        let refused = world.signed_in(&connection).await;
        assert!(
            matches!(refused, Err(OidcError::Token(TokenRefused::Algorithm(_)))),
            "{refused:?}"
        );
    }
}

// Attacks 6 and 11, through the whole flow.
#[tokio::test]
async fn a_token_that_the_provider_should_not_send_is_refused() {
    let world = World::new().await;
    let connection = world.connection("idp_1", Algorithm::Rs256, BASIC).await;
    for (twist, words) in [
        ("nonce", "another sign-in"),
        ("audience", "another client"),
        ("issuer", "another issuer"),
        ("future", "check the clocks"),
        ("expired", "check the clocks"),
        ("key", "does not publish"),
        ("forged", "not the provider's"),
        ("hmac", "algorithm"),
        ("none", "algorithm"),
    ] {
        world.idp.control(json!({ "twist": twist })).await;
        let refused = world.signed_in(&connection).await;
        let Err(OidcError::Token(error)) = refused else { panic!("{twist}: {refused:?}") };
        assert!(error.to_string().contains(words), "{twist}: {error}");
        assert_eq!(OidcError::Token(error).code(), "token_refused");
    }
    // Less than a minute of skew is no fault, and is reported.
    world.idp.control(json!({ "twist": "ahead" })).await;
    let clock_ms = world.signed_in(&connection).await.expect("signed in").clock_ms;
    assert!((40_000..60_000).contains(&clock_ms), "{clock_ms}");
    world.idp.control(json!({ "twist": null })).await;
    assert!(world.signed_in(&connection).await.is_ok());
    // Our own clock is wrong: a token that lives 600 s is over.
    let (url, attempt) = world.providers.begin(&connection).await.expect("begun");
    let late = providers_ahead(700_000).finish(&connection, attempt, &visit(&url).await).await;
    assert!(matches!(late, Err(OidcError::Token(TokenRefused::Time(_)))), "{late:?}");
}

// Attack 1 (mix-up) and 7 (replay), as far as the provider and the token protect.
#[tokio::test]
async fn a_code_serves_its_own_attempt_once() {
    let world = World::new().await;
    let a = world.connection("idp_a", Algorithm::EdDsa, BASIC).await;
    let b = world.connection("idp_b", Algorithm::EdDsa, BASIC).await;
    let (attempt, back) = world.visited(&a).await;
    // The same code at another connection: the provider refuses another client and callback.
    let mixed = world.providers.finish(&b, attempt.clone(), &back).await;
    assert!(
        matches!(&mixed, Err(OidcError::Denied { code, .. }) if code == "invalid_grant"),
        "{mixed:?}"
    );
    let (attempt, back) = world.visited(&a).await;
    world.providers.finish(&a, attempt.clone(), &back).await.expect("signed in");
    let replayed = world.providers.finish(&a, attempt, &back).await;
    assert!(
        matches!(&replayed, Err(OidcError::Denied { code, .. }) if code == "invalid_grant"),
        "{replayed:?}"
    );
    // Another browser's verifier and nonce.
    let (_, back) = world.visited(&a).await;
    let (other, _) = world.visited(&a).await;
    assert!(world.providers.finish(&a, other, &back).await.is_err());

    // RFC 9207: the provider announces the parameter.
    for iss in [None, Some("https://evil.example".to_owned())] {
        let (attempt, back) = world.visited(&a).await;
        assert_eq!(back.iss.as_deref(), Some(a.issuer.as_str()));
        let refused = world.providers.finish(&a, attempt, &Return { iss, ..back }).await;
        assert!(matches!(refused, Err(OidcError::OtherIssuer(_))), "{refused:?}");
    }
    let (attempt, back) = world.visited(&a).await;
    let none = Return { code: None, ..back };
    assert!(matches!(world.providers.finish(&a, attempt, &none).await, Err(OidcError::NoCode)));
    let before = world.idp.control(json!({ "refuses": true })).await["/token"].as_u64();
    let denied = world.signed_in(&a).await.expect_err("the person said no");
    assert_eq!(
        denied.to_string(),
        "the identity provider says `access_denied`: the person said no"
    );
    assert_eq!(
        world.idp.control(json!({})).await["/token"].as_u64(),
        before,
        "no token was asked for"
    );
}

// Attack 12, and the bounds on what we ask a provider.
#[tokio::test]
async fn a_provider_is_asked_seldom_and_may_be_down() {
    let world = World::new().await;
    let connection = world.connection("idp_1", Algorithm::Rs256, BASIC).await;
    let discovery = "/.well-known/openid-configuration";
    let asked = async |path: &str| world.idp.control(json!({})).await[path].as_u64().unwrap_or(0);
    assert_eq!(asked(discovery).await, 0, "nothing is asked before the first sign-in");
    world.idp.control(json!({ "down": true })).await;
    let down = join_all((0..20).map(|_| world.providers.begin(&connection))).await;
    for refused in down {
        assert!(matches!(refused, Err(OidcError::Unreachable(_))), "{refused:?}");
    }
    assert_eq!(asked(discovery).await, 1, "one of twenty asks");
    world.idp.control(json!({ "down": false })).await;
    world.pass(3);
    join_all((0..20).map(|_| world.providers.begin(&connection))).await;
    assert_eq!((asked(discovery).await, asked("/jwks").await), (2, 1));
    // It goes down between the start and the end.
    let (attempt, back) = world.visited(&connection).await;
    world.idp.control(json!({ "down": true })).await;
    let down = world.providers.finish(&connection, attempt, &back).await;
    assert!(matches!(down, Err(OidcError::Unreachable(_))), "{down:?}");
    world.idp.control(json!({ "down": false })).await;

    // An unknown key is asked for once a minute, whoever sends it.
    world.idp.control(json!({ "twist": "key" })).await;
    for _ in 0..3 {
        let refused = world.signed_in(&connection).await;
        assert!(matches!(refused, Err(OidcError::Token(TokenRefused::UnknownKey))), "{refused:?}");
    }
    assert_eq!(asked("/jwks").await, 1, "within the minute of discovery");
    world.pass(60);
    assert!(world.signed_in(&connection).await.is_err());
    assert!(world.signed_in(&connection).await.is_err());
    assert_eq!(asked("/jwks").await, 2);
    // The provider publishes its new key: those who wait for it ask once.
    world.idp.control(json!({ "rotated": true })).await;
    world.pass(60);
    for done in join_all((0..3).map(|_| world.signed_in(&connection))).await {
        done.expect("signed in");
    }
    assert_eq!((asked("/jwks").await, asked(discovery).await), (3, 2));
    world.pass(3_600);
    world.providers.begin(&connection).await.expect("begun");
    assert_eq!(asked(discovery).await, 3, "the configuration is an hour old");
}

// Attack 45: the addresses of a connection are an organisation's.
#[tokio::test]
async fn addresses_of_a_provider_are_checked_and_explained() {
    let world = World::new().await;
    let mut connection = world.connection("idp_1", Algorithm::Es256, BASIC).await;
    let egress = Egress::new(&Rules::default().into()).expect("a client");
    let clock = Arc::new(domain::SystemClock::new());
    let strict = Providers::new(Arc::new(egress.for_organisations()), clock);
    let refused = strict.begin(&connection).await.expect_err("refused").to_string();
    assert!(refused.contains("private network"), "{refused}");
    let asked = world.idp.control(json!({})).await;
    assert_eq!(asked.get("/.well-known/openid-configuration"), None, "nothing was sent");

    let done = world.signed_in(&connection).await.expect("signed in");
    let back = "http://127.0.0.1:9/login".parse().expect("an address");
    let url = world.providers.logout(&connection, Some(&done.id_token), &back).await;
    let url = url.expect("an address");
    let of = |name: &str| {
        let found = url.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    };
    assert_eq!(url.path(), "/session/end");
    assert_eq!(of("id_token_hint").as_deref(), Some(done.id_token.expose()));
    assert_eq!(of("post_logout_redirect_uri").as_deref(), Some(back.as_str()));
    assert_eq!(of("client_id").as_ref(), Some(&connection.client_id));

    for (issuer, words) in [("/", "word for word"), ("/nowhere", "404")] {
        let issuer = Issuer::parse(&format!("{}{issuer}", world.idp.url)).expect("an issuer");
        connection.issuer = issuer;
        let error = world.providers.begin(&connection).await.expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

// Finding reports 24: claims of another type ended the sign-in, or took the groups of the user information away. Finding
// reports 25: so did a lifetime as text.
#[tokio::test]
async fn what_nobody_uses_may_be_of_any_type() {
    let world = World::new().await;
    let mut connection = world.connection("idp_1", Algorithm::Es256, BASIC).await;
    connection.groups_claim = Some("realm_access.roles".to_owned());
    let odd = json!({
        "address": "1 Road", "phone_number_verified": "yes", "updated_at": "yesterday",
        "locale": ["en"], "birthdate": 1815, "zoneinfo": { "id": 1 },
    });
    let mut token = odd.clone();
    token["auth_time"] = json!("1790000000");
    let mut me = odd;
    me["realm_access"] = json!({ "roles": ["it"] });
    for expires_in in [json!("300"), json!(300.5), json!(null), json!({ "s": 300 })] {
        let answer =
            json!({ "expires_in": expires_in, "scope": ["openid"], "refresh_expires_in": "0" });
        let change = json!({ "twist": "claims", "claims": token, "answer": answer, "me": me });
        world.idp.control(change).await;
        let done = world.signed_in(&connection).await.expect("signed in");
        let groups = done.claims.groups("realm_access.roles");
        assert_eq!(groups, Groups::Known(vec!["it".into()]), "{expires_in}");
        assert_eq!(done.claims.auth_ms(), Some(1_790_000_000_000));
        assert_eq!(done.claims.shown()["address"], "1 Road");
    }
    // The user information is of the same person, or counts for nothing.
    world.idp.control(json!({ "me": { "sub": "eve", "realm_access": { "roles": ["it"] } } })).await;
    let done = world.signed_in(&connection).await.expect("signed in");
    assert_eq!(done.claims.groups("realm_access.roles"), Groups::Absent);
    assert_eq!(done.person.subject, "ann");
}

// Finding: report 30-b22 (outline/outline#12878): the same claims in signed user information were lost.
#[tokio::test]
async fn signed_user_information_counts_as_json_does() {
    let world = World::new().await;
    let connection = world.connection("idp_1", Algorithm::Es256, BASIC).await;
    let me = json!({ "groups": ["it"], "address": "1 Road" });
    world.idp.control(json!({ "signs": true, "me": me })).await;
    let done = world.signed_in(&connection).await.expect("signed in");
    assert_eq!(done.claims.groups("groups"), Groups::Known(vec!["it".into()]));
    assert_eq!(done.claims.shown()["address"], "1 Road");
    // It is of the same person, or counts for nothing.
    world.idp.control(json!({ "me": { "sub": "eve", "groups": ["it"] } })).await;
    let done = world.signed_in(&connection).await.expect("signed in");
    assert_eq!(done.claims.groups("groups"), Groups::Absent);
}
