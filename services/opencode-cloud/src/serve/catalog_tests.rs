//! Processes that share a database and a catalog, and a server that counts requests.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use llm_client::{TransportError, WireRequest, WireResponse};
use store::StoreOptions;

use super::*;

/// A server of catalogs. With no models it is away.
#[derive(Default)]
struct Server {
    models: AtomicUsize,
    asked: AtomicUsize,
}

#[async_trait]
impl ProviderTransport for Server {
    async fn send(&self, _: WireRequest) -> Result<WireResponse, TransportError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let models = self.models.load(Ordering::SeqCst);
        let status = if models == 0 { 502 } else { 200 };
        let names: Vec<String> = (0..models).map(|at| format!(r#""m{at}":{{}}"#)).collect();
        let body = format!(r#"{{"invented":{{"models":{{{}}}}}}}"#, names.join(","));
        let body = futures::stream::iter([Ok(Bytes::from(body))]).boxed();
        let status = status.try_into().expect("a status");
        Ok(WireResponse { status, headers: reqwest::header::HeaderMap::new(), body })
    }
}

struct Hand(AtomicI64);

impl Clock for Hand {
    fn now_ms(&self) -> TimestampMs {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct World {
    server: Arc<Server>,
    clock: Arc<Hand>,
    store: Store,
    _database: testkit::TestDatabase,
}

impl World {
    async fn new() -> Self {
        let database = testkit::database().await.expect("a database");
        let store = Store::connect(&StoreOptions::new(database.store_url())).expect("a store");
        let clock = Arc::new(Hand(AtomicI64::new(1_000_000)));
        Self { server: Arc::default(), clock, store, _database: database }
    }

    fn process(&self, url: &str) -> Keeper {
        let url = url.parse().expect("a URL");
        let every = Duration::from_secs(3600);
        let from = Refresh { url, every, timeout: Duration::from_secs(5) };
        let clock: Arc<dyn Clock> = self.clock.clone();
        let feed = Arc::new(Feed::new(catalog::shipped()));
        Keeper::new(feed, &self.store, &clock, self.server.clone(), from)
    }

    fn asked(&self) -> usize {
        self.server.asked.load(Ordering::SeqCst)
    }

    fn pass(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1_000, Ordering::SeqCst);
    }
}

const URL: &str = "http://c.example/api.json";

#[tokio::test]
async fn one_process_fetches_for_all_and_for_the_next_start() {
    let world = World::new().await;
    world.server.models.store(3, Ordering::SeqCst);
    let all: Vec<Keeper> = (0..5).map(|_| world.process(URL)).collect();
    futures::future::join_all(all.iter().map(Keeper::first)).await;
    assert_eq!(world.asked(), 1);
    assert!(all.iter().all(|process| process.feed.current().models() == 3));
    // Nobody asks while the catalog is fresh. Then one process asks, and an unchanged catalog only counts as seen
    // again.
    world.pass(3_599);
    for process in &all {
        assert_eq!(process.look().await, Look::Fresh);
    }
    assert_eq!(world.asked(), 1);
    world.pass(1);
    for process in &all {
        assert_eq!(process.look().await, Look::Fresh);
        assert_eq!(process.feed.freshness().seen_ms, Some(4_600_000));
    }
    assert_eq!(world.asked(), 2);
    let next = world.process(URL);
    assert_eq!(next.look().await, Look::Fresh);
    assert_eq!((next.feed.current().models(), world.asked()), (3, 2));
    // A catalog from another URL does not count.
    assert_eq!(world.process("http://d.example/api.json").look().await, Look::Fresh);
    assert_eq!(world.asked(), 3);
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_seldom_and_the_last_good_one_stays() {
    let world = World::new().await;
    let (one, other) = (world.process(URL), world.process(URL));
    assert_eq!(one.look().await, Look::Failed);
    for process in [&one, &other] {
        assert_eq!(process.look().await, Look::Waiting, "one has just tried");
        assert_eq!(*process.feed.current(), *catalog::shipped());
    }
    let failure = one.feed.freshness().failure.expect("a reason");
    assert!(failure.contains("502"), "{failure}");
    world.pass(60);
    world.server.models.store(2, Ordering::SeqCst);
    assert_eq!(other.look().await, Look::Fresh);
    assert_eq!(one.look().await, Look::Fresh);
    assert_eq!((world.asked(), one.feed.freshness().failure), (2, None));
    // The server is away again after an hour: the old catalog stays, and a new process finds it in the database.
    world.pass(3_600);
    world.server.models.store(0, Ordering::SeqCst);
    let late = world.process(URL);
    assert_eq!(late.look().await, Look::Failed);
    assert_eq!(late.feed.current().models(), 2);
}

#[test]
fn a_url_is_one_that_may_be_stored_and_shown() {
    let args = |url: &str, every| CatalogArgs {
        catalog_url: Some(url.to_owned()),
        catalog_refresh: every,
    };
    let hourly = Period::Of(Duration::from_secs(3600));
    let from = args(" http://c.example/api.json?token=t ", hourly).refresh();
    let from = from.expect("a URL").expect("it is on");
    assert_eq!(
        (from.url.as_str(), from.every.as_secs()),
        ("http://c.example/api.json?token=t", 3600)
    );
    assert_eq!(
        args(URL, hourly).words(),
        [format!("--catalog-url={URL}"), "--catalog-refresh=3600".into()]
    );
    for off in [args(URL, Period::Off), args("  ", hourly)] {
        assert_eq!(off.refresh().expect("it is right"), None);
    }
    for wrong in ["models.dev", "file:///etc/api.json", "https://me:secret@c.example/api.json"] {
        let error = args(wrong, hourly).refresh().expect_err(wrong).to_string();
        assert!(error.starts_with("--catalog-url: ") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn providers_get_what_is_set_but_nothing_of_ours() {
    let vars = [
        ("ANTHROPIC_API_KEY", "sk-ant"),
        ("OPENCODE_CLOUD_SECRETS_KEY", "k1:x"),
        ("GROQ_API_KEY", " "),
        ("OPENAI_API_KEY", "sk-env"),
    ];
    let vars = || vars.into_iter().map(|(name, value)| (name.into(), value.into()));
    let shown = |openai| {
        let all = environment_of(vars(), openai);
        all.into_iter()
            .map(|(name, value)| format!("{name}={}", value.expose()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(None), ["ANTHROPIC_API_KEY=sk-ant", "OPENAI_API_KEY=sk-env"]);
    assert_eq!(shown(Some("sk-flag")), ["ANTHROPIC_API_KEY=sk-ant", "OPENAI_API_KEY=sk-flag"]);
}
