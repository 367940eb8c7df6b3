//! A server that answers like some providers: errors with the status 200, a second exchange, failures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use credentials::{
    ClientSecret, Credentials, Material, NewSecret, NewSignInRequest, NextStep, ProviderSettings,
    SignInMethod, SignInState, Tokens,
};
use http::StatusCode;
use llm_client::Secret;
use llm_protocol::{Delivery, ErrorReason};
use serde_json::{Value, json};

use crate::world::World;

/// Prepared answers in order, for any request, and the requests so far.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn answer(&self, status: u16, body: Value) {
        self.answers.lock().expect("not poisoned").push_back((status, body));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("not poisoned"))
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or("-").to_owned()
    };
    let asked = format!("{} {}", request.uri().path(), header("authorization"));
    script.asked.lock().expect("not poisoned").push(asked);
    let next = script.answers.lock().expect("not poisoned").pop_front();
    let (status, body) = next.unwrap_or((599, json!("nothing more was expected")));
    (StatusCode::from_u16(status).expect("a status"), Json(body)).into_response()
}

/// Starts the scripted server and sets up a provider, with a second exchange if `exchanges`.
async fn start(world: &World, process: &Credentials, exchanges: bool) -> Script {
    let script = Script::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let app = Router::new().fallback(answer).with_state(script.clone());
    let serving = async move { axum::serve(listener, app).await };
    #[expect(clippy::disallowed_methods, reason = "a server of this test, which ends with it")]
    tokio::spawn(serving);
    let mut settings = json!({ "oauth": {
        "clientId": "c1",
        "tokenUrl": format!("{url}/token"),
        "deviceUrl": format!("{url}/device"),
    } });
    if exchanges {
        let exchange = json!({ "url": format!("{url}/session"), "scheme": "token" });
        settings["oauth"]["exchange"] = exchange;
    }
    let settings: ProviderSettings = serde_json::from_value(settings).expect("settings");
    let set = process.set_provider(world.org, "acme", &settings, &ClientSecret::Keep).await;
    set.expect("set");
    script
}

#[tokio::test]
async fn github_says_not_yet_with_the_status_200_and_a_session_token_comes_of_the_exchange() {
    let world = World::new().await;
    let process = world.process();
    let script = start(&world, &process, true).await;
    script.answer(
        200,
        json!({
            "device_code": "the-device-code", "user_code": "AB-CD", "expires_in": 900, "interval": 7,
            "verification_uri": "https://git.example/device",
        }),
    );
    let request = NewSignInRequest {
        provider: "acme".into(),
        method: SignInMethod::Device,
        owner: "ann".into(),
        label: "mine".into(),
        redirect_url: None,
    };
    let begun = process.begin_sign_in(world.org, request).await.expect("begun");
    let look = async || {
        let now = Duration::ZERO;
        world.store.defer_sign_in(world.org, begun.id.clone(), now, None).await.expect("its time");
        let looked = process.sign_in(world.org, begun.id.parse().expect("an id")).await;
        looked.expect("there").state
    };
    let interval = |state: &SignInState| {
        let SignInState::Pending(NextStep::Type { interval_ms, .. }) = state else {
            panic!("{state:?}")
        };
        *interval_ms
    };
    script.answer(200, json!({ "error": "authorization_pending" }));
    assert_eq!(interval(&look().await), 7_000);
    script.answer(200, json!({ "error": "slow_down", "interval": 12 }));
    assert_eq!(interval(&look().await), 12_000);
    script.answer(502, json!({}));
    assert!(interval(&look().await) >= 12_000, "a server that fails is asked later");
    // The provider answers, and then its exchange.
    script.answer(200, json!({ "access_token": "gho_1", "token_type": "bearer", "scope": "a,b" }));
    script.answer(200, json!({ "token": "session-1", "expires_at": 1_795_336_000 + 1_800 }));
    let done = look().await;
    assert!(matches!(done, SignInState::Complete(_)), "{done:?}");
    let session = script.asked().pop();
    assert_eq!(session.as_deref(), Some("/session token gho_1"));

    let found = process.auth(world.org, Some("ann"), "acme").await.expect("an answer");
    let found = found.expect("a credential");
    assert_eq!(found.owner, "ann");
    let llm_client::Auth::Source(source) = found.auth else { panic!("no tokens") };
    assert_eq!(source.token().await.expect("a token").expose(), "session-1");
    // The session ends, but the access token does not.
    world.pass(Duration::from_secs(1_790));
    script.answer(200, json!({ "token": "session-2", "expires_in": 1_800 }));
    assert_eq!(source.token().await.expect("a token").expose(), "session-2");
    assert_eq!(script.asked(), ["/session token gho_1"]);
    // Now the access token ends, and no refresh token exists.
    world.pass(Duration::from_secs(1_790));
    script.answer(401, json!({ "message": "Bad credentials gho_1" }));
    let error = source.token().await.expect_err("over");
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert!(error.provider_message.contains("sign in again"), "{error}");
}

/// Stores tokens that last for 100 seconds.
async fn with_tokens(world: &World, process: &Credentials) {
    let tokens = Tokens {
        access: Secret::new("access-1"),
        expires_ms: Some(1_795_336_000_000 + 100_000),
        refresh: Some(Secret::new("refresh-1")),
        session: None,
    };
    let new = NewSecret {
        owner: String::new(),
        provider: "acme".into(),
        label: "team".into(),
        material: Material::OAuth(tokens),
    };
    process.add(world.org, new).await.expect("kept");
}

#[tokio::test]
async fn a_provider_that_fails_costs_no_grant_and_a_token_that_still_lasts_is_used() {
    let world = World::new().await;
    let process = world.process();
    let script = start(&world, &process, false).await;
    with_tokens(&world, &process).await;
    let source = world.source(&process).await;
    world.pass(Duration::from_secs(50));
    script.answer(503, json!({}));
    assert_eq!(source.token().await.expect("the old one").expose(), "access-1");
    world.pass(Duration::from_secs(60));
    script.answer(503, json!({}));
    let error = source.token().await.expect_err("it has ended");
    assert_eq!(error.reason, ErrorReason::Transport { delivery: Delivery::NotSent });
    assert!(error.is_retryable(), "{error}");
    // A misconfigured client does not end the grant either.
    script.answer(401, json!({ "error": "invalid_client", "error_description": "not refresh-1" }));
    let error = source.token().await.expect_err("refused");
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert!(error.provider_message.contains("invalid_client"), "{error}");
    assert!(!error.provider_message.contains("refresh-1"), "{error}");
    // It works again. The refresh token stays, because the provider sent no other.
    for token in ["access-2", "access-3"] {
        script.answer(
            200,
            json!({ "access_token": token, "token_type": "Bearer", "expires_in": 90 }),
        );
        assert_eq!(source.token().await.expect("a token").expose(), token);
        assert_eq!(source.token().await.expect("the same").expose(), token);
        world.pass(Duration::from_secs(40));
    }
    assert_eq!(script.asked().len(), 5);
}

#[tokio::test]
async fn a_process_that_died_while_it_refreshed_is_waited_for_and_no_longer() {
    let world = World::new().await;
    let process = world.process();
    let script = start(&world, &process, false).await;
    with_tokens(&world, &process).await;
    let row = process.list(world.org).await.expect("a list").remove(0);
    // Another process took the lease and died.
    let lease = Duration::from_millis(700);
    let began = std::time::Instant::now();
    assert!(world.store.take_refresh(world.org, row.id, 1, lease).await.expect("taken"));
    world.pass(Duration::from_secs(90));
    script.answer(200, json!({ "access_token": "access-2", "token_type": "Bearer" }));
    let source = world.source(&process).await;
    assert_eq!(source.token().await.expect("a token").expose(), "access-2");
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_cut_off_in_a_refresh_loses_nothing() {
    let world = World::new().await;
    let process = world.process();
    let script = start(&world, &process, false).await;
    with_tokens(&world, &process).await;
    world.pass(Duration::from_secs(90));
    let source = world.source(&process).await;
    let rotated = json!({
        "access_token": "access-2", "token_type": "Bearer", "refresh_token": "refresh-2",
        "expires_in": 3_600,
    });
    script.answer(200, rotated);
    // Interrupt it as soon as the provider got the request.
    let asked = async {
        while script.asked.lock().expect("not poisoned").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = asked => {}
        _ = source.token() => {}
    }
    drop(source);
    let other = world.process();
    let token = world.source(&other).await.token().await.expect("a token");
    assert_eq!(token.expose(), "access-2");
    assert_eq!(script.asked().len(), 1, "it was written though nobody waited");
}

#[tokio::test]
async fn a_process_that_cannot_seal_what_it_would_get_asks_for_nothing() {
    let world = World::new().await;
    let process = world.process();
    let script = start(&world, &process, false).await;
    with_tokens(&world, &process).await;
    let source = world.source(&process).await;
    // Another process gave up this process's key.
    let lost = world.process_with(Some(&credentials::MasterKeys::generate("k2")));
    lost.reset_key(world.org).await.expect("reset");
    world.pass(Duration::from_secs(50));
    assert_eq!(source.token().await.expect("the old one").expose(), "access-1");
    world.pass(Duration::from_secs(60));
    let error = source.token().await.expect_err("it has ended");
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert!(error.provider_message.contains("the secrets key `k2` is missing"), "{error}");
    assert_eq!(script.asked(), Vec::<String>::new(), "a refresh token may be good once");
}
