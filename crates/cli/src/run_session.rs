//! The session of a run: one that is there, or a new one in a directory or a clone.

use std::path::Path;

use client::{Client, ModelChoice, SessionModelView, SessionView, cause_text};
use domain::{Seq, SessionId};
use serde_json::{Value, json};
use workspaces::Address;

use crate::CliError;
use crate::here::SentHere;
use crate::output::Screen;
use crate::render::printable;
use crate::run::RunArgs;
use crate::session_name::{find_session, newest_in};

/// The folder of the service's own workspaces, by which clients know them.
const MANAGED: &str = "/workspace";

/// The session to use.
pub(crate) struct Opened {
    pub(crate) session: SessionId,
    /// The number after which to read its log.
    pub(crate) after: Seq,
    /// Whether this run created it.
    pub(crate) is_new: bool,
    /// Its model, if it has one yet.
    model: Option<SessionModelView>,
}

impl Opened {
    fn existing(session: SessionView) -> Self {
        let SessionView { id, seq, model, .. } = session;
        Self { session: id, after: seq, is_new: false, model }
    }

    fn new(session: SessionView) -> Self {
        let SessionView { id, model, .. } = session;
        Self { session: id, after: Seq(0), is_new: true, model }
    }
}

/// Returns the newest session of the directory that is not a child.
async fn last_session(client: &Client, args: &RunArgs) -> Result<Opened, CliError> {
    let shares_paths = client.shares_paths().await?;
    let directory = directory(args.directory.as_deref(), shares_paths)?;
    let last = newest_in(client, &directory).await?.ok_or_else(|| {
        let directory = printable::line(&directory, 200);
        let other = if shares_paths { "" } else { ", or name one with --session" };
        CliError::Usage(format!(
            "there is no session in {directory} to continue; leave -c out to start one{other}"
        ))
    })?;
    Ok(Opened::existing(last))
}

/// Returns the wanted variant, if the model of the run has it. Otherwise says so: the prompt goes to the plain model, as
/// with the released client.
pub(crate) async fn check_variant(
    client: &Client,
    args: &RunArgs,
    model: Option<&ModelChoice>,
    opened: &Opened,
    screen: &mut Screen,
) -> Result<Option<String>, CliError> {
    let Some(variant) = &args.variant else { return Ok(None) };
    // A service that does not say it now finds it out in the turn.
    let Ok(listed) = client.models_json(None, false).await else { return Ok(args.variant.clone()) };
    let own = opened.model.as_ref().map(|model| format!("{}/{}", model.provider, model.id));
    let usual = listed["default"].as_str().map(str::to_owned);
    let name = model.map(ToString::to_string).or(own).or(usual).unwrap_or_default();
    let Some(why) = warn_of_variant(&listed, &name, variant) else {
        return Ok(args.variant.clone());
    };
    screen.err.say(&why)?;
    Ok(None)
}

/// Returns a warning if a list of models says that `name` has no such variant.
fn warn_of_variant(listed: &Value, name: &str, variant: &str) -> Option<String> {
    let models = listed["models"].as_array()?;
    let found = models.iter().find(|model| model["id"] == name)?;
    // A model without variants has no such member.
    let variants = found["variants"].as_array().into_iter().flatten();
    let known: Vec<&str> = variants.filter_map(Value::as_str).collect();
    if known.contains(&variant) {
        return None;
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Some(printable::line(
        &format!("warning: {name} has no variant `{variant}` and runs without it; it has: {known}"),
        400,
    ))
}

/// Finds the session that the arguments name, or makes the one with the id `fresh`.
pub(crate) async fn open_session(
    client: &Client,
    args: &RunArgs,
    fresh: SessionId,
    model: Option<&ModelChoice>,
    prompt: &str,
    sent: Option<&SentHere>,
) -> Result<Opened, CliError> {
    if args.continue_last {
        return last_session(client, args).await;
    }
    if let Some(id) = &args.session {
        let session = client.session(&find_session(client, Some(id)).await?).await?;
        if let Some(given) = &args.directory {
            stays(&session, given, client.shares_paths().await?)?;
        }
        return Ok(Opened::existing(session));
    }
    let (agent, title) = (args.agent.as_deref(), title(args, prompt));
    if let Some(SentHere { project, sent }) = sent {
        let begins = json!({ "sent": sent });
        let title = title.as_deref();
        let made = client.create_session_with(&fresh, project, begins, agent, model, title).await?;
        return Ok(Opened::new(made));
    }
    let (project, directory) = match (&args.repo, &args.directory) {
        (Some(repo), _) => (Some(named(repo)), Some(named(repo))),
        // A service that does not have this directory gives the session a workspace that no other session has.
        (None, None) if !client.shares_paths().await? => (None, Some(own_workspace(&fresh))),
        (None, given) => {
            let directory = directory(given.as_deref(), client.shares_paths().await?)?;
            (Some(directory.clone()), Some(directory))
        }
    };
    let project = client.init_project(project.as_deref()).await?;
    let session = client
        .create_session(&fresh, &project.id, directory.as_deref(), agent, model, title.as_deref())
        .await?;
    Ok(Opened::new(session))
}

/// Returns the workspace of the service that is a session's own.
fn own_workspace(session: &SessionId) -> String {
    format!("{MANAGED}/{session}")
}

/// Refuses a directory other than the session's. Only a Move changes that.
fn stays(session: &SessionView, given: &Path, shares_paths: bool) -> Result<(), CliError> {
    let own = Path::new(&session.directory);
    if given == own || Path::new(&directory(Some(given), shares_paths)?) == own {
        return Ok(());
    }
    let (id, given) = (&session.id, given.display());
    let own = printable::line(&session.directory, 200);
    Err(CliError::Usage(format!(
        "--directory {given}: session {id} works in {own}; leave --directory out, or take the session there first \
         with: opencode-cloud session move {id} --directory {given}"
    )))
}

/// Returns the directory by which the service knows a repository at what is wanted of it.
fn named(repo: &Address) -> String {
    match &repo.wanted {
        Some(wanted) => format!("{}@{wanted}", repo.directory()),
        None => repo.directory(),
    }
}

/// Returns the title of a new session: the given one, or the beginning of the prompt. A model's title would come
/// after most runs have ended.
fn title(args: &RunArgs, prompt: &str) -> Option<String> {
    const BOUND: usize = 60;
    if args.title.is_some() {
        return args.title.clone();
    }
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(BOUND).collect())
}

/// Returns the directory for the service. If sessions work in directories of this machine, it must exist, and links are
/// resolved, so that one directory is one Location. A workspace of the service is on no machine.
pub(crate) fn directory(given: Option<&Path>, shares_paths: bool) -> Result<String, CliError> {
    let given = given.unwrap_or(Path::new("."));
    let is_managed = given.starts_with(MANAGED) && !given.exists();
    let shares_paths = shares_paths && !is_managed;
    let wrong = |why: String| {
        CliError::Usage(format!(
            "--directory {}: {why}; name an existing directory",
            given.display()
        ))
    };
    let path = if shares_paths { given.canonicalize() } else { std::path::absolute(given) };
    let path = path.map_err(|error| wrong(cause_text(&error)))?;
    if shares_paths && !path.is_dir() {
        return Err(wrong("not a directory".into()));
    }
    path.into_os_string().into_string().map_err(|_| wrong("not UTF-8".into()))
}

/// Returns a warning about sessions in a directory of this machine that is no project, but a home or everything.
#[must_use]
pub fn wide_directory_warning(directory: &Path) -> Option<String> {
    is_wide(directory, std::env::home_dir().as_deref()).then(|| {
        format!(
            "warning: {} is no project: sessions there may change all of your files, those that run when you log in too. \
             Choose a project's folder with --directory",
            directory.display()
        )
    })
}

/// Returns whether a directory is a home, or contains it.
fn is_wide(directory: &Path, home: Option<&Path>) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = real(directory);
    directory == Path::new("/") || home.is_some_and(|home| real(home).starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding security-3 H7: nobody said that a project's folder is meant.
    #[test]
    fn a_home_and_what_contains_it_are_no_projects() {
        let home = Some(Path::new("/home/me"));
        for wide in ["/", "/home", "/home/me"] {
            assert!(is_wide(Path::new(wide), home), "{wide}");
        }
        for project in ["/home/me/project", "/home/meet", "/srv"] {
            assert!(!is_wide(Path::new(project), home), "{project}");
        }
    }

    // Heldout-3: `--variant` that the model does not have ended the run.
    #[test]
    fn a_variant_that_the_model_lacks_is_a_warning() {
        let listed = json!({ "default": "p/m", "models": [
            { "id": "p/m", "variants": ["low", "high"] }, { "id": "p/plain" },
        ] });
        let told = warn_of_variant(&listed, "p/m", "highest").expect("a warning");
        assert!(
            told.ends_with("p/m has no variant `highest` and runs without it; it has: low, high"),
            "{told}"
        );
        let told = warn_of_variant(&listed, "p/plain", "high").expect("a warning");
        assert!(told.ends_with("it has: none"), "{told}");
        for (model, variant) in [("p/m", "high"), ("p/other", "high"), ("", "high")] {
            assert_eq!(warn_of_variant(&listed, model, variant), None, "{model}");
        }
    }

    #[test]
    fn a_session_stays_in_its_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("a folder");
        let session = |directory: &Path| -> SessionView {
            let answer = serde_json::json!({
                "id": "ses_1", "projectID": "prj_1", "directory": directory, "title": "", "agent": "build",
                "busy": false, "seq": 1, "time": {"created": 0},
            });
            serde_json::from_value(answer).expect("a session")
        };
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        stays(&session(&real), &link, true).expect("the same directory");
        let managed = Path::new("/workspace/x");
        for shares_paths in [true, false] {
            stays(&session(managed), Path::new("/workspace/x/"), shares_paths).expect("the same");
            let error = stays(&session(managed), &real, shares_paths).expect_err("another one");
            assert_eq!(error.exit_code(), 2);
            let told = format!("session move ses_1 --directory {}", real.display());
            assert!(error.to_string().ends_with(&told), "{error}");
        }
    }

    #[test]
    fn a_directory_must_be_there_when_it_is_on_this_machine() {
        let here = directory(None, true).expect("the current directory");
        assert!(Path::new(&here).is_absolute());
        let missing = Some(Path::new("/no/such/place"));
        assert_eq!(directory(missing, true).map_err(|error| error.exit_code()), Err(2));
        assert_eq!(directory(missing, false).ok().as_deref(), Some("/no/such/place"));
    }
}
