//! Credentials that organisations keep for their providers, in the turns of their sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router};
use catalog::Feed;
use credentials::{
    ClientSecret, CredentialRow, Credentials, CredentialsParts, MasterKeys, Material, NewSecret,
    SecretChange, Tokens,
};
use domain::DrainOutcome::{Completed, Failed};
use domain::{AttemptOutcome, Clock, ErrorCode, ModelRef, SessionError, SessionEvent};
use egress::{Egress, Rules};
use futures::future::try_join_all;
use history::{History, hash_hex};
use llm_client::{AwsAccess, Endpoint, Secret};
use serde_json::{Value, json};
use session::{ConfiguredModels, DrainExit, ProviderHub, Runtime, drain_control};
use simulated_model::{RequestRecord, Script};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::TestDatabase;
use tokio_util::sync::CancellationToken;

use crate::scenarios::{With, send};
use crate::world::{ORG, Session, World};

/// Keys that the service was started with: for the configured provider, and for one of the catalog.
const FLAGS: &str = "sk-of-the-flags-0123456789";
const ENVIRONMENT: &str = "sk-of-the-environment-0123456789";
/// A provider that nobody has heard of, and a model of it.
const ACME: (&str, &str) = ("acme", "rocket-1");

/// A world whose organisation keeps credentials.
struct Keyed {
    world: World,
    keys: String,
    kept: Credentials,
}

impl Keyed {
    async fn new() -> Result<Self> {
        Self::on(World::new().await?)
    }

    fn on(mut world: World) -> Result<Self> {
        let keys = MasterKeys::generate("k1");
        let kept = process(&world, &world.worker, Some(&keys))?;
        world.worker.models = hub(&world, &kept);
        Ok(Self { world, keys, kept })
    }

    /// Sets the invented provider up: it is the simulated model.
    async fn acme(&self, oauth: Option<Value>) -> Result<()> {
        let url = format!("{}/v1", self.world.model_root());
        self.set(ACME.0, json!({ "overrides": { "api": url }, "oauth": oauth })).await
    }

    async fn set(&self, provider: &str, settings: Value) -> Result<()> {
        let settings = serde_json::from_value(settings)?;
        self.kept.set_provider(ORG, provider, &settings, &ClientSecret::Keep).await?;
        Ok(())
    }

    async fn keep(&self, provider: &str, label: &str, material: Material) -> Result<CredentialRow> {
        let (owner, provider, label) = (String::new(), provider.to_owned(), label.to_owned());
        Ok(self.kept.add(ORG, NewSecret { owner, provider, label, material }).await?)
    }

    async fn keep_key(&self, provider: &str, key: &str) -> Result<CredentialRow> {
        self.keep(provider, key, Material::ApiKey(Secret::new(key))).await
    }

    /// A prompt to a model, to its end: whether that is good.
    async fn ask(&self, session: &Session, model: (&str, &str), text: &str) -> Result<bool> {
        send(&self.world, session, text, With { model: Some(model), ..With::default() }).await?;
        let outcomes = self.world.settle(session).await?;
        ensure!(outcomes == [Completed] || outcomes == [Failed], "{outcomes:?}");
        Ok(outcomes == [Completed])
    }

    /// Returns the newest request to the model.
    fn last(&self) -> Result<RequestRecord> {
        self.world.model().requests().pop().context("a request")
    }

    /// Whose the last request was, as the model saw it.
    fn asker(&self) -> Result<String> {
        Ok(self.last()?.headers.get("credential").cloned().unwrap_or_default())
    }
}

/// Returns the credentials as one process has them.
fn process(world: &World, runtime: &Runtime, keys: Option<&str>) -> Result<Credentials> {
    Ok(Credentials::new(CredentialsParts {
        store: runtime.store.clone(),
        keys: keys.map(MasterKeys::parse).transpose()?,
        egress: Egress::new(&Rules::everything().into())?,
        catalog: Some(Arc::new(Feed::new(catalog::shipped()))),
        clock: world.clock.clone(),
    }))
}

/// The simulated model with a key of the flags, the catalog with one of the environment, and what is kept.
fn hub(world: &World, kept: &Credentials) -> ProviderHub {
    let endpoint = Endpoint::new(format!("{}/v1", world.model_root()));
    let default = ModelRef::new("simulated", "simulated");
    let configured = ConfiguredModels::single(default, endpoint.with_api_key(Secret::new(FLAGS)));
    let env = BTreeMap::from([("ANTHROPIC_API_KEY".to_owned(), Secret::new(ENVIRONMENT))]);
    let catalog = Some(Arc::new(Feed::new(catalog::shipped())));
    ProviderHub::new(configured, catalog, env).with_credentials(kept.clone())
}

fn digest(key: &str) -> String {
    hash_hex(key.as_bytes())
}

/// The last failure, which holds none of these.
async fn failure(world: &World, session: &Session, secrets: &[&str]) -> Result<SessionError> {
    let events = world.events(session).await?;
    let error = |event: &SessionEvent| match event {
        SessionEvent::DrainEnded(ended) => ended.error.clone(),
        _ => None,
    };
    let found = events.iter().rev().find_map(|event| error(&event.event)).context("an error")?;
    let shown = format!("{events:?} {:?}", world.messages(session).await?);
    for secret in secrets {
        ensure!(!shown.contains(secret), "{secret} is in {shown}");
    }
    Ok(found)
}

async fn attempts(world: &World, session: &Session) -> Result<Vec<AttemptOutcome>> {
    let outcome = |event: &SessionEvent| match event {
        SessionEvent::AttemptEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| outcome(&event.event)).collect())
}

#[tokio::test]
async fn a_kept_key_goes_before_what_the_service_was_started_with_as_long_as_it_is_kept()
-> Result<()> {
    let keyed = Keyed::new().await?;
    let session = keyed.world.session().await?;
    let configured = ("simulated", "simulated");
    assert!(keyed.ask(&session, configured, "say 1 words").await?);
    assert_eq!(keyed.asker()?, digest(FLAGS));
    let row = keyed.keep_key("simulated", "sk-kept-0123456789abcdef").await?;
    assert!(keyed.ask(&session, configured, "say 2 words").await?);
    assert_eq!(keyed.asker()?, digest("sk-kept-0123456789abcdef"));
    keyed.kept.remove(ORG, row.id.parse()?).await?;
    assert!(keyed.ask(&session, configured, "say 3 words").await?);
    assert_eq!(keyed.asker()?, digest(FLAGS));

    // In the header of a provider of the catalog, at an address of the organisation's: there the environment's is not
    // sent.
    let anthropic = ("anthropic", "claude-sonnet-4-6");
    let url = keyed.world.model_root();
    keyed.set("anthropic", json!({ "overrides": { "api": format!("{url}/v1") } })).await?;
    let keyed = Keyed { world: refreshed(keyed.world, &keyed.kept), ..keyed };
    assert!(keyed.ask(&session, anthropic, "say 4 words").await?);
    assert_eq!(keyed.asker()?, "");
    keyed.keep_key("anthropic", "sk-ant-0123456789abcdef").await?;
    assert!(keyed.ask(&session, anthropic, "say 5 words").await?);
    assert_eq!(keyed.asker()?, digest("sk-ant-0123456789abcdef"));
    assert_eq!(keyed.last()?.headers["x-api-key"], "present");
    assert_eq!(keyed.last()?.headers["authorization"], "absent");
    keyed.world.check().await
}

/// As after the five seconds for which settings are believed.
fn refreshed(mut world: World, kept: &Credentials) -> World {
    world.worker.models = hub(&world, kept);
    world
}

#[tokio::test]
async fn an_invented_provider_is_asked_with_its_own_key_and_without_one_it_is_said_what_to_do()
-> Result<()> {
    let keyed = Keyed::new().await?;
    keyed.acme(None).await?;
    let session = keyed.world.session().await?;
    let key = "sk-acme-0123456789abcdef";
    let row = keyed.keep_key(ACME.0, key).await?;
    assert!(keyed.ask(&session, ACME, "say 2 words").await?);
    assert_eq!(keyed.asker()?, digest(key));

    // Its provider takes it no more, and says it again.
    let said = json!({ "error": { "message": format!("Incorrect API key: {key}") } });
    let refuses = |matches: &str| Script {
        matches: matches.into(),
        status: Some(401),
        body: Some(said.clone()),
        ..Script::default()
    };
    keyed.world.script(refuses("with a key"))?;
    assert!(!keyed.ask(&session, ACME, "with a key").await?);
    let error = failure(&keyed.world, &session, &[key]).await?;
    assert_eq!(error.code, ErrorCode::ProviderAuthentication);
    ensure!(error.message.contains("Incorrect API key: [redacted]"), "{}", error.message);
    ensure!(error.message.contains(&row.id.to_string()), "{}", error.message);
    // Finding trial-3 27: people at a terminal were told a route.
    let advice = "opencode-cloud credential add acme";
    ensure!(error.message.contains(advice), "{}", error.message);
    // Check heldout-3: a person in the released client has `/connect`.
    ensure!(error.message.contains("/connect"), "{}", error.message);
    assert_eq!(attempts(&keyed.world, &session).await?.last(), Some(&AttemptOutcome::Failed));

    // Removed: the next turn has none, and none of anybody else's.
    keyed.kept.remove(ORG, row.id.parse()?).await?;
    keyed.world.script(refuses("without a key"))?;
    assert!(!keyed.ask(&session, ACME, "without a key").await?);
    assert_eq!(keyed.asker()?, "");
    let error = failure(&keyed.world, &session, &[]).await?;
    assert_eq!(error.code, ErrorCode::ProviderAuthentication);
    ensure!(error.message.contains("no credential is kept for `acme`"), "{}", error.message);
    ensure!(error.message.contains(advice), "{}", error.message);

    keyed.keep_key(ACME.0, "sk-acme-another-one").await?;
    assert!(keyed.ask(&session, ACME, "say 3 words").await?);
    assert_eq!(keyed.asker()?, digest("sk-acme-another-one"));
    assert_eq!(keyed.world.answer(&session).await?, "w0 w1 w2");
    keyed.world.check().await
}

#[tokio::test]
async fn a_credential_that_cannot_be_opened_is_an_error_and_no_other_is_taken() -> Result<()> {
    let mut keyed = Keyed::new().await?;
    let session = keyed.world.session().await?;
    let key = "sk-kept-0123456789abcdef";
    let row = keyed.keep_key("simulated", key).await?;
    keyed.acme(None).await?;
    let other = MasterKeys::generate("k2");
    let again = format!(
        "`k1` is missing: give it again, after the current one, on all gateways and workers; if that key is lost, set it again (PATCH /platform/credential/{})",
        row.id
    );
    for (keys, says) in [(None, "--secrets-key"), (Some(other.as_str()), again.as_str())] {
        let kept = process(&keyed.world, &keyed.world.worker, keys)?;
        keyed.world = refreshed(keyed.world, &kept);
        let before = keyed.world.model().counts().requests;
        assert!(!keyed.ask(&session, ("simulated", "simulated"), "say 1 words").await?);
        assert_eq!(keyed.world.model().counts().requests, before, "nothing is sent");
        let error = failure(&keyed.world, &session, &[key, FLAGS]).await?;
        assert_eq!(error.code, ErrorCode::ProviderAuthentication);
        for part in ["credentials for the model provider cannot be used", "`simulated`", says] {
            ensure!(error.message.contains(part), "{}", error.message);
        }
        // A provider that needs no key works.
        assert!(keyed.ask(&session, ACME, "say 2 words").await?);
    }
    let kept = process(&keyed.world, &keyed.world.worker, Some(&keyed.keys))?;
    keyed.world = refreshed(keyed.world, &kept);
    assert!(keyed.ask(&session, ("simulated", "simulated"), "say 3 words").await?);
    assert_eq!(keyed.asker()?, digest(key));
    keyed.world.check().await
}

#[tokio::test]
async fn bedrock_is_asked_with_a_signature_of_the_kept_access_key() -> Result<()> {
    let keyed = Keyed::new().await?;
    let session = keyed.world.session().await?;
    let bedrock = ("amazon-bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0");
    let access = AwsAccess {
        access_key: "ASIAIOSFODNN7EXAMPLE".into(),
        secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG"),
        session_token: Some(Secret::new("a-session-token-of-aws")),
        region: "eu-west-1".into(),
        service: "bedrock".into(),
    };
    keyed.keep("amazon-bedrock", "team", Material::Aws(access)).await?;
    let api = json!({ "api": keyed.world.model_root() });
    keyed.set("amazon-bedrock", json!({ "overrides": api })).await?;
    assert!(keyed.ask(&session, bedrock, "say 2 words").await?);
    assert_eq!(keyed.world.answer(&session).await?, "w0 w1");
    let scope = |asker: &str| {
        let parts: Vec<&str> = asker.split('/').collect();
        [parts[0], parts[2], parts[3], parts[4]].map(str::to_owned)
    };
    let expected = ["ASIAIOSFODNN7EXAMPLE", "eu-west-1", "bedrock", "aws4_request"];
    assert_eq!(scope(&keyed.asker()?), expected);
    assert_eq!(keyed.last()?.headers["x-amz-security-token"], "present");

    // A region of the settings is where it goes, and what is signed for.
    let settings = json!({ "overrides": api, "env": { "AWS_REGION": "us-west-2" } });
    keyed.set("amazon-bedrock", settings).await?;
    let keyed = Keyed { world: refreshed(keyed.world, &keyed.kept), ..keyed };
    assert!(keyed.ask(&session, bedrock, "say 3 words").await?);
    assert_eq!(scope(&keyed.asker()?)[1], "us-west-2");
    keyed.world.check().await
}

// Finding security 6: whoever could change a provider's address was sent its kept key.
#[tokio::test]
async fn a_kept_key_is_not_sent_to_a_host_it_was_not_entered_for() -> Result<()> {
    let mut keyed = Keyed::new().await?;
    let session = keyed.world.session().await?;
    let anthropic = ("anthropic", "claude-sonnet-4-6");
    let key = "sk-ant-0123456789abcdef";
    let row = keyed.keep_key("anthropic", key).await?;
    // The same server by another name: another host, for who looks at what was set.
    let url = keyed.world.model_root().replace("127.0.0.1", "localhost");
    for settings in [
        json!({ "overrides": { "api": format!("{url}/v1") } }),
        json!({ "overrides": { "options": { "baseURL": format!("{url}/v1") } } }),
        json!({ "overrides": { "models": { "claude-sonnet-4-6": { "provider": { "api": format!("{url}/v1") } } } } }),
        json!({ "overrides": { "api": "${LLM}/v1" }, "env": { "LLM": url } }),
    ] {
        keyed.set("anthropic", settings.clone()).await?;
        keyed.world = refreshed(keyed.world, &keyed.kept);
        let before = keyed.world.model().counts().requests;
        assert!(!keyed.ask(&session, anthropic, "say 1 words").await?, "{settings}");
        assert_eq!(keyed.world.model().counts().requests, before, "{settings}");
        let error = failure(&keyed.world, &session, &[key]).await?;
        for part in ["provider.credential-origin", "https://api.anthropic.com", &url, &row.id] {
            ensure!(error.message.contains(part), "{part}: {}", error.message);
        }
    }
    // Entered again, it is for the new host; and no more for the catalog's.
    let again = Material::ApiKey(Secret::new(key));
    let change = SecretChange { material: Some(again), ..SecretChange::default() };
    keyed.kept.change(ORG, row.id.parse()?, change).await?;
    assert!(keyed.ask(&session, anthropic, "say 2 words").await?);
    assert_eq!(keyed.asker()?, digest(key));
    keyed.kept.remove_provider(ORG, "anthropic").await?;
    keyed.world = refreshed(keyed.world, &keyed.kept);
    assert!(!keyed.ask(&session, anthropic, "say 3 words").await?);
    let error = failure(&keyed.world, &session, &[key]).await?;
    ensure!(error.message.contains("provider.credential-origin"), "{}", error.message);
    Ok(())
}

/// Returns every row of every table as text; bytes are hexadecimal.
async fn dump(database: &TestDatabase) -> Result<String> {
    let mut admin = PgConnection::connect(&database.superuser_url()).await?;
    let tables = "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace NOT IN \
                  ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut admin).await?;
    let mut all = String::new();
    for table in tables {
        let rows = format!("SELECT coalesce(string_agg(t::text, ' '), '') FROM {table} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut admin).await?;
        all.push_str(&rows);
    }
    Ok(all)
}

// Finding security 17: values of headers stood in Postgres for everybody with a backup.
#[tokio::test]
async fn a_providers_headers_are_sealed_and_reach_the_model() -> Result<()> {
    let database = testkit::database().await?;
    let mut keyed = Keyed::on(World::on(database.store_url(), None, |_| ()).await?)?;
    let session = keyed.world.session().await?;
    let url = format!("{}/v1", keyed.world.model_root());
    let secrets = ["value-of-the-provider", "value-of-the-model", "value-of-an-option"];
    let overrides = json!({
        "api": url,
        "headers": { "x-team": secrets[0] },
        "options": { "apiKey": secrets[2] },
        "models": { ACME.1: { "headers": { "x-model": secrets[1] } } },
    });
    keyed.set(ACME.0, json!({ "overrides": overrides })).await?;
    assert!(keyed.ask(&session, ACME, "say 2 words").await?);
    let sent = keyed.last()?.headers;
    assert_eq!([&sent["x-team"], &sent["x-model"]], [secrets[0], secrets[1]]);
    let stored = dump(&database).await?;
    assert!(stored.contains("x-team") && stored.contains("say 2 words"), "{stored}");
    for secret in secrets {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!stored.contains(secret) && !stored.contains(&hex), "{secret} is in {stored}");
    }

    // Without their key nothing is sent, and it is said what to do.
    let other = MasterKeys::generate("k2");
    let again = "set it again (PUT /platform/provider/acme)";
    for (keys, says) in [(None, "--secrets-key"), (Some(other.as_str()), again)] {
        let kept = process(&keyed.world, &keyed.world.worker, keys)?;
        keyed.world = refreshed(keyed.world, &kept);
        let before = keyed.world.model().counts().requests;
        assert!(!keyed.ask(&session, ACME, "say 3 words").await?);
        assert_eq!(keyed.world.model().counts().requests, before, "nothing is sent");
        let error = failure(&keyed.world, &session, &secrets).await?;
        ensure!(error.message.contains(says) && error.message.contains("`acme`"), "{error:?}");
    }
    // Somebody who can change rows cannot send them elsewhere: the same server by another name.
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let moved =
        format!("UPDATE provider_setting SET settings = replace(settings, '{url}', '{elsewhere}')");
    database.run(moved).await?;
    keyed.world = refreshed(keyed.world, &keyed.kept);
    assert!(!keyed.ask(&session, ACME, "say 4 words").await?);
    let error = failure(&keyed.world, &session, &secrets).await?;
    for part in
        ["provider.credential-origin", &elsewhere.replace("/v1", ""), "PUT /platform/provider/acme"]
    {
        ensure!(error.message.contains(part), "{part}: {}", error.message);
    }
    keyed.world.check().await
}

// Finding security 4: the check is on the route, as it is when a request is sent.
#[tokio::test]
async fn a_route_that_leads_inside_is_refused_before_anything_is_sent() -> Result<()> {
    let mut keyed = Keyed::new().await?;
    let session = keyed.world.session().await?;
    keyed.acme(None).await?; // as when the operator allowed it
    let strict = Credentials::new(CredentialsParts {
        store: keyed.world.worker.store.clone(),
        keys: Some(MasterKeys::parse(&keyed.keys)?),
        egress: Egress::new(&Rules::default().into())?,
        catalog: None,
        clock: keyed.world.clock.clone(),
    });
    keyed.world = refreshed(keyed.world, &strict);
    let before = keyed.world.model().counts().requests;
    assert!(!keyed.ask(&session, ACME, "say 1 words").await?);
    assert_eq!(keyed.world.model().counts().requests, before, "nothing is sent");
    let error = failure(&keyed.world, &session, &[]).await?;
    ensure!(error.message.contains("--egress-allow"), "{}", error.message);
    assert_eq!(attempts(&keyed.world, &session).await?.len(), 1, "it is not tried again");
    // The model of the flags is reached wherever it is.
    assert!(keyed.ask(&session, ("simulated", "simulated"), "say 2 words").await?);
    Ok(())
}

/// An OAuth server whose refresh tokens are good once.
#[derive(Clone, Default)]
struct Issuer {
    issued: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    is_over: Arc<Mutex<bool>>,
}

impl Issuer {
    async fn start(&self) -> Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/token", listener.local_addr()?);
        let app = Router::new().fallback(refresh).with_state(self.clone());
        let serving = async move { axum::serve(listener, app).await };
        #[expect(clippy::disallowed_methods, reason = "a server of this test, which ends with it")]
        tokio::spawn(serving);
        Ok(url)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn refresh(State(issuer): State<Issuer>, form: String) -> (StatusCode, Json<Value>) {
    issuer.asked.fetch_add(1, Ordering::SeqCst);
    // Long enough that everybody who wants one is waiting.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let last = issuer.issued.load(Ordering::SeqCst);
    let is_over = *issuer.is_over.lock().expect("not poisoned");
    let newest = format!("refresh_token=refresh-token-{last}");
    if is_over || !form.split('&').any(|pair| pair == newest) {
        let error = json!({ "error": "invalid_grant", "error_description": "it was revoked" });
        return (StatusCode::BAD_REQUEST, Json(error));
    }
    let next = issuer.issued.fetch_add(1, Ordering::SeqCst) + 1;
    let tokens = json!({
        "token_type": "Bearer",
        "access_token": format!("access-token-{next}"),
        "refresh_token": format!("refresh-token-{next}"),
        "expires_in": 3_600,
    });
    (StatusCode::OK, Json(tokens))
}

/// A world that has signed in to the invented provider: its token lasts for five minutes.
async fn signed_in(issuer: &Issuer) -> Result<(Keyed, CredentialRow)> {
    let keyed = Keyed::new().await?;
    keyed.acme(Some(json!({ "clientId": "c1", "tokenUrl": issuer.start().await? }))).await?;
    let tokens = Tokens {
        access: Secret::new("access-token-0"),
        expires_ms: Some(keyed.world.clock.now_ms() + 300_000),
        refresh: Some(Secret::new("refresh-token-0")),
        session: None,
    };
    let row = keyed.keep(ACME.0, "team", Material::OAuth(tokens)).await?;
    Ok((keyed, row))
}

#[tokio::test]
async fn a_sign_in_that_expires_between_turns_is_refreshed_once_for_all_sessions_of_all_workers()
-> Result<()> {
    let issuer = Issuer::default();
    let (keyed, _) = signed_in(&issuer).await?;
    let world = &keyed.world;
    let mut other = world.another_worker()?;
    other.models = hub(world, &process(world, &other, Some(&keyed.keys))?);
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(world.session().await?);
    }
    assert!(keyed.ask(&sessions[0], ACME, "say 1 words").await?);
    assert_eq!((keyed.asker()?, issuer.asked()), (digest("access-token-0"), 0));

    world.clock.advance(Duration::from_mins(4));
    let drains = sessions.iter().enumerate().map(async |(n, session)| {
        let with = With { model: Some(ACME), ..With::default() };
        send(world, session, "say 2 words", with).await?;
        let (handle, control) = drain_control(CancellationToken::new());
        let worker = if n % 2 == 0 { &world.worker } else { &other };
        let driven = world.drive(worker, session, &handle, control, History::new()).await?;
        ensure!(matches!(driven.0, DrainExit::Ended(Completed)), "{:?}", driven.0);
        Ok(())
    });
    try_join_all(drains).await?;
    assert_eq!(issuer.asked(), 1);
    let askers: BTreeSet<_> = world
        .model()
        .requests()
        .into_iter()
        .skip(1)
        .map(|request| request.headers["credential"].clone())
        .collect();
    assert_eq!(askers, BTreeSet::from([digest("access-token-1")]));

    // Its provider takes it no more before its end: the same turn goes on with the next one.
    let refuses = Script { matches: "say 3".into(), status: Some(401), ..Script::default() };
    world.script(Script { times: Some(1), ..refuses })?;
    assert!(keyed.ask(&sessions[0], ACME, "say 3 words").await?);
    assert_eq!((keyed.asker()?, issuer.asked()), (digest("access-token-2"), 2));
    let ended = attempts(world, &sessions[0]).await?;
    assert_eq!(ended[2..], [AttemptOutcome::Failed, AttemptOutcome::Completed]);
    world.check().await
}

#[tokio::test]
async fn a_sign_in_that_is_over_ends_the_turn_and_another_credential_helps() -> Result<()> {
    let issuer = Issuer::default();
    let (keyed, row) = signed_in(&issuer).await?;
    let world = &keyed.world;
    let session = world.session().await?;
    *issuer.is_over.lock().expect("not poisoned") = true;
    world.clock.advance(Duration::from_mins(6));
    for text in ["say 1 words", "say 2 words"] {
        assert!(!keyed.ask(&session, ACME, text).await?);
        let error = failure(world, &session, &["access-token-", "refresh-token-"]).await?;
        assert_eq!(error.code, ErrorCode::ProviderAuthentication);
        for part in
            ["sign in again", "invalid_grant", "opencode-cloud credential login acme", &row.id]
        {
            ensure!(error.message.contains(part), "{part}: {}", error.message);
        }
    }
    assert_eq!(issuer.asked(), 1, "a grant that is over is not asked with again");
    assert_eq!(attempts(world, &session).await?, [AttemptOutcome::Failed; 2]);
    assert_eq!(world.model().counts().requests, 0);
    ensure!(keyed.kept.list(ORG).await?[0].fault.is_some(), "people see it");

    keyed.keep_key(ACME.0, "sk-acme-0123456789abcdef").await?;
    assert!(keyed.ask(&session, ACME, "say 3 words").await?);
    assert_eq!(keyed.asker()?, digest("sk-acme-0123456789abcdef"));
    world.check().await
}
