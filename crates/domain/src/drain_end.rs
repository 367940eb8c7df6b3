/// Whether a Session Drain goes on after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainEnd {
    /// It goes on.
    Keep,
    /// It ends. Inputs that someone woke the session for, and that are still pending, start another.
    Close,
    /// It ends, and what is pending waits for a new wake: it could not be started.
    Park,
    /// It stops at a boundary on purpose, and the next holder goes on.
    HandOver,
    /// It ends, as with [`Close`](Self::Close), and the session has moved to another Location.
    Moved,
    /// The session has moved in the middle of its work, and stays open: the next holder of its new Location goes on,
    /// as after a [`HandOver`](Self::HandOver).
    MovedOpen,
}

impl DrainEnd {
    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Close => "close",
            Self::Park => "park",
            Self::HandOver => "hand-over",
            Self::Moved => "moved",
            Self::MovedOpen => "moved-open",
        }
    }
}

/// What a Session Drain finds when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// An earlier drain has not ended.
    pub was_open: bool,
    /// It stopped on purpose, at a boundary.
    pub handed_over: bool,
    /// Takeovers in a row without progress, this one included.
    pub recoveries: i16,
}
