//! Deletions of sessions that hold much: at once for all readers, and page by page for the rows.
//
// Finding core-3 H1 (e): a session of 12,000 events held its own prompts, and an organisation's sums, for 14 s.

use domain::{SessionRef, Stamp};
use store::{Arrival, NewImport, Store, StoreError, StoreOptions};
use tokio::sync::mpsc;

use crate::doubled::{Server, long};
use crate::world::{World, organisation};

/// 20,000 events and a few.
const PROMPTS: i64 = 2_858;
/// The most rows of a page.
const PAGE: i64 = 5_000;
/// The rows are counted each time after so many pages.
const PAGES_BETWEEN: i64 = 3;

/// A session that holds much.
async fn large(world: &World) -> SessionRef {
    long(world, &mut Server::new(world).await, PROMPTS).await
}

async fn delete_session(world: &World, session: &SessionRef) {
    world.store.delete_session(world.org, session.session.clone()).await.expect("deleted");
}

async fn count(world: &World, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).bind(world.org.0).fetch_one(&world.root).await.expect("a count")
}

/// The rows of sessions without a head, in all tables that have them.
async fn left(world: &World) -> i64 {
    let rows = "SELECT coalesce(sum(n), 0)::bigint FROM (
        SELECT (xpath('/row/n/text()', query_to_xml(format(
            'SELECT count(*) AS n FROM %I t WHERE org_id = %L AND NOT EXISTS (
                SELECT FROM session_head h WHERE h.incarnation = t.incarnation)',
            c.table_name, $1), false, true, '')))[1]::text::bigint AS n
        FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
        WHERE c.table_schema = 'public' AND c.column_name = 'incarnation' AND t.table_type = 'BASE TABLE'
            AND c.table_name NOT LIKE 'session_change%') AS counts";
    sqlx::query_scalar(rows).bind(world.org.0).fetch_one(&world.root).await.expect("a count")
}

/// The prompts and turns in the sums of usage.
async fn used(world: &World) -> (i64, i64) {
    sqlx::query_as(
        "SELECT coalesce(sum(prompts), 0)::bigint, coalesce(sum(turns), 0)::bigint FROM usage_daily WHERE org_id = $1",
    )
    .bind(world.org.0)
    .fetch_one(&world.root)
    .await
    .expect("sums")
}

#[tokio::test]
async fn a_large_deletion_is_answered_before_its_rows_go() {
    let world = World::new().await;
    let (gone, other) = (large(&world).await, world.session().await);
    delete_session(&world, &gone).await;
    // Nobody finds it, and it is all there.
    let read = world.store.session(world.org, gone.session.clone()).await;
    assert!(matches!(read, Err(StoreError::NotFound)), "{read:?}");
    let again = world.store.delete_session(world.org, gone.session.clone()).await;
    assert!(matches!(again, Err(StoreError::NotFound)), "{again:?}");
    let prompt = world.prompt("hello");
    let refused = world.try_admit(&gone, &prompt).await;
    assert!(matches!(refused, Err(StoreError::NotFound)), "{refused:?}");
    let events = "SELECT count(*) FROM session_event WHERE org_id = $1";
    let before = count(&world, events).await;
    assert!(before > 20_000, "{before}");
    world.assert_sound(false).await;

    // Each page is a commit of its own, and others go on meanwhile.
    let (mut pages, mut rows) = (0, left(&world).await);
    loop {
        let prompt = world.prompt("hello");
        let beside = world.try_admit(&other, &prompt);
        let (is_more, admitted) = tokio::join!(world.store.clear_gone_session(world.org), beside);
        admitted.expect("admitted");
        pages += 1;
        if pages % PAGES_BETWEEN == 0 {
            let now = left(&world).await;
            assert!(rows - now <= PAGES_BETWEEN * PAGE, "{} rows in some pages", rows - now);
            rows = now;
        }
        if !is_more.expect("a page") {
            break;
        }
    }
    assert!(pages > 8, "{pages}");
    assert_eq!(left(&world).await, 0);
    assert_eq!(used(&world).await, (PROMPTS, PROMPTS));
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_kill_between_two_pages_loses_nothing() {
    let world = World::new().await;
    let gone = large(&world).await;
    // Some of it is counted already, and some is not.
    world.store.roll_up_usage(world.org, vec![gone.session.to_string()]).await.expect("sums");
    delete_session(&world, &gone).await;
    let mut killed = 0;
    loop {
        let store = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
        // One whose process dies in a page: what it had begun is taken back, whether it counts or deletes.
        if killed < 60 {
            let lost = Server::new(&world).await;
            lost.leave_in_a_page(world.org).await;
            killed += 1;
        }
        // One that finds the row still held by the dead leaves it to the next look.
        let is_more = store.clear_gone_session(world.org).await.expect("a page");
        if killed % 2 == 0 || !is_more {
            assert_eq!(world.store.usage_violations(world.org).await.expect("a recount"), []);
        }
        let due = store.organisations_with_gone_sessions().await.expect("an answer");
        store.close().await;
        if due.is_empty() {
            break;
        }
    }
    assert!(killed > 8, "{killed}");
    assert_eq!(left(&world).await, 0);
    assert_eq!(used(&world).await, (PROMPTS, PROMPTS));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn an_id_is_free_while_its_old_rows_go() {
    let world = World::new().await;
    let gone = large(&world).await;
    delete_session(&world, &gone).await;
    // An import brings ids that the old rows still have.
    let (_client, pages) = mpsc::channel(1);
    let new = NewImport {
        id: gone.session.clone(),
        location: world.location.clone(),
        events: 1,
        last_id: Stamp::default(),
        components: Vec::new(),
        files: None,
        now: 1,
    };
    let arrival = world.store.import(world.org, new, pages).await.expect("an answer");
    assert_eq!(arrival, Arrival::BeingRemoved);
    world.try_create(gone.session.clone(), &gone.location, None).await.expect("created");
    let prompt = world.admit(&gone, "hello").await;
    while world.store.clear_gone_session(world.org).await.expect("a page") {}
    assert_eq!(left(&world).await, 0);
    assert_eq!(world.head(&gone).await.pending, 1, "{prompt:?}");
    world.assert_sound(false).await;
}

#[tokio::test]
async fn an_organisation_clears_only_its_own() {
    let world = World::new().await;
    let gone = large(&world).await;
    delete_session(&world, &gone).await;
    let rows = left(&world).await;
    let (theirs, ..) = organisation(&world.store).await;
    assert!(!world.store.clear_gone_session(theirs).await.expect("nothing"));
    assert_eq!(left(&world).await, rows);
    let found = world.store.organisations_with_gone_sessions().await.expect("an answer");
    assert_eq!(found, [world.org]);
}
