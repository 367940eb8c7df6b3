//! Waits, always with a deadline.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(40);

/// Looks until `look` finds something, at most for `seconds`.
///
/// # Errors
/// When it finds nothing in time, naming `what`; or when a look fails.
pub async fn eventually<T>(
    what: &str,
    seconds: u64,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look().await.with_context(|| what.to_owned())? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {seconds} s");
        }
        sleep(LOOK).await;
    }
}

/// Waits at most `seconds` for `work`.
///
/// # Errors
/// When it takes longer, naming `what`; or its own.
pub async fn within<T>(
    what: &str,
    seconds: u64,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match timeout(Duration::from_secs(seconds), work).await {
        Ok(done) => done.with_context(|| what.to_owned()),
        Err(_) => bail!("{what}: not within {seconds} s"),
    }
}

/// Returns the payloads of a log's events of one kind, in order.
#[must_use]
pub fn events_of<'e>(log: &'e [Value], kind: &str) -> Vec<&'e Value> {
    log.iter().filter(|event| event["type"] == kind).map(|event| &event["data"]).collect()
}
