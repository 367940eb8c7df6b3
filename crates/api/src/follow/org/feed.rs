//! The events of an organisation's sessions in the stock shape: one reader per organisation and gateway, for all its
//! clients of `/event`.
//!
//! A session is followed once this gateway touches it, or once a look at the changes of the organisation (each 0.8 s)
//! finds new events in it. The looks read from a position, so they find each commit and each deletion, whoever made it
//! (docs/decisions/0058, 0097).

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use domain::{
    LocationId, MessageId, OrgId, RecordedEvent, Seq, SessionEvent, SessionId, SessionIncarnation,
    SessionRef, TimestampMs,
};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt, stream};
use store::{ChangePosition, Messages, SessionChange, SessionRow, Store, StoreError};
use tasks::{CancellationToken, OnCancel, OnError, TaskKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use self::answered::files_of_answer;
use super::frame::{EventPlace, FrameSource, StockFrame};
use super::told::{KnownSession, Told};
use crate::changes::changes;
use crate::error::ApiError;
use crate::fold::{Change, SessionState};
use crate::follow::queue::QueueSender;
use crate::follow::{Cursor, Step, Want};
use crate::render::{
    Occasion, StockEvent, StockFacts, changed_files, deleted, deleted_unseen, events, files,
};
use crate::summaries::Summaries;
use crate::view::SessionContext;

mod answered;
mod feeds;

pub(crate) use feeds::Feeds;

const FEED: TaskKind = TaskKind::new("feed an organisation", OnError::Log, OnCancel::Abort);
/// How soon a session is tried again that could not be followed.
const RETRY_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(800);
/// A session that is idle for this long is no longer followed until it changes again.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// The most sessions that a feed begins with, the newest ones.
const NEWEST: i64 = 20_000;
/// The most followed sessions of one organisation.
const MAX_FOLLOWED: usize = 512;
/// The most sessions that are remembered. Beyond that, unfollowed ones are forgotten.
const MAX_KNOWN: usize = 40_000;
/// How many looks without a client end a feed.
const LINGER_LOOKS: u32 = 5;
/// How long the answer to a released client waits at most for the events before it.
const TOLD_WITHIN: Duration = Duration::from_millis(250);
/// The time between the last events and the answer. They use different connections: a client on a busy machine that
/// finds both readable may read its answer first, and show nothing.
const HEAD_START: Duration = Duration::from_millis(100);
/// The most events in one read.
const PAGE: i64 = 1_000;
/// How many of the newest messages are searched for an unfinished one.
const NEWEST_MESSAGES: i64 = 4;

type CursorStream = BoxStream<'static, (SessionId, Option<Step>)>;

struct Followed {
    incarnation: SessionIncarnation,
    /// The number up to which its log is known to have events.
    end: Seq,
    state: SessionState,
    facts: StockFacts,
    directory: Arc<str>,
    moved: Instant,
    stop: CancellationToken,
    /// The number of the last event that the session, a fork, has copied.
    copied_to: Seq,
}

/// One organisation's feed, owned by its task.
struct Feed {
    feeds: Arc<Feeds>,
    org: OrgId,
    began: TimestampMs,
    /// How far the changes of the organisation's sessions are read.
    position: ChangePosition,
    frames: QueueSender<StockFrame>,
    told: Arc<Told>,
    followed: HashMap<SessionId, Followed>,
    /// The sessions that could not be followed yet.
    waiting: HashMap<SessionId, (SessionRef, Seq)>,
    /// The sessions whose deletion clients know, until the changes have it too.
    deleted: HashSet<SessionIncarnation>,
    cursors: SelectAll<CursorStream>,
    /// How often the database was another one when the feed began.
    databases: u64,
    /// Whether clients have been told what the database does not have any more.
    over: bool,
}

impl Feed {
    async fn run(mut self, mut touches: mpsc::Receiver<SessionRef>) -> Result<(), Infallible> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut retry = tokio::time::interval(RETRY_EVERY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lonely = 0;
        loop {
            tokio::select! {
                Some(session) = touches.recv() => {
                    self.follow(session, Seq(0)).await;
                }
                _ = retry.tick(), if !self.waiting.is_empty() => self.follow_waiting().await,
                Some((session, step)) = self.cursors.next() => self.take(&session, step.as_ref()).await,
                _ = look.tick() => {
                    lonely = if self.frames.readers() == 0 { lonely + 1 } else { 0 };
                    if lonely > LINGER_LOOKS && self.leave() {
                        return Ok(());
                    }
                    self.look().await;
                }
            }
            if self.over {
                self.break_off();
                return Ok(());
            }
        }
    }

    /// Ends the streams of all clients: they list sessions anew when they listen again. A released client knows no other
    /// way to hear that what it was told is not so any more.
    fn break_off(&self) {
        let mut entries = self.feeds.lock();
        if entries.get(&self.org).is_some_and(|entry| Arc::ptr_eq(&entry.told, &self.told)) {
            entries.remove(&self.org);
        }
    }

    /// Removes the feed from the gateway if it has no clients, and returns whether it did.
    fn leave(&self) -> bool {
        let mut entries = self.feeds.lock();
        let alone = self.frames.readers() == 0;
        if alone {
            entries.remove(&self.org);
        }
        alone
    }

    /// Follows sessions that have changed, and drops those that have long been idle.
    async fn look(&mut self) {
        if self.feeds.hub.databases() != self.databases {
            self.over = true;
            return;
        }
        let after = Some(self.position.clone());
        let changes = match self.feeds.store.session_changes(self.org, after, NEWEST).await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, "an organisation could not be looked at");
                return;
            }
        };
        self.followed.retain(|_, followed| {
            let kept = followed.is_busy() || followed.moved.elapsed() < IDLE_FOR;
            if !kept {
                followed.stop.cancel();
            }
            kept
        });
        self.told.shrink(MAX_KNOWN, |session| self.followed.contains_key(session));
        self.position = changes.position;
        if changes.is_list {
            self.compare(&changes.sessions).await;
        }
        for change in changes.sessions {
            self.note_change(change).await;
        }
    }

    /// Tries to follow the sessions that could not be followed, until one cannot again.
    async fn follow_waiting(&mut self) {
        let waiting: Vec<_> = self.waiting.keys().cloned().collect();
        for session in waiting {
            if let Some((session, first)) = self.waiting.remove(&session)
                && !self.follow(session, first).await
            {
                return;
            }
        }
    }

    /// Follows a session that has events which clients do not know, or tells that it is gone.
    async fn note_change(&mut self, change: SessionChange) {
        let SessionChange { session, incarnation, location, first, last, gone } = change;
        if gone {
            if !self.deleted.remove(&incarnation) {
                self.tell_deleted(&session, incarnation).await;
            }
            return;
        }
        // Without a Location it is gone by now, and the next look has that.
        let Some(location) = location else { return };
        if let Some(followed) = self.followed.get_mut(&session) {
            followed.end = followed.end.max(last);
        }
        let is_known = self
            .told
            .known(&session)
            .is_some_and(|known| known.seq >= last && known.incarnation.0 >= incarnation.0);
        if !is_known && last > Seq(0) {
            self.follow(SessionRef { org: self.org, location, session }, first).await;
        }
    }

    /// Tells that the known sessions are gone which a list of the newest ones does not have. Sessions that are in the list
    /// and were forgotten here count as told.
    async fn compare(&mut self, list: &[SessionChange]) {
        self.deleted.clear();
        let newest = self.told.newest();
        for change in list {
            let is_new = newest.as_ref().is_some_and(|newest| change.session < *newest);
            if !is_new && self.told.of(&change.session).is_none() {
                self.told.enter(change.session.clone(), known(change));
            }
        }
        let listed: HashSet<_> = list.iter().map(|it| it.incarnation).collect();
        let is_whole = i64::try_from(list.len()).is_ok_and(|listed| listed < NEWEST);
        let end = list.last().map(|last| &last.session);
        let missing = self.told.pick(|session, known| {
            let is_in_range = is_whole || end.is_some_and(|end| session <= end);
            is_in_range && known.incarnation.0 != 0 && !listed.contains(&known.incarnation)
        });
        for (session, incarnation) in missing {
            self.tell_deleted(&session, incarnation).await;
        }
    }

    /// Tells that a session was deleted, unless a later one has its id.
    async fn tell_deleted(&mut self, session: &SessionId, incarnation: SessionIncarnation) {
        let is_gone = |known: SessionIncarnation| known.0 <= incarnation.0;
        let now = self.feeds.clock.now_ms();
        if self.followed.get(session).is_some_and(|followed| !is_gone(followed.incarnation)) {
            return;
        }
        if let Some(followed) = self.followed.remove(session) {
            followed.stop.cancel();
            self.waiting.remove(session);
            self.told.forget(session);
            let events = deleted(&followed.facts, &followed.state, now);
            return self.send(&followed, &followed.directory, events, None);
        }
        let known = self.told.known(session);
        if known.as_ref().is_some_and(|known| !is_gone(known.incarnation)) {
            return;
        }
        // Not before: a later session with this id may wait to be followed.
        self.waiting.remove(session);
        self.told.forget(session);
        let place = match known.and_then(|known| known.location) {
            Some(location) => self.feeds.store.location(self.org, location).await,
            None => Err(StoreError::NotFound),
        };
        let (source, directory, project) = match place {
            Ok(place) => {
                let source =
                    FrameSource::new(place.directory.as_str().into(), place.project.as_str());
                (source, place.directory, place.project.to_string())
            }
            Err(error) => {
                if !matches!(error, StoreError::NotFound) {
                    tracing::warn!(%error, "a deletion is told to listeners at all directories");
                }
                (FrameSource::unknown(), String::new(), String::new())
            }
        };
        let version = &self.feeds.settings.version;
        let event = deleted_unseen(session, &project, &directory, version, now);
        self.feeds.held.send(self.org, session, &self.frames, StockFrame::new(source, &event));
    }

    /// Follows a session whose new events begin with `first`; 0 if nobody knows. Returns `false` if it has to be tried
    /// again.
    async fn follow(&mut self, session: SessionRef, first: Seq) -> bool {
        if self.followed.contains_key(&session.session) {
            return true;
        }
        if self.followed.len() >= MAX_FOLLOWED {
            let is_told = |id: &SessionId, end: Seq| self.told.of(id).is_some_and(|it| it >= end);
            let done = self
                .followed
                .iter()
                .filter(|(id, followed)| !followed.is_busy() && is_told(id, followed.end));
            let Some(oldest) = done.min_by_key(|(_, f)| f.moved).map(|(id, _)| id.clone()) else {
                tracing::debug!(sessions = MAX_FOLLOWED, "too many busy sessions for one feed");
                self.wait(session, first);
                return false;
            };
            if let Some(followed) = self.followed.remove(&oldest) {
                followed.stop.cancel();
            }
        }
        match self.open(session.clone(), first).await {
            Ok(()) | Err(ApiError::NotFound(_)) => true,
            Err(error) => {
                tracing::warn!(%error, "a session joins the feed later");
                self.wait(session, first);
                false
            }
        }
    }

    /// Notes a session that is tried again.
    fn wait(&mut self, session: SessionRef, first: Seq) {
        if self.waiting.len() < MAX_KNOWN {
            self.waiting.entry(session.session.clone()).or_insert((session, first));
        }
    }

    async fn open(&mut self, at: SessionRef, first: Seq) -> Result<(), ApiError> {
        let (store, hub) = (&self.feeds.store, &self.feeds.hub);
        let row = store.session(at.org, at.session.clone()).await?;
        let cursor = Cursor::join(hub, store, at.clone(), Want::Everything).await?;
        let incarnation = cursor.incarnation();
        let known = self.told.known(&at.session);
        let known = known.filter(|it| it.incarnation.0 == 0 || it.incarnation == incarnation);
        // A log that is shorter than what was told is another one.
        let after = match known.filter(|known| known.seq <= row.seq) {
            Some(known) => known.seq,
            // An import has all its events at once, with their old times.
            None if first > Seq(1) => Seq(first.0 - 1),
            // All events are new, although those that a fork copied keep their old times.
            None if row.created_ms >= self.began => Seq(0),
            None => store.seq_before(at.org, at.session.clone(), self.began).await?,
        };
        let newest = if after == Seq(0) {
            Vec::new()
        } else {
            let id = at.session.clone();
            store.transcript(at.org, id, Messages::Newest, NEWEST_MESSAGES).await?.messages
        };
        let cursor = cursor.after(after);
        let settings = &self.feeds.settings;
        let mut summaries =
            Summaries::default().read_for(store, std::slice::from_ref(&row)).await?;
        let facts = StockFacts {
            version: settings.version.clone(),
            default_model: settings.default_model.get(),
            summary: summaries.remove(&row.at.session).unwrap_or_default(),
        };
        let directory = row.directory.as_str().into();
        let asks = match row.busy {
            true => store.pending_asks(at.org, Some(at.session.clone())).await?,
            false => Vec::new(),
        };
        let asks = asks.into_iter().map(|row| row.asked).collect();
        let end = row.seq;
        let copied_to = last_copied(store, &row).await?;
        let state = SessionState::resume(row, newest).waiting_for(asks);
        let stop = hub.streams_end().child_token();
        let id = at.session.clone();
        let steps = stream::unfold(Some(cursor), move |cursor| {
            let id = id.clone();
            async move {
                let mut cursor = cursor?;
                match cursor.next().await {
                    Ok(step @ (Step::Gone | Step::WentBack)) => Some(((id, Some(step)), None)),
                    Ok(step) => Some(((id, Some(step)), Some(cursor))),
                    Err(error) => {
                        tracing::warn!(%error, "a session leaves the feed for a moment");
                        Some(((id, None), None))
                    }
                }
            }
        });
        self.cursors.push(steps.take_until(stop.clone().cancelled_owned().fuse()).boxed());
        let moved = Instant::now();
        let followed =
            Followed { incarnation, end, state, facts, directory, moved, stop, copied_to };
        let known = KnownSession { seq: after, incarnation, location: Some(at.location) };
        self.told.enter(at.session.clone(), known);
        self.followed.insert(at.session, followed);
        Ok(())
    }

    async fn take(&mut self, session: &SessionId, step: Option<&Step>) {
        let Some(followed) = self.followed.get_mut(session) else { return };
        followed.moved = Instant::now();
        match step {
            Some(Step::Event(event)) => {
                let changes = followed.state.apply(event);
                let is_copied = event.seq <= followed.copied_to;
                let occasion = if is_copied { Occasion::Copied } else { Occasion::Live };
                let events = followed.shown(&changes, event.time, occasion);
                followed.state.drop_settled();
                if let SessionEvent::SessionMoved(moved) = &event.event {
                    self.told.note_move(session, &moved.to);
                    self.moved(session, &moved.from, events).await;
                } else if let Some(followed) = self.followed.get(session) {
                    self.send(followed, &followed.directory, events, Some(event.seq));
                }
                if let Err(error) = self.read(session, event, &changes).await {
                    tracing::warn!(%error, "what a session changed in files is not told");
                }
                self.told.note(session, event.seq);
            }
            Some(Step::Delta(delta)) => {
                let changes = followed.state.hear(delta);
                let now = self.feeds.clock.now_ms();
                let events = followed.shown(&changes, now, Occasion::Live);
                if let Some(followed) = self.followed.get(session) {
                    self.send(followed, &followed.directory, events, None);
                }
            }
            Some(Step::Output(output)) => {
                let changes = followed.state.show(output);
                let now = self.feeds.clock.now_ms();
                let events = followed.shown(&changes, now, Occasion::Live);
                if let Some(followed) = self.followed.get(session) {
                    self.send(followed, &followed.directory, events, None);
                }
            }
            Some(Step::WentBack) => self.over = true,
            Some(Step::Gone) | None => {
                let Some(followed) = self.followed.remove(session) else { return };
                followed.stop.cancel();
                if step.is_none() {
                    self.wait(followed.state.session().at.clone(), Seq(0));
                } else if !self.feeds.streams_end().is_cancelled() {
                    self.told.forget(session);
                    self.deleted.insert(followed.incarnation);
                    let now = self.feeds.clock.now_ms();
                    let events = deleted(&followed.facts, &followed.state, now);
                    self.send(&followed, &followed.directory, events, None);
                }
            }
        }
    }

    /// Sends a move to the listeners at both directories. The row may already have the new directory, so the old one
    /// comes from the old Location.
    async fn moved(&mut self, session: &SessionId, from: &LocationId, events: Vec<StockEvent>) {
        let before = self.feeds.store.location(self.org, from.clone()).await;
        let Some(followed) = self.followed.get_mut(session) else { return };
        followed.directory = followed.state.session().directory.as_str().into();
        let Some(followed) = self.followed.get(session) else { return };
        match before {
            Ok(before) if *before.directory != *followed.directory => {
                self.send(followed, &before.directory.into(), events.clone(), None);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "listeners at a session's old directory miss its move")
            }
        }
        self.send(followed, &followed.directory, events, None);
    }

    /// Sends those changes of an event that take a read: of files, and of messages that a Revert removed.
    async fn read(
        &mut self,
        session: &SessionId,
        event: &RecordedEvent,
        told: &[Change],
    ) -> Result<(), ApiError> {
        if !told.contains(&Change::Files) || self.frames.readers() == 0 {
            return Ok(());
        }
        let store = &self.feeds.store;
        let Some(followed) = self.followed.get_mut(session) else { return Ok(()) };
        let row = followed.state.session();
        let mut removed = Vec::new();
        for change in told {
            if let Change::Reverted(from) = change {
                let begun = begun_between(store, row, *from, event.seq).await?;
                removed.extend(begun.into_iter().map(Change::Removed));
            }
        }
        let diff = changes(store, row, None).await?.diff;
        followed.facts.summary = diff.summary();
        let mut events = followed.shown(&removed, event.time, Occasion::Live);
        events.extend(files(&followed.facts, &followed.state, &diff, event.time));
        if let SessionEvent::WorkspaceSnapshotted(taken) = &event.event
            && let Some(changed) = files_of_answer(store, followed.state.session(), taken).await?
        {
            events.extend(changed_files(&followed.facts, &followed.state, changed, event.time));
        }
        let Some(followed) = self.followed.get(session) else { return Ok(()) };
        self.send(followed, &followed.directory, events, None);
        Ok(())
    }

    /// Sends events, which the one with the number `seq` of the log has caused.
    fn send(
        &self,
        followed: &Followed,
        directory: &Arc<str>,
        events: Vec<StockEvent>,
        seq: Option<Seq>,
    ) {
        let SessionRow { at, project, .. } = followed.state.session();
        let place = seq.map(|seq| followed.place(seq));
        for event in events {
            let source = FrameSource::new(directory.clone(), project.as_str());
            let frame = match &place {
                Some(place) => StockFrame::from_log(source, event, place),
                None => StockFrame::new(source, &event),
            };
            self.feeds.held.send(self.org, &at.session, &self.frames, frame);
        }
    }
}

/// Returns the directory and the project of a session's events.
fn source(session: &SessionRow) -> FrameSource {
    FrameSource::new(session.directory.as_str().into(), session.project.as_str())
}

fn known(change: &SessionChange) -> KnownSession {
    let SessionChange { incarnation, location, last, .. } = change;
    KnownSession { seq: *last, incarnation: *incarnation, location: location.clone() }
}

impl Followed {
    fn place(&self, seq: Seq) -> EventPlace {
        let (session, incarnation) = (self.state.session().at.clone(), self.incarnation);
        let context = SessionContext::of(self.state.session(), || self.facts.default_model.clone());
        EventPlace { session, incarnation, seq, context }
    }

    fn is_busy(&self) -> bool {
        self.state.session().busy
    }

    fn shown(&self, changes: &[Change], time: TimestampMs, occasion: Occasion) -> Vec<StockEvent> {
        events(&self.facts, &self.state, changes, time, occasion)
    }
}

/// Returns the number of the last event that a fork has copied; 0 of any other session.
async fn last_copied(store: &Store, row: &SessionRow) -> Result<Seq, ApiError> {
    if row.fork_of.is_none() {
        return Ok(Seq(0));
    }
    // A fork is created, then forked, then has its copies.
    let first = store.events(row.at.org, row.at.session.clone(), Seq(0), 2).await?.items;
    let copied = first.iter().find_map(|event| {
        if let SessionEvent::SessionForked(forked) = &event.event {
            Some(Seq(event.seq.0 + forked.copied))
        } else {
            None
        }
    });
    Ok(copied.unwrap_or(Seq(0)))
}

/// Returns the messages that began with events from `from` up to `end`, `end` excluded.
async fn begun_between(
    store: &Store,
    row: &SessionRow,
    from: Seq,
    end: Seq,
) -> Result<Vec<MessageId>, ApiError> {
    let mut begun = Vec::new();
    let mut after = Seq(from.0 - 1);
    while after.0 + 1 < end.0 {
        let page = store.events(row.at.org, row.at.session.clone(), after, PAGE).await?.items;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in page.into_iter().take_while(|event| event.seq < end) {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these begin a message")]
            match event.event {
                SessionEvent::PromptPromoted(promoted) => begun.push(promoted.message),
                SessionEvent::TurnStarted(started) => begun.push(started.message),
                SessionEvent::NoticeRecorded(notice) => begun.push(notice.message),
                SessionEvent::CompactionStarted(started) => begun.push(started.message),
                _ => {}
            }
        }
    }
    Ok(begun)
}
