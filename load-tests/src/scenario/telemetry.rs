//! Measures what it costs to be watched: turns at a service whose metrics are scraped and whose turns are all traced,
//! alternating with the same turns at one that nobody watches.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use boot::free_port;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::drive::drive;
use crate::run::http::Http;
use crate::run::up::Up;
use crate::stats::median;

const PROMPT: &str = "say 20 words";
/// Prometheus asks every 15 s unless told otherwise.
const SCRAPES: Duration = Duration::from_secs(5);
/// More CPU a turn, in percent.
const MARK: f64 = 2.0;

/// Arguments of `telemetry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds, each with a drive of both services
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Seconds of one drive
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=120))]
    seconds: u64,
    /// Sessions that are busy at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=500))]
    sessions: u16,
}

/// A collector of traces that takes everything and keeps its size.
struct Collector {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    _serves: JoinSet<()>,
}

impl Collector {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, bytes) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let (mut serves, taken) = (JoinSet::new(), bytes.clone());
        serves.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let taken = taken.clone();
                connections.spawn(async move {
                    let takes = service_fn(move |request| take(request, taken.clone()));
                    let server = hyper::server::conn::http1::Builder::new();
                    // A service that disconnects is no error here.
                    let _gone = server.serve_connection(TokioIo::new(socket), takes).await;
                });
            }
        });
        Ok(Self { address, bytes, _serves: serves })
    }
}

async fn take(
    request: Request<Incoming>,
    taken: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if let Ok(body) = request.into_body().collect().await {
        taken.fetch_add(body.to_bytes().len() as u64, Ordering::Relaxed);
    }
    Ok(Response::new(Full::default()))
}

/// What one service used a turn, in milliseconds.
struct Cost {
    service: f64,
    postgres: f64,
}

impl Cost {
    fn whole(&self) -> f64 {
        self.service + self.postgres
    }
}

async fn cost(up: &Up, args: &Args) -> anyhow::Result<Cost> {
    let before = up.used()?;
    let span = Duration::from_secs(args.seconds);
    let ran = drive(&up.target(), usize::from(args.sessions), span, PROMPT).await?;
    let used = up.used()?.since(before);
    let per_turn = |time: Duration| time.as_secs_f64() * 1e3 / ran.turns.len() as f64;
    Ok(Cost { service: per_turn(used.service), postgres: per_turn(used.postgres) })
}

/// Asks for the metrics again and again.
async fn scrape(url: String) -> anyhow::Result<Infallible> {
    let mut http = Http::connect(&url, None).await?;
    loop {
        let (status, text) = http.call(Method::GET, "/metrics", String::new()).await?;
        ensure!(status.is_success() && text.len() > 1_000, "{status}: {text:?}");
        tokio::time::sleep(SCRAPES).await;
    }
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let port = free_port()?;
    let flags = [
        format!("--otlp-endpoint=http://{}", collector.address),
        format!("--metrics-bind=127.0.0.1:{port}"),
    ];
    let alone = Up::start(bin).await?;
    out.probed(alone.probe().await?);
    let watched = Up::with_flags(bin, &flags.each_ref().map(String::as_str)).await?;
    let mut scraping = JoinSet::new();
    scraping.spawn(scrape(format!("http://127.0.0.1:{port}")));
    note("warming up");
    for up in [&alone, &watched] {
        cost(up, args).await?;
    }
    let (mut more, mut costs) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new(), Vec::new()]);
    for round in 0..args.rounds {
        // Whoever comes first meets another machine than whoever comes second.
        let (first, second) = if round % 2 == 0 { (&alone, &watched) } else { (&watched, &alone) };
        let (first, second) = (cost(first, args).await?, cost(second, args).await?);
        let (without, with) = if round % 2 == 0 { (first, second) } else { (second, first) };
        more.push((with.whole() / without.whole() - 1.) * 100.);
        let all = [without.service, without.postgres, with.service, with.postgres];
        for (kept, cost) in costs.iter_mut().zip(all) {
            kept.push(cost);
        }
    }
    if let Some(ended) = scraping.try_join_next() {
        ended??;
    }
    drop(scraping);
    let traced = collector.bytes.load(Ordering::Relaxed);
    ensure!(traced > 0, "no trace came");
    let [service, postgres, watched_service, watched_postgres] = costs.map(median);
    let whole = (watched_service + watched_postgres) / (service + postgres) - 1.;
    let figure = Figure::new("telemetry.cpu", median(more), "%")
        .mark(Mark::AtMost(MARK))
        .with("of_medians", whole * 100.)
        .with("service_ms", service)
        .with("watched_service_ms", watched_service)
        .with("postgres_ms", postgres)
        .with("watched_postgres_ms", watched_postgres)
        .with("traced_mib", traced as f64 / 1_048_576.)
        .with("rounds", f64::from(args.rounds));
    out.print(figure)?;
    alone.stop().await?;
    watched.stop().await
}
