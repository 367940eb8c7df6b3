//! Measures the memory of an open stream: a separate process reads a thousand at once through `llm-client`.
//!
//! ```text
//! load-tests ─starts→ streams-server ←HTTP/1.1─ streams-client (is measured)
//! ```

pub(crate) mod client;
pub(crate) mod server;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use boot::free_port;
use clap::ValueEnum;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::{Server, folder};

/// How long the client may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// Arguments of `streams`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Streams that are open at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(10..=5_000))]
    streams: u16,
}

/// The speed of the first half of an answer. The server pauses in the middle, when all of that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manner {
    /// An event at a time.
    Slow,
    /// All at once.
    Burst,
}

/// Deltas of one answer.
const DELTAS: usize = 400;
/// The number of deltas before the pause.
const HALF: usize = DELTAS / 2;

pub(crate) async fn run(args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    out.touches_no_disk();
    let folder = folder()?;
    for name in ["slow", "burst"] {
        note(&format!("{} {name} streams", args.streams));
        let measured = measured(args, name, folder.path()).await?;
        let each = (measured.open_kib - measured.warm_kib) / f64::from(args.streams);
        let figure = Figure::new("streams.rss_each", each, "KiB");
        // A burst shows how far HTTP's buffers grow when a server sends faster than the client reads.
        let figure = if name == "slow" { figure.mark(Mark::AtMost(64.0)) } else { figure };
        let figure = figure
            .text("manner", name)
            .with("streams", f64::from(args.streams))
            .with("warm_kib", measured.warm_kib)
            .with("open_kib", measured.open_kib)
            .with("request_bytes", measured.request_bytes)
            .with("answer_bytes", server::answer_bytes() as f64);
        out.print(figure)?;
    }
    Ok(())
}

async fn measured(args: &Args, manner: &str, folder: &Path) -> anyhow::Result<client::Measured> {
    let me = std::env::current_exe()?;
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let (server_log, client_log) = (folder.join("server.log"), folder.join("client.log"));
    let mut server = Server::start(&me, &server_log, |command| {
        command.args(["streams-server", "--manner", manner]).arg(format!("--port={port}"));
    })?;
    server.ready(&url, "/healthz", &server_log).await?;
    let client = Server::start(&me, &client_log, |command| {
        command.arg("streams-client").arg(format!("--url={url}"));
        command.arg(format!("--streams={}", args.streams));
    })?;
    let ended = client.ended(PATIENCE).await;
    let said = std::fs::read_to_string(&client_log)?;
    ended.with_context(|| format!("the client said:\n{said}"))?;
    server.stop().await?;
    let line = said.lines().last().context("the client said nothing")?;
    serde_json::from_str(line).with_context(|| said.clone())
}
