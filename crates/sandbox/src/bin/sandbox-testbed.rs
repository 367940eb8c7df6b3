//! The other side of this crate's tests: launcher and supervisor, and a worker that can be killed.
//!
//! `launch` is the launcher, `supervise …` the supervisor. `host SCRIPT [LOCK TOKEN]` runs a script as a worker would, in
//! the directory and tier that `TESTBED_DIRECTORY` and `TESTBED_TIER` name, and prints how it ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{
    Cell, CellOptions, CellSandbox, Command, Environment, Limits, LocationLock, ProcessSandbox,
    Sandbox, Tier, Toolchains,
};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "launch" => sandbox::launcher::main(),
        Some(word) if word == "supervise" => sandbox::supervisor::main(args),
        Some(word) if word == "host" => host(&args.collect::<Vec<_>>()),
        Some(_) | None => ExitCode::from(2),
    }
}

fn sandbox_of(tier: Tier) -> Arc<dyn Sandbox> {
    let this = PathBuf::from("/proc/self/exe");
    let environment = Environment::from_vars(std::env::vars_os());
    let spool_directory = std::env::temp_dir();
    match tier {
        Tier::A | Tier::B => {
            let options = CellOptions {
                launcher: this,
                prefix: vec!["launch".into()],
                environment,
                toolchains: Toolchains::find(std::env::vars_os()),
                spool_directory,
                uids: (300_000, 4096),
                limits: Limits::of_this_machine(),
                exits: None,
            };
            Arc::new(CellSandbox::new(tier, options))
        }
        Tier::C | Tier::None => {
            let plain = ProcessSandbox::new(this, ["supervise"], environment, spool_directory);
            if tier == Tier::C {
                Arc::new(plain.walled(Toolchains::find(std::env::vars_os())))
            } else {
                Arc::new(plain)
            }
        }
    }
}

fn host(args: &[OsString]) -> ExitCode {
    let Some(script) = args.first().and_then(|script| script.to_str()) else {
        return ExitCode::from(2);
    };
    let lock = args.get(1).zip(args.get(2)).and_then(|(path, token)| {
        Some(LocationLock { path: path.into(), token: token.to_str()?.parse().ok()? })
    });
    let tier = std::env::var_os("TESTBED_TIER");
    let tier = tier.and_then(|name| Tier::named(name.to_str()?));
    let directory = std::env::var_os("TESTBED_DIRECTORY").map(PathBuf::from);
    let sandbox = sandbox_of(tier.unwrap_or(Tier::None));
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let directory = directory.unwrap_or_else(std::env::temp_dir);
    let cell = Cell { name: "host".into(), ..Cell::default() };
    let command = Command::shell(script, directory, Duration::from_secs(1000));
    let never = CancellationToken::new();
    let run = sandbox.run(Command { lock, cell, ..command }, &never);
    let (line, code) = match runtime.block_on(run) {
        Ok(outcome) => {
            let text = format!("{}{}", outcome.output.head, outcome.output.tail);
            (format!("{text}{:?} {:?}\n", outcome.end, outcome.limits), ExitCode::SUCCESS)
        }
        Err(error) => (format!("{error}\n"), ExitCode::FAILURE),
    };
    let _unwritable = rustix::io::write(std::io::stdout(), line.as_bytes());
    code
}
