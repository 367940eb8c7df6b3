//! Measures the decoding of a stream against parsing its frames into `serde_json::Value`.
//!
//! Both sides get the same frames, cut before the clock starts. Ours turns them into events, which are taken one by
//! one and dropped, as a client does.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use llm_protocol::{Dialect, Protocol};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::output::{Figure, Mark, Reporter, note};
use crate::stats::median;

const RUNS: usize = 9;
const MAX_FRAME_BYTES: usize = 16 << 20;

/// Arguments of `decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of recorded exchanges
    #[arg(long, value_name = "PATH", default_value = "crates/llm-protocol/tests/recordings")]
    recordings: PathBuf,
    /// MiB of frames that each run decodes, of each protocol
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    mib: u32,
}

pub(crate) fn run(args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    out.touches_no_disk();
    let answers = recorded(&args.recordings)?;
    for protocol in Protocol::ALL {
        let answers: Vec<&Answer> =
            answers.iter().filter(|answer| answer.protocol == *protocol).collect();
        ensure!(!answers.is_empty(), "there is no recording of {}", protocol.id());
        note(&format!("{}: {} recorded answers", protocol.id(), answers.len()));
        let share = usize::try_from(args.mib)? * (1 << 20) / answers.len();
        let runs = measured(&answers, share)?;
        out.print(figure(*protocol, &answers, share, &runs))?;
    }
    Ok(())
}

/// A recorded answer of a provider.
struct Answer {
    protocol: Protocol,
    name: String,
    frames: Vec<String>,
    bytes: usize,
}

impl Answer {
    /// Returns how often it must be decoded for this many bytes.
    fn rounds(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.bytes)
    }
}

/// Reads the answers in a folder's subfolders, without refusals, which are no streams.
fn recorded(folder: &Path) -> anyhow::Result<Vec<Answer>> {
    let shown = || format!("{} cannot be read: name it with --recordings", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(shown)? {
        let entry = entry?.path();
        if entry.is_dir() {
            for file in std::fs::read_dir(entry)? {
                files.push(file?.path());
            }
        }
    }
    files.sort();
    let mut answers = Vec::new();
    for path in files {
        let name = path.file_stem().and_then(|stem| stem.to_str()).context("a file's name")?;
        let file: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let exchanges = file["interactions"].as_array().context("no interactions")?;
        for exchange in exchanges {
            if exchange["response"]["status"] == 200 {
                answers.push(answer(name, exchange).with_context(|| name.to_owned())?);
            }
        }
    }
    Ok(answers)
}

fn answer(name: &str, exchange: &Value) -> anyhow::Result<Answer> {
    let url = exchange["request"]["url"].as_str().context("no URL")?;
    let protocol = protocol_at(url).with_context(|| format!("{url} is of no protocol"))?;
    let response = &exchange["response"];
    let text = response["body"].as_str().context("no body")?;
    let bytes = match response["bodyEncoding"].as_str() {
        Some(_) => STANDARD.decode(text)?,
        None => text.as_bytes().to_vec(),
    };
    let mut framer = protocol.framer(MAX_FRAME_BYTES);
    let frames = framer.push(&bytes)?;
    let bytes = frames.iter().map(String::len).sum();
    ensure!(bytes > 0, "no frames");
    Ok(Answer { protocol, name: name.to_owned(), frames, bytes })
}

fn protocol_at(url: &str) -> Option<Protocol> {
    let path = url.split('?').next()?;
    let ends = [
        ("/chat/completions", Protocol::OpenAiChat),
        ("/responses", Protocol::OpenAiResponses),
        ("/messages", Protocol::AnthropicMessages),
        (":streamGenerateContent", Protocol::Gemini),
        ("/converse-stream", Protocol::BedrockConverse),
    ];
    ends.into_iter().find_map(|(end, protocol)| path.ends_with(end).then_some(protocol))
}

/// The times for one answer, decoded and parsed.
#[derive(Clone, Copy)]
struct Took {
    decoded: Duration,
    parsed: Duration,
}

/// Runs all answers, each often enough for `share` bytes. The two sides alternate in going first, so that a change of
/// the machine's speed affects both.
fn measured(answers: &[&Answer], share: usize) -> anyhow::Result<Vec<Vec<Took>>> {
    let mut runs = Vec::new();
    for run in 0..=RUNS {
        let mut took = Vec::new();
        for answer in answers {
            let rounds = answer.rounds(share);
            let (decoded, parsed) = if run % 2 == 0 {
                let decoded = timed(|| decode(answer, rounds))?;
                (decoded, timed(|| parse(answer, rounds))?)
            } else {
                let parsed = timed(|| parse(answer, rounds))?;
                (timed(|| decode(answer, rounds))?, parsed)
            };
            took.push(Took { decoded, parsed });
        }
        // The first run warms up.
        if run > 0 {
            runs.push(took);
        }
    }
    Ok(runs)
}

/// Returns the CPU time of this thread, in which other processes show less.
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
    let began = now()?;
    work()?;
    Ok(now()?.saturating_sub(began))
}

fn decode(answer: &Answer, rounds: usize) -> anyhow::Result<()> {
    let dialect = Dialect::default();
    for _ in 0..rounds {
        let mut decoder = answer.protocol.decoder_for("a-model", &dialect);
        for frame in &answer.frames {
            for event in decoder.push(black_box(frame))? {
                black_box(event);
            }
        }
        for event in decoder.finish()? {
            black_box(event);
        }
    }
    Ok(())
}

/// `[DONE]` is not JSON, so it costs this side nothing.
fn parse(answer: &Answer, rounds: usize) -> anyhow::Result<()> {
    for _ in 0..rounds {
        for frame in answer.frames.iter().filter(|frame| *frame != "[DONE]") {
            black_box(serde_json::from_str::<Value>(black_box(frame))?);
        }
    }
    Ok(())
}

fn figure(protocol: Protocol, answers: &[&Answer], share: usize, runs: &[Vec<Took>]) -> Figure {
    let ratio = |took: &[Took]| {
        let sum = |of: fn(&Took) -> Duration| took.iter().map(of).sum::<Duration>().as_secs_f64();
        sum(|took| took.decoded) / sum(|took| took.parsed)
    };
    let bytes: usize = answers.iter().map(|answer| answer.bytes * answer.rounds(share)).sum();
    let pace = |of: fn(&Took) -> Duration| {
        let seconds = |took: &Vec<Took>| took.iter().map(of).sum::<Duration>().as_secs_f64();
        bytes as f64 / f64::from(1 << 20) / median(runs.iter().map(seconds).collect())
    };
    let alone = |at: usize| median(runs.iter().map(|took| ratio(&took[at..=at])).collect());
    let (worst, highest) = (0..answers.len())
        .map(|at| (answers[at].name.as_str(), alone(at)))
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or(("", f64::NAN));
    let all: Vec<f64> = runs.iter().map(|took| ratio(took)).collect();
    let slowest = all.iter().copied().fold(f64::NAN, f64::max);
    Figure::new("decode.over_value", median(all), "times")
        .mark(Mark::AtMost(1.0))
        .text("protocol", protocol.id())
        .with("highest_run", slowest)
        .with("highest_recording", highest)
        .text("of", worst)
        .with("mib", bytes as f64 / f64::from(1 << 20))
        .with("decoded_mib_s", pace(|took| took.decoded))
        .with("parsed_mib_s", pace(|took| took.parsed))
        .with("runs", RUNS as f64)
}
