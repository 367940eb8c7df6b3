//! Sign-ins against npm's `oidc-provider`, an independent implementation.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use credentials::{
    ClientSecret, Credentials, CredentialsError, NewSignInRequest, NextStep, SignInMethod,
    SignInProgress, SignInState,
};
use domain::SignInId;
use futures::future::join_all;
use llm_client::Secret;
use llm_protocol::ErrorReason;
use sqlx::Connection;

use crate::browser::Browser;
use crate::server::Server;
use crate::world::{World, settings};

fn request(method: SignInMethod) -> NewSignInRequest {
    let (owner, label) = (String::new(), "team".to_owned());
    NewSignInRequest { provider: "acme".into(), method, owner, label, redirect_url: None }
}

fn id(progress: &SignInProgress) -> SignInId {
    progress.id.parse().expect("an id")
}

/// Starts a sign-in by code and returns when the browser comes back.
async fn sent(world: &World, process: &Credentials) -> (SignInProgress, String, String) {
    let begun = process.begin_sign_in(world.org, request(SignInMethod::Code)).await.expect("begun");
    let SignInState::Pending(NextStep::Open { url }) = &begun.state else { panic!("{begun:?}") };
    let (code, state) = Browser::new().sign_in(url).await;
    (begun, code, state)
}

/// Returns the id of the credential that a sign-in by code makes.
async fn signed_in(world: &World, process: &Credentials) -> String {
    let (begun, code, state) = sent(world, process).await;
    let done = process
        .complete_sign_in(world.org, id(&begun), Secret::new(&code), &state)
        .await
        .expect("done");
    let SignInState::Complete(credential) = done.state else { panic!("{done:?}") };
    credential
}

async fn set(world: &World, process: &Credentials, url: &str, client: &str) {
    let secret = match client {
        "public" => ClientSecret::Remove,
        client => ClientSecret::Set(Secret::new(&format!("the-secret-of-{client}"))),
    };
    let set = process.set_provider(world.org, "acme", &settings(url, client), &secret).await;
    assert_eq!(set.expect("set").has_client_secret, client != "public");
}

#[tokio::test]
async fn a_browser_signs_in_by_code_with_pkce_whatever_the_kind_of_client() {
    let (world, server) = (World::new().await, Server::start().await);
    for client in ["basic", "post", "public"] {
        let process = world.process();
        set(&world, &process, &server.url, client).await;
        let (begun, code, state) = sent(&world, &process).await;
        // The state of another browser.
        let code = Secret::new(&code);
        let foreign = process.complete_sign_in(world.org, id(&begun), code.clone(), "forged").await;
        assert!(matches!(foreign, Err(CredentialsError::Invalid(_))), "{foreign:?}");
        // Any gateway can complete it.
        let other = world.process();
        let done = other.complete_sign_in(world.org, id(&begun), code.clone(), &state).await;
        let done = done.expect("done");
        assert!(matches!(done.state, SignInState::Complete(_)), "{done:?}");
        let again = process.complete_sign_in(world.org, id(&begun), code, &state).await;
        assert!(matches!(again, Err(CredentialsError::Ended(_))), "{again:?}");
        let token = world.source(&process).await.token().await.expect("a token");
        assert_eq!(server.user_of(token.expose()).await.as_deref(), Some("ann"), "{client}");
    }
    let rows = world.process().list(world.org).await.expect("a list");
    assert_eq!(rows.len(), 1, "the same label, three times: {rows:?}");
    assert_eq!((rows[0].version, rows[0].hint.as_str()), (3, ""));

    // A code that the provider does not know ends the sign-in with the provider's message.
    let process = world.process();
    let (begun, _, state) = sent(&world, &process).await;
    let code = Secret::new("no-code-of-the-provider");
    let refused = process.complete_sign_in(world.org, id(&begun), code, &state).await;
    let Err(CredentialsError::SignIn(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("invalid_grant"), "{why}");
    let after = process.sign_in(world.org, id(&begun)).await.expect("there");
    assert_eq!(after.state, SignInState::Failed(why));
}

#[tokio::test]
async fn a_person_signs_in_on_another_device() {
    let (world, server) = (World::new().await, Server::start().await);
    let process = world.process();
    set(&world, &process, &server.url, "public").await;
    let begin = process.begin_sign_in(world.org, request(SignInMethod::Device));
    let begun = begin.await.expect("begun");
    let SignInState::Pending(next) = &begun.state else { panic!("{begun:?}") };
    let NextStep::Type { user_code, complete_url, interval_ms, .. } = next else {
        panic!("{next:?}")
    };
    assert_eq!((user_code.len(), *interval_ms), (9, 5_000));
    let look = async || process.sign_in(world.org, id(&begun)).await.expect("there");
    assert_eq!(look().await, begun, "the provider says: not yet");
    assert_eq!(look().await, begun);
    let asked = "urn:ietf:params:oauth:grant-type:device_code";
    assert_eq!(server.get("/asked").await[asked], 1, "not sooner than the provider allows");

    let page = Browser::new().confirm(complete_url.as_deref().expect("an address")).await;
    assert!(page.contains("Sign-in Success"), "{page}");
    // Let its interval pass.
    let now = Duration::ZERO;
    world.store.defer_sign_in(world.org, begun.id.clone(), now, None).await.expect("deferred");
    let done = look().await;
    assert!(matches!(done.state, SignInState::Complete(_)), "{done:?}");
    let token = world.source(&world.process()).await.token().await.expect("a token");
    assert_eq!(server.user_of(token.expose()).await.as_deref(), Some("ann"));

    // The person does not finish in time.
    let begin = process.begin_sign_in(world.org, request(SignInMethod::Device));
    let begun = begin.await.expect("begun");
    world.pass(Duration::from_secs(61));
    let late = process.sign_in(world.org, id(&begun)).await.expect("there");
    assert_eq!(late.state, SignInState::Expired);
    process.remove_sign_in(world.org, id(&begun)).await.expect("removed");
    let gone = process.sign_in(world.org, id(&begun)).await;
    assert!(matches!(gone, Err(CredentialsError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn many_turns_of_two_processes_refresh_once_and_the_rotated_token_serves_the_next() {
    let (world, server) = (World::new().await, Server::start().await);
    let processes = [world.process(), world.process()];
    set(&world, &processes[0], &server.url, "basic").await;
    signed_in(&world, &processes[0]).await;
    let mut before = world.source(&processes[0]).await.token().await.expect("a token");
    for round in 1..=3 {
        world.pass(Duration::from_secs(545)); // of 600 s; a token with less than 60 s left is renewed
        let turns = (0..16).map(|n| {
            let (world, process) = (&world, &processes[n % 2]);
            async move { world.source(process).await.token().await.expect("a token") }
        });
        let tokens = join_all(turns).await;
        assert!(tokens.iter().all(|token| *token == tokens[0]), "round {round}");
        assert_ne!(tokens[0], before);
        assert_eq!(server.refreshes().await, round);
        assert_eq!(server.user_of(tokens[0].expose()).await.as_deref(), Some("ann"));
        before = tokens[0].clone();
    }
    // The provider's API refuses it before its end.
    let source = world.source(&processes[1]).await;
    source.refused(&before);
    let after = source.token().await.expect("another");
    assert_ne!(after, before);
    source.refused(&before); // late, from another turn
    assert_eq!(source.token().await.expect("the same"), after);
    assert_eq!(server.refreshes().await, 4);
}

#[tokio::test]
async fn a_grant_that_is_over_asks_for_a_new_sign_in_once_and_that_helps() {
    let (world, server) = (World::new().await, Server::start().await);
    let process = world.process();
    set(&world, &process, &server.url, "basic").await;
    let credential = signed_in(&world, &process).await;
    server.get("/revoke").await;
    world.pass(Duration::from_secs(700));
    let source = world.source(&process).await;
    for _ in 0..3 {
        let error = source.token().await.expect_err("over");
        assert_eq!(error.reason, ErrorReason::Authentication);
        assert!(error.provider_message.contains("sign in again"), "{error}");
    }
    assert_eq!(server.refreshes().await, 1, "nobody asks again");
    let other = world.source(&world.process()).await.token().await.expect_err("over for all");
    assert_eq!(other.reason, ErrorReason::Authentication);
    assert_eq!(server.refreshes().await, 1);
    let rows = process.list(world.org).await.expect("a list");
    assert!(rows[0].fault.as_deref().is_some_and(|fault| fault.contains("invalid_grant")));

    assert_eq!(signed_in(&world, &process).await, credential, "the same credential");
    let token = world.source(&process).await.token().await.expect("a token");
    assert_eq!(server.user_of(token.expose()).await.as_deref(), Some("ann"));
    assert_eq!(process.list(world.org).await.expect("a list")[0].fault, None);
}

/// Captures the log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_is_in_a_log_an_error_a_debug_text_or_a_row() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (world, server) = (World::new().await, Server::start().await);
    let process = world.process();
    let mut shown = Vec::new();
    set(&world, &process, &server.url, "basic").await;
    let (begun, code, state) = sent(&world, &process).await;
    let done = process.complete_sign_in(world.org, id(&begun), Secret::new(&code), &state).await;
    shown.push(format!("{done:?}"));
    let source = world.source(&process).await;
    let first = source.token().await.expect("a token");
    world.pass(Duration::from_secs(560));
    let second = source.token().await.expect("another");
    shown.push(format!("{source:?} {first:?} {second:?} {process:?}"));
    shown.push(format!("{:?}", process.auth(world.org, None, "acme").await));
    shown.push(format!("{:?}", process.providers(world.org).await));
    server.get("/revoke").await;
    world.pass(Duration::from_secs(700));
    let error = source.token().await.expect_err("over");
    shown.push(format!("{error} {error:?}"));
    shown.push(format!("{:?}", process.list(world.org).await));
    let again = process.complete_sign_in(world.org, id(&begun), Secret::new(&code), &state).await;
    shown.push(format!("{again:?}"));

    let issued = server.get("/issued").await;
    let issued: Vec<String> = serde_json::from_value(issued).expect("tokens");
    assert_eq!(issued.len(), 4, "two of each: {issued:?}");
    let master = world.keys.split_once(':').expect("two parts").1.to_owned();
    let secrets = [vec!["the-secret-of-basic".to_owned(), code, master], issued].concat();
    let mut root =
        sqlx::PgConnection::connect(&world.database.superuser_url()).await.expect("root");
    for table in ["credential", "oauth_attempt", "provider_setting", "organisation_secret"] {
        let sql = format!("SELECT coalesce(string_agg(t::text, ' '), '') FROM {table} t");
        let rows: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut root).await.expect("rows");
        assert!(!rows.is_empty(), "{table}");
        shown.push(rows);
    }
    let log = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("UTF-8");
    assert!(log.contains("refreshed a sign-in") && log.contains("a sign-in is over"), "no log");
    shown.push(log);
    for secret in &secrets {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        for text in &shown {
            let found = text.find(secret.as_str()).or_else(|| text.find(&hex));
            let at = found.map(|at| text.get(at.saturating_sub(200)..at).unwrap_or_default());
            assert_eq!(at, None, "a secret is shown");
        }
    }
}
