//! `/event` and `/global/event`: a stream of the organisation's events. The frames have no ids, as stock clients
//! expect. A client that needs every event reads a session's log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use domain::{Clock, IdMint, Stamp};
use futures::stream;
use serde_json::json;
use tasks::CancellationToken;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::timeout;

use super::place::Named;
use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{StockFrame, sse_response};
use crate::render::{StockKind, event};
use crate::surface::extract::CanRead;

const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// Frames are added to a chunk until it has this many bytes.
const CHUNK: usize = 32 * 1024;

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
    /// Whether frames were lost, since the client is too slow.
    is_behind: bool,
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(self.own(StockKind::ServerConnected));
        }
        while let Some(frame) = self.replayed.pop_front() {
            if let Some(bytes) = self.wanted(&frame) {
                return Some(bytes.clone());
            }
        }
        // The stream ends rather than have a gap.
        while !self.is_behind {
            let received = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = timeout(HEARTBEAT_EVERY, self.frames.recv()) => received,
            };
            match received {
                Ok(Ok(frame)) => {
                    if let Some(bytes) = self.wanted(&frame).cloned() {
                        return Some(self.gather(bytes));
                    }
                }
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.own(StockKind::ServerHeartbeat)),
            }
        }
        None
    }

    /// Returns a chunk of `first` and of the frames after it that are there already. A busy organisation has thousands
    /// a second, and each chunk has its cost.
    fn gather(&mut self, first: Bytes) -> Bytes {
        let mut chunk = None::<BytesMut>;
        while chunk.as_ref().is_none_or(|chunk| chunk.len() < CHUNK) {
            match self.frames.try_recv() {
                Ok(frame) => {
                    if let Some(bytes) = self.wanted(&frame) {
                        let chunk = chunk.get_or_insert_with(|| BytesMut::from(&first[..]));
                        chunk.extend_from_slice(bytes);
                    }
                }
                Err(TryRecvError::Lagged(_)) => {
                    self.is_behind = true;
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        chunk.map_or(first, BytesMut::freeze)
    }

    fn wanted<'a>(&self, frame: &'a StockFrame) -> Option<&'a Bytes> {
        match self.reach {
            Reach::Global => Some(frame.global()),
            Reach::Local => {
                let wanted = self.directory.as_deref();
                wanted.is_none_or(|wanted| wanted == frame.directory()).then(|| frame.local())
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
        is_behind: false,
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

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    fn sent(sender: &broadcast::Sender<StockFrame>, texts: &[&'static str]) {
        for text in texts {
            let frame = StockFrame::new("/d".into(), (*text).into(), Bytes::new());
            sender.send(frame).expect("a listener");
        }
    }

    fn listener(frames: broadcast::Receiver<StockFrame>) -> Listener {
        Listener {
            replayed: VecDeque::new(),
            frames,
            directory: Some("/d".into()),
            reach: Reach::Local,
            clock: Arc::new(SystemClock::default()),
            stop: CancellationToken::new(),
            greeted: true,
            is_behind: false,
        }
    }

    #[tokio::test]
    async fn frames_that_are_there_travel_together() {
        let (sender, frames) = broadcast::channel(8);
        let mut listener = listener(frames);
        sent(&sender, &["one ", "two ", "three"]);
        assert_eq!(listener.next().await.expect("a chunk"), "one two three");
        sent(&sender, &["four"]);
        assert_eq!(listener.next().await.expect("a chunk"), "four");
    }

    #[tokio::test]
    async fn a_stream_that_lost_a_frame_ends() {
        let (sender, frames) = broadcast::channel(2);
        let mut behind = listener(frames);
        sent(&sender, &["one", "two", "three"]);
        assert_eq!(behind.next().await, None, "at its first frame");

        // As it is when frames are lost between the first one of a chunk and the next.
        let mut behind = listener(sender.subscribe());
        sent(&sender, &["one", "two", "three"]);
        assert_eq!(behind.gather(Bytes::from_static(b"zero")), "zero");
        assert_eq!(behind.next().await, None, "no frame follows the gap");
    }
}
