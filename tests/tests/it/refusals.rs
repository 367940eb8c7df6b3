//! A start that cannot work says why on one line, with the fix, and exits with a code other than 0.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Ended, Up, World, eventually, executable, processes_naming, superuser_url};
use sqlx::Connection;
use tokio::process::Command;
use tokio::time::timeout;

fn told(ended: &Ended, parts: &[&str]) -> Result<()> {
    ensure!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    // Progress comes first. The reason is the last line, and the only one of its kind.
    let reasons: Vec<&str> =
        ended.err.lines().filter(|line| !line.starts_with("opencode-cloud: ")).collect();
    let [reason] = reasons[..] else { anyhow::bail!("one line, not {reasons:#?}") };
    ensure!(reason.starts_with("error: ") && reason.len() < 400, "{reason}");
    for part in parts {
        ensure!(reason.contains(part), "no `{part}` in: {reason}");
    }
    for noise in ["panicked", "RUST_BACKTRACE", "stack backtrace", "Os {", "Error {"] {
        ensure!(!ended.err.contains(noise), "{}", ended.err);
    }
    Ok(())
}

fn up(world: &World, data: &Path, port: u16) -> Vec<String> {
    let mut args = vec!["up".to_owned(), "--port".to_owned(), port.to_string()];
    args.extend(world.flags());
    args.extend(["--data-dir".to_owned(), data.display().to_string()]);
    // A repeated flag is an error, so the first one is removed.
    let first = args.iter().position(|arg| arg == "--data-dir");
    args.drain(first.map_or(0..0, |first| first..first + 2));
    args
}

#[tokio::test]
async fn a_start_that_cannot_work_says_why_on_one_line() -> Result<()> {
    let world = World::new().await?;
    let elsewhere = world.folder().join("elsewhere");
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port();
    let ended = Up::refused(&up(&world, &elsewhere, port), &[]).await?;
    told(&ended, &[&format!("port {port} is in use"), "--port"])?;

    let first = world.up().await?;
    let pid = first.process().pid().to_string();
    let ended = Up::refused(&up(&world, &world.data(), 0), &[]).await?;
    told(&ended, &["is in use by process", &pid, "--data-dir"])?;

    // The data folder gets a future migration.
    let mut future = sqlx::PgConnection::connect(&superuser_url(&world.data())?).await?;
    let insert = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                  VALUES (99990101000000, 'of the future', true, '\\x00', 0)";
    sqlx::query(insert).execute(&mut future).await?;
    future.close().await?;
    first.stop(&world).await?;
    let ended = Up::refused(&up(&world, &world.data(), 0), &[]).await?;
    told(&ended, &["newer"])?;

    let newer = world.folder().join("newer");
    fs::create_dir(&newer)?;
    fs::write(newer.join("format"), "99\n")?;
    let ended = Up::refused(&up(&world, &newer, 0), &[]).await?;
    told(&ended, &["newer opencode-cloud", "--data-dir"])?;

    let mut args = up(&world, &elsewhere, 0);
    let at = args.iter().position(|arg| arg == "--model-url").context("a model")?;
    "localhost:11434".clone_into(&mut args[at + 1]);
    let ended = Up::refused(&args, &[]).await?;
    told(&ended, &["--model-url", "http"])?;

    let mut args = up(&world, &elsewhere, 0);
    let at = args.iter().position(|arg| arg == "--bootstrap-key").context("a key")?;
    "short".clone_into(&mut args[at + 1]);
    let ended = Up::refused(&args, &[]).await?;
    told(&ended, &["--bootstrap-key", "20"])?;
    // Watchers end a moment after the process that they watch.
    eventually("refused starts leave nobody", 60, async || {
        Ok(processes_naming(world.folder()).is_empty().then_some(()))
    })
    .await
}

/// Runs `up` after `mount`, in its own mount namespace; `None` if this user may not have one.
async fn up_with_mount(world: &World, mount: &str) -> Result<Option<Ended>> {
    let is_allowed = Command::new("unshare").args(["--mount", "true"]).output().await;
    if !is_allowed.is_ok_and(|tried| tried.status.success()) {
        return Ok(None);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]);
    command
        .arg(executable()?)
        .args(up(world, &world.data(), 0))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.kill_on_drop(true);
    let output =
        timeout(Duration::from_secs(90), command.output()).await.context("it starts")??;
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some(Ended { code: output.status.code(), out, err }))
}

#[tokio::test]
async fn a_full_disk_and_a_missing_postgres_are_named() -> Result<()> {
    let world = World::new().await?;
    fs::create_dir(world.data())?;
    let small = format!("mount -t tmpfs -o size=50m tmpfs '{}'", world.data().display());
    if let Some(ended) = up_with_mount(&world, &small).await? {
        told(&ended, &["is full", "MiB needed", "--data-dir"])?;
    }
    // Debian's Postgres is found without PATH, so it must be hidden.
    let hidden = "{ [ ! -d /usr/lib/postgresql ] || mount -t tmpfs tmpfs /usr/lib/postgresql; }";
    if let Some(ended) = up_with_mount(&world, hidden).await? {
        told(&ended, &["was not found", "apt-get install postgresql", "./dev up"])?;
    }
    Ok(())
}
