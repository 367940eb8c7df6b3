//! Reports to `kent`, a Sentry for tests that nobody here wrote. `./dev test` installs it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reports::{ErrorLayer, Settings, start};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Failure = Box<dyn std::error::Error>;

const CANARY: &str = "CANARY-7f3a";

struct Kent {
    process: Child,
    port: u16,
}

impl Kent {
    fn start() -> Result<Self, Failure> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("kent-server");
        command.args(["run", "--host=127.0.0.1", &format!("--port={port}")]);
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("kent-server: {error}; ./dev test installs it"))?;
        let kent = Self { process, port };
        kent.wait(|kent| kent.get("/api/eventlist/").is_ok().then_some(()))?;
        Ok(kent)
    }

    fn wait<T>(&self, mut done: impl FnMut(&Self) -> Option<T>) -> Result<T, Failure> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if let Some(done) = done(self) {
                return Ok(done);
            }
            sleep(Duration::from_millis(50));
        }
        Err("kent has not got there within 30 s".into())
    }

    fn get(&self, path: &str) -> Result<String, Failure> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let output =
            Command::new("curl").args(["--silent", "--fail", "--max-time", "5", &url]).output()?;
        if !output.status.success() {
            return Err(format!("{path}: {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns everything that has come, as kent keeps it.
    fn events(&self) -> Result<Vec<Value>, Failure> {
        let list: Value = serde_json::from_str(&self.get("/api/eventlist/")?)?;
        let all = list["events"].as_array().ok_or("events")?;
        let ids =
            all.iter().filter_map(|event| event["event_id"].as_str().or_else(|| event.as_str()));
        ids.map(|id| Ok(serde_json::from_str(&self.get(&format!("/api/event/{id}"))?)?)).collect()
    }
}

impl Drop for Kent {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// One test, since a process reports to one Sentry.
#[test]
fn errors_and_panics_arrive_without_their_texts() -> Result<(), Failure> {
    let wrong =
        start(Settings { dsn: CANARY, role: "worker", release: "1.2.3", environment: None });
    let told = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("no Sentry DSN") && !told.contains(CANARY), "{told}");

    let kent = Kent::start()?;
    tracing_subscriber::registry().with(ErrorLayer).try_init()?;
    tracing::error!(error = CANARY, "before reports are on");
    let dsn = format!("http://key@127.0.0.1:{}/1", kent.port);
    let environment = Some("staging");
    let reports = start(Settings { dsn: &dsn, role: "worker", release: "1.2.3", environment })?;

    let span = tracing::error_span!("drain", org.id = CANARY, session.id = CANARY);
    span.in_scope(|| tracing::error!(task = "heartbeat", error = CANARY, status = 503, "{CANARY}"));
    tracing::warn!(error = CANARY, "no error");
    let panicked = std::thread::spawn(|| panic!("{CANARY}")).join();
    assert!(panicked.is_err());
    drop(reports);

    let events = kent.wait(|kent| kent.events().ok().filter(|events| events.len() >= 2))?;
    let text = serde_json::to_string_pretty(&events)?;
    assert_eq!(events.len(), 2, "{text}");
    assert!(!text.contains(CANARY), "{text}");
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    assert!(host.is_empty() || !text.contains(&format!("\"{host}\"")), "{host}: {text}");
    for kept in [
        "tests/kent.rs:",
        "heartbeat",
        "503",
        "\"org\"",
        "staging",
        "1.2.3",
        "panic",
        "\"role\": \"worker\"",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    Ok(())
}
