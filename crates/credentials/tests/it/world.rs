//! The starting point of every test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use credentials::{Credentials, CredentialsParts, MasterKeys, ProviderSettings};
use domain::{Clock, OrgId, TimestampMs};
use egress::{Egress, Rules};
use llm_client::{Auth, TokenSource};
use store::{Store, StoreOptions};
use testkit::TestDatabase;

const NOW: TimestampMs = 1_795_336_000_000;

/// A clock that tests advance. Its monotonic time is the machine's.
pub(crate) struct TestClock {
    moved_ms: AtomicI64,
    system: domain::SystemClock,
}

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        NOW + self.moved_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
}

pub(crate) struct World {
    pub(crate) org: OrgId,
    pub(crate) store: Store,
    pub(crate) database: TestDatabase,
    pub(crate) keys: String,
    clock: Arc<TestClock>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let database = testkit::database().await.expect("a test database");
        let store = Store::connect(&StoreOptions::new(database.store_url())).expect("a URL");
        let org = OrgId::random();
        store.ensure_organisation(org, "Acme".into(), NOW).await.expect("an organisation");
        let clock = TestClock { moved_ms: AtomicI64::new(0), system: domain::SystemClock::new() };
        let keys = MasterKeys::generate("k1");
        Self { org, store, database, keys, clock: Arc::new(clock) }
    }

    /// Returns the credentials of one process.
    pub(crate) fn process(&self) -> Credentials {
        self.process_with(Some(&self.keys))
    }

    pub(crate) fn process_with(&self, keys: Option<&str>) -> Credentials {
        let store = Store::connect(&StoreOptions::new(self.database.store_url())).expect("a URL");
        Credentials::new(CredentialsParts {
            store,
            keys: keys.map(|keys| MasterKeys::parse(keys).expect("keys")),
            egress: Egress::new(&Rules::everything().into()).expect("a client"),
            catalog: None,
            clock: self.clock.clone(),
        })
    }

    pub(crate) fn pass(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).expect("a short time");
        self.clock.moved_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Returns the token source for a turn without a user.
    pub(crate) async fn source(&self, process: &Credentials) -> Arc<dyn TokenSource> {
        let found = process.auth(self.org, None, "acme").await.expect("an answer");
        let found = found.expect("a credential");
        let Auth::Source(source) = found.auth else { panic!("no tokens: {found:?}") };
        source
    }
}

/// Returns settings with the OAuth client `id` at `url`, with the paths of npm's oidc-provider.
pub(crate) fn settings(url: &str, id: &str) -> ProviderSettings {
    let settings = serde_json::json!({ "oauth": {
        "clientId": id,
        "clientAuth": if id == "post" { "post" } else { "basic" },
        "tokenUrl": format!("{url}/token"),
        "authorizeUrl": format!("{url}/auth"),
        "deviceUrl": format!("{url}/device/auth"),
        "redirectUrl": "http://127.0.0.1:9/callback",
        "scopes": ["openid", "offline_access"],
    } });
    serde_json::from_value(settings).expect("settings")
}
