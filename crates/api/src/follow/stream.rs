use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use domain::{EventId, Seq, SessionIncarnation, SessionRef};
use futures::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use rand::RngExt;
use store::{KnownLog, Store, StoreError};
use tasks::CancellationToken;
use tokio::time::{Instant, timeout_at};

use super::followed::{Following, Want};
use super::frame::{Frame, Framed, LiveFrame};
use super::hub::Hub;
use super::page::{LogPages, read_event};
use super::queue::NoItem;
use crate::error::ApiError;
use crate::shares::Share;

/// The time between pings: below the 55 s of the least patient proxy, with room for two lost ones.
const PING_EVERY: Duration = Duration::from_secs(15);
/// The age at which a stream ends, plus up to a third at random, so that connections spread over gateways again and a
/// revoked key stops working.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
const GONE: LiveFrame<'_> = LiveFrame::Gone { reason: "session deleted" };
const SHUTDOWN: LiveFrame<'_> = LiveFrame::Reconnect { reason: "shutdown" };
const TOO_OLD: LiveFrame<'_> = LiveFrame::Reconnect { reason: "max age" };

/// One client's stream of a session's log: everything after a sequence number, then live frames.
pub(crate) struct LogStream {
    store: Store,
    session: SessionRef,
    /// The number of the last event sent.
    sent: Seq,
    /// Its id, if it is known.
    last: Option<EventId>,
    following: Following,
    /// Whether the log may have events before the point where live frames begin.
    catching_up: bool,
    pages: LogPages,
    ready: std::collections::VecDeque<Bytes>,
    stop: CancellationToken,
    ends: Instant,
    over: bool,
}

impl LogStream {
    /// Follows `session` after the number `after`, of the event `last` if that is known. `expected` is the incarnation
    /// that `after` belongs to: if another session has the id now, the stream says that the expected one is gone, and ends.
    ///
    /// # Errors
    /// Those of [`Hub::follow`].
    pub(crate) async fn open(
        hub: &Arc<Hub>,
        store: &Store,
        session: SessionRef,
        (after, last): (Seq, Option<EventId>),
        expected: Option<SessionIncarnation>,
    ) -> Result<Self, ApiError> {
        let following = hub.follow(&session, Want::Everything).await?;
        let is_another = expected.is_some_and(|expected| expected != following.incarnation);
        let retry = Bytes::from(format!("retry: {}\n\n", rand::rng().random_range(500..2_000)));
        let gone = is_another.then(|| GONE.bytes());
        let jitter = rand::rng().random_range(0..MAX_AGE.as_secs() / 3);
        Ok(Self {
            store: store.clone(),
            session,
            sent: after,
            last,
            following,
            catching_up: true,
            pages: LogPages::default(),
            ready: std::iter::once(retry).chain(gone).collect(),
            stop: hub.streams_end(),
            ends: Instant::now() + MAX_AGE + Duration::from_secs(jitter),
            over: is_another,
        })
    }

    /// Returns the streaming response. It holds `share` until the stream ends.
    pub(crate) fn into_response(self, share: Share) -> Response {
        sse_response(stream::unfold((self, share), async |(mut log, share)| {
            let bytes = log.next().await?;
            Some((bytes, (log, share)))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.over {
                return None;
            }
            if self.catching_up {
                if let Err(error) = self.catch_up().await {
                    return self.end(&error);
                }
            } else if let Some(bytes) = self.live().await {
                return Some(bytes);
            }
        }
    }

    /// Reads the next page between the last event sent and the point where live frames begin.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        // A client may be ahead of this gateway, but not of the log.
        if self.sent > self.following.tail && self.last.is_none() && !self.is_written().await? {
            self.went_back();
            return Ok(());
        }
        let is_at_tail = self.sent == self.following.tail && self.last == self.following.last;
        if self.sent < self.following.tail || (self.last.is_some() && !is_at_tail) {
            let of = self.following.incarnation;
            let known = KnownLog { incarnation: of, seq: self.sent, id: self.last.clone() };
            let page = match self.pages.read(&self.store, &self.session, known).await {
                Err(StoreError::WentBack { .. }) => {
                    self.went_back();
                    return Ok(());
                }
                page => page?,
            };
            let caught = page.last().is_none_or(|last| last.seq >= self.following.tail);
            for event in page {
                if event.seq > self.following.tail {
                    break; // comes as a live frame
                }
                self.sent = event.seq;
                self.last = Some(event.id.clone());
                self.ready.push_back(Framed::new(event).bytes(of));
            }
            if !caught {
                return Ok(());
            }
        }
        self.catching_up = false;
        for delta in std::mem::take(&mut self.following.live) {
            self.ready.push_back(Framed::new(delta).bytes());
        }
        for output in std::mem::take(&mut self.following.outputs) {
            self.ready.push_back(Framed::new(output).bytes());
        }
        Ok(())
    }

    /// Returns whether the log reaches to the last event that the client has.
    async fn is_written(&self) -> Result<bool, StoreError> {
        let SessionRef { org, session, .. } = self.session.clone();
        let (of, before) = (self.following.incarnation, Seq(self.sent.0 - 1));
        Ok(!self.store.events_of(org, session, of, before, 1).await?.items.is_empty())
    }

    /// Returns the next live frame or a ping; `None` means that the caller must look again.
    async fn live(&mut self) -> Option<Bytes> {
        let ping = Instant::now() + PING_EVERY;
        let received = tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                self.over = true;
                return Some(SHUTDOWN.bytes());
            }
            received = timeout_at(ping.min(self.ends), self.following.frames.recv()) => received,
        };
        match received {
            Ok(Ok(Frame::Event(event))) => {
                if event.seq <= self.sent {
                    return None; // the client was ahead of this gateway
                }
                self.sent = event.seq;
                self.last = Some(event.id.clone());
                Some(event.bytes(self.following.incarnation))
            }
            Ok(Ok(Frame::Large(seq))) => {
                if seq <= self.sent {
                    return None;
                }
                let of = self.following.incarnation;
                match read_event(&self.store, &self.session, of, seq).await {
                    Ok(event) => {
                        self.sent = seq;
                        self.last = Some(event.id.clone());
                        Some(Framed::new(event).bytes(of))
                    }
                    Err(StoreError::NotFound) => None, // the hub is about to say why
                    Err(error) => self.end(&error),
                }
            }
            Ok(Ok(Frame::Delta(delta))) => Some(delta.bytes()),
            Ok(Ok(Frame::Output(output))) => Some(output.bytes()),
            Ok(Ok(Frame::Workspace(workspace))) => Some(workspace.bytes()),
            Ok(Ok(Frame::Gone)) => {
                self.over = true;
                if self.stop.is_cancelled() {
                    return Some(SHUTDOWN.bytes());
                }
                Some(GONE.bytes())
            }
            Ok(Ok(Frame::WentBack)) => {
                self.went_back();
                None
            }
            Ok(Err(NoItem::Behind)) => {
                self.over = true;
                Some(self.resync("too slow"))
            }
            Ok(Err(NoItem::Closed | NoItem::Yet)) => {
                self.over = true;
                None
            }
            Err(_) if Instant::now() >= self.ends => {
                self.over = true;
                Some(TOO_OLD.bytes())
            }
            Err(_) => Some(Bytes::from_static(b": ping\n\n")),
        }
    }

    fn end(&mut self, error: &StoreError) -> Option<Bytes> {
        self.over = true;
        if matches!(error, StoreError::NotFound) {
            return Some(GONE.bytes());
        }
        tracing::warn!(%error, session = %self.session.session, "a stream could not catch up");
        Some(self.resync("unavailable"))
    }

    /// Ends the stream: the client has events that the log does not have. What it has is to be read again.
    fn went_back(&mut self) {
        self.over = true;
        let again = LiveFrame::Resync { reason: "the log went back", after: Seq(0) };
        self.ready = std::iter::once(again.bytes()).collect();
    }

    fn resync(&self, reason: &str) -> Bytes {
        LiveFrame::Resync { reason, after: self.sent }.bytes()
    }
}

/// Builds an event stream that no proxy buffers, compresses or caches.
pub(crate) fn sse_response(
    stream: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> Response {
    let stream = futures::StreamExt::map(stream, Ok::<Bytes, Infallible>);
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
