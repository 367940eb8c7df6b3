use std::collections::VecDeque;
use std::sync::Arc;

use domain::{EventId, RecordedEvent, Seq, SessionIncarnation, SessionRef};
use signals::{CallOutput, Delta};
use store::{KnownLog, Store, StoreError};

use super::followed::{Following, Want};
use super::frame::{Frame, Framed};
use super::hub::Hub;
use super::page::{LogPages, read_event};
use super::queue::NoItem;
use crate::error::ApiError;

/// A session's log for the gateway's own use: every event after a sequence number, once and in order, with live text
/// in between if wanted. A slow user of the cursor pays with a read, not with a broken stream.
pub(crate) struct Cursor {
    hub: Arc<Hub>,
    store: Store,
    session: SessionRef,
    want: Want,
    seen: Seq,
    /// The id of the event with this number, if it is known.
    last: Option<EventId>,
    following: Following,
    pages: LogPages,
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
    /// Output of a call that runs.
    Output(Arc<Framed<CallOutput>>),
    /// The session was deleted, or the process stops.
    Gone,
    /// The log is not the one that was read: the database came back without some commits.
    WentBack,
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
            last: following.last.clone(),
            following,
            pages: LogPages::default(),
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

    /// Returns the incarnation of the followed session.
    pub(crate) fn incarnation(&self) -> SessionIncarnation {
        self.following.incarnation
    }

    /// Lets the first step begin after `seen` instead. Events older than the join cost a read.
    pub(crate) fn after(self, seen: Seq) -> Self {
        Self { seen, last: None, ..self }
    }

    /// Returns the next step. There is none after an error, [`Step::Gone`] or [`Step::WentBack`].
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
                    self.last = Some(event.id.clone());
                    return Ok(Step::Event(event));
                }
                Ok(Frame::Large(seq)) if seq > self.seen => {
                    let of = self.following.incarnation;
                    match read_event(&self.store, &self.session, of, seq).await {
                        Ok(event) => {
                            self.seen = seq;
                            self.last = Some(event.id.clone());
                            return Ok(Step::Event(Arc::new(Framed::new(event))));
                        }
                        Err(StoreError::NotFound) => {} // the hub is about to say why
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Frame::Event(_) | Frame::Large(_) | Frame::Workspace(_)) => {}
                Ok(Frame::Delta(delta)) => return Ok(Step::Delta(delta)),
                Ok(Frame::Output(output)) => return Ok(Step::Output(output)),
                Err(NoItem::Behind) => {
                    self.following = self.hub.follow(&self.session, self.want).await?;
                    self.catching_up = true;
                }
                Ok(Frame::WentBack) => return Ok(Step::WentBack),
                Ok(Frame::Gone) | Err(NoItem::Closed | NoItem::Yet) => return Ok(Step::Gone),
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), ApiError> {
        // Without its id, what was seen is of this gateway, and may be newer than what its reader has.
        let is_at_tail = self.seen == self.following.tail && self.last == self.following.last;
        if self.seen < self.following.tail || (self.last.is_some() && !is_at_tail) {
            let incarnation = self.following.incarnation;
            let known = KnownLog { incarnation, seq: self.seen, id: self.last.clone() };
            let page = match self.pages.read(&self.store, &self.session, known).await {
                Err(StoreError::WentBack { .. }) => {
                    self.ready.push_back(Step::WentBack);
                    return Ok(());
                }
                page => page?,
            };
            let caught = page.last().is_none_or(|last| last.seq >= self.following.tail);
            let tail = self.following.tail;
            for event in page.into_iter().take_while(|event| event.seq <= tail) {
                self.seen = event.seq;
                self.last = Some(event.id.clone());
                self.ready.push_back(Step::Event(Arc::new(Framed::new(event))));
            }
            if !caught {
                return Ok(());
            }
        }
        self.catching_up = false;
        let live = std::mem::take(&mut self.following.live);
        self.ready.extend(live.into_iter().map(|delta| Step::Delta(Arc::new(Framed::new(delta)))));
        let outputs = std::mem::take(&mut self.following.outputs).into_iter();
        self.ready.extend(outputs.map(|output| Step::Output(Arc::new(Framed::new(output)))));
        Ok(())
    }
}
