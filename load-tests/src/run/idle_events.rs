//! Tells when a session of a driven server becomes idle, by the server's own events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::http::Stream;
use super::sessions::Target;

/// How long a session may work before the run fails.
const PATIENCE: Duration = Duration::from_secs(120);

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// One stream of a server's events, for all clients of the driver.
pub(crate) struct IdleEvents {
    waiting: Waiting,
    _reader: JoinSet<()>,
}

impl IdleEvents {
    /// Begins to listen.
    pub(crate) async fn of(target: &Target) -> anyhow::Result<Self> {
        let path = format!("/event?directory={}", target.directory.display());
        let mut stream = target.http().await?.events(&path).await?;
        stream.data().await?.context("the stream of events ended")?; // it listens from here on
        let waiting = Waiting::default();
        let mut reader = JoinSet::new();
        reader.spawn(read(stream, waiting.clone()));
        Ok(Self { waiting, _reader: reader })
    }

    /// Expects the next end of work in `session`. To be called before the work begins.
    pub(crate) fn expect(&self, session: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(session.to_owned(), sender);
        receiver
    }
}

/// Waits for what [`IdleEvents::expect`] returned.
pub(crate) async fn is_idle(expected: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let ended = tokio::time::timeout(PATIENCE, expected).await;
    ended.context("a session never became idle")?.context("the stream of events ended")
}

async fn read(mut stream: Stream, waiting: Waiting) {
    const IDLE: &[u8] = b"session.idle";
    // At the end of the stream every client that waits is told so, since its sender is dropped.
    while let Ok(Some(data)) = stream.data().await {
        if !data.windows(IDLE.len()).any(|window| window == IDLE) {
            continue; // parts of answers, which are most of the events
        }
        let Ok(event) = serde_json::from_slice::<Value>(&data) else { continue };
        if event["type"] == "session.idle"
            && let Some(session) = event["properties"]["sessionID"].as_str()
        {
            let found = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
            let _nobody_waits = found.map(|sender| sender.send(()));
        }
    }
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
