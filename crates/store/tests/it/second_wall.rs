//! Row-level security as the second wall. The first one is the tenant's predicate in each statement; here every read runs
//! without it, under the role that serves, and still shows nothing of another organisation.
//!
//! Each table has rows of two organisations. A third one, which has none, must get the answers of an empty database. Where
//! nothing stands in the way (as a superuser) the same read must show rows, or it proves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use domain::OrgId;
use regex::Regex;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use testkit::TestDatabase;

use crate::script::every_kind;
use crate::world::{World, organisation};

/// Values that a made-up row needs to pass a CHECK, or to be found by a read that looks for one kind of row.
const VALUES: [(&str, &str, &str); 24] = [
    ("ask", "status", "'pending'"),
    ("credential", "active", "true"),
    ("credential", "kind", "'api-key'"),
    ("idp", "algorithm", "'RS256'"),
    ("idp", "is_active", "true"),
    ("location", "kind", "'managed'"),
    ("login_attempt", "purpose", "'login'"),
    ("oauth_attempt", "method", "'code'"),
    ("oauth_attempt", "status", "'pending'"),
    ("principal", "role", "'owner'"),
    ("project", "space", "''"),
    ("repository", "space", "''"),
    ("provider_turn", "status", "'open'"),
    ("session_event", "payload", "'{}'"),
    ("session_head", "open", "true"),
    ("session_head", "pending", "1"),
    ("session_head", "wake_seq", "2"),
    ("session_input", "status", "'admitted'"),
    ("session_out", "state", "'asked'"),
    ("tool_result", "managed_path", "'/tool-output/x'"),
    ("tool_result", "tool", "'todowrite'"),
    ("workspace_change", "base", "false"),
    ("workspace_change", "files", "'[]'"),
    ("unnamed_blob", "kind", "'snapshot'"),
];

/// The numbers and ids of an organisation's made-up rows: equal in all tables, so that joins find them.
fn number(nth: i64) -> i64 {
    31_000 + nth
}

fn id(nth: i64) -> String {
    format!("usr_wall_{nth}")
}

/// Returns the value of a type in the rows of the `nth` organisation.
fn value(kind: &str, org: OrgId, nth: i64) -> String {
    match kind {
        "uuid" => format!("'{org}'"),
        "text" => format!("'{}'", id(nth)),
        "bytea" => format!("decode('{:08}', 'hex')", number(nth)),
        "boolean" => "false".to_owned(),
        "xid8" => format!("'{}'::xid8", number(nth)),
        "smallint" | "integer" | "bigint" | "numeric" => number(nth).to_string(),
        array if array.ends_with("[]") => {
            let element = value(array.trim_end_matches("[]"), org, nth);
            format!("ARRAY[{element}]::{array}")
        }
        other => panic!("a made-up row needs a value of the type {other}: add it here"),
    }
}

/// Runs statements as the superuser, without triggers and foreign keys.
async fn as_root(world: &World, statements: &[String]) {
    let mut root =
        PgConnection::connect(&world.database.superuser_url()).await.expect("a connection");
    sqlx::raw_sql("SET session_replication_role = replica").execute(&mut root).await.expect("set");
    for sql in statements {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut root).await;
        done.unwrap_or_else(|error| {
            panic!("{sql}: {error}\n(a CHECK may want a value of its own: see VALUES)")
        });
    }
}

/// Returns the tables that belong to organisations.
async fn tables(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog")
}

/// Puts a row of the `nth` organisation into every table.
async fn fill(world: &World, org: OrgId, nth: i64) {
    let mut statements = Vec::new();
    for table in tables(world).await {
        let columns = sqlx::query(
            "SELECT attname::text, format_type(atttypid, NULL), attnotnull AND NOT atthasdef, attrelid::regclass::text
             FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
        )
        .bind(format!("public.{table}"))
        .fetch_all(&world.root)
        .await
        .expect("the catalog");
        let mut row = BTreeMap::new();
        for column in columns {
            let (name, kind): (String, String) = (column.get(0), column.get(1));
            let own = VALUES.iter().find(|(of, field, _)| *of == table && *field == name);
            if let Some((_, _, own)) = own {
                row.insert(name, (*own).to_owned());
            } else if column.get(2) {
                row.insert(name, value(&kind, org, nth));
            }
        }
        // A partition takes the rows of its own slot alone.
        if let Some(slot) = table.strip_prefix("session_change_") {
            row.insert("slot".into(), slot.to_owned());
        }
        let (names, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
        let (names, values) = (names.join(", "), values.join(", "));
        statements.push(format!(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"
        ));
    }
    as_root(world, &statements).await;
}

/// Two organisations with rows in every table.
async fn filled() -> (World, [OrgId; 2]) {
    let world = World::new().await;
    every_kind(&world).await;
    let (other, ..) = organisation(&world.store).await;
    for (org, nth) in [(world.org, 1), (other, 2)] {
        fill(&world, org, nth).await;
    }
    let orgs = [world.org, other];
    (world, orgs)
}

async fn serving(database: &TestDatabase) -> PgConnection {
    PgConnection::connect(&database.url("oc_app")).await.expect("a connection")
}

/// Returns what a statement answers, or the code with which it is refused. It changes nothing.
async fn answer(connection: &mut PgConnection, org: Option<OrgId>, sql: &str) -> String {
    let begin = match org {
        Some(org) => format!("BEGIN; SET LOCAL oc.org = '{org}'"),
        None => "BEGIN".to_owned(),
    };
    let mut tx = connection.begin_with(AssertSqlSafe(begin)).await.expect("a transaction");
    let said: Result<Option<String>, _> =
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut *tx).await;
    tx.rollback().await.expect("rolled back");
    match said {
        Ok(rows) => rows.unwrap_or_default(),
        Err(error) => match error.as_database_error().and_then(|error| error.code()) {
            Some(code) => format!("refused: {code}"),
            None => panic!("{sql}: {error}"),
        },
    }
}

/// Wraps a read so that it answers one text.
fn whole(read: &str) -> String {
    format!("SELECT string_agg(q::text, E'\\n' ORDER BY q::text) FROM ({read}) AS q")
}

#[tokio::test]
async fn each_table_shows_an_organisation_its_own_rows_alone() {
    let (world, orgs) = filled().await;
    let mut app = serving(&world.database).await;
    let tables = tables(&world).await;
    assert!(tables.len() > 60, "{tables:?}");
    for table in &tables {
        let count = |predicate: String| format!("SELECT count(*)::text FROM {table} {predicate}");
        for (n, org) in orgs.into_iter().enumerate() {
            let its = answer_as_root(&world, &count(format!("WHERE org_id = '{org}'"))).await;
            assert_ne!(its, "0", "{table} has no row of organisation {n}: it would prove nothing");
            assert_eq!(answer(&mut app, Some(org), &count(String::new())).await, its, "{table}");
            let foreign = count(format!("WHERE org_id <> '{org}'"));
            assert_eq!(answer(&mut app, Some(org), &foreign).await, "0", "{table}");
        }
        for nobody in [None, Some(OrgId::random())] {
            let seen = answer(&mut app, nobody, &count(String::new())).await;
            assert_eq!(seen, "0", "{table} without a tenant");
        }
    }
}

async fn answer_as_root(world: &World, sql: &str) -> String {
    let mut root = world.root.acquire().await.expect("a connection");
    answer(&mut root, None, sql).await
}

/// A read of the store, without its tenant's predicate and without whatever else would narrow it.
struct Bare {
    name: String,
    sql: String,
}

/// Returns a parameter, by the name of its type in `.sqlx`, that narrows nothing: the ids of both organisations, or NULL.
fn parameter_of(name: &str, orgs: [OrgId; 2]) -> String {
    match name {
        "Uuid" => "NULL::uuid".into(),
        "Text" | "Varchar" => "NULL::text".into(),
        "Int8" => "NULL::bigint".into(),
        "Int4" => "NULL::integer".into(),
        "Bytea" => "NULL::bytea".into(),
        "ByteaArray" => "NULL::bytea[]".into(),
        "Bool" => "true".into(),
        "UuidArray" => format!("ARRAY['{}', '{}']", orgs[0], orgs[1]),
        "TextArray" => format!("ARRAY['{}', '{}']", id(1), id(2)),
        "Int8Array" | "Int4Array" => format!("ARRAY[{}, {}]", number(1), number(2)),
        other => panic!("the type {other} of a parameter is not known here"),
    }
}

/// Returns the text of each function of ours, by its name.
fn functions() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let files =
        fs::read_dir(folder).expect("the functions").map(|entry| entry.expect("a file").path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a function"))
    };
    files.map(read).collect()
}

/// Returns the statements of the store that read tables, as `.sqlx` has them.
fn reads(orgs: [OrgId; 2]) -> Vec<Bare> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.sqlx");
    let pattern = |text: &str| Regex::new(text).expect("a pattern");
    let comment = pattern(r"(?m)--.*$");
    let tenant = pattern(r"(?:\b\w+\.)?org_id = \$\d+");
    let bound = pattern(r"(LIMIT|OFFSET) (?:\$\d+|\d+)(?:::\w+)?(?: - 1)?");
    let lock =
        pattern(r"FOR (?:UPDATE|KEY SHARE|SHARE|NO KEY UPDATE)(?: OF \w+)?(?: SKIP LOCKED)?\s*$");
    let compared = pattern(
        r#"(?:[\w.:]+ -> 'by' ->> '\w+'|[\w.]+(?:\([\w., ]*\))?) (?:=|<>|<=|>=|<|>) (?:ANY ?\(\$\d+(?:::[\w\[\]]+)?\)|left\(\$\d+, 512\)|(?:'[^']*' \|\| )?\$\d+(?:::[\w\[\]]+)?(?: COLLATE "C")?(?: - 1)?)"#,
    );
    let placed = pattern(r"\(org_id, \w+\) > \(\$\d+, \$\d+\)");
    let parameter = pattern(r"\$(\d+)");
    let named: Vec<_> = functions().into_keys().collect();
    let mut reads = Vec::new();
    for entry in fs::read_dir(folder).expect("the queries: `./dev sqlx` writes them") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a query");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        let sql = file["query"].as_str().expect("a text");
        let sql = comment.replace_all(sql, " ");
        let name = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_read = ["SELECT", "WITH", "(SELECT"].iter().any(|word| name.starts_with(word));
        let calls = named.iter().any(|name| sql.contains(&format!("{name}(")));
        if !is_read || calls || !name.contains("org_id") {
            continue;
        }
        let bare = tenant.replace_all(&name, "true");
        let bare =
            bound.replace_all(
                &bare,
                |found: &regex::Captures| {
                    if &found[1] == "LIMIT" { "LIMIT 1000" } else { "OFFSET 0" }
                },
            );
        let bare = lock.replace(&bare, "");
        let bare = placed.replace_all(&bare, "(0 = 0)");
        let bare = compared.replace_all(&bare, "(0 = 0)");
        let kinds = file["describe"]["parameters"]["Left"].as_array().expect("types").clone();
        let bare = parameter.replace_all(&bare, |found: &regex::Captures| {
            let n: usize = found[1].parse().expect("a number");
            parameter_of(kinds[n - 1].as_str().expect("a name"), orgs)
        });
        let sql = whole(&bare);
        reads.push(Bare { name, sql });
    }
    reads.sort_by(|one, other| one.name.cmp(&other.name));
    reads
}

/// The refusal of a subquery that finds more than one row.
const TOO_MANY: &str = "refused: 21000";

/// Reads that show no made-up row even to a superuser, by how they begin, and why.
const BLIND: [(&str, &str); 1] = [(
    "SELECT CASE w.kind WHEN 'key' THEN EXISTS",
    "it answers yes or no for each secret that somebody has shown",
)];

#[tokio::test]
async fn every_read_without_its_predicate_shows_nothing_foreign() {
    let (world, orgs) = filled().await;
    let empty = World::new().await;
    sqlx::raw_sql("SET session_replication_role = replica; DELETE FROM location; DELETE FROM project; DELETE FROM organisation")
        .execute(&empty.root)
        .await
        .expect("an empty database");
    let (mut app, stranger) = (serving(&world.database).await, OrgId::random());
    let reads = reads(orgs);
    assert!(reads.len() > 100, "{}", reads.len());
    let mut blind = Vec::new();
    for Bare { name, sql } in &reads {
        let nothing = answer_as_root(&empty, sql).await;
        assert!(!nothing.starts_with("refused"), "{name}\n{sql}\n{nothing}");
        let seen = answer(&mut app, Some(stranger), sql).await;
        assert_eq!(seen, nothing, "{name}\n{sql}");
        let shown = answer_as_root(&world, sql).await;
        // A read of one row that finds one of each organisation has seen both.
        if shown == nothing || shown.starts_with("refused") && shown != TOO_MANY {
            blind.push(name.as_str());
        }
    }
    let known = |name: &&str| BLIND.iter().any(|(begin, _)| name.starts_with(begin));
    let unknown: Vec<_> = blind.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "these show nothing to anybody: {unknown:#?}");
    for (begin, why) in BLIND {
        assert!(blind.iter().any(|name| name.starts_with(begin)), "not blind: {begin} ({why})");
    }
}

/// A function of ours that takes the organisation first and writes nothing.
struct ReadingFunction {
    name: String,
    definition: String,
    /// Its parameters after the organisation, with their types.
    takes: Vec<(String, String)>,
}

/// Returns the names of functions that write, by themselves or by one that they call.
fn writing(functions: &BTreeMap<String, String>) -> Vec<String> {
    let writes =
        Regex::new(r"\b(INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|pg_advisory)").expect("a pattern");
    let mut found: Vec<String> = Vec::new();
    loop {
        let more = functions.iter().filter(|(name, text)| {
            let calls = |other: &String| text.contains(&format!("{other}("));
            !found.contains(name) && (writes.is_match(text) || found.iter().any(calls))
        });
        let more: Vec<_> = more.map(|(name, _)| name.clone()).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

async fn reading_functions(world: &World) -> Vec<ReadingFunction> {
    let writing = writing(&functions());
    let rows = sqlx::query(
        "SELECT p.proname::text, pg_get_functiondef(p.oid), n.name, format_type(n.kind, NULL)
         FROM pg_proc p LEFT JOIN LATERAL unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[])
             WITH ORDINALITY AS n (name, kind, nth) ON n.nth > 1
         WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f' AND p.proargnames[1] = 'p_org'
             AND has_function_privilege('oc_app', p.oid, 'EXECUTE') AND p.prorettype <> 'trigger'::regtype
         ORDER BY p.proname, n.nth",
    )
    .fetch_all(&world.root)
    .await
    .expect("the catalog");
    let mut all: Vec<ReadingFunction> = Vec::new();
    for row in rows {
        let name: String = row.get(0);
        if writing.contains(&name) || name == TIMED {
            continue;
        }
        if all.last().is_none_or(|last| last.name != name) {
            all.push(ReadingFunction { name, definition: row.get(1), takes: Vec::new() });
        }
        if let (Some(parameter), Some(kind)) = (row.get(2), row.get(3)) {
            all.last_mut().expect("one").takes.push((parameter, kind));
        }
    }
    all
}

/// Arguments of functions that write the text of a statement: they name a table and its columns.
const ARGUMENTS: [(&str, &str, &str); 12] = [
    ("read_usage", "p_before", "0"),
    ("read_usage", "p_by", "ARRAY['person']"),
    ("read_usage", "p_keys", "ARRAY[]::text[]"),
    ("read_usage", "p_limit", "1000"),
    ("read_usage", "p_step", "'all'"),
    ("read_usage", "p_sums", "ARRAY['prompts']"),
    ("read_usage", "p_table", "'usage_person'"),
    ("read_usage", "p_to", "1000000"),
    ("read_usage", "p_values", "ARRAY[]::text[]"),
    ("usage_sums", "p_keys", "ARRAY['person']"),
    ("usage_sums", "p_sums", "ARRAY['prompts']"),
    ("usage_sums", "p_table", "'usage_person'"),
];

/// Calls a function for one organisation with the ids of another.
fn call(of: &ReadingFunction, org: OrgId, other: OrgId) -> String {
    let arguments = of.takes.iter().map(|(name, kind)| {
        let own = ARGUMENTS.iter().find(|(of_its, its, _)| *of_its == of.name && its == name);
        if let Some((.., own)) = own {
            return (*own).to_owned();
        }
        let is_place = ["after", "from", "known", "through", "cursor", "skip"]
            .iter()
            .any(|word| name.contains(word));
        match (is_place, kind.as_str()) {
            (true, "bigint" | "integer") => "0".to_owned(),
            (true, "bigint[]") => "ARRAY[0]::bigint[]".to_owned(),
            (true, "text") => "''".to_owned(),
            (true, "text[]") => "ARRAY[NULL]::text[]".to_owned(),
            _ => value(kind, other, 2),
        }
    });
    let arguments = std::iter::once(format!("'{org}'")).chain(arguments).collect::<Vec<_>>();
    whole(&format!("SELECT * FROM {}({})", of.name, arguments.join(", ")))
}

/// Functions that show no made-up row even to a superuser, and why.
const BLIND_FUNCTIONS: [(&str, &str); 9] = [
    ("covered_asks", "it wants a permission that fits what a call asks for"),
    ("held_inputs", "it wants a session with a revert"),
    ("inbox_has_room", "it answers yes or no, and reads by inbox_size"),
    ("is_held", "it answers yes or no, of numbers that its caller has read"),
    ("is_stopping", "it answers yes or no, of numbers that its caller has read"),
    ("location_lock", "it reads no table"),
    ("read_messages", "it reads by read_message_page"),
    (
        "session_tree",
        "it names the session that it was asked for, and the made-up one has no children",
    ),
    ("usage_facts", "it wants whole events"),
];

/// Answers with the time.
const TIMED: &str = "due_usage";

#[tokio::test]
async fn a_function_without_its_predicate_shows_nothing_foreign() {
    let (world, [_, other]) = filled().await;
    let (empty, stranger) = (World::new().await, OrgId::random());
    // `$1` is the organisation in the text of a statement.
    let tenant = Regex::new(r"(?:\b\w+\.)?org_id = (?:p_org\b|\$1)").expect("a pattern");
    let functions = reading_functions(&world).await;
    assert!(functions.len() > 15, "{}", functions.len());
    let mut app = serving(&world.database).await;
    let mut blind = Vec::new();
    for of in &functions {
        let sql = call(of, stranger, other);
        let nothing = answer(&mut serving(&empty.database).await, None, &sql).await;
        let bare = tenant.replace_all(&of.definition, "true");
        if bare == of.definition {
            blind.push(of.name.as_str()); // it reads by others alone, which are here too
        }
        as_root(&world, &[bare.into_owned()]).await;
        assert_eq!(answer(&mut app, None, &sql).await, nothing, "{}\n{sql}", of.name);
        if answer_as_root(&world, &sql).await == nothing {
            blind.push(of.name.as_str());
        }
        as_root(&world, std::slice::from_ref(&of.definition)).await;
    }
    blind.dedup();
    let known: Vec<_> = BLIND_FUNCTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(blind, known, "these show nothing to anybody");
}
