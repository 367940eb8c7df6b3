use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use signals::{Delta, Hint, Received, SessionHint, Signals, Subscription, Topic};
use store::{Store, StoreError};
use tokio::time::Instant;

use super::followed::Followed;
use crate::wake::Waker;

/// Events read at once.
const PAGE: i64 = 256;
/// Hints taken together before the log is read for them.
const BUNCH: usize = 256;
/// The holder is asked for the text so far at most this often.
const RESYNC_EVERY: Duration = Duration::from_millis(500);

/// Reads one session for all who follow it here.
pub(super) struct Reader {
    pub(super) store: Store,
    pub(super) signals: Arc<dyn Signals>,
    pub(super) waker: Arc<Waker>,
    pub(super) followed: Arc<Followed>,
}

/// What a reader has heard since it read.
struct Heard {
    hints: Subscription,
    listening: bool,
    /// Hints were lost: what they said may be in the log.
    lost: bool,
    /// Work may have ended.
    ends: bool,
    last_resync: Option<Instant>,
}

impl Reader {
    /// Subscribes, finds where the log ends, then reads on with what hints and pokes tell. Ends only with
    /// its task; an error is told once and mended by the next tick.
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
        let mut heard =
            Heard { hints, listening: true, lost: false, ends: false, last_resync: None };
        loop {
            if let Err(error) = self.step(&mut heard).await {
                tracing::warn!(%error, session = %at.session, "could not read on; the tick will");
            }
        }
    }

    /// Waits for news, takes in all that is there at once, then reads the log at most once for it: not at
    /// all when what is told of was sent already, or when all who follow wait for the work to end.
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
                Some(Some(Received::Hint(Hint::Worker(_)))) => {}
                Some(Some(Received::Lagged)) => heard.lost = true,
                Some(None) => {
                    heard.listening = false; // signals are shut down: the tick still finds commits
                    break;
                }
            }
            news = heard.hints.next().now_or_never();
        }
        let pressing = poked || heard.ends || self.followed.is_watched();
        if heard.lost || (pressing && self.followed.is_behind()) {
            self.read().await?;
            heard.lost = false;
            heard.ends = false;
        }
        Ok(())
    }

    async fn start(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        // Before the session is read: when it is made again between the two, the tick finds another incarnation.
        let heads = self.store.heads(&[(at.org, at.session.clone())]).await?;
        let incarnation = heads.first().ok_or(StoreError::NotFound)?.incarnation;
        let session = self.store.session(at.org, at.session.clone()).await?;
        let mut seed = Vec::new();
        if session.busy {
            // In the middle of a reply: what was checkpointed, until the holder sends what it has.
            let last = self.store.transcript(at.org, at.session.clone(), None, 1).await?;
            for message in last.messages {
                if message.role == "assistant" && message.finish.is_none() {
                    seed.extend(checkpointed(message));
                }
            }
            self.waker.resync(at.clone());
        }
        self.followed.start(incarnation, session.seq, seed);
        Ok(())
    }

    /// Reads what is committed after the tail and sends it.
    async fn read(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        loop {
            let (tail, heard) = (self.followed.tail(), self.followed.heard());
            let incarnation = self.followed.incarnation().unwrap_or_default();
            let page = self.store.events_of(at.org, at.session.clone(), incarnation, tail, PAGE);
            let page = page.await?;
            let is_full = i64::try_from(page.len()).unwrap_or(i64::MAX) == PAGE;
            let last = page.last().map_or(tail, |event| event.seq);
            self.followed.extend(page);
            if !is_full {
                self.followed.is_read_to(last, heard);
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
            self.read().await?; // its turn's start may not have been hinted
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
        let kind = match part.kind.as_str() {
            "text" => signals::DeltaKind::Text,
            "reasoning" => signals::DeltaKind::Reasoning,
            _ => return None,
        };
        Some(Delta { message: id.clone(), part: part.id, kind, offset: 0, text: part.text? })
    })
}
