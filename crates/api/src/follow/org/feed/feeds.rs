//! All feeds of a gateway, and what the rest of it tells them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, IdMint, OrgId, Seq, SessionRef, Stamp};
use futures::stream::SelectAll;
use store::{SessionRow, Store};
use tasks::{CancellationToken, TaskGroup};
use tokio::sync::{Notify, mpsc};

use super::super::frame::{FrameSource, StockFrame};
use super::super::held::{HeldPrompts, HoldGuard};
use super::super::told::Told;
use super::super::untold::Untold;
use super::{FEED, Feed, HEAD_START, NEWEST, TOLD_WITHIN, known, source};
use crate::error::ApiError;
use crate::follow::Hub;
use crate::follow::queue::{QueueReader, QueueSender};
use crate::render::{asked, failed, toast};
use crate::settings::ApiSettings;

/// A feed that runs, as the others reach it.
pub(super) struct Entry {
    pub(super) frames: QueueSender<StockFrame>,
    touched: mpsc::Sender<SessionRef>,
    pub(super) told: Arc<Told>,
}

/// All feeds of this gateway.
pub(crate) struct Feeds {
    pub(super) store: Store,
    pub(super) hub: Arc<Hub>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tasks: TaskGroup,
    pub(super) settings: ApiSettings,
    pub(super) entries: Mutex<HashMap<OrgId, Entry>>,
    pub(super) held: Arc<HeldPrompts>,
    untold: Untold,
    /// Notified when a new client starts to listen.
    came: Notify,
}

impl Feeds {
    pub(crate) fn new(
        store: Store,
        hub: Arc<Hub>,
        clock: Arc<dyn Clock>,
        tasks: TaskGroup,
        settings: ApiSettings,
    ) -> Arc<Self> {
        let entries = Mutex::default();
        let (held, untold, came) = (Arc::default(), Untold::default(), Notify::new());
        Arc::new(Self { store, hub, clock, tasks, settings, entries, held, untold, came })
    }

    /// Notes that this gateway created, prompted or interrupted a session. Returns at once.
    pub(crate) fn touch(&self, session: &SessionRef) {
        if let Some(entry) = self.lock().get(&session.org) {
            // If the queue is full or the feed is ending, the next look finds the session.
            let _ = entry.touched.try_send(session.clone());
        }
    }

    /// Shows a sentence to the clients here that listen to a session's directory. It is lost if there is none.
    pub(crate) fn notify(&self, session: &SessionRow, sentence: &str) {
        if let Some(entry) = self.lock().get(&session.at.org) {
            let event = toast(sentence, &mut IdMint::after(Stamp::default(), self.clock.now_ms()));
            entry.frames.send(StockFrame::new(source(session), &event));
        }
    }

    /// Shows a sentence about a session at the beginning of the next stream that is opened here within seconds.
    pub(crate) fn notify_next(&self, session: &SessionRow, sentence: &str) {
        let mut mint = IdMint::after(Stamp::default(), self.clock.now_ms());
        let event = failed(&session.at.session, sentence, &mut mint);
        self.untold.keep(session.at.org, StockFrame::new(source(session), &event));
    }

    /// Keeps a session's frames until the guard is dropped, for a released client that has sent a prompt while its
    /// event stream is still opening. `before` is the end of the session's log before the prompt.
    pub(crate) fn hold(&self, at: &SessionRef, before: Seq) -> HoldGuard {
        self.held.hold(at, before)
    }

    /// Returns once a client here has received the events of `session` up to `seq`, at the latest after a quarter of
    /// a second. The released client stops listening when its held request is answered.
    pub(crate) async fn have_told(&self, session: &SessionRef, seq: Seq) {
        let told = async {
            self.listener(session.org).await.reaches(&session.session, seq).await;
            // The frames still have to travel over another connection.
            tokio::time::sleep(HEAD_START).await;
        };
        let _nobody_listens_or_is_slow = tokio::time::timeout(TOLD_WITHIN, told).await;
    }

    /// Waits until a client listens to `org` here. Returns the progress of its clients.
    async fn listener(&self, org: OrgId) -> Arc<Told> {
        loop {
            let came = self.came.notified(); // registered before the look, so that no client is missed
            let told = self
                .lock()
                .get(&org)
                .and_then(|entry| (entry.frames.readers() > 0).then(|| entry.told.clone()));
            match told {
                Some(told) => return told,
                None => came.await,
            }
        }
    }

    /// Returns the token that is cancelled when streams must end.
    pub(crate) fn streams_end(&self) -> CancellationToken {
        self.hub.streams_end()
    }

    /// Subscribes to all events in `org` from now on. First come sentences of [`Self::notify_next`], then the frames
    /// of prompts that were admitted a moment ago and that a released client waits for here.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        org: OrgId,
    ) -> Result<(Vec<StockFrame>, QueueReader<StockFrame>), ApiError> {
        let (replayed, frames) = self.receiver(org).await?;
        self.came.notify_waiters();
        let untold = self.untold.take(org);
        let asked = self.asked(org).await?;
        Ok((untold.into_iter().chain(replayed).chain(asked).collect(), frames))
    }

    /// Returns the frames of asks that wait for answers. A client that begins to listen lists none.
    async fn asked(&self, org: OrgId) -> Result<Vec<StockFrame>, ApiError> {
        let mut mint = IdMint::after(Stamp::default(), self.clock.now_ms());
        let asks = self.store.pending_asks(org, None).await?;
        let frames = asks.into_iter().map(|row| {
            let event = asked(&row.session.session, &row.message, &row.asked, &mut mint);
            let source = FrameSource::new(row.directory.as_str().into(), row.project.as_str());
            StockFrame::new(source, &event)
        });
        Ok(frames.collect())
    }

    async fn receiver(
        self: &Arc<Self>,
        org: OrgId,
    ) -> Result<(Vec<StockFrame>, QueueReader<StockFrame>), ApiError> {
        if let Some(entry) = self.lock().get(&org) {
            return Ok(self.held.subscribe(org, &entry.frames));
        }
        let (began, databases) = (self.clock.now_ms(), self.hub.databases());
        let baseline = self.store.session_changes(org, None, NEWEST).await?;
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&org) {
            return Ok(self.held.subscribe(org, &entry.frames));
        }
        let frames = QueueSender::new(self.hub.budget(), org);
        let receiver = frames.subscribe();
        let (touched, touches) = mpsc::channel(1_024);
        let known = baseline.sessions.into_iter().map(|it| (it.session.clone(), known(&it)));
        let told = Arc::new(Told::new(known.collect()));
        let waiting = self.held.taken_up(org);
        for (session, (_, before)) in &waiting {
            told.note(session, *before);
        }
        entries.insert(org, Entry { frames: frames.clone(), touched, told: told.clone() });
        let feed = Feed {
            feeds: self.clone(),
            org,
            began,
            position: baseline.position,
            frames,
            told,
            followed: HashMap::new(),
            waiting,
            deleted: HashSet::new(),
            cursors: SelectAll::new(),
            databases,
            over: false,
        };
        self.tasks.spawn(FEED, feed.run(touches));
        Ok((Vec::new(), receiver))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<OrgId, Entry>> {
        // No foreign code runs under this lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
