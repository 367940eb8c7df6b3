//! The files that a tool call may have changed.

use std::collections::BTreeSet;

/// The files that a call may have changed, as far as its tool knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Touched {
    /// None; there is nothing to capture.
    #[default]
    Nothing,
    /// At most these paths below the Location's root, without symlinks on the way, and everything beneath
    /// them.
    Paths(BTreeSet<String>),
    /// Any file: a command ran.
    Anything,
}

impl Touched {
    /// Makes a set of one path.
    #[must_use]
    pub fn path(path: impl Into<String>) -> Self {
        Self::Paths(BTreeSet::from([path.into()]))
    }

    /// Returns the union. More than 1,000 paths become `Anything`, because a full scan is cheaper.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        const MAX_PATHS: usize = 1_000;
        match (self, other) {
            (Self::Nothing, touched) | (touched, Self::Nothing) => touched,
            (Self::Anything, _) | (_, Self::Anything) => Self::Anything,
            (Self::Paths(mut paths), Self::Paths(more)) => {
                paths.extend(more);
                if paths.len() > MAX_PATHS { Self::Anything } else { Self::Paths(paths) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_calls_touched_is_the_union() {
        let (a, b) = (Touched::path("a"), Touched::path("b"));
        let both = Touched::Paths(BTreeSet::from(["a".into(), "b".into()]));
        assert_eq!(a.clone().and(b.clone()), both);
        assert_eq!(Touched::Nothing.and(a.clone()), a);
        assert_eq!(a.clone().and(Touched::Nothing), a);
        assert_eq!(a.and(Touched::Anything), Touched::Anything);
        let many = (0..600).map(|n| format!("x{n}")).collect();
        let more = (0..600).map(|n| format!("y{n}")).collect();
        assert_eq!(Touched::Paths(many).and(Touched::Paths(more)), Touched::Anything);
    }
}
