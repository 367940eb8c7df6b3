//! A server gives up rights at its start, and the launcher of cells keeps those that only it needs.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sandbox::launcher::Launcher;

/// This process's executable, wherever it is.
pub(crate) const EXECUTABLE: &str = "/proc/self/exe";

/// The launcher that was started before the rights to start one were given up: one for the process, like its rights.
static LAUNCHER: OnceLock<Arc<Launcher>> = OnceLock::new();

/// The rights of root that a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RightsOfRoot {
    /// It starts servers that run commands, makes cells to see whether it can, or runs commands without a sandbox.
    Needed,
    /// It reaches files and starts Postgres.
    Files,
    /// The same, and its launcher makes cells.
    FilesAndLauncher,
}

impl RightsOfRoot {
    /// Those of a server that runs commands. `trusted`: as its own user, without a sandbox.
    pub(crate) fn to_run_commands(trusted: bool) -> Self {
        if trusted { Self::Needed } else { Self::FilesAndLauncher }
    }

    /// Gives up all others, for this process and all that it starts, but for the launcher. While there is one thread.
    ///
    /// # Errors
    /// When the system refuses, or the launcher cannot be started.
    pub(crate) fn give_up_others(self) -> io::Result<()> {
        sandbox::keep_needed_rights()?;
        if self == Self::FilesAndLauncher && sandbox::has_rights_of_launchers()? {
            let started = Launcher::start(Path::new(EXECUTABLE), &launcher_words())?;
            LAUNCHER.get_or_init(|| Arc::new(started));
        }
        if self == Self::Needed { Ok(()) } else { sandbox::keep_rights_to_files() }
    }
}

/// The words after the executable that make it a launcher.
pub(crate) fn launcher_words() -> Vec<OsString> {
    vec![OsString::from(crate::TOOL_LAUNCHER)]
}

/// The launcher of this process, where it has given up the rights to start one.
pub(crate) fn started_launcher() -> Option<Arc<Launcher>> {
    LAUNCHER.get().cloned()
}
