use domain::{LocationRef, SessionRef};
use sqlx::{Connection, PgConnection, Row};
use store::{NewPrompt, Seed, SessionFilter, Store, StoreError, StoreOptions};

use crate::files::tree;
use crate::forks::new_fork;
use crate::script::every_kind;
use crate::world::{World, organisation};

/// The SQLSTATE with which a statement is refused.
async fn refusal(connection: &mut PgConnection, sql: &'static str) -> String {
    let error = sqlx::raw_sql(sql).execute(connection).await.expect_err(sql);
    let code = error.as_database_error().and_then(|error| error.code().map(String::from));
    code.unwrap_or_else(|| panic!("{sql}: {error}"))
}

const FORBIDDEN: &str = "42501";

#[tokio::test]
async fn another_tenants_session_is_not_found_whatever_is_asked() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let before = world.rows(&session).await;
    let (stranger, ..) = organisation(&world.store).await;
    let id = || session.session.clone();
    let prompt = NewPrompt { session: id(), prompt: world.prompt("hello"), now: world.tick() };
    let store = &world.store;
    let foreign = SessionRef { org: stranger, ..session.clone() };
    let theirs = LocationRef { org: stranger, location: world.location.clone() };
    let seed = Seed { location: world.location.clone(), tree: tree('a') };
    let answers = [
        store.admit_prompt(stranger, prompt).await.map(drop),
        store.interrupt(stranger, id(), None, world.tick()).await.map(drop),
        store.session(stranger, id()).await.map(drop),
        store.events(stranger, id(), domain::Seq(0), 10).await.map(drop),
        store.rebuild(stranger, id(), false).await.map(drop),
        store.delete_session(stranger, id()).await,
        store.commit_revert(stranger, id(), world.tick()).await.map(drop),
        store.interrupt_and_resume(stranger, id(), None, world.tick()).await.map(drop),
        store.changes(stranger, id(), None, domain::Seq(0), 10).await.map(drop),
        store.seed_location(theirs.clone(), seed).await,
    ];
    for (n, answer) in answers.iter().enumerate() {
        assert!(matches!(answer, Err(StoreError::NotFound)), "{n}: {answer:?}");
    }
    let fork = store.fork(stranger, new_fork(&world, &session)).await.expect("an answer");
    assert_eq!(fork, store::Creation::Orphan);
    assert_eq!(store.workspace_packs(theirs).await.expect("a list"), []);
    assert_eq!(world.refused(&foreign, 1).await, "idle");
    let all = SessionFilter { with_archived: true, ..SessionFilter::default() };
    assert_eq!(store.sessions(stranger, all, 10).await.expect("a list").rows, []);
    assert_eq!(world.rows(&session).await, before);
}

#[tokio::test]
async fn a_connection_sees_only_the_tenant_that_its_transaction_names() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let (stranger, ..) = organisation(&world.store).await;
    let mut app = PgConnection::connect(&world.database.url("oc_app")).await.expect("a connection");
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT table_name::text FROM information_schema.columns
         WHERE table_schema = 'public' AND column_name = 'org_id' ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("tables");
    assert!(tables.len() >= 20, "{tables:?}");
    let count = tables.iter().map(|table| format!("(SELECT count(*) FROM {table})"));
    let count = format!("SELECT {}", count.collect::<Vec<_>>().join(" + "));
    let seen = async |app: &mut PgConnection| -> i64 {
        let sql = sqlx::AssertSqlSafe(count.clone());
        sqlx::query_scalar(sql).fetch_one(app).await.expect("a count")
    };
    assert_eq!(seen(&mut app).await, 0, "before any tenant was named");
    for (org, sees) in [(session.org, true), (stranger, true), (domain::OrgId::random(), false)] {
        let begin = format!("BEGIN; SET LOCAL oc.org = '{org}'");
        let mut tx = app.begin_with(sqlx::AssertSqlSafe(begin)).await.expect("a transaction");
        assert_eq!(seen(&mut tx).await > 0, sees);
        tx.commit().await.expect("committed");
        // A pool hands this connection out next: the setting is '' now, and no longer NULL.
        let left = sqlx::query("SELECT current_setting('oc.org', true)").fetch_one(&mut app).await;
        assert_eq!(left.expect("a row").get::<Option<String>, _>(0), Some(String::new()));
        assert_eq!(seen(&mut app).await, 0, "after a tenant's transaction");
    }
    // Nor can a row be written into another tenant.
    let begin = format!("BEGIN; SET LOCAL oc.org = '{stranger}'");
    let mut tx = app.begin_with(sqlx::AssertSqlSafe(begin)).await.expect("a transaction");
    let smuggled = sqlx::query(
        "INSERT INTO project (org_id, id, worktree, created_ms) VALUES ($1, 'prj_x', '/x', 1)",
    )
    .bind(session.org.0);
    let error = smuggled.execute(&mut *tx).await.expect_err("row-level security");
    assert_eq!(error.as_database_error().and_then(|e| e.code()).as_deref(), Some(FORBIDDEN));
}

#[tokio::test]
async fn the_log_and_components_cannot_be_rewritten_by_those_who_serve() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let before = world.rows(&session).await;
    let mut app = PgConnection::connect(&world.database.url("oc_app")).await.expect("a connection");
    for sql in [
        "UPDATE session_event SET payload = '{}'",
        "UPDATE request_component SET bytes = ''",
        "UPDATE cluster SET generation = 1",
        "UPDATE cluster SET feature_level = 1",
        "UPDATE workspace_pack SET pack = NULL",
        "UPDATE session_head SET incarnation = 1",
        "TRUNCATE session_event",
        "ALTER TABLE session_event DISABLE ROW LEVEL SECURITY",
        "SET ROLE oc_owner",
        "SET ROLE oc_migrate",
        "CREATE TABLE mine ()",
    ] {
        assert_eq!(refusal(&mut app, sql).await, FORBIDDEN, "{sql}");
    }
    assert_eq!(world.rows(&session).await, before);
}

#[tokio::test]
async fn the_scheduler_sees_ids_of_all_tenants_and_neither_content_nor_a_way_to_change_it() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let mut sched =
        PgConnection::connect(&world.database.url("oc_sched")).await.expect("a connection");
    let heads: Vec<String> =
        sqlx::query_scalar("SELECT id FROM session_head").fetch_all(&mut sched).await.expect("ids");
    assert_eq!(heads, [session.session.as_str()]);
    for sql in [
        "SELECT payload FROM session_event",
        "SELECT kind FROM session_input",
        "SELECT text FROM part",
        "SELECT title FROM session",
        "SELECT directory FROM location",
        "SELECT worktree FROM project",
        "SELECT name FROM organisation",
        "SELECT name FROM api_key",
        "SELECT name FROM principal",
        "SELECT email FROM principal",
        "SELECT user_id FROM login_link",
        "SELECT auth_ms FROM login_link",
        "SELECT * FROM login_link",
        "UPDATE login_link SET used_ms = NULL",
        "SELECT user_id FROM recovery_code",
        "SELECT about FROM alert",
        "UPDATE recovery_code SET used_ms = NULL",
        "UPDATE principal SET role = 'owner'",
        "UPDATE login SET ended_ms = 0",
        "SELECT bytes FROM request_component",
        "SELECT * FROM session_head",
        "UPDATE session_head SET claim = 99",
        "UPDATE location SET fence = 99",
        "DELETE FROM session_head",
        "DELETE FROM api_key",
        "INSERT INTO location (org_id, id) VALUES (gen_random_uuid(), 'loc_x')",
        "SELECT take_fence(gen_random_uuid(), 'loc_x', 1)",
        "SELECT pending FROM session_head FOR UPDATE",
    ] {
        assert_eq!(refusal(&mut sched, sql).await, FORBIDDEN, "{sql}");
    }
}

/// A process that was given a superuser's URL still serves as the roles that are bound by policies.
#[tokio::test]
async fn a_store_never_serves_as_the_user_of_its_url() {
    let world = World::new().await;
    let session = world.session().await;
    let url = world.database.superuser_url();
    let mut options = StoreOptions::new(url);
    let own = store::url_password(&world.database.store_url()).expect("a URL");
    options.password = own;
    let store = Store::connect(&options).expect("a URL");
    let (stranger, ..) = organisation(&store).await;
    let answer = store.session(stranger, session.session.clone()).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    assert_eq!(
        store.session(session.org, session.session.clone()).await.expect("ours").at,
        session
    );
}

#[tokio::test]
async fn organisations_are_listed_page_by_page() {
    let world = World::new().await;
    let (other, ..) = organisation(&world.store).await;
    let mut all = [world.org, other];
    all.sort();
    let page = |after| world.store.organisations(after, 1);
    assert_eq!(page(None).await.expect("a page"), all[..1]);
    assert_eq!(page(Some(all[0])).await.expect("a page"), all[1..]);
    assert_eq!(page(Some(all[1])).await.expect("a page"), []);
}
