//! `opencode-cloud session pull`: a session's work comes into the person's repository.
//!
//! It changes one ref there and nothing else: `refs/oc/<session>`, a branch, or a new worktree of one. Only `--apply` changes
//! files, when it was asked to and git takes the whole patch.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use client::{Client, ClientError};
use domain::SessionId;
use reqwest::{Response, StatusCode};
use tempfile::NamedTempFile;

use crate::CliError;
use crate::here::private::Private;
use crate::output::Screen;
use crate::render::printable;
use crate::session_name::find_session;

/// Arguments of `session pull`.
#[derive(Debug, clap::Args)]
pub struct PullArgs {
    /// The session, or the beginning of its id [default: the last one of this directory]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    /// Make this branch of its work [default: only the ref refs/oc/ID]
    #[arg(long, value_name = "NAME", conflicts_with = "apply")]
    pub branch: Option<String>,
    /// Check its work out in this new directory, a worktree of the repository here
    #[arg(long, value_name = "DIR", conflicts_with = "apply")]
    pub worktree: Option<PathBuf>,
    /// Change the files here, merged with your own changes; your index stays as it is
    #[arg(long)]
    pub apply: bool,
    /// The repository [default: that of this directory]
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub to: PathBuf,
}

pub(crate) async fn execute(
    client: &Client,
    args: PullArgs,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let id = &find_session(client, args.id.as_ref()).await?;
    if let Err(ClientError::NotFound { .. }) = client.repository(id).await {
        return Err(explain_missing_clone(client, id).await?);
    }
    let here = Here::find(&args.to)?;
    let kind = if args.apply { "patch" } else { "bundle" };
    let mut answer = client.open_out(id, kind).await?;
    let (base, wip) = (header(&answer, "x-oc-base"), header(&answer, "x-oc-wip"));
    if answer.status() == StatusCode::NO_CONTENT {
        screen.err.say(&format!("session {id} has changed nothing"))?;
        return Ok(0);
    }
    let file = save(client, &mut answer).await?;
    if args.apply {
        return apply(&here.0, file.path(), screen);
    }
    if let Some(base) = base.filter(|base| !here.has(base)) {
        return Err(CliError::Usage(format!(
            "the repository in {} does not have the commit {base} with which the session began: fetch it first \
             (git fetch), or say --to with another clone",
            args.to.display()
        )));
    }
    let (name, commit) = take(&here, id, &args, file.path(), wip.is_some())?;
    if let Some(directory) = &args.worktree {
        let detach: &[&str] = if args.branch.is_some() { &[] } else { &["--detach"] };
        let target = args.branch.as_deref().unwrap_or(&name);
        let words =
            ["-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet"].iter().chain(detach);
        let words = words.map(OsStr::new).chain([directory.as_os_str(), OsStr::new(target)]);
        here.run(words)?;
        screen.err.say(&format!("checked out in {}", directory.display()))?;
    }
    let short: String = commit.trim().chars().take(12).collect();
    screen.out.say(&format!("{name} {short}"))?;
    if wip.is_some() {
        screen.err.say("its last commit is what the session has not committed")?;
    }
    if args.branch.is_none() && args.worktree.is_none() {
        screen
            .err
            .say(&format!("see it: `git log -p {name}`; keep it: `git branch NAME {name}`"))?;
    }
    Ok(0)
}

/// Returns the error for a session that has no repository of its own: its work is elsewhere.
async fn explain_missing_clone(client: &Client, id: &SessionId) -> Result<CliError, CliError> {
    let session = client.session(id).await?; // it may be the session that is missing
    Ok(CliError::Usage(describe_place(id, &session.directory, client.shares_paths().await?)))
}

fn describe_place(id: &SessionId, directory: &str, shares_paths: bool) -> String {
    let shown = printable::line(directory, 400);
    if shares_paths && Path::new(directory).is_dir() {
        return format!(
            "session {id} worked in your own files, in {shown}: its changes are there already, and there is nothing to \
             pull; `opencode-cloud session diff {id}` shows them"
        );
    }
    format!(
        "session {id} worked in {shown} of the service, which is no git repository, so there is nothing that git could \
         pull; `opencode-cloud session diff {id}` shows its changes, and `opencode-cloud export {id}` has its files"
    )
}

/// Takes a session's work out of a bundle, whatever else is in it: git checks each object, and makes or moves one ref. Returns
/// the ref's name and its commit.
fn take(
    here: &Here,
    id: &SessionId,
    args: &PullArgs,
    bundle: &Path,
    has_wip: bool,
) -> Result<(String, String), CliError> {
    let from = if has_wip { "refs/oc/wip" } else { "refs/oc/head" };
    let name = match &args.branch {
        Some(branch) => format!("refs/heads/{branch}"),
        None => format!("refs/oc/{id}"),
    };
    here.git(["check-ref-format", &name], None)?;
    // Never an update of a branch that holds something else: git refuses what is no fast-forward.
    let plus = if args.branch.is_some() { "" } else { "+" };
    let refspec = format!("{plus}{from}:{name}");
    let fetch = [
        "-c",
        "transfer.fsckObjects=true",
        "-c",
        "core.hooksPath=/dev/null",
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--no-auto-maintenance",
    ];
    here.check_objects(bundle)?;
    here.fetch(&fetch, bundle, &refspec)?;
    let commit = here.git(["rev-parse", "--verify", &name], None)?;
    Ok((name, commit))
}

/// Shows which files a patch changes, and then changes the files here as it says. What the person has changed meanwhile is merged, and the index stays as it is.
fn apply(top: &Path, patch: &Path, screen: &mut Screen) -> Result<u8, CliError> {
    let here = Private::open(top)?;
    here.refresh()?;
    let changed = here.paths(["diff-files", "--name-only", "--ignore-submodules", "-z"])?;
    let untracked = here.paths(["ls-files", "-o", "--exclude-standard", "-z"])?;
    let is_file = |path: &&PathBuf| !path.as_os_str().as_bytes().ends_with(b"/");
    here.stage(changed.iter().chain(untracked.iter().filter(is_file)).map(PathBuf::as_path))?;
    let shown = ["apply", "--stat", "--summary", "--"].map(OsStr::new);
    let shown = here.attempt(shown.into_iter().chain([patch.as_os_str()]))?;
    screen.err.print(&String::from_utf8_lossy(&shown.stdout))?;
    let words = ["apply", "--3way", "--whitespace=nowarn", "--"].map(OsStr::new);
    let ended = here.attempt(words.into_iter().chain([patch.as_os_str()]))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        screen.err.say("its changes are applied to the files here")?;
        return Ok(0);
    }
    let conflicts: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("U ")).collect();
    if conflicts.is_empty() {
        let said: Vec<&str> =
            said.lines().filter(|line| line.starts_with("error: ")).take(5).collect();
        return Err(CliError::Usage(format!(
            "the changes do not fit the files here, and nothing was changed: {}; --branch or --worktree bring them beside \
             yours",
            said.join("; ")
        )));
    }
    screen.err.say(&format!(
        "its changes are applied, with conflicts that are marked in these files: {}",
        conflicts.join(", ")
    ))?;
    Ok(1)
}

fn header(answer: &Response, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?.to_str().ok()?;
    let is_commit = value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| value.to_owned())
}

async fn save(client: &Client, answer: &mut Response) -> Result<NamedTempFile, CliError> {
    let failed = |source| CliError::Io { doing: "the session's work cannot be kept", source };
    let mut file = NamedTempFile::new().map_err(failed)?;
    while let Some(piece) = client.next_piece(answer).await? {
        file.write_all(&piece).map_err(failed)?;
    }
    file.flush().map_err(failed)?;
    Ok(file)
}

/// The person's repository.
struct Here(PathBuf);

impl Here {
    fn find(directory: &Path) -> Result<Self, CliError> {
        let here = Self(directory.to_path_buf());
        here.git(["rev-parse", "--git-dir"], None)?;
        // A patch and a worktree count from the top.
        let top = here.git(["rev-parse", "--show-toplevel"], None)?;
        Ok(Self(PathBuf::from(top.trim_end_matches('\n'))))
    }

    fn has(&self, commit: &str) -> bool {
        self.git(["cat-file", "-e", &format!("{commit}^{{commit}}")], None).is_ok()
    }

    fn fetch(&self, options: &[&str], bundle: &Path, refspec: &str) -> Result<String, CliError> {
        let words = options.iter().map(OsStr::new);
        self.run(words.chain([bundle.as_os_str(), OsStr::new(refspec)]))
    }

    /// Looks at each object of a bundle, in a folder that is thrown away: git before 2.46 takes them from a bundle unseen,
    /// whatever `transfer.fsckObjects` says. What is no bundle is left for the fetch to refuse.
    fn check_objects(&self, bundle: &Path) -> Result<(), CliError> {
        let failed = |source| CliError::Io { doing: "the bundle cannot be checked", source };
        let mut pack = BufReader::new(File::open(bundle).map_err(failed)?);
        let mut line = Vec::new();
        while line != b"\n" {
            line.clear();
            if pack.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                return Ok(());
            }
        }
        let known = self.git(["rev-parse", "--git-path", "objects"], None)?;
        let aside = tempfile::tempdir().map_err(failed)?;
        let mut git = Command::new("git");
        git.args(["index-pack", "--stdin", "--fix-thin", "--strict"]).current_dir(&self.0);
        git.env("GIT_OBJECT_DIRECTORY", aside.path());
        git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.0.join(known.trim_end_matches('\n')));
        git.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut git = git.spawn().map_err(failed)?;
        let mut into = git.stdin.take().ok_or_else(|| failed(ErrorKind::BrokenPipe.into()))?;
        // Git that has seen enough says why.
        let _it_says_why = io::copy(&mut pack, &mut into);
        drop(into);
        let ran = git.wait_with_output().map_err(failed)?;
        if ran.status.success() { Ok(()) } else { Err(self.refuse(&ran.stderr)) }
    }

    fn git<const N: usize>(
        &self,
        words: [&str; N],
        path: Option<&Path>,
    ) -> Result<String, CliError> {
        let path = path.map(Path::as_os_str);
        self.run(words.iter().map(OsStr::new).chain(path))
    }

    fn run<'a>(&self, words: impl IntoIterator<Item = &'a OsStr>) -> Result<String, CliError> {
        let failed = |source| CliError::Io { doing: "git cannot be run here", source };
        let ran = Command::new("git")
            .args(words)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output()
            .map_err(failed)?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        Err(self.refuse(&ran.stderr))
    }

    /// Returns git's refusal in its own words.
    fn refuse(&self, said: &[u8]) -> CliError {
        let said = String::from_utf8_lossy(said);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        CliError::Usage(format!("git refused in {}: {}", self.0.display(), said.join("; ")))
    }
}

#[cfg(test)]
mod tests;
