//! Brings a package from npm's registry to a test: a folder here with the pinned package and programs that use it. A
//! server in it prints its port and ends with its input. Tests of several crates include this source file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const ADVICE: &str = "npm cannot bring a package that this test needs: install nodejs and npm (./dev test does) and \
                      allow npm to reach its registry";

pub(crate) struct Served {
    pub(crate) url: String,
    /// Ends with its input.
    _process: Child,
    /// Kept open, because the server would end if nobody could read its output.
    _said: Lines<BufReader<ChildStdout>>,
}

/// Starts a server of the folder `name`, whose package is `package`.
pub(crate) async fn serve(name: &str, package: &str, program: &str) -> Served {
    let folder = installed(name, package).await;
    let mut node = Command::new("node");
    node.arg(program).current_dir(folder).kill_on_drop(true);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = node.spawn().expect(ADVICE);
    let mut said = BufReader::new(process.stdout.take().expect("an output")).lines();
    let line = timeout(Duration::from_secs(120), said.next_line()).await;
    let port = line.expect("it starts").expect("it writes").expect("its port");
    Served { url: format!("http://127.0.0.1:{port}"), _process: process, _said: said }
}

/// Returns the folder `name` with its package, installed once below cargo's target folder.
pub(crate) async fn installed(name: &str, package: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = here.map(|folder| folder.join("tests/third-party").join(name));
    let from = folders.find(|folder| folder.is_dir()).expect("this repository");
    let test = std::env::current_exe().expect("a test is a program");
    let target = test.ancestors().nth(3).expect("a test lives in TARGET/PROFILE/deps");
    let folder = target.join(name);
    fs::create_dir_all(&folder).expect("a folder");
    // Tests of one run take turns: the first installs it.
    let turn = File::create(folder.join("turn")).expect("a file");
    turn.lock().expect("a lock");
    let read = |folder: &Path, file: &OsString| fs::read(folder.join(file)).unwrap_or_default();
    let files = fs::read_dir(&from).expect("a folder");
    let files = files.map(|entry| entry.expect("an entry").file_name());
    let files: Vec<_> = files.filter(|name| name != "node_modules").collect();
    let done = folder.join("node_modules").join(package).is_dir()
        && files.iter().all(|file| read(&from, file) == read(&folder, file));
    if !done {
        for file in &files {
            fs::copy(from.join(file), folder.join(file)).expect("a copy");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        npm.current_dir(&folder).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(Duration::from_secs(120), npm.output()).await;
        let output = output.expect(ADVICE).expect(ADVICE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ADVICE}: {said}");
    }
    folder
}
