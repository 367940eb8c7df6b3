//! Finds the executable under test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Returns the executable: `OC_BIN`, otherwise the one that cargo built beside this test.
///
/// # Errors
/// When there is none. The message says how to build it.
pub fn executable() -> Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test has no other start-up code")]
    let given = std::env::var("OC_BIN").ok().filter(|path| !path.is_empty());
    if let Some(path) = given {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "OC_BIN={} is no file; correct it, or unset it", path.display());
        return Ok(path);
    }
    // A test is TARGET/PROFILE/deps/NAME, a driver of this package TARGET/PROFILE/NAME.
    let this = std::env::current_exe().context("this executable cannot be found")?;
    let folder = this.parent().context("an executable is in a folder")?;
    let profile = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    let path = profile.context("a test lives in TARGET/PROFILE/deps")?.join("opencode-cloud");
    ensure!(
        path.is_file(),
        "{} is missing: run `./dev test`, or `cargo build -p opencode-cloud` first",
        path.display()
    );
    Ok(path)
}

/// Returns the root of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
