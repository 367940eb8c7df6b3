//! Handles Ctrl-C: the first asks for an orderly end, the second exits at once.

use std::io;
use std::path::Path;
use std::process;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::BootError;

/// The exit code after a SIGINT.
pub const EXIT_INTERRUPTED: i32 = 130;
/// The exit code after a SIGTERM.
pub const EXIT_TERMINATED: i32 = 143;

/// Returns a token that the first SIGINT or SIGTERM cancels. At the second, the process exits at once with
/// 130 or 143, and the guards stop its child servers.
///
/// It listens on its own thread, so that the second signal works while everything else is stuck.
///
/// # Errors
/// [`BootError::Io`] if the handlers cannot be installed.
pub fn watch() -> Result<CancellationToken, BootError> {
    let failed = |error| BootError::io("listen for", Path::new("signals"))(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(failed)?;
    let token = CancellationToken::new();
    let stop = token.clone();
    // Installed before we return, so no later signal is missed.
    let installed: io::Result<(Signal, Signal)> = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt())
            .and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)))
    };
    let (mut interrupt, mut terminate) = installed.map_err(failed)?;
    let listen = async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => EXIT_INTERRUPTED,
                _ = terminate.recv() => EXIT_TERMINATED,
            }
        };
        next().await;
        info!("stopping; once more to exit at once");
        stop.cancel();
        process::exit(next().await)
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || runtime.block_on(listen)).map_err(failed)?;
    Ok(token)
}
