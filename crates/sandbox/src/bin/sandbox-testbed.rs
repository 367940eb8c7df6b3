//! The other side of this crate's tests: launcher and supervisor, and a worker that can be killed.
//!
//! `launch` is the launcher, `supervise …` the supervisor. `host SCRIPT [LOCK TOKEN]` runs a script as a worker would, in
//! the directory and tier that `TESTBED_DIRECTORY` and `TESTBED_TIER` name, and prints how it ended. `each SCRIPT…` runs one
//! after the other, and `both SCRIPT SCRIPT [SCRIPT]` two at once in cells of their own, and then the third in the cell of the first.
//! `TESTBED_RESERVE_BYTES` and `TESTBED_WORKSPACE_BYTES` limit the disk, `TESTBED_MEMORY_BYTES` the memory.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sandbox::{
    Cell, CellOptions, Command, DiskLimits, Environment, FoundTier, Limits, LocationLock, Tier,
    TierOptions, Toolchains, find_tier,
};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "launch" => sandbox::launcher::main(),
        Some(word) if word == "supervise" => sandbox::supervisor::main(args),
        Some(word) if word == "host" => host(&args.collect::<Vec<_>>()),
        Some(word) if word == "each" => each(&args.collect::<Vec<_>>()),
        Some(word) if word == "both" => both(&args.collect::<Vec<_>>()),
        Some(_) | None => ExitCode::from(2),
    }
}

fn variable<T>(name: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    std::env::var_os(name).and_then(|value| read(value.to_str()?))
}

fn directory() -> PathBuf {
    std::env::var_os("TESTBED_DIRECTORY").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The sandbox of the tier that is named; another one is an error.
async fn sandbox(directory: &Path) -> Result<FoundTier, String> {
    let this = PathBuf::from("/proc/self/exe");
    let tier = variable("TESTBED_TIER", Tier::named).unwrap_or(Tier::None);
    let bytes = |name| variable(name, |bytes| bytes.parse().ok());
    let usual = Limits::of_this_machine();
    let memory_bytes = bytes("TESTBED_MEMORY_BYTES").unwrap_or(usual.memory_bytes);
    let all_cells_bytes = bytes("TESTBED_ALL_CELLS_BYTES").unwrap_or(usual.all_cells_bytes);
    let limits = Limits { memory_bytes, all_cells_bytes, ..usual };
    let disk = DiskLimits {
        reserve_bytes: bytes("TESTBED_RESERVE_BYTES"),
        workspace_bytes: bytes("TESTBED_WORKSPACE_BYTES"),
        workspace_files: bytes("TESTBED_WORKSPACE_FILES"),
    };
    let options = TierOptions {
        cells: CellOptions {
            launcher: this.clone(),
            prefix: vec!["launch".into()],
            started: None,
            environment: Environment::from_vars(std::env::vars_os()),
            toolchains: Toolchains::find(std::env::vars_os()),
            spool_directory: std::env::temp_dir(),
            uids: (300_000, 4096),
            limits,
            exits: None,
        },
        supervisor: this,
        supervisor_prefix: vec!["supervise".into()],
        probe_directory: directory.to_path_buf(),
        disk,
        open_git: false,
        at_most: tier,
        landlock_at_most: None,
    };
    let found = find_tier(&options).await;
    let told = format!("tier {tier}: {:?}", found.refused);
    if found.tier == tier { Ok(found) } else { Err(told) }
}

fn command(script: &OsStr, directory: &Path) -> Command {
    let cell = Cell { name: "host".into(), ..Cell::default() };
    let script = script.to_string_lossy();
    Command { cell, ..Command::shell(&script, directory.to_path_buf(), Duration::from_secs(1000)) }
}

/// Runs a command and returns how it ended, and whether it did.
async fn ended(found: &FoundTier, command: Command) -> (String, bool) {
    match found.sandbox.run(command, &CancellationToken::new()).await {
        Ok(outcome) => {
            let text = format!("{}{}", outcome.output.head, outcome.output.tail);
            let limits: Vec<_> = outcome.limits.iter().map(ToString::to_string).collect();
            (format!("{text}{:?} {limits:?}\n", outcome.end), true)
        }
        Err(error) => (format!("{error}\n"), false),
    }
}

fn say(text: &str) {
    let _unwritable = rustix::io::write(std::io::stdout(), text.as_bytes());
}

fn run(work: impl Future<Output = bool>) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    if runtime.block_on(work) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn host(args: &[OsString]) -> ExitCode {
    let Some(script) = args.first() else { return ExitCode::from(2) };
    let lock = args.get(1).zip(args.get(2)).and_then(|(path, token)| {
        Some(LocationLock { path: path.into(), token: token.to_str()?.parse().ok()? })
    });
    run(async {
        let directory = directory();
        let (text, is_well) = match sandbox(&directory).await {
            Ok(found) => ended(&found, Command { lock, ..command(script, &directory) }).await,
            Err(why) => (why, false),
        };
        say(&text);
        is_well
    })
}

fn each(scripts: &[OsString]) -> ExitCode {
    run(async {
        let directory = directory();
        let found = match sandbox(&directory).await {
            Ok(found) => found,
            Err(why) => {
                say(&why);
                return false;
            }
        };
        for script in scripts {
            say(&ended(&found, command(script, &directory)).await.0);
        }
        true
    })
}

fn both(scripts: &[OsString]) -> ExitCode {
    let (first, second, after) = match scripts {
        [first, second] => (first, second, None),
        [first, second, after] => (first, second, Some(after)),
        _ => return ExitCode::from(2),
    };
    run(async {
        let directory = directory();
        let found = match sandbox(&directory).await {
            Ok(found) => found,
            Err(why) => {
                say(&why);
                return false;
            }
        };
        let cell = |name: &str| Cell { name: name.into(), ..Cell::default() };
        let inside = |name, script| Command { cell: cell(name), ..command(script, &directory) };
        let (first, second) = tokio::join!(
            ended(&found, inside("first", first)),
            ended(&found, inside("second", second))
        );
        say(&first.0);
        say(&second.0);
        if let Some(after) = after {
            say(&ended(&found, inside("first", after)).await.0);
        }
        true
    })
}
