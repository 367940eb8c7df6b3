//! Measures our service and the released server beside each other: the same requests, the same model, one run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::Method;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu::rss_mib;
use crate::run::drive::{Drive, drive, drive_async};
use crate::run::peer::Peer;
use crate::run::sessions::Target;
use crate::run::up::Up;
use crate::stats::Samples;

const SESSIONS: [usize; 4] = [1, 8, 32, 128];
const PROMPT: &str = "say 20 words";
/// Requests of each kind that are timed, after a tenth as many that are not.
const REQUESTS: usize = 100;
/// The entries that a list of sessions has.
const LISTED: usize = 100;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The executable of the released server: npm opencode-ai 1.18.33
    #[arg(long, value_name = "PATH")]
    peer: PathBuf,
    /// Seconds at each number of sessions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Turns in the session whose messages are listed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    turns: u16,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let peer = Peer::start(&args.peer, up.folder(), &up.model).await?;
    let (ours, theirs) = (up.target(), peer.target.clone());
    note("warming both up");
    for target in [&ours, &theirs] {
        drive(target, 2, Duration::from_secs(3), PROMPT).await?;
    }

    for (name, sample) in [
        ("compare.create", Sample::Create),
        ("compare.prompt", Sample::Prompt),
        ("compare.sessions", Sample::Sessions),
        ("compare.messages", Sample::Messages(args.turns)),
    ] {
        note(name);
        let us = sample.of(&ours).await?;
        let them = sample.of(&theirs).await?;
        let figure = Figure::new(name, us.ms(50), "ms")
            .with("p99_ms", us.ms(99))
            .with("released_p50_ms", them.ms(50))
            .with("released_p99_ms", them.ms(99));
        out.print(figure)?;
        out.print(ahead(name, them.ms(50) / us.ms(50)))?;
    }

    let span = Duration::from_secs(args.seconds);
    for sessions in SESSIONS {
        for (name, is_held) in [("compare.turns_held", true), ("compare.turns_async", false)] {
            note(&format!("{name}, {sessions} sessions"));
            let used = up.used()?;
            let us = turns(&ours, is_held, sessions, span).await?;
            let used = up.used()?.since(used);
            let peer_used = peer.cpu()?;
            let them = turns(&theirs, is_held, sessions, span).await?;
            let peer_used = peer.cpu()?.saturating_sub(peer_used);
            let figure = Figure::new(name, us.rate(), "1/s")
                .with("sessions", sessions as f64)
                .with("p50_ms", us.turns.ms(50))
                .with("p99_ms", us.turns.ms(99))
                .with("released", them.rate())
                .with("released_p50_ms", them.turns.ms(50))
                .with("released_p99_ms", them.turns.ms(99))
                .with("cpu_ms", per_turn(used.service + used.postgres, &us))
                .with("released_cpu_ms", per_turn(peer_used, &them));
            out.print(figure)?;
            out.print(ahead(name, us.rate() / them.rate()).with("sessions", sessions as f64))?;
        }
    }

    let (us, them) = (rss_mib(up.pid())?, peer.rss_mib()?);
    out.print(Figure::new("compare.memory", us, "MiB").with("released", them))?;
    out.print(ahead("compare.memory", them / us))?;
    peer.stop().await?;
    up.stop().await
}

async fn turns(
    target: &Target,
    is_held: bool,
    sessions: usize,
    span: Duration,
) -> anyhow::Result<Drive> {
    if is_held {
        drive(target, sessions, span, PROMPT).await
    } else {
        drive_async(target, sessions, span, PROMPT).await
    }
}

/// Returns the milliseconds of a turn.
fn per_turn(cpu: Duration, ran: &Drive) -> f64 {
    cpu.as_secs_f64() * 1e3 / ran.turns.len() as f64
}

/// How many times better ours is.
fn ahead(name: &str, times: f64) -> Figure {
    Figure::new(&format!("{name}.ahead"), times, "times").mark(Mark::AtLeast(1.0))
}

/// A kind of request, one after the other over one connection.
enum Sample {
    /// A session is created.
    Create,
    /// A prompt is taken; its work is not waited for.
    Prompt,
    /// The newest sessions are listed.
    Sessions,
    /// All messages of a session of this many turns are listed.
    Messages(u16),
}

impl Sample {
    async fn of(&self, target: &Target) -> anyhow::Result<Samples> {
        let mut http = target.http().await?;
        let directory = target.directory.display();
        let path = match self {
            Self::Create | Self::Prompt => String::new(),
            Self::Sessions => {
                for _ in 0..LISTED {
                    target.session(&mut http).await?;
                }
                format!("/session?limit={LISTED}&directory={directory}")
            }
            Self::Messages(turns) => {
                let session = target.session(&mut http).await?;
                for _ in 0..*turns {
                    target.prompt(&mut http, &session, PROMPT).await?;
                }
                format!("/session/{session}/message?directory={directory}")
            }
        };
        let mut samples = Samples::default();
        for number in 0..REQUESTS + REQUESTS / 10 {
            let session = match self {
                Self::Prompt => target.session(&mut http).await?,
                Self::Create | Self::Sessions | Self::Messages(_) => String::new(),
            };
            let began = Instant::now();
            match self {
                Self::Create => drop(target.session(&mut http).await?),
                Self::Prompt => target.begin(&mut http, &session, PROMPT).await?,
                Self::Sessions | Self::Messages(_) => {
                    let (status, _) = http.call(Method::GET, &path, String::new()).await?;
                    ensure!(status.is_success(), "{path} answered {status}");
                }
            }
            let took = began.elapsed();
            if number >= REQUESTS / 10 {
                samples.push(took);
            }
        }
        Ok(samples)
    }
}
