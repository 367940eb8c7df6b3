use access::Need;

/// Who may use a route. Each line of the table has one; the router turns it into a layer around the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Whoever may do this in the organisation that the key or login proves. Things of another organisation are
    /// not found.
    Needs(Need),
    /// The same. If they show a login, its person proved who they are a short time ago.
    NeedsRecent(Need),
    /// Everybody, and why.
    Open(&'static str),
    /// Everybody, and why; and other sites may send a browser here.
    Visited(&'static str),
}

impl Policy {
    /// Returns the need, unless the route is open.
    pub(crate) fn need(self) -> Option<Need> {
        match self {
            Self::Needs(need) | Self::NeedsRecent(need) => Some(need),
            Self::Open(_) | Self::Visited(_) => None,
        }
    }

    /// Returns whether a login must be recent.
    pub(crate) fn wants_recent(self) -> bool {
        matches!(self, Self::NeedsRecent(_))
    }
}
