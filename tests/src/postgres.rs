//! Postgres servers with a place and settings of the test's choice. Root runs them as the user `postgres`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::process::run;

/// The superuser, who needs no password.
const SUPERUSER: &str = "postgres";

/// Makes an empty database cluster in a folder. Everybody who reaches it is trusted.
///
/// # Errors
/// When `initdb` fails.
pub(crate) fn init_postgres(data: &Path) -> Result<()> {
    fs::create_dir_all(data)?;
    if is_root() {
        std::os::unix::fs::chown(data, Some(find_user()?), None)?;
    }
    let data = data.display().to_string();
    let args = ["-D", &data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"];
    run_words(&words_of("initdb", &args)?)
}

/// Returns the command line of a server with settings as `NAME=VALUE`.
///
/// # Errors
/// When there is no Postgres.
pub(crate) fn postgres_words(data: &Path, settings: &[&str]) -> Result<Vec<String>> {
    let data = data.display().to_string();
    let mut args = vec!["-D", &data];
    args.extend(settings.iter().flat_map(|setting| ["-c", setting]));
    words_of("postgres", &args)
}

fn run_words(words: &[String]) -> Result<()> {
    let (program, args) = words.split_first().context("a program")?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run(program, &args).map(drop)
}

/// Returns the command line of a program of Postgres, which refuses to run as root.
fn words_of(program: &str, args: &[&str]) -> Result<Vec<String>> {
    let program = find_programs()?.join(program).display().to_string();
    let other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];
    let before = if is_root() { &other[..] } else { &[] };
    let words = before.iter().copied().chain([program.as_str()]).chain(args.iter().copied());
    Ok(words.map(str::to_owned).collect())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the number of the user `postgres`.
fn find_user() -> Result<u32> {
    let output = run("id", &["-u", "postgres"])?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// Returns the folder of Postgres' programs: of the newest version that is installed, or the one that `PATH` names.
fn find_programs() -> Result<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).find(|folder| folder.join("initdb").exists());
    let folder =
        found.pop().or(named).context("there is no Postgres: install the package postgresql")?;
    ensure!(folder.join("postgres").exists(), "{} has no postgres", folder.display());
    Ok(folder)
}
