//! The rules of `migrations/README.md`, held for every migration after the baseline.

use std::fs;
use std::path::Path;

/// Words that a migration must not have, the words that make them right, and why.
struct Rule {
    /// Words in this order, any number of spaces between them; `*` is one word.
    words: &'static [&'static str],
    /// Words that make it right when they stand in the same statement.
    unless: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    rule(&["FUNCTION"], &["EXECUTE FUNCTION"], "a function is a file of crates/store/sql"),
    rule(
        &["FEATURE_LEVEL"],
        &[],
        "only `feature-level --raise` raises the level, after the upgrade",
    ),
    rule(&["CREATE", "INDEX"], &["CONCURRENTLY"], "CREATE INDEX stops writers: use CONCURRENTLY"),
    rule(
        &["CREATE", "UNIQUE", "INDEX"],
        &["CONCURRENTLY"],
        "CREATE INDEX stops writers: use CONCURRENTLY",
    ),
    rule(
        &["DROP", "INDEX"],
        &["CONCURRENTLY"],
        "DROP INDEX waits for readers and stops them: use CONCURRENTLY",
    ),
    rule(
        &["FOREIGN", "KEY"],
        &["NOT VALID", "CREATE TABLE"],
        "add it NOT VALID and validate it in a later migration",
    ),
    rule(
        &["ADD", "CONSTRAINT", "*", "CHECK"],
        &["NOT VALID"],
        "add it NOT VALID and validate it in a later migration",
    ),
    rule(
        &["SET", "NOT", "NULL"],
        &[],
        "it reads the whole table under a lock: validate a CHECK instead",
    ),
    rule(&["GENERATED"], &["CREATE TABLE"], "it rewrites the table under a lock"),
    rule(
        &["TYPE"],
        &["CREATE TYPE", "CREATE TABLE"],
        "a changed type rewrites the table: add a column",
    ),
    rule(&["LOCK_TIMEOUT"], &[], "`migrate` sets it for all migrations"),
    rule(
        &["UPDATE"],
        &["GRANT", "FOR UPDATE", "CREATE POLICY"],
        "a backfill goes in pieces, by a command",
    ),
];

const fn rule(
    words: &'static [&'static str],
    unless: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule { words, unless, why }
}

/// Statements that take something away that the build before may use. The file says since when nothing uses it.
const CONTRACTIONS: &[&[&str]] =
    &[&["DROP", "TABLE"], &["DROP", "COLUMN"], &["RENAME"], &["REVOKE"], &["DROP", "CONSTRAINT"]];

/// The faults of one migration; empty when it keeps the rules.
fn faults(text: &str) -> Vec<String> {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let code = code.join("\n").to_uppercase();
    let statements: Vec<Vec<&str>> = code
        .split(';')
        .map(|statement| {
            statement.split([' ', '\n', '(', ')', ',']).filter(|word| !word.is_empty()).collect()
        })
        .filter(|words: &Vec<&str>| !words.is_empty())
        .collect();
    let mut faults = Vec::new();
    for statement in &statements {
        let line = statement.join(" ");
        for rule in RULES {
            if has(statement, rule.words) && !rule.unless.iter().any(|word| line.contains(word)) {
                faults.push(format!("{line}: {}", rule.why));
            }
        }
        let is_contraction = CONTRACTIONS.iter().any(|words| has(statement, words));
        if is_contraction && !text.contains("-- Contract: unused since schema ") {
            faults.push(format!(
                "{line}: the build before may use it; say `-- Contract: unused since schema N`"
            ));
        }
    }
    if code.contains("CONCURRENTLY")
        && !(text.starts_with("-- no-transaction\n") && statements.len() == 1)
    {
        faults.push("CONCURRENTLY: alone in a file that begins with `-- no-transaction`".into());
    }
    faults
}

fn has(statement: &[&str], words: &[&str]) -> bool {
    statement.windows(words.len()).any(|window| {
        window.iter().zip(words).all(|(word, wanted)| *wanted == "*" || word == wanted)
    })
}

// Finding store 17: a migration cannot stop the service for long.
#[test]
fn migrations_after_the_baseline_keep_the_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    for entry in fs::read_dir(folder).expect("the migrations") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name == "README.md" || name == "0019_baseline.sql" {
            continue;
        }
        assert!(path.extension().is_some_and(|ext| ext == "sql"), "{name} is no migration");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(faults(&text), Vec::<String>::new(), "{name}");
    }
}

// Finding store 9: a migration that raises the level is refused.
#[test]
fn the_rules_find_what_they_forbid() {
    for wrong in [
        "UPDATE cluster SET feature_level = 4;",
        "CREATE INDEX x ON part (org_id);",
        "CREATE UNIQUE INDEX x ON part (org_id);",
        "DROP INDEX x;",
        "CREATE INDEX CONCURRENTLY x ON part (org_id);",
        "-- no-transaction\nCREATE INDEX CONCURRENTLY x ON part (org_id); SELECT 1;",
        "CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE sql AS 'SELECT';",
        "ALTER TABLE part ADD CONSTRAINT c CHECK (seq > 0);",
        "ALTER TABLE part ADD FOREIGN KEY (org_id) REFERENCES organisation;",
        "ALTER TABLE part ALTER COLUMN text SET NOT NULL;",
        "ALTER TABLE part ALTER COLUMN place TYPE bigint;",
        "ALTER TABLE part ADD COLUMN n integer GENERATED ALWAYS AS (place + 1) STORED;",
        "ALTER TABLE part DROP COLUMN text;",
        "ALTER TABLE part RENAME COLUMN text TO words;",
        "DROP TABLE part;",
        "UPDATE part SET text = '';",
        "SET lock_timeout = '1h';",
    ] {
        assert_ne!(faults(wrong), Vec::<String>::new(), "{wrong}");
    }
}

#[test]
fn the_rules_let_through_what_is_safe() {
    for right in [
        "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS x ON part (org_id);\n",
        "SET LOCAL ROLE oc_owner; ALTER TABLE part ADD COLUMN note text; RESET ROLE;",
        "CREATE TABLE t (org_id uuid REFERENCES organisation, n bigint NOT NULL DEFAULT 0);",
        "GRANT SELECT, UPDATE ON t TO oc_app;",
        "ALTER TABLE part ADD CONSTRAINT c CHECK (seq > 0) NOT VALID;",
        "ALTER TABLE part VALIDATE CONSTRAINT c;",
        "-- Contract: unused since schema 17\nALTER TABLE part DROP COLUMN note;",
    ] {
        assert_eq!(faults(right), Vec::<String>::new(), "{right}");
    }
}
