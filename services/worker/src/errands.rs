//! Asks that nobody answers in time are answered for them.
//!
//! One worker of all does it at a time. The answer stirs its session, which placement's sweep then finds like any other that
//! has work.

use std::convert::Infallible;
use std::time::Duration;

use domain::Answer;
use session::Runtime;
use store::{Answering, StoreError};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::{info, warn};

pub(crate) const ERRANDS: TaskKind = TaskKind::new("errands", OnError::Log, OnCancel::Abort);

/// The name under which workers agree on who looks.
const CHORE: &str = "expire asks";
/// The time between two looks of all workers together.
const EVERY: Duration = Duration::from_secs(5);
/// The most asks of one look. The next one finds the rest.
const AT_ONCE: i64 = 200;

/// Looks from time to time, unless another worker does.
pub(crate) async fn run(runtime: Runtime) -> Result<(), Infallible> {
    loop {
        match expire(&runtime).await {
            Ok(0) => {}
            Ok(expired) => info!(expired, "nobody has answered these asks in time"),
            Err(error) => warn!(%error, "asks could not be looked at; the next look tries again"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn expire(runtime: &Runtime) -> Result<usize, StoreError> {
    let store = &runtime.store;
    let now = runtime.clock.now_ms();
    let due = store.due_asks(now, AT_ONCE).await?;
    // A service where nothing expires writes nothing.
    if due.is_empty() || !store.claim_chore(CHORE, EVERY).await? {
        return Ok(0);
    }
    let mut expired = 0;
    for (org, ask) in due {
        match store.answer_ask(org, ask, Answer::Expired, None, now).await {
            Ok(Answering::Answered { .. }) => expired += 1,
            // Somebody was faster, or the session is gone.
            Ok(Answering::Conflict | Answering::Gone) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(expired)
}
