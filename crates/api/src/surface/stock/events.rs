//! `/event` and `/global/event`: a stream of the organisation's events. The frames have no ids, as stock clients
//! expect. A client that needs every event reads a session's log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use domain::{Clock, IdMint, Stamp};
use futures::stream;
use serde_json::json;
use store::Store;
use tasks::CancellationToken;
use tokio::time::timeout;

use super::place::Named;
use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{NoItem, QueueReader, StockFrame, sse_response};
use crate::render::{StockKind, event};
use crate::surface::extract::CanRead;
use crate::text::id;

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
    store: Store,
    /// Frames before those of the queue, oldest first.
    ready: VecDeque<StockFrame>,
    frames: QueueReader<StockFrame>,
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
        // The stream ends rather than have a gap.
        loop {
            if let Some(frame) = self.ready.pop_front() {
                match self.read(&frame).await {
                    Ok(Some(bytes)) => return Some(self.gather(bytes)),
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "a stream ends, since an event could not be read");
                        return None;
                    }
                }
            }
            if self.is_behind {
                return None;
            }
            let received = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = timeout(HEARTBEAT_EVERY, self.frames.recv()) => received,
            };
            match received {
                Ok(Ok(frame)) => self.ready.push_back(frame),
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.own(StockKind::ServerHeartbeat)),
            }
        }
    }

    /// Returns the text of a frame, if the client wants it. A large one takes a read.
    async fn read(&self, frame: &StockFrame) -> Result<Option<Bytes>, ApiError> {
        if !self.wants(frame) {
            return Ok(None);
        }
        let local = frame.read(&self.store).await?;
        Ok(local.map(|local| self.shown(frame, &local)))
    }

    /// Returns a chunk of `first` and of the frames after it that are there already. A busy organisation has thousands
    /// a second, and each chunk has its cost.
    fn gather(&mut self, first: Bytes) -> Bytes {
        let mut chunk = None::<BytesMut>;
        while chunk.as_ref().map_or(first.len(), BytesMut::len) < CHUNK {
            let next = match self.ready.pop_front() {
                Some(frame) => Ok(frame),
                None => self.frames.try_recv(),
            };
            match next {
                Ok(frame) if !self.wants(&frame) => {}
                Ok(frame) => {
                    let Some(local) = frame.local() else {
                        self.ready.push_front(frame);
                        break;
                    };
                    let chunk = chunk.get_or_insert_with(|| BytesMut::from(&first[..]));
                    chunk.extend_from_slice(&self.shown(&frame, local));
                }
                Err(NoItem::Behind) => {
                    self.is_behind = true;
                    break;
                }
                Err(NoItem::Yet | NoItem::Closed) => break,
            }
        }
        chunk.map_or(first, BytesMut::freeze)
    }

    fn wants(&self, frame: &StockFrame) -> bool {
        self.directory.as_deref().is_none_or(|directory| frame.is_of(directory))
    }

    fn shown(&self, frame: &StockFrame, local: &Bytes) -> Bytes {
        match self.reach {
            Reach::Global => frame.global(local),
            Reach::Local => local.clone(),
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
    let share = state.streams().take(&access)?;
    let (replayed, frames) = state.feeds().subscribe(access.org).await?;
    let listener = Listener {
        store: state.store().clone(),
        ready: replayed.into(),
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

/// The name of the event with which a stream of the released contract ends early.
const STREAM_FAILURE: &str = "effect/httpapi/stream/failure";

/// Ends a stream of the second API at once, with the reason as its only event. The released SDK asks for a stream that was refused
/// again and again, for ever: a status would hang its caller.
fn refused_stream(why: &str) -> Response {
    let cause = json!([{ "_tag": "Die", "defect": why }]);
    let event = format!("event: {STREAM_FAILURE}\ndata: {cause}\n\n");
    sse_response(stream::iter([Bytes::from(event)]))
}

/// Refuses the second API's stream of all sessions.
pub(crate) async fn refuse_all(_: CanRead) -> Response {
    refused_stream("this stream is not offered yet: use `GET /event`")
}

/// Refuses the second API's stream of one session.
pub(crate) async fn refuse_session(
    access: CanRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Response, ApiError> {
    state.store().session(access.org, id(&session)?).await?;
    Ok(refused_stream(
        "this stream is not offered yet: use `GET /event`, or `GET /platform/session/{session}/log?follow=true`",
    ))
}

#[cfg(test)]
mod tests {
    use domain::{OrgId, SystemClock};
    use store::StoreOptions;

    use super::*;
    use crate::follow::{FrameSource, QueueBudget, QueueLimits, QueueSender};

    fn queue(stream: usize) -> QueueSender<StockFrame> {
        let limits = QueueLimits { stream, ..QueueLimits::default() };
        QueueSender::new(&QueueBudget::new(limits), OrgId::FIRST)
    }

    fn sent(sender: &QueueSender<StockFrame>, texts: &[&str]) {
        for text in texts {
            sender.send(StockFrame::new(FrameSource::new("/d".into(), "prj_a"), &json!(text)));
        }
    }

    fn listener(frames: QueueReader<StockFrame>) -> Listener {
        // It connects when it is first used.
        let nowhere = StoreOptions::new("postgres://nobody@127.0.0.1:1/none");
        Listener {
            store: Store::connect(&nowhere).expect("a URL"),
            ready: VecDeque::new(),
            frames,
            directory: Some("/d".into()),
            reach: Reach::Local,
            clock: Arc::new(SystemClock::default()),
            stop: CancellationToken::new(),
            greeted: true,
            is_behind: false,
        }
    }

    fn data(texts: &[&str]) -> String {
        texts.iter().map(|text| format!("data: \"{text}\"\n\n")).collect()
    }

    #[tokio::test]
    async fn frames_that_are_there_travel_together() {
        let sender = queue(1_000_000);
        let mut listener = listener(sender.subscribe());
        sent(&sender, &["one", "two", "three"]);
        assert_eq!(listener.next().await.expect("a chunk"), data(&["one", "two", "three"]));
        sent(&sender, &["four"]);
        assert_eq!(listener.next().await.expect("a chunk"), data(&["four"]));
    }

    #[tokio::test]
    async fn a_stream_that_lost_a_frame_ends() {
        let sender = queue(1_200);
        let mut behind = listener(sender.subscribe());
        sent(&sender, &["one", "two", "three"]);
        assert_eq!(behind.next().await, None, "at its first frame");

        // As it is when frames are lost between the first one of a chunk and the next.
        let mut behind = listener(sender.subscribe());
        sent(&sender, &["one", "two", "three"]);
        assert_eq!(behind.gather(Bytes::from_static(b"zero")), "zero");
        assert_eq!(behind.next().await, None, "no frame follows the gap");
    }
}
