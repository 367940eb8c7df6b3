//! The SQL functions of a database are the files of `crates/store/sql`, each of them once, and each with a caller.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use store::StoreError;

use crate::world::World;

fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of each file by the name of its function.
fn files() -> BTreeMap<String, String> {
    let folder = fs::read_dir(crate_root().join("sql")).expect("the folder of functions");
    let text = |path: PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("a file"))
    };
    folder.map(|entry| text(entry.expect("an entry").path())).collect()
}

/// The state of each function in Postgres: the transaction that wrote its row, and its definition.
async fn definitions(root: &mut PgConnection) -> BTreeMap<String, (i64, String)> {
    let rows: Vec<(String, i64, String)> = sqlx::query_as(
        "SELECT proname::text, xmin::text::bigint, pg_get_functiondef(oid) FROM pg_proc
         WHERE pronamespace = 'public'::regnamespace",
    )
    .fetch_all(root)
    .await
    .expect("the catalog");
    rows.into_iter().map(|(name, writer, text)| (name, (writer, text))).collect()
}

async fn run(root: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(root).await.expect(sql);
}

async fn superuser(world: &World) -> PgConnection {
    PgConnection::connect(&world.database.superuser_url()).await.expect("a connection")
}

// Finding style 1: the current text of each function stands in one file.
#[tokio::test]
async fn the_functions_of_a_database_are_the_files() {
    let world = World::new().await;
    let mut root = superuser(&world).await;
    let before = definitions(&mut root).await;
    let files = files();
    assert!(before.keys().eq(files.keys()), "{:?}\n{:?}", before.keys(), files.keys());
    run(&mut root, "SET check_function_bodies = off").await;
    for (name, text) in &files {
        run(&mut root, text).await;
        let made = definitions(&mut root).await;
        assert_eq!(made.len(), files.len(), "{name}.sql defines a function of another name");
        assert_eq!(made[name].1, before[name].1);
    }
}

#[tokio::test]
async fn migrate_replaces_only_functions_that_differ() {
    let world = World::new().await;
    let mut root = superuser(&world).await;
    let before = definitions(&mut root).await;
    run(
        &mut root,
        "SET ROLE oc_owner; SET check_function_bodies = off;
         ALTER FUNCTION clock_ms() SET search_path = public;
         DROP FUNCTION spend_wakes(uuid, text);
         CREATE FUNCTION spend_wakes(p_org uuid) RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE FUNCTION of_another_build() RETURNS void LANGUAGE sql AS 'SELECT'; RESET ROLE",
    )
    .await;
    store::migrate(&world.database.url("oc_migrate")).await.expect("migrated");
    let after = definitions(&mut root).await;
    for (name, (writer, text)) in &after {
        assert_eq!(text, &before[name].1);
        let is_untouched = *writer == before[name].0;
        assert_eq!(is_untouched, !["clock_ms", "spend_wakes"].contains(&name.as_str()), "{name}");
    }
    assert_eq!(after.len(), before.len());
}

#[tokio::test]
async fn a_function_that_cannot_be_replaced_is_named() {
    let world = World::new().await;
    let mut root = superuser(&world).await;
    run(
        &mut root,
        "SET ROLE oc_owner; DROP FUNCTION clock_ms();
         CREATE FUNCTION clock_ms() RETURNS text LANGUAGE sql AS 'SELECT ''1''::text'",
    )
    .await;
    let before = definitions(&mut root).await;
    let error = store::migrate(&world.database.url("oc_migrate")).await.expect_err("refused");
    let StoreError::Schema(message) = error else { panic!("{error:?}") };
    assert_eq!(message, "cannot replace clock_ms: cannot change return type of existing function");
    assert_eq!(definitions(&mut root).await, before);
}

/// A function without a caller misleads its readers. One that only the build before calls says so in its file
/// with a line that begins with `-- For the build before:`.
#[test]
fn every_function_has_a_caller() {
    let files = files();
    let mut callers: Vec<(String, String)> =
        files.iter().map(|(name, text)| (name.clone(), without_comments(text))).collect();
    for entry in fs::read_dir(crate_root().join("src")).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let text = fs::read_to_string(&path).expect("a file");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            callers.push((path.display().to_string(), code));
        }
    }
    for (name, text) in &files {
        let call = format!("{name}(");
        let is_called = callers.iter().any(|(caller, code)| caller != name && calls(code, &call));
        let is_kept = text.lines().any(|line| line.starts_with("-- For the build before:"));
        assert!(is_called || is_kept, "nothing calls {name}: delete its file");
    }
}

/// Whether `call` stands in `code` as a whole word.
fn calls(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_.!".contains(c))
            && !code[..at].ends_with("fn ")
            && !code[..at].ends_with("FUNCTION ")
    })
}

fn without_comments(sql: &str) -> String {
    sql.lines()
        .map(|line| line.split("--").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_call_is_a_whole_word() {
    assert!(calls("SELECT clock_ms()", "clock_ms("));
    for other in ["SELECT the_clock_ms()", "fn clock_ms()", "self.clock_ms()"] {
        assert!(!calls(other, "clock_ms("), "{other}");
    }
}
