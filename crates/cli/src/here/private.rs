//! A private view of the person's repository: git works on a copy of the index and writes objects elsewhere, so that the
//! repository stays as it is.
//!
//! ```text
//! .git/index ──copy──▶ <temp>/index          GIT_INDEX_FILE
//! .git/objects ◀─alternates── <temp>/objects  GIT_OBJECT_DIRECTORY
//! ```
//!
//! Invariant: nothing below `.git` is written, and no hook runs. Files are changed by `git apply` alone, when it is asked for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::CliError;

/// Options of each command. They win over the repository's configuration.
const OPTIONS: [&str; 14] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.splitIndex=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "core.safecrlf=false",
];

/// The person's repository, seen privately.
pub(crate) struct Private {
    /// The top of the worktree.
    pub(crate) top: PathBuf,
    folder: TempDir,
}

impl Private {
    /// Opens the repository around `directory`.
    ///
    /// # Errors
    /// It is in none, git is missing, or the disk fails.
    pub(crate) fn open(directory: &Path) -> Result<Self, CliError> {
        let folder = TempDir::new().map_err(disk)?;
        let at = Self { top: directory.to_path_buf(), folder };
        let top = at.line(["rev-parse", "--show-toplevel"])?;
        let private = Self { top: PathBuf::from(OsString::from_vec(top)), ..at };
        let index = private.path("index")?;
        let objects = private.path("objects")?;
        let info = private.objects().join("info");
        std::fs::create_dir_all(&info).map_err(disk)?;
        let mut line = objects.into_os_string().into_vec();
        line.push(b'\n');
        std::fs::write(info.join("alternates"), line).map_err(disk)?;
        match std::fs::copy(index, private.folder.path().join("index")) {
            Ok(_) => {}
            // A repository in which nothing was ever added.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(disk(error)),
        }
        Ok(private)
    }

    fn path(&self, name: &str) -> Result<PathBuf, CliError> {
        let mut git = Command::new("git");
        git.args(["rev-parse", "--git-path", name]).current_dir(&self.top);
        let found = trimmed(&finished(&self.top, git.output().map_err(ungit)?)?);
        Ok(self.top.join(OsString::from_vec(found)))
    }

    fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }

    fn command(&self) -> Command {
        let mut git = Command::new("git");
        git.args(OPTIONS).current_dir(&self.top).env("GIT_OPTIONAL_LOCKS", "0");
        if self.objects().is_dir() {
            git.env("GIT_INDEX_FILE", self.folder.path().join("index"));
            git.env("GIT_OBJECT_DIRECTORY", self.objects());
        }
        git
    }

    /// Runs git and returns its output.
    pub(crate) fn run<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
        input: &[u8],
    ) -> Result<Vec<u8>, CliError> {
        self.run_with(words, &[], input)
    }

    /// Runs git with variables and returns its output.
    pub(crate) fn run_with<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
        variables: &[(&str, &str)],
        input: &[u8],
    ) -> Result<Vec<u8>, CliError> {
        let mut git = self.command();
        git.args(words).envs(variables.iter().copied()).stdout(Stdio::piped());
        finished(&self.top, fed(git, input)?)
    }

    /// Runs git and returns how it ended, whatever that is.
    pub(crate) fn attempt<'a>(
        &self,
        words: impl IntoIterator<Item = &'a OsStr>,
    ) -> Result<Output, CliError> {
        let mut git = self.command();
        git.args(words).stdout(Stdio::piped());
        fed(git, b"")
    }

    /// Runs git and returns the first line of its output.
    pub(crate) fn line<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<u8>, CliError> {
        self.run(words, b"").map(|said| trimmed(&said))
    }

    /// Runs git and returns the first line of its output as text.
    pub(crate) fn text<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, CliError> {
        Ok(String::from_utf8_lossy(&self.line(words)?).into_owned())
    }

    /// Runs git and returns the paths that it prints, each with a NUL byte behind it.
    pub(crate) fn paths<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<PathBuf>, CliError> {
        let said = self.run(words, b"")?;
        let paths = said.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }

    /// Takes files as they are now into the private index: new ones, changed ones and those that are gone.
    pub(crate) fn stage<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), CliError> {
        let mut list = Vec::new();
        for path in paths {
            list.extend(path.as_os_str().as_bytes());
            list.push(0);
        }
        let words = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        self.run(words, &list).map(drop)
    }

    /// Brings what the private index knows of the files' times up to date.
    pub(crate) fn refresh(&self) -> Result<(), CliError> {
        // It ends with 1 if files differ, which is no failure.
        self.attempt(["update-index", "-q", "--refresh"].map(OsStr::new)).map(drop)
    }

    /// Packs objects into a file: those that `revisions` lead to, one a line as `git rev-list` takes them. Returns the file's
    /// path and its bytes.
    pub(crate) fn pack(&self, name: &str, revisions: &str) -> Result<(PathBuf, u64), CliError> {
        let path = self.folder.path().join(name);
        let file = File::create(&path).map_err(disk)?;
        let mut git = self.command();
        git.args(["pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q"]);
        git.stdout(file);
        finished(&self.top, fed(git, revisions.as_bytes())?)?;
        let bytes = path.metadata().map_err(disk)?.len();
        Ok((path, bytes))
    }
}

fn disk(source: io::Error) -> CliError {
    CliError::Io { doing: "the repository here cannot be read into a temporary folder", source }
}

fn ungit(source: io::Error) -> CliError {
    CliError::Io { doing: "git cannot be run here", source }
}

/// Runs git with something to read.
fn fed(mut git: Command, input: &[u8]) -> Result<Output, CliError> {
    let mut child = git.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(ungit)?;
    let mut feed = child.stdin.take();
    let input = input.to_vec();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(feed) = &mut feed {
                // If git ends early, its own error says why.
                let _ended_early = feed.write_all(&input);
            }
            drop(feed);
        });
        child.wait_with_output().map_err(ungit)
    })
}

fn finished(top: &Path, ended: Output) -> Result<Vec<u8>, CliError> {
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(CliError::Usage(format!("git refused in {}: {}", top.display(), said.join("; "))))
}

fn trimmed(said: &[u8]) -> Vec<u8> {
    said.split(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
}
