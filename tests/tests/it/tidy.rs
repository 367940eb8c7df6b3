//! House rules as tests, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use domain::ErrorCode;
use journeys::repository;
use serde_json::Value;

/// Returns every text file of the repository, by its path from the root.
fn files() -> Result<Vec<(String, String)>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(repository());
    let output = git.output().context("git tells which files are the repository's")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| {
        let text = fs::read_to_string(repository().join(path)).ok()?; // removed, or not text
        Some((path.to_owned(), text))
    };
    let files: Vec<_> = String::from_utf8(output.stdout)?.lines().filter_map(read).collect();
    ensure!(files.len() > 100, "only {} files were found", files.len());
    Ok(files)
}

pub(crate) fn rust_files() -> Result<Vec<(String, String)>> {
    Ok(files()?.into_iter().filter(|(path, _)| path.ends_with(".rs")).collect())
}

fn metadata() -> Result<Value> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--offline", "--locked", "--no-deps"]);
    let output = cargo.current_dir(repository()).output()?;
    ensure!(output.status.success(), "cargo: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns each of our packages with the names of its dependencies, without development dependencies.
fn dependencies() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().into_iter().flatten();
        all.filter(|dependency| dependency["kind"] != "dev").map(name).collect()
    };
    Ok(packages.iter().map(|package| (name(package), of(package))).collect())
}

/// The layers from the bottom to the executable at the top. A crate may use those below its own layer.
const LAYERS: [(&str, &[&str]); 6] = [
    (
        "words",
        &[
            "access",
            "domain",
            "context",
            "git-wire",
            "llm-protocol",
            "history",
            "settings",
            "tasks",
            "telemetry",
        ],
    ),
    (
        "mechanism",
        &[
            "store",
            "signals",
            "blobs",
            "llm-client",
            "egress",
            "sandbox",
            "placement-api",
            "placement",
            "reports",
            "boot",
            "simulated-model",
            "session-rules",
            "snapshots",
            "traces",
            "workspaces",
        ],
    ),
    ("product", &["auth", "client", "checkouts", "tools", "catalog", "credentials", "oidc"]),
    ("edge", &["api", "cli", "console", "session"]),
    ("services", &["gateway", "worker", "placement-service"]),
    ("executable", &["opencode-cloud"]),
];

/// Arrows within a layer, each one-way.
const WITHIN: [(&str, &str); 12] = [
    ("access", "domain"),
    ("boot", "reports"),
    ("checkouts", "tools"),
    ("credentials", "catalog"),
    ("egress", "llm-client"),
    ("history", "domain"),
    ("history", "llm-protocol"),
    ("placement", "placement-api"),
    ("placement", "signals"),
    ("settings", "domain"),
    ("snapshots", "blobs"),
    ("snapshots", "sandbox"),
];

/// Test packages stand beside the layers and may use all of them.
const TESTS: [&str; 4] = ["testkit", "journeys", "load-tests", "sim"];

/// Why: a crate can be understood, tested and replaced without those above it; a cycle ends that.
#[test]
fn crates_depend_downwards_only() -> Result<()> {
    let layer = |name: &str| LAYERS.iter().position(|(_, crates)| crates.contains(&name));
    let all = dependencies()?;
    let ours: BTreeSet<&str> = all.keys().map(String::as_str).collect();
    for (from, dependencies) in all.iter().filter(|(from, _)| !TESTS.contains(&from.as_str())) {
        let above =
            layer(from).with_context(|| format!("{from} has no layer; give it one in LAYERS"))?;
        for to in dependencies.iter().map(String::as_str).filter(|to| ours.contains(to)) {
            ensure!(!TESTS.contains(&to), "{from} uses {to} outside of its tests");
            let below = layer(to).with_context(|| format!("{to} has no layer"))?;
            let is_fine = below < above || WITHIN.contains(&(from.as_str(), to));
            ensure!(is_fine, "{from} ({}) uses {to} ({})", LAYERS[above].0, LAYERS[below].0);
        }
    }
    Ok(())
}

/// Why: both can be published alone, and a protocol can be read without knowing what a session is.
#[test]
fn the_protocol_crates_know_nothing_of_ours() -> Result<()> {
    let all = dependencies()?;
    let ours = |name: &str| -> Result<Vec<&String>> {
        let found = all.get(name).with_context(|| format!("there is no {name}"))?;
        Ok(found.iter().filter(|dependency| all.contains_key(*dependency)).collect())
    };
    ensure!(ours("llm-protocol")?.is_empty(), "{:?}", ours("llm-protocol")?);
    ensure!(ours("llm-client")? == ["llm-protocol"], "{:?}", ours("llm-client")?);
    Ok(())
}

/// Why: a person's commands speak to a service as everybody else's program may. A command that reached into the service's
/// own crates would work against the service of its own build only.
#[test]
fn a_persons_commands_know_the_service_by_http_only() -> Result<()> {
    let all = dependencies()?;
    let ours = |name: &str| -> Result<BTreeSet<&str>> {
        let found = all.get(name).with_context(|| format!("there is no {name}"))?;
        Ok(found.iter().filter(|to| all.contains_key(*to)).map(String::as_str).collect())
    };
    ensure!(ours("client")? == BTreeSet::from(["domain"]), "{:?}", ours("client")?);
    // `llm` calls a model without a service, and `run --repo` reads an address like the worker.
    let alone = ["catalog", "llm-client", "llm-protocol", "workspaces"];
    let allowed = BTreeSet::from_iter(alone.into_iter().chain(["client", "domain"]));
    ensure!(ours("cli")? == allowed, "{:?}", ours("cli")?);
    Ok(())
}

/// Why: a repository's files say what git runs, whatever its command line forbids (I28).
#[test]
fn services_run_git_in_cells_only() -> Result<()> {
    let folders = [
        "services/worker/src/",
        "services/gateway/src/",
        "crates/api/src/",
        "crates/checkouts/src/",
        "crates/workspaces/src/",
    ];
    let cells = ["services/worker/src/fill/cell.rs", "crates/checkouts/src/changes.rs"];
    for (path, text) in rust_files()? {
        let is_service = folders.iter().any(|folder| path.starts_with(folder));
        if !is_service || path.ends_with("tests.rs") {
            continue;
        }
        ensure!(!text.contains("process::Command"), "{path} starts a process");
        let is_cell = cells.contains(&path.as_str());
        ensure!(is_cell || !text.contains("git.program"), "{path} runs a command of git");
    }
    Ok(())
}

/// Why: gateways are stateless and many; consensus belongs to the few members of placement.
#[test]
fn the_gateway_does_not_link_consensus() -> Result<()> {
    // For this platform only, because other platforms' crates may not be downloaded.
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--package", "gateway", "--edges", "normal", "--prefix", "none"]);
    let output = cargo.args(["--offline", "--locked"]).current_dir(repository()).output()?;
    ensure!(output.status.success(), "cargo: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let linked: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(linked.contains("axum"), "this is no tree of crates: {text}");
    for forbidden in ["openraft", "redb", "placement"] {
        ensure!(!linked.contains(forbidden), "the gateway links {forbidden}");
    }
    Ok(())
}

/// Why: a transition is one function over one transaction, with its tenant and its claim. SQL outside the store would
/// bypass all three, and would not be checked at compile time.
#[test]
fn sql_stays_in_the_store() -> Result<()> {
    let allowed = ["store", "testkit", "journeys", "load-tests"];
    for (name, dependencies) in dependencies()? {
        let has_it = dependencies.contains("sqlx");
        ensure!(!has_it || allowed.contains(&name.as_str()), "{name} depends on sqlx");
    }
    let is_test = |path: &str| path.contains("/tests/") || path.starts_with("tests/");
    let beside = ["crates/store/", "crates/testkit/", "load-tests/"];
    for (path, text) in rust_files()? {
        if is_test(&path) || beside.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        ensure!(!text.contains("sqlx::"), "{path} uses sqlx");
    }
    Ok(())
}

/// Calls that resolve a path without a root to stay beneath, or read a file without a limit.
const PLAIN_FILE_CALLS: [&str; 20] = [
    "fs::read",
    "fs::write",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::copy",
    "fs::rename",
    "fs::remove",
    "fs::create_dir",
    "fs::hard_link",
    "fs::canonicalize",
    "File::open",
    "File::create",
    "OpenOptions",
    "read_dir(",
    "symlink_metadata()",
    "canonicalize(",
    ".is_file()",
    "tokio::fs",
    "WalkBuilder",
    "CWD",
];

/// Files of the same crates that may make such calls, with the reason.
const PLAIN_FILES: [(&str, &str); 7] = [
    ("crates/tools/src/files.rs", "LocationFiles itself: opens the root, and asks where a file is"),
    ("crates/tools/src/skills.rs", "looks for a name above a Local Location, and opens nothing"),
    ("crates/checkouts/src/repository.rs", "compares the names of folders, and opens none"),
    ("crates/snapshots/src/place.rs", "opens the root, beneath which everything else is opened"),
    ("crates/snapshots/src/index.rs", "the worker's own cache, which is not in the Location"),
    ("crates/snapshots/src/pack.rs", "an unnamed file in the worker's own cache"),
    ("crates/snapshots/src/shadow.rs", "the worker's own cache, which is not in the Location"),
];

/// Why: a workspace is hostile. A link, a pipe or a sparse file in it must not take a worker out of its Location,
/// block it or fill its memory (findings security 2 and 3).
#[test]
fn workspace_paths_are_opened_beneath_their_root_only() -> Result<()> {
    let crates = [
        "crates/checkouts/src/",
        "crates/tools/src/",
        "crates/snapshots/src/",
        "crates/context/src/",
    ];
    let parts = ["crates/session/src/observe/", "crates/session/src/files/"];
    let mut allowed_and_there = BTreeSet::new();
    for (path, text) in rust_files()? {
        let is_looked_at = crates.iter().chain(&parts).any(|folder| path.starts_with(folder));
        if !is_looked_at || path.contains("/tests") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let plain = code.filter(|line| PLAIN_FILE_CALLS.iter().any(|call| line.contains(call)));
        for line in plain {
            let allowed = PLAIN_FILES.iter().find(|(file, _)| *file == path);
            let (file, _why) = allowed.with_context(|| {
                format!(
                    "{path}: `{}` is no call for workspace paths; use LocationFiles",
                    line.trim()
                )
            })?;
            allowed_and_there.insert(*file);
        }
    }
    let allowed: BTreeSet<&str> = PLAIN_FILES.iter().map(|(file, _)| *file).collect();
    ensure!(allowed_and_there == allowed, "not needed any more: {allowed:?}");
    Ok(())
}

/// Ways to start a program.
const PROGRAMS: [&str; 6] =
    ["Command::new(", "process::Command", "libc::fork", "libc::exec", "posix_spawn", "sys::exec("];

/// The places that may, with the reason.
const MAY_START_PROGRAMS: [(&str, &str); 9] = [
    ("crates/sandbox/src/", "the sandbox itself, and nothing else on a workspace"),
    ("crates/boot/", "Postgres and NATS, in the data folder"),
    ("crates/testkit/", "servers of tests"),
    ("crates/cli/src/attach_cmd.rs", "the released client, for the person there"),
    (
        "crates/cli/src/here/private.rs",
        "the git of the person there, on a private view of their repository, without its hooks",
    ),
    ("crates/cli/src/open_cmd.rs", "the browser of the person there"),
    ("crates/cli/src/output.rs", "the pager of the person at the terminal"),
    ("crates/cli/src/session_pull.rs", "the git of the person there, in their own clone"),
    ("services/opencode-cloud/src/serve/cluster/process.rs", "the roles of `dev-cluster`"),
];

/// Why: a program that runs on a workspace does what the workspace says (hooks, configuration, build scripts), so that it
/// runs in the sandbox or not at all (finding security 3).
#[test]
fn programs_are_started_in_the_sandbox_only() -> Result<()> {
    let mut needed = BTreeSet::new();
    for (path, text) in rust_files()? {
        let is_ours = path.starts_with("crates/") || path.starts_with("services/");
        if !is_ours || path.contains("/tests") || path.contains("/examples/") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| PROGRAMS.iter().any(|way| line.contains(way))) {
            let place = MAY_START_PROGRAMS.iter().find(|(place, _)| path.starts_with(place));
            let (place, _why) = place.with_context(|| {
                format!("{path}: `{}` starts a program; run it in the Sandbox", line.trim())
            })?;
            needed.insert(*place);
        }
    }
    let allowed: BTreeSet<&str> = MAY_START_PROGRAMS.iter().map(|(place, _)| *place).collect();
    ensure!(needed == allowed, "not needed any more: {allowed:?}");
    Ok(())
}

/// Why: projects rot in files that contain everything. Past the limit, a file's doc says why it is one.
#[test]
fn a_long_file_says_why_it_is_long() -> Result<()> {
    const MAX_LINES: usize = 600;
    for (path, text) in rust_files()? {
        let lines = text.lines().count();
        let says_why = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .any(|line| line.contains("Long because"));
        ensure!(
            lines <= MAX_LINES || says_why,
            "{path} has {lines} lines and no `//! Long because …`"
        );
    }
    Ok(())
}

/// Why: an error code without an explanation helps nobody.
#[test]
fn every_error_code_has_a_page() -> Result<()> {
    let folders = [
        "crates/session/",
        "crates/session-rules/",
        "crates/api/src/error.rs",
        "crates/catalog/src/resolve.rs",
        "crates/credentials/src/error.rs",
        "crates/llm-protocol/src/error.rs",
        "services/worker/src/",
    ];
    let mut codes = BTreeSet::new();
    for (path, text) in rust_files()? {
        if folders.iter().any(|folder| path.starts_with(folder)) && !path.contains("/tests/") {
            codes.extend(text.lines().filter(|line| !line.contains("span!(")).flat_map(codes_in));
            let says = |code: &&ErrorCode| text.contains(&format!("ErrorCode::{code:?}"));
            codes.extend(ErrorCode::ALL.iter().filter(says).map(ToString::to_string));
        }
    }
    ensure!(codes.len() >= 15, "only {codes:?} were found");
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(repository().join("docs/errors"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a name")?.to_owned();
        if name != "README" {
            let text = fs::read_to_string(&path)?;
            let whole = text.starts_with(&format!("# `{name}`")) && text.contains("Do this:");
            ensure!(whole, "docs/errors/{name}.md says what happened, and what to do");
            pages.insert(name);
        }
    }
    let missing: Vec<_> = codes.difference(&pages).collect();
    let stale: Vec<_> = pages.difference(&codes).collect();
    ensure!(missing.is_empty(), "write docs/errors/CODE.md for {missing:?}");
    ensure!(stale.is_empty(), "no code says {stale:?} any more; remove their pages");
    let ours: BTreeSet<_> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
    ensure!(ours == pages, "`ErrorCode` and the pages differ: {ours:?}");
    let index = fs::read_to_string(repository().join("docs/errors/README.md"))?;
    for code in &codes {
        ensure!(
            index.contains(&format!("({code}.md)")),
            "docs/errors/README.md does not list {code}"
        );
    }
    Ok(())
}

/// Returns the string literals of a line that look like a code.
fn codes_in(line: &str) -> Vec<String> {
    const AREAS: [&str; 6] = ["provider", "model", "context", "session", "turn", "workspace"];
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '-'))
    };
    let is_code = |text: &&str| {
        text.split_once('.').is_some_and(|(area, rest)| AREAS.contains(&area) && is_word(rest))
    };
    // Event kinds look the same, but are not errors.
    let kinds = domain::SessionEvent::KINDS;
    let literals = line.split('"').skip(1).step_by(2).filter(is_code);
    literals.filter(|text| !kinds.contains(text)).map(str::to_owned).collect()
}

/// Why: unfinished work belongs in an issue, not in a surprise at run time.
#[test]
fn nothing_is_left_to_do() -> Result<()> {
    let marks = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME")];
    for (path, text) in rust_files()? {
        for mark in marks {
            ensure!(!text.contains(mark), "{path} has {mark}");
        }
    }
    Ok(())
}

/// Why: a file with a path of its author's machine works nowhere else, and tells strangers about that machine.
#[test]
fn nothing_names_the_machine_it_was_written_on() -> Result<()> {
    let checkout = repository().canonicalize()?;
    let mut names = vec![checkout.to_str().context("UTF-8")?.to_owned()];
    // A folder with a single name, such as `/check`, may be an ordinary word in a text.
    if let Some(parent) = checkout.parent().filter(|parent| parent.iter().count() > 2) {
        names.push(format!("{}/", parent.to_str().context("UTF-8")?));
    }
    names.push(concat!("/", "work", "/").to_owned());
    for (path, text) in files()? {
        for name in &names {
            ensure!(!text.contains(name), "{path} names {name}");
        }
    }
    Ok(())
}

/// Returns the documents without their code blocks.
fn documents() -> Result<Vec<(String, String)>> {
    let prose = |text: &str| {
        let mut in_code = false;
        let lines = text.lines().filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            !in_code && !is_fence
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let documents = files()?.into_iter().filter(|(path, _)| path.ends_with(".md"));
    Ok(documents.map(|(path, text)| (path, prose(&text))).collect())
}

/// Returns the anchors of a document's headings, as forges make them.
fn anchors(prose: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for heading in prose.lines().filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = [anchor.clone()].into_iter().chain(again);
        all.insert(names.find(|name| !all.contains(name)).unwrap_or(anchor));
    }
    all
}

/// Returns the targets of a document's links.
fn links(prose: &str) -> Vec<&str> {
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.trim())
        .collect()
}

// Finding style 10: nothing tested links, and sources cited a design that is not in the repository.
#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let documents: BTreeMap<_, _> = documents()?.into_iter().collect();
    ensure!(documents.len() > 40, "only {} documents", documents.len());
    let (mut seen, mut broken) = (0, Vec::new());
    for (path, prose) in &documents {
        for link in links(prose) {
            if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = std::path::Path::new(path).parent().unwrap_or(std::path::Path::new(""));
            let target = if file.is_empty() { path.into() } else { folder.join(file) };
            let Ok(real) = repository().join(&target).canonicalize() else {
                broken.push(format!("{path}: {link}"));
                continue;
            };
            let root = repository().canonicalize()?;
            let inside = real.strip_prefix(&root).map(|path| path.display().to_string());
            let Ok(inside) = inside else {
                broken.push(format!("{path}: {link} leaves the repository"));
                continue;
            };
            let has = |prose: &String| anchors(prose).contains(anchor);
            if !anchor.is_empty() && !documents.get(&inside).is_some_and(has) {
                broken.push(format!("{path}: {link} names no heading"));
            }
        }
    }
    ensure!(seen > 100, "only {seen} links were found");
    ensure!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

#[test]
fn nothing_cites_a_document_that_is_not_here() -> Result<()> {
    let cited = concat!("design ", "§");
    let files = files()?;
    let citing = files.iter().filter(|(path, text)| {
        // The text of a query is its identity in `.sqlx`, comments included: SQL changes with its own tests.
        !path.starts_with(".sqlx/") && !path.ends_with(".sql") && text.contains(cited)
    });
    let citing: Vec<&str> = citing.map(|(path, _)| path.as_str()).collect();
    ensure!(citing.is_empty(), "{citing:?} cite a design that is not in this repository");
    Ok(())
}
