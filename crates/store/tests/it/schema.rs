use domain::FeatureLevel;
use sqlx::{Connection, PgConnection};
use store::{FIRST_SCHEMA, SCHEMA_VERSION, Store, StoreError};

use crate::script::every_kind;
use crate::world::World;

/// Every object of the schema with its definition.
async fn shape(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type
         FROM information_schema.columns WHERE table_schema = 'public'
         UNION ALL SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p
             WHERE pronamespace = 'public'::regnamespace
         UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
         UNION ALL SELECT 'policy ' || p::text FROM pg_policies p
         UNION ALL SELECT 'migration ' || m::text FROM _sqlx_migrations m ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog")
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let (before, rows) = (shape(&world).await, world.rows(&session).await);
    assert!(before.len() > 100, "{}", before.len());
    store::migrate(&world.database.url("oc_migrate")).await.expect("nothing to do");
    assert_eq!(shape(&world).await, before);
    assert_eq!(world.rows(&session).await, rows);
    let version = store::schema_version(&world.database.store_url()).await.expect("a version");
    assert_eq!(version, SCHEMA_VERSION);
}

#[tokio::test]
async fn data_of_a_newer_schema_is_refused_with_what_to_do() {
    let world = World::new().await;
    let newer = SCHEMA_VERSION + 1;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES ($1, 'from the future', true, '', 0)",
    )
    .bind(newer)
    .execute(&world.root)
    .await
    .expect("a row");
    let before = shape(&world).await;
    let error = store::migrate(&world.database.url("oc_migrate")).await.expect_err("newer");
    let StoreError::Schema(message) = error else { panic!("{error:?}") };
    let expected = format!(
        "the data is of schema {newer} and this build knows {SCHEMA_VERSION}: \
         start a newer build, or restore a backup made by this one"
    );
    assert_eq!(message, expected);
    assert_eq!(shape(&world).await, before);
    let version = store::schema_version(&world.database.store_url()).await.expect("a version");
    assert_eq!(version, newer);
}

#[tokio::test]
async fn data_from_before_the_baseline_is_refused() {
    let world = World::new().await;
    let older = FIRST_SCHEMA - 1;
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version > $1")
        .bind(FIRST_SCHEMA)
        .execute(&world.root)
        .await
        .expect("one migration");
    sqlx::query("UPDATE _sqlx_migrations SET version = $1")
        .bind(older)
        .execute(&world.root)
        .await
        .expect("an older schema");
    let before = shape(&world).await;
    let error = store::migrate(&world.database.url("oc_migrate")).await.expect_err("older");
    let expected = format!(
        "the data is of schema {older}, which this build cannot carry over (it begins at {FIRST_SCHEMA}): \
         begin anew with an empty data folder (--data-dir) or an empty database, \
         or keep using the build that made the data"
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(store::refuse_older(older).expect_err("older").to_string(), expected);
    assert_eq!(shape(&world).await, before);
}

// Finding store 9: only an empty database begins at the newest level; migrations never raise it.
#[tokio::test]
async fn only_an_empty_database_begins_at_the_newest_level() {
    let world = World::new().await;
    let migrate = world.database.url("oc_migrate");
    let level = || async { Store::read_cluster(&migrate).await.expect("a row").feature_level };
    assert_eq!(level().await, FeatureLevel::OF_THIS_BUILD);
    sqlx::query("UPDATE cluster SET feature_level = 1").execute(&world.root).await.expect("set");
    store::migrate(&migrate).await.expect("nothing to do");
    assert_eq!(level().await, FeatureLevel::FIRST);
    assert_eq!(
        Store::raise_feature_level(&migrate).await.expect("raised"),
        FeatureLevel::OF_THIS_BUILD
    );
}

// Finding store 17: a migration gives up a lock that it waits for, lets others pass, and tries again.
#[tokio::test]
async fn a_migration_waits_for_a_lock_again_and_again() {
    let world = World::new().await;
    let mut holder = world.root.begin().await.expect("a transaction");
    sqlx::query("LOCK TABLE _sqlx_migrations").execute(&mut *holder).await.expect("locked");
    let url = world.database.url("oc_migrate");
    let release = async {
        for waits in [true, false, true] {
            while waiting(&world).await != waits {}
        }
        holder.rollback().await.expect("released");
    };
    // Finding ops-3, polish: two minutes could pass without a line.
    let mut said = 0;
    let (migrated, ()) = tokio::join!(store::migrate_noting(&url, || said += 1), release);
    migrated.expect("migrated");
    assert_eq!(said, 1);
}

// Finding ops-3, polish: refusals ended with a line of Postgres's source, and none told a full server from a silent one.
#[tokio::test]
async fn postgres_is_quoted_and_its_cause_is_known() {
    let world = World::new().await;
    let said = async |statement: &'static str| {
        let refused = sqlx::raw_sql(statement).execute(&world.root).await.expect_err("refused");
        StoreError::from(refused)
    };
    let raises = |code: &str| {
        format!(
            "DO $$ BEGIN RAISE EXCEPTION 'no more' USING ERRCODE = '{code}', HINT = 'do this'; END $$"
        )
    };
    let [full, crowded, other] = ["53100", "53300", "42501"].map(|code| &*raises(code).leak());
    for (statement, sentence, is_full, is_crowded) in [
        ("SELECT 1 / 0", "division by zero", false, false),
        (full, "no more; do this", true, false),
        (crowded, "no more; do this", false, true),
        (other, "no more; do this", false, false),
    ] {
        let error = said(statement).await;
        assert_eq!(error.make_sentence(), sentence);
        assert_eq!(
            (error.is_full(), error.has_too_many_clients()),
            (is_full, is_crowded),
            "{error:?}"
        );
        assert!(error.has_answered());
    }
    let silent = store::schema_version("postgres://oc_sched:x@127.0.0.1:1/none").await;
    let silent = silent.expect_err("nobody is there");
    assert!(!silent.has_answered() && !silent.make_sentence().is_empty(), "{silent:?}");
    let gone = world.database.url("oc_nobody");
    let refused = store::schema_version(&gone).await.expect_err("no such role").make_sentence();
    assert!(refused.contains("oc_nobody") && !refused.contains(" at line "), "{refused}");
}

async fn waiting(world: &World) -> bool {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_stat_activity
         WHERE usename = 'oc_migrate' AND datname = current_database() AND wait_event_type = 'Lock')",
    )
    .fetch_one(&world.root)
    .await
    .expect("an answer")
}

// Finding store 13: settings are the roles', so that a pooler need not pass them on.
#[tokio::test]
async fn a_role_brings_its_settings_to_every_connection() {
    let world = World::new().await;
    for role in ["oc_app", "oc_sched"] {
        let mut bare =
            PgConnection::connect(&world.database.url(role)).await.expect("a connection");
        for (name, value) in [
            ("idle_in_transaction_session_timeout", "1s"),
            ("statement_timeout", "30s"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            ("jit", "off"),
            ("max_parallel_workers_per_gather", "0"),
        ] {
            let shown: String = sqlx::query_scalar("SELECT current_setting($1)")
                .bind(name)
                .fetch_one(&mut bare)
                .await
                .expect("a setting");
            assert_eq!(shown, value, "{role} {name}");
        }
    }
}

/// A later table cannot forget it: whatever has `org_id` belongs to a tenant.
#[tokio::test]
async fn every_table_of_a_tenant_is_closed_to_the_others() {
    let world = World::new().await;
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname || CASE
             WHEN NOT (c.relrowsecurity AND c.relforcerowsecurity) THEN ': FORCE ROW LEVEL SECURITY is missing'
             WHEN o.rolname <> 'oc_owner' THEN ': owned by ' || o.rolname
             ELSE ': oc_app needs the one policy \"tenant\", for all commands' END
         FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'v', 'f')
             AND (NOT (c.relrowsecurity AND c.relforcerowsecurity) OR o.rolname <> 'oc_owner'
                 OR ARRAY['tenant'] <> ARRAY(SELECT p.policyname::text FROM pg_policies p
                     WHERE p.schemaname = 'public' AND p.tablename = c.relname
                         AND p.roles && ARRAY['oc_app', 'public']::name[])
                 OR NOT EXISTS (SELECT FROM pg_policies p
                     WHERE p.schemaname = 'public' AND p.tablename = c.relname AND p.policyname = 'tenant'
                         AND p.cmd = 'ALL' AND p.permissive = 'PERMISSIVE' AND p.qual = p.with_check
                         AND p.qual = '(org_id = (NULLIF(current_setting(''oc.org''::text, true), ''''::text))::uuid)'))
         ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog");
    assert_eq!(open, Vec::<String>::new());

    let shared: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT EXISTS (
             SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'org_id')
         ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog");
    // The tables of no tenant. A table that joins them must hold nothing of one.
    assert_eq!(
        shared,
        ["_sqlx_migrations", "catalog_snapshot", "change_epoch", "chore", "cluster"]
    );
}

/// A key begins with the organisation, or with a session's number. That keeps organisations apart too: the number is unique
/// over the whole database, and is found only by (organisation, session id).
#[tokio::test]
async fn every_key_leads_with_the_organisation_and_functions_pin_their_search_path() {
    let world = World::new().await;
    let keys: Vec<String> = sqlx::query_scalar(
        "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'
         LEFT JOIN pg_attribute n ON n.attrelid = c.oid AND n.attname = 'incarnation'
         WHERE c.relnamespace = 'public'::regnamespace AND i.indkey[0] <> a.attnum
             AND i.indkey[0] IS DISTINCT FROM n.attnum ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog");
    // A key is looked up by its hash, or its id, before its tenant is known, and so are a recovery code and a connection
    // to an identity provider, from which a browser comes back. The scheduler looks for what is due in every organisation.
    assert_eq!(
        keys,
        [
            "api_key_hash_key",
            "ask_expiring",
            "idp_id_key",
            "key_secret_key_id_hash_key",
            "recovery_code_hash_key",
            "session_out_asked",
        ]
    );
    let loose: Vec<String> = sqlx::query_scalar(
        "SELECT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = 'public'::regnamespace AND (p.prosecdef
             OR has_function_privilege('oc_sched', p.oid, 'EXECUTE')
             OR (p.prosqlbody IS NULL AND NOT coalesce('search_path=public, pg_temp' = ANY (p.proconfig), false)))",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog");
    assert_eq!(loose, Vec::<String>::new());
}

#[tokio::test]
async fn provisioning_again_keeps_roles_and_data() {
    let world = World::new().await;
    let session = every_kind(&world).await;
    let rows = world.rows(&session).await;
    let url = world.database.url("oc_app");
    let password = store::url_password(&url).expect("a URL").expect("a password");
    // The roles are the server's, which other tests share: the passwords stay what they are.
    let passwords = store::RolePasswords { migrate: password.clone(), serve: password };
    for _ in 0..2 {
        store::provision(&world.database.superuser_url(), &passwords).await.expect("provisioned");
    }
    PgConnection::connect(&url).await.expect("still let in");
    assert_eq!(world.rows(&session).await, rows);
}
