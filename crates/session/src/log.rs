//! A session's log as its drain knows it, and the way to add to it.
//!
//! Invariant: what is decided on is exactly what the decision's events come after. A write names the head
//! that it was decided on; one that comes too late changes nothing, and is decided anew under the lock.

use domain::{Claim, DrainEnd, FencingToken, IdMint, SessionRef, Stamp};
use history::History;
use session_rules::{Draft, Verdict};
use store::{Append, DrainWrite, Hold, KnownLog, Started, StoreError, Written};
use tracing::debug;

use crate::control::DrainControl;
use crate::drain::Stop;
use crate::patience::{patiently, until_answered};
use crate::runtime::Runtime;

/// How often a write is decided anew that others are always faster than.
const TRIES: usize = 20;

pub(crate) struct Log<'r> {
    runtime: &'r Runtime,
    session: &'r SessionRef,
    history: History,
    /// Ids above all that the session has seen, those of a stream that are not written yet included.
    pub(crate) mint: IdMint,
    claim: Claim,
    /// The next write, based on the last one: right unless someone else has added to the log.
    next: Option<Box<DrainWrite>>,
    ended: bool,
    /// Whose claim it proves, for the look that compares claims.
    control: DrainControl,
}

impl<'r> Log<'r> {
    pub(crate) fn new(
        runtime: &'r Runtime,
        session: &'r SessionRef,
        history: History,
        control: DrainControl,
    ) -> Self {
        let mint = IdMint::after(Stamp::default(), runtime.clock.now_ms());
        Self { runtime, session, history, mint, claim: Claim(0), next: None, ended: false, control }
    }

    /// Whether the last write ended the drain.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Everything that is known to be written.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn into_history(self) -> History {
        self.history
    }

    /// Looks whether the session wants a drain; what is new is folded.
    pub(crate) async fn look(&mut self, token: FencingToken, hold: Hold) -> Result<Started, Stop> {
        let known = KnownLog { incarnation: self.history.incarnation(), seq: self.history.seq() };
        let mut started =
            self.runtime.store.start_drain(self.session.clone(), token, known, hold).await?;
        if let Started::Ready(write, _, new) = &mut started {
            if new.first().is_some_and(|first| first.seq <= known.seq) {
                // Of a session that was deleted and made again under its id.
                self.history = History::new();
            }
            self.history.belong_to(write.claim().incarnation());
            self.history.extend(new.iter());
            new.clear();
        }
        Ok(started)
    }

    /// Decides and writes; when the log has grown meanwhile, decides again under the head's lock.
    pub(crate) async fn write<T>(
        &mut self,
        mut decide: impl FnMut(&mut Draft<'_>) -> Verdict<T>,
    ) -> Result<T, Stop> {
        if let Some(next) = self.next.take()
            && let Some(decided) = self.try_write(*next, &mut decide).await?
        {
            return Ok(decided);
        }
        for _ in 0..TRIES {
            let known = self.history.seq();
            let (store, session, claim) = (&self.runtime.store, self.session, self.claim);
            let resumed = patiently(|| store.resume_drain(session.clone(), claim, known));
            let (locked, new) = resumed.await?;
            self.history.extend(&new);
            // A Move lets the lock go: its own come first. Anything else is decided on what cannot change.
            if let Some(decided) = self.try_write(locked, &mut decide).await? {
                return Ok(decided);
            }
        }
        Err(Stop::Store(StoreError::Unreadable("a locked head has moved again and again".into())))
    }

    /// Decides and writes once. `None`: the log has grown, and nothing is written.
    pub(crate) async fn try_write<T>(
        &mut self,
        write: DrainWrite,
        mut decide: impl FnMut(&mut Draft<'_>) -> Verdict<T>,
    ) -> Result<Option<T>, Stop> {
        let now = self.runtime.clock.now_ms();
        self.claim = write.claim();
        self.mint.raise(write.head().last_id);
        let before = self.history.mark();
        let mint = IdMint::after(self.mint.last(), now);
        let mut draft = Draft::new(&mut self.history, mint, now);
        let (decided, end, site) = match decide(&mut draft) {
            Verdict::Write(decided, end, site) => (decided, end, site),
            Verdict::Leave(decided) => {
                self.history.back_to(before);
                self.next = Some(Box::new(write.release().await?));
                return Ok(Some(decided));
            }
        };
        let mut drafted = draft.finish();
        let append = Append {
            events: &drafted.events,
            promoted: drafted.promoted,
            progress: drafted.progress,
            end,
            components: &self.runtime.new_components(self.session.org, &drafted.components),
        };
        // The write passes our own claim on: a look at the head must not take that for another's.
        let held = (end != DrainEnd::Keep).then(|| self.control.closing());
        let written = until_answered(write.commit(&mut drafted.mint, now, append).await?).await?;
        debug!(site = site.name(), events = drafted.events.len(), "a drain has written");
        match written {
            Written::Next(next) => {
                self.mint.raise(drafted.mint.last());
                self.next = Some(next);
                self.ended = end != DrainEnd::Keep;
                Ok(Some(decided))
            }
            Written::Stale => {
                if let Some(held) = held {
                    self.control.not_closed(held);
                }
                self.history.back_to(before);
                Ok(None)
            }
            Written::Superseded => Err(Stop::Superseded),
            Written::Unanswered(_, error) => Err(Stop::Store(error)),
        }
    }
}
