//! The other side of this crate's tests: a supervisor, and a worker that can be killed.
//!
//! `supervise …` is the supervisor; `host SCRIPT [LOCK TOKEN]` runs a script in a sandbox, as a worker would.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use sandbox::{Command, Environment, LocationLock, ProcessSandbox, Sandbox};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "supervise" => sandbox::supervisor::main(args),
        Some(word) if word == "host" => host(&args.collect::<Vec<_>>()),
        Some(_) | None => ExitCode::from(2),
    }
}

fn host(args: &[OsString]) -> ExitCode {
    let Some(script) = args.first().and_then(|script| script.to_str()) else {
        return ExitCode::from(2);
    };
    let lock = args.get(1).zip(args.get(2)).and_then(|(path, token)| {
        Some(LocationLock { path: path.into(), token: token.to_str()?.parse().ok()? })
    });
    let sandbox = ProcessSandbox::new(
        "/proc/self/exe".into(),
        ["supervise"],
        Environment::from_vars(std::env::vars_os()),
        std::env::temp_dir(),
    );
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let command = Command::shell(script, std::env::temp_dir(), Duration::from_secs(1000));
    let never = CancellationToken::new();
    let run = sandbox.run(Command { lock, ..command }, &never);
    match runtime.block_on(run) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
