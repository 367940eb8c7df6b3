//! Measures admission: the highest rate, its cost, and the latency at half of that rate.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu::Used;
use crate::run::sessions::admit;
use crate::run::up::Up;
use crate::stats::Samples;

const CLIENTS: [usize; 5] = [1, 2, 4, 8, 16];
const SESSIONS: usize = 256;
const PROMPT_BYTES: usize = 500;

/// Arguments of `admit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds at each number of clients
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=120))]
    seconds: u64,
}

/// The result of one burst.
struct Burst {
    latencies: Samples,
    took: Duration,
    used: Used,
}

impl Burst {
    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let sessions = Arc::new(make_sessions(&up).await?);
    let span = Duration::from_secs(args.seconds);
    note("warming up");
    burst(&up, &sessions, 8, Duration::from_secs(2), None).await?;
    let mut highest: f64 = 0.0;
    for clients in CLIENTS {
        let ran = burst(&up, &sessions, clients, span, None).await?;
        highest = highest.max(ran.rate());
        let admits = ran.latencies.len() as f64;
        let rate = Figure::new("admit.rate", ran.rate(), "1/s")
            .with("clients", clients as f64)
            .with("p50_ms", ran.latencies.ms(50))
            .with("p99_ms", ran.latencies.ms(99))
            .with("driver_cpu_share", ran.used.driver.as_secs_f64() / ran.took.as_secs_f64());
        out.print(rate)?;
        let cpu = ran.used.service + ran.used.postgres;
        let per_cpu = Figure::new("admit.per_cpu_second", admits / cpu.as_secs_f64(), "1/s")
            .with("clients", clients as f64)
            .with("gateway_us", ran.used.service.as_secs_f64() * 1e6 / admits)
            .with("postgres_us", ran.used.postgres.as_secs_f64() * 1e6 / admits);
        out.print(if clients == 16 { per_cpu.mark(Mark::AtLeast(2_500.0)) } else { per_cpu })?;
    }
    // Probed again, so that the marks compare with a commit of now.
    let probe = up.probe().await?;
    out.probed(probe);
    let ran = burst(&up, &sessions, 16, span, Some(highest / 2.0)).await?;
    for (name, percent, times, of) in [
        ("admit.half_rate_p50", 50, 3.0, probe.commit_p50_ms),
        ("admit.half_rate_p99", 99, 8.0, probe.commit_p99_ms),
    ] {
        let figure = Figure::new(name, ran.latencies.ms(percent), "ms")
            .mark(Mark::AtMost(times * of))
            .with("rate", ran.rate())
            .with("times_probe", ran.latencies.ms(percent) / of);
        out.print(figure)?;
    }
    up.stop().await
}

async fn make_sessions(up: &Up) -> anyhow::Result<Vec<String>> {
    let (mut http, target) = (up.http().await?, up.target());
    let mut sessions = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        sessions.push(target.session(&mut http).await?);
    }
    Ok(sessions)
}

/// Returns the times at which requests are due: `rate` a second for `span`, on a fixed schedule. Its own thread keeps
/// it, because the runtime's timers are a millisecond apart and would release all due requests of one at once.
fn schedule(rate: f64, span: Duration) -> Arc<Mutex<UnboundedReceiver<Instant>>> {
    let (due, coming) = unbounded_channel();
    let began = Instant::now();
    std::thread::spawn(move || {
        for place in 0.. {
            let at = began + Duration::from_secs_f64(f64::from(place) / rate);
            if at.duration_since(began) >= span {
                return;
            }
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if due.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    Arc::new(Mutex::new(coming))
}

/// Admits from `clients` connections for `span`: as fast as they can, or `rate` a second together. A request that is
/// due while all clients are busy waits, and its waiting counts.
async fn burst(
    up: &Up,
    sessions: &Arc<Vec<String>>,
    clients: usize,
    span: Duration,
    rate: Option<f64>,
) -> anyhow::Result<Burst> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(up.http().await?);
    }
    let before = up.used()?;
    let began = Instant::now();
    let schedule = rate.map(|rate| schedule(rate, span));
    let mut tasks = JoinSet::new();
    for mut http in connections {
        let (sessions, schedule) = (sessions.clone(), schedule.clone());
        tasks.spawn(async move {
            let text = "x".repeat(PROMPT_BYTES);
            let mut latencies = Samples::default();
            loop {
                let start = match &schedule {
                    Some(schedule) => match schedule.lock().await.recv().await {
                        Some(due) => due,
                        None => return anyhow::Ok(latencies),
                    },
                    None if began.elapsed() >= span => return Ok(latencies),
                    None => Instant::now(),
                };
                let session = &sessions[rand::rng().random_range(0..sessions.len())];
                admit(&mut http, session, &text, false).await?;
                latencies.push(start.elapsed());
            }
        });
    }
    let mut latencies = Samples::default();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended??);
    }
    let took = began.elapsed();
    Ok(Burst { latencies, took, used: up.used()?.since(before) })
}
