//! A running drain's wait while Postgres is away: it waits, and asks again.
//!
//! The claim is still ours: only another claim takes it, and that needs Postgres too. So an ordinary failover ends no
//! running work. A Postgres that comes back without some commits does: each write names the last event before it by its
//! id, so that a log that is not the one that we know takes none (`docs/decisions/0092`).

use std::time::Duration;

use store::{StoreError, Written};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// How long a drain waits for Postgres before it gives up its work. Bodies of tools end after the same time without
/// Postgres.
pub const POSTGRES_PATIENCE: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One wait for Postgres, over several tries.
struct Wait {
    until: Instant,
    begun: Instant,
    pause: Duration,
}

impl Wait {
    fn new() -> Self {
        let begun = Instant::now();
        Self { until: begun + POSTGRES_PATIENCE, begun, pause: FIRST_PAUSE }
    }

    /// Waits before the next try. Returns whether there is one.
    async fn goes_on(&mut self, error: &StoreError) -> bool {
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        if self.pause == FIRST_PAUSE {
            let why = if error.is_locked() {
                "somebody else has locked the session's rows"
            } else {
                "the database does not answer"
            };
            warn!(cause = %cause(error), "{why}; what runs goes on, and it is asked again");
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    fn ended(&self) {
        if self.pause > FIRST_PAUSE {
            info!(waited_ms = self.begun.elapsed().as_millis(), "the database answers again");
        }
    }
}

/// Repeats a safe request until Postgres answers.
///
/// # Errors
/// The last one, after [`POSTGRES_PATIENCE`]; a permanent one at once.
pub(crate) async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut wait = Wait::new();
    loop {
        match ask().await {
            Err(error) if error.may_pass() && wait.goes_on(&error).await => {}
            answer => {
                wait.ended();
                return answer;
            }
        }
    }
}

/// Finds out whether an unanswered write was made, and makes it otherwise.
///
/// # Errors
/// The reason why it was not answered, after [`POSTGRES_PATIENCE`]; those of the write.
pub(crate) async fn until_answered(mut written: Written) -> Result<Written, StoreError> {
    let mut wait = Wait::new();
    while let Written::Unanswered(write, error) = written {
        if !wait.goes_on(&error).await {
            return Err(error);
        }
        written = write.again().await?;
    }
    wait.ended();
    Ok(written)
}

/// Returns the database's own message, which the store's error only announces.
fn cause(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
