//! Service accounts, against a token endpoint that verifies their signatures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use axum::extract::State;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use credentials::{
    Credentials, CredentialsError, CredentialsParts, MasterKeys, Material, NewSecret, SecretChange,
    ServiceAccount,
};
use egress::{Egress, Rules};
use futures::future::join_all;
use http::StatusCode;
use llm_client::Auth;
use llm_protocol::ErrorReason;
use serde_json::{Value, json};
use store::{Store, StoreOptions};

use crate::world::World;

/// A stand-in for Google's endpoint.
#[derive(Clone)]
struct Endpoint {
    public: Arc<Vec<u8>>,
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Starts the endpoint and returns it with the key file of the account that it knows.
    async fn start() -> (Self, Value) {
        let pair = KeyPair::generate(KeySize::Rsa2048).expect("a key");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/token", listener.local_addr().expect("an address"));
        let public = Arc::new(pair.public_key().as_ref().to_vec());
        let endpoint = Self { public, url: url.clone(), asked: Arc::default() };
        let app = Router::new().fallback(answer).with_state(endpoint.clone());
        let serving = async move { axum::serve(listener, app).await };
        #[expect(clippy::disallowed_methods, reason = "a server of this test, which ends with it")]
        tokio::spawn(serving);
        let der = pair.as_der().expect("its encoding");
        let encoded = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> = (0..encoded.len())
            .step_by(64)
            .map(|at| &encoded[at..encoded.len().min(at + 64)])
            .collect();
        let begin = "-----BEGIN PRIVATE KEY-----";
        let file = json!({
            "type": "service_account",
            "project_id": "rockets",
            "private_key_id": "0123456789abcdef",
            "private_key": format!("{begin}\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")),
            "client_email": "turns@rockets.example",
            "token_uri": url,
            "universe_domain": "example",
        });
        (endpoint, file)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns the claims of an assertion, if the account signed it.
    fn claims(&self, assertion: &str) -> Option<Value> {
        let (signed, signature) = assertion.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT", "kid": "0123456789abcdef" }));
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.public.as_slice());
        key.verify(signed.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }
}

async fn answer(State(endpoint): State<Endpoint>, body: String) -> (StatusCode, Json<Value>) {
    let number = endpoint.asked.fetch_add(1, Ordering::SeqCst) + 1;
    let form: HashMap<String, String> =
        url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let Some(claims) = endpoint.claims(&form["assertion"]) else {
        let words = format!("Invalid JWT Signature: {}", form["assertion"]);
        let error = json!({ "error": "invalid_grant", "error_description": words });
        return (StatusCode::BAD_REQUEST, Json(error));
    };
    let issued = claims["iat"].as_i64().expect("a time");
    let expected = json!({
        "iss": "turns@rockets.example",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "aud": endpoint.url,
        "iat": issued,
        "exp": issued + 3_600,
    });
    assert_eq!(claims, expected);
    let token = format!("access-token-{number}");
    let answer = json!({ "access_token": token, "expires_in": 3_599, "token_type": "Bearer" });
    (StatusCode::OK, Json(answer))
}

fn material(file: &Value) -> Material {
    Material::ServiceAccount(Box::new(ServiceAccount::read(file).expect("an account")))
}

fn new(file: &Value) -> NewSecret {
    let (owner, provider, label) = (String::new(), "acme".to_owned(), "team".to_owned());
    NewSecret { owner, provider, label, material: material(file) }
}

#[tokio::test]
async fn a_service_accounts_signature_gets_a_token_that_all_turns_of_a_process_share() {
    let (world, (endpoint, file)) = (World::new().await, Endpoint::start().await);
    let process = world.process();
    let row = process.add(world.org, new(&file)).await.expect("kept");
    assert_eq!((row.kind.as_str(), row.hint.as_str()), ("api-key", "cdef"));
    let found = process.auth(world.org, None, "acme").await.expect("an answer");
    let found = found.expect("a credential");
    assert_eq!(found.env["GOOGLE_VERTEX_PROJECT"], "rockets");
    let turns = (0..8).map(|_| async {
        let source = world.source(&process).await;
        source.token().await.expect("a token").expose().to_owned()
    });
    assert_eq!(join_all(turns).await, vec!["access-token-1"; 8]);
    let source = world.source(&process).await;
    let first = source.token().await.expect("the same");
    assert_eq!((first.expose(), endpoint.asked()), ("access-token-1", 1));

    // A minute before the end, and after a refusal, there is another token. A late refusal of the previous
    // one changes nothing.
    world.pass(Duration::from_secs(3_545));
    let second = source.token().await.expect("another");
    assert_eq!(second.expose(), "access-token-2");
    source.refused(&second);
    assert_eq!(source.token().await.expect("another").expose(), "access-token-3");
    source.refused(&first);
    assert_eq!(world.source(&process).await.token().await.expect("it").expose(), "access-token-3");
    assert_eq!(endpoint.asked(), 3);
    let shown = format!("{source:?} {found:?} {row:?} {:?}", material(&file));
    let key = file["private_key"].as_str().expect("a key");
    assert!(!shown.contains(&key[40..80]) && !shown.contains("access-token"), "{shown}");

    // Another account in its place has its own tokens.
    let (other, file) = Endpoint::start().await;
    let change = SecretChange { material: Some(material(&file)), ..SecretChange::default() };
    process.change(world.org, row.id.parse().expect("an id"), change).await.expect("changed");
    assert_eq!(world.source(&process).await.token().await.expect("it").expose(), "access-token-1");
    assert_eq!((endpoint.asked(), other.asked()), (3, 1));
    let removed = process.remove(world.org, row.id.parse().expect("an id")).await;
    removed.expect("removed");
    assert!(process.auth(world.org, None, "acme").await.expect("an answer").is_none());
}

#[tokio::test]
async fn a_service_account_that_is_refused_says_so_without_its_assertion() {
    let world = World::new().await;
    let ((known, _), (_, mut file)) = (Endpoint::start().await, Endpoint::start().await);
    file["token_uri"] = json!(known.url);
    let process = world.process();
    process.add(world.org, new(&file)).await.expect("kept");
    let error = world.source(&process).await.token().await.expect_err("refused");
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert!(error.provider_message.contains("Invalid JWT Signature: [redacted]"), "{error}");
    file["token_uri"] = json!("http://127.0.0.1:9/token");
    process.add(world.org, NewSecret { label: "gone".into(), ..new(&file) }).await.expect("kept");
    let error = world.source(&process).await.token().await.expect_err("nobody is there");
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_service_account_that_cannot_be_one_is_refused_by_name_and_sends_nobody_inside() {
    let (world, (_, file)) = (World::new().await, Endpoint::start().await);
    for (member, value, says) in [
        ("type", json!("authorized_user"), "`service_account`"),
        ("client_email", json!(null), "`client_email`"),
        ("token_uri", json!(7), "`token_uri`"),
        ("private_key", json!("-----BEGIN PRIVATE KEY-----\nAAAA"), "`private_key`"),
    ] {
        let mut bad = file.clone();
        bad[member] = value;
        let Err(CredentialsError::Invalid(why)) = ServiceAccount::read(&bad) else {
            panic!("{member} is taken")
        };
        assert!(why.contains(says), "{why}");
    }
    let store = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
    let many = Credentials::new(CredentialsParts {
        store,
        keys: Some(MasterKeys::parse(&world.keys).expect("keys")),
        egress: Egress::new(&Rules::default().into()).expect("a client"),
        catalog: None,
        clock: Arc::new(domain::SystemClock::new()),
    });
    let refused = many.add(world.org, new(&file)).await;
    let Err(CredentialsError::Invalid(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("`token_uri`") && why.contains("private network"), "{why}");
    let none = many.auth(world.org, None, "acme").await.expect("an answer").map(|found| found.auth);
    assert!(!matches!(none, Some(Auth::Source(_))));
}
