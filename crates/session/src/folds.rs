//! The memory of a worker's folds: how many bytes of logs its running drains may hold together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A fold that is smaller does not count: a worker's slots bound how many of them there are.
const SMALL: usize = 256 * 1024;

/// A budget of bytes for the folds of a worker's drains. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FoldBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    most: usize,
    used: Mutex<usize>,
}

impl Default for FoldBudget {
    /// Returns a budget without a bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl FoldBudget {
    /// Returns a budget of so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Budget { most, used: Mutex::new(0) }))
    }

    /// Returns whether a fold of so many bytes would get a share now. One that is larger than the budget gets it once
    /// nobody else has one.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.fits(*self.used(), bytes)
    }

    /// Returns a share of nothing.
    pub(crate) fn empty_share(&self) -> FoldShare {
        FoldShare { budget: self.clone(), ..FoldShare::default() }
    }

    fn fits(&self, used: usize, bytes: usize) -> bool {
        used == 0 || bytes < SMALL || used.saturating_add(bytes) <= self.0.most
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        // Nothing panics under this lock.
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn counted(bytes: usize) -> usize {
    if bytes < SMALL { 0 } else { bytes }
}

/// A drain's share of a budget, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct FoldShare {
    budget: FoldBudget,
    /// The bytes that count in the budget: those of the fold.
    bytes: usize,
    /// The most bytes for which there was room when the share was asked to grow.
    granted: usize,
}

impl FoldShare {
    /// Makes it a share of so many bytes, if there is room beside the others; returns whether there is. Once granted,
    /// no growth of another takes it away. Without room it is what it was.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let mut used = self.budget.used();
        let others = used.saturating_sub(self.bytes);
        if bytes > self.granted && !self.budget.fits(others, bytes) {
            return false;
        }
        *used = others.saturating_add(counted(bytes));
        self.bytes = counted(bytes);
        self.granted = self.granted.max(bytes);
        true
    }

    /// Follows the fold, which has grown or shrunk, whether there is room or not: between two boundaries no work is
    /// stopped for its size.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let mut used = self.budget.used();
        *used = used.saturating_sub(self.bytes).saturating_add(counted(bytes));
        self.bytes = counted(bytes);
        self.granted = self.granted.min(bytes);
    }
}

impl Drop for FoldShare {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        *used = used.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn take(budget: &FoldBudget, bytes: usize) -> Option<FoldShare> {
        let mut share = budget.empty_share();
        share.try_grow(bytes).then_some(share)
    }

    // Finding core-3 C2: a worker held the folds of all its drains, whatever their size.
    #[test]
    fn folds_beyond_the_budget_get_no_share_until_others_end() {
        let budget = FoldBudget::new(4 * MIB);
        let first = take(&budget, 3 * MIB).expect("room");
        assert!(take(&budget, 2 * MIB).is_none());
        let small: Vec<_> = (0..100).map(|_| take(&budget, SMALL - 1).expect("room")).collect();
        let second = take(&budget, MIB).expect("room");
        drop((first, small));
        assert!(budget.has_room(3 * MIB) && !budget.has_room(3 * MIB + 1));
        drop(second);
        let whole = take(&budget, 100 * MIB).expect("alone");
        assert!(!budget.has_room(MIB) && budget.has_room(SMALL - 1));
        drop(whole);
        assert_eq!(*budget.used(), 0);
    }

    #[test]
    fn a_fold_that_grows_takes_more_of_the_budget() {
        let budget = FoldBudget::new(4 * MIB);
        let mut share = take(&budget, 1).expect("room");
        assert_eq!(*budget.used(), 0);
        share.resize(3 * MIB);
        assert!(!budget.has_room(2 * MIB));
        share.resize(1);
        assert!(budget.has_room(4 * MIB));
    }

    // Finding look 4 (C2): a fold was never asked again whether it had room.
    #[test]
    fn a_share_grows_while_there_is_room_beside_others() {
        let budget = FoldBudget::new(4 * MIB);
        let mut first = take(&budget, 2 * MIB).expect("room");
        let mut second = take(&budget, MIB).expect("room");
        assert!(!second.try_grow(2 * MIB + 1));
        assert_eq!(*budget.used(), 3 * MIB, "a refusal changes nothing");
        // It is in memory all the same: who has its share keeps it, and who grows asks again.
        second.resize(3 * MIB);
        assert!(first.try_grow(2 * MIB) && !first.try_grow(2 * MIB + 1));
        assert!(!second.try_grow(3 * MIB));
        drop(first);
        assert!(second.try_grow(100 * MIB), "alone");
        second.resize(MIB);
        let _third = take(&budget, 3 * MIB).expect("room");
        assert!(!second.try_grow(2 * MIB), "what it gave back is not granted any more");
    }
}
