//! `/event` and `/global/event`: a stream of the organisation's events. The frames have no ids, as stock clients
//! expect. A client that needs every event reads a session's log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use domain::{Clock, IdMint, Stamp};
use futures::stream;
use serde_json::json;
use tasks::CancellationToken;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::place::Named;
use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{StockFrame, sse_response};
use crate::render::{StockKind, event};
use crate::surface::extract::CanRead;

const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

/// The frames that a client wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Those of one directory, or of all.
    Local,
    /// Those of all directories, each with its directory and project.
    Global,
}

struct Listener {
    /// Frames from before the stream opened, oldest first.
    replayed: VecDeque<StockFrame>,
    frames: broadcast::Receiver<StockFrame>,
    directory: Option<String>,
    reach: Reach,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    greeted: bool,
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(self.own(StockKind::ServerConnected));
        }
        while let Some(frame) = self.replayed.pop_front() {
            if let Some(bytes) = self.wanted(frame) {
                return Some(bytes);
            }
        }
        loop {
            let received = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = timeout(HEARTBEAT_EVERY, self.frames.recv()) => received,
            };
            match received {
                Ok(Ok(frame)) => {
                    if let Some(bytes) = self.wanted(frame) {
                        return Some(bytes);
                    }
                }
                // The client is too slow: end the stream rather than leave a gap in it.
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.own(StockKind::ServerHeartbeat)),
            }
        }
    }

    fn wanted(&self, frame: StockFrame) -> Option<Bytes> {
        match self.reach {
            Reach::Global => Some(frame.global),
            Reach::Local => {
                let wanted = self.directory.as_deref();
                wanted.is_none_or(|wanted| *wanted == *frame.directory).then_some(frame.local)
            }
        }
    }

    fn own(&self, kind: StockKind) -> Bytes {
        let mut mint = IdMint::after(Stamp::default(), self.clock.now_ms());
        let event = event(kind, &json!({}), &mut mint);
        Bytes::from(match self.reach {
            Reach::Local => format!("data: {event}\n\n"),
            Reach::Global => format!("data: {}\n\n", json!({ "payload": event })),
        })
    }
}

async fn listen(
    state: &ApiState,
    access: CanRead,
    directory: Option<String>,
    reach: Reach,
) -> Result<Response, ApiError> {
    let share = state.streams().take(access.org.to_string())?;
    let (replayed, frames) = state.feeds().subscribe(access.org).await?;
    let listener = Listener {
        replayed: replayed.into(),
        frames,
        directory,
        reach,
        clock: state.clock().clone(),
        stop: state.feeds().streams_end(),
        greeted: false,
    };
    Ok(sse_response(stream::unfold((listener, share), async |(mut listener, share)| {
        let bytes = listener.next().await?;
        Some((bytes, (listener, share)))
    })))
}

/// Streams the events of the request's directory, or of all.
pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Response, ApiError> {
    let directory = named.filter(state.settings()).await?;
    listen(&state, access, directory, Reach::Local).await
}

/// Streams the events of all directories, each with its directory.
pub(crate) async fn global(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Response, ApiError> {
    listen(&state, access, None, Reach::Global).await
}
