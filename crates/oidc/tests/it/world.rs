//! A provider, and a process that asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::{Clock, TimestampMs};
use egress::{Egress, Rules};
use llm_client::Secret;
use oidc::{Algorithm, Attempt, Connection, Issuer, OidcError, Providers, Return, SignIn};
use reqwest::Url;

use crate::idp::Idp;
use crate::visit;

/// A clock whose monotonic time tests advance.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64, Option<TimestampMs>);

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        self.1.unwrap_or_else(|| domain::SystemClock::new().now_ms())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1_000 + self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct World {
    pub(crate) idp: Idp,
    pub(crate) providers: Providers,
    clock: Arc<TestClock>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(TestClock::default());
        Self { idp: Idp::start().await, providers: providers(&clock), clock }
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Registers a client whose callback is `name`'s.
    pub(crate) async fn connection(
        &self,
        name: &str,
        algorithm: Algorithm,
        auth: &str,
    ) -> Connection {
        let redirect = format!("http://127.0.0.1:9/auth/callback/{name}");
        let (client_id, secret) = self.idp.register(&redirect, algorithm.as_str(), auth).await;
        Connection {
            issuer: Issuer::parse(&self.idp.url).expect("an issuer"),
            client_id,
            client_secret: secret.as_deref().map(Secret::new),
            redirect: redirect.parse().expect("an address"),
            scopes: ["email", "profile", "groups"].map(str::to_owned).into(),
            algorithm: None,
            groups_claim: Some("groups".to_owned()),
        }
    }

    /// Begins a sign-in and visits the provider.
    pub(crate) async fn visited(&self, connection: &Connection) -> (Attempt, Return) {
        let (url, attempt) = self.providers.begin(connection).await.expect("begun");
        (attempt, visit(&url).await)
    }

    pub(crate) async fn signed_in(&self, connection: &Connection) -> Result<SignIn, OidcError> {
        let (attempt, back) = self.visited(connection).await;
        self.providers.finish(connection, attempt, &back).await
    }
}

/// Visits the provider, and returns what the browser brings back.
pub(crate) async fn visit(url: &Url) -> Return {
    let back = visit::visit(url).await;
    let of = |name: &str| {
        let found = back.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    };
    let (error, error_description) = (of("error"), of("error_description"));
    Return { code: of("code"), iss: of("iss"), error, error_description }
}

/// Returns the providers of a new process.
pub(crate) fn providers(clock: &Arc<TestClock>) -> Providers {
    let egress = Egress::new(&Rules::everything().into()).expect("a client");
    Providers::new(Arc::new(egress.for_organisations()), clock.clone())
}

/// Returns providers whose clock is this much ahead.
pub(crate) fn providers_ahead(ms: TimestampMs) -> Providers {
    let now = domain::SystemClock::new().now_ms();
    providers(&Arc::new(TestClock(AtomicU64::new(0), Some(now + ms))))
}
