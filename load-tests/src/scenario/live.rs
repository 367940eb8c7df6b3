//! The console's live view under a fast answer: tasks of the page's main thread, and script in each frame.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::KEY;
use crate::run::http::Http;
use crate::run::up::Up;

/// The milliseconds that the model sleeps between two pieces: it sends some 230 a second.
const EACH_MS: u32 = 3;
const SCRIPT: &str = include_str!("live.mjs");

/// Arguments of `live`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pieces of the answer, some 230 a second
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(200..=50_000))]
    pieces: u32,
    /// A Chromium
    #[arg(long, default_value = "/usr/bin/chromium")]
    browser: PathBuf,
    /// A folder with `playwright-core` in its `node_modules`
    #[arg(long, value_name = "DIR", default_value = "tests/third-party/console")]
    playwright: PathBuf,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let (mut http, mut model) = (up.http().await?, Http::connect(&up.model.url, None).await?);
    let text = answer(args.pieces);
    let script = json!([{ "match": "the long story", "text": text, "chunk_delay_ms": EACH_MS }]);
    model.json(Method::PUT, "/sim/scripts", &script).await?;
    let session = up.target().session(&mut http).await?;
    note("an answer streams into a page");
    let parts = json!({
        "service": up.url, "key": KEY, "session": session, "directory": up.workspace,
        "prompt": "tell the long story", "browser": args.browser,
    });
    let ran = tokio::process::Command::new("node")
        .args(["--input-type=module", "--eval", SCRIPT])
        .arg(parts.to_string())
        .current_dir(&args.playwright)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .context("node is needed")?;
    ensure!(ran.status.success(), "the page was not seen to its end");
    let seen: Value = serde_json::from_slice(&ran.stdout)?;
    let number = |name: &str| seen[name].as_f64().with_context(|| format!("no {name}: {seen}"));
    let common = |figure: Figure| -> anyhow::Result<Figure> {
        Ok(figure
            .with("pieces_per_s", f64::from(args.pieces) / number("seconds")?)
            .with("letters", number("letters")?)
            .with("frames", number("frames")?))
    };
    let figure = Figure::new("live.longest_task", number("longest_task_ms")?, "ms")
        .mark(Mark::AtMost(50.0))
        .with("long_tasks", number("long_tasks")?)
        .with("tasks", number("tasks")?);
    out.print(common(figure)?)?;
    let figure = Figure::new("live.script_a_frame_p95", number("script_p95_ms")?, "ms")
        .mark(Mark::AtMost(10.0))
        .with("p50", number("script_p50_ms")?);
    out.print(common(figure)?)?;
    up.stop().await
}

/// An answer as models write them, in about this many pieces: headings, paragraphs, lists and code.
fn answer(pieces: u32) -> String {
    let words = "a word after another that somebody will want to read. ".repeat(8);
    let code = "    let value = compute(&items[1], options)?;\n".repeat(8);
    let part = |number: usize| {
        format!(
            "## Part {number}\n\nThe **first** step reads `src/part_{number}.rs` and finds {words}\n\n\
             - one thing\n- another thing\n- a third thing\n\n```rust\n{code}```\n\n"
        )
    };
    let parts = pieces as usize / part(1).split_inclusive(' ').count() + 1;
    (1..=parts).map(part).collect::<String>() + "The very end."
}
