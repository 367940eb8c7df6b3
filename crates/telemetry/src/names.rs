//! Label values from outside, a bounded number of each sort.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

/// The value of a name that came too late.
pub(crate) const OTHER: &str = "other";

/// The names seen first, each kept for the life of the process.
pub(crate) struct Names {
    most: usize,
    seen: RwLock<HashSet<&'static str>>,
}

/// The label of a name.
pub(crate) enum Label {
    Known(&'static str),
    /// It is one name too many.
    Other,
}

impl Names {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, seen: RwLock::default() }
    }

    pub(crate) fn label(&self, name: &str) -> Label {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = seen.get(name) {
            return Label::Known(known);
        }
        drop(seen);
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = seen.get(name) {
            return Label::Known(known);
        }
        if seen.len() >= self.most {
            return Label::Other;
        }
        // At most `most` of them, for as long as the process lives.
        let kept: &'static str = Box::leak(name.into());
        seen.insert(kept);
        Label::Known(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_kept_and_later_ones_are_other() {
        let names = Names::new(2);
        let is = |name: &str| matches!(names.label(name), Label::Known(known) if known == name);
        assert!(is("a") && is("b") && is("a"));
        assert!(matches!(names.label("c"), Label::Other) && is("b"));
    }
}
