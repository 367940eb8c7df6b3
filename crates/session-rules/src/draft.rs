use domain::{DrainEnd, IdMint, Seq, SessionEvent, TimestampMs};
use history::History;

use crate::site::Site;

/// Events that one write will add. Each is folded as it is pushed, so that what comes after it (a request's
/// body, say) is made of exactly what the rows will say. Pure: a decision is a function of what it holds.
pub struct Draft<'h> {
    history: &'h mut History,
    now: TimestampMs,
    drafted: Drafted,
}

/// What a draft has become: all that a write needs besides the head that it is based on.
#[derive(Debug, Clone)]
pub struct Drafted {
    /// The events, in order.
    pub events: Vec<SessionEvent>,
    /// What their attempts are made of, by hash (hex).
    pub components: Vec<(String, Vec<u8>)>,
    /// How many inputs they take out of the inbox.
    pub promoted: i32,
    /// A turn or a call was settled: the recovery counter starts over.
    pub progress: bool,
    /// Ids that come after theirs.
    pub mint: IdMint,
}

/// What is to become of a draft.
#[derive(Debug)]
pub enum Verdict<T> {
    /// It is written, and the drain goes on or not.
    Write(T, DrainEnd, Site),
    /// Nothing is written; nothing was pushed.
    Leave(T),
}

impl<T> Verdict<T> {
    /// The same verdict on something else.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Write(decided, end, site) => Verdict::Write(f(decided), end, site),
            Self::Leave(decided) => Verdict::Leave(f(decided)),
        }
    }
}

impl<'h> Draft<'h> {
    /// Nothing yet, after what `history` has folded. Its caller takes a [`History::mark`] before: a draft
    /// that is not written must be unfolded.
    #[must_use]
    pub fn new(history: &'h mut History, mint: IdMint, now: TimestampMs) -> Self {
        let drafted = Drafted {
            events: Vec::new(),
            components: Vec::new(),
            promoted: 0,
            progress: false,
            mint,
        };
        Self { history, now, drafted }
    }

    /// Adds an event, and folds it.
    pub fn push(&mut self, event: impl Into<SessionEvent>) {
        let event = event.into();
        self.history.apply(Seq(self.history.seq().0 + 1), self.now, &event);
        self.drafted.events.push(event);
    }

    /// The log with what was drafted so far.
    #[must_use]
    pub fn history(&self) -> &History {
        self.history
    }

    /// The same, for its encoder.
    pub fn history_mut(&mut self) -> &mut History {
        self.history
    }

    /// Ids for what is drafted.
    pub fn mint(&mut self) -> &mut IdMint {
        &mut self.drafted.mint
    }

    /// When the write is decided.
    #[must_use]
    pub fn now(&self) -> TimestampMs {
        self.now
    }

    /// Counts an input that leaves the inbox: promoted, delivered or cancelled.
    pub fn taken(&mut self) {
        self.drafted.promoted += 1;
    }

    /// Marks that a turn or a call was settled.
    pub fn progress(&mut self) {
        self.drafted.progress = true;
    }

    /// Adds components that its attempts name, by hash (hex).
    pub fn components(&mut self, components: Vec<(String, Vec<u8>)>) {
        self.drafted.components.extend(components);
    }

    /// What is to be written.
    #[must_use]
    pub fn finish(self) -> Drafted {
        self.drafted
    }
}
