//! Which sessions each commit has changed.

use domain::Seq;
use store::{DrainEnd, StoreError};

use crate::script::promoted;
use crate::world::World;

/// A row of `session_change`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct Change {
    xid: String,
    session_id: String,
    first: i32,
    last: i32,
    gone: bool,
    slot: i16,
}

async fn changes(world: &World) -> Vec<Change> {
    let rows = sqlx::query_as(
        "SELECT xid::text AS xid, session_id, first, last, gone, slot FROM session_change c ORDER BY c.xid, c.first",
    );
    rows.fetch_all(&world.root).await.expect("changes")
}

#[tokio::test]
async fn a_commit_says_which_events_of_which_session_are_new() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    let told = changes(&world).await;
    let spans: Vec<_> = told.iter().map(|it| (it.first, it.last, it.gone)).collect();
    assert_eq!(spans, [(1, 1, false), (2, 2, false), (3, 3, false)]);
    assert!(told.iter().all(|it| it.session_id == session.session.as_str()));
    let numbers: std::collections::BTreeSet<_> = told.iter().map(|it| &it.xid).collect();
    assert_eq!(numbers.len(), told.len(), "each is another commit");
    assert_eq!(world.head(&session).await.next_seq, Seq(4).0);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_deleted_tree_leaves_a_row_for_each_session() {
    let world = World::new().await;
    let parent = world.session().await;
    let child = world.child(&parent).await;
    world.store.delete_session(world.org, parent.session.clone()).await.expect("deleted");
    let gone = changes(&world).await.into_iter().filter(|it| it.gone);
    let mut gone: Vec<_> = gone.map(|it| it.session_id).collect();
    gone.sort();
    let mut expected = [parent.session.to_string(), child.session.to_string()];
    expected.sort();
    assert_eq!(gone, expected);
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_no_row() {
    let world = World::new().await;
    world.session().await;
    let before = changes(&world).await;
    let answer = world.store.delete_session(world.org, "ses_nobody".parse().expect("an id")).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    assert_eq!(changes(&world).await, before);
    assert_eq!(world.unannounced().await, Vec::<String>::new());
}

#[tokio::test]
async fn rows_of_three_hours_ago_are_forgotten_and_no_others() {
    let world = World::new().await;
    world.session().await;
    let now = changes(&world).await;
    let [Change { slot, .. }] = now.as_slice() else { panic!("{now:?}") };
    // Rows as those hours left them: the hour before, the one before that, and the one that comes next.
    for ago in 1..=3 {
        sqlx::query(
            "INSERT INTO session_change (slot, first, last, incarnation, org_id, session_id)
             VALUES ($1, 1, 1, 1, $2, $3)",
        )
        .bind((slot + 4 - ago) % 4)
        .bind(world.org.0)
        .bind(format!("{ago} hours ago"))
        .execute(&world.root)
        .await
        .expect("a row");
    }
    assert!(world.store.forget_changes().await.expect("forgotten"));
    let left: Vec<_> = changes(&world).await.into_iter().map(|it| it.session_id).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains(&"3 hours ago".to_owned()), "{left:?}");
    assert!(!world.store.forget_changes().await.expect("nothing is left"));
}

// Finding core-3 M3: a gateway looked at the newest sessions, and at those that were busy when it looked.
#[tokio::test]
async fn a_reader_sees_every_commit_after_its_position() {
    let world = World::new().await;
    world.fence(1).await;
    let (one, two) = (world.session().await, world.session().await);
    let read =
        async |after| world.store.session_changes(world.org, after, 100).await.expect("changes");
    let list = read(None).await;
    assert!(list.is_list);
    let listed: Vec<_> = list.sessions.iter().map(|it| (it.last, it.gone)).collect();
    assert_eq!(listed, [(Seq(1), false); 2]);
    assert!(list.sessions.iter().all(|it| it.location.as_ref() == Some(&one.location)));
    let same = read(Some(list.position.clone())).await;
    assert_eq!((same.is_list, same.sessions), (false, Vec::new()));

    // A commit that was open when the position was read comes later, and is not passed over.
    let mut late = world.root.begin().await.expect("a transaction");
    sqlx::query(
        "INSERT INTO session_change (first, last, incarnation, org_id, session_id)
         SELECT 7, 9, incarnation, org_id, id FROM session_head WHERE id = $1",
    )
    .bind(one.session.as_str())
    .execute(&mut *late)
    .await
    .expect("a row");
    world.admit(&two, "hello").await;
    let early = read(Some(list.position)).await;
    let spans = |changes: &store::SessionChanges| -> Vec<_> {
        let spans = changes.sessions.iter();
        spans.map(|it| (it.session.clone(), it.first.0, it.last.0, it.gone)).collect()
    };
    assert_eq!(spans(&early), [(two.session.clone(), 2, 2, false)]);
    late.commit().await.expect("committed");
    let news = read(Some(early.position)).await;
    assert_eq!(spans(&news), [(one.session.clone(), 7, 9, false)]);

    world.store.delete_session(world.org, two.session.clone()).await.expect("deleted");
    let news = read(Some(news.position)).await;
    assert_eq!(spans(&news), [(two.session.clone(), 0, 0, true)]);
    assert_eq!(news.sessions[0].location, None);

    // Postgres empties both when it recovers from a crash.
    sqlx::raw_sql("TRUNCATE session_change; TRUNCATE change_epoch")
        .execute(&world.root)
        .await
        .expect("empty");
    let again = read(Some(news.position)).await;
    assert!(again.is_list);
    assert_eq!(spans(&again), [(one.session.clone(), 0, 1, false)]);
}
