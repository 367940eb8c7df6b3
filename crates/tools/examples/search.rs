//! Times `glob` and `grep` over a folder beside the `rg` that is installed, each as often as it takes to tell. With an optimised
//! build:
//!
//! ```text
//! cargo run --release -p tools --example search -- FOLDER
//! ```
//!
//! Without FOLDER it makes one of 50,000 files. The mark: at most 1.2 times ripgrep.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{Cell, Environment, ProcessSandbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tools::{Limits, OrgOutputs, ReadRules, ToolCall, ToolContext, ToolSet};

const FILES: usize = 50_000;
const ROUNDS: usize = 7;
/// It is in no file, so that every file is read to its end.
const MISSING: &str = "fn [a-z]+_nowhere";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let made = tempfile::tempdir().expect("a temporary directory");
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let root = given.unwrap_or_else(|| fill(made.path()));
    let blobs = blobs::Blobs::in_folder(&made.path().join("blobs")).expect("a folder for blobs");
    let context = ToolContext {
        root: root.clone(),
        shown_root: "/workspace".into(),
        cancel: CancellationToken::new(),
        outputs: Arc::new(OrgOutputs { blobs, org: "org".into() }),
        tasks: None,
        lock: None,
        cell: Cell::default(),
        limits: Limits::default(),
        skills: None,
        reads: ReadRules::default(),
        live: sandbox::LiveOutput::default(),
    };
    let environment = Environment::from_vars(std::env::vars_os());
    let nowhere = PathBuf::from("/nonexistent");
    let sandbox =
        ProcessSandbox::new(nowhere, Vec::<String>::new(), environment, std::env::temp_dir());
    let registry = ToolSet::standard(Arc::new(sandbox));
    let ours = async |name: &str, arguments: Value| {
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.to_string() };
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let before = Instant::now();
            let _outcome = registry.run(&call, &context).await;
            best = best.min(before.elapsed());
        }
        best
    };
    let grep = ours("grep", json!({ "pattern": MISSING })).await;
    let glob = ours("glob", json!({ "pattern": "**/*.nowhere" })).await;
    for threads in ["1", "0"] {
        let sort = ["--sort", "path"];
        let rg_grep = ripgrep(&root, &["-j", threads, "-n", "--hidden", MISSING]);
        let rg_glob = ripgrep(&root, &["-j", threads, "--hidden", "--files", "-g", "*.nowhere"]);
        let rg_sorted = ripgrep(&root, &[&sort[..], &["-n", "--hidden", MISSING]].concat());
        say("grep", grep, rg_grep, threads);
        say("grep", grep, rg_sorted, "1, sorted");
        say("glob", glob, rg_glob, threads);
    }
}

#[expect(clippy::print_stdout, reason = "it is what this program is for")]
fn say(what: &str, ours: Duration, theirs: Duration, threads: &str) {
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let threads = if threads == "0" { "all" } else { threads };
    println!("{what}: ours {ours:.1?}, rg (threads: {threads}) {theirs:.1?}, ratio {ratio:.2}");
}

fn ripgrep(root: &Path, arguments: &[&str]) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut rg = Command::new("rg");
        rg.args(arguments).arg(root).stdin(Stdio::null()).stdout(Stdio::null());
        let before = Instant::now();
        rg.status().expect("rg is installed");
        best = best.min(before.elapsed());
    }
    best
}

/// Makes a folder of source-like files.
fn fill(place: &Path) -> PathBuf {
    let root = place.join("files");
    let text: String =
        (0..60).map(|n| format!("    let value_{n} = compute(value_{n}, {n});\n")).collect();
    for n in 0..FILES {
        let folder = root.join(format!("a{}/b{}", n / 2_500, n / 50 % 50));
        std::fs::create_dir_all(&folder).expect("a directory");
        std::fs::write(folder.join(format!("file{n}.rs")), &text).expect("a file");
    }
    root
}
