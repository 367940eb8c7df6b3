//! The process whose memory is measured: nothing but `llm-client`, on the service's runtime.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::StreamExt;
use hyper::Method;
use llm_client::{Client, Endpoint, Llm, Options, Route};
use llm_protocol::{
    LlmEvent, LlmRequest, Message, Part, Protocol, RawJson, SystemPart, ToolDefinition,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{DELTAS, HALF, server};
use crate::run::cpu::rss_mib;
use crate::run::http::Http;

/// Whole streams, one after the other, before the measurement.
const WARM_UP: usize = 8;
/// How long work in progress may take to settle once the last stream is at its middle.
const REST: Duration = Duration::from_secs(2);
/// How long all streams may take to get there.
const FILL: Duration = Duration::from_mins(1);

/// Arguments of `streams-client`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    url: String,
    #[arg(long)]
    streams: usize,
}

/// The output of the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// After the warm-up, without a stream.
    pub(super) warm_kib: f64,
    /// With all streams open at their middle.
    pub(super) open_kib: f64,
    pub(super) request_bytes: f64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let measured = measure(args).await?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &measured)?;
    Ok(out.write_all(b"\n")?)
}

async fn measure(args: &Args) -> anyhow::Result<Measured> {
    let client = Client::new(Options::default())?;
    let on = |base: &str| {
        let endpoint = Endpoint::new(format!("{}{base}", args.url));
        client.on(Route::new(Protocol::OpenAiChat, "a-model", endpoint))
    };
    let warm = on("/warm/v1");
    for _ in 0..WARM_UP {
        read(&warm, async || Ok(())).await?;
    }
    let warm_kib = rss_kib()?;

    let llm = on("/v1");
    let (arrived, mut arrivals) = mpsc::channel(args.streams);
    let mut streams = JoinSet::new();
    for _ in 0..args.streams {
        let (llm, arrived) = (llm.clone(), arrived.clone());
        streams.spawn(async move { read(&llm, async || Ok(arrived.send(()).await?)).await });
    }
    drop(arrived);
    let fill = async {
        for _ in 0..args.streams {
            arrivals.recv().await.context("a stream ended before its middle")?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(FILL, fill).await.context("not all streams came to their middle")??;
    tokio::time::sleep(REST).await;
    let open_kib = rss_kib()?;

    let mut http = Http::connect(&args.url, None).await?;
    http.call(Method::GET, "/release", String::new()).await?;
    while let Some(ended) = streams.join_next().await {
        ended??;
    }
    let request_bytes = llm.encode(&request()).len() as f64;
    Ok(Measured { warm_kib, open_kib, request_bytes })
}

/// Reads one answer, calls `middle` at its middle, and checks that it is complete.
async fn read(llm: &Llm, middle: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    // Like a session, which sends exact bytes that it has encoded before.
    let body = llm.encode(&request());
    let mut stream = llm.send(body).await?;
    let (mut deltas, mut middle) = (0, Some(middle));
    let mut finished = false;
    while let Some(event) = stream.next().await {
        let event = event?;
        if let LlmEvent::TextDelta { text, .. } = &event {
            ensure!(*text == server::text(deltas), "delta {deltas} is {text:?}");
            deltas += 1;
        }
        finished = matches!(event, LlmEvent::Finish { .. });
        if deltas == HALF
            && let Some(middle) = middle.take()
        {
            middle().await?;
        }
    }
    ensure!(finished && deltas == DELTAS, "{deltas} deltas, finished: {finished}");
    Ok(())
}

/// Returns a request from the middle of a session: instructions, some tools, a conversation.
fn request() -> LlmRequest {
    let words =
        |bytes: usize| "nine more words that somebody may well have said. ".repeat(bytes / 50);
    let mut messages = Vec::new();
    for _ in 0..10 {
        messages.push(Message::user(words(500)));
        messages.push(Message::assistant(vec![Part::text(words(2_000))]));
    }
    messages.push(Message::user(words(500)));
    let mut request = LlmRequest::new("", messages);
    request.system.push(SystemPart::text(words(8_000)));
    for name in ["read", "write", "edit", "glob", "grep", "shell"] {
        let schema =
            r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
        request.tools.push(ToolDefinition {
            name: name.to_owned(),
            description: words(600),
            input_schema: RawJson::parse(schema).expect("it is JSON"),
        });
    }
    request
}

fn rss_kib() -> anyhow::Result<f64> {
    Ok(rss_mib(std::process::id())? * 1024.0)
}
