use domain::{DrainEnd, IdMint, Seq, SessionEvent, TimestampMs};
use history::History;

use crate::site::Site;

/// The events that one write will add. Each is folded when it is pushed, so that later parts, such as a request's
/// body, are built from exactly what the rows will say. Pure: a decision depends only on its contents.
pub struct Draft<'h> {
    history: &'h mut History,
    now: TimestampMs,
    drafted: Drafted,
}

/// The contents of a finished draft: everything that a write needs besides its head.
#[derive(Debug, Clone)]
pub struct Drafted {
    /// The events, in order.
    pub events: Vec<SessionEvent>,
    /// The components of their attempts, by hash (hex).
    pub components: Vec<(String, Vec<u8>)>,
    /// The number of inputs that they take out of the inbox.
    pub promoted: i32,
    /// Whether a turn or a call was settled, which resets the recovery counter.
    pub progress: bool,
    /// A mint of later ids.
    pub mint: IdMint,
}

/// The decision about a draft.
#[derive(Debug)]
pub enum Verdict<T> {
    /// Write it; then the drain continues or ends.
    Write(T, DrainEnd, Site),
    /// Write nothing. Nothing was pushed.
    Leave(T),
}

impl<T> Verdict<T> {
    /// Replaces the decided value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Write(decided, end, site) => Verdict::Write(f(decided), end, site),
            Self::Leave(decided) => Verdict::Leave(f(decided)),
        }
    }
}

impl<'h> Draft<'h> {
    /// Returns an empty draft after the events in `history`. The caller takes a [`History::mark`] first: a draft that
    /// is not written must be taken back.
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

    /// Adds an event and folds it.
    pub fn push(&mut self, event: impl Into<SessionEvent>) {
        let event = event.into();
        self.history.apply(Seq(self.history.seq().0 + 1), self.now, &event);
        self.drafted.events.push(event);
    }

    /// Returns the log with the drafted events.
    #[must_use]
    pub fn history(&self) -> &History {
        self.history
    }

    /// Returns the log with the drafted events, for its encoder.
    pub fn history_mut(&mut self) -> &mut History {
        self.history
    }

    /// Returns the mint of ids for the draft.
    pub fn mint(&mut self) -> &mut IdMint {
        &mut self.drafted.mint
    }

    /// Returns the time of the decision.
    #[must_use]
    pub fn now(&self) -> TimestampMs {
        self.now
    }

    /// Counts an input that leaves the inbox: promoted, delivered or cancelled.
    pub fn taken(&mut self) {
        self.drafted.promoted += 1;
    }

    /// Notes that a turn or a call was settled.
    pub fn progress(&mut self) {
        self.drafted.progress = true;
    }

    /// Adds components of its attempts, by hash (hex).
    pub fn components(&mut self, components: Vec<(String, Vec<u8>)>) {
        self.drafted.components.extend(components);
    }

    /// Returns the contents to write.
    #[must_use]
    pub fn finish(self) -> Drafted {
        self.drafted
    }
}
