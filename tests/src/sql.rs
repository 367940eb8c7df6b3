//! The service's own Postgres, for what no route does: a second organisation, a schema of the future.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The superuser's URL of the Postgres in a data folder, while it runs.
///
/// # Errors
/// When none runs there.
pub fn superuser_url(data: &Path) -> Result<String> {
    let folder = data.join("postgres");
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let password = read("password")?;
    let pid_file = read("pgdata/postmaster.pid")?;
    let port = pid_file.lines().nth(3).context("the fourth line of postmaster.pid is the port")?;
    let (user, database) = (boot::SUPERUSER, boot::DATABASE);
    Ok(format!("postgres://{user}:{}@127.0.0.1:{}/{database}", password.trim(), port.trim()))
}
