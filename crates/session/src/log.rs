//! A session's log as its drain knows it, and the writes to it.
//!
//! Invariant: a decision's events directly follow the log that it was made on. A write names the head of that log. A
//! write that comes too late changes nothing, and the decision is repeated under the lock.

use domain::{Claim, DrainEnd, FencingToken, IdMint, Seq, SessionIncarnation, SessionRef, Stamp};
use history::History;
use session_rules::{Draft, Verdict};
use store::{Append, DrainWrite, Hold, KnownLog, Started, StoreError, Written};
use tracing::debug;

use crate::control::DrainControl;
use crate::drain::Stop;
use crate::folds::FoldShare;
use crate::patience::{patiently, until_answered};
use crate::runtime::Runtime;

/// How often a write is repeated while others are faster.
const TRIES: usize = 20;
/// The events of a page of a long log.
const PAGE: i64 = 1_000;

/// The texts of a conversation that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Texts {
    /// All: a Revert may show any of them.
    All,
    /// Those that a request shows.
    Shown,
}

pub(crate) struct Log<'r> {
    runtime: &'r Runtime,
    session: &'r SessionRef,
    history: History,
    /// A mint of ids above all that the session has seen, with those of a stream that are not written yet.
    pub(crate) mint: IdMint,
    claim: Claim,
    /// The next write, based on the last one: valid unless somebody else has added to the log.
    next: Option<Box<DrainWrite>>,
    ended: bool,
    /// The share of the worker's budget that the fold takes, its inbox included.
    share: FoldShare,
    /// Whether the last write found no room in that budget for what the log has become.
    is_cramped: bool,
    /// The owner of the claim, for the look that compares claims.
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
        let share = control.folds.empty_share();
        Self {
            runtime,
            session,
            history,
            mint,
            claim: Claim(0),
            next: None,
            ended: false,
            share,
            is_cramped: false,
            control,
        }
    }

    /// Returns whether the last write ended the drain.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the last write found no room for the log with its inbox: a drain that has handed over then starts
    /// again when there is some.
    pub(crate) fn is_cramped(&self) -> bool {
        self.is_cramped
    }

    /// Returns everything that is known to be written.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn into_history(self) -> History {
        self.history
    }

    /// Returns the position up to which the log is known.
    fn known(&self) -> KnownLog {
        KnownLog {
            incarnation: self.history.incarnation(),
            seq: self.history.seq(),
            id: self.history.last_event().cloned(),
        }
    }

    /// Checks whether the session needs a drain, and folds new events. If the database has come back without some that
    /// are known, the drain ends: more than the log may be known that is not there any more. Never answers
    /// [`Started::Long`]: what a log adds to the worker's memory is taken from its budget first.
    pub(crate) async fn look(&mut self, token: FencingToken, hold: Hold) -> Result<Started, Stop> {
        let (store, session) = (&self.runtime.store, self.session);
        let start = |known, hold| store.start_drain(session.clone(), token, known, hold);
        let first = if hold == Hold::Look { Hold::Glance } else { hold };
        let mut started = start(self.known(), first).await?;
        if let Started::Long(claim, bytes) = started {
            if claim.incarnation() != self.history.incarnation() {
                self.forget_log(claim.incarnation());
            }
            self.take_room(self.history.bytes().saturating_add(bytes))?;
            self.read_pages(Seq(i64::MAX), Texts::Shown).await?;
            started = start(self.known(), hold).await?;
        }
        if let Started::Ready(write, _, new) = &mut started {
            if new.first().is_some_and(|first| first.seq <= self.history.seq()) {
                if write.claim().incarnation() == self.history.incarnation() {
                    return Err(Stop::WentBack);
                }
                // The log of a session that was deleted and created again under its id.
                self.history = History::new();
            }
            self.history.belong_to(write.claim().incarnation());
            self.history.extend(new.iter());
            new.clear();
            self.read_lacking_texts().await?;
            self.history.give_up_hidden();
            // A second look has read what has come since the first.
            self.take_room(self.history.bytes())?;
        }
        Ok(started)
    }

    /// Forgets what is known, for the log of this incarnation.
    fn forget_log(&mut self, incarnation: SessionIncarnation) {
        self.history = History::new();
        self.history.belong_to(incarnation);
    }

    /// Reads the log up to the event `last`, or to its end, a page at a time, so that no more of it is in memory than a page
    /// and these texts. The log of a session that was deleted meanwhile ends.
    async fn read_pages(&mut self, last: Seq, texts: Texts) -> Result<(), Stop> {
        let (store, session) = (&self.runtime.store, self.session);
        while self.history.seq() < last {
            let (org, id, known) = (session.org, &session.session, self.known());
            let read = || store.events_from(org, id.clone(), known.clone(), PAGE);
            let page = match patiently(read).await {
                Err(StoreError::NotFound) => return Ok(()),
                page => page?,
            };
            self.history.extend(page.items.iter().take_while(|event| event.seq <= last));
            if texts == Texts::Shown {
                self.history.give_up_hidden();
            }
            if !page.more {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the log again up to where it is known, if a Revert may show texts that the fold has given up.
    async fn read_lacking_texts(&mut self) -> Result<(), Stop> {
        if !self.history.lacks_texts() {
            return Ok(());
        }
        let (last, event) = (self.history.seq(), self.history.last_event().cloned());
        self.forget_log(self.history.incarnation());
        self.read_pages(last, Texts::All).await?;
        if self.history.last_event() != event.as_ref() {
            return Err(Stop::WentBack);
        }
        Ok(())
    }

    /// Takes room for a fold of so many bytes, before anything is claimed.
    fn take_room(&mut self, bytes: usize) -> Result<(), Stop> {
        if self.share.try_grow(bytes) { Ok(()) } else { Err(Stop::NoRoom(bytes)) }
    }

    /// Asks for room for the log and its inbox as they are now, and returns whether there is. They count in the budget in
    /// any case, since they are in memory.
    fn ask_room(&mut self) -> bool {
        let bytes = self.history.bytes();
        self.is_cramped = !self.share.try_grow(bytes);
        if self.is_cramped {
            self.share.resize(bytes);
        }
        !self.is_cramped
    }

    /// Decides and writes. If the log has grown meanwhile, decides again under the head's lock. The decision learns whether
    /// the worker has room for the log and the inbox that it is made on.
    pub(crate) async fn write<T>(
        &mut self,
        mut decide: impl FnMut(&mut Draft<'_>, bool) -> Verdict<T>,
    ) -> Result<T, Stop> {
        if let Some(next) = self.next.take() {
            let has_room = self.ask_room();
            let decided = self.try_write(*next, |draft| decide(draft, has_room)).await?;
            if let Some(decided) = decided {
                return Ok(decided);
            }
        }
        for _ in 0..TRIES {
            let (store, session, claim) = (&self.runtime.store, self.session, self.claim);
            let known = self.known();
            let resumed = patiently(|| store.resume_drain(session.clone(), claim, known.clone()));
            let (locked, new) = resumed.await?;
            self.history.extend(&new);
            // A Move releases the lock, so its own writes come first, and so does who reads much. Any other decision is
            // made on a log that cannot change.
            let write = if self.history.lacks_texts() {
                let seen = locked.release().await?;
                self.read_lacking_texts().await?;
                seen
            } else {
                locked
            };
            let has_room = self.ask_room();
            let decided = self.try_write(write, |draft| decide(draft, has_room)).await?;
            if let Some(decided) = decided {
                return Ok(decided);
            }
        }
        Err(Stop::Store(StoreError::Unreadable("a locked head has moved again and again".into())))
    }

    /// Decides and writes once. Returns `None` without a write if the log has grown, or if components must be stored
    /// again.
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
        // The write raises our own claim, and a look at the head must not take that for another drain's.
        let held = (end != DrainEnd::Keep).then(|| self.control.closing());
        let written = until_answered(write.commit(&mut drafted.mint, now, append).await?).await?;
        debug!(site = site.name(), events = drafted.events.len(), "a drain has written");
        match written {
            Written::Next(next) => {
                if !drafted.events.is_empty() {
                    self.history.written_by(self.claim, next.head().after.clone());
                }
                let stored = drafted.components.into_iter().map(|(hash, _)| hash);
                self.runtime.stored.note(self.session.org, stored);
                self.mint.raise(drafted.mint.last());
                self.read_lacking_texts().await?;
                self.history.give_up_hidden();
                self.share.resize(self.history.bytes());
                self.next = Some(next);
                self.ended = end != DrainEnd::Keep;
                Ok(Some(decided))
            }
            refused @ (Written::Stale | Written::Unstored) => {
                if matches!(refused, Written::Unstored) {
                    debug!("components were deleted meanwhile: the next write brings them");
                    self.runtime.stored.forget(self.session.org);
                }
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
