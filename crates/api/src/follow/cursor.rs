use std::collections::VecDeque;
use std::sync::Arc;

use domain::{RecordedEvent, Seq, SessionRef};
use signals::Delta;
use store::Store;
use tokio::sync::broadcast::error::RecvError;

use super::followed::{Following, Want};
use super::frame::{Frame, Framed};
use super::hub::Hub;
use crate::error::ApiError;

const PAGE: i64 = 256;

/// A session's log for the gateway's own use: every event after a sequence number, once and in order, with live text
/// in between if wanted. A slow user of the cursor pays with a read, not with a broken stream.
pub(crate) struct Cursor {
    hub: Arc<Hub>,
    store: Store,
    session: SessionRef,
    want: Want,
    seen: Seq,
    following: Following,
    ready: VecDeque<Step>,
    catching_up: bool,
}

/// One step of a [`Cursor`].
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The next event.
    Event(Arc<Framed<RecordedEvent>>),
    /// Live text.
    Delta(Arc<Framed<Delta>>),
    /// The session was deleted, or the process stops.
    Gone,
}

impl Cursor {
    /// Joins the followers of `session` at the current end of its log.
    ///
    /// # Errors
    /// Those of [`Hub::follow`].
    pub(crate) async fn join(
        hub: &Arc<Hub>,
        store: &Store,
        session: SessionRef,
        want: Want,
    ) -> Result<Self, ApiError> {
        let following = hub.follow(&session, want).await?;
        Ok(Self {
            hub: hub.clone(),
            store: store.clone(),
            session,
            want,
            seen: following.tail,
            following,
            ready: VecDeque::new(),
            catching_up: true,
        })
    }

    /// Returns the followed session.
    pub(crate) fn session(&self) -> &SessionRef {
        &self.session
    }

    /// Returns the end of the log at the time of the join.
    pub(crate) fn joined_at(&self) -> Seq {
        self.following.tail
    }

    /// Lets the first step begin after `seen` instead. Events older than the join cost a read.
    pub(crate) fn after(self, seen: Seq) -> Self {
        Self { seen, ..self }
    }

    /// Returns the next step. There is none after an error or [`Step::Gone`].
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn next(&mut self) -> Result<Step, ApiError> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Ok(step);
            }
            if self.catching_up {
                self.catch_up().await?;
                continue;
            }
            match self.following.frames.recv().await {
                Ok(Frame::Event(event)) if event.seq > self.seen => {
                    self.seen = event.seq;
                    return Ok(Step::Event(event));
                }
                Ok(Frame::Event(_) | Frame::Workspace(_)) => {}
                Ok(Frame::Delta(delta)) => return Ok(Step::Delta(delta)),
                Err(RecvError::Lagged(_)) => {
                    self.following = self.hub.follow(&self.session, self.want).await?;
                    self.catching_up = true;
                }
                Ok(Frame::Gone) | Err(RecvError::Closed) => return Ok(Step::Gone),
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), ApiError> {
        if self.seen < self.following.tail {
            let (org, session) = (self.session.org, self.session.session.clone());
            let of = self.following.incarnation;
            let page = self.store.events_of(org, session, of, self.seen, PAGE).await?.items;
            let caught = page.last().is_none_or(|last| last.seq >= self.following.tail);
            let tail = self.following.tail;
            for event in page.into_iter().take_while(|event| event.seq <= tail) {
                self.seen = event.seq;
                self.ready.push_back(Step::Event(Arc::new(Framed::new(event))));
            }
            if !caught {
                return Ok(());
            }
        }
        self.catching_up = false;
        let live = std::mem::take(&mut self.following.live);
        self.ready.extend(live.into_iter().map(|delta| Step::Delta(Arc::new(Framed::new(delta)))));
        Ok(())
    }
}
