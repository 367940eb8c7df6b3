use domain::{IdMint, Seq, SessionEvent, TimestampMs};
use history::History;
use store::{Append, DrainEnd};

/// Events that one write will add. Each is folded as it is pushed, so that what comes after it (a request's
/// body, say) is made of exactly what the rows will say. Pure: a decision is a function of what it holds.
pub(crate) struct Draft<'h> {
    history: &'h mut History,
    mint: IdMint,
    now: TimestampMs,
    events: Vec<SessionEvent>,
    components: Vec<(Vec<u8>, Vec<u8>)>,
    promoted: i32,
    progress: bool,
}

/// What is to become of a draft.
pub(crate) enum Verdict<T> {
    /// It is written, and the drain goes on or not.
    Write(T, DrainEnd),
    /// Nothing is written; nothing was pushed.
    Leave(T),
}

impl<T> Verdict<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Write(decided, end) => Verdict::Write(f(decided), end),
            Self::Leave(decided) => Verdict::Leave(f(decided)),
        }
    }
}

impl<'h> Draft<'h> {
    /// Nothing yet, after what `history` has folded.
    pub(crate) fn new(history: &'h mut History, mint: IdMint, now: TimestampMs) -> Self {
        Self {
            history,
            mint,
            now,
            events: Vec::new(),
            components: Vec::new(),
            promoted: 0,
            progress: false,
        }
    }

    pub(crate) fn push(&mut self, event: impl Into<SessionEvent>) {
        let event = event.into();
        self.history.apply(Seq(self.history.seq().0 + 1), self.now, &event);
        self.events.push(event);
    }

    pub(crate) fn history(&self) -> &History {
        self.history
    }

    pub(crate) fn history_mut(&mut self) -> &mut History {
        self.history
    }

    pub(crate) fn mint(&mut self) -> &mut IdMint {
        &mut self.mint
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.now
    }

    /// Counts an input as promoted.
    pub(crate) fn promoted(&mut self) {
        self.promoted += 1;
    }

    /// Marks that a turn or a call was settled.
    pub(crate) fn progress(&mut self) {
        self.progress = true;
    }

    /// Adds components that its attempts name.
    pub(crate) fn components(&mut self, components: Vec<(Vec<u8>, Vec<u8>)>) {
        self.components.extend(components);
    }

    /// Ids that come after those of this draft.
    pub(crate) fn ids(&self) -> IdMint {
        self.mint.clone()
    }

    pub(crate) fn append(&self, end: DrainEnd) -> Append<'_> {
        Append {
            events: &self.events,
            promoted: self.promoted,
            progress: self.progress,
            end,
            components: &self.components,
        }
    }
}
