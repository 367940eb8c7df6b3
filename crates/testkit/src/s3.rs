//! A real S3 server, moto's, with faults.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The bucket that it has.
pub const BUCKET: &str = "blobs";

/// moto's S3 behind a small front that makes faults. It needs the Python package `moto[server]`, and ends when it is
/// dropped.
pub struct S3 {
    folder: TempDir,
    child: Child,
    port: u16,
}

/// A way in which the server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Fault {
    /// It answers 503 and does nothing.
    Unavailable,
    /// It does as asked, and answers 503.
    UnavailableAfter,
    /// It cuts the connection and does nothing.
    Cut,
    /// It does as asked, and cuts the connection.
    CutAfter,
    /// It answers after 3 s.
    Slow,
    /// It ignores `If-None-Match`, so that a create replaces.
    NoConditions,
}

impl S3Fault {
    const fn word(self) -> &'static str {
        match self {
            Self::Unavailable => "503",
            Self::UnavailableAfter => "503-after",
            Self::Cut => "cut",
            Self::CutAfter => "cut-after",
            Self::Slow => "slow",
            Self::NoConditions => "no-conditions",
        }
    }
}

impl S3 {
    /// Starts a server with an empty bucket, [`BUCKET`].
    ///
    /// # Errors
    /// The package is missing: `./dev test` installs it.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let python = crate::python::beside("moto_server", NOT_INSTALLED)?;
        let mut child = Command::new(python)
            .args(["-c", include_str!("s3_server.py")])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3")?;
        let mut line = String::new();
        let output = child.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port =
            line.trim().parse().context("the port of moto's server; is moto[server] installed?")?;
        Ok(Self { folder, child, port })
    }

    /// Returns `127.0.0.1:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes the next `times` requests of a method (all with `""`) whose path has `path` in it misbehave.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn fault(&self, fault: S3Fault, method: &str, path: &str, times: u64) -> Result<()> {
        let kind = fault.word();
        let text =
            format!(r#"{{"kind":"{kind}","method":"{method}","path":"{path}","times":{times}}}"#);
        let new = self.folder.path().join("fault.given");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        Ok(std::fs::rename(new, self.folder.path().join("fault"))?)
    }

    /// Makes it behave well again.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn well(&self) -> Result<()> {
        match std::fs::remove_file(self.folder.path().join("fault")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _done => Ok(()),
        }
    }

    /// Returns the requests so far, one a line: method, path, fault or `well`, status.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("requests"));
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        // It may be over already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

const NOT_INSTALLED: &str =
    "moto's S3 server is not installed: run `./dev test`, or `pip install moto[server]`";
