//! A real git server behind HTTPS, with faults.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// `git http-backend` behind a small front, with a certificate that a private authority has signed. It needs `python3` and
/// `openssl`, and ends when it is dropped.
pub struct GitServer {
    folder: TempDir,
    child: Child,
    port: u16,
}

impl GitServer {
    /// Starts a server without repositories.
    ///
    /// # Errors
    /// A program is missing, or fails.
    pub fn start() -> Result<Self> {
        Self::start_with("python3".into(), include_str!("git_server.py"))
    }

    /// Starts a server without repositories that is not git's but dulwich's, and knows no faults. It speaks version 0 of the
    /// protocol only. It needs the Python package `dulwich`.
    ///
    /// # Errors
    /// The package is missing: `./dev test` installs it.
    pub fn start_dulwich() -> Result<Self> {
        let advice = "dulwich is not installed: run `./dev test`, or `pip install dulwich`";
        let python = crate::python::beside("dulwich", advice)?;
        Self::start_with(python, include_str!("dulwich_server.py"))
    }

    fn start_with(python: PathBuf, script: &str) -> Result<Self> {
        let folder = crate::temp_folder()?;
        certify(folder.path())?;
        let repositories = folder.path().join("repositories");
        std::fs::create_dir(&repositories)?;
        let mut child = Command::new(python)
            .args(["-c", script])
            .arg(&repositories)
            .args(["server.pem", "server.key"].map(|name| folder.path().join(name)))
            .stdout(Stdio::piped())
            .spawn()
            .context("python3")?;
        let mut line = String::new();
        let output = child.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().context("the server's port")?;
        Ok(Self { folder, child, port })
    }

    /// Returns `127.0.0.1:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Makes the repository `NAME.git` and returns its folder.
    ///
    /// # Errors
    /// When git fails.
    pub fn repository(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join("repositories").join(format!("{name}.git"));
        git(
            self.folder.path(),
            &["init", "-q", "--bare", "-b", "main", &folder.display().to_string()],
        )?;
        Ok(folder)
    }

    /// Makes it misbehave: a status such as `503`, `cut`, `slow`, or `None` for well.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn fault(&self, fault: Option<&str>) -> Result<()> {
        let path = self.folder.path().join("repositories/fault");
        match fault {
            Some(fault) => std::fs::write(path, fault)?,
            None => std::fs::remove_file(path)?,
        }
        Ok(())
    }

    /// Returns the requests so far, one a line.
    #[must_use]
    pub fn requests(&self) -> String {
        let path = self.folder.path().join("repositories/requests");
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        // It may be over already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Runs git in a folder, without the machine's configuration, and returns what it prints.
///
/// # Errors
/// When git fails; the error has what it said.
pub fn git(folder: &Path, args: &[&str]) -> Result<String> {
    run(folder, "git", args)
}

fn run(folder: &Path, program: &str, args: &[&str]) -> Result<String> {
    let ran = Command::new(program)
        .args(args)
        .current_dir(folder)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        // It would win over `-c http.sslCAInfo`.
        .env_remove("GIT_SSL_CAINFO")
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b")])
        .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@b")])
        .output()
        .with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{program} {args:?}: {said}");
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

fn certify(folder: &Path) -> Result<()> {
    let names = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n";
    std::fs::write(folder.join("names"), names)?;
    for line in [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=tests",
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=server",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 9 -extfile names",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        run(folder, "openssl", &words)?;
    }
    Ok(())
}
