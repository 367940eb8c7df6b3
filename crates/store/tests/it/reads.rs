//! Reads of gateways: in one statement, or in a transaction that may take its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::{MessageId, RecordedEvent, Seq};
use store::{Admission, MessageRow, Messages, Store, StoreError, StoreOptions};
use testkit::TestDatabase;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::script::every_kind;
use crate::world::World;

#[tokio::test]
async fn an_admission_knows_its_event_as_the_log_holds_it() {
    let world = World::new().await;
    let session = world.session().await;
    let prompt = world.prompt("hello \"there\" \u{1F980}");
    let first = world.try_admit(&session, &prompt).await.expect("an admission");
    let events = world.store.events(world.org, session.session.clone(), Seq(1), 10).await;
    let logged: Vec<RecordedEvent> = events.expect("a page").items;
    assert_eq!(first.recorded(), logged.first().cloned());
    assert_eq!(logged.len(), 1);
    let retry = world.try_admit(&session, &prompt).await.expect("a retry");
    assert_eq!((retry.admission, retry.recorded()), (Admission::Retry, None));
}

#[tokio::test]
async fn the_newest_messages_come_in_order_each_as_it_comes_alone() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let read = async |message: Option<MessageId>, limit: i64| -> Vec<MessageRow> {
        let at = session.session.clone();
        let which = message.map_or(Messages::Newest, Messages::One);
        world.store.transcript(world.org, at, which, limit).await.expect("messages").messages
    };
    let all = read(None, 100).await;
    assert!(all.is_sorted_by_key(|row| row.seq));
    let parts: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM part
         WHERE incarnation = (SELECT incarnation FROM session_head WHERE id = $1)",
    )
    .bind(session.session.as_str())
    .fetch_one(&world.root)
    .await
    .expect("a count");
    assert_eq!(
        all.iter().map(|row| row.parts.len()).sum::<usize>(),
        usize::try_from(parts).expect("few")
    );
    assert!(all.iter().flat_map(|row| &row.parts).any(|part| part.call.is_some()));
    for row in &all {
        assert_eq!(read(Some(row.id.clone()), 1).await, std::slice::from_ref(row));
    }
    assert_eq!(read(None, 2).await, all[all.len() - 2..]);
}

#[tokio::test]
async fn what_is_not_there_or_anothers_is_not_found() {
    let world = World::new().await;
    let (empty, session) = (world.session().await, every_kind(&world).await);
    let store = &world.store;
    let newest = store.transcript(world.org, session.session.clone(), Messages::Newest, 1).await;
    let message = newest.expect("messages").messages[0].id.clone();
    let nothing = store.transcript(world.org, empty.session.clone(), Messages::Newest, 9).await;
    assert_eq!(nothing.expect("a session without messages").messages, []);
    let stranger = crate::world::organisation(store).await.0;
    let nobody: domain::SessionId = "ses_nobody".parse().expect("an id");
    for answer in [
        store
            .transcript(world.org, empty.session.clone(), Messages::One(message.clone()), 1)
            .await
            .map(drop),
        store
            .transcript(stranger, session.session.clone(), Messages::One(message), 1)
            .await
            .map(drop),
        store.transcript(stranger, session.session.clone(), Messages::Newest, 1).await.map(drop),
        store.transcript(world.org, nobody.clone(), Messages::Newest, 1).await.map(drop),
        store.session(world.org, nobody).await.map(drop),
    ] {
        assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    }
}

#[tokio::test]
async fn statements_go_on_after_postgres_has_ended_their_connections() {
    let world = World::new().await;
    let session = world.session().await;
    let read = || world.store.session(world.org, session.session.clone());
    let backends = async |end: bool| -> i64 {
        let sql = "SELECT count(*) FILTER (WHERE NOT $1 OR pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND usename = 'oc_app'";
        sqlx::query_scalar(sql).bind(end).fetch_one(&world.root).await.expect("a count")
    };
    let all = tokio::join!(read(), read(), read(), read());
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok());
    assert!(backends(false).await >= 1, "connections that wait for the next call");
    backends(true).await;
    while backends(false).await > 0 {
        tokio::task::yield_now().await; // they end soon, and the test with them if they do not
    }
    // Findings cluster 12, scenarios F11, trial 6: dead idle connections cost nobody an answer. A connection is
    // trusted for 100 ms after its last use.
    sleep(Duration::from_millis(150)).await;
    for _ in 0..8 {
        assert_eq!(read().await.expect("a new connection").at, session);
    }
    world.store.close().await;
    assert!(matches!(read().await, Err(StoreError::Database(sqlx::Error::PoolClosed))));
}

/// A way to the database on which whoever has begun a transaction is slow to say what it wants.
struct SlowWay {
    store: Store,
    /// Messages to the database, each of which is answered before the next.
    trips: Arc<AtomicUsize>,
}

impl SlowWay {
    async fn to(database: &TestDatabase, after_begin: Duration) -> Self {
        let url = database.store_url();
        let (head, rest) = url.rsplit_once('@').expect("a credential");
        let (host, name) = rest.split_once('/').expect("a database");
        let (listener, host) =
            (TcpListener::bind("127.0.0.1:0").await.expect("a port"), host.to_owned());
        let port = listener.local_addr().expect("an address").port();
        let trips = Arc::<AtomicUsize>::default();
        let counted = trips.clone();
        tasks_of(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&host).await.expect("the database");
                tasks_of(carry(client, server, after_begin, counted.clone()));
            }
        });
        let options = StoreOptions {
            gateway_connections: 1,
            ..StoreOptions::new(format!("{head}@127.0.0.1:{port}/{name}"))
        };
        Self { store: Store::connect(&options).expect("a URL"), trips }
    }

    /// The round trips of a call that was made before, so that its statements are known.
    async fn trips_of<T>(&self, call: impl AsyncFn(&Store) -> Result<T, StoreError>) -> usize {
        call(&self.store).await.expect("an answer");
        let mut fewest = usize::MAX;
        for _ in 0..5 {
            let before = self.trips.load(Ordering::SeqCst);
            call(&self.store).await.expect("an answer");
            // On a busy machine a connection may stand idle between two calls, and is asked whether it is there.
            fewest = fewest.min(self.trips.load(Ordering::SeqCst) - before);
        }
        fewest
    }
}

#[expect(clippy::disallowed_methods, reason = "they end with the test's runtime")]
fn tasks_of(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

async fn carry(client: TcpStream, server: TcpStream, wait: Duration, trips: Arc<AtomicUsize>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    tasks_of(async move { drop(copy(&mut from_server, &mut to_client).await) });
    let (mut bytes, mut begun) = (vec![0; 64 * 1024], false);
    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
        if begun {
            sleep(wait).await;
        }
        trips.fetch_add(1, Ordering::SeqCst);
        begun = bytes[..length].windows(5).any(|word| word == b"BEGIN");
        if to_server.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

/// Others' transactions are ended after a second, since somebody may wait for their locks.
#[tokio::test]
async fn a_read_may_stop_for_longer_than_anybody_would_wait_for_a_lock() {
    let world = World::new().await;
    let session = world.session().await;
    let slow = SlowWay::to(&world.database, Duration::from_millis(1_300)).await;
    let entries = slow.store.entries(world.org, session.session.clone()).await;
    assert_eq!(entries.expect("an answer"), []);
}

#[tokio::test]
async fn the_round_trips_of_reads_are_counted() {
    let world = World::new().await;
    let session = world.session().await;
    let way = SlowWay::to(&world.database, Duration::ZERO).await;
    let (org, id) = (world.org, || session.session.clone());
    assert_eq!(way.trips_of(async |store| store.session(org, id()).await).await, 1);
    assert_eq!(way.trips_of(async |store| store.entries(org, id()).await).await, 3);
    assert_eq!(way.trips_of(async |store| store.inbox(org, id(), Seq(0), 9).await).await, 3);
    assert_eq!(
        way.trips_of(async |store| store.project(org, world.project.clone()).await).await,
        3
    );
    // A row that it does not find leaves the connection as it was.
    let nobody: domain::SessionId = "ses_nobody".parse().expect("an id");
    let missing = way.store.entries(org, nobody).await;
    assert!(matches!(missing, Err(StoreError::NotFound)), "{missing:?}");
    assert_eq!(way.trips_of(async |store| store.session(org, id()).await).await, 1);
}
