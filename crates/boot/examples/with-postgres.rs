//! Runs a command with a scratch Postgres: `with-postgres COMMAND [ARGUMENT]…`.
//!
//! The command gets the superuser's URL in `DATABASE_URL`. Afterwards the Postgres and its data are deleted,
//! and the exit code is the command's. `./dev sqlx` uses it to check queries against migrations.

use std::error::Error;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use boot::{DATABASE, DataDir, Durability, Postgres, PostgresOptions, signals, telemetry};
use tokio::process::Command;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    telemetry::init(telemetry::LogFormat::Compact, "warn")?;
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or("give a command to run")?;
    // Ctrl-C reaches the command too, because it is in our process group; we wait for its end.
    let _stop = signals::watch()?;
    let passable = Permissions::from_mode(0o711);
    let temp = tempfile::Builder::new().prefix("oc-scratch-").permissions(passable).tempdir()?;
    let data = DataDir::open(&temp.path().join("data"))?;
    let options = PostgresOptions { durability: Durability::Off, ..PostgresOptions::default() };
    let postgres = Postgres::start(&data, &options).await?;
    let url = postgres.connection().superuser_url(DATABASE);
    let ended = Command::new(&program).args(arguments).env("DATABASE_URL", url).status().await;
    postgres.stop().await;
    let code = ended?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
