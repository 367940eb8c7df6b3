use domain::{MessageRole, PartKind, Seq};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use signals::{Delta, Hint, Received, SessionHint, Signals, Subscription, Topic};
use store::{KnownLog, Messages, Store, StoreError};
use tokio::time::Instant;

use super::followed::Followed;
use crate::wake::Waker;

/// The most events in one read.
const PAGE: i64 = 256;
/// The most hints handled before the log is read for them.
const BUNCH: usize = 256;
/// The shortest time between two requests to the holder for the text so far.
const RESYNC_EVERY: Duration = Duration::from_millis(500);

/// The reader of one session, for all its followers here.
pub(super) struct Reader {
    pub(super) store: Store,
    pub(super) signals: Arc<dyn Signals>,
    pub(super) waker: Arc<Waker>,
    pub(super) followed: Arc<Followed>,
}

/// The news since the last read.
struct Heard {
    hints: Subscription,
    listening: bool,
    /// Whether hints were lost, so that the log may hold more.
    lost: bool,
    /// Whether work may have ended.
    ends: bool,
    /// Whether the workspace is further.
    workspace: bool,
    last_resync: Option<Instant>,
}

impl Reader {
    /// Subscribes, finds the end of the log, then reads on when hints and pokes say so. Only ends with its task. An
    /// error is logged once, and the next tick makes up for it.
    pub(super) async fn run(self) {
        let at = &self.followed.session;
        let topic = Topic::Session(at.org, at.session.clone());
        let hints = self.signals.subscribe(topic).await;
        while let Err(error) = self.start().await {
            if matches!(error, StoreError::NotFound) {
                self.followed.end();
                return;
            }
            tracing::warn!(%error, session = %at.session, "following has to wait");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut heard = Heard {
            hints,
            listening: true,
            lost: false,
            ends: false,
            workspace: false,
            last_resync: None,
        };
        loop {
            if self.followed.has_ended() {
                return;
            }
            if let Err(error) = self.step(&mut heard).await {
                tracing::warn!(%error, session = %at.session, "could not read on; the tick will");
            }
        }
    }

    /// Waits for news, handles all that is there, then reads the log at most once. Does not read if the events were
    /// already sent, or if all followers wait for the end of the work.
    async fn step(&self, heard: &mut Heard) -> Result<(), StoreError> {
        let mut news = tokio::select! {
            () = self.followed.poke.notified() => None,
            hint = heard.hints.next(), if heard.listening => Some(hint),
        };
        let poked = news.is_none();
        for _ in 0..BUNCH {
            match news {
                None => break,
                Some(Some(Received::Hint(Hint::Session(SessionHint::Committed { seq, ends })))) => {
                    self.followed.hear(seq);
                    heard.ends |= ends;
                }
                Some(Some(Received::Hint(Hint::Session(SessionHint::Delta(delta))))) => {
                    self.take(delta, &mut heard.last_resync).await?;
                }
                Some(Some(Received::Hint(Hint::Session(SessionHint::Output(output))))) => {
                    self.followed.show(output);
                }
                Some(Some(Received::Hint(Hint::Session(SessionHint::Workspace)))) => {
                    heard.workspace = true;
                }
                Some(Some(Received::Hint(Hint::Worker(_)))) => {}
                Some(Some(Received::Lagged)) => heard.lost = true,
                Some(None) => {
                    heard.listening = false; // signals are shut down, but the tick still finds commits
                    break;
                }
            }
            news = heard.hints.next().now_or_never();
        }
        if std::mem::take(&mut heard.workspace) && self.followed.is_watched() {
            let at = self.followed.session.location_ref();
            if let Some(origin) = self.store.origin(at).await? {
                self.followed.tell(origin.into());
            }
        }
        let pressing = poked || heard.ends || self.followed.is_watched();
        let doubted = self.followed.takes_doubt();
        if heard.lost || doubted || (pressing && self.followed.is_behind()) {
            self.read().await?;
            heard.lost = false;
            heard.ends = false;
        }
        Ok(())
    }

    async fn start(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        // Read before the session: if the session is created again in between, the tick finds another incarnation.
        let heads = self.store.heads(&[(at.org, at.session.clone())]).await?;
        let head = heads.into_iter().next().ok_or(StoreError::NotFound)?;
        let before = Seq((head.seq.0 - 1).max(0));
        let (session, last) = tokio::join!(
            self.store.session(at.org, at.session.clone()),
            self.store.events_of(at.org, at.session.clone(), head.incarnation, before, 1)
        );
        let (session, last) = (session?, last?.items.pop());
        let mut seed = Vec::new();
        if session.busy {
            // During a reply, start with the checkpointed text until the holder sends the rest.
            let last =
                self.store.transcript(at.org, at.session.clone(), Messages::Newest, 1).await?;
            for message in last.messages {
                if message.role == MessageRole::Assistant && message.finish.is_none() {
                    seed.extend(checkpointed(message));
                }
            }
            self.waker.resync(at.clone());
        }
        let last = last.filter(|last| last.seq == head.seq).map(|last| last.id);
        self.followed.start(head.incarnation, (head.seq, last), seed);
        Ok(())
    }

    /// Reads and sends all events after the tail. If another event has its number, the followers have another log.
    async fn read(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        loop {
            let ((tail, last), heard) = (self.followed.position(), self.followed.heard());
            let incarnation = self.followed.incarnation().unwrap_or_default();
            let known = KnownLog { incarnation, seq: tail, id: last };
            let read = self.store.events_from(at.org, at.session.clone(), known, PAGE);
            let page = match read.await {
                Err(StoreError::WentBack { .. }) => {
                    self.followed.went_back();
                    return Ok(());
                }
                read => read?,
            };
            let read_to = page.items.last().map_or(tail, |event| event.seq);
            self.followed.extend(page.items);
            if !page.more {
                self.followed.is_read_to(read_to, heard);
                return Ok(());
            }
        }
    }

    async fn take(
        &self,
        delta: Delta,
        last_resync: &mut Option<Instant>,
    ) -> Result<(), StoreError> {
        if self.followed.is_unknown(&delta.message) {
            self.read().await?; // the hint of its turn's start may be lost
        }
        let is_whole = self.followed.take(delta);
        if !is_whole && last_resync.is_none_or(|at| at.elapsed() >= RESYNC_EVERY) {
            *last_resync = Some(Instant::now());
            self.waker.resync(self.followed.session.clone());
        }
        Ok(())
    }
}

fn checkpointed(message: store::MessageRow) -> impl Iterator<Item = Delta> {
    let id = message.id;
    message.parts.into_iter().filter_map(move |part| {
        let kind = match part.kind.known() {
            Some(PartKind::Text) => signals::DeltaKind::Text,
            Some(PartKind::Reasoning) => signals::DeltaKind::Reasoning,
            Some(PartKind::Tool | PartKind::HostedCall | PartKind::HostedResult) | None => {
                return None;
            }
        };
        Some(Delta { message: id.clone(), part: part.id, kind, offset: 0, text: part.text? })
    })
}
