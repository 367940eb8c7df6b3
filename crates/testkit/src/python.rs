use std::path::PathBuf;

use anyhow::{Context, Result};

/// Returns the interpreter that has a package: the one beside the package's program.
pub(crate) fn beside(program: &str, advice: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("there is a PATH")?;
    let beside = std::env::split_paths(&path).find(|folder| folder.join(program).is_file());
    let own = beside.context(advice)?.join("python3");
    Ok(if own.is_file() { own } else { "python3".into() })
}
