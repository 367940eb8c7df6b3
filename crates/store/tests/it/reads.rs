//! What gateways read in one statement.

use domain::{MessageId, RecordedEvent, Seq};
use store::{Admission, MessageRow, StoreError};

use crate::script::every_kind;
use crate::world::World;

#[tokio::test]
async fn an_admission_knows_its_event_as_the_log_holds_it() {
    let world = World::new().await;
    let session = world.session().await;
    let prompt = world.prompt("hello \"there\" \u{1F980}");
    let first = world.try_admit(&session, &prompt).await.expect("an admission");
    let events = world.store.events(world.org, session.session.clone(), Seq(1), 10).await;
    let logged: Vec<RecordedEvent> = events.expect("a page");
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
        world.store.transcript(world.org, at, message, limit).await.expect("messages").messages
    };
    let all = read(None, 100).await;
    assert!(all.is_sorted_by_key(|row| row.seq));
    let parts: i64 = sqlx::query_scalar("SELECT count(*) FROM part WHERE session_id = $1")
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
    let newest = store.transcript(world.org, session.session.clone(), None, 1).await;
    let message = newest.expect("messages").messages[0].id.clone();
    let nothing = store.transcript(world.org, empty.session.clone(), None, 9).await;
    assert_eq!(nothing.expect("a session without messages").messages, []);
    let stranger = crate::world::organisation(store).await.0;
    let nobody: domain::SessionId = "ses_nobody".parse().expect("an id");
    for answer in [
        store
            .transcript(world.org, empty.session.clone(), Some(message.clone()), 1)
            .await
            .map(drop),
        store.transcript(stranger, session.session.clone(), Some(message), 1).await.map(drop),
        store.transcript(stranger, session.session.clone(), None, 1).await.map(drop),
        store.transcript(world.org, nobody.clone(), None, 1).await.map(drop),
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
    // The first to meet a dead connection closes all of them; what it answers is for its caller.
    let met = read().await;
    assert!(matches!(met, Err(StoreError::Database(_)) | Ok(_)), "{met:?}");
    for _ in 0..8 {
        assert_eq!(read().await.expect("a new connection").at, session);
    }
    world.store.close().await;
    assert!(matches!(read().await, Err(StoreError::Database(sqlx::Error::PoolClosed))));
}
