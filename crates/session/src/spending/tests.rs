use std::sync::atomic::{AtomicI64, Ordering};

use domain::{Clock, SystemClock};
use store::{EACH_PERSON, ORGANISATION, StoreOptions};
use tokio::task::JoinSet;

use super::*;

const USD: i64 = 1_000_000_000;

struct World {
    store: Store,
    org: OrgId,
    spending: Spending,
    database: testkit::TestDatabase,
}

impl World {
    async fn new() -> Self {
        let database = testkit::database().await.expect("a database");
        let store = Store::connect(&StoreOptions::new(database.store_url())).expect("a URL");
        let org = OrgId::FIRST;
        store.ensure_organisation(org, "ours".into(), 1).await.expect("an organisation");
        Self { store, org, spending: Spending::default(), database }
    }

    async fn limit(&self, whose: &str, usd: i64) {
        let now = SystemClock::new().now_ms();
        let set = self.store.set_spending_limit(self.org, whose.into(), Some(usd * USD), now);
        set.await.expect("set");
    }

    /// Counts a cost, as the roll-up of a settled turn does.
    async fn pay(&self, person: &str, cost: i64) {
        let (org, day) =
            (self.org, "(extract(epoch FROM now()) * 1000)::bigint / 86400000 * 86400000");
        let paid = self.database.tamper(format!(
            "INSERT INTO usage_person AS u SELECT '{org}', {day}, '{person}', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                 {cost}, 0, 0, 0, 0
             ON CONFLICT (org_id, starts_ms, person) DO UPDATE SET cost_nanos = u.cost_nanos + excluded.cost_nanos"
        ));
        paid.await.expect("paid");
    }

    /// Sums usage up as long as it runs, as the workers' chore does.
    async fn count(&self) {
        loop {
            self.store.count_usage(self.org).await.expect("counted");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn ask(&self, spending: &Spending, person: &str, most: i64) -> Allowed {
        let now = SystemClock::new().now_ms();
        spending.ask(&self.store, self.org, now, person, most).await
    }

    async fn spent(&self) -> i64 {
        let now = SystemClock::new().now_ms();
        self.store.spent(self.org, now).await.expect("an answer").total
    }
}

/// Two workers with 32 sessions each, all at once, again and again until a limit stops them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_overshoot_by_no_more_than_was_said() {
    const MOST: i64 = USD / 20;
    const WORKERS: usize = 2;
    let world = Arc::new(World::new().await);
    world.limit(ORGANISATION, 1).await;
    let running = Arc::new(AtomicI64::new(0));
    let highest = Arc::new(AtomicI64::new(0));
    let mut sessions = JoinSet::new();
    for worker in 0..WORKERS {
        let spending = Spending::default();
        for session in 0..32_i64 {
            let (world, spending) = (world.clone(), spending.clone());
            let (running, highest) = (running.clone(), highest.clone());
            sessions.spawn(async move {
                let person = format!("key_{}", (session + i64::try_from(worker).expect("few")) % 5);
                let mut sent = 0;
                loop {
                    match world.ask(&spending, &person, MOST).await {
                        Allowed::Go(counted) => {
                            assert!(counted.is_some());
                            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                            highest.fetch_max(now, Ordering::SeqCst);
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            // It costs between half of what it may and all of it.
                            world.pay(&person, MOST / 2 + MOST / 64 * session).await;
                            running.fetch_sub(1, Ordering::SeqCst);
                            sent += 1;
                            drop(counted);
                        }
                        Allowed::Wait => tokio::time::sleep(Duration::from_millis(50)).await,
                        Allowed::Stop(error) => return (sent, error),
                        Allowed::Interrupted => panic!("nobody interrupts"),
                    }
                }
            });
        }
    }
    let mut sent = 0;
    let mut counting = Box::pin(world.count());
    while let Some(ended) = tokio::select! {
        ended = sessions.join_next() => ended,
        () = &mut counting => unreachable!("it counts for ever"),
    } {
        let (of_one, error) = ended.expect("no panic");
        sent += of_one;
        assert_eq!(error.code, ErrorCode::LimitSpending);
        assert!(
            error.message.contains("the organisation's limit of 1.00 USD a month is reached"),
            "{error:?}"
        );
        assert!(
            error.message.contains("A new month begins on ")
                && error.message.contains("administrator")
        );
    }
    let spent = world.spent().await;
    // A worker passes the limit by a request at most, and by what the other had begun meanwhile: at most the rest of the
    // limit and one request, as that one counts for itself.
    let said = USD + (USD + MOST);
    println!(
        "{sent} requests, at most {} at once, {spent} of {USD} spent",
        highest.load(Ordering::SeqCst)
    );
    assert!(spent >= USD && spent <= said, "{spent} of {said}");
    assert!(sent >= 20, "the limit is used up before anybody is stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_overshoots_by_one_request() {
    const MOST: i64 = USD / 4;
    let world = Arc::new(World::new().await);
    world.limit(ORGANISATION, 1).await;
    let mut sessions = JoinSet::new();
    let spending = Spending::default();
    for _ in 0..64 {
        let (world, spending) = (world.clone(), spending.clone());
        sessions.spawn(async move {
            loop {
                match world.ask(&spending, "key_1", MOST).await {
                    Allowed::Go(counted) => {
                        world.pay("key_1", MOST).await;
                        drop(counted);
                    }
                    Allowed::Wait => tokio::time::sleep(Duration::from_millis(20)).await,
                    Allowed::Stop(_) => return,
                    Allowed::Interrupted => panic!("nobody interrupts"),
                }
            }
        });
    }
    let mut counting = Box::pin(world.count());
    while let Some(ended) = tokio::select! {
        ended = sessions.join_next() => ended,
        () = &mut counting => unreachable!("it counts for ever"),
    } {
        ended.expect("no panic");
    }
    let spent = world.spent().await;
    assert!((USD..USD + MOST).contains(&spent), "{spent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_stopped_and_others_go_on() {
    let world = World::new().await;
    let now = SystemClock::new().now_ms();
    let spending = &world.spending;
    assert_eq!(*spending.stop(&world.store, world.org, now).await, SpendingStop::default());
    assert!(matches!(world.ask(spending, "key_a", USD).await, Allowed::Go(None)));
    world.limit(EACH_PERSON, 2).await;
    world.limit("key_rich", 10).await;
    for person in ["key_a", "key_rich"] {
        world.pay(person, 2 * USD + 1).await;
    }
    let spending = &Spending::default();
    let stop = spending.stop(&world.store, world.org, now).await;
    let author = |key: &str| domain::Author::of_key(key);
    assert!(stop.organisation.is_none());
    let reached = stop.of(Some(&author("key_a"))).expect("a limit");
    assert!(
        reached.message.starts_with("the limit of whoever wrote the prompt of 2.00 USD"),
        "{reached:?}"
    );
    assert!(reached.message.contains("2.01 USD is spent"), "{reached:?}");
    for free in [Some(author("key_rich")), Some(author("key_b")), None] {
        assert_eq!(stop.of(free.as_ref()), None, "{free:?}");
    }
    assert!(matches!(world.ask(spending, "key_a", 1).await, Allowed::Stop(_)));
    assert!(matches!(world.ask(spending, "key_rich", 1).await, Allowed::Go(Some(_))));
    // The rest of a limit may be used up by what runs.
    let Allowed::Go(counted) = world.ask(spending, "key_b", 3 * USD).await else {
        panic!("nothing runs")
    };
    assert!(matches!(world.ask(spending, "key_b", 1).await, Allowed::Wait));
    drop(counted);
    assert!(
        matches!(world.ask(spending, "key_b", 1).await, Allowed::Wait),
        "nobody has looked since"
    );
}
