//! npm's `oidc-provider`, started once for a test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const FILES: [&str; 3] = ["package.json", "package-lock.json", "server.mjs"];
const ADVICE: &str = "npm cannot bring the OAuth server that this test signs in to: install nodejs and npm (./dev \
                      test does) and allow npm to reach its registry";

pub(crate) struct Server {
    pub(crate) url: String,
    http: reqwest::Client,
    /// It ends with its input.
    _process: Child,
    /// It says more, and would end if nobody could hear it.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let folder = installed().await;
        let mut node = Command::new("node");
        node.arg("server.mjs").current_dir(folder).kill_on_drop(true);
        node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = node.spawn().expect(ADVICE);
        let mut lines = BufReader::new(process.stdout.take().expect("an output")).lines();
        let line = timeout(Duration::from_secs(30), lines.next_line()).await;
        let port = line.expect("it starts").expect("it writes").expect("its port");
        let url = format!("http://127.0.0.1:{port}");
        Self { url, http: reqwest::Client::new(), _process: process, _said: lines }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.expect("an answer");
        let text = answer.text().await.expect("a body");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// How often the token endpoint was asked to refresh.
    pub(crate) async fn refreshes(&self) -> u64 {
        self.get("/asked").await["refresh_token"].as_u64().unwrap_or(0)
    }

    /// Whose access token this is, as its own API says.
    pub(crate) async fn user_of(&self, token: &str) -> Option<String> {
        let asked = self.http.get(format!("{}/me", self.url)).bearer_auth(token).send().await;
        let text = asked.expect("an answer").text().await.expect("a body");
        let body: Value = serde_json::from_str(&text).expect("JSON");
        body["sub"].as_str().map(str::to_owned)
    }
}

/// The server's folder, installed once below cargo's target folder.
async fn installed() -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/third-party/oidc-provider");
    let test = std::env::current_exe().expect("a test is a program");
    let target = test.ancestors().nth(3).expect("a test lives in TARGET/PROFILE/deps");
    let folder = target.join("oidc-provider");
    fs::create_dir_all(&folder).expect("a folder");
    // Tests of one run take turns: the first installs it.
    let turn = File::create(folder.join("turn")).expect("a file");
    turn.lock().expect("a lock");
    let read = |folder: &Path, file| fs::read(folder.join(file)).unwrap_or_default();
    let done = folder.join("node_modules/oidc-provider").is_dir()
        && FILES.iter().all(|file| read(&from, file) == read(&folder, file));
    if !done {
        for file in FILES {
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
