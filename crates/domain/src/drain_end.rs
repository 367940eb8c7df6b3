use crate::words;

words! {
    /// Whether a Session Drain continues after a write.
    pub enum DrainEnd {
        /// It continues.
        Keep = "keep",
        /// It ends. Pending inputs that have woken the session start another drain.
        Close = "close",
        /// It ends, and pending inputs wait for a new wake: it could not be started.
        Park = "park",
        /// It stops at a boundary on purpose, and the next holder continues.
        HandOver = "hand-over",
        /// It ends, and the session stays open: its turn waits for answers and needs no worker until one comes.
        Wait = "wait",
        /// It ends like [`Close`](Self::Close), and the session has moved to another Location.
        Moved = "moved",
        /// The session has moved during its work and stays open: the holder of its new Location continues, as after a
        /// [`HandOver`](Self::HandOver).
        MovedOpen = "moved-open",
    }
}

/// The state of the earlier drain, as a new Session Drain finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Whether the earlier drain has not ended.
    pub was_open: bool,
    /// Whether it stopped at a boundary on purpose.
    pub handed_over: bool,
    /// Takeovers in a row without progress, with this one.
    pub recoveries: i16,
}
