use domain::{IdMint, Seq, SessionEvent, TimestampMs};
use history::History;
use store::{Append, DrainEnd, DrainTx, StoreError};

/// Events that one transaction will add. Each is folded as it is pushed, so that what comes after it (a
/// request's body, say) is made of exactly what the rows will say.
///
/// The history is inside: a draft that is dropped takes it away, since it is ahead of the rows then.
pub(crate) struct Draft {
    tx: DrainTx,
    history: History,
    mint: IdMint,
    now: TimestampMs,
    events: Vec<SessionEvent>,
    components: Vec<(Vec<u8>, Vec<u8>)>,
    promoted: i32,
    progress: bool,
}

impl Draft {
    /// Brings `history` up to the head that `tx` has locked.
    pub(crate) async fn begin(
        mut tx: DrainTx,
        mut history: History,
        mut mint: IdMint,
        now: TimestampMs,
    ) -> Result<Self, StoreError> {
        if history.seq() >= tx.head().next_seq {
            // Of a session that was deleted and made again under its id.
            history = History::new();
        }
        let new = tx.events_after(history.seq()).await?;
        history.extend(&new);
        mint.raise(tx.head().last_id);
        mint = IdMint::after(mint.last(), now);
        Ok(Self {
            tx,
            history,
            mint,
            now,
            events: Vec::new(),
            components: Vec::new(),
            promoted: 0,
            progress: false,
        })
    }

    pub(crate) fn push(&mut self, event: impl Into<SessionEvent>) {
        let event = event.into();
        self.history.apply(Seq(self.history.seq().0 + 1), &event);
        self.events.push(event);
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    pub(crate) fn mint(&mut self) -> &mut IdMint {
        &mut self.mint
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.now
    }

    pub(crate) fn tx(&mut self) -> &mut DrainTx {
        &mut self.tx
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

    /// Gives the history back without a change. Only for a draft to which nothing was pushed.
    pub(crate) async fn abandon(self) -> Result<History, StoreError> {
        debug_assert!(self.events.is_empty(), "the history would be ahead of the rows");
        self.tx.rollback().await?;
        Ok(self.history)
    }

    /// Commits, and gives the history back.
    pub(crate) async fn commit(mut self, end: DrainEnd) -> Result<(History, IdMint), StoreError> {
        let append = Append {
            events: &self.events,
            promoted: self.promoted,
            progress: self.progress,
            end,
            components: &self.components,
        };
        self.tx.commit(&mut self.mint, self.now, append).await?;
        Ok((self.history, self.mint))
    }
}
