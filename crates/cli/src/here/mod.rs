//! `run --here`: the person's repository goes to the service as it is, with what is not committed.
//!
//! ```text
//! survey ─▶ which commits are there? ─▶ packs of the rest, in a temporary folder ─▶ shown ─▶ sent ─▶ a session begins with them
//! ```
//!
//! Invariant: nothing of the person's changes: neither files nor index, refs or configuration (see [`private`]).

use client::Client;
pub(crate) mod private;
mod secret;
mod survey;

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use domain::ProjectId;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::run_ask::is_yes;
use crate::table::count;
use private::Private;
use survey::{ChangeCommits, Survey, survey};

/// The files of a kind that are named.
const NAMED: usize = 5;

/// What the service has got.
pub(crate) struct SentHere {
    /// The project of the new session.
    pub(crate) project: ProjectId,
    /// Its member `sent`.
    pub(crate) sent: Value,
}

/// The packs to send.
struct Packs {
    commits: Option<(PathBuf, u64)>,
    changes: Option<(PathBuf, u64)>,
    /// The number of commits that the service lacks.
    lacking: usize,
}

/// Shows what is sent of the repository around `directory`, and sends it. Returns `None` if `is_only_shown`.
pub(crate) async fn send(
    client: &Client,
    directory: &Path,
    include: &[PathBuf],
    is_only_shown: bool,
    screen: &mut Screen,
) -> Result<Option<SentHere>, CliError> {
    let directory = directory
        .canonicalize()
        .map_err(|source| CliError::Io { doing: "the directory cannot be read", source })?;
    let given = include.to_vec();
    let looked = move || {
        let here = Private::open(&directory)?;
        let survey = survey(&here, &given)?;
        Ok::<_, CliError>((here, survey))
    };
    let (here, survey) = blocking(looked).await?;
    let there = client.name_repository(&survey.name, &survey.root, &survey.commits).await?;
    let known = there.known.clone();
    let packed = move || {
        let packs = packs(&here, &survey, &known)?;
        Ok::<_, CliError>((here, survey, packs))
    };
    let (here, survey, packs) = blocking(packed).await?;
    screen.err.prose(&summary(&here.top, &survey, &packs))?;
    for (_, bytes) in [&packs.commits, &packs.changes].into_iter().flatten() {
        if *bytes > there.max_bytes {
            return Err(CliError::Usage(format!(
                "run --here: {bytes} bytes are more than the {} that one upload may have; push the repository to a server \
                 and use --repo",
                there.max_bytes
            )));
        }
    }
    if is_only_shown {
        let can_ask = can_ask_person(screen);
        if let Some(warning) = warn_of_secrets(&survey, &packs, can_ask) {
            screen.err.say(&printable::line(&warning, 2_000))?;
        }
        screen.err.say("nothing was sent")?;
        return Ok(None);
    }
    agreed(&survey, &packs, screen)?;
    let mut sent = json!({
        "repository": there.id, "commit": survey.head, "branch": survey.branch,
    });
    if let Some((path, _)) = &packs.commits {
        sent["commits"] = json!(client.upload(path).await?);
    }
    if let (Some(ChangeCommits { staged, wip }), Some((path, _))) =
        (&survey.changes, &packs.changes)
    {
        let upload = client.upload(path).await?;
        sent["changes"] = json!({ "upload": upload, "staged": staged, "wip": wip });
    }
    drop(here);
    Ok(Some(SentHere { project: there.project, sent }))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let failed = |error: tokio::task::JoinError| CliError::Io {
        doing: "the repository here cannot be looked at",
        source: std::io::Error::other(error),
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

fn packs(here: &Private, survey: &Survey, known: &[String]) -> Result<Packs, CliError> {
    let without: String = known.iter().map(|commit| format!("^{commit}\n")).collect();
    let is_known = known.contains(&survey.head);
    let mut packs = Packs { commits: None, changes: None, lacking: 0 };
    if !is_known {
        let revisions = format!("{}\n{without}", survey.head);
        let count = here.run(["rev-list", "--count", "--stdin"], revisions.as_bytes())?;
        packs.lacking = String::from_utf8_lossy(&count).trim().parse().unwrap_or(0);
        packs.commits = Some(here.pack("commits", &revisions)?);
    }
    if let Some(ChangeCommits { staged, wip }) = &survey.changes {
        packs.changes =
            Some(here.pack("changes", &format!("{wip}\n{staged}\n^{}\n", survey.head))?);
    }
    Ok(packs)
}

/// Returns whether a person can be asked at the terminal.
fn can_ask_person(screen: &Screen) -> bool {
    screen.err.is_terminal() && std::io::stdin().is_terminal()
}

/// Names the committed or changed files that look like secrets and would be sent; `None` if there are none.
fn name_tracked_secrets(survey: &Survey, packs: &Packs) -> Option<String> {
    let commits = if packs.commits.is_some() { &survey.secret_commits[..] } else { &[] };
    let mut secrets: Vec<&PathBuf> = survey.secret_changes.iter().chain(commits).collect();
    secrets.sort();
    secrets.dedup();
    (!secrets.is_empty()).then(|| named(secrets.iter().map(|path| path.as_path())))
}

/// Returns the warning of a dry run about tracked files that look like secrets: the real run refuses them, or asks.
fn warn_of_secrets(survey: &Survey, packs: &Packs, can_ask: bool) -> Option<String> {
    let files = name_tracked_secrets(survey, packs)?;
    let consequence = if can_ask { "asks before it sends them" } else { "refuses to send them" };
    Some(format!(
        "tracked files look like secrets: {files}. Without --dry-run this command {consequence}; --include PATH allows such a \
         file, and --include . all of them"
    ))
}

/// Asks the person about committed or changed files that look like secrets.
fn agreed(survey: &Survey, packs: &Packs, screen: &mut Screen) -> Result<(), CliError> {
    let Some(files) = name_tracked_secrets(survey, packs) else { return Ok(()) };
    if !can_ask_person(screen) {
        return Err(CliError::Usage(format!(
            "run --here: tracked files look like secrets: {files}. Nothing was sent; --include PATH sends such a file, and \
             --include . all of them"
        )));
    }
    screen
        .err
        .print(&format!("tracked files look like secrets: {files}\nsend them too? [y/N] "))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if is_yes(&answer) {
        return Ok(());
    }
    Err(CliError::Usage("run --here: nothing was sent".to_owned()))
}

fn named<'a>(paths: impl ExactSizeIterator<Item = &'a Path>) -> String {
    let more = paths.len().saturating_sub(NAMED);
    let mut text = String::new();
    for path in paths.take(NAMED) {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{}", path.display()).expect("writing to a string cannot fail");
    }
    if more > 0 { format!("{text} and {more} more") } else { text }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => crate::table::count(count, "byte"),
        1_000..1_000_000 => format!("{} KB", count.div_ceil(1_000)),
        1_000_000.. => format!("{}.{} MB", count / 1_000_000, count / 100_000 % 10),
    }
}

/// Says what is sent and what stays.
fn summary(top: &Path, survey: &Survey, packs: &Packs) -> String {
    let mut text = String::new();
    let mut line = |name: &str, told: String| {
        let told = printable::line(&told, 1_000);
        writeln!(text, "{name:<9} {told}").expect("writing to a string cannot fail");
    };
    let short: String = survey.head.chars().take(12).collect();
    let on = survey.branch.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
    let on = on.map(|name| format!(" on {name}")).unwrap_or_default();
    line("sends", format!("{} at {short}{on}", top.display()));
    line(
        "commits",
        match &packs.commits {
            Some((_, size)) => format!("{} ({})", packs.lacking, bytes(*size)),
            None => "none: the service has them".to_owned(),
        },
    );
    line(
        "changes",
        match &packs.changes {
            Some((_, size)) => format!(
                "{}, {} of them untracked ({})",
                count(survey.changed as u64, "file"),
                survey.untracked,
                bytes(*size)
            ),
            None => "none".to_owned(),
        },
    );
    let mut left = |why: &str, paths: &[PathBuf]| {
        if !paths.is_empty() {
            line("stays", format!("{why}: {}", named(paths.iter().map(PathBuf::as_path))));
        }
    };
    left("ignored", &survey.ignored);
    left("looks like a secret (--include PATH sends it)", &survey.kept_back);
    left("a repository of its own", &survey.nested);
    text
}

#[cfg(test)]
mod tests;
