//! Measures the lists that clients open with: a session's messages, and the sessions of an organisation.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use super::history::filled;
use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::sessions::session_in;
use crate::run::up::Up;
use crate::stats::Samples;

const MESSAGES: usize = 1_000;
/// Directories that share the sessions evenly.
const DIRECTORIES: u32 = 50;
/// Sessions are made by this many connections at once.
const CLIENTS: u32 = 8;
/// Requests for each list that are measured, after a few that are not.
const REQUESTS: usize = 100;
const WARM_UP: usize = 10;

/// Arguments of `lists`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions of the organisation
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    sessions: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let mut http = up.http().await?;
    note("filling a session with a thousand messages");
    let session = filled(&up, &mut http, MESSAGES).await?;
    for (name, path) in [
        ("lists.messages_stock", format!("/session/{session}/message")),
        ("lists.messages_native", format!("/platform/session/{session}/message?limit={MESSAGES}")),
    ] {
        let figure = listed(&mut http, name, &path, MESSAGES).await?.mark(Mark::AtMost(10.0));
        out.print(figure)?;
    }
    note(&format!("creating {} sessions", args.sessions));
    create(&up, args.sessions).await?;
    up.postgres.execute("ANALYZE").await?;
    // The service has closed the first connection, over which nothing came meanwhile.
    let mut http = up.http().await?;
    let directory = folder(&up, DIRECTORIES / 2);
    let project = project(&mut http, &directory).await?;
    for (name, path) in [
        ("lists.sessions_native", "/platform/session?limit=100".to_owned()),
        ("lists.sessions_project", format!("/project/{project}/session?limit=100")),
        ("lists.sessions_stock", "/session?limit=100".to_owned()),
        (
            "lists.sessions_directory",
            format!("/session?limit=100&directory={}", directory.display()),
        ),
    ] {
        let figure = listed(&mut http, name, &path, 100).await?.mark(Mark::AtMost(5.0));
        out.print(figure.with("sessions", f64::from(args.sessions)))?;
    }
    up.stop().await
}

/// Asks for one list again and again; each answer must have `expected` entries.
async fn listed(
    http: &mut Http,
    name: &str,
    path: &str,
    expected: usize,
) -> anyhow::Result<Figure> {
    let mut samples = Samples::default();
    let mut bytes = 0;
    for number in 0..WARM_UP + REQUESTS {
        let began = Instant::now();
        let (status, answer) = http.call(Method::GET, path, String::new()).await?;
        let took = began.elapsed();
        ensure!(status.is_success(), "{path} answered {status}");
        if number == 0 {
            let entries = entries(&answer).with_context(|| format!("{path} answered no list"))?;
            ensure!(entries == expected, "{path} answered {entries} entries, not {expected}");
        }
        bytes = answer.len();
        if number >= WARM_UP {
            samples.push(took);
        }
    }
    Ok(Figure::new(name, samples.ms(50), "ms")
        .with("p99_ms", samples.ms(99))
        .with("bytes", bytes as f64))
}

/// Returns the length of the list: the answer itself, or the only list in it.
fn entries(answer: &[u8]) -> Option<usize> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let inside = || answer.as_object()?.values().find_map(Value::as_array);
    answer.as_array().or_else(inside).map(Vec::len)
}

async fn create(up: &Up, sessions: u32) -> anyhow::Result<()> {
    for number in 0..DIRECTORIES {
        std::fs::create_dir_all(folder(up, number))?;
    }
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let mut http = up.http().await?;
        let mine: Vec<_> = (client..sessions)
            .step_by(CLIENTS as usize)
            .map(|number| folder(up, number % DIRECTORIES))
            .collect();
        clients.spawn(async move {
            for directory in mine {
                session_in(&mut http, &directory).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

fn folder(up: &Up, number: u32) -> std::path::PathBuf {
    up.workspace.join(format!("directory{number}"))
}

/// Returns the project of a directory.
async fn project(http: &mut Http, directory: &Path) -> anyhow::Result<String> {
    let projects = http.json(Method::GET, "/project", &Value::Null).await?;
    let list = projects.as_array().or_else(|| projects["projects"].as_array());
    let of_it = |project: &&Value| project["worktree"].as_str() == directory.to_str();
    let found = list.and_then(|list| list.iter().find(of_it)).context("there is no project")?;
    found["id"].as_str().map(str::to_owned).context("the project has no id")
}
