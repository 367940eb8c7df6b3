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
