//! The SQL functions: one file of `sql/` each, the only definition of its function.
//!
//! They are not migrated, but replaced: `migrate` makes the functions of a database equal to the files. A function
//! that another build may still call keeps its file (`migrations/README.md`).

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::StoreError;

macro_rules! functions {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../sql/", $name, ".sql")))),*]
    };
}

/// The name of each function and the text of its file.
const FUNCTIONS: &[(&str, &str)] = functions![
    "add_counts",
    "add_usage",
    "add_usage_facts",
    "admit_control",
    "admit_prompt",
    "admit_prompts",
    "advance_head",
    "answer_ask",
    "append_events",
    "cancel_input",
    "change_delivery",
    "changed_sessions",
    "claim_chore",
    "clear_gone_session",
    "clock_ms",
    "collect_components",
    "collect_locations",
    "collect_packs",
    "collect_workspaces",
    "commit_revert",
    "commit_staged",
    "count_gone_session",
    "covered_asks",
    "create_session",
    "delete_session",
    "drop_projections",
    "due_usage",
    "edit_session",
    "forget_blobs",
    "forget_changes",
    "fork_session",
    "held_inputs",
    "hold_provider",
    "idle_head",
    "import_session",
    "inbox_has_room",
    "inbox_size",
    "interrupt_and_resume",
    "interrupt_session",
    "is_held",
    "is_stopping",
    "list_children",
    "location_lock",
    "log_event",
    "look_at_drain",
    "look_at_drains",
    "move_session",
    "name_components",
    "note_unnamed_blobs",
    "page_bytes",
    "project_events",
    "projection_rows",
    "projector_version",
    "prove_claim",
    "publish_settings",
    "put_catalog",
    "put_components",
    "rate_shift",
    "rate_wait",
    "read_changes",
    "read_children",
    "read_credential",
    "read_log",
    "read_logs",
    "read_message_page",
    "read_messages",
    "read_organisation_instructions",
    "read_provider_settings",
    "read_session",
    "read_session_changes",
    "read_settings",
    "read_usage",
    "recount_usage",
    "remove_entry",
    "rename_session",
    "reply_text",
    "roll_up_usage",
    "seed_location",
    "session_tree",
    "set_entry",
    "show_session",
    "spend_wakes",
    "take_fence",
    "take_numbers",
    "take_provider_rate",
    "take_provider_rate_at",
    "take_refresh",
    "usage_facts",
    "usage_sums",
    "used_locations",
    "wake_session",
    "write_drain",
    "write_drains",
];

/// Functions by name and argument types, which is how Postgres tells them apart.
type Definitions = BTreeMap<String, Function>;

#[derive(PartialEq)]
struct Function {
    name: String,
    /// As `pg_get_functiondef` writes it.
    definition: String,
}

/// Makes the functions of the database equal to the files, in one transaction: replaces those that differ, makes
/// those that are missing, drops those that have no file. Functions that are equal are not touched. The caller
/// holds the lock of migrations.
///
/// # Errors
/// [`StoreError::Schema`] when a file cannot take the place of a function (its return type differs: it needs a new
/// name), or a table depends on a function that has no file any more.
pub(crate) async fn replace(connection: &mut PgConnection) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    // A function of the SQL language may call one that comes after it.
    sqlx::raw_sql("SET LOCAL ROLE oc_owner; SET LOCAL check_function_bodies = off")
        .execute(&mut *tx)
        .await?;
    let before = definitions(&mut tx).await?;
    let wanted = drafted(&mut tx, &before).await?;
    for identity in before.keys().filter(|identity| !wanted.contains_key(*identity)) {
        execute(&mut tx, identity, format!("DROP FUNCTION {identity}")).await?;
    }
    for (name, text) in FUNCTIONS {
        let of_file = |function: &&Function| function.name == *name;
        let (old, new) = (before.values().find(of_file), wanted.values().find(of_file));
        if old != new {
            execute(&mut tx, name, (*text).to_owned()).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}

/// The functions as the files define them: made in a savepoint, read, and taken back. Only Postgres can say how it
/// writes a definition.
async fn drafted(tx: &mut PgConnection, before: &Definitions) -> Result<Definitions, StoreError> {
    sqlx::raw_sql("SAVEPOINT draft").execute(&mut *tx).await?;
    if !before.is_empty() {
        let all: Vec<&str> = before.keys().map(String::as_str).collect();
        execute(tx, "the functions", format!("DROP FUNCTION {}", all.join(", "))).await?;
    }
    for (name, text) in FUNCTIONS {
        execute(tx, name, (*text).to_owned()).await?;
    }
    let wanted = definitions(tx).await?;
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT draft").execute(&mut *tx).await?;
    Ok(wanted)
}

async fn definitions(tx: &mut PgConnection) -> Result<Definitions, StoreError> {
    let rows = sqlx::query(
        "SELECT p.oid::regprocedure::text, p.proname::text, pg_get_functiondef(p.oid) FROM pg_proc p
         WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = 'oc_owner'::regrole
             AND p.prokind = 'f'",
    )
    .fetch_all(tx)
    .await?;
    let read = |row: PgRow| -> Result<_, sqlx::Error> {
        Ok((row.try_get(0)?, Function { name: row.try_get(1)?, definition: row.try_get(2)? }))
    };
    Ok(rows.into_iter().map(read).collect::<Result<_, _>>()?)
}

async fn execute(tx: &mut PgConnection, name: &str, sql: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(tx).await.map(drop).map_err(|error| {
        match error.as_database_error() {
            Some(refused) => {
                StoreError::Schema(format!("cannot replace {name}: {}", refused.message()))
            }
            None => StoreError::Database(error),
        }
    })
}
